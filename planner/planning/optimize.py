"""The front of a grid by few replays: descents along one axis after the other, for many weights of the metrics."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.launch import describe_launch
from planner.planning.cluster_tasks import on_backend
from planner.planning.grid import Sweep
from planner.planning.pareto import is_less_better, pareto_front
from planner.planning.sweep_answer import Optimum, SweepAnswer
from planner.planning.sweeping import SweepGrid, describe, shortfall, sweep
from planner.progress import stage

Floats = NDArray[np.float64]
Score = tuple[float, float]  # smaller is better: by how much limits are missed, then the cost
Scores = Callable[[Sequence[int]], list[Score]]

STARTS = 4  # descents in a row that find nothing better in the first metric, after which the best is taken
NOTHING = (np.inf, np.inf)
DIVISIONS = {2: 8, 3: 4, 4: 3}  # of the lattice of weights, by the number of metrics: 9, 15 and 20 of them
AUGMENTATION = 0.05  # weight of the sum of all costs beside the largest, as in ParEGO
LEAST_WEIGHT = 1e-3  # so that no metric is left out altogether


def answer_sweep(plan: Sweep, output: Path, *, optimizes: bool = False, jobs: int = -1, backend: str = "processes",
                 address: str | None = None) -> SweepAnswer:
    """Replay a plan's grid, or look for its front by few replays, and return the answer.

    Parameters
    ----------
    plan, output, jobs, backend, address : as for `sweeping.sweep`.
    optimizes : whether the front is looked for.
    """
    if not optimizes:
        return describe(plan, output, sweep(plan, output, jobs=jobs, backend=backend, address=address))
    return describe(plan, output, *optimize(plan, output, jobs=jobs, backend=backend, address=address))


def optimize(plan: Sweep, output: Path, *, jobs: int = -1, backend: str = "processes", address: str | None = None,
             seed: int = 0) -> tuple[pl.DataFrame, Optimum]:
    """Find the front of a plan's metrics among configurations that keep its limits, and the best in the first metric.

    A descent takes the axes in a drawn order and moves to the best value of one while the others stay, until no axis
    has a better one; a point that misses limits moves towards missing them by less. First descents look for the best in
    the first metric: from the middle, then from random points, until STARTS in a row lead nowhere better. Then one
    descent for each vector of weights on a lattice (Das and Dennis, 1998) begins at the point known to be best by the
    augmented Tchebycheff function of the metrics under these weights, and goes down by it (Knowles, ParEGO, 2006).
    Metrics count as shares of their range over the front known so far. All descents share their replays. That is no
    proof: points that differ in two axes at once from everything good nearby may be missed.

    Parameters
    ----------
    plan, output, jobs, backend, address : as for `sweeping.sweep`.
    seed : of the starts and the orders.

    Returns
    -------
    polars.DataFrame, Optimum
        The configurations that were replayed, as a sweep's, which mark the front among them; and the best of them.

    Raises
    ------
    PlannerError : as `sweeping.sweep`.
    """
    search = _FrontSearch(plan, output, jobs, seed)
    with on_backend(backend, address, search.grid.trace), stage("looking for the best and the front"):
        best = search.find_best()
        search.find_front()
    table = search.grid.write()
    row = search.rows[best]
    is_found = search.by_first_metric([best])[0][0] == 0
    point = search.grid.points[best]
    return table, Optimum(best={**point.values, **row, **describe_launch(point.scenario)} if is_found else None,
                          num_replays=len(search.rows), num_descents=search.num_descents)


class _FrontSearch:
    """A search through a grid, with the rows of all points that it asked for."""

    def __init__(self, plan: Sweep, output: Path, jobs: int, seed: int) -> None:
        self.grid = SweepGrid(plan, output, jobs=jobs)
        self.rows: dict[int, Mapping[str, Any]] = {}  # by place in the grid
        self.num_descents = 0
        self._plan = plan
        self._shape = [len(values) for values in plan.axes.values()]
        self._rng = np.random.default_rng(seed)
        self._signs = np.array([1.0 if is_less_better(metric) else -1.0 for metric in plan.front])

    def find_best(self) -> int:
        """Return the place of the best point in the first metric."""
        best: tuple[Score, int] | None = None
        in_vain = 0
        for start in _starts(self._shape, self._rng):
            place = self._descend(start, self.by_first_metric)
            score = self.by_first_metric([place])[0]
            best, in_vain = ((score, place), 0) if best is None or score < best[0] else (best, in_vain + 1)
            if in_vain == STARTS:
                break
        assert best is not None
        return best[1]

    def find_front(self) -> None:
        """Ask for points of the front of all metrics, starting from the known points."""
        for weights in self._rng.permutation(_lattice(len(self._plan.front))):
            def scores(places: Sequence[int], weights: Floats = weights) -> list[Score]:
                return self._by_weights(places, weights)

            known = list(self.rows)
            values = scores(known)
            self._descend(known[min(range(len(known)), key=lambda k: values[k])], scores)

    def _descend(self, start: int, scores: Scores) -> int:
        """Return the place at which a descent from `start` ends."""
        place, self.num_descents = start, self.num_descents + 1
        self._ask([start])
        is_moving = True
        while is_moving:
            is_moving = False
            for axis in self._rng.permutation(len(self._shape)):
                line = _line(place, int(axis), self._shape)
                self._ask(line)
                found, here = scores(line), scores([place])[0]
                k = min(range(len(line)), key=lambda k: found[k])
                if found[k] < here:
                    place, is_moving = line[k], True
        return place

    def _ask(self, places: Sequence[int]) -> None:
        """Replay points that have not been asked for."""
        new = [place for place in places if place not in self.rows]
        if new:
            self.grid.replay(new)
            self.rows.update(zip(new, self.grid.rows(new), strict=True))

    def by_first_metric(self, places: Sequence[int]) -> list[Score]:
        """Return the scores of points by the first metric alone."""
        return [NOTHING if np.isnan(cost) else (shortfall(self._plan, self.rows[place]), float(cost))
                for place, cost in zip(places, self._costs(places)[:, 0], strict=True)]

    def _by_weights(self, places: Sequence[int], weights: Floats) -> list[Score]:
        """Return scores by the augmented Tchebycheff function, on the scale of the front that is known."""
        known = self._costs(list(self.rows))
        kept = known[[shortfall(self._plan, row) == 0 for row in self.rows.values()]]
        front = kept[pareto_front(kept)] if len(kept) else kept
        scale = front if len(front) else known[~np.isnan(known).any(axis=1)]
        if not len(scale):
            return [NOTHING] * len(places)
        low, high = scale.min(axis=0), scale.max(axis=0)
        shares = weights * (self._costs(places) - low) / np.where(high > low, high - low, 1.0)
        values = shares.max(axis=1) + AUGMENTATION * shares.sum(axis=1)
        return [NOTHING if np.isnan(value) else (shortfall(self._plan, self.rows[place]), float(value))
                for place, value in zip(places, values, strict=True)]

    def _costs(self, places: Sequence[int]) -> Floats:
        """Return the metrics of points, smaller is better, shape [num_places, num_metrics]; NaN if there is none."""
        values = [[self.rows[place].get(metric) for metric in self._plan.front] for place in places]
        costs = np.array([[np.nan if value is None else value for value in row] for row in values], np.float64)
        return self._signs * costs.reshape(len(places), len(self._plan.front))


def _lattice(count: int) -> Floats:
    """Return weight vectors that add up to 1 and are spread evenly, shape [num_vectors, count].

    >>> len(_lattice(2)), len(_lattice(3)), len(_lattice(4))
    (9, 15, 20)
    """
    divisions = DIVISIONS[count]
    parts = [part for part in itertools.product(range(divisions + 1), repeat=count) if sum(part) == divisions]
    return np.maximum(np.array(parts) / divisions, LEAST_WEIGHT)


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
