"""Layouts that cannot be the cheapest of their GPU: which to size first, and which need no search."""

import math
from collections.abc import Sequence

from planner.catalog.catalog_files import load_gpu
from planner.catalog.gpu_label import gpu_label
from planner.errors import CapacityError, CatalogError, UsageError
from planner.planning.fewest import together
from planner.planning.fleets import Kind, price_of
from planner.planning.price_list import ON_DEMAND
from planner.planning.search_options import Choices
from planner.settings.objectives import Objectives
from planner.settings.scenario import attention_ranks
from planner.traces import Trace

ALIKE = 1e-9  # costs that differ by less are the same [1]


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


def can_cost_less(load: Trace, kind: Kind, objectives: Objectives, choices: Choices, cost: float) -> bool:
    """Tell whether a kind may serve a load within the objectives for less than another fleet, by one replay.

    It takes for granted that more replicas serve no worse.

    Parameters
    ----------
    cost : of the other fleet; infinite for none [USD/h].
    """
    price = replica_cost(kind, choices)
    if price == 0 or cost == math.inf:
        return True
    most = math.ceil(cost / price * (1 - ALIKE)) - 1 - choices.num_spare  # replicas that together cost less
    if most < 1 or not _can_be_deployed(kind, load):
        return False
    return together(load, kind.deployed(load), objectives, most)[1].is_met


def replica_cost(kind: Kind, choices: Choices) -> float:
    """Return the price of one replica on demand; the cheaper it is, the more replicas a search tries [USD/h]."""
    scenario = kind.scenario
    num_gpus = scenario.tensor_parallel_size * scenario.pipeline_parallel_size * attention_ranks(scenario)
    return num_gpus * (price_of(load_gpu(str(scenario.gpu)), ON_DEMAND, choices) or 0.0)


def pruned_notes(kinds: Sequence[Kind]) -> list[str]:
    """Say which layouts were not sized."""
    if not kinds:
        return []
    names = ", ".join(f"{kind.scenario.tensor_parallel_size} × {gpu_label(kind.names.gpu)}" for kind in kinds)
    return [f"Not sized, because another layout of the same GPU costs less: {names}."]


def _can_be_deployed(kind: Kind, load: Trace) -> bool:
    try:
        kind.started(load)
    except (CapacityError, CatalogError, UsageError):
        return False
    return True
