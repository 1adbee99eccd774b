"""The fewest GPUs, and the cheapest fleet, that serve a trace within its objectives."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from planner.deployment.deploy import Deployment
from planner.errors import CapacityError, CatalogError, UnknownNameError, UsageError
from planner.launch import launch_command
from planner.planning.alternatives import Compared, Sized, spread, traded
from planner.planning.answers_on_disk import keeps_answers
from planner.planning.bracket import TOLERANCE
from planner.planning.break_even import beside_apis, cached_share
from planner.planning.far_kinds import Effort, efforts
from planner.planning.fewest import fewest_replicas
from planner.planning.fleet_schedule import schedule_of, with_forecast
from planner.planning.fleets import (
    Kind,
    kinds_of,
    power_kw,
    rents,
    slice_notes,
    spare_replicas,
    whole_gpus,
    with_prices,
)
from planner.planning.growth import growth_of
from planner.planning.headroom import (
    DEAR_PRECISION,
    DEAR_TIMES,
    capacity_headroom,
    has_capacity,
    headroom,
    headroom_precision,
)
from planner.planning.layouts import can_cost_less, pruned_notes, replica_cost, smallest_layouts
from planner.planning.loads import Traffic, UsersLoad, traffic_of, users_of
from planner.planning.missed import UnreachableError, reached_objectives
from planner.planning.offers import offers, pools_in
from planner.planning.prediction_error import doubts_of, keeps_with_error, step_error
from planner.planning.price_list import usd_per_month, usd_per_year
from planner.planning.replay_line import fleet_line
from planner.planning.search_options import Choices
from planner.planning.sensitivity import sensitivity
from planner.planning.size_answer import ClosestKind, Fleet, SizeAnswer, UnableFleet
from planner.planning.size_question import check_size, unanswered
from planner.planning.spot import spot_share
from planner.planning.strata_error import strata_notes
from planner.planning.survival import survived
from planner.planning.thresholds import cheapest_threshold, read_open_fleet
from planner.planning.used_prices import checked_prices, old_notes, used_prices
from planner.planning.user_loads import limited
from planner.progress import in_parallel, later, stage
from planner.replays.fleet.shares import shares
from planner.results.notes import notes
from planner.results.saturation import is_surely_steady
from planner.results.summary import summarize
from planner.results.utilization import utilization
from planner.settings.default_router import routed
from planner.settings.objectives import Objectives, Verdict, judge
from planner.settings.scenario import Scenario
from planner.steptime.roofline import priors
from planner.traces import Trace
from planner.traces.results import check_objectives
from planner.traces.shaping.rescaling import MOST_REQUESTS

LONGER = 8  # times a trace that shows whether a queue grows: replicas are whole, so twice may show nothing
SHOWN = 10_000  # requests of a log that shows whether a queue grows
NO_INTERVAL = "--interval has no effect here; planner capacity gives the confidence of a rate"

Tried = tuple[Kind, Fleet | UnableFleet, Callable[[], Fleet] | None]  # the last adds headroom and schedule to the fleet


def size(trace: Trace, scenario: Scenario, objectives: Objectives, choices: Choices) -> SizeAnswer:
    """Find the fewest replicas of each kind that serve a trace within its objectives.

    Requests go to the replicas by the scenario's router; if it names none, at random, as a Kubernetes Service sends
    them. If a rate is asked for, the trace's traffic gets it by `choices.scaling`, and goes on until one of eight
    times the length needs no other number, or until a long log shows that no queue grows.
    With a rate series the fleet serves its highest window, as long as that lasts. The cheapest fleet's kind is sized
    behind other routers and by other ways of scaling too.

    Parameters
    ----------
    trace : as read; the scenario's window, number of requests and rate are applied to it here.
    scenario : of one replica, except its GPU, layout and weight format, which `choices` has; with data-parallel
        attention its ranks are `data_parallel_size`, and all of them one replica.
    objectives : that the load must keep.
    choices : options for fleets. With a fleet's file of two pools, whose conditions leave a threshold open, they
        are made of its pools, and the threshold is looked for too.

    Raises
    ------
    UsageError : an option does not fit; no kind of replica can be deployed.
    PlannerError : as a replay.
    """
    answer = _found(trace, scenario, objectives, choices)
    apis = [row.price for row in answer.apis or ()]
    return replace(answer, notes=(*answer.notes, *old_notes([*answer.prices, *apis])))


@keeps_answers
def _found(trace: Trace, scenario: Scenario, objectives: Objectives, choices: Choices) -> SizeAnswer:
    """Return the answer without a note on old prices, which depends on the day."""
    check_size(scenario, choices)
    check_objectives(objectives, scenario)
    choices, forecast_notes = with_forecast(with_prices(choices))
    scenario = routed(scenario)
    if not scenario.data_parallel_attention:
        scenario = replace(scenario, data_parallel_size=1, prefill_replicas=0)
    traffic = _traffic(trace, scenario, choices)
    if isinstance(traffic, UsersLoad):
        scenario = limited(scenario, traffic.of, traffic.users, traffic.think_time_s)
    pools = None if scenario.fleet is None else read_open_fleet(scenario)
    if pools is not None:
        pools.check(traffic.load(), choices)
    kinds = kinds_of(scenario, choices) if pools is None else pools.kinds()
    choices = checked_prices([kind.names for kind in kinds], str(kinds[0].scenario.model), choices)
    tried, pruned = _sized(traffic, kinds, objectives, choices)
    able = _by_cost([(kind, fleet) for kind, fleet, _ in tried if isinstance(fleet, Fleet)], choices)
    unable = tuple(fleet for _, fleet, _ in tried if isinstance(fleet, UnableFleet))
    asked = replace(unanswered(trace, traffic, scenario, objectives, choices, unable), notes=tuple(forecast_notes))
    if pools is not None:
        best = able[0][1] if able else None
        load = traffic.load(1 if best is None else best.trace_copies)
        asked = replace(asked, split=cheapest_threshold(pools, load, objectives, choices, best))
    if not able:
        return _infeasible(asked, unable)
    asked = replace(asked, notes=(*asked.notes, *pruned_notes(pruned)))
    best = able[0][1]
    with stage(f"cheapest: {best.replicas} × {best.kind.words}, {best.cost_usd_per_hour:,.2f} USD/h; headroom, other "
               f"scalings and routers follow", so_far=_of_fleets(asked, able, unable, choices)):
        first, is_searched = able[0][0], has_capacity(traffic)
        most = DEAR_TIMES * best.cost_usd_per_hour if is_searched else math.inf
        as_capacity = partial(_as_capacity, trace, traffic, objectives, choices)

        def rested(kind: Kind, rest: Callable[..., Fleet]) -> tuple[Kind, Fleet]:
            fleet = rest(has_headroom=not is_searched or kind is not first, most_cost=most)
            return as_capacity(kind, fleet) if is_searched and kind is first else (kind, fleet)

        calls = [later(rested)(kind, rest) for kind, _, rest in tried if rest is not None]
        calls.sort(key=lambda call: call[1][0] is not first)  # its headroom takes the longest
        able = _by_cost(in_parallel("finding the headroom", calls, len(calls), choices.jobs), choices)
        if is_searched and able[0][0] is not first:  # of two kinds of one price, the kind with more headroom
            able[0] = as_capacity(*able[0])
        return _answered(traffic, _of_fleets(asked, able, unable, choices), able, objectives, choices)


def _by_cost(able: Sequence[tuple[Kind, Fleet]], choices: Choices) -> list[tuple[Kind, Fleet]]:
    return sorted(able, key=lambda sized: _cost(sized[1], choices))


def _as_capacity(trace: Trace, traffic: Traffic, objectives: Objectives, choices: Choices, kind: Kind,
                 fleet: Fleet) -> tuple[Kind, Fleet]:
    """Return a fleet with the headroom that the answer of `capacity` for it gives."""
    count = fleet.num_replicas - spare_replicas(choices, kind.divided)
    prefill = max(fleet.prefill_replicas - choices.num_spare, 0)
    share = capacity_headroom(trace, traffic, kind, count, prefill, objectives, choices)
    return kind, replace(fleet, headroom=share, headroom_precision=TOLERANCE)


def _of_fleets(asked: SizeAnswer, able: Sequence[tuple[Kind, Fleet]], unable: tuple[UnableFleet, ...],
               choices: Choices) -> SizeAnswer:
    """Return the answer with the fleets of all kinds, the cheapest first."""
    fleets = tuple(fleet for _, fleet in able)
    best = fleets[0]
    return replace(
        asked, cheapest=best, feasible=True, alternatives=(*fleets, *unable), priors=best.priors,
        fewest_gpus=min(fleets, key=lambda fleet: (whole_gpus(fleet.kind, fleet.num_gpus), _cost(fleet, choices))),
        options=offers(fleets, choices), notes=(*asked.notes, *best.notes), prices=used_prices(
            (gpu for fleet in fleets for gpu, _, _ in pools_in(fleet)), choices))


def _answered(traffic: Traffic, found: SizeAnswer, able: Sequence[tuple[Kind, Fleet]], objectives: Objectives,
              choices: Choices) -> SizeAnswer:
    """Return the answer with the size under other assumptions, the cheapest kind's doubts and its comparisons."""
    kind, best = able[0]
    count = best.num_replicas - spare_replicas(choices, kind.divided)
    compared = _compared(traffic, kind, objectives, choices, best, count)
    drawn = strata_notes(traffic, kind, count, objectives, choices)
    return replace(
        found, apis=beside_apis(traffic.trace, traffic.load(best.trace_copies), best,
                                _mean_rps(traffic, choices, best.replay_rate or 0.0), choices),
        sensitivity=sensitivity(traffic, able, objectives, choices) if choices.sensitivity else None,
        growth=growth_of(traffic, able, objectives, choices),
        spot=spot_share(traffic, kind, count, best.trace_copies, objectives, choices),
        routers=compared.routers, routers_not_tried=compared.routers_not_tried, better_router=compared.better_router,
        scalings=compared.scalings, notes=(*compared.notes, *drawn, *found.notes),
        doubts=doubts_of(traffic, kind, count, [fleet for _, fleet in able], objectives, choices))


