"""Releases of engines: which are older, what their steps take longer, and how a run's release is known."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from measured_runs import row_of
from steps import stack_of, step, terms_of

from planner.deployment.deploy import deploy
from planner.engines import ENGINES
from planner.errors import UsageError
from planner.measured.run_table import read_measured
from planner.model.drafting import draft_of
from planner.model.layout import Layout
from planner.results.notes import notes
from planner.settings.scenario import Scenario
from planner.steptime.host_time import launches_s
from planner.traces.shaping.client_load import client_load


@pytest.mark.parametrize(("engine", "version", "older"), [
    ("trtllm", "1.1.0", True), ("trtllm", "1.1.0rc2.post2", True), ("trtllm", "0.21", True),
    ("trtllm", "1.2.0rc2", False), ("trtllm", "1.10", False), ("trtllm", None, False),
    ("sglang", "0.5.10.post1", True), ("sglang", "0.5.11", False), ("sglang", "0.6", False),
    ("vllm", "0.6.0", False)])
def test_candidates_and_posts_are_of_their_release(engine: str, version: str | None, older: bool) -> None:
    assert ENGINES[engine].is_older(version) == older


@pytest.mark.parametrize(("model", "engine", "layers"), [
    ("deepseek-v3", "trtllm", 61), ("deepseek-v3", "sglang", 61), ("llama-3.1-70b", "sglang", 80),
    ("gpt-oss-120b", "trtllm", 0), ("deepseek-v3", "vllm", 0)])
def test_an_older_release_takes_longer_in_each_layer_of_its_kind(model: str, engine: str, layers: int) -> None:
    newest = stack_of(model, "h100-sxm", engine)
    older = replace(newest, engine_version="0.1")
    more_s = [terms_of(older, row)["activations_s"] - terms_of(newest, row)["activations_s"]
              for row in (step(0, 4, 1000), step(4096))]
    assert more_s == pytest.approx([layers * newest.constants.older_layer_s] * 2)


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match=r"engine_version = 'nightly': must be a release's"):
        Scenario(engine_version="nightly")


@pytest.mark.parametrize(("version", "policy", "is_said"), [
    ("0.6.0", None, True), ("0.7.3", None, True), ("0.8.0", None, False), (None, None, False),
    ("0.6.0", "vllm-v0", False)])
def test_a_note_says_that_a_release_ran_another_scheduler(version: str | None, policy: str | None, is_said: bool
                                                          ) -> None:
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", engine_version=version, policy=policy)
    found = [note for note in notes(deploy(scenario), client_load(scenario)) if "engine V0" in note]
    assert [note.startswith(f"vLLM {version} runs engine V0") for note in found] == [True] * is_said
    assert all("--policy vllm-v0" in note for note in found)


def test_a_note_says_what_a_release_changes() -> None:
    def said(engine: str, version: str) -> str:
        scenario = Scenario(model="deepseek-v3", gpu="b200-sxm", engine=engine,
                            engine_version=version, tensor_parallel_size=8)
        found = [note for note in notes(deploy(scenario), client_load(scenario)) if version in note]
        assert len(found) == 1
        return found[0]

    longer_ms = 61e3 * deploy(Scenario(model="deepseek-v3", gpu="b200-sxm", engine="trtllm",
                                       tensor_parallel_size=8)).stack.constants.older_layer_s  # type: ignore[union-attr]
    assert said("trtllm", "1.1.0").startswith(f"TensorRT-LLM 1.1.0: steps take {longer_ms:.1f} ms longer in 61 ")
    assert "changes nothing" in said("trtllm", "1.2.0")
    assert "changes nothing" in said("vllm", "0.20.2")
    assert said("vllm", "0.15.1").endswith("defaults follow the release: fuse_allreduce_rms is off before 0.16, "
                                           "fp32_matmul is fp32 before 0.20")


@pytest.mark.parametrize(("version", "expected"), [
    ("0.13.0", (False, False, "fp32")), ("0.14.0rc1", (True, False, "fp32")), ("0.16", (True, True, "fp32")),
    ("0.20.0", (True, True, "auto")), (None, (True, True, "auto"))])
def test_vllm_leaves_off_what_came_later_unless_it_is_asked_for(version: str | None,
                                                               expected: tuple[bool, bool, str]) -> None:
    plain = Scenario(model="minimax-m2.5", gpu="h200-sxm", engine_version=version, tensor_parallel_size=4)

    def resolved(scenario: Scenario) -> tuple[bool, bool, str]:
        deployed = deploy(scenario)
        assert deployed.stack is not None
        assert deployed.settings.async_scheduling == deployed.stack.is_overlapped
        return deployed.settings.async_scheduling, deployed.stack.fuses_norms, deployed.stack.fp32_matmul

    assert resolved(plain) == expected
    asked = replace(plain, async_scheduling=True, fuse_allreduce_rms=True, fp32_matmul="tf32")
    assert resolved(asked) == (True, True, "tf32")
    assert resolved(replace(plain, engine="sglang")) == resolved(replace(plain, engine="sglang", engine_version=None))


@pytest.mark.parametrize(("columns", "version"), [
    ({"backend_version": "1.1.0rc2.post2"}, "1.1.0rc2.post2"),
    ({"backend_version": "1.2.0rc6.post3", "measured_date": "2025-11-02"}, "1.2.0rc6.post3"),
    ({"measured_date": "2025-11-02T00:00:00Z"}, "1.1.0rc2.post2"),
    ({"backend_version": "nightly-dev", "measured_date": "2026-02-02"}, None),
    ({}, None)])
def test_a_runs_release_is_the_recorded_one_or_that_of_its_date(columns: dict[str, str], version: str | None,
                                                                 tmp_path: Path) -> None:
    row = row_of(engine="trtllm", model="openai/gpt-oss-120b", precision="fp4", gpu="b200_sxm", client="inferencex")
    path = tmp_path / "runs.csv"
    pl.DataFrame([row | columns]).write_csv(path)
    run, = read_measured(path)
    assert run.scenario is not None, run.status
    assert run.scenario.engine_version == version


@pytest.mark.parametrize(("gpu", "quantization", "version", "newest"), [
    ("mi300x", None, "0.5.2", "0.5.11"), ("mi325x", None, "0.5.9", "0.5.10"), ("mi355x", "fp4", "0.5.7", "0.5.10"),
    ("mi355x", None, "0.5.2", "0.5.5"), ("mi355x", None, "0.5.7", "0.5.11")])
def test_latent_attention_on_amd_takes_what_runs_under_a_release_show(gpu: str, quantization: str | None, version: str,
                                                                     newest: str) -> None:
    def older_s(version: str | None) -> float:
        stack = replace(stack_of("deepseek-r1", gpu, "sglang"), engine_version=version, quantization=quantization)
        older = stack.older_release
        assert (None if older is None else older.newest) == (None if version is None else newest)
        return 0.0 if older is None else older.num_layers * older.layer_s

    assert older_s(version) > older_s(None) == 0.0


def test_trtllm_1_1_launches_fp4_prompts_sooner_without_drafts_and_attention_ranks() -> None:
    newest = replace(stack_of("deepseek-r1", "b200-sxm", "trtllm"), quantization="nvfp4")
    older = replace(newest, engine_version="1.1.0rc2.post2")
    share = launches_s(older)[0] / launches_s(newest)[0]
    assert 0.3 < share < 0.6
    assert older.older_release is not None
    assert older.older_release.launch_share == pytest.approx(share)
    ranks = Layout(data_parallel_size=4)
    assert launches_s(replace(older, layout=ranks)) == launches_s(replace(newest, layout=ranks))
    fp8, newest_fp8 = (replace(stack, quantization="fp8_block") for stack in (older, newest))
    assert launches_s(fp8) == launches_s(newest_fp8)
    assert fp8.older_release is not None
    more_s = [terms_of(fp8, row)["activations_s"] - terms_of(newest_fp8, row)["activations_s"]
              for row in (step(1024), step(8192))]
    assert more_s[1] - more_s[0] == pytest.approx(61 * 7168 * fp8.older_release.token_s)
    drafts = draft_of(Scenario(model="deepseek-r1", engine="trtllm", num_speculative_tokens=3,
                               speculative_method="mtp"), newest.arch)
    assert launches_s(replace(older, draft=drafts)) == launches_s(replace(newest, draft=drafts))


def test_a_run_of_a_date_has_the_release_of_its_image(tmp_path: Path) -> None:
    def release(gpu: str, precision: str, day: str) -> str | None:
        table = tmp_path / "runs.csv"
        pl.DataFrame([{"id": "a", "gpu": gpu, "engine": "sglang", "model": "deepseek-ai/DeepSeek-R1", "date": day,
                       "precision": precision, "isl": 1024, "osl": 1024, "concurrency": 4, "tp": 8, "ep": 1,
                       "dp_attention": False, "measured_median_tpot_ms": 10.0}]).write_csv(table)
        scenario = read_measured(table, client="inferencex")[0].scenario
        return None if scenario is None else scenario.engine_version

    assert [release("mi355x", "fp4", day) for day in ("2025-12-14", "2026-01-03", "2026-01-29", "2026-05-20")] == [
        "0.5.2", "0.5.6.post1", "0.5.8", "0.5.12"]
    assert [release("mi300x", "fp8", day) for day in ("2025-12-14", "2026-01-23", "2026-02-27")] == [
        "0.5.2", "0.5.7", "0.5.9"]
