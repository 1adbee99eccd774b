"""The best configuration of a grid by few replays: descent along one axis after the other, from several starts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from planner.launch import describe_launch
from planner.planning.grid import Sweep
from planner.planning.pareto import is_less_better
from planner.planning.sweeping import Grid, Progress, on_backend, shortfall

STARTS = 4  # descents in a row that find nothing better, after which the best is taken
NOTHING = (np.inf, np.inf)


def optimize(plan: Sweep, output: Path, *, jobs: int = -1, backend: str = "processes", address: str | None = None,
             seed: int = 0, progress: Progress = lambda done, total: None) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Find the configuration that is best in the plan's first metric among those that keep its limits.

    Each descent takes the axes in a drawn order and moves to the best value of one while the others stay, until no axis
    has a better one; a point that misses limits moves towards missing them by less. Descents start in the middle, then
    at random, until STARTS in a row lead nowhere better. That is no proof: a best that only differs in two axes at once
    from everything good nearby may be missed.

    Parameters
    ----------
    plan, output, jobs, backend, address : as for `sweeping.sweep`.
    seed : of the starts and the orders.
    progress : is told how many configurations are done, of those that the grid has.

    Returns
    -------
    polars.DataFrame, dict
        The configurations that were replayed, as a sweep's; and `best`, its row, or None where none keeps the limits,
        with `num_replays` and `num_descents`.

    Raises
    ------
    PlannerError : as `sweeping.sweep`.
    """
    grid = Grid(plan, output, jobs=jobs)
    shape = [len(values) for values in plan.axes.values()]
    rng = np.random.default_rng(seed)
    best, num_descents, in_vain = None, 0, 0
    asked: set[int] = set()

    def costs(places: Sequence[int]) -> list[tuple[float, float]]:
        asked.update(places)
        found = [_cost(plan, row) for row in grid.replay(places)]
        progress(len(asked), len(grid.points))
        return found

    with on_backend(backend, address):
        for start in _starts(shape, rng):
            place, cost = start, costs([start])[0]
            is_moving = True
            while is_moving:
                is_moving = False
                for axis in rng.permutation(len(shape)):
                    line = _line(place, int(axis), shape)
                    found = costs(line)
                    k = min(range(len(line)), key=lambda k: found[k])
                    if found[k] < cost:
                        place, cost, is_moving = line[k], found[k], True
            num_descents += 1
            if best is None or cost < best[0]:
                best, in_vain = (cost, place), 0
            else:
                in_vain += 1
            if in_vain == STARTS:
                break
    table = grid.write()
    assert best is not None
    row = grid.replay([best[1]])[0]
    is_found = best[0][0] == 0
    point = grid.points[best[1]]
    return table, {"best": {**point.values, **row, **describe_launch(point.scenario)} if is_found else None,
                   "num_replays": len(asked), "num_descents": num_descents}


def _starts(shape: Sequence[int], rng: np.random.Generator) -> Iterator[int]:
    """Yield the middle, then places in random order, each once."""
    middle = int(np.ravel_multi_index([size // 2 for size in shape], shape)) if shape else 0
    yield middle
    for place in rng.permutation(int(np.prod(shape))):
        if place != middle:
            yield int(place)


def _line(place: int, axis: int, shape: Sequence[int]) -> list[int]:
    """Return the places that differ from one in no axis but this."""
    where = [int(k) for k in np.unravel_index(place, shape)]
    lines = ([*where[:axis], value, *where[axis + 1 :]] for value in range(shape[axis]))
    return [int(np.ravel_multi_index(each, shape)) for each in lines]


def _cost(plan: Sweep, row: Mapping[str, Any]) -> tuple[float, float]:
    """Return what is less for a better configuration: how much it misses the limits by, then its first metric."""
    metric = plan.front[0]
    value = row.get(metric)
    if row["status"] != "done" or value is None:
        return NOTHING
    return shortfall(plan, row), value if is_less_better(metric) else -value
