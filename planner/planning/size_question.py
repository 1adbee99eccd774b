"""The question of a size: its checks, its assumptions, and an answer without a fleet."""

import math

from planner.errors import UsageError
from planner.planning.bracket import UNKNOWNS
from planner.planning.fleet_schedule import check_schedule
from planner.planning.growth import check_growth
from planner.planning.loads import StrataTraffic, Traffic, UsersLoad
from planner.planning.offers import check_sort
from planner.planning.search_options import RANKS, Choices
from planner.planning.size_answer import SizeAnswer, SizedTraffic, UnableFleet
from planner.planning.spot import check_spot
from planner.planning.strata_error import check_strata
from planner.planning.survival import check_survival
from planner.planning.user_loads import beginning
from planner.settings.default_router import SERVICE_ROUTER
from planner.settings.objectives import Objectives, required_of
from planner.settings.rate_scaling import MEANINGS
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.rescaling import part_words, rate_of
from planner.traces.shaping.tenants import refuse_tenant_thresholds


def check_size(scenario: Scenario, choices: Choices) -> None:
    """Raise UsageError if a choice is out of range, or does not go with another one or with the scenario."""
    if scenario.autoscale is not None:
        raise UsageError(f"--autoscale {scenario.autoscale}: sizing needs a fixed number of replicas; leave it out, or "
                         f"write the fleet with its rules by --write keda or hpa")
    refuse_tenant_thresholds(scenario)
    if choices.num_spare < 0:
        raise UsageError(f"--spare {choices.num_spare}: must be 0 or more")
    for name, value in (("power-price", choices.power_price), ("co2-per-kwh", choices.co2_per_kwh)):
        if value is not None and not 0 <= value < math.inf:
            raise UsageError(f"--{name} {value}: must be a number of at least 0")
    if choices.prune_layouts and choices.power_price is not None:
        raise UsageError(f"--prune-layouts with --power-price {choices.power_price}: layouts are compared by the price "
                         f"of their GPUs alone; leave one of them out")
    if choices.thresholds and scenario.fleet is None:
        raise UsageError(f"--thresholds {','.join(map(str, choices.thresholds))}: needs --fleet, with two pools whose "
                         f"conditions leave the threshold open")
    if scenario.fleet is not None and (tuple(choices.ranks) != RANKS or choices.disaggregate):
        raise UsageError(f"--fleet {scenario.fleet}: its pools say what replicas are made of; give "
                         f"tensor_parallel_size in them, and leave --tensor-parallel-size and --disaggregate out")
    check_survival(scenario, choices)
    check_spot(scenario, choices)
    check_schedule(choices)
    check_strata(choices)
    check_sort(choices)
    check_growth(choices)


def unanswered(trace: Trace, traffic: Traffic, scenario: Scenario, objectives: Objectives, choices: Choices,
               unable: tuple[UnableFleet, ...]) -> SizeAnswer:
    """Return an answer that has the question and the assumptions, but no fleet yet."""
    users = traffic.users if isinstance(traffic, UsersLoad) else None
    own = None if users is not None else rate_of(traffic.trace)
    rate_rps = None if users is not None else traffic.mean_rps
    return SizeAnswer(
        cheapest=None, feasible=False, missed=(), fewest_gpus=None, alternatives=unable, options=(),
        sensitivity=None, growth=None, routers=(), routers_not_tried=(), better_router=None, scalings=(), notes=(),
        priors=(), num_spare=choices.num_spare, sorted_by=choices.sort, slo=required_of(objectives),
        request_rate=rate_rps, scaling=traffic.named_scaling, router=str(scenario.router),
        assumptions=_assumptions(traffic, own or 0.0, scenario, choices.disaggregate, choices.num_spare),
        workload=SizedTraffic(source=trace.source, num_requests=traffic.num_requests,
                              num_recorded=traffic.trace.num_requests, rate_rps=rate_rps,
                              recorded_rps=None if traffic.is_drawn else own, users=users, seed=traffic.seed),
        trace_sha256=trace.sha256)


def _assumptions(traffic: Traffic, own_rps: float, scenario: Scenario, disaggregates: bool,
                 num_spare: int) -> tuple[str, ...]:
    service = ", as in a Kubernetes Service" if scenario.router == SERVICE_ROUTER else ""
    if isinstance(traffic, UsersLoad):
        rate = f"{traffic.users:,} {UNKNOWNS[traffic.of].unit} at once; {traffic.assumption}; {beginning(traffic.of)}"
    elif isinstance(traffic, StrataTraffic):
        low, high = traffic.strata_rps[0], traffic.strata_rps[-1]
        rate = (f"{len(traffic.strata_rps):,} rates from {low:,.4g} to {high:,.4g}/s replace the series, each for an "
                f"equal share of its {traffic.num_stood_for:,.0f} requests ({traffic.mean_rps:,.4g}/s on average); "
                f"{traffic.num_requests:,} requests are replayed, by {traffic.scaling}: {MEANINGS[traffic.scaling]}")
    elif not traffic.is_drawn and not traffic.is_rescaled:
        rate = f"requests arrive at {traffic.mean_rps:,.4g}/s, as recorded"
    elif traffic.is_drawn:
        rate = f"requests arrive at {traffic.mean_rps:,.4g}/s in a Poisson process: the trace has no arrival times"
    else:
        rate = (f"requests arrive at {traffic.mean_rps:,.4g}/s, {traffic.mean_rps / own_rps:.3g} times the trace's "
                f"rate, by {traffic.scaling}: {MEANINGS[traffic.scaling]}")
        kept = part_words(traffic.trace, traffic.mean_rps, traffic.scaling)
        rate += f"; {kept}" if kept is not None else ""
    apart = (f"fleets with prefill and decode apart have replicas of each kind, and send KV over a link of "
             f"{scenario.kv_transfer_bandwidth:g} GB/s (--kv-transfer-bandwidth)")
    return (rate, f"the router is {scenario.router}{service}",
            f"{'all replicas' if scenario.fleet is None else 'the replicas of a pool'} are equal and fixed in number, "
            f"each with its own queue and cache", *([apart] if disaggregates else []),
            *([f"spare replicas (--spare {num_spare}) are idle and not in the prediction"]
              if num_spare else []))
