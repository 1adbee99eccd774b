"""The command that replays the load of an answer, so that a user can check its numbers."""

import json
from dataclasses import replace

from planner.planning.alternatives import Sized
from planner.planning.fleets import Kind
from planner.planning.loads import Traffic
from planner.planning.study import Study, command_line
from planner.settings.objectives import Objectives
from planner.settings.scenario import Scenario, attention_ranks, given_options
from planner.traces import Trace
from planner.traces.shaping.client_load import ALSO_DRAW, NAME


def replay_line(trace: Trace, scenario: Scenario, objectives: Objectives | None) -> str:
    """Return the `planner replay` command of a scenario.

    Parameters
    ----------
    trace : as read; the scenario's load options are not yet applied to it.
    """
    if not (given_options(scenario).keys() & ALSO_DRAW or trace.format == NAME):
        scenario = replace(scenario, seed=None)  # nothing is drawn
    study = Study(name="replay", trace=trace.source, format=trace.spec, scenario=scenario, objectives=objectives)
    return command_line(study, options={"on_bad_rows": "drop"} if trace.account.num_bad else {})


def fleet_line(traffic: Traffic, kind: Kind, sized: Sized, objectives: Objectives) -> str | None:
    """Return the command that replays the load on a fleet; None if no options of a replay describe the load."""
    prefill = sum(pool.num_groups for pool in sized.served.deployment.pools if pool.role == "prefill")
    prefill = prefill or sized.served.deployment.scenario.prefill_replicas
    replayed = traffic.replayed(of_replicas(kind, sized.count, prefill), sized.times)
    return None if replayed is None else replay_line(traffic.trace, replayed, objectives)


def of_replicas(kind: Kind, count: int, prefill: int) -> Scenario:
    """Return the scenario of a fleet, with the text of its pools if replicas have ranks or differ.

    Parameters
    ----------
    count : replicas without spares, of both roles [1].
    prefill : replicas that prefill; 0 if all do both [1].
    """
    scenario, ranks = kind.scenario, attention_ranks(kind.scenario) > 1
    if scenario.fleet is not None or (ranks and count == 1):
        return scenario
    if not ranks and kind.decode is None:
        return replace(scenario, data_parallel_size=count, prefill_replicas=prefill,
                       router=scenario.router if count > 1 else None)
    pools = [_pool("", scenario, count)] if prefill == 0 else [
        _pool("prefill", scenario, prefill), _pool("decode", kind.decode or scenario, count - prefill)]
    return replace(scenario, fleet=f"pool = [{', '.join(pools)}]", data_parallel_attention=False,
                   data_parallel_size=1, prefill_replicas=0)


def _pool(role: str, scenario: Scenario, count: int) -> str:
    """Return a pool of a fleet's text: its role, its replicas, their GPUs and their ranks."""
    values = {**({"role": f'"{role}"'} if role else {}), "replicas": count, "gpu": json.dumps(scenario.gpu),
              "tensor_parallel_size": scenario.tensor_parallel_size}
    if scenario.data_parallel_attention:
        values |= {"data_parallel_attention": "true", "data_parallel_size": scenario.data_parallel_size}
    return "{" + ", ".join(f"{name} = {value}" for name, value in values.items()) + "}"
