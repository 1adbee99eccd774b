"""Published benchmark recipes: the engine settings behind measured rows that do not state them."""

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from packaging.version import Version

from planner.catalog.catalog_files import data_dir, load_gpu, read_rows
from planner.catalog.gpus import Gpu
from planner.engines.releases import is_release, stated_release
from planner.errors import CatalogError
from planner.measured.run_row import Row

EQUAL = ("client", "isl", "osl", "tp", "ep")  # conditions that hold if the value is the same
CONDITIONS = frozenset({"engine", "model", "precision", "gpus", "version", *EQUAL, "tp_below", "min_concurrency",
                        "max_concurrency", "dp_attention", "since", "until"})
ABOUT = frozenset({"source", "unsure", "fallback"})  # keys of a row with its source
# Conditions in which the nearest recipe may differ, with the distance of each. That of the release is apart.
DISTANCES = {"gpus": 2.0, "isl": 4.0, "osl": 2.0, "tp": 1.0, "ep": 0.5, "tp_below": 1.0, "dp_attention": 4.0,
             "min_concurrency": 0.5, "max_concurrency": 0.5, "version": 0.0, "since": 0.0, "until": 0.0}
UNKNOWN_RELEASE = 1.0  # distance if the release of the run or of the recipe is not known
GIVEN = {"recipe": "set", "retokenised": "tokens_per_counted", "release": "engine_version"}  # by the kind of row


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The settings of a run, and a sentence on how they were chosen; empty if the recipe is the run's."""

    settings: Mapping[str, Any]
    note: str = ""


def find_recipe(name: str, run: Row) -> Recipe:
    """Return the first recipe whose conditions all hold for a run; else the nearest one, else the engine's defaults.

    The nearest recipe names the run's model, and has its engine, client, precision and generation of GPU, and drafts
    if the run drafts. Other conditions may differ; see DISTANCES.

    Parameters
    ----------
    name : file in `hardware_db/recipes`.
    run : a row with a profile's name as `gpu`, and a precision.

    Raises
    ------
    CatalogError : no recipe of this engine is there, not even a fallback.
    """
    about = f"{run.engine} {run.version or run.date}".strip() + f" on {run.gpu}, {run.model} in {run.precision}"
    near: list[tuple[float, dict[str, Any], tuple[str, ...]]] = []
    for recipe in _rows(name, "recipe"):
        failed = tuple(_failed(recipe, run))
        if recipe.get("fallback"):
            if failed:
                continue
            if near:
                break
            return Recipe(settings=_settings(recipe["set"], run),
                          note=f"{about}: no recipe is known, so the engine's defaults apply")
        if not failed:
            return Recipe(settings=_settings(recipe["set"], run))
        if _is_near(recipe, run, failed):
            near.append((_distance(name, recipe, run, failed), recipe, failed))
    if not near:
        raise CatalogError(f"hardware_db/recipes/{name}.toml: no recipe for engine {run.engine!r}; add one with "
                           f"fallback = true")
    _, recipe, failed = min(near, key=lambda row: row[0])
    differs = ", ".join(f"{key} = {_text(recipe[key])}" for key in failed)
    return Recipe(settings=_settings(recipe["set"], run), note=f"{about}: the nearest recipe applies, of {differs}")


def _text(value: Any) -> str:
    return " or ".join(str(part) or "unknown" for part in value) if isinstance(value, list) else str(value).lower()


def _is_near(recipe: Mapping[str, Any], run: Row, failed: tuple[str, ...]) -> bool:
    """Tell whether a recipe whose conditions failed may be the nearest one."""
    if "model" not in recipe or not set(failed) <= DISTANCES.keys():
        return False
    return "gpus" not in failed or any(is_relative(load_gpu(name), load_gpu(run.gpu)) for name in recipe["gpus"])


def is_relative(one: Gpu, other: Gpu) -> bool:
    """Tell whether two GPUs share a generation: they have one maker, and multiply the same formats.

    >>> [is_relative(load_gpu("b200-sxm"), load_gpu(name)) for name in ("gb300", "h200-sxm", "mi355x")]
    [True, False, False]
    """
    kinds = {(gpu.vendor, "fp8" in gpu.flops_per_s, "fp4" in gpu.flops_per_s) for gpu in (one, other)}
    return len(kinds) == 1


