"""Measured mean acceptance lengths of drafts, by model, method and whether the model thinks."""

import functools

from planner.catalog.catalog_files import data_dir, read_rows


def measured_lengths(model: str, method: str, mode: str) -> tuple[float, ...] | None:
    """Return the tokens that a decode emits per step with 1, 2, ... drafted tokens; None without a measurement.

    Parameters
    ----------
    model : a model's name in the catalog.
    method : that drafts, as in `--speculative-method`.
    mode : "thinking" or "no-thinking".

    >>> measured_lengths("glm-5.2", "mtp", "thinking")[:3]
    (1.84, 2.5, 2.99)
    """
    return _measured().get((model, method, mode))


def measured_names(mode: str) -> list[str]:
    """Return "model with method" of all that was measured in a mode, sorted."""
    return sorted(f"{model} with {method}" for model, method, measured_mode in _measured() if measured_mode == mode)


@functools.cache
def _measured() -> dict[tuple[str, str, str], tuple[float, ...]]:
    rows = read_rows(data_dir("hardware_db") / "acceptance.toml", "measured")
    return {(row["model"], row["method"], row["mode"]): tuple(row["lengths"]) for row in rows}
