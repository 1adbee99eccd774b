"""The result of a sweep, as text: its configurations, those on the front first, and the best."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from planner.report.cells import cell_text, launch_line, number_text

SHOWN_ROWS = 60  # configurations; the output has all
SHOWN = 5  # reasons why configurations have no result


def sweep_table(result: Mapping[str, Any]) -> str:
    """Return a configuration a line, those on the front first, and what became of those that could not be replayed."""
    done = [row for row in result["rows"] if row["status"] == "done"]
    lines = _aligned(result, done[:SHOWN_ROWS])
    if len(done) > SHOWN_ROWS:
        lines.append(f"… {len(done) - SHOWN_ROWS:,} more configurations; all are in {result['output']}, and in --json")
    failed = {status: count for status, count in result["status"].items() if status != "done"}
    lines += [f"{count:,} of {result['num_configurations']:,}: {status}" for status, count in failed.items()][:SHOWN]
    lines += [f"… and {len(failed) - SHOWN:,} other reasons; the output has all"] if len(failed) > SHOWN else []
    if "best" in result:
        lines.append(_best_line(result))
    return "\n".join([*lines, sweep_headline(result)])


def sweep_headline(result: Mapping[str, Any]) -> str:
    """Return in a line how many configurations are on the front, and where all are."""
    return (f"{len(result['front']):,} of {result['num_configurations']:,} configurations on the front; all in "
            f"{result['output']}")


def _aligned(result: Mapping[str, Any], shown: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return configurations as aligned lines under the names of their columns."""
    if not shown:
        return []
    names = [name for name in shown[0] if name not in ("status", "is_pareto", "misses")]
    rows = [[*names, "front"], *([*(cell_text(row[name]) for name in names), _standing(row)] for row in shown)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join([*(f"{cell:>{width}}" for cell, width in zip(row[:-1], widths, strict=False)), row[-1]])
            for row in rows]


def _standing(row: Mapping[str, Any]) -> str:
    """Return whether a configuration is on the front, or why it is not."""
    if row["is_pareto"]:
        return "yes"
    return f"no: misses {row['misses']}" if row["misses"] else "no"


def _best_line(result: Mapping[str, Any]) -> str:
    """Return the best configuration that an optimiser found, and its effort."""
    best, metric = result["best"], result["pareto"][0]
    effort = f"by {result['num_replays']:,} replays of a grid of {math.prod(map(len, result['axes'].values())):,}"
    if best is None:
        return f"none meets the limits, {effort}"
    values = ", ".join(f"{axis} {number_text(best[axis])}" for axis in result["axes"])
    return f"best: {values}: {metric} {number_text(best[metric])}, {effort}\n{launch_line(best)}"
