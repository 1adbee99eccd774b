"""Figures of saved results; reports and the dashboard draw the same ones."""

from typing import Any

from planner.report.figures.latency_figures import latency_cdf, time_by_phase
from planner.report.figures.scaling_figures import is_autoscaled, replicas
from planner.report.figures.style import Results, Theme, as_list, labels, template
from planner.report.figures.timeline_figures import kv_use, queue, step_composition, step_terms, throughput

__all__ = ["Theme", "all_figures", "kv_use", "labels", "latency_cdf", "queue", "replicas", "step_composition",
           "step_terms", "template", "throughput", "time_by_phase"]


def all_figures(results: Results, *, theme: Theme = "light") -> dict[str, Any]:
    """Return every figure by name, in the order in which a report shows them.

    Parameters
    ----------
    results : one saved result, or several to draw on the same axes.
    theme : "light" or "dark".
    """
    found = as_list(results)
    return {
        **({"replicas": replicas(found, theme=theme)} if any(map(is_autoscaled, found)) else {}),
        **{f"{metric}_cdf": latency_cdf(found, metric, theme=theme) for metric in ("ttft", "tpot", "e2el")},
        "time_by_phase": time_by_phase(found, theme=theme),
        "throughput": throughput(found, theme=theme),
        "queue": queue(found, theme=theme),
        "kv_use": kv_use(found, theme=theme),
        "step_terms": step_terms(found, theme=theme),
        "step_composition": step_composition(found, theme=theme),
    }
