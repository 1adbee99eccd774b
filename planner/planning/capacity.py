"""The capacity of a deployment within its objectives: a request rate, requests in flight, or open sessions."""

from collections.abc import Sequence
from dataclasses import replace

from planner.deployment.deploy import Deployment, pools_of
from planner.deployment.pools import read_fleet
from planner.errors import UsageError
from planner.planning.alternatives import COMPARED, matters
from planner.planning.answers_on_disk import keeps_answers
from planner.planning.bracket import UNKNOWNS, Unknown, UnreachableLoadError
from planner.planning.capacity_answer import (
    CapacityAnswer,
    Horizon,
    LoadBracket,
    Probe,
    RouterCapacity,
    ScalingCapacity,
)
from planner.planning.capacity_search import Settled, confidence_of, largest_from, search_notes, settled
from planner.planning.fewest import LOST
from planner.planning.missed import missed_objectives
from planner.planning.replay_line import replay_line
from planner.planning.search_options import Search
from planner.planning.sought import Posed, Rates, Sought, behind, judged, longer, pose, served
from planner.progress import in_parallel, later, stage
from planner.replays.fleet.replicas import serve
from planner.replays.result_tables import ReplayResult
from planner.results.notes import notes
from planner.results.rejections import rejected_by_reason, rejection_notes
from planner.results.resolved import describe_deployment
from planner.results.summary import summarize
from planner.settings.load_options import CLOSED_LOOP
from planner.settings.objectives import Objectives, required_of
from planner.settings.rate_scaling import MEANINGS
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.results import check_objectives
from planner.traces.shaping.rescaling import SCALINGS, part_words
from planner.traces.shaping.tenants import refuse_tenant_thresholds

NO_INTERVAL = "--interval has no effect here: the confidence uses the held-out errors without it"


@keeps_answers
def capacity(trace: Trace, scenario: Scenario, objectives: Objectives, search: Search) -> CapacityAnswer:
    """Find the largest load of `search.of` at which a deployment keeps its objectives.

    Parameters
    ----------
    trace : as read; the scenario's window and number of requests are applied to it here.
    scenario : in an open loop, without a rate of its own.
    objectives : that the load must keep.
    search : how to look.

    Raises
    ------
    UsageError : an option does not fit; UnlimitedError: the capacity has no end.
    PlannerError : as a replay.
    """
    check_search(scenario, search)
    check_objectives(objectives, scenario)
    if search.quick:
        search = replace(search, replicates=0, compare_assumptions=False)
    posed = pose(trace, scenario, objectives, search)
    sought, asked = posed.sought, _asked(posed, trace)
    if posed.alone is not None:
        alone = serve(posed.alone, sought.deployment)
        asked = _with_rejections(asked, sought, alone)
        if not judged(sought, alone).is_met:  # alone they miss the objectives, so they do at any rate
            return _infeasible(asked, sought, alone, "requests that each run alone", None)
    try:
        found = settled(sought, posed.start)
    except UnreachableLoadError as error:
        words = "one user" if sought.unknown.is_whole else str(error).partition(":")[0]
        return _infeasible(asked, sought, served(sought, error.lowest), words, error.lowest)
    largest, longest = found.bracket.lower, longer(sought, found.times)
    with stage(f"capacity {sought.unknown.text(largest)} {sought.unknown.unit}; other scalings, other routers and the "
               f"confidence follow", 2) as following:
        scalings, routers = _compared(longest, largest, found.slope)
        following.move(1)
        sure = confidence_of(sought, largest, found.slope) if search.replicates else None
    answer = replace(_feasible(posed, longest, asked, found), scalings=scalings, routers=routers, confidence=sure)
    return replace(answer, notes=(*answer.notes, *search_notes(found.bracket, found, sought.unknown),
                                  *_rests_on(answer)))


def largest_load(trace: Trace, scenario: Scenario, objectives: Objectives, search: Search) -> float:
    """Return the capacity alone, as `capacity` finds it in more time; 0 if no load keeps the objectives.

    Requests that run alone must keep them. Parameters and errors are as of `capacity`.
    """
    posed = pose(trace, scenario, objectives, search)
    try:
        return _number(posed.sought.unknown, settled(posed.sought, posed.start, is_told=False).bracket.lower)
    except UnreachableLoadError:
        return 0.0