def _sized(traffic: Traffic, kinds: Sequence[Kind], objectives: Objectives,
           choices: Choices) -> tuple[list[Tried], list[Kind]]:
    """Return kinds with the fleet of each, and the kinds that were not tried."""
    load = traffic.load()

    def fleets_of(tried: Sequence[Kind]) -> list[Tried]:
        ways = efforts(load, tried, objectives, choices)
        longest_first = sorted(range(len(tried)), key=lambda place: replica_cost(tried[place], choices))
        calls = [later(_fleet)(traffic, load, tried[place], objectives, choices, ways[place])
                 for place in longest_first]
        found = in_parallel("sizing fleets", calls, len(calls), choices.jobs)
        return [sized for _, sized in sorted(zip(longest_first, found, strict=True), key=lambda each: each[0])]

    if not choices.prune_layouts:
        return fleets_of(kinds), []
    first, others = smallest_layouts(kinds, load)
    found = fleets_of(first)
    costs = {fleet.kind.gpu: fleet.cost_usd_per_hour for _, fleet, _ in found if isinstance(fleet, Fleet)}
    calls = [later(can_cost_less)(load, kind, objectives, choices, costs.get(kind.names.gpu, math.inf))
             for kind in others]
    can = in_parallel("comparing layouts", calls, len(calls), choices.jobs)
    tried = [kind for kind, is_so in zip(others, can, strict=True) if is_so]
    return found + fleets_of(tried), [kind for kind in others if kind not in tried]


