"""When a fleet must grow: the cheapest kind is sized for the rate of each month under a growth."""

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from planner.errors import UsageError
from planner.planning.alternatives import fewest_near
from planner.planning.fleets import Kind, fleet_cost, spare_replicas
from planner.planning.growth_answer import Growth, Month
from planner.planning.loads import Traffic
from planner.planning.offers import HOURS_PER_MONTH
from planner.planning.search_options import Choices
from planner.planning.size_answer import Fleet
from planner.progress import in_parallel, later
from planner.settings.objectives import Objectives

MONTHS = {"week": 84 / 365, "month": 1.0, "quarter": 3.0, "year": 12.0}  # in a period: a month is a twelfth of a year
MOST_MONTHS = 120
MOST_GROWTH = 100.0  # of a rate over all months


def monthly_factor(text: str) -> float:
    """Return by what factor a rate grows in a month, of "10%/month", "-2%/week" or "2x/year".

    >>> monthly_factor("10%/month"), round(monthly_factor("2x/year") ** 12, 9)
    (1.1, 2.0)

    Raises
    ------
    UsageError : the text is of another form, or nothing is left.
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
    """Raise UsageError where the options of a growth do not fit."""
    if choices.growth is None:
        return
    if not 1 <= choices.months <= MOST_MONTHS:
        raise UsageError(f"--months {choices.months}: must be from 1 to {MOST_MONTHS}")
    total = monthly_factor(choices.growth) ** choices.months
    if total > MOST_GROWTH:
        raise UsageError(f"--growth {choices.growth} --months {choices.months}: the rate grows {total:,.0f} times; at "
                         f"most {MOST_GROWTH:,.0f} times can be sized")


class _Size(NamedTuple):
    """The replicas and GPUs of a fleet, with spares, and its price per hour."""

    num_replicas: int
    num_gpus: int
    usd_per_hour: float


def growth_of(traffic: Traffic, kind: Kind, fleet: Fleet, objectives: Objectives, choices: Choices) -> Growth | None:
    """Return what the cheapest kind needs at the end of each month; None where no growth is asked for.

    More traffic is taken to need no fewer replicas: a month has at least those of a month with a lower rate.
    """
    if choices.growth is None:
        return None
    factor = monthly_factor(choices.growth)
    calls = [later(_sized)(traffic, kind, fleet, objectives, choices, factor ** month)
             for month in range(1, choices.months + 1)]
    sizes = [_Size(fleet.num_replicas, fleet.num_gpus, fleet.cost_usd_per_hour),
             *in_parallel("sizing for each month", calls, len(calls), choices.jobs)]
    months = _months(_never_fewer(sizes, rises=factor >= 1), traffic.mean_rps, factor)
    costs = [month.cost_usd_per_month for month in months[1:]]
    total = sum(cost or 0.0 for cost in costs)
    return Growth(growth=choices.growth, factor_per_month=factor, months=tuple(months),
                  total_usd=None if None in costs else total, sentence=_sentence(months, fleet))


def _sized(traffic: Traffic, kind: Kind, fleet: Fleet, objectives: Objectives, choices: Choices,
           factor: float) -> _Size | None:
    """Return the size at a multiple of the rate; None where none of the kind serve it."""
    spares = spare_replicas(choices, kind.divided)
    guess = max(math.ceil((fleet.num_replicas - spares) * factor), 1)
    sized = fewest_near(traffic.grown(factor, fleet.trace_copies), kind, objectives, choices, guess)
    if sized is None:
        return None
    return _Size(sized.count + spares, sized.gpus(kind, choices), fleet_cost(sized.served, choices))


def _never_fewer(sizes: Sequence[_Size | None], *, rises: bool) -> list[_Size | None]:
    """Return the sizes of the months, each at least that of the months with lower rates."""
    found: list[_Size | None] = []
    most: _Size | None = None
    for size in sizes if rises else reversed(sizes):
        if size is not None and (most is None or size.num_gpus >= most.num_gpus):
            most = size
        found.append(None if size is None else most)
    return found if rises else found[::-1]


def _months(sizes: Sequence[_Size | None], rate_rps: float, factor: float) -> list[Month]:
    """Return the months, and which of them need more GPUs than the one before."""
    months = [Month(month=place, rate_rps=rate_rps * factor ** place,
                    num_replicas=None if size is None else size.num_replicas,
                    num_gpus=None if size is None else size.num_gpus, must_grow=False,
                    cost_usd_per_month=None if size is None else HOURS_PER_MONTH * size.usd_per_hour)
              for place, size in enumerate(sizes)]
    return [months[0], *(replace(month, must_grow=month.num_gpus is not None and before.num_gpus is not None
                                 and month.num_gpus > before.num_gpus)
                         for before, month in itertools.pairwise(months))]


def _sentence(months: list[Month], fleet: Fleet) -> str:
    """Return when the fleet must grow."""
    grows = [f"to {month.num_gpus:,} in month {month.month}" for month in months if month.must_grow]
    lost = next((month for month in months if month.num_gpus is None), None)
    name, last = fleet.kind.gpu, months[-1]
    first = f"{months[0].num_gpus:,} × {name} today"
    then = f"must grow {', '.join(grows)}" if grows else f"are enough for {last.month} months"
    end = "" if lost is None else f"; from month {lost.month} on no number of replicas was found"
    return f"{first} {then} ({last.rate_rps:,.4g} requests/s at the end){end}"
