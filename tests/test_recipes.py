"""Recipes: the first whose conditions all hold, and settings that depend on the load."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import number
from steps import TEXT_ENGINES

from planner.engines import ENGINES
from planner.errors import CatalogError
from planner.measured import recipes
from planner.measured.inferencex import RECORDED_ONLY, published_run
from planner.measured.recipes import find_recipe, tokens_per_counted
from planner.measured.run_row import Row
from planner.measured.run_table import read_measured

RUN = Row(engine="vllm", model="m", precision="fp8", gpu="h100-sxm", isl=1024, osl=1024, concurrency=64, tp=8, ep=1,
          dp=1, pp=1, version="0.9.1", date="2026-03-01", client="inferencex", options={})


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "recipes").mkdir()
    monkeypatch.setattr(recipes, "data_dir", lambda name: tmp_path)
    recipes.recipe_rows.cache_clear()
    yield lambda text: (tmp_path / "recipes" / "toy.toml").write_text(text)
    recipes.recipe_rows.cache_clear()


@pytest.mark.parametrize("condition", [
    'model = ["m", "n"]', 'precision = ["fp8"]', 'gpus = ["h100-sxm"]', "isl = 1024", "tp = 8", "ep = 1",
    "tp_below = 9", 'client = "inferencex"',
    "min_concurrency = 64", "max_concurrency = 64", "dp_attention = false", 'version = ["0.9"]', 'since = "2026-03-01"',
    'until = "2026-03-02"'])
def test_a_recipe_holds_where_its_condition_does(write: Any, condition: str) -> None:
    write(f'[[recipe]]\nengine = "vllm"\n{condition}\n[recipe.set]\nmax_num_seqs = 7\n')
    assert find_recipe("toy", RUN).settings == {"max_num_seqs": 7}


@pytest.mark.parametrize("condition", [
    'model = ["n"]', 'precision = ["fp4"]', 'gpus = ["b200-sxm"]', "isl = 8192", "tp = 4", "ep = 8", "tp_below = 8",
    'client = "internal"',
    "min_concurrency = 65", "max_concurrency = 63", "dp_attention = true", 'version = ["0.8", ""]',
    'since = "2026-03-02"', 'until = "2026-03-01"'])
def test_and_not_where_it_does_not(write: Any, condition: str) -> None:
    write(f'[[recipe]]\nengine = "vllm"\n{condition}\n[recipe.set]\nmax_num_seqs = 7\n'
          '[[recipe]]\nengine = "vllm"\nfallback = true\n[recipe.set]\nmax_num_seqs = 8\n')
    assert find_recipe("toy", RUN).settings == {"max_num_seqs": 8}


TWO = ('[[release]]\nengine = "none"\n'
       '[[recipe]]\nengine = "vllm"\nmodel = ["m"]\nprecision = ["fp8"]\n'
       'gpus = ["h200-sxm"]\nversion = ["0.7"]\n[recipe.set]\nmax_num_seqs = 6\n'
       '[[recipe]]\nengine = "vllm"\nmodel = ["m"]\nprecision = ["fp8"]\n'
       'gpus = ["h200-sxm"]\nversion = ["0.8"]\n[recipe.set]\nmax_num_seqs = 7\nspeculative_tokens = 3\n'
       '[[recipe]]\nengine = "vllm"\nfallback = true\n[recipe.set]\nmax_num_seqs = 8\n')


def test_without_a_recipe_of_its_own_a_run_takes_the_nearest_and_says_which(write: Any) -> None:
    """Of the same generation of GPU; the release that is nearest wins."""
    write(TWO)
    nearest = find_recipe("toy", RUN)
    assert nearest.settings["max_num_seqs"] == 7
    assert nearest.note == ("vllm 0.9.1 on h100-sxm, m in fp8: the nearest recipe applies, of gpus = h200-sxm, "
                            "version = 0.8")


def test_a_run_that_states_whether_it_drafts_takes_a_recipe_that_does_so(write: Any) -> None:
    write(TWO)
    assert find_recipe("toy", replace(RUN, drafts=True)).settings["speculative_tokens"] == 3
    assert find_recipe("toy", replace(RUN, drafts=False)).settings == {"max_num_seqs": 6}


@pytest.mark.parametrize("change", [{"gpu": "b200-sxm"}, {"gpu": "mi300x"}, {"model": "n"}, {"precision": "fp4"}])
def test_another_generation_model_or_format_has_the_engines_defaults(write: Any, change: dict[str, Any]) -> None:
    write(TWO)
    defaults = find_recipe("toy", replace(RUN, **change))
    assert defaults.settings == {"max_num_seqs": 8}
    assert "no recipe is known, so the engine's defaults apply" in defaults.note


def test_an_empty_version_is_one_that_nobody_recorded(write: Any) -> None:
    write('[[recipe]]\nengine = "vllm"\nversion = [""]\n[recipe.set]\nmax_num_seqs = 7\n')
    assert find_recipe("toy", replace(RUN, version="")).settings["max_num_seqs"] == 7


def test_settings_follow_the_concurrency(write: Any) -> None:
    write('[[recipe]]\nengine = "vllm"\n[recipe.set]\nmax_num_seqs = "concurrency"\n'
          'cuda_graph_max_bs = "concurrency/8"\nmax_num_batched_tokens = 1000\nbatched_tokens_per_concurrency = 2\n')
    assert find_recipe("toy", RUN).settings == {
        "max_num_seqs": 64, "cuda_graph_max_bs": 8, "max_num_batched_tokens": 1152}
    assert find_recipe("toy", replace(RUN, concurrency=4)).settings["cuda_graph_max_bs"] == 1


def test_a_step_may_hold_a_prompt_all_decodes_and_some_more(write: Any) -> None:
    write('[[recipe]]\nengine = "vllm"\n[recipe.set]\nbatched_tokens_over_isl = 1500\n')
    assert find_recipe("toy", RUN).settings == {"max_num_batched_tokens": 1024 + 64 + 1500}


def test_an_engine_without_a_recipe_is_an_error(write: Any) -> None:
    write('[[recipe]]\nengine = "sglang"\n[recipe.set]\n')
    with pytest.raises(CatalogError, match=r"toy.toml: no recipe for engine 'vllm'; add one with fallback = true"):
        find_recipe("toy", RUN)


def test_an_unreadable_file_is_named(write: Any) -> None:
    write("[[recipe")
    with pytest.raises(CatalogError, match=r"toy.toml: cannot be read"):
        find_recipe("toy", RUN)


ROW = Row(gpu="h100-sxm", engine="vllm", model="llama-3.1-8b", version="0.9.1", date="2026-03-01", precision="fp8",
          client="inferencex", isl=1024, osl=1024, concurrency=64, tp=1, pp=1, dp=1, ep=1, options={})
OTHERS = '[[retokenised]]\nengine = "none"\n[[release]]\nengine = "none"\nengine_version = "1"\n'


def test_a_setting_of_a_recipe_that_nothing_reads_is_an_error(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.measured.inferencex.RECIPES", "toy")
    recipe = '[[recipe]]\nengine = "vllm"\n[recipe.set]\nmax_num_seqs = 7\nblock_size = 32\n'
    write(OTHERS + recipe)
    found = published_run(ROW)["scenario"]
    assert (found.max_num_seqs, found.block_size) == (7, 32)
    recipes.recipe_rows.cache_clear()
    write(OTHERS + recipe + "stream_interval = 20\nmax_num_seq = 9\n")
    with pytest.raises(CatalogError, match=r"toy\.toml: a recipe sets max_num_seq, which nothing reads"):
        published_run(ROW)


def test_the_interval_of_messages_is_read_where_their_gaps_were_measured(write: Any, monkeypatch: pytest.MonkeyPatch
                                                                          ) -> None:
    monkeypatch.setattr("planner.measured.inferencex.RECIPES", "toy")
    write(OTHERS + '[[recipe]]\nengine = "vllm"\n[recipe.set]\nstream_interval = 20\n')
    assert published_run(ROW)["scenario"].stream_interval == 1
    assert published_run(ROW, has_gaps=True)["scenario"].stream_interval == 20
    own = replace(ROW, options={"stream_interval": 5})
    assert published_run(own, has_gaps=True)["scenario"].stream_interval == 5


def test_a_condition_of_a_recipe_that_nothing_reads_is_an_error(write: Any) -> None:
    write('[[recipe]]\nengine = "vllm"\n[recipe.set]\n[[recipe]]\nengine = "vllm"\nmin_isl = 5\n[recipe.set]\n')
    with pytest.raises(CatalogError, match=r"toy\.toml: \[\[recipe\]\] number 2 has unknown keys min_isl"):
        find_recipe("toy", RUN)


def test_of_the_bundled_recipes_every_setting_is_read_or_recorded_with_a_reason() -> None:
    """Each recipe is taken by itself, as if its conditions held for the row."""
    kinds = recipes._rows("inferencex", "recipe")
    assert {name for row in kinds for name in row["set"]} >= set(RECORDED_ONLY)
    for row in kinds:
        gpu, model = row.get("gpus", ["h100-sxm"])[0], row.get("model", ["llama-3.1-8b"])[0]
        own = replace(ROW, engine=row["engine"], gpu=gpu, model=model, precision=row.get("precision", ["fp8"])[0],
                      version=row.get("version", [""])[0], date=row.get("since", "2026-03-01"), tp=row.get("tp", 4),
                      ep=row.get("ep", 1), dp=2 if row.get("dp_attention") else 1, isl=row.get("isl", 1024),
                      osl=row.get("osl", 1024), concurrency=row.get("min_concurrency", 64))
        assert published_run(own)["scenario"].gpu == gpu


@pytest.mark.parametrize("engine", TEXT_ENGINES)
def test_the_bundled_recipes_say_what_every_run_needs(engine: str) -> None:
    found = find_recipe("inferencex", replace(RUN, engine=engine, model="unknown")).settings
    assert {"max_num_seqs", "kv_cache_dtype", "cuda_graph_max_bs"} - set(found) <= {"cuda_graph_max_bs"}
    assert all(recipe["engine"] in ENGINES and recipe["source"] for recipe in recipes._rows("inferencex", "recipe"))


def test_a_row_says_what_an_engine_made_of_a_token_that_the_client_counted(write: Any) -> None:
    write('[[retokenised]]\nengine = "vllm"\nversion = ["0.9"]\nuntil = "2026-03-02"\ntokens_per_counted = 5\n')
    assert tokens_per_counted("toy", RUN) == 5.0
    assert tokens_per_counted("toy", replace(RUN, version="0.8.1")) == 1.0
    assert tokens_per_counted("toy", replace(RUN, date="2026-03-02")) == 1.0


def test_a_file_without_such_rows_is_named(write: Any) -> None:
    write('[[recipe]]\nengine = "vllm"\n[recipe.set]\n')
    with pytest.raises(CatalogError, match=r"toy.toml: cannot be read: it has no \[\[retokenised\]\]"):
        tokens_per_counted("toy", RUN)


@pytest.mark.parametrize(("version", "date", "client", "expected"), [
    ("0.5.10.post1", "2026-04-17", "inferencex", 5.03), ("0.5.9", "2026-04-17", "inferencex", 1.0),
    ("0.5.10.post1", "2026-05-20", "inferencex", 1.0), ("0.5.10.post1", "2026-04-17", "internal", 1.0)])
def test_prompts_are_as_long_as_the_engine_saw_them(
    tmp_path: Path, version: str, date: str, client: str, expected: float
) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("gpu,engine,model,precision,isl,osl,concurrency,tp,backend_version,measured_date,client,"
                    "measured_ttft_ms,measured_tpot_ms\nb300-sxm,sglang,deepseek-ai/DeepSeek-V3,fp8,1000,100,4,8,"
                    f"{version},{date},{client},100,10\n")
    [run] = read_measured(path)
    assert run.load is not None, run.status
    assert run.scenario is not None
    lengths = run.load.requests["input_tokens"]
    assert number(lengths.min()) >= 0.8 * expected * 1000 - 1
    assert lengths.max() == pytest.approx(expected * 1000, rel=0.01)
    assert number(run.load.requests["output_tokens"].max()) <= 100  # answers are counted by the engine
    assert run.scenario.max_model_len is not None
    assert run.scenario.max_model_len >= number(lengths.max()) + 100


def test_a_row_with_drafts_takes_the_recipes_number_and_says_so() -> None:
    """TensorRT-LLM 1.3 has no recipe of its own; that of 1.2 drafts three tokens."""
    row = replace(ROW, engine="trtllm", gpu="b200-sxm", model="deepseek-ai/DeepSeek-R1", precision="fp8",
                  version="1.3.0rc14", date="2026-05-18", drafts=True, tp=8, concurrency=256, isl=8192, osl=1024)
    run = published_run(row)
    assert run["scenario"].num_speculative_tokens == 3
    assert "version = 1.2" in run["notes"][0]
    assert "the recipe drafts 3 tokens a step" in run["notes"][1]
    assert published_run(replace(row, drafts=False))["scenario"].num_speculative_tokens == 0


def test_a_run_without_a_release_has_that_of_its_date_if_its_labels_are_whole() -> None:
    """TensorRT-LLM ran FP8 experts by DeepGEMM until January 2026, and by its own kernels from then on."""
    row = replace(ROW, engine="trtllm", gpu="b200-sxm", model="deepseek-ai/DeepSeek-R1", precision="fp8", version="",
                  drafts=False, has_attention=True, tp=8, concurrency=16, isl=1024, osl=1024)
    old, new = (published_run(replace(row, date=day))["scenario"] for day in ("2025-12-15", "2026-01-29"))
    assert (old.engine_version, old.moe_backend) == ("1.1.0rc2.post2", "deep_gemm")
    assert (new.engine_version, new.moe_backend) == ("1.2.0rc6.post2", "flashinfer_trtllm")