def _traffic(trace: Trace, scenario: Scenario, choices: Choices) -> Traffic:
    """Return the load that is asked for: at a rate, or of a number of users."""
    if not scenario.is_closed_loop:
        if choices.think_time is not None:
            raise UsageError(f"--think-time {choices.think_time:g}: requests at a rate have none; give the users by "
                             f"--max-concurrency or --max-sessions")
        return traffic_of(trace, scenario, choices.scaling, choices.series, choices.num_strata)
    if choices.series is not None or choices.period_s is not None or choices.growth is not None or choices.sensitivity:
        raise UsageError("--rate-series, --period, --growth, --sensitivity: a closed loop of users has no rate that "
                         "could change; leave them out")
    return users_of(trace, scenario, choices.think_time)


def _compared(traffic: Traffic, kind: Kind, objectives: Objectives, choices: Choices, best: Fleet,
              count: int) -> Compared:
    """Return the size under other assumptions, empty if nothing else is to be tried."""
    if not choices.compare_assumptions or choices.quick or choices.survive:
        return Compared(routers=(), routers_not_tried=(), better_router=None, scalings=(), notes=())
    return spread(traffic, kind, objectives, choices, count, best.trace_copies, best.num_gpus)


def _infeasible(asked: SizeAnswer, unable: Sequence[UnableFleet]) -> SizeAnswer:
    """Return that no fleet keeps the objectives, with the objectives that the closest kind misses.

    Raises
    ------
    UsageError : no kind can be deployed at all.
    """
    missing = [fleet for fleet in unable if fleet.missed]
    if not missing:
        raise UsageError(f"no fleet can be deployed: {reasons_of(unable)}")
    closest = min(missing, key=_distance)
    kind, is_split = closest.kind, asked.split is not None and asked.split.fleet is not None
    return replace(asked, missed=closest.missed, feasible=is_split, closest=ClosestKind(
        gpu=kind.gpu, tensor_parallel_size=kind.tensor_parallel_size, quantization=kind.quantization,
        decode_gpu=kind.decode_gpu, decode_tensor_parallel_size=kind.decode_tensor_parallel_size))


