"""The fitted constants of operators' kernels: found by GPU, engine and precision, or taken from the nearest."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from planner.catalog import data_dir, read_rows
from planner.errors import CatalogError

T = TypeVar("T")

PRIOR = "prior"  # the GPU name under which the medians over all measured GPUs stand


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit(Generic[T]):
    """One kernel's constants, and how near to the asked-for kernel they were fitted.

    Parameters
    ----------
    constants : of the operator's formula.
    is_measured : whether they were fitted on this GPU; else they are medians over the GPUs that were measured.
    row : the whole row of the file: keys, residuals, source.
    """

    constants: T
    is_measured: bool
    row: Mapping[str, Any]


def find_fit(cls: type[T], family: str, *, gpu: str, engine: str, **keys: Any) -> Fit[T]:
    """Find the constants of an operator's kernel.

    The row of this GPU and engine, else of this GPU under another engine, else the medians over GPUs for this engine,
    else for another; at each of these the first choice of keys that there is.

    Parameters
    ----------
    cls : dataclass of the operator's constants.
    family : name of the file in `hardware_db/kernels`.
    gpu, engine : catalog name; "vllm", "sglang" or "trtllm".
    keys : what a row must have: dtype, phase and so on; a tuple of values is an order of preference.

    Raises
    ------
    CatalogError : no row has these keys, on any GPU.
    """
    kind: Any = cls
    found: Fit[T] = _find_fit(kind, family, gpu, engine, tuple(keys.items()))
    return found


@functools.cache
def _find_fit(cls: Any, family: str, gpu: str, engine: str, pairs: tuple[tuple[str, Any], ...]) -> Any:
    keys = dict(pairs)
    for name, own in ((gpu, True), (gpu, False), (PRIOR, True), (PRIOR, False)):
        near = [row for row in _rows(family) if row["gpu"] == name and (row["engine"] == engine) == own]
        for wanted in _preferences(keys):
            for row in near:
                if row.get("default", True) and all(row.get(key) == value for key, value in wanted.items()):
                    values = {field: float(row[field]) for field in cls.__slots__}
                    return Fit(constants=cls(**values), is_measured=name != PRIOR, row=row)
    asked = ", ".join(f"{key} {value}" for key, value in keys.items())
    raise CatalogError(f"hardware_db/kernels/{family}.toml: no kernel was measured with {asked}; choose another "
                       f"precision, or add a [[fit]] with gpu = {PRIOR!r}")


def _preferences(keys: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the combinations of keys to try, the first choice of each first."""
    combinations: list[dict[str, Any]] = [{}]
    for key, value in keys.items():
        choices = value if isinstance(value, tuple) else (value,)
        combinations = [{**found, key: choice} for choice in choices for found in combinations]
    return combinations


@functools.cache
def _rows(family: str) -> list[dict[str, Any]]:
    return read_rows(data_dir("hardware_db") / "kernels" / f"{family}.toml", "fit")
