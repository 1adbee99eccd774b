"""Recipes of runs with prefill and decode apart: the recipe of a run, or the nearest one."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from planner.catalog.catalog_files import load_gpu
from planner.deployment.pools import Role
from planner.measured.recipes import is_relative, recipe_rows

SIDES: tuple[Role, ...] = ("prefill", "decode")
FILE = "disaggregated"  # in hardware_db/recipes
CONDITIONS = ("engine", "gpu", "model", "precision", "isl", "drafts",
              "prefill_workers", "decode_workers", "decode_gpus", "decode_ranks")
LAYOUT = ("workers", "gpus", "ranks", "experts")
# How far a recipe is from a run: for another GPU of the generation, another precision, a year, and for each doubling of
# lengths and of the requests in flight a rank.
GPU, PRECISION, YEAR, ISL, OSL, LOAD = 3.0, 6.0, 4.0, 2.0, 0.5, 0.5
# The same for each side: other attention, each doubling of a worker's GPUs and of the workers, other experts.
RANKS, GPUS, WORKERS, EXPERTS = 4.0, 2.0, 0.5, 0.5
SHARE = {"prefill": 0.5, "decode": 1.0}  # of each side in the distance


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The workers of one side.

    Parameters
    ----------
    workers : engines [1].
    gpus : of one engine [1].
    has_ranks : whether each GPU has its own attention.
    spreads_experts : whether whole experts are spread over a worker's GPUs, by the label ep.
    """

    workers: int
    gpus: int
    has_ranks: bool
    spreads_experts: bool

    @property
    def num_ranks(self) -> int:
        """Attention ranks of all workers."""
        return self.workers * (self.gpus if self.has_ranks else 1)

    @property
    def has_whole_experts(self) -> bool:
        """Whether each GPU has whole experts. Attention ranks always have."""
        return self.has_ranks or self.spreads_experts


@dataclass(frozen=True, slots=True, kw_only=True)
class ApartRun:
    """A run with prefill and decode apart, as recipes match it.

    Parameters
    ----------
    drafts : whether tokens are drafted.
    concurrency : requests in flight [1].
    day : of the run, as 2026-02-04; empty if not known.
    sides : its workers; empty if the row gives none.
    num_gpus : of all workers [1].
    """

    engine: str
    gpu: str
    model: str
    precision: str
    isl: int
    osl: int
    drafts: bool
    concurrency: int
    day: str
    sides: Mapping[Role, Side]
    num_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecipe:
    """The options of both sides and their workers, and a sentence on how they were chosen; empty for the run's recipe.

    Parameters
    ----------
    is_whole : whether limits are for this load, so that fewer seats than requests in flight are meant.
    """

    options: Mapping[Role, Mapping[str, Any]]
    sides: Mapping[Role, Side]
    note: str = ""
    is_whole: bool = True


def find_pools(run: ApartRun) -> PoolRecipe | None:
    """Return the recipe of a run: the first `pools` whose conditions all hold, else the nearest of a `group`.

    None if there is neither for its engine, model and generation of GPU, or none with as many GPUs if the row does not
    give the workers.

    Raises
    ------
    CatalogError : a recipe has a condition that nothing reads.
    """
    if run.sides and (old := _first(run)) is not None:
        return PoolRecipe(options={side: dict(old.get(side, {})) for side in SIDES}, sides=run.sides)
    best = min(_candidates(run), key=lambda row: row[0], default=None)
    if best is None:
        return None
    distance, group, pool = best
    options: dict[Role, dict[str, Any]] = {side: {
        **group.get(side, {}), **{name: value for name, value in pool[side].items() if name not in LAYOUT}}
        for side in SIDES}
    sides = run.sides or {side: _side(pool[side], None) for side in SIDES}
    return PoolRecipe(options=options, sides=sides, note=_note(run, group, pool) if distance > 0 else "",
                      is_whole=distance == 0)


def _first(run: ApartRun) -> Mapping[str, Any] | None:
    """Return the first recipe without a layout of its own whose conditions all hold."""
    known = {"engine": run.engine, "gpu": run.gpu, "model": run.model, "precision": run.precision, "isl": run.isl,
             "drafts": run.drafts, "prefill_workers": run.sides["prefill"].workers,
             "decode_workers": run.sides["decode"].workers, "decode_gpus": run.sides["decode"].gpus,
             "decode_ranks": run.sides["decode"].has_ranks}
    rows = recipe_rows(FILE, "pools", frozenset({*CONDITIONS, "min_concurrency", "until"}), frozenset(SIDES))
    return next((row for row in rows
                 if all(row.get(name, known[name]) == known[name] for name in CONDITIONS)
                 and run.concurrency >= row.get("min_concurrency", 0) and run.day < row.get("until", "9")), None)


