"""The threshold between two pools: short prompts to one kind of replica, long ones to the other, for the least cost."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.deployment.conditions import accepted, described, is_open, routes_of, with_threshold
from planner.deployment.deploy import Deployment, Pool, resolve_pools
from planner.deployment.pools import PoolSpec, read_fleet
from planner.deployment.starting import Startable, startable
from planner.errors import CapacityError, FleetError, UsageError
from planner.launch import launch_command
from planner.planning.alternatives import MOST_TIMES
from planner.planning.fewest import divided_into, fewest_replicas, together
from planner.planning.fleets import Kind, count_gpus, fleet_cost, pool_rent, replica_price, spare_gpus
from planner.planning.missed import UnreachableError, missed_objectives, reached_objectives, unreachable
from planner.planning.price_list import usd_per_month
from planner.planning.search_options import Choices
from planner.planning.size_answer import Fleet, SplitFleet, SplitPool, Threshold, ThresholdAnswer
from planner.progress import in_parallel, later
from planner.replays.fleet.replicas import serve
from planner.replays.result_tables import ReplayResult
from planner.results.summary import summarize
from planner.settings.deployment_options import FITTED_LENGTH
from planner.settings.objectives import Objectives, Verdict, judge
from planner.settings.scenario import Scenario, attention_ranks
from planner.traces import Trace

ROUGHLY = 0.05  # precision of the replicas that a search begins with [1]
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)  # of the prompt lengths: thresholds that are tried by default
OPEN = "accepts = 'input_tokens < threshold' in one pool, and 'input_tokens >= threshold' in the other"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFleet:
    """Two pools whose conditions leave their threshold open.

    Parameters
    ----------
    scenario : of both, with the fleet's file.
    specs : of the pools, as the file describes them.
    """

    scenario: Scenario
    specs: tuple[PoolSpec, ...]

    def kinds(self) -> list[Kind]:
        """Return each pool's replicas as the kind of a fleet for all requests, with the larger context limit.

        Pools that differ in their conditions and context alone are one kind.
        """
        limits = [spec.scenario.max_model_len for spec in self.specs]
        open_end = [limit for limit in limits if limit in (None, FITTED_LENGTH)]
        longest = open_end[0] if open_end else max(limit for limit in limits if limit is not None)
        scenarios = [replace(spec.scenario, fleet=None, max_model_len=longest) for spec in self.specs]
        return [Kind(scenario=own, decode=None, divided=together) for k, own in enumerate(scenarios)
                if own not in scenarios[:k]]

    def check(self, load: Trace, choices: Choices) -> None:
        """Raise FleetError if a threshold that is tried leaves a request of a load without one pool of its own."""
        for threshold in thresholds_of(load, choices):
            self.deployed(threshold, load)

    def deployed(self, threshold: int, load: Trace) -> Deployment:
        """Return the fleet with a threshold [tokens], one replica of each pool, made concrete for a load.

        Raises
        ------
        FleetError : both pools accept some request, or none does; a pool is impossible.
        """
        return self._resolved(threshold, self._at(threshold), load)

    def started(self, threshold: int, load: Trace) -> tuple[Deployment, list[Startable]]:
        """Return `deployed`, and its pools with context limits with which their engines start.

        Raises
        ------
        FleetError : as of `deployed`.
        CapacityError : an engine would not start, and no limit that holds the requests of its pool helps.
        """
        specs = self._at(threshold)
        pools = [startable(replace(spec.scenario, fleet=None), load.take(np.flatnonzero(accepted(spec.accepts, load))))
                 for spec in specs]
        limited = [replace(spec, scenario=replace(spec.scenario, max_model_len=pool.scenario.max_model_len))
                   for spec, pool in zip(specs, pools, strict=True)]
        return self._resolved(threshold, limited, load), pools

    def _at(self, threshold: int) -> list[PoolSpec]:
        return [replace(spec, accepts=with_threshold(spec.accepts, threshold)) for spec in self.specs]

    def _resolved(self, threshold: int, specs: Sequence[PoolSpec], load: Trace) -> Deployment:
        """Make pools with a threshold concrete."""
        where = str(self.scenario.fleet)
        routes = routes_of([spec.accepts for spec in specs], [spec.name for spec in specs], load, where)
        if len(routes.pools) < 2 and len(routes.pools[0]) < 2:
            raise FleetError(f"{where}: with the threshold {threshold:,}, one pool has all requests; give a threshold "
                             f"between the shortest and the longest prompt (--thresholds)")
        if any(len(pools) > 1 for pools in routes.pools):
            raise FleetError(f"{where}: with the threshold {threshold:,}, both pools accept some requests; give {OPEN}")
        return resolve_pools(self.scenario, specs, load, where)


def read_open_fleet(scenario: Scenario) -> OpenFleet:
    """Return the two pools of a scenario's fleet file.

    Raises
    ------
    UsageError : the file has another number of pools, other roles, no open threshold, or numbers of replicas.
    FleetError : the file cannot be read, or something in it is wrong.
    """
    where = str(scenario.fleet)
    specs = read_fleet(where, scenario)
    if len(specs) != 2 or specs[0].role != "both" or not any(is_open(spec.accepts) for spec in specs):
        raise UsageError(f"--fleet {where}: planner size finds the threshold between two pools and their replicas; "
                         f"give {OPEN}. planner replay takes any fleet")
    for spec in specs:
        if spec.scenario.autoscale is not None:
            raise UsageError(f"{where}: pool {spec.name!r}: autoscale = {spec.scenario.autoscale!r}: sizing needs a "
                             f"fixed number of replicas; leave it out")
        if spec.num_replicas > attention_ranks(spec.scenario):
            raise UsageError(f"{where}: pool {spec.name!r}: replicas = {spec.num_replicas}: the number of replicas is "
                             f"looked for; leave it out")
    return OpenFleet(scenario=scenario, specs=specs)


def thresholds_of(load: Trace, choices: Choices) -> list[int]:
    """Return the thresholds to try, in order: the given thresholds, else quantiles of the prompt lengths [tokens].

    A threshold that leaves all prompts on one side is left out if it was not asked for.
    """
    if choices.thresholds:
        return sorted(choices.thresholds)
    lengths = load.requests["input_tokens"].to_numpy()
    found = np.unique(np.quantile(lengths, QUANTILES, method="higher"))
    return [int(value) for value in found if value > lengths.min()]


def cheapest_threshold(fleet: OpenFleet, load: Trace, objectives: Objectives, choices: Choices,
                       single: Fleet | None) -> ThresholdAnswer:
    """Return the threshold and the replicas of two pools that cost least within the objectives.

    Every threshold is sized by replays of the whole fleet. Of equal costs, the one of fewer GPUs and then the lower
    threshold wins.

    Parameters
    ----------
    load : the requests of the best single pool's replay, or about as many.
    single : the cheapest fleet of equal replicas; None if there is none.
    """
    tried = thresholds_of(load, choices)
    if not tried:
        raise UsageError(f"{load.source}: all prompts have the same length, so no threshold divides them; give "
                         f"--thresholds, or leave --fleet out")
    calls = [later(_at)(fleet, threshold, load, objectives, choices) for threshold in tried]
    found: list[SplitFleet | str] = in_parallel("sizing two pools", calls, len(calls), choices.jobs)
    fleets = [each for each in found if isinstance(each, SplitFleet)]
    rows = tuple(_row(threshold, each) for threshold, each in zip(tried, found, strict=True))
    best = min(fleets, key=lambda each: (each.cost_usd_per_hour, each.num_gpus, each.threshold_tokens), default=None)
    saving = None
    if best is not None and single is not None and single.cost_usd_per_hour > 0:
        saving = 1 - best.cost_usd_per_hour / single.cost_usd_per_hour
    return ThresholdAnswer(fleet=best, saving=saving, thresholds=rows,
                           single_cost_usd_per_hour=None if single is None else single.cost_usd_per_hour)


def _row(threshold: int, found: SplitFleet | str) -> Threshold:
    if isinstance(found, str):
        return Threshold(threshold_tokens=threshold, replicas=None, num_gpus=None, cost_usd_per_hour=None, reason=found)
    return Threshold(threshold_tokens=threshold, replicas=" + ".join(str(pool.num_replicas) for pool in found.pools),
                     num_gpus=found.num_gpus, cost_usd_per_hour=found.cost_usd_per_hour, reason=None)


def _at(fleet: OpenFleet, threshold: int, load: Trace, objectives: Objectives,
        choices: Choices) -> SplitFleet | str:
    """Return the cheapest fleet with a threshold, or why there is none."""
    try:
        deployment, pools = fleet.started(threshold, load)
        served = fewest_of_both(load, deployment, objectives, [replica_price(pool, choices)
                                                               for pool in deployment.pools])
    except (CapacityError, UnreachableError) as error:
        return str(error)
    return _answer(threshold, pools, served, objectives, choices)


def fewest_of_both(load: Trace, deployment: Deployment, objectives: Objectives,
                   prices: Sequence[float]) -> ReplayResult:
    """Return how the cheapest fleet of two pools serves a load within its objectives.

    It begins with the fewest replicas of each pool that serve its own requests. Then it replays the cheaper fleets
    that may keep the objectives of all requests, with up to eight times as many replicas of a pool. It takes for
    granted that more replicas of a pool serve no worse.

    Parameters
    ----------
    deployment : of two pools, which share no request.
    prices : of a replica of each pool [USD/h].

    Raises
    ------
    UnreachableError : no number of replicas keeps the objectives.
    """
    known: dict[tuple[int, int], tuple[ReplayResult, bool]] = {}
    gpus = [pool.deployment.layout.num_gpus for pool in deployment.pools]

    def is_met(first: int, second: int) -> bool:
        if (first, second) not in known:
            served = serve(load, divided_into(deployment, first, second))
            known[first, second] = served, judge(objectives, served.times_s).is_met
        return known[first, second][1]

    def cost(first: int, second: int) -> tuple[float, int]:
        return first * prices[0] + second * prices[1], first * gpus[0] + second * gpus[1]

    def most(k: int) -> int:
        """Return the most replicas of a pool that cost less than the best fleet beside one of the other."""
        room = cost(*best)[0] - prices[1 - k]
        bound = MOST_TIMES * best[k]
        return max(min(bound, math.ceil(room / prices[k])) if prices[k] > 0 else bound, best[k])

    best = _met(load, deployment, objectives, is_met, known)
    first, last = most(0), most(1)
    second = _least(lambda count: is_met(first, count), best[1])
    least = _least(lambda count: is_met(count, last), best[0])
    while first >= least and second <= last:
        if cost(first, second) >= cost(*best):
            first -= 1
        elif is_met(first, second):
            best = first, second
            first -= 1
        else:  # fewer replicas of the first pool miss them too
            second += 1
    return known[best][0]


def _least(is_met: Callable[[int], bool], high: int) -> int:
    """Return the least number that keeps the objectives, down from one that keeps them; often it is that one."""
    low, step = 0, 1
    while high > 1 and step < high:
        if not is_met(high - step):
            low = high - step
            break
        high, step = high - step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_met(middle) else (middle, high)
    return high


def _met(load: Trace, deployment: Deployment, objectives: Objectives, is_met: Callable[[int, int], bool],
         known: Mapping[tuple[int, int], tuple[ReplayResult, bool]]) -> tuple[int, int]:
    """Return replicas of both pools that keep the objectives, near the fewest of each for its own requests."""
    first, second = (_alone(load, pool, objectives) for pool in deployment.pools)
    if isinstance(first, UnreachableError) and isinstance(second, UnreachableError):
        raise first
    if isinstance(first, UnreachableError) or isinstance(second, UnreachableError):
        return _beside(load, deployment, objectives, first, second)
    begin = first, second
    while not is_met(first, second):  # the requests of both pools are routed together
        if first > MOST_TIMES * begin[0]:
            raise unreachable(f"{first:,} + {second:,} replicas still miss the objectives",
                              missed_objectives(objectives, known[first, second][0].times_s))
        first, second = first + 1 + first // 8, second + 1 + second // 8
    return first, second


def _alone(load: Trace, pool: Pool, objectives: Objectives) -> int | UnreachableError:
    """Return the fewest replicas of a pool that serve its own requests within the objectives; or why there are none."""
    rows = np.flatnonzero(accepted(pool.accepts, load))
    own = pool.deployment
    own = replace(own, scenario=replace(own.scenario, wait_for_parents=False, max_sessions=None))
    try:
        return fewest_replicas(load.take(rows), own, objectives, precision=ROUGHLY)[0]
    except UnreachableError as error:
        return error


def _beside(load: Trace, deployment: Deployment, objectives: Objectives, first: int | UnreachableError,
            second: int | UnreachableError) -> tuple[int, int]:
    """Return replicas of both pools if the requests of one cannot keep the objectives alone, but all together may.

    The other pool has twice the replicas that its requests need.

    Raises
    ------
    UnreachableError : no number of replicas keeps them.
    """
    def counts_of(count: int) -> tuple[int, int]:
        if isinstance(first, UnreachableError):
            assert isinstance(second, int)
            return count - 1, 2 * second
        return 2 * first, count - 1

    def divided(trace: Trace, own: Deployment, objectives: Objectives, count: int) -> tuple[ReplayResult, Verdict]:
        served = serve(trace, divided_into(own, *counts_of(count)))
        return served, judge(objectives, served.times_s)

    return counts_of(fewest_replicas(load, deployment, objectives, divided=divided)[0])


def _answer(threshold: int, started: Sequence[Startable], served: ReplayResult, objectives: Objectives,
            choices: Choices) -> SplitFleet:
    """Return a fleet of two pools as an answer, with spares."""
    figures, pools = summarize(served, None, has_gaps=False), served.deployment.pools
    cost = fleet_cost(served, choices)
    return SplitFleet(
        threshold_tokens=threshold, num_gpus=count_gpus(served) + spare_gpus(served.deployment, choices, together),
        pools=tuple(_pool(pool, own, served.trace, choices) for pool, own in zip(pools, started, strict=True)),
        cost_usd_per_hour=cost, cost_usd_per_month=usd_per_month(cost),
        attainment=judge(objectives, served.times_s).attainment,
        p99_ttft_ms=figures.ttft.p99, p99_tpot_ms=figures.tpot.p99,
        reached=reached_objectives(objectives, served.times_s))


def _pool(pool: Pool, started: Startable, load: Trace, choices: Choices) -> SplitPool:
    own, count = pool.deployment, pool.num_groups + choices.num_spare
    gpu = own.gpu
    assert gpu is not None
    return SplitPool(
        name=pool.name, accepts=described(pool.accepts) or "", gpu=gpu.name,
        tensor_parallel_size=own.layout.tensor_parallel_size, max_model_len=own.settings.max_model_len,
        num_requests=int(accepted(pool.accepts, load).sum()), num_replicas=count,
        num_gpus=count * own.layout.num_gpus, cost_usd_per_hour=pool_rent(pool, choices).usd_per_hour,
        command=launch_command(replace(started.scenario, router=None))[0], lowered=started.lowered)