def check_search(scenario: Scenario, search: Search) -> None:
    """Raise UsageError if an option does not fit a search for a capacity."""
    refuse_tenant_thresholds(scenario)
    if search.scaling not in SCALINGS:
        raise UsageError(f"--scaling {search.scaling}: must be one of {', '.join(SCALINGS)}")
    if search.of not in UNKNOWNS:
        raise UsageError(f"--of {search.of}: must be one of {', '.join(UNKNOWNS)}")
    if search.of == "requests" and search.think_time is not None:
        raise UsageError(f"--think-time {search.think_time:g}: requests at a rate have none; give --of concurrency or "
                         f"--of sessions")
    if search.horizon not in ("double", "trace"):
        raise UsageError(f"--horizon {search.horizon}: must be double or trace")
    pools = [] if scenario.fleet is None else read_fleet(scenario.fleet, scenario)
    for path in (scenario.autoscale, *(pool.scenario.autoscale for pool in pools)):
        if path is not None:
            raise UsageError(f"--autoscale {path}: a capacity needs a fixed number of replicas; leave it out")
    for name in ("rate_scale", "request_rate", *CLOSED_LOOP):
        if getattr(scenario, name) not in (None, False):
            raise UsageError(f"--{name.replace('_', '-')} {getattr(scenario, name)}: this command finds the "
                             f"load; leave it out")


def _asked(posed: Posed, trace: Trace) -> CapacityAnswer:
    """Return the question and its assumptions, in an answer that has no load yet; `trace` is as it was given."""
    sought = posed.sought
    search, deployment, scenario = sought.search, sought.deployment, sought.deployment.scenario
    routed = is_routed(deployment)
    return CapacityAnswer(
        of=search.of, feasible=False, lowered=posed.lowered, missed=(), capacity=_number(sought.unknown, 0.0),
        capacity_per_gpu=0.0, attainment_at_capacity=None, limiting_metric="none",
        bracket=LoadBracket(lower=_number(sought.unknown, 0.0), upper=None),
        is_monotone=True, kept_above=(), missed_below=(), probes=(), stationary=None, horizon=(), confidence=None,
        slo=required_of(sought.objectives), attainment=sought.objectives.attainment, scaling=search.scaling,
        think_time_s=posed.think_time_s, router=scenario.router if routed else None,
        assumptions=(*posed.assumptions, *([f"the router is {scenario.router}"] if routed else [])),
        num_gpus=deployment.num_gpus,
        notes=(*notes(deployment, posed.shaped), *([NO_INTERVAL] if scenario.interval is not None else [])),
        workload=posed.workload, deployment=describe_deployment(deployment, scenario.data_parallel_size),
        trace_sha256=trace.sha256)


def _number(unknown: Unknown, load: float) -> float:
    """Return a load, without decimals if it is a number of things."""
    return round(load) if unknown.is_whole else load


def is_routed(deployment: Deployment) -> bool:
    """Tell whether a router has replicas to choose from."""
    return sum(pool.num_replicas for pool in pools_of(deployment, deployment.scenario.data_parallel_size)) > 1


def _with_rejections(asked: CapacityAnswer, sought: Sought, result: ReplayResult) -> CapacityAnswer:
    """Return an answer with notes on the requests that a replay has rejected."""
    return replace(asked, notes=(*asked.notes, *rejection_notes(sought.deployment, rejected_by_reason(result))))


def _infeasible(asked: CapacityAnswer, sought: Sought, lightest: ReplayResult, words: str,
                load: float | None) -> CapacityAnswer:
    """Return that no load keeps the objectives, with the best values that there are.

    Parameters
    ----------
    lightest : the replay of the lightest load.
    words : the load of this replay, in words.
    load : the lowest that was tried; None if each request ran alone.
    """
    verdict = judged(sought, lightest)
    return replace(asked, missed=tuple(missed_objectives(sought.objectives, lightest.times_s)),
                   limiting_metric=verdict.limiting_metric,
                   bracket=replace(asked.bracket, upper=None if load is None else _number(sought.unknown, load)),
                   sentence=f"{words}: {verdict.shortfall}")


