"""The router that sends requests to replicas where the scenario names none."""

from dataclasses import replace

from planner.settings.scenario import Scenario

ROUTER = "round-robin"  # of a replay
# A Kubernetes Service draws the backend of each new connection at random: kube-proxy's iptables rules have
# `--mode random --probability`, its nftables rules `numgen random mod N vmap` (`writeServiceToEndpointRules` in
# Kubernetes' pkg/proxy/iptables/proxier.go and pkg/proxy/nftables/proxier.go).
SERVICE_ROUTER = "random"


def router_of(scenario: Scenario) -> str:
    """Return the router that a scenario's requests go by."""
    return ROUTER if scenario.router is None else scenario.router


def sized_router_of(scenario: Scenario) -> str:
    """Return the router of a fleet that is sized: a Kubernetes Service's where none is given.

    Ranks of data-parallel attention are behind their engine's server, not behind a Service each: they keep the router
    of a replay.
    """
    if scenario.router is None and not scenario.data_parallel_attention:
        return SERVICE_ROUTER
    return router_of(scenario)


def routed(scenario: Scenario) -> Scenario:
    """Return a scenario that names its router."""
    return replace(scenario, router=router_of(scenario))
