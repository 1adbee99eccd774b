"""The fewest replicas that meet the objectives while a GPU, a node or a zone fails at the worst moment of the load."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment
from planner.errors import UsageError
from planner.planning.alternatives import MOST_TIMES, Sized
from planner.planning.failing_units import UNITS, Placement, placement_of, share_down, share_within
from planner.planning.fleets import Kind, cost_of, count_gpus, fleet_cost
from planner.planning.loads import Traffic
from planner.planning.missed import missed_objectives, reached_objectives, unreachable
from planner.planning.price_list import ON_DEMAND, usd_per_month
from planner.planning.replay_line import fleet_line
from planner.planning.search_options import Choices
from planner.planning.survival_answer import Survival, YearShare
from planner.progress import stage
from planner.replays.fleet.failures import Failure
from planner.replays.fleet.replicas import serve
from planner.replays.result_tables import ReplayResult
from planner.settings.objectives import Objectives, Verdict, judge
from planner.settings.panel import Range
from planner.settings.scenario import Scenario
from planner.traces import Trace

WINDOWS = (1 / 64, 1 / 16, 1 / 4)  # lengths of the busiest windows, as shares of the load's duration
AROUND = (-2, -1, 1, 2)  # moments around the worst one, in lengths of the shortest window
EVEN = 8  # moments apart by an equal number of requests, from the first request on
STEPS = 16  # to twice a number of replicas
MORE_ROWS = 2  # of the table of a year, above the fleet that survives
MINUTES = 8760 * 60.0  # of a year
RANGES = {  # by choice, with its option: they need --survive
    "zones": ("--zones", Range(least=2)), "replicas_per_node": ("--replicas-per-node", Range(least=1)),
    "health_check_s": ("--health-check", Range(least=0, is_finite=True)),
    "mtbf_h": ("--mtbf", Range(above=0, is_finite=True)), "mttr_h": ("--mttr", Range(above=0, is_finite=True))}
UNIT_OF = {"zones": "zone", "replicas_per_node": "node"}  # the unit that a choice is for


def check_survival(scenario: Scenario, choices: Choices) -> None:
    """Raise UsageError if the choices for a failure contradict each other, or others do not go with them."""
    unit, usual = choices.survive, Choices()
    if unit is not None and unit not in UNITS:
        raise UsageError(f"--survive {unit}: must be {', '.join(UNITS)}")
    for name, (option, values) in RANGES.items():
        value = getattr(choices, name)
        if unit is None and value != getattr(usual, name):
            raise UsageError(f"{option} {value}: nothing fails; give --survive gpu, node or zone")
        if value is not None and value not in values:
            raise UsageError(f"{option} {value}: must be {values}")
        if unit is not None and value != getattr(usual, name) and UNIT_OF.get(name, unit) != unit:
            raise UsageError(f"{option} {value} with --survive {unit}: it is for --survive {UNIT_OF[name]}; leave it "
                             f"out")
    if choices.mtbf_h is not None and choices.mttr_h is None:
        raise UsageError(f"--mtbf {choices.mtbf_h:g}: the share of a year needs the time to repair too; give --mttr")
    refused = {"--fail-replica": scenario.fail_replica, "--fleet": scenario.fleet, "--strata": choices.num_strata,
               "--data-parallel-attention": scenario.data_parallel_attention, "--disaggregate": choices.disaggregate,
               "--spare": choices.num_spare, "--period": choices.period_s, "--growth": choices.growth,
               "--sensitivity": choices.sensitivity}
    for option, refused_value in refused.items():
        if unit is not None and refused_value:
            raise UsageError(f"--survive {unit} with {option}: this combination is not modelled; leave one of them out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A replay with a failure.

    Parameters
    ----------
    failures, text : one for each replica that fails, and they as an option's value.
    served, verdict : how the fleet serves.
    healthy : how it serves without the failure.
    num_moments : moments that were replayed [1].
    """

    failures: tuple[Failure, ...]
    text: str
    served: ReplayResult
    verdict: Verdict
    healthy: ReplayResult
    num_moments: int