def reasons_of(fleets: Sequence[UnableFleet]) -> str:
    """Return the reasons of fleets in a sentence, each once with the kinds that have it."""
    kinds: dict[str, list[str]] = {}
    for fleet in fleets:
        kinds.setdefault(fleet.reason, []).append(fleet.kind.words)
    return "; ".join(f"{reason} ({', '.join(names)})" if len(names) > 1 else f"{names[0]}: {reason}"
                     for reason, names in kinds.items())


def _distance(fleet: UnableFleet) -> float:
    """Return the share by which a fleet misses its worst objective."""
    return max(math.inf if each.missed_by is None else each.missed_by for each in fleet.missed)


def _fleet(traffic: Traffic, load: Trace, kind: Kind, objectives: Objectives, choices: Choices,
           effort: Effort) -> Tried:
    """Return a kind whose engines start with its fewest replicas, also of one that prefills and another that decodes.

    Of two kinds the cheapest that `cheapest_split` finds. A kind that cannot serve the load comes with the reason.
    Headroom and schedule are found later, since they take most of the time.
    """
    try:
        kind = kind.started(traffic.trace)
        deployment = kind.deployed(load)
        sized, survival = survived(traffic, kind, _settled(traffic, load, deployment, objectives, kind, effort),
                                   objectives, choices)
    except UnknownNameError:
        raise
    except (CapacityError, CatalogError, UsageError) as error:
        missed = error.missed if isinstance(error, UnreachableError) else ()
        return kind, UnableFleet(kind=kind.names, reason=str(error), missed=missed), None
    sized = traded(kind, sized, objectives, choices)
    served = sized.served
    deployment, figures = served.deployment, summarize(served, None, has_gaps=False)
    used = utilization(served, figures.duration, figures.total_output_tokens)
    parts = shares(served, figures.duration)
    prefill = sum(part.pool.num_groups for part in parts if part.pool.role == "prefill")
    num_gpus, rented = sized.gpus(kind, choices), rents(served, choices)
    cost, whole = sum(part.usd_per_hour for part in rented), [part.words for part in rented if part.words]
    per_request: Any = load.requests["output_tokens"].mean()
    mean_rps = _mean_rps(traffic, choices, figures.request_throughput or 0.0)
    command, lacking = launch_command(replace(kind.scenario, router=None))
    longer = step_error(deployment)
    verdict = judge(objectives, served.times_s)
    fleet = Fleet(
        kind=kind.names, lowered=kind.lowered, command=command, command_lacks=tuple(lacking), schedule=None,
        decode_command=launch_command(replace(kind.decode or kind.scenario, router=None))[0] if prefill else None,
        num_replicas=sized.count + spare_replicas(choices, kind.divided), num_spare=choices.num_spare,
        prefill_replicas=prefill + choices.num_spare * (prefill > 0), num_gpus=num_gpus,
        cost_usd_per_hour=cost, cost_usd_per_month=usd_per_month(cost), cost_usd_per_year=usd_per_year(cost),
        instances="; ".join(whole) if whole else None,
        cached_input_share=cached_share(served) if choices.apis else None,
        cost_usd_per_million_output_tokens=None if deployment.pooling else (
            cost / (3600 * mean_rps * float(per_request)) * 1e6),
        cost_usd_per_thousand_results=cost / (3600 * mean_rps) * 1e3 if deployment.pooling else None,
        price_usd_per_gpu_hour=cost / num_gpus,
        power_kw=sum(power_kw(part, figures.duration, choices) for part in parts),
        attainment=verdict.attainment, limiting_metric=sized.limiting_metric,
        reached=reached_objectives(objectives, served.times_s),
        p99_ttft_ms=figures.ttft.p99, p99_tpot_ms=figures.tpot.p99,
        busy_fraction=figures.engine.gpu_busy_fraction or 0.0, replay_rate=figures.request_throughput,
        priors=tuple(dict.fromkeys(name for part in parts if part.pool.deployment.stack is not None
                                   for name in priors(part.pool.deployment.stack))),
        notes=(*notes(_without_router(deployment), load), *slice_notes(kind.names, num_gpus),
               *([NO_INTERVAL] if kind.scenario.interval is not None else [])),
        headroom=None, step_error=longer, stationary=sized.stationary, precision=effort.precision,
        headroom_precision=headroom_precision(traffic, effort.precision),
        covers_error=keeps_with_error(served, sized.count, objectives, verdict, longer), trace_copies=sized.times,
        schedule_reason=None, survival=survival, replay_command=fleet_line(traffic, kind, sized, objectives),
        replay_cost_usd_per_million_output_tokens=used.cost_usd_per_million_output_tokens)
    return kind, fleet, partial(_with_rest, fleet, kind, traffic, load, deployment, objectives, verdict, choices)


