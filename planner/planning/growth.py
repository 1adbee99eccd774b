"""Fleets under a growth: kinds are sized for the rate of each month, and the cheapest path over the months is taken."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from planner.errors import UsageError
from planner.files.counts import count_text
from planner.planning.alternatives import fewest_near
from planner.planning.fleets import Kind, fleet_cost, spare_replicas
from planner.planning.growth_answer import Growth, Month
from planner.planning.loads import Traffic
from planner.planning.price_list import usd_per_month
from planner.planning.search_options import Choices
from planner.planning.size_answer import Fleet, KindNames
from planner.progress import in_parallel, later
from planner.settings.objectives import Objectives

MONTHS = {"week": 84 / 365, "month": 1.0, "quarter": 3.0, "year": 12.0}  # in a period: a month is a twelfth of a year
MOST_MONTHS = 120
MOST_GROWTH = 100.0  # of a rate over all months


def monthly_factor(text: str) -> float:
    """Return the factor by which a rate grows in a month, from "10%/month", "-2%/week" or "2x/year".

    >>> monthly_factor("10%/month"), round(monthly_factor("2x/year") ** 12, 9)
    (1.1, 2.0)

    Raises
    ------
    UsageError : the text has another form, or no traffic is left.
    """
    found = re.fullmatch(r"\s*([+-]?\d+(?:\.\d+)?)\s*(%|x)\s*/\s*(week|month|quarter|year)\s*", text)
    if found is None:
        raise UsageError(f"--growth {text!r}: must be a share or a factor per {', '.join(MONTHS)}, as in '10%/month' "
                         f"or '2x/year'")
    number, unit, period = found.groups()
    factor = 1.0 + float(number) / 100.0 if unit == "%" else float(number)
    if factor <= 0:
        raise UsageError(f"--growth {text!r}: leaves no traffic; must be a growth of more than −100 %")
    return factor if period == "month" else float(factor ** (1.0 / MONTHS[period]))


def check_growth(choices: Choices) -> None:
    """Raise UsageError if the options of a growth do not fit."""
    if choices.growth is None:
        if choices.change_cost:
            raise UsageError(f"--change-cost {choices.change_cost:g}: needs --growth, under which kinds may change")
        return
    if not 1 <= choices.months <= MOST_MONTHS:
        raise UsageError(f"--months {choices.months}: must be from 1 to {MOST_MONTHS}")
    if not 0 <= choices.change_cost < math.inf:
        raise UsageError(f"--change-cost {choices.change_cost}: must be a number of at least 0")
    total = monthly_factor(choices.growth) ** choices.months
    if total > MOST_GROWTH:
        raise UsageError(f"--growth {choices.growth} --months {choices.months}: the rate grows {total:,.0f} times; at "
                         f"most {MOST_GROWTH:,.0f} times can be sized")


class _MonthSize(NamedTuple):
    """The replicas and GPUs of a fleet, with spares, and its price per hour."""

    num_replicas: int
    num_gpus: int
    usd_per_hour: float


Sizes = list[_MonthSize | None]  # by month, today first; None if no number serves it


def growth_of(traffic: Traffic, able: Sequence[tuple[Kind, Fleet]], objectives: Objectives,
              choices: Choices) -> Growth | None:
    """Return the cheapest path over the months, each sized for the rate at its end; None without a growth.

    A path may change the kind of replica, at `choices.change_cost`. More traffic is taken to need no fewer replicas.
    So of kinds that are dearer today than the cheapest kind in the last month none is sized.

    Parameters
    ----------
    able : kinds with their fleets, the cheapest first.
    """
    if choices.growth is None:
        return None
    factor = monthly_factor(choices.growth)
    first = _sizes(traffic, *able[0], objectives, choices, factor)
    dearest = max(math.inf if size is None else size.usd_per_hour for size in first)
    tried = [able[0], *(each for each in able[1:] if factor < 1 or each[1].cost_usd_per_hour < dearest)]
    calls = [later(_sizes)(traffic, kind, fleet, objectives, choices, factor) for kind, fleet in tried[1:]]
    sizes: list[Sizes] = [first, *in_parallel("sizing kinds for the months", calls, len(calls), choices.jobs)]
    path = _cheapest_path([[_usd(size) for size in row[1:]] for row in sizes], choices.change_cost)
    months = _months([path[0], *path], [fleet.kind for _, fleet in tried], sizes, traffic.mean_rps, factor)
    changes = sum(month.is_change is True for month in months)
    total, kept = _total(months), sum(_usd(size) for size in first[1:])
    cheaper = next((month for month in range(1, len(first)) if min(_usd(row[month]) for row in sizes) < _usd(
        first[month])), None)
    growth = Growth(
        growth=choices.growth, factor_per_month=factor, months=tuple(months),
        total_usd=None if total is None else total + changes * choices.change_cost,
        change_cost_usd=choices.change_cost, kept_total_usd=kept if math.isfinite(kept) else None,
        cheaper_from_month=cheaper, sentence="")
    return replace(growth, sentence=_sentence(growth, able[0][1]))


def _sizes(traffic: Traffic, kind: Kind, fleet: Fleet, objectives: Objectives, choices: Choices,
           factor: float) -> Sizes:
    """Return the size of a kind today and at the end of each month; between two months with one size none is tried.
    """
    today = _MonthSize(fleet.num_replicas, fleet.num_gpus, fleet.cost_usd_per_hour)
    known: dict[int, _MonthSize | None] = {0: today}
    spans = [(0, choices.months)]
    while spans:
        low, high = spans.pop()
        if high not in known:
            known[high] = _sized(traffic, kind, fleet, objectives, choices, factor ** high)
        if known[low] == known[high]:
            known |= dict.fromkeys(range(low, high), known[low])
        elif high - low > 1:
            middle = (low + high) // 2
            spans += [(middle, high), (low, middle)]
    return _never_fewer([known[month] for month in range(choices.months + 1)], rises=factor >= 1)


def _usd(size: _MonthSize | None) -> float:
    """Return the price of a month; infinite if no number of replicas serves it [USD]."""
    return math.inf if size is None else usd_per_month(size.usd_per_hour)


def _cheapest_path(costs: Sequence[Sequence[float]], change_cost: float) -> list[int]:
    """Return the kind of each month on the cheapest path; of paths that cost as much the one with fewer changes.

    Months that no kind serves count as dearer than all others.

    >>> _cheapest_path([[1.0, 2.0, 4.0], [2.0, 2.0, 2.0]], 0.5), _cheapest_path([[1.0, 3.0], [2.0, 2.0]], 5.0)
    ([0, 0, 1], [0, 0])

    Parameters
    ----------
    costs : of each kind in each month [USD].
    """
    missing = 1.0 + sum(cost for row in costs for cost in row if math.isfinite(cost)) + change_cost * len(costs[0])
    best = [((0.0, 0), [kind]) for kind in range(len(costs))]  # cost and changes of the path that ends in a kind
    for month in range(len(costs[0])):
        ends = []
        for kind, row in enumerate(costs):
            (cost, changes), path = min((
                ((cost + change_cost * (path[-1] != kind), changes + (path[-1] != kind)), path)
                for (cost, changes), path in best), key=lambda each: each[0])
            ends.append(((cost + min(row[month], missing), changes), [*path, kind]))
        best = ends
    return min(best, key=lambda each: each[0])[1][1:]


def _sized(traffic: Traffic, kind: Kind, fleet: Fleet, objectives: Objectives, choices: Choices,
           factor: float) -> _MonthSize | None:
    """Return the size at a multiple of the rate; None if no number tried serves it."""
    spares = spare_replicas(choices, kind.divided)
    guess = max(math.ceil((fleet.num_replicas - spares) * factor), 1)
    sized = fewest_near(traffic.grown(factor, fleet.trace_copies), kind, objectives, choices, guess)
    if sized is None:
        return None
    return _MonthSize(sized.count + spares, sized.gpus(kind, choices), fleet_cost(sized.served, choices))


def _never_fewer(sizes: Sequence[_MonthSize | None], *, rises: bool) -> list[_MonthSize | None]:
    """Return the sizes of the months, each at least that of the months with lower rates."""
    found: list[_MonthSize | None] = []
    most: _MonthSize | None = None
    for size in sizes if rises else reversed(sizes):
        if size is not None and (most is None or size.num_gpus >= most.num_gpus):
            most = size
        found.append(None if size is None else most)
    return found if rises else found[::-1]


def _months(path: Sequence[int], kinds: Sequence[KindNames], sizes: Sequence[Sizes], rate_rps: float,
            factor: float) -> list[Month]:
    """Return the months of a path, today first, with the months that need more GPUs or another kind."""
    months: list[Month] = []
    for place, number in enumerate(path):
        size, kind = sizes[number][place], kinds[number]
        is_change = place > 0 and number != path[place - 1]
        before = months[-1].num_gpus if months else None
        months.append(Month(
            month=place, rate_rps=rate_rps * factor ** place, num_replicas=None if size is None else size.num_replicas,
            num_gpus=None if size is None else size.num_gpus, gpu=kind.gpu,
            tensor_parallel_size=kind.tensor_parallel_size, quantization=kind.quantization, is_change=is_change,
            must_grow=not is_change and size is not None and before is not None and size.num_gpus > before,
            cost_usd_per_month=None if size is None else _usd(size)))
    return months


def _total(months: Sequence[Month]) -> float | None:
    """Return the price of the months after today [USD]; None if one has none."""
    costs = [month.cost_usd_per_month for month in months[1:]]
    return None if None in costs else sum(cost or 0.0 for cost in costs)


def _sentence(growth: Growth, cheapest: Fleet) -> str:
    """Return when the fleet must grow or change, the price of the months, and when another kind is cheaper."""
    months, name = growth.months, cheapest.kind.gpu
    lost = next((month for month in months if month.num_gpus is None), None)
    parts = [f"{months[0].num_gpus or 0:,} × {months[0].gpu} today {_steps(months)} ({months[-1].rate_rps:,.4g} "
             f"requests/s at the end)"]
    if lost is not None:
        parts.append(f"from month {lost.month} on no number of replicas was found")
    if growth.total_usd is not None:
        changes = ", changes of kind included" if growth.change_cost_usd else ""
        parts.append(f"{growth.total_usd:,.0f} USD over {_span(months[-1].month)}{changes}")
    if growth.cheaper_from_month is not None:
        kept = "" if growth.kept_total_usd is None else f", {growth.kept_total_usd:,.0f} USD if it stays"
        parts.append(f"from month {growth.cheaper_from_month} on another kind costs less a month than today's cheapest "
                     f"({name}, tp {cheapest.kind.tensor_parallel_size}{kept}), without the price of a change")
    return "; ".join(parts)


def _span(last: int) -> str:
    return "1 month" if last == 1 else f"{last:,} months (1 to {last:,}, without today)"


def _steps(months: Sequence[Month]) -> str:
    """Return how a fleet grows and changes its kind."""
    steps = [f"grow to {month.num_gpus:,} in month {month.month}" if month.must_grow else
             f"change to {month.num_gpus or 0:,} × {month.gpu} (tp {month.tensor_parallel_size}) in month {month.month}"
             for month in months if month.must_grow or month.is_change]
    if not steps:
        return f"{'is' if months[0].num_gpus == 1 else 'are'} enough for {count_text(months[-1].month, 'month')}"
    verbs = [step.partition(" ")[0] for step in steps]
    return "must " + ", ".join(step.partition(" ")[2] if k and verbs[k] == verbs[k - 1] else step
                               for k, step in enumerate(steps))