def _candidates(run: ApartRun) -> Iterator[tuple[float, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the recipes that may be the nearest, each with its distance, its group and itself."""
    gpu = load_gpu(run.gpu)
    for group in recipe_rows(FILE, "group", frozenset({"engine", "model", "gpu", "precision", "isl", "osl", "since"}),
                             frozenset({"source", "unsure", "pools", *SIDES})):
        if group["engine"] != run.engine or run.model not in group["model"] or not is_relative(load_gpu(group["gpu"]),
                                                                                             gpu):
            continue
        distance = GPU * (group["gpu"] != run.gpu) + PRECISION * (group["precision"] != run.precision)
        distance += ISL * _doublings(group.get("isl", run.isl), run.isl)
        distance += OSL * _doublings(group.get("osl", run.osl), run.osl)
        if "since" in group and run.day:
            days = date.fromisoformat(run.day) - date.fromisoformat(group["since"])
            distance += YEAR * (days.days / 365 if days.days >= 0 else 1 - days.days / 365)
        for pool in group["pools"]:
            sides = {side: _side(pool[side], run.sides.get(side)) for side in SIDES}
            drafts = "num_speculative_tokens" in {**group.get("decode", {}), **pool["decode"]}
            gpus = sum(side.workers * side.gpus for side in sides.values())
            if drafts == run.drafts and (run.sides or gpus == run.num_gpus):
                yield distance + _apart(run, sides, pool.get("at", ())), group, pool


def _apart(run: ApartRun, sides: Mapping[Role, Side], at: list[int]) -> float:
    """Return how far a recipe's workers and load are from a run's."""
    distance = 0.0
    for role, side in sides.items():
        if mine := run.sides.get(role):
            distance += SHARE[role] * (RANKS * (mine.has_ranks != side.has_ranks)
                                       + GPUS * _doublings(mine.gpus, side.gpus)
                                       + WORKERS * _doublings(mine.workers, side.workers)
                                       + EXPERTS * (mine.has_whole_experts != side.has_whole_experts))
    ranks = run.sides["decode"].num_ranks / sides["decode"].num_ranks if run.sides else 1.0
    return distance + LOAD * min((_doublings(run.concurrency / ranks, count) for count in at), default=0.0)


def _doublings(one: float, other: float) -> float:
    return abs(math.log2(one / other))


def _side(row: Mapping[str, Any], side: Side | None) -> Side:
    """Return a recipe's workers; as many as a run has if the recipe gives no number."""
    return Side(workers=row.get("workers", side.workers if side else 1), gpus=row["gpus"],
                has_ranks=row.get("ranks", False), spreads_experts=row.get("experts", False))


def _shape(side: Side | None) -> tuple[int, int, bool, bool] | None:
    return None if side is None else (side.workers, side.gpus, side.has_ranks, side.has_whole_experts)


def _note(run: ApartRun, group: Mapping[str, Any], pool: Mapping[str, Any]) -> str:
    """Say how the nearest recipe differs."""
    differs = [f"{name} {group[name]}" for name in ("gpu", "precision", "isl", "osl")
               if group.get(name, getattr(run, name)) != getattr(run, name)]
    sides = {side: _side(pool[side], run.sides.get(side)) for side in SIDES}
    differs += [f"{workers.workers} × {workers.gpus} GPUs that {side}"
                f"{' with attention ranks' if workers.has_ranks else ''}"
                for side, workers in sides.items() if _shape(workers) != _shape(run.sides.get(side))]
    if "at" in pool and run.concurrency not in pool["at"]:
        differs.append(f"{' or '.join(map(str, pool['at']))} in flight")
    if "since" in group:
        differs.append(f"{group['since']}")
    return (f"{run.engine} on {run.gpu}, {run.model} in {run.precision}, {run.isl}/{run.osl}, "
            f"{run.concurrency} in flight: the nearest recipe applies, of {', '.join(differs)}")