def _distance(name: str, recipe: Mapping[str, Any], run: Row, failed: tuple[str, ...]) -> float:
    """Return how far a recipe is from a run: lengths and layout, minor releases, and years."""
    total = sum(DISTANCES[key] for key in failed)
    if "version" in failed:
        release = release_of(name, run)
        known = [text.rstrip(".") for text in recipe["version"] if is_release(text.rstrip("."))] if release else []
        total += min((abs(_minor(text) - _minor(str(release))) for text in known), default=UNKNOWN_RELEASE)
    for key in {"since", "until"} & set(failed):
        days = (date.fromisoformat(run.date) - date.fromisoformat(recipe[key])).days if run.date else 365
        total += abs(days) / 365
    return total


def _minor(text: str) -> float:
    """Return a release as a number of minor releases; a micro release is a tenth."""
    version = Version(text)
    return 100.0 * version.major + version.minor + version.micro / 10.0


def tokens_per_counted(name: str, run: Row) -> float:
    """Return how many tokens the engine made of each that the client had counted in its prompts [1].

    Parameters
    ----------
    name : file in `hardware_db/recipes`; its rows `retokenised` are runs whose two ends tokenised differently.
    """
    rows = (row for row in _rows(name, "retokenised") if _holds(row, run))
    return next((float(row["tokens_per_counted"]) for row in rows), 1.0)


def release_of(name: str, run: Row) -> str | None:
    """Return the engine's release: the recorded one, or the one of its date; None if neither is known.

    Parameters
    ----------
    name : file in `hardware_db/recipes`; its rows `release` are for runs whose version is none, or that of no release.
    """
    dated = (str(row["engine_version"]) for row in _rows(name, "release") if _holds(row, run))
    return stated_release(run.version) or next(dated, None)


def _holds(recipe: Mapping[str, Any], run: Row) -> bool:
    """Tell whether every condition of a recipe holds."""
    return next(_failed(recipe, run), None) is None


def _failed(recipe: Mapping[str, Any], run: Row) -> Iterator[str]:
    """Yield the conditions of a recipe that do not hold."""
    versions, in_flight = recipe.get("version"), run.concurrency or 0
    held = {
        "engine": recipe["engine"] == run.engine,
        "model": run.model in recipe.get("model", (run.model,)),
        "precision": run.precision in recipe.get("precision", (run.precision,)),
        "gpus": run.gpu in recipe.get("gpus", (run.gpu,)),
        **{key: recipe.get(key, getattr(run, key)) == getattr(run, key) for key in EQUAL},
        "tp_below": run.tp < recipe.get("tp_below", math.inf),
        "min_concurrency": recipe.get("min_concurrency", 0) <= in_flight,
        "max_concurrency": in_flight <= recipe.get("max_concurrency", math.inf),
        "dp_attention": recipe.get("dp_attention", run.dp > 1) == (run.dp > 1),
        "version": versions is None or any(_is_of(run.version, v) if v else not run.version for v in versions),
        "since": recipe.get("since", run.date) <= run.date,
        "until": "until" not in recipe or "" < run.date < recipe["until"],  # an undated run may be a later one
        "drafts": run.drafts is None or "set" not in recipe or "fallback" in recipe
                  or run.drafts == ("speculative_tokens" in recipe["set"])}
    return (key for key, holds in held.items() if not holds)


def _is_of(version: str, begin: str) -> bool:
    """Tell whether a version begins with the numbers of another.

    >>> _is_of("0.5.2.post1", "0.5.2"), _is_of("0.5.20", "0.5.2"), _is_of("nightly-dev", "nightly")
    (True, False, True)
    """
    rest = version.removeprefix(begin)
    return version.startswith(begin) and (begin.endswith(".") or not rest[:1].isdigit())


def _settings(recipe: Mapping[str, Any], run: Row) -> dict[str, Any]:
    """Return a recipe's settings; settings that depend on the load or the step's tokens are worked out."""
    values, in_flight = dict(recipe), run.concurrency or 0
    for key, value in recipe.items():
        if isinstance(value, str) and value.startswith("concurrency"):
            values[key] = max(in_flight // int(value.partition("/")[2] or 1), 1)
    more = values.pop("batched_tokens_per_concurrency", 0)
    if more:
        tokens = values["max_num_batched_tokens"] + more * in_flight
        values["max_num_batched_tokens"] = math.ceil(tokens / 64) * 64
    if "batched_tokens_over_isl" in values:
        values["max_num_batched_tokens"] = run.isl + in_flight + values.pop("batched_tokens_over_isl")
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
