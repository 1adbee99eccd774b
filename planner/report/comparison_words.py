"""What-ifs side by side in words: which keep the objectives, at which cost, and the figures that differ most."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from planner.report.cells import cell_text
from planner.report.summary_tables import ROWS
from planner.results.summary_answer import Summary
from planner.settings.judged import judged_of, sentences

MOST_ROWS = 5  # that are shown without --all
NO_SETTINGS = {"value_sources", "memory", "name"}  # of a summary's deployment and policy
USED = ("max_running", "max_waiting", "kv_cache_usage_peak", "num_preemptions", "prefix_cache_hit_rate")
SAME = 0.0005  # share by which two numbers differ that no digit shows
Values = Mapping[str, Mapping[str, Any]]  # of summaries, by name


def verdict_words(summaries: Mapping[str, Summary]) -> list[str]:
    """Return which what-ifs keep their objectives, their cost, and the largest difference; nothing for one what-if.

    A what-if whose engine would not start is no answer.
    """
    if len(summaries) < 2:
        return []
    able = {name: summary for name, summary in summaries.items() if summary.would_not_start is None}
    if not able:
        return ["no what-if starts"]
    verdicts = {name: _keeps(summary) for name, summary in able.items()}
    kept = [name for name, is_kept in verdicts.items() if is_kept]
    missed = [name for name, is_kept in verdicts.items() if is_kept is False]
    lines = []
    if kept or missed:
        parts = [f"keep the objectives: {_priced(kept, summaries)}"] if kept else ["no what-if keeps the objectives"]
        lines.append("; ".join([*parts, *([f"miss them: {_priced(missed, summaries)}"] if missed else [])]))
    lines += [f"would not start: {', '.join(name for name in summaries if name not in able)}"] * (
        len(able) < len(summaries))
    return [*lines, *_cheapest(kept or list(able), able, is_judged=bool(kept)),
            *_largest({name: summary.values_by_key for name, summary in summaries.items()})]


def _keeps(summary: Summary) -> bool | None:
    """Tell whether a what-if keeps all objectives, its tenants' too; None if no verdict was asked for."""
    parts = [summary.figures.objectives, *map(judged_of, (summary.figures.tenants or {}).values())]
    verdicts = [is_met for part in parts for _, is_met in sentences(part) if is_met is not None]
    return all(verdicts) if verdicts else None


def _priced(names: Sequence[str], summaries: Mapping[str, Summary]) -> str:
    costs = {name: summaries[name].utilization.cost_usd_per_million_output_tokens for name in names}
    return ", ".join(name if cost is None else f"{name} ({cost:,.3g} USD/Mtok)" for name, cost in costs.items())


def _cheapest(names: Sequence[str], summaries: Mapping[str, Summary], *, is_judged: bool) -> list[str]:
    """Return the cheapest of what-ifs that do not all cost the same."""
    costs = {name: cost for name in names
             if (cost := summaries[name].utilization.cost_usd_per_million_output_tokens) is not None}
    if len(costs) < 2 or _distance(list(costs.values())) <= SAME:
        return []
    best = min(costs, key=lambda name: costs[name])
    of_these = "cheapest that keeps them" if is_judged else "cheapest"
    return [f"{of_these}: {best}, {costs[best]:,.3g} USD per million output tokens"]


def _largest(summaries: Values) -> list[str]:
    """Return the figure that differs most; one of the engine's inside only if no other differs."""
    keys = most_different(summaries)
    if not keys:
        return [_why_equal(list(summaries.values()))]
    key = next((name for name in keys if name not in dict(ROWS)["Engine"]), keys[0])
    values = {name: summary.get(key) for name, summary in summaries.items()}
    return [f"differs most: {key}, " + ", ".join(f"{cell_text(value, key)} with {name}"
                                                     for name, value in values.items())]


def _why_equal(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Return why no figure differs: the settings that differ, and how much of the deployment the load uses."""
    settings = [{**summary["deployment"], **summary["policy"]} for summary in summaries]
    options = [name for name in settings[0] if name not in NO_SETTINGS
               and any(row.get(name) != settings[0][name] for row in settings)]
    if not options:
        return "no figure differs: the what-ifs have the same settings in force"
    used = ", ".join(f"{key} {cell_text(max(values), key)}" for key in USED if (values := [
        value for summary in summaries if (value := summary.get(key)) is not None]))
    return f"no figure differs; without effect on this load: {', '.join(options)} ({used})"


def most_different(summaries: Values) -> list[str]:
    """Return the figures that differ most, of each group of the table one at most.

    The distance of two numbers is their difference as a share of the larger one.
    """
    ranked = []
    for _, keys in ROWS:
        distances = [(_distance([summary.get(key) for summary in summaries.values()]), key) for key in keys]
        ranked.append(max(distances, key=lambda each: each[0]))
    ranked.sort(key=lambda each: -each[0])
    return [key for distance, key in ranked[:MOST_ROWS] if distance > SAME]


def _distance(values: Sequence[Any]) -> float:
    """Return the largest distance of two numbers [1]; 0 unless all are numbers."""
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return 0.0
    return max((abs(one - other) / max(abs(one), abs(other)) for one, other in itertools.combinations(values, 2)
                if one != other), default=0.0)
