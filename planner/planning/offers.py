"""The table of options: each fleet on each price term, with costs, energy and CO₂ by hour, month and year."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from planner.catalog.catalog_files import load_gpu
from planner.catalog.prices import TERMS
from planner.errors import UnknownNameError
from planner.planning.fleets import cost_of, price_of
from planner.planning.price_list import HOURS_PER_MONTH, ON_DEMAND, RESERVED, usd_per_month, usd_per_year
from planner.planning.search_options import Choices
from planner.planning.size_answer import Fleet, KindNames, Offer

SORT = "total_usd_per_month"
COLUMNS = tuple(f.name for f in fields(Offer) if f.name != "kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """GPUs of one kind in a fleet, on a term for a share of the time, and their mean price [USD/h]."""

    gpu: str
    num_gpus: float
    term: str
    cost: float


def offers(fleets: Sequence[Fleet], choices: Choices) -> tuple[Offer, ...]:
    """Return each fleet on each term that it has prices for, sorted by the column that is asked for.

    With a schedule, also the price of on-demand GPUs that follow it. With a schedule and a reserved price, also the
    cheapest mixture of reserved GPUs that run always and GPUs on demand for the rest.

    Raises
    ------
    UnknownNameError : there is no such column.
    """
    check_sort(choices)
    column = choices.sort or SORT
    rows = [offer for fleet in fleets for offer in _of_fleet(fleet, choices)]
    return tuple(sorted(rows, key=lambda row: _key(getattr(row, column))))


def check_sort(choices: Choices) -> None:
    """Raise UnknownNameError if options are to be sorted by a column that they lack."""
    if choices.sort is not None and choices.sort not in COLUMNS:
        raise UnknownNameError("column of --sort", choices.sort, COLUMNS)


def _key(value: object) -> tuple[bool, float, str]:
    """Return a place in the order: numbers, then words, then unknown values."""
    if isinstance(value, str):
        return False, math.inf, value
    return value is None, float(value) if isinstance(value, int | float) else 0.0, ""


def _of_fleet(fleet: Fleet, choices: Choices) -> Iterator[Offer]:
    pools = pools_in(fleet)
    for term in TERMS:
        costs = [cost_of(load_gpu(gpu), count, num_gpus, term, choices) for gpu, num_gpus, count in pools]
        if all(cost is not None for cost in costs):
            parts = [_Part(gpu=gpu, num_gpus=num_gpus, term=term, cost=cost or 0.0)
                     for (gpu, num_gpus, _), cost in zip(pools, costs, strict=True)]
            yield _offer(fleet, parts, term, choices, is_scheduled=False)
    gpu = fleet.kind.gpu
    if fleet.schedule is None or any(name != gpu for name, _, _ in pools):
        return
    yield _offer(fleet, [_scheduled(fleet, 0, choices)], ON_DEMAND, choices, is_scheduled=True)
    if price_of(load_gpu(gpu), RESERVED, choices) is not None:
        mixtures = ([_Part(gpu=gpu, num_gpus=base, term=RESERVED, cost=_cost(fleet, base, RESERVED, choices)),
                     _scheduled(fleet, base, choices)] for base in range(1, fleet.num_gpus + 1))
        best = min(mixtures, key=_price)
        if best[1].num_gpus > 0:
            yield _offer(fleet, best, f"{RESERVED} + {ON_DEMAND}", choices, is_scheduled=True)


def pools_in(fleet: Fleet) -> list[tuple[str, int, int]]:
    """Return the GPU, the number of GPUs and of replicas of each pool of a fleet, spares among them."""
    kind: KindNames = fleet.kind
    if kind.decode_gpu is None:
        return [(kind.gpu, fleet.num_gpus, fleet.num_replicas)]
    num_decode = fleet.num_replicas - fleet.prefill_replicas
    prefill = fleet.prefill_replicas * kind.tensor_parallel_size
    decode = num_decode * (kind.decode_tensor_parallel_size or kind.tensor_parallel_size)
    gpus = fleet.num_gpus * prefill // (prefill + decode)  # attention ranks and pipeline stages are the same for both
    return [(kind.gpu, gpus, fleet.prefill_replicas), (kind.decode_gpu, fleet.num_gpus - gpus, num_decode)]


def _scheduled(fleet: Fleet, base: int, choices: Choices) -> _Part:
    """Return the mean number of GPUs above `base` that the schedule asks for, on demand."""
    assert fleet.schedule is not None
    parts = [(max(part.num_gpus - base, 0), part.duration_s) for part in fleet.schedule.parts]
    total_s = sum(duration_s for _, duration_s in parts)
    cost = sum(_cost(fleet, count, ON_DEMAND, choices) * duration_s for count, duration_s in parts) / total_s
    return _Part(gpu=fleet.kind.gpu, num_gpus=sum(count * duration_s for count, duration_s in parts) / total_s,
                 term=ON_DEMAND, cost=cost)


def _cost(fleet: Fleet, num_gpus: int, term: str, choices: Choices) -> float:
    """Return the price of GPUs of a fleet's kind, in replicas of the fleet's size [USD/h]."""
    count = math.ceil(num_gpus * fleet.num_replicas / fleet.num_gpus)
    return cost_of(load_gpu(fleet.kind.gpu), count, num_gpus, term, choices) or 0.0


def _price(parts: Sequence[_Part]) -> float:
    return sum(part.cost for part in parts)


def _offer(fleet: Fleet, parts: Sequence[_Part], term: str, choices: Choices, *, is_scheduled: bool) -> Offer:
    """Return a row: the price of the parts, and the cost and emissions of their power."""
    cost, per_million = _price(parts), fleet.cost_usd_per_million_output_tokens
    power_kw = fleet.power_kw
    power = None if choices.power_price is None else power_kw * choices.power_price
    co2 = None if choices.co2_per_kwh is None else power_kw * choices.co2_per_kwh / 1e3
    total = cost + (power or 0.0)
    return Offer(
        option=_words(parts, is_scheduled), kind=fleet.kind, term=term, is_scheduled=is_scheduled,
        num_gpus=sum(part.num_gpus for part in parts), cost_usd_per_hour=cost,
        cost_usd_per_month=usd_per_month(cost), cost_usd_per_year=usd_per_year(cost),
        cost_usd_per_million_output_tokens=None if per_million is None else per_million * _ratio(
            cost, fleet.cost_usd_per_hour),
        power_kw=power_kw, power_usd_per_month=None if power is None else usd_per_month(power),
        total_usd_per_month=usd_per_month(total), total_usd_per_year=usd_per_year(total),
        co2_kg_per_month=None if co2 is None else HOURS_PER_MONTH * co2, headroom=fleet.headroom,
        attainment=fleet.attainment)


def _ratio(value: float, base: float) -> float:
    return value / base if base > 0 else 1.0


def _words(parts: Sequence[_Part], is_scheduled: bool) -> str:
    """Return an option in words: "3 × h100-sxm on demand".

    >>> _words([_Part(gpu="h100-sxm", num_gpus=3, term="on demand", cost=6.0)], False)
    '3 × h100-sxm on demand'
    """
    texts = []
    for term, own in itertools.groupby(parts, key=lambda part: part.term):
        counts: dict[str, float] = {}
        for part in own:
            counts[part.gpu] = counts.get(part.gpu, 0) + part.num_gpus
        gpus = " + ".join(f"{_count(number)} × {gpu}" for gpu, number in counts.items())
        texts.append(f"{gpus} {term}")
    return " + ".join(texts) + (", on the schedule" if is_scheduled else "")


def _count(number: float) -> str:
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}"
