"""The router that sends requests to replicas if the scenario names none."""

from dataclasses import replace

from planner.settings.scenario import Scenario

# A Kubernetes Service draws the backend of each new connection at random: kube-proxy's iptables rules have
# `--mode random --probability`, its nftables rules `numgen random mod N vmap` (`writeServiceToEndpointRules` in
# Kubernetes' pkg/proxy/iptables/proxier.go and pkg/proxy/nftables/proxier.go).
SERVICE_ROUTER = "random"
TURNS = "round-robin"  # of the ranks of an engine behind its server, and of the pools of a fleet's file, by a gateway


def router_of(scenario: Scenario) -> str:
    """Return the router that a scenario's requests go by."""
    if scenario.router is not None:
        return scenario.router
    return TURNS if scenario.data_parallel_attention or scenario.fleet is not None else SERVICE_ROUTER


def routed(scenario: Scenario) -> Scenario:
    """Return a scenario that names its router."""
    return replace(scenario, router=router_of(scenario))
