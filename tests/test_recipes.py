"""Recipes: the first whose conditions all hold, and settings that depend on the load."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import recipes
from planner.errors import CatalogError
from planner.recipes import Run, find_recipe

RUN = Run(engine="vllm", model="m", precision="fp8", gpu="h100-sxm", isl=1024, osl=1024, concurrency=64, tp=8, ep=1,
          dp=1, version="0.9.1", date="2026-03-01")
ENGINES = ("vllm", "sglang", "trtllm")


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "recipes").mkdir()
    monkeypatch.setattr(recipes, "data_dir", lambda name: tmp_path)
    recipes._recipes.cache_clear()
    yield lambda text: (tmp_path / "recipes" / "toy.toml").write_text(text)
    recipes._recipes.cache_clear()


@pytest.mark.parametrize("condition", [
    'model = ["m", "n"]', 'precision = ["fp8"]', 'gpus = ["h100-sxm"]', "isl = 1024", "tp = 8", "ep = 1",
    "tp_below = 9",
    "min_concurrency = 64", "max_concurrency = 64", "dp_attention = false", 'version = ["0.9"]', 'since = "2026-03-01"',
    'until = "2026-03-02"'])
def test_a_recipe_holds_where_its_condition_does(write: Any, condition: str) -> None:
    write(f'[[recipe]]\nengine = "vllm"\n{condition}\n[recipe.set]\nmax_num_seqs = 7\n')
    assert find_recipe("toy", RUN) == {"max_num_seqs": 7}


@pytest.mark.parametrize("condition", [
    'model = ["n"]', 'precision = ["fp4"]', 'gpus = ["b200-sxm"]', "isl = 8192", "tp = 4", "ep = 8", "tp_below = 8",
    "min_concurrency = 65", "max_concurrency = 63", "dp_attention = true", 'version = ["0.8", ""]',
    'since = "2026-03-02"', 'until = "2026-03-01"'])
def test_and_not_where_it_does_not(write: Any, condition: str) -> None:
    write(f'[[recipe]]\nengine = "vllm"\n{condition}\n[recipe.set]\nmax_num_seqs = 7\n'
          '[[recipe]]\nengine = "vllm"\nfallback = true\n[recipe.set]\nmax_num_seqs = 8\n')
    assert find_recipe("toy", RUN) == {"max_num_seqs": 8}


def test_an_empty_version_is_one_that_nobody_recorded(write: Any) -> None:
    write('[[recipe]]\nengine = "vllm"\nversion = [""]\n[recipe.set]\nmax_num_seqs = 7\n')
    assert find_recipe("toy", replace(RUN, version=""))["max_num_seqs"] == 7


def test_settings_follow_the_concurrency(write: Any) -> None:
    write('[[recipe]]\nengine = "vllm"\n[recipe.set]\nmax_num_seqs = "concurrency"\n'
          'cuda_graph_max_bs = "concurrency/8"\nmax_num_batched_tokens = 1000\nbatched_tokens_per_concurrency = 2\n')
    assert find_recipe("toy", RUN) == {"max_num_seqs": 64, "cuda_graph_max_bs": 8, "max_num_batched_tokens": 1152}
    assert find_recipe("toy", replace(RUN, concurrency=4))["cuda_graph_max_bs"] == 1


def test_an_engine_without_a_recipe_is_an_error(write: Any) -> None:
    write('[[recipe]]\nengine = "sglang"\n[recipe.set]\n')
    with pytest.raises(CatalogError, match=r"toy.toml: no recipe for engine 'vllm'; add one with fallback = true"):
        find_recipe("toy", RUN)


def test_an_unreadable_file_is_named(write: Any) -> None:
    write("[[recipe")
    with pytest.raises(CatalogError, match=r"toy.toml: cannot be read"):
        find_recipe("toy", RUN)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_bundled_recipes_say_what_every_run_needs(engine: str) -> None:
    found = find_recipe("inferencex", replace(RUN, engine=engine, model="unknown"))
    assert {"max_num_seqs", "kv_cache_dtype", "cuda_graph_max_bs"} - set(found) <= {"cuda_graph_max_bs"}
    assert all(recipe["engine"] in ENGINES and recipe["source"] for recipe in recipes._recipes("inferencex"))