def _with_rest(fleet: Fleet, kind: Kind, traffic: Traffic, load: Trace, deployment: Deployment, objectives: Objectives,
               verdict: Verdict, choices: Choices, *, has_headroom: bool, most_cost: float) -> Fleet:
    """Return a fleet with its headroom if it has one, and the schedule that is asked for.

    Parameters
    ----------
    deployment, verdict : of its replicas at the load that they were found on.
    most_cost : from which on the headroom is found roughly [USD/h].
    """
    schedule, reason = None, None
    try:
        schedule = schedule_of(traffic, load, deployment, objectives, choices, fleet.num_gpus, kind.divided)
    except UnreachableError as error:
        reason = str(error)
    count = fleet.num_replicas - spare_replicas(choices, kind.divided)
    tolerance = max(fleet.headroom_precision, DEAR_PRECISION if fleet.cost_usd_per_hour > most_cost else 0.0)
    share = headroom(traffic, deployment, objectives, count, fleet.trace_copies, verdict, fleet.precision,
                     tolerance) if has_headroom else None
    return replace(fleet, schedule=schedule, schedule_reason=reason, headroom=share, headroom_precision=tolerance)


def _without_router(deployment: Deployment) -> Deployment:
    """Return a deployment whose notes do not speak of the router: the number of replicas is the answer's."""
    return replace(deployment, scenario=replace(deployment.scenario, router=None))


def _mean_rps(traffic: Traffic, choices: Choices, served_rps: float) -> float:
    """Return the mean rate of the load; of users, the rate at which they are served [1/s]."""
    if choices.series is not None:
        return choices.series.mean_rps
    return served_rps if isinstance(traffic, UsersLoad) else traffic.mean_rps


def _settled(traffic: Traffic, load: Trace, deployment: Deployment, objectives: Objectives, kind: Kind,
             effort: Effort) -> Sized:
    """Return the fewest replicas, how they serve, the limiting metric, and whether a longer load needs as many.

    Longer loads are tried if a rate is asked for, up to `MOST_REQUESTS`, unless a long log shows that no queue grows.
    """
    def fewest(longer: Trace, times: int, guess: int) -> Sized:
        count, served, limiting = fewest_replicas(longer, deployment, objectives, guess, kind.divided,
                                                  is_near=times > 1 or effort.is_near, precision=effort.precision)
        return Sized(count=count, served=served, limiting_metric=limiting, stationary=None, times=times)

    found = fewest(load, 1, effort.guess)
    if not traffic.can_last:
        return found
    if traffic.trace.num_requests >= SHOWN and is_surely_steady(found.served):
        return replace(found, stationary=True)
    most = MOST_REQUESTS // load.num_requests
    while found.times < most:
        times = min(found.times * LONGER, most)
        before, found = found, fewest(traffic.load(times), times, found.count)
        found = replace(found, stationary=found.count == before.count)
        if found.stationary:
            break
    return found


def _cost(fleet: Fleet, choices: Choices) -> tuple[float, int, bool, float]:
    """Return a key of order: price of GPUs on demand and of power, GPUs, the uncovered error, the lack of headroom."""
    price = fleet.cost_usd_per_hour + fleet.power_kw * (choices.power_price or 0.0)
    return round(price, 6), fleet.num_gpus, fleet.covers_error is False, -(fleet.headroom or 0.0)
