"""The result of a sweep, as text: its configurations, those on the front first, and the best."""

import math
from collections.abc import Sequence

from planner.planning.sweep_answer import Configuration, Optimum, SweepAnswer
from planner.report.cells import cell_text, launch_line, number_text, replay_lines
from planner.report.text import Grid, Text

SHOWN_ROWS = 60  # configurations; the output has all
SHOWN = 5  # reasons why configurations have no result
NAMED = 2  # configurations that a reason names


def sweep_table(result: SweepAnswer) -> Text:
    """Return a configuration a line, the front first, and why other configurations could not be replayed."""
    done = [row for row in result.rows if row.status == "done"]
    lines: list[str | Grid] = [_rows(done, result)] if done else []
    failed = {status: count for status, count in result.status.items() if status != "done"}
    lines += [f"{count:,} of {result.num_configurations:,} ({_named(status, result)}): {status}"
              for status, count in failed.items()][:SHOWN]
    lines += [f"… and {len(failed) - SHOWN:,} other reasons; the output has all"] if len(failed) > SHOWN else []
    if result.optimum is not None:
        lines.append(_best_line(result, result.optimum))
    first = result.front[0].get("replay_command") if result.front else None
    return Text([*lines, *replay_lines(first, "to check the first"), sweep_headline(result)])


def sweep_headline(result: SweepAnswer) -> str:
    """Return in a line how many configurations are on the front, and the file of all."""
    return (f"{len(result.front):,} of {result.num_configurations:,} configurations on the front; all in "
            f"{result.output}")


def _rows(done: Sequence[Configuration], result: SweepAnswer) -> Grid:
    """Return the first configurations as rows under the names of their columns; a left out value is none."""
    rows = [[*("none" if value is None and key in result.axes else cell_text(value, key)
               for key, value in row.values.items()), cell_text(row.bottleneck), _standing(row)]
            for row in done[:SHOWN_ROWS]]
    others = len(done) - len(rows)
    return Grid(heads=[*done[0].values, "bottleneck", "front"], rows=rows, left=(-1,), notes=[
        f"… {others:,} more configurations; all are in {result.output}, and in --json"] if others else ())


def _named(status: str, result: SweepAnswer) -> str:
    """Return the first configurations with a status, by their axes."""
    rows = [row for row in result.rows if row.status == status]
    names = [", ".join(f"{axis} = {'none' if row.values[axis] is None else row.values[axis]}" for axis in result.axes)
             for row in rows[:NAMED]]
    return "; ".join([*names, *(["…"] if len(rows) > NAMED else [])])


def _standing(row: Configuration) -> str:
    """Return whether a configuration is on the front, or why it is not."""
    if row.is_pareto:
        return "yes"
    return f"no: misses {row.misses}" if row.misses else "no"


def _best_line(result: SweepAnswer, found: Optimum) -> str:
    """Return the best configuration that an optimiser found, and its effort."""
    best, metric = found.best, result.pareto[0]
    effort = f"by {found.num_replays:,} replays of a grid of {math.prod(map(len, result.axes.values())):,}"
    if best is None:
        return f"none meets the limits, {effort}"
    values = ", ".join(f"{axis} {'none' if best[axis] is None else number_text(best[axis])}" for axis in result.axes)
    launch = launch_line(best["command"], best["command_lacks"])
    return f"best: {values}: {metric} {number_text(best[metric], metric)}, {effort}\n{launch}"
