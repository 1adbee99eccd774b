"""The share of a fleet on spot instances that is cheapest within the objectives, by replays of drawn evictions.

A spot replica runs for an exponential time, has a notice, is evicted, and is back after an exponential time. From the
notice on the router sends it nothing. At the eviction the requests that it has not finished are lost with their KV, and
sent again to other replicas. The draws of a replica do not depend on the number of replicas: each mix meets the same
evictions.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.deployment.deploy import Deployment
from planner.errors import UsageError
from planner.planning.alternatives import MOST_TIMES
from planner.planning.fleets import Kind, cost_of
from planner.planning.loads import Traffic
from planner.planning.price_list import ON_DEMAND, RESERVED, SPOT, usd_per_month
from planner.planning.replay_line import replay_line
from planner.planning.search_options import Choices
from planner.planning.spot_answer import SpotAnswer, SpotMix
from planner.progress import stage
from planner.replays.fleet.failures import Failure
from planner.replays.fleet.replicas import serve
from planner.settings.objectives import Objectives, Verdict, judge
from planner.settings.panel import Range
from planner.settings.scenario import Scenario
from planner.traces import Trace

DRAWS = 3  # of evictions, in each of which the objectives must hold
STEPS = 16  # from all replicas that stay to none, at most
RANGES = {"evictions_per_h": ("--evictions", Range(above=0, is_finite=True)),
          "notice_s": ("--notice", Range(least=0, is_finite=True)),
          "away_s": ("--away", Range(above=0, is_finite=True))}


def check_spot(scenario: Scenario, choices: Choices) -> None:
    """Raise UsageError if the choices for evictions are out of range, or others do not go with them."""
    usual, rate = Choices(), choices.evictions_per_h
    for name, (option, values) in RANGES.items():
        value = getattr(choices, name)
        if rate is None and value != getattr(usual, name):
            raise UsageError(f"{option} {value:g}: nothing is evicted; give --evictions")
        if value is not None and value not in values:
            raise UsageError(f"{option} {value:g}: must be {values}")
    refused = {"--fail-replica": scenario.fail_replica, "--fleet": scenario.fleet, "--strata": choices.num_strata,
               "--data-parallel-attention": scenario.data_parallel_attention, "--disaggregate": choices.disaggregate,
               "--spare": choices.num_spare, "--survive": choices.survive}
    for option, refused_value in refused.items():
        if rate is not None and refused_value:
            raise UsageError(f"--evictions {rate:g} with {option}: this combination is not modelled; leave one of them "
                             f"out")


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpotLoad:
    """The load and the deployment of the mixes."""

    trace: Trace
    deployment: Deployment
    objectives: Objectives
    choices: Choices

    def usd_per_hour(self, count: int, term: str) -> float:
        """Return the price of some replicas on a term [USD/h]; infinite if none is stated."""
        gpu, num_gpus = self.deployment.gpu, self.deployment.layout.num_gpus
        assert gpu is not None, "a fleet has a price"
        cost = cost_of(gpu, count, count * num_gpus, term, self.choices) if count else 0.0
        return math.inf if cost is None else cost

    def cost(self, steady: int, spot: int, term: str) -> float:
        """Return the price of a mix; a spot replica is paid while it runs [USD/h]."""
        return self.usd_per_hour(steady, term) + running_share(self.choices) * self.usd_per_hour(spot, SPOT)

    def evicted(self, steady: int, spot: int) -> list[tuple[str, Verdict]]:
        """Replay a mix with each draw up to the first that misses; return the failures and the verdict of each."""
        arrival_s, told = self.trace.requests["arrival_s"], list[tuple[str, Verdict]]()
        for draw in range(DRAWS):
            failures = evictions(steady, spot, float(arrival_s[0]), float(arrival_s[-1]), self.choices, draw)
            text = ",".join(failure.text for failure in failures)
            scenario = replace(self.deployment.scenario, fail_replica=text or None)
            served = serve(self.trace, replace(self.deployment, scenario=scenario), steady + spot)
            told.append((text, judge(self.objectives, served.times_s)))
            if not told[-1][1].is_met:
                break
        return told


def running_share(choices: Choices) -> float:
    """Return the share of the time in which a spot replica runs [1]: a cycle is its run, its notice and its return.

    >>> running_share(Choices(evictions_per_h=1.0, notice_s=0.0, away_s=3600.0))
    0.5
    """
    assert choices.evictions_per_h is not None, "evictions are asked for"
    up_s = 3600.0 / choices.evictions_per_h + choices.notice_s
    return up_s / (up_s + choices.away_s)


def evictions(steady: int, spot: int, begin_s: float, end_s: float, choices: Choices, draw: int) -> list[Failure]:
    """Draw the evictions of the spot replicas. The replicas that stay have the first numbers.

    Parameters
    ----------
    steady, spot : numbers of replicas [1].
    begin_s, end_s : first and last arrival; an eviction after the last is left out [s].
    draw : number of the draw; the same for every mix.
    """
    return [failure for k in range(spot)
            for failure in _of_replica(steady + k, np.random.default_rng((draw, k)), begin_s, end_s, choices)]


def _of_replica(replica: int, rng: np.random.Generator, begin_s: float, end_s: float,
                choices: Choices) -> Iterator[Failure]:
    assert choices.evictions_per_h is not None, "evictions are asked for"
    at_s = begin_s
    while (at_s := at_s + rng.exponential(3600.0 / choices.evictions_per_h)) <= end_s:
        at_s += choices.notice_s
        gone_s = max(rng.exponential(choices.away_s), 1e-3)
        yield Failure(replica=replica, at_s=at_s, duration_s=gone_s, notice_s=choices.notice_s)
        at_s += gone_s


def spot_share(traffic: Traffic, kind: Kind, count: int, times: int, objectives: Objectives,
               choices: Choices) -> SpotAnswer | None:
    """Return the cheapest mix of replicas that stay and spot replicas; None without --evictions.

    For each number of replicas that stay, spot replicas are added until the objectives hold in every draw, or until the
    mix costs more than the best one.

    Parameters
    ----------
    count : the fewest replicas if all stay [1].
    times : how often the trace follows itself in the load [1].

    Raises
    ------
    UsageError : no spot price of the GPU is stated.
    """
    if choices.evictions_per_h is None:
        return None
    load = traffic.load(times)
    deployment = kind.deployed(load)
    fleet = _SpotLoad(trace=load, deployment=deployment, objectives=objectives, choices=choices)
    per_spot, gpus = fleet.usd_per_hour(1, SPOT), deployment.layout.num_gpus
    if per_spot == math.inf:
        raise UsageError(f"--evictions {choices.evictions_per_h:g}: no spot price of {kind.names.gpu} is stated; give "
                         f"--spot-price {kind.names.gpu}=USD, or --cloud")
    term = min((ON_DEMAND, RESERVED), key=lambda each: fleet.usd_per_hour(count, each))
    best = SpotMix(num_steady=count, num_spot=0, cost_usd_per_month=usd_per_month(fleet.cost(count, 0, term)),
                   attainment=None, is_met=True)
    mixes, told, spot = [best], list[tuple[str, Verdict]](), 0
    with stage("mixing in spot replicas"):
        for steady in range(count - 1, -1, -max(count // STEPS, 1)):
            mix, verdicts = _fewest_spot(fleet, steady, max(count - steady, spot), term, best.cost_usd_per_month)
            mixes.append(mix)
            spot = mix.num_spot
            if mix.is_met and mix.cost_usd_per_month < best.cost_usd_per_month:
                best, told = mix, verdicts
    text = min(told, key=lambda pair: pair[1].attainment)[0] if told else ""
    saved = mixes[0].cost_usd_per_month - best.cost_usd_per_month
    return SpotAnswer(
        best=best, mixes=tuple(mixes), steady_term=term, spot_usd_per_gpu_hour=per_spot / gpus,
        steady_usd_per_gpu_hour=fleet.usd_per_hour(1, term) / gpus, running_share=running_share(choices),
        evictions_per_h=choices.evictions_per_h, notice_s=choices.notice_s, away_s=choices.away_s, num_draws=DRAWS,
        num_evictions=sum(len(failures.split(",")) for failures, _ in told if failures),
        replay_command=_line(traffic, kind, best, text, times, objectives) if text else None,
        sentence=f"on spot: {best.num_steady:,} {term} and {best.num_spot:,} spot replicas, "
                 f"{best.cost_usd_per_month:,.0f} USD/month ({saved:,.0f} less than {count:,} {term})")


def _fewest_spot(fleet: _SpotLoad, steady: int, least: int, term: str,
                 most_usd: float) -> tuple[SpotMix, list[tuple[str, Verdict]]]:
    """Return the fewest spot replicas, at least some, by which the objectives hold and the mix costs less than a limit.
    """
    spot = least
    while True:
        told, usd = fleet.evicted(steady, spot), usd_per_month(fleet.cost(steady, spot, term))
        mix = SpotMix(num_steady=steady, num_spot=spot, cost_usd_per_month=usd, is_met=told[-1][1].is_met,
                      attainment=min(verdict.attainment for _, verdict in told))
        more = max(spot // STEPS, 1)
        is_dear = usd_per_month(fleet.cost(steady, spot + more, term)) >= most_usd
        if mix.is_met or is_dear or spot + more > MOST_TIMES * max(steady + least, 1):
            return mix, told
        spot += more


def _line(traffic: Traffic, kind: Kind, mix: SpotMix, failures: str, times: int, objectives: Objectives) -> str | None:
    """Return the command that replays a mix with one draw of evictions."""
    fleet = replace(kind.scenario, data_parallel_size=mix.num_steady + mix.num_spot, fail_replica=failures)
    replayed = traffic.replayed(fleet, times)
    return None if replayed is None else replay_line(traffic.trace, replayed, objectives)