def _feasible(posed: Posed, longest: Sought, asked: CapacityAnswer, found: Settled) -> CapacityAnswer:
    """Return the largest load, and the verdict on every tried load; `longest` is sought on the whole length."""
    bracket, unknown = found.bracket, longest.unknown
    probes, largest = dict(bracket.probes), _number(unknown, bracket.lower)
    if unknown.is_whole:
        result = served(longest, largest)
        asked = replace(_with_rejections(asked, longest, result),
                        request_throughput=summarize(result, None, has_gaps=False).request_throughput)
    else:
        kept = part_words(longest.trace, largest, longest.search.scaling)
        asked = replace(asked, assumptions=(*asked.assumptions, *filter(None, [kept])),
                        rate_scale=largest / posed.workload.recorded_rps)
    replayed = longest.replayed(posed.scenario, bracket.lower, found.times)
    return replace(
        asked, feasible=True, replay_command=replay_line(longest.trace, replayed, longest.objectives),
        capacity=largest, capacity_per_gpu=largest / longest.deployment.num_gpus,
        attainment_at_capacity=probes[bracket.lower].attainment, limiting_metric=probes[bracket.upper].limiting_metric,
        bracket=LoadBracket(lower=largest, upper=_number(unknown, bracket.upper)), is_monotone=bracket.is_monotone,
        kept_above=tuple(_number(unknown, load) for load in bracket.kept_above),
        missed_below=tuple(_number(unknown, load) for load in bracket.missed_below), stationary=found.is_stationary,
        horizon=tuple(Horizon(num_requests=count, capacity=_number(unknown, load)) for count, load in found.lengths),
        probes=tuple(Probe(load=_number(unknown, load), is_met=verdict.is_met, attainment=verdict.attainment,
                           limiting_metric=verdict.limiting_metric, statistics_ms=verdict.values)
                     for load, verdict in bracket.probes if verdict is not LOST))


def _compared(sought: Sought, largest: float,
              slope: float) -> tuple[tuple[ScalingCapacity, ...], tuple[RouterCapacity, ...]]:
    """Return the capacity by other ways of scaling and behind other routers, from the known one; no bootstrap of them.

    The known one is the first; one replica has no routers, and users have no ways of scaling.
    """
    search, router, is_asked = sought.search, sought.deployment.scenario.router, sought.search.compare_assumptions
    routed = is_routed(sought.deployment)
    scaled = sought.other_scalings(largest) if is_asked and isinstance(sought, Rates) else {}
    routed_by = {name: behind(sought, name) for name in COMPARED if is_asked and routed and name != router}
    calls = [later(largest_from)(other, largest, slope) for other in (*scaled.values(), *routed_by.values())]
    loads = [None if load is None else _number(sought.unknown, load)
             for load in (largest, *in_parallel("other scalings and routers", calls, len(calls), search.jobs))]
    ways = zip((search.scaling, *scaled), loads, strict=False)
    routers = zip((str(router), *routed_by), (loads[0], *loads[1 + len(scaled):]), strict=True)
    return (() if sought.unknown.is_whole else tuple(ScalingCapacity(scaling=name, capacity=load)
                                                     for name, load in ways),
            tuple(RouterCapacity(router=name, capacity=load) for name, load in routers if routed))


def _rests_on(answer: CapacityAnswer) -> list[str]:
    """Return notes if the capacity by other ways of scaling, or behind other routers, is more than a tenth off."""
    by_scaling = [(f"{row.scaling} ({MEANINGS[row.scaling]})", row.capacity) for row in answer.scalings]
    by_router = [(row.router, row.capacity) for row in answer.routers]
    return [*_depends(answer.unknown, by_scaling, "scaling", "how the rate is scaled"),
            *_depends(answer.unknown, by_router, "router", "the router")]


def _depends(unknown: Unknown, loads: Sequence[tuple[str, float | None]], option: str, what: str) -> list[str]:
    """Return a note if one of several capacities is more than a tenth off the first."""
    if not loads or loads[0][1] is None or not matters(loads[0][1], (load for _, load in loads[1:])):
        return []
    text = ", ".join(f"{'no' if load is None else unknown.text(load)} {unknown.unit} with {name}"
                     for name, load in loads)
    return [f"the capacity depends on {what}: {text}; --{option} chooses"]
