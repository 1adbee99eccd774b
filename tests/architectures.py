"""What tests ask of an architecture: its kinds of layers by their classes, and how many layers are of what sort."""

from collections.abc import Callable
from typing import TypeVar

from planner.catalog.architecture import Architecture
from planner.catalog.layers.layer_group import Attention, LayerGroup
from planner.catalog.layers.mlps import Experts

A = TypeVar("A", bound=Attention)


def attention_of(arch: Architecture, kind: type[A]) -> A:
    """Return the first attention of a kind, which the model must have."""
    return next(group.attention for group in arch.layers if isinstance(group.attention, kind))


def count(arch: Architecture, is_counted: Callable[[LayerGroup], object]) -> int:
    """Return the layers of the groups for which something holds."""
    return sum(group.count for group in arch.layers if is_counted(group))


def weights(attention: Attention, hidden_size: int) -> int:
    """Return the weights of one layer that sees its whole context."""
    return sum(gemm.parameters for gemm in attention.projections(LayerGroup(1, attention), hidden_size, 1))


def num_sliding(arch: Architecture) -> int:
    """Return the layers with a window."""
    return count(arch, lambda group: group.window)


def num_indexers(arch: Architecture) -> int:
    """Return the layers that run an indexer."""
    return count(arch, lambda group: group.runs_indexer)


def experts_of(arch: Architecture) -> Experts:
    """Return the experts, which the model must have."""
    return next(experts for _, experts in arch.mlps_of(Experts))
