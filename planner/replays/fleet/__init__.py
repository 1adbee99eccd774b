"""Fleets: replicas behind a router, on one clock where they depend on each other."""
