"""Fleets on one clock: routing, clients and retries, failures, ranks in lockstep."""
