"""Published benchmark recipes: the engine settings behind measured rows that do not state them."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.catalog.catalog_files import data_dir, read_rows
from planner.engines.releases import stated_release
from planner.errors import CatalogError

EQUAL = ("client", "isl", "osl", "tp", "ep")  # conditions that hold if the value is the same
CONDITIONS = frozenset({"engine", "model", "precision", "gpus", "version", *EQUAL, "tp_below", "min_concurrency",
                        "max_concurrency", "dp_attention", "since", "until"})
ABOUT = frozenset({"source", "unsure", "fallback"})  # keys of a row with its source
GIVEN = {"recipe": "set", "retokenised": "tokens_per_counted", "release": "engine_version"}  # by the kind of row


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The deployment and load in a measured row, as recipes match them."""

    engine: str
    model: str
    precision: str
    gpu: str
    isl: int
    osl: int
    concurrency: int
    tp: int
    ep: int
    dp: int
    version: str
    date: str
    client: str


def find_recipe(name: str, run: Run) -> Mapping[str, Any]:
    """Return the settings of the first recipe whose conditions all hold for a run.

    Parameters
    ----------
    name : file in `hardware_db/recipes`.

    Raises
    ------
    CatalogError : no recipe of this engine is there, not even a fallback.
    """
    for recipe in _rows(name, "recipe"):
        if _holds(recipe, run):
            return _settings(recipe["set"], run)
    raise CatalogError(f"hardware_db/recipes/{name}.toml: no recipe for engine {run.engine!r}; add one with "
                       f"fallback = true")


def tokens_per_counted(name: str, run: Run) -> float:
    """Return how many tokens the engine made of each that the client had counted in its prompts [1].

    Parameters
    ----------
    name : file in `hardware_db/recipes`; its rows `retokenised` are runs whose two ends tokenised differently.
    """
    rows = (row for row in _rows(name, "retokenised") if _holds(row, run))
    return next((float(row["tokens_per_counted"]) for row in rows), 1.0)


def release_of(name: str, run: Run) -> str | None:
    """Return the engine's release: the recorded one, or the one of its date; None if neither is known.

    Parameters
    ----------
    name : file in `hardware_db/recipes`; its rows `release` are for runs whose version is none, or that of no release.
    """
    dated = (str(row["engine_version"]) for row in _rows(name, "release") if _holds(row, run))
    return stated_release(run.version) or next(dated, None)


def _holds(recipe: Mapping[str, Any], run: Run) -> bool:
    """Tell whether every condition of a recipe holds."""
    versions = recipe.get("version")
    return (
        recipe["engine"] == run.engine
        and run.model in recipe.get("model", (run.model,))
        and run.precision in recipe.get("precision", (run.precision,))
        and run.gpu in recipe.get("gpus", (run.gpu,))
        and all(recipe.get(key, getattr(run, key)) == getattr(run, key) for key in EQUAL)
        and run.tp < recipe.get("tp_below", math.inf)
        and recipe.get("min_concurrency", 0) <= run.concurrency <= recipe.get("max_concurrency", math.inf)
        and recipe.get("dp_attention", run.dp > 1) == (run.dp > 1)
        and (versions is None or any(run.version.startswith(v) if v else not run.version for v in versions))
        and recipe.get("since", run.date) <= run.date
        and ("until" not in recipe or "" < run.date < recipe["until"])  # an undated run may be a later one
    )


def _settings(recipe: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Return a recipe's settings; settings that depend on the load or the step's tokens are worked out."""
    values = dict(recipe)
    for key, value in recipe.items():
        if isinstance(value, str) and value.startswith("concurrency"):
            values[key] = max(run.concurrency // int(value.partition("/")[2] or 1), 1)
    more = values.pop("batched_tokens_per_concurrency", 0)
    if more:
        tokens = values["max_num_batched_tokens"] + more * run.concurrency
        values["max_num_batched_tokens"] = math.ceil(tokens / 64) * 64
    if "batched_tokens_over_isl" in values:
        values["max_num_batched_tokens"] = run.isl + run.concurrency + values.pop("batched_tokens_over_isl")
    return {key: values[value] if value == "max_num_batched_tokens" else value for key, value in values.items()}


def _rows(name: str, key: str) -> list[dict[str, Any]]:
    return recipe_rows(name, key, CONDITIONS, ABOUT | {GIVEN[key]})


@functools.cache
def recipe_rows(name: str, key: str, conditions: frozenset[str], others: frozenset[str]) -> list[dict[str, Any]]:
    """Return the rows of a file of recipes.

    Parameters
    ----------
    name, key : file in `hardware_db/recipes`; the name of its rows.
    conditions, others : keys that a row may have: conditions on a run, and all else.

    Raises
    ------
    CatalogError : a row has another key.
    """
    path = data_dir("hardware_db") / "recipes" / f"{name}.toml"
    rows = read_rows(path, key)
    for number, row in enumerate(rows, start=1):
        unread = sorted(row.keys() - conditions - others)
        if unread:
            raise CatalogError(f"{path}: [[{key}]] number {number} has unknown keys {', '.join(unread)}; "
                               f"conditions are {', '.join(sorted(conditions))}")
    return rows
