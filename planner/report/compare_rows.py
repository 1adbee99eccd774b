"""Scenarios side by side in words: the settings that differ, then targets, latencies and cost with the best marked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.files.counts import share_text
from planner.planning.pareto import is_less_better
from planner.report.content import MISSING, difference_text
from planner.results.short_times import time_text

ROWS = (  # key of the summary, its words, unit
    ("slo_attainment", "requests within their targets", "%"), ("median_ttft_ms", "TTFT p50", "ms"),
    ("p99_ttft_ms", "TTFT p99", "ms"), ("median_tpot_ms", "TPOT p50", "ms"), ("p99_tpot_ms", "TPOT p99", "ms"),
    ("p99_e2el_ms", "end to end p99", "ms"), ("request_throughput", "requests served", "/s"),
    ("output_throughput", "output tokens", "/s"), ("completed", "requests completed", ""),
    ("kv_cache_usage_peak", "KV cache, peak", "%"), ("gpu_busy_fraction", "GPU busy", "%"),
    ("cost_usd_per_million_output_tokens", "USD per million output tokens", "USD"),
)
UNSEEN = ("+0.0 %", "+0.0 points")  # differences that no digit shows
NEUTRAL = ("completed", "kv_cache_usage_peak", "gpu_busy_fraction")  # neither more nor less is better


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number of a scenario.

    Parameters
    ----------
    text : the number.
    difference : from the first scenario, as text; empty for the first.
    is_best : whether no other is better in the digits that are shown; false if all are equal in them.
    is_better : than the first; None if the difference is not shown or neither direction is better.
    """

    text: str
    difference: str
    is_best: bool
    is_better: bool | None


def compared_rows(summaries: Sequence[Mapping[str, Any]]) -> dict[str, list[Cell]]:
    """Return by label a cell for each scenario; a number that no scenario has is left out."""
    rows = {}
    for key, label, unit in ROWS:
        values = [summary.get(key) for summary in summaries]
        if any(value is not None for value in values):
            rows[label] = [_cell(key, unit, value, values) for value in values]
    return rows


def _cell(key: str, unit: str, value: Any, values: Sequence[Any]) -> Cell:
    known, first = [each for each in values if each is not None], values[0]
    less = None if key in NEUTRAL else is_less_better(key)
    difference = "" if value is None or first is None or value == first else (
        _points(value - first) if unit == "%" else difference_text(value, first))
    is_same = difference in ("", *UNSEEN)
    difference = "" if is_same else difference
    if value is None or less is None or len({_text(each, unit) for each in known}) == 1:
        return Cell(text=_text(value, unit), difference=difference, is_best=False, is_better=None)
    best = _text(min(known) if less else max(known), unit)
    return Cell(text=_text(value, unit), difference=difference, is_best=_text(value, unit) == best,
                is_better=None if is_same else (value < first) == less)


def _points(change: float) -> str:
    return f"{round(100 * change, 1) + 0.0:+.1f} points"


def _text(value: Any, unit: str) -> str:
    if value is None:
        return MISSING
    if unit == "ms":
        return time_text(value)
    if unit == "%":
        return share_text(value)
    if unit == "USD":
        return f"{value:,.2f}" if value >= 0.1 else f"{value:.2g}"
    return f"{value:,}{unit}" if isinstance(value, int) else f"{value:,.3g}{unit}" if value < 1000 else \
        f"{value:,.0f}{unit}"
