"""One dense matrix product of a model's layers: its shape, and whose weights it has."""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Gemm:
    """One kind of dense matrix product, tokens x k times k x n, and how many layers have it.

    Parameters
    ----------
    name : vLLM's name of the module.
    n, k : output and input features on one GPU [1].
    count : layers that have it [1].
    part : "attention", "linear" (linear attention) or "mlp", for which a checkpoint may have different formats;
        "kept": 16 bit in the checkpoint; "unquantized": 16 bit in memory for any format.
    """

    name: str
    n: int
    k: int
    count: int
    part: str

    @property
    def parameters(self) -> int:
        """Weights of all its layers on one GPU [1]."""
        return self.n * self.k * self.count


def over_groups(groups: Iterable[tuple[int, Iterable[Gemm]]]) -> tuple[Gemm, ...]:
    """Return the products of groups of layers, equal ones as one, products of a name together in order of the first.

    Parameters
    ----------
    groups : how many layers, and the products of one.

    >>> one, two = Gemm("qkv_proj", 8, 4, 1, "attention"), Gemm("o_proj", 4, 4, 1, "attention")
    >>> [(gemm.name, gemm.count) for gemm in over_groups([(2, [one, two]), (3, [one])])]
    [('qkv_proj', 5), ('o_proj', 2)]
    """
    by_name: dict[str, dict[tuple[int, Gemm], int]] = {}
    for num_layers, gemms in groups:
        for place, gemm in enumerate(gemms):
            counts = by_name.setdefault(gemm.name, {})
            counts[place, gemm] = counts.get((place, gemm), 0) + num_layers * gemm.count
    return tuple(replace(gemm, count=count) for counts in by_name.values() for (_, gemm), count in counts.items())
