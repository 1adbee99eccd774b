"""Verdicts on objectives of replays as lines of text."""

from collections.abc import Mapping, Sequence

from planner.files.counts import count_text
from planner.results.summary_answer import Figures, Summary
from planner.settings.judged import Judged, judged_of, missed_sentence, sentences, shares

NO_TENANT = "(none)"  # in place of the name of requests without a tenant


def objective_lines(summary: Summary) -> list[str]:
    """Return a line for each objective, and whether it is met if that is asked; nothing without objectives."""
    judged = summary.figures.objectives
    lines = [f"  {text}" for text in shares(judged)]
    lines += [f"  {'met' if is_met else 'missed'}: {text}" for text, is_met in sentences(judged)]
    for tenant, found in (summary.figures.tenants or {}).items():
        lines += [f"  {'met' if is_met else 'missed'}, tenant {tenant or NO_TENANT}: {text}"
                  for text, is_met in sentences(judged_of(found))]
    lost = summary.workload["num_requests"] - summary.figures.completed
    if lost > 0 and any(one.unit == "ms" for one in judged):
        lines.append(f"  these values count {count_text(lost, 'request')} without an answer as infinitely late; the "
                     f"figures above are of completed requests")
    return ["Objectives", *lines] if lines else []


def missed_in(summary: Summary) -> str:
    """Return in one sentence which objectives a replay misses, and by how much; empty if none."""
    figures = summary.figures
    found = (_missed(figures.objectives, figures.completed, summary.workload["num_requests"]),
             tenants_missed_in(figures))
    return "; ".join(text for text in found if text)


def tenants_missed_in(figures: Figures) -> str:
    """Return in one sentence which tenants' objectives a replay misses; empty if none."""
    found = [(tenant, _missed(judged_of(each), each["completed"], each["num_requests"]))
             for tenant, each in (figures.tenants or {}).items()]
    return "; ".join(f"tenant {tenant or NO_TENANT}: {missed}" for tenant, missed in found if missed)


def missed_lines(summaries: Mapping[str, Summary]) -> list[str]:
    """Return a line for each of several replays that misses an objective."""
    return [f"{name} misses: {missed}" for name, summary in summaries.items() if (missed := missed_in(summary))]


def _missed(judged: Sequence[Judged], completed: int, num_requests: int) -> str:
    """Return the same of all requests or of a tenant's."""
    return missed_sentence(judged, 1.0 - completed / num_requests) if judged else ""
