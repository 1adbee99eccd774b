"""First use: the time in which a cold replica builds or loads kernels at its first step."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from planner.catalog.catalog_files import data_dir, read_rows
from planner.engines.releases import is_before
from planner.errors import CatalogError, UsageError
from planner.files.finite import is_number

KEYS = {"engine", "gpu", "precision", "engine_version", "model", "first_use_s", "shortest_s", "longest_s", "num_runs",
        "held_out"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstUse:
    """The measured first use of an engine's release on a GPU, of weights in one format.

    Parameters
    ----------
    engine, gpu, precision, engine_version, model : of the runs; the format is bf16, fp8, fp4 or another's name.
    first_use_s, shortest_s, longest_s : the median of the runs, and their ends [s].
    num_runs : runs that stalled [1].
    held_out : median error of the median of all other loads; None with one load [1].
    """

    engine: str
    gpu: str
    precision: str
    engine_version: str
    model: str
    first_use_s: float
    shortest_s: float
    longest_s: float
    num_runs: int
    held_out: float | None = None

    def __str__(self) -> str:
        """The value with its runs, as a note has it."""
        return (f"{self.first_use_s:g} s, the median of {self.num_runs} runs of {self.model} in {self.precision} under "
                f"{self.engine} {self.engine_version} on {self.gpu}: {self.shortest_s:g} to {self.longest_s:g} s")


def first_use_of(engine: str, version: str | None, gpu: str, format_name: str) -> FirstUse:
    """Return the measured first use: of the newest measured release up to `version`, or else of the oldest.

    Fitted to published runs that stalled once, by `benchmarks/fit_first_use.py`.

    Parameters
    ----------
    version : of the engine; None for the newest release.
    format_name : of the weights, as `model.precision` names it.

    Raises
    ------
    UsageError : no run of this engine, GPU and format stalled.
    CatalogError : a row in the file is wrong.
    """
    precision = "fp4" if "fp4" in format_name else "fp8" if format_name.startswith("fp8") else format_name
    rows = [row for row in measured_first_uses()
            if (row.engine, row.gpu, row.precision) == (engine, gpu, precision)]
    if not rows:
        known = ", ".join(dict.fromkeys(f"{row.engine} on {row.gpu} in {row.precision}"
                                        for row in measured_first_uses()))
        raise UsageError(f"--cold: no first use of {engine} on {gpu} in {precision} was measured; give --first-use-s. "
                         f"Measured: {known}")
    rows.sort(key=lambda row: Version(row.engine_version))
    return _up_to(rows, version)


def _up_to(rows: Sequence[FirstUse], version: str | None) -> FirstUse:
    return next((row for row in reversed(rows) if not is_before(version, row.engine_version)), rows[0])


@functools.cache
def measured_first_uses() -> tuple[FirstUse, ...]:
    """Return all rows of `hardware_db/first_use.toml`."""
    path = data_dir("hardware_db") / "first_use.toml"
    return tuple(_row(f"{path}: [[first_use]] number {k}", row) for k, row in
                 enumerate(read_rows(path, "first_use"), start=1))


def _row(where: str, row: dict[str, Any]) -> FirstUse:
    missing, unread = sorted(KEYS - {"held_out"} - row.keys()), sorted(row.keys() - KEYS)
    if missing or unread:
        raise CatalogError(f"{where}: lacks {', '.join(missing) or 'nothing'}, and has unknown keys "
                           f"{', '.join(unread) or '(none)'}; keys are {', '.join(sorted(KEYS))}")
    for name in ("first_use_s", "shortest_s", "longest_s", "num_runs"):
        if not is_number(row[name]) or row[name] <= 0:
            raise CatalogError(f"{where}: {name} = {row[name]!r}; must be a number above 0")
    return FirstUse(**row)
