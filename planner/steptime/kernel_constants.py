"""The fitted constants of operators' kernels: found by GPU, engine and precision, or taken from the nearest."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from planner.catalog.catalog_files import data_dir, read_rows
from planner.errors import CatalogError

T = TypeVar("T")

PRIOR = "prior"  # the GPU name under which the medians over all measured GPUs stand
MIN_POINTS = 500  # measured shapes of a kernel that may stand in for another: fitted to fewer, it says little of others


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit(Generic[T]):
    """One kernel's constants, and how near to the asked-for kernel they were fitted.

    Parameters
    ----------
    constants : of the operator's formula.
    is_measured : whether they were fitted on this GPU; else they are medians over the GPUs that were measured, which a
        row of this GPU may have too, with its known values (`medians`).
    row : the whole row of the file: keys, residuals, source.
    """

    constants: T
    is_measured: bool
    row: Mapping[str, Any]


def find_fit(cls: type[T], family: str, *, gpu: str, engine: str, prior: str = PRIOR, **keys: Any) -> Fit[T]:
    """Find the constants of an operator's kernel.

    The row of this GPU and engine, else of this GPU under another engine, the one that reads memory fastest, else the
    medians over GPUs for this engine, else for another; at each of these the first choice of keys that there is.

    Parameters
    ----------
    cls : dataclass of the operator's constants.
    family : name of the file in `hardware_db/kernels`.
    gpu, engine : catalog name; "vllm", "sglang" or "trtllm".
    prior : the GPU name of the medians over GPUs of its kind, if they stand before the medians over all.
    keys : values that a row must have: dtype, phase and so on; a tuple of values is an order of preference.

    Raises
    ------
    CatalogError : no row has these keys, on any GPU.
    """
    kind: Any = cls
    fit: Fit[T] = _find_fit(kind, family, (gpu, prior, PRIOR), engine, tuple(keys.items()))
    return fit


def find_fits(cls: type[T], family: str, *, gpu: str, engine: str, is_shared: bool, dtype: str,
              also: tuple[str, ...] = ()) -> tuple[Fit[T], ...]:
    """Find the kernels of an operator that an engine may choose from, the one of `find_fit` first.

    An engine takes the kernel that its tuner finds fastest for a shape, so a step's time is the least over these.

    Parameters
    ----------
    cls, family, gpu, engine : as in `find_fit`.
    is_shared : whether the kernels come from libraries that all engines use (cuBLASLt, CUTLASS, FlashInfer): then
        kernels that were measured under another engine are among the choices.
    dtype : format that the kernels multiply, a name of `precision.KERNELS`.
    also : others of these names, whose kernels multiply it too.

    Raises
    ------
    CatalogError : as `find_fit`.
    """
    nearest = find_fit(cls, family, gpu=gpu, engine=engine, dtype=dtype)
    others = [row for row in _rows(family)
              if row["gpu"] == nearest.row["gpu"] and row["dtype"] in (dtype, *also)
              and (row["engine"] == nearest.row["engine"] or (is_shared and row["engine"] != PRIOR))
              and row is not nearest.row and row["num_points"] >= MIN_POINTS]
    return nearest, *(Fit(constants=_constants(cls, row), is_measured=nearest.is_measured, row=row) for row in others)


def find_measured(cls: type[T], family: str, **keys: Any) -> Fit[T] | None:
    """Return the constants of the row that has all these keys; None without such a row."""
    rows = (row for row in _rows(family) if all(row.get(key) == value for key, value in keys.items()))
    return next((Fit(constants=_constants(cls, row), is_measured=True, row=row) for row in rows), None)


@functools.cache
def _find_fit(cls: Any, family: str, gpus: tuple[str, ...], engine: str, pairs: tuple[tuple[str, Any], ...]) -> Any:
    keys = dict(pairs)
    for name, is_own in itertools.product(gpus, (True, False)):
        near = [row for row in _rows(family) if row["gpu"] == name and (row["engine"] == engine) == is_own]
        near.sort(key=lambda row: -row.get("bandwidth_frac", 0.0))
        for wanted in _preferences(keys):
            for row in near:
                if row.get("default", True) and all(row.get(key) == value for key, value in wanted.items()):
                    is_measured = name == gpus[0] and not row.get("medians", False)
                    return Fit(constants=_constants(cls, row), is_measured=is_measured, row=row)
    asked = ", ".join(f"{key} {value}" for key, value in keys.items())
    raise CatalogError(f"hardware_db/kernels/{family}.toml: no kernel was measured with {asked}; choose another "
                       f"precision, or add a [[fit]] with gpu = {PRIOR!r}")


def _constants(cls: Any, row: Mapping[str, Any]) -> Any:
    """Return a row's constants; a constant with a default may be missing."""
    required = {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
    return cls(**{name: float(row[name]) for name in cls.__slots__ if name in row or name in required})


def _preferences(keys: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the combinations of keys to try, the first choice of each first."""
    combinations: list[dict[str, Any]] = [{}]
    for key, value in keys.items():
        choices = value if isinstance(value, tuple) else (value,)
        combinations = [{**chosen, key: choice} for choice in choices for chosen in combinations]
    return combinations


@functools.cache
def _rows(family: str) -> list[dict[str, Any]]:
    return read_rows(data_dir("hardware_db") / "kernels" / f"{family}.toml", "fit")
