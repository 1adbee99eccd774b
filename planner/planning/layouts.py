"""Layouts that cannot be the cheapest of their GPU: which to try first, and which need no replay."""

import math
from collections.abc import Sequence

from planner.catalog.catalog_files import load_gpu
from planner.errors import CapacityError, CatalogError
from planner.planning.fewest import together
from planner.planning.fleets import Kind, price_of
from planner.planning.price_list import ON_DEMAND
from planner.planning.search_options import Choices
from planner.settings.scenario import attention_ranks
from planner.traces import Trace


def smallest_layouts(kinds: Sequence[Kind], load: Trace) -> tuple[list[Kind], list[Kind]]:
    """Return the kinds to try first, and the others: of each GPU and weight format the smallest that can be deployed.

    Kinds that divide the work between prefill and decode are all among the first.
    """
    smallest: dict[tuple[str, str], Kind] = {}
    for kind in sorted(kinds, key=lambda kind: kind.scenario.tensor_parallel_size):
        key = kind.names.gpu, kind.names.quantization
        if kind.divided is together and key not in smallest and _can_be_deployed(kind, load):
            smallest[key] = kind
    first = [kind for kind in kinds if kind.divided is not together or kind in smallest.values()]
    return first, [kind for kind in kinds if kind not in first]


def one_replica_costs(kind: Kind, choices: Choices) -> float:
    """Return the price of one replica with the spares, all of one kind [USD/h]; infinite if nobody stated a price."""
    scenario = kind.scenario
    num_gpus = scenario.tensor_parallel_size * scenario.pipeline_parallel_size * attention_ranks(scenario)
    price = price_of(load_gpu(str(scenario.gpu)), ON_DEMAND, choices)
    return math.inf if price is None else (1 + choices.num_spare) * num_gpus * price


def pruned_notes(kinds: Sequence[Kind]) -> list[str]:
    """Say which layouts were not tried."""
    if not kinds:
        return []
    names = ", ".join(f"{kind.scenario.tensor_parallel_size} × {kind.names.gpu}" for kind in kinds)
    return [f"layouts that were not tried, because one replica costs more than a fleet of the same GPU: {names}"]


def _can_be_deployed(kind: Kind, load: Trace) -> bool:
    try:
        kind.deployed(load)
    except (CapacityError, CatalogError):
        return False
    return True
