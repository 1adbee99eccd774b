"""Replicas that only prefill: a step takes longer there than its kernels and the host's work on it."""

import functools
from statistics import geometric_mean
from typing import Any, NamedTuple

from planner.catalog.catalog_files import data_dir, read_toml
from planner.errors import CatalogError
from planner.files.finite import is_number
from planner.loop.state.terms import StepTime
from planner.settings.fleet_options import SLOWDOWN, TOKEN_TIME_US

# Times of the GPU in `STEP_TIME`; in `CURVE` all times are the GPU's.
_GPU_TERMS = ("prompt_s", "prompt_s_per_token", "prompt_s_per_pair", "prompt_s_per_window_pair",
              "prompt_s_per_context_token", "prompt_s_per_expanded_token", "mixed_s_per_context_token",
              "mixed_s_per_window_token", "own_s_per_token", "adapters_s", "adapters_s_per_token",
              "adapters_s_per_adapter")


class Slowdown(NamedTuple):
    """How much longer a step takes on a replica that only prefills.

    Parameters
    ----------
    ratio : the GPU's time, over the time of the step's kernels [1].
    s_per_token : time that nothing hides, for each prompt token [s].
    """

    ratio: float
    s_per_token: float


def slowdown_of(engine: str) -> Slowdown:
    """Return an engine's bundled slowdown.

    Fitted to published runs with prefill and decode apart, by `benchmarks/fit_prefill_workers.py`. An engine without
    such runs has the geometric mean ratio of the others, and no time per token.

    Raises
    ------
    CatalogError : a value in the file is wrong.
    """
    table = _bundled()
    if engine not in table:
        ratios = [_number(row, name, "ratio", SLOWDOWN) for name, row in table.items() if has_runs(name)]
        return Slowdown(ratio=round(geometric_mean(ratios), 2), s_per_token=0.0)
    return Slowdown(ratio=_number(table[engine], engine, "ratio", SLOWDOWN),
                    s_per_token=_number(table[engine], engine, "us_per_token", TOKEN_TIME_US) * 1e-6)


def has_runs(engine: str) -> bool:
    """Tell whether an engine's slowdown was fitted to runs of its own."""
    return "held_out" in _bundled().get(engine, {})


@functools.cache
def _bundled() -> dict[str, Any]:
    return read_toml(data_dir("hardware_db") / "prefill_workers.toml")


def _number(row: Any, engine: str, name: str, bounds: tuple[float, float]) -> float:
    value = row.get(name) if isinstance(row, dict) else None
    if not is_number(value) or not bounds[0] <= value <= bounds[1]:
        raise CatalogError(f"{data_dir('hardware_db') / 'prefill_workers.toml'}: {name} of {engine} = {value!r}; must "
                           f"be a number from {bounds[0]} to {bounds[1]}")
    return float(value)


def slowed(step_time: StepTime, slowdown: Slowdown) -> StepTime:
    """Return step times longer by a slowdown; the host's and the API server's other times are as they were."""
    terms, curve = step_time.terms.copy(), step_time.curve.copy()
    for name in _GPU_TERMS:
        terms[name] *= slowdown.ratio
    for name in curve.dtype.names:
        if name.endswith("_s") or "_s_per_" in name:
            curve[name] *= slowdown.ratio
    terms["overhead_s_per_token"] += slowdown.s_per_token
    return StepTime(terms=terms, curve=curve)
