"""Older releases of an engine: how long a layer and its launch take against the newest line, by GPU and format."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.catalog.catalog_files import data_dir, read_rows
from planner.engines.releases import is_before
from planner.errors import CatalogError
from planner.files.finite import is_number

NUMBERS = {"layer_s", "token_s", "launch_share"}  # of which a row has one
KEYS = {"engine", "gpu", "until", "num_runs", "held_out", "source"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderRelease:
    """How much longer steps take under a release than under a later one.

    Parameters
    ----------
    layer_s : of each layer [s].
    num_layers : layers that take longer [1].
    token_s : of each token in such a layer, in addition [s].
    launch_share : launch time of a layer with prompts over a later release's, without drafts and attention ranks [1].
    newest : the first release that takes no longer.
    """

    layer_s: float
    num_layers: int
    token_s: float = 0.0
    launch_share: float = 1.0
    newest: str


def measured_release(engine: str, version: str | None, gpu: str, precision: str) -> list[Mapping[str, Any]]:
    """Return the rows of `hardware_db/older_releases.toml` of a release, a number each; none if no run shows it.

    Parameters
    ----------
    version : of the engine; None for the newest.
    gpu : whose kernels run.
    precision : of the weights: bf16, fp8, fp4.

    Raises
    ------
    CatalogError : a row in the file is wrong.
    """
    return [row for row in _rows() if (row["engine"], row["gpu"]) == (engine, gpu)
            and precision == row.get("precision", precision) and is_before(version, row["until"])
            and not is_before(version, row.get("since"))]


@functools.cache
def _rows() -> tuple[Mapping[str, Any], ...]:
    path = data_dir("hardware_db") / "older_releases.toml"
    rows = read_rows(path, "older_release")
    for number, row in enumerate(rows, start=1):
        missing, unread = sorted(KEYS - row.keys()), sorted(row.keys() - KEYS - NUMBERS - {"precision", "since"})
        values = [row[name] for name in sorted(NUMBERS & row.keys())]
        if missing or unread or len(values) != 1 or not is_number(values[0]) or values[0] <= 0:
            raise CatalogError(f"{path}: [[older_release]] number {number}: lacks {', '.join(missing) or 'nothing'}, "
                               f"has unknown keys {', '.join(unread) or '(none)'}, or has not one number above 0 of "
                               f"{', '.join(sorted(NUMBERS))}")
    return tuple(rows)