def survived(traffic: Traffic, kind: Kind, sized: Sized, objectives: Objectives, choices: Choices
             ) -> tuple[Sized, Survival | None]:
    """Return the fewest replicas that meet the objectives with a failed unit, and the failure; None without --survive.

    Parameters
    ----------
    sized : the fewest replicas if nothing fails, and the load.

    Raises
    ------
    UnreachableError : no number of replicas up to `MOST_TIMES` as many does.
    """
    if choices.survive is None:
        return sized, None
    deployment, load = sized.served.deployment, sized.served.trace
    placement = placement_of(choices.survive, kind.names.gpu, deployment.layout.num_gpus, choices.replicas_per_node,
                             choices.zones)
    with stage(f"surviving one {choices.survive}"):
        count, struck, limiting = _fewest(load, deployment, objectives, sized, placement, choices)
    fleet = replace(sized, count=count, served=struck.healthy, limiting_metric=limiting or sized.limiting_metric)
    failed = replace(kind, scenario=replace(kind.scenario, fail_replica=struck.text))
    more_usd = usd_per_month(fleet_cost(fleet.served, choices) - fleet_cost(sized.served, choices))
    more_gpus, first = count_gpus(fleet.served) - count_gpus(sized.served), struck.failures[0]
    return fleet, Survival(
        unit=choices.survive, num_units=placement.num_units(count), num_failed=len(struck.failures),
        num_replicas_without=sized.count, more_gpus=more_gpus, more_usd_per_month=more_usd, at_s=first.at_s,
        duration_s=first.duration_s if first.duration_s < math.inf else None, health_check_s=choices.health_check_s,
        num_moments=struck.num_moments, attainment=struck.verdict.attainment,
        reached=reached_objectives(objectives, struck.served.times_s),
        replay_command=fleet_line(traffic, failed, fleet, objectives),
        year=_year(placement, sized, count, choices),
        sentence=f"survives one {choices.survive.replace('gpu', 'GPU')}: {placement.words(count)} "
                 f"({sized.count:,} without a failure), {more_gpus:,} more GPU{'s' * (more_gpus != 1)}, "
                 f"{more_usd:,.0f} USD/month more")


