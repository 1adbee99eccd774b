"""Verdicts on objectives of replays as lines of text."""

from collections.abc import Mapping
from typing import Any

from planner.files.counts import count_text
from planner.settings.judged import judged_of, missed_sentence, sentences, shares

NO_TENANT = "(none)"  # in place of the name of requests without a tenant


def objective_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return a line for each objective, and whether it is met if that is asked; nothing without objectives."""
    judged = judged_of(summary)
    lines = [f"  {text}" for text in shares(judged)]
    lines += [f"  {'met' if is_met else 'missed'}: {text}" for text, is_met in sentences(judged)]
    for tenant, found in (summary.get("tenants") or {}).items():
        lines += [f"  {'met' if is_met else 'missed'}, tenant {tenant or NO_TENANT}: {text}"
                  for text, is_met in sentences(judged_of(found))]
    lost = summary.get("workload", {}).get("num_requests", 0) - summary.get("completed", 0)
    if lost > 0 and any(one.unit == "ms" for one in judged):
        lines.append(f"  these values count {count_text(lost, 'request')} without an answer as infinitely late; the "
                     f"figures above are of completed requests")
    return ["Objectives", *lines] if lines else []


def missed_in(summary: Mapping[str, Any]) -> str:
    """Return in one sentence which objectives a replay misses, and by how much; empty if none."""
    found = (_missed(summary, summary.get("workload", {})), tenants_missed_in(summary))
    return "; ".join(text for text in found if text)


def tenants_missed_in(summary: Mapping[str, Any]) -> str:
    """Return in one sentence which tenants' objectives a replay misses; empty if none."""
    found = [(tenant, _missed(figures, figures)) for tenant, figures in (summary.get("tenants") or {}).items()]
    return "; ".join(f"tenant {tenant or NO_TENANT}: {missed}" for tenant, missed in found if missed)


def missed_lines(summaries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line for each of several replays that misses an objective."""
    return [f"{name} misses: {missed}" for name, summary in summaries.items() if (missed := missed_in(summary))]


def _missed(figures: Mapping[str, Any], load: Mapping[str, Any]) -> str:
    """Return the same of the figures of all requests or of a tenant's; `load` has their number."""
    judged = judged_of(figures)
    return missed_sentence(judged, 1.0 - figures["completed"] / load["num_requests"]) if judged else ""
