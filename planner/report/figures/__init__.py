"""Figures of saved results; reports and the dashboard draw the same ones."""

from collections.abc import Callable
from functools import partial
from typing import Any

from planner.report.figures.latency_figures import latency_cdf, time_by_phase
from planner.report.figures.scaling_figures import is_autoscaled, replicas
from planner.report.figures.style import Results, as_list, labels, template
from planner.report.figures.timeline_figures import kv_use, queue, step_composition, step_terms, throughput

__all__ = ["FIGURES", "FIGURE_WORDS", "OVER_TIME", "all_figures", "kv_use", "labels", "latency_cdf", "queue",
           "replicas", "step_composition", "step_terms", "template", "throughput", "time_by_phase"]

FIGURES: dict[str, Callable[..., Any]] = {  # by name, in the order in which a report shows them
    "replicas": replicas,
    **{f"{metric}_cdf": partial(latency_cdf, metric=metric) for metric in ("ttft", "tpot", "e2el")},
    "time_by_phase": time_by_phase, "throughput": throughput, "queue": queue, "kv_use": kv_use,
    "step_terms": step_terms, "step_composition": step_composition,
}
OVER_TIME = ("replicas", "throughput", "queue", "kv_use", "step_terms", "step_composition")  # and take a span
FIGURE_WORDS = {  # short names
    "replicas": "Replicas", "ttft_cdf": "TTFT", "tpot_cdf": "TPOT", "e2el_cdf": "End to end",
    "time_by_phase": "Phases", "throughput": "Throughput", "queue": "Queue", "kv_use": "KV cache",
    "step_terms": "GPU time", "step_composition": "Steps",
}


def all_figures(results: Results) -> dict[str, Any]:
    """Return every figure by name, in the order in which a report shows them.

    Parameters
    ----------
    results : one saved result, or several to draw on the same axes.
    """
    found = as_list(results)
    return {name: draw(found) for name, draw in FIGURES.items()
            if name != "replicas" or any(map(is_autoscaled, found))}
