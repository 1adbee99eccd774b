"""Fitting operators' constants to measured kernel times: reading the tables, the fit, and the TOML that it ends in."""

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import least_squares

from planner.catalog.catalog_files import load_gpu
from planner.catalog.gpus import Gpu
from planner.files.writing import write_text

ROOT = Path(__file__).resolve().parents[2]
KERNELS = Path(os.environ.get("PLANNER_SHARED", ROOT.parent / "shared")) / "kernels"
SYSTEMS = {"h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm", "b200_sxm": "b200-sxm", "b300_sxm": "b300-sxm",
           "gb200": "gb200", "a100_sxm": "a100-sxm", "l40s": "l40s", "rtx_pro_6000_server": "rtx-pro-6000"}
AMD = ("mi300x", "mi355x", "xGMI")  # what `fit_amd.py` fits
SOURCE = "NVIDIA AIConfigurator operator measurements (Apache-2.0), published systems data, read 2026-11"

SAME = 1e-9  # of log times: what differs less is the same

Model = Callable[..., NDArray[np.float64]]


def tables(system: str, family: str, stem: str) -> dict[tuple[str, str], pl.DataFrame]:
    """Return the tables of one operator on one system by (engine, version); versions of an engine stay apart."""
    found = {}
    for path in sorted((KERNELS / system / family).glob(f"*/{stem}.parquet")):
        engine, _, version = path.parent.name.partition("-")
        found[engine, version] = pl.read_parquet(path).filter(pl.col("latency") > 0)
    return found


def read_fits(path: Path) -> list[dict[str, Any]]:
    """Return the rows that a file has; none where there is no such file yet."""
    found: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["fit"] if path.is_file() else []
    return found


def gpu_of(system: str) -> Gpu:
    """Return the catalog's profile of a measured system, given by its name in the tables or in the catalog."""
    return load_gpu(SYSTEMS.get(system, system))


def fit(model: Model, start: Mapping[str, float], bounds: Mapping[str, tuple[float, float]],
        measured_s: NDArray[np.float64], weights: NDArray[np.float64] | float = 1.0,
        ) -> tuple[dict[str, float], dict[str, float]]:
    """Fit a model's constants by bounded least squares on log errors, robust to outliers.

    A constant that no point depends on, which the search moves anywhere, stays where it starts.

    Parameters
    ----------
    model : returns predicted times [s] for constants given by name, shape as `measured_s`.
    start, bounds : where the search begins and what is physical, by constant; positive.
    measured_s : shape [num_points].
    weights : what each point counts in the fit, but not in its residuals; shape [num_points] [1].

    Returns
    -------
    The constants, and the residuals: num_points, median_ape, p90_ape, bias (geometric mean ratio - 1).
    """
    names = list(start)
    low, high = (np.log([bounds[name][side] for name in names]) for side in (0, 1))

    def residual(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(model(**dict(zip(names, np.exp(x), strict=True))) / measured_s)

    begin = np.clip(np.log([start[name] for name in names]), low + 1e-9, high - 1e-9)
    found = least_squares(residual, begin, bounds=(low, high), loss=lambda squares: weights * _soft_l1(squares),
                          f_scale=0.1, x_scale="jac")
    errors = residual(found.x)
    is_untold = [np.allclose(residual(np.where(own, begin, found.x)), errors, rtol=0.0, atol=SAME)
                 for own in np.eye(len(names), dtype=bool)]
    best = np.where(is_untold, begin, found.x)
    ratio = np.exp(errors)
    ape = np.abs(ratio - 1)
    quality = {"num_points": len(measured_s), "median_ape": float(np.median(ape)),
               "p90_ape": float(np.percentile(ape, 90)), "bias": float(np.exp(np.mean(np.log(ratio))) - 1)}
    return dict(zip(names, np.exp(best).tolist(), strict=True)), quality


def _soft_l1(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scipy's loss of this name and its two derivatives, which it cannot weigh; shape [3, num_points]."""
    root = np.sqrt(1.0 + squares)
    return np.stack([2.0 * (root - 1.0), 1.0 / root, -0.5 / root**3])


def write_fits(path: Path, heading: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write fitted rows under a comment with their source; the file's rows of AMD's GPUs stay.

    Raises
    ------
    SystemExit : no row is of a measured GPU, since the measured kernels are missing.
    """
    if all(row["gpu"] == "prior" for row in rows):
        raise SystemExit(f"{path}: stays as it is, since {KERNELS} has no measured kernels; PLANNER_SHARED names the "
                         "folder above")
    amds = [row for row in read_fits(path) if row["gpu"] in AMD]
    _write(path, [f"# {line}" for line in heading.splitlines()], [*rows, *amds])


def replace_amds(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write fitted rows of AMD's GPUs in place of those that a file has; its comment and other rows stay."""
    heading = path.read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
    _write(path, heading, [*(row for row in read_fits(path) if row["gpu"] not in AMD), *rows])


def _write(path: Path, heading: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as `[[fit]]` tables, one key a line."""
    lines = list(heading)
    for row in rows:
        lines += ["", "[[fit]]"]
        lines += [f"{key} = {_toml(value)}" for key, value in row.items()]
    write_text(path, "\n".join(lines) + "\n")


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).lower() if isinstance(value, bool) else str(value)
