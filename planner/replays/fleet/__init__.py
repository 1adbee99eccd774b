"""Fleets: replicas behind a router, on one clock if they depend on each other."""