def _fewest(trace: Trace, deployment: Deployment, objectives: Objectives, sized: Sized, placement: Placement,
            choices: Choices) -> tuple[int, Struck, str | None]:
    """Return the fewest replicas that meet the objectives with a failure, it, and the metric that one less misses.

    The numbers are tried upwards, since more are not always better: a unit of 13 replicas in two zones is more than
    half. From dozens of replicas on the steps are a sixteenth, and the last step is bisected.
    """
    known: dict[int, Struck | None] = {}

    def is_met(count: int) -> bool:
        known[count] = worst_failure(trace, deployment, objectives, count, placement, choices)
        struck = known[count]
        return struck is not None and struck.verdict.is_met

    first, step = sized.count, max(sized.count // STEPS, 1)
    enough = first + placement.num_failed(first)
    low, count = first - 1, first
    while not is_met(count):
        if low < 2 * enough <= count and not is_met(MOST_TIMES * enough):
            lost = known[MOST_TIMES * enough]
            assert lost is not None, "more replicas than a unit has"
            raise unreachable(f"{MOST_TIMES * enough:,} replicas still miss the objectives with one {choices.survive} "
                              f"down: {lost.verdict.shortfall}", missed_objectives(objectives, lost.served.times_s))
        low, count = count, min(count + step, MOST_TIMES * enough)
    while count - low > 1:
        middle = (low + count) // 2
        low, count = (low, middle) if is_met(middle) else (middle, count)
    struck, less = known[count], known.get(low)
    assert struck is not None, "a number that meets the objectives"
    return count, struck, None if less is None else less.verdict.limiting_metric


def worst_failure(trace: Trace, deployment: Deployment, objectives: Objectives, count: int, placement: Placement,
                  choices: Choices) -> Struck | None:
    """Return the failure of a unit by which the objectives are met worst; None if no replica is left.

    The failure is replayed at each of `moments`, of the unit with the most requests in flight then. The first failure
    by which the objectives are missed ends the search.
    """
    groups = placement.groups(count)
    largest = [group for group in groups if len(group) == len(groups[0])]
    if len(largest[0]) == count:
        return None
    healthy = serve(trace, deployment, count)
    busiest = moments(healthy, choices)
    first_s, last_s = min(busiest), float(np.nanmax(healthy.records.requests.arrival_s))
    worst: Struck | None = None

    def instants() -> Iterator[float]:
        yield from busiest
        middle_s = first_s if worst is None else worst.failures[0].at_s
        around_s = [middle_s + step * WINDOWS[0] * (last_s - first_s) for step in AROUND]
        yield from (at_s for at_s in around_s if first_s <= at_s <= last_s)

    for number, at_s in enumerate(instants(), start=1):
        group = largest[int(np.argmax(_requests_hit(healthy, at_s, choices.health_check_s, largest)))]
        struck = strike(healthy, objectives, group, at_s, choices)
        worst = struck if worst is None or _badness(struck.verdict) > _badness(worst.verdict) else worst
        worst = replace(worst, num_moments=number)
        if not struck.verdict.is_met:
            break
    assert worst is not None, "a load has a first request"
    return worst


def strike(healthy: ReplayResult, objectives: Objectives, group: Sequence[int], at_s: float,
           choices: Choices) -> Struck:
    """Replay the failure of a group of replicas at an instant [s]."""
    duration_s = math.inf if choices.mttr_h is None else 3600.0 * choices.mttr_h
    failures = tuple(Failure(replica=k, at_s=at_s, duration_s=duration_s, health_check_s=choices.health_check_s)
                     for k in group)
    deployment, text = healthy.deployment, ",".join(failure.text for failure in failures)
    failing = replace(deployment, scenario=replace(deployment.scenario, fail_replica=text))
    served = serve(healthy.trace, failing, healthy.num_replicas)
    return Struck(failures=failures, text=text, served=served, verdict=judge(objectives, served.times_s),
                  healthy=healthy, num_moments=1)


def _badness(verdict: Verdict) -> tuple[bool, float, float]:
    """Return a key by which verdicts are in order: the share within the limits first, which the answer shows."""
    return not verdict.is_met, -verdict.attainment, 0.0 if math.isnan(verdict.strain) else verdict.strain


def moments(served: ReplayResult, choices: Choices) -> list[float]:
    """Return the instants at which a failure may be worst [s], the likeliest first.

    They are the instants with the most tokens and with the most requests in flight, the start of the busiest window of
    each length by prompt tokens and by output tokens, and `EVEN` instants from the first request on. The times of the
    health check and of the repair are lengths too.
    """
    requests = served.records.requests
    order = np.argsort(requests.arrival_s, kind="stable")
    arrival_s = requests.arrival_s[order]
    table = served.trace.requests
    weights = [table[name].to_numpy()[order].astype(float) for name in ("input_tokens", "output_tokens")]
    ends = np.where(np.isnan(requests.finished_s), math.inf, requests.finished_s)[order]
    by_end = np.argsort(ends, kind="stable")
    num_ended = np.searchsorted(ends[by_end], arrival_s, side="right")
    instants = []
    for counted in (weights[0] + weights[1], np.ones(len(ends))):
        left = np.concatenate((np.zeros(1), np.cumsum(counted[by_end])))
        instants.append(float(arrival_s[int(np.argmax(np.cumsum(counted) - left[num_ended]))]))
    span_s = float(arrival_s[-1] - arrival_s[0])
    repair_s = 3600.0 * (choices.mttr_h or 0.0)
    for length_s in filter(None, (choices.health_check_s, repair_s, *(share * span_s for share in WINDOWS))):
        for tokens in weights:
            sums = np.concatenate((np.zeros(1), np.cumsum(tokens)))
            until = np.searchsorted(arrival_s, arrival_s + length_s, side="left")
            instants.append(float(arrival_s[int(np.argmax(sums[until] - sums[:-1]))]))
    even = [float(arrival_s[k * len(arrival_s) // EVEN]) for k in range(EVEN)]
    return list(dict.fromkeys([*instants, *even]))


def _requests_hit(served: ReplayResult, at_s: float, health_check_s: float,
                  groups: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Return the requests at each group of replicas from an instant until the router finds out."""
    requests = served.records.requests
    ended = np.where(np.isnan(requests.finished_s), math.inf, requests.finished_s)
    is_hit = (requests.arrival_s <= at_s + health_check_s) & (ended > at_s)
    assert served.replica is not None, "more than one replica"
    by_replica = np.bincount(np.maximum(served.replica, 0), weights=is_hit, minlength=served.num_replicas)
    return np.array([by_replica[list(group)].sum() for group in groups])


def _year(placement: Placement, sized: Sized, count: int, choices: Choices) -> tuple[YearShare, ...]:
    """Return the share of a year for each number of replicas from the fewest on; empty without --mtbf.

    The objectives hold while at least the fewest replicas work: the replay of one less misses them.
    """
    if choices.mtbf_h is None or choices.mttr_h is None:
        return ()
    down = share_down(choices.mtbf_h, choices.mttr_h, placement.units_per_replica)
    gpu, num_gpus = sized.served.deployment.gpu, sized.served.deployment.layout.num_gpus
    assert gpu is not None, "a fleet has a price"
    rows: list[YearShare] = []
    for number in range(sized.count, count + MORE_ROWS + 1):
        share = share_within([len(group) for group in placement.groups(number)], sized.count, down)
        missed = (1.0 - share) * MINUTES
        rows.append(YearShare(
            num_replicas=number, num_units=placement.num_units(number), share=share, missed_minutes_per_year=missed,
            cost_usd_per_month=usd_per_month(cost_of(gpu, number, number * num_gpus, ON_DEMAND, choices) or 0.0),
            saved_minutes_per_year=rows[-1].missed_minutes_per_year - missed if rows else None))
    return tuple(rows)
