"""A fleet beside hosted APIs: the price of the same traffic, and the traffic at which both cost the same."""

import math
from collections.abc import Sequence

import numpy as np

from planner.catalog.catalog_files import load_gpu
from planner.catalog.gpus import Gpu
from planner.catalog.prices import ApiPrice
from planner.planning.fleets import cloud_prices, price_of
from planner.planning.instances import rents_up_to
from planner.planning.offers import pools_in
from planner.planning.price_list import HOURS_PER_MONTH, ON_DEMAND, usd_per_month
from planner.planning.search_options import Choices
from planner.planning.size_answer import ApiCost, Fleet
from planner.replays.result_tables import ReplayResult
from planner.traces import Trace

PEAK_S = 60.0  # length of the window whose rate is the peak [s]
MOST_REPLICAS = 1_000  # of a pool, up to which a break-even is looked for


def beside_apis(trace: Trace, load: Trace, fleet: Fleet, mean_rps: float,
                choices: Choices) -> tuple[ApiCost, ...] | None:
    """Return a fleet beside the hosted APIs that are asked for, the cheapest API first; None if none are.

    Parameters
    ----------
    trace : whose mean lengths the API bills; a load at another rate draws its requests from it.
    load : that the fleet serves, whose peak counts.
    mean_rps : of the traffic; of a series of rates, of all its windows [1/s].
    """
    if not choices.apis:
        return None
    inputs, outputs = (float(trace.requests[name].to_numpy().mean()) for name in ("input_tokens", "output_tokens"))
    per_month, series = mean_rps * 3600 * HOURS_PER_MONTH, choices.series
    million, rows = per_month * (inputs + outputs) / 1e6, []
    peak_rps = mean_rps * peak_to_mean(load) if series is None else series.peak_rps
    for price in choices.apis:
        usd = per_month * api_usd(price, inputs, inputs * (fleet.cached_input_share or 0.0), outputs)
        scale = break_even(fleet, usd, choices)
        rows.append(ApiCost(
            price=price, usd_per_month=usd, usd_per_million_tokens=usd / million,
            fleet_usd_per_month=fleet.cost_usd_per_month,
            fleet_usd_per_million_tokens=fleet.cost_usd_per_month / million, break_even_scale=scale,
            break_even_mean_rps=None if scale is None else scale * mean_rps,
            break_even_peak_rps=None if scale is None else scale * peak_rps))
    return tuple(sorted(rows, key=lambda row: row.usd_per_month))


def cached_share(served: ReplayResult) -> float:
    """Return the share of the input tokens that a replay finds in its caches [1]."""
    cached, inputs = served.records.requests.num_cached_tokens, served.trace.requests["input_tokens"]
    return float(np.maximum(np.asarray(cached), 0).sum() / inputs.sum())


def peak_to_mean(load: Trace) -> float:
    """Return the rate of a load's busiest minute over its mean rate; 1 for loads of up to a minute."""
    times = np.sort(load.requests["arrival_s"].to_numpy())
    length_s = float(times[-1] - times[0])
    if length_s <= PEAK_S:
        return 1.0
    most = int((np.searchsorted(times, times + PEAK_S, side="left") - np.arange(len(times))).max())
    return most / PEAK_S / (len(times) / length_s)


def api_usd(price: ApiPrice, inputs: float, cached: float, outputs: float) -> float:
    """Return the price of a request at an API, of whose input tokens some are cached [USD].

    >>> price = ApiPrice(provider="p", model="m", served_as="m", input=0.2, cached_input=0.1, output=0.8, source="",
    ...                  date="2026-11")
    >>> round(api_usd(price, 1000, 400, 100), 8)
    0.00024
    """
    of_cached = price.input if price.cached_input is None else price.cached_input
    return ((inputs - cached) * price.input + cached * of_cached + outputs * price.output) / 1e6


def break_even(fleet: Fleet, api_usd_per_month: float, choices: Choices) -> float | None:
    """Return the lowest multiple x of the traffic at which a fleet costs at most as much as an API; None if none does.

    The API costs x·A, with A at the traffic itself. A pool whose n replicas serve the traffic needs ⌈x·n⌉ at x times
    the traffic, at least one, and the spares. All of them cost C(x), a staircase that rises at multiples of 1/n; in
    whole instances some of its steps are level. On the step that ends at b and begins after a, the fleet costs at
    most as much from max(a, C(b)/A) on, if that is at most b. The answer is the lowest such x. With one pool of n
    replicas by the GPU without spares, it is x = F/(n·A), with the fleet's price F, if F ≤ A, and none otherwise.

    Parameters
    ----------
    api_usd_per_month : A [USD].
    """
    pools = [(gpu, num_gpus // count, count - fleet.num_spare) for gpu, num_gpus, count in pools_in(fleet)]
    most, begin = max(MOST_REPLICAS, *(count for _, _, count in pools)), 0.0
    costs = [_costs(most + fleet.num_spare, load_gpu(gpu), size, choices) for gpu, size, _ in pools]
    for end in sorted({step / count for _, _, count in pools for step in range(1, most + 1)}):
        counts = [max(1, math.ceil(round(end * count, 9))) for _, _, count in pools]
        if max(counts) > most:
            break
        usd = usd_per_month(sum(cost[count + fleet.num_spare] for cost, count in zip(costs, counts, strict=True)))
        if max(begin, usd / api_usd_per_month) <= end:
            return max(begin, usd / api_usd_per_month)
        begin = end
    return None


def _costs(most: int, gpu: Gpu, size: int, choices: Choices) -> Sequence[float]:
    """Return the on-demand price of 0, 1, 2 … replicas of a size up to a number [USD/h]."""
    prices = cloud_prices(gpu, ON_DEMAND, choices)
    if prices:
        return rents_up_to(most, size, prices)
    return [count * size * (price_of(gpu, ON_DEMAND, choices) or 0.0) for count in range(most + 1)]
