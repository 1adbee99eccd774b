"""The command that replays the load of an answer, so that a user can check its numbers."""

from dataclasses import replace

from planner.deployment.deploy import Deployment
from planner.planning.alternatives import Sized
from planner.planning.fleets import Kind
from planner.planning.loads import Traffic
from planner.planning.study import Study, command_line
from planner.settings.objectives import Objectives
from planner.settings.scenario import Scenario, given_options
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
    """Return the command that replays the load on a fleet; None if no options of a replay describe it."""
    fleet = _of_replicas(kind.scenario, sized.served.deployment, sized.count)
    replayed = None if fleet is None else traffic.replayed(fleet, sized.times)
    return None if replayed is None else replay_line(traffic.trace, replayed, objectives)


def _of_replicas(scenario: Scenario, served: Deployment, count: int) -> Scenario | None:
    """Return the scenario of a fleet; None if only a fleet file describes it.

    Parameters
    ----------
    scenario : of a replica, with its load.
    served : the fleet as it was replayed.
    count : replicas [1].
    """
    if scenario.fleet is not None:
        return scenario
    if served.pools or (served.layout.data_parallel_size > 1 and count > 1):
        return None
    if served.layout.data_parallel_size > 1:
        return scenario
    return replace(scenario, data_parallel_size=count, prefill_replicas=served.scenario.prefill_replicas,
                   router=scenario.router if count > 1 else None)
