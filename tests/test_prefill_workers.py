"""Replicas that only prefill: how much longer their steps take, where the number comes from, and what stays."""

from pathlib import Path
from typing import Any

import pytest
from helpers import trace_of
from steps import TEXT_ENGINES, step

from planner.catalog import catalog_files
from planner.deployment.deploy import in_role, pools_of, resolve
from planner.errors import CatalogError
from planner.run import replay
from planner.settings.fleet_options import SLOWDOWN, TOKEN_TIME_US
from planner.settings.scenario import Scenario
from planner.steptime import prefill_workers
from planner.steptime.by_term import step_terms
from planner.steptime.prefill_workers import Slowdown, slowdown_of, slowed

ROWS = [(0.0, 8000, 2)]


def apart(**options: Any) -> Scenario:
    plain: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "data_parallel_size": 2,
                             "prefill_replicas": 1, "kv_transfer_bandwidth": 1e9}
    return Scenario(**plain | options)


def prefill_s(**options: Any) -> float:
    found = replay(trace_of(ROWS), apart(**options)).result.requests_table()
    return float((found["prefilled_at_s"] - found["first_scheduled_at_s"])[0])


def test_a_step_on_a_prefill_replica_takes_so_many_times_its_kernels() -> None:
    """A prompt of 8,000 tokens in one step, whose time is nearly all the GPU's."""
    one, twice = (prefill_s(prefill_worker_ratio=ratio, prefill_worker_token_time=0.0, max_num_batched_tokens=8192)
                  for ratio in (1.0, 2.0))
    assert twice == pytest.approx(2 * one, rel=0.02)
    assert twice < 2 * one  # the host's part stays


def test_each_token_of_a_prompt_adds_its_time() -> None:
    none, some = (prefill_s(prefill_worker_token_time=us, max_num_batched_tokens=8192) for us in (0.0, 5.0))
    assert some == pytest.approx(none + 8000 * 5e-6)


def test_the_terms_of_a_step_have_that_time_too() -> None:
    step_time, row = resolve(apart(), trace_of(ROWS)).step_time, step(prompt=4000)
    plain, more = (sum(float(values[0]) for values in step_terms(each, row, 0.0).values())
                   for each in (step_time, slowed(step_time, Slowdown(ratio=1.0, s_per_token=5e-6))))
    assert more == pytest.approx(plain + 4000 * 5e-6)


def test_an_engine_has_its_own_numbers_unless_others_are_given() -> None:
    for engine in TEXT_ENGINES:
        ratio, s_per_token = slowdown_of(engine)
        assert SLOWDOWN[0] <= ratio <= SLOWDOWN[1]
        assert TOKEN_TIME_US[0] <= s_per_token * 1e6 <= TOKEN_TIME_US[1]
        given = prefill_s(engine=engine, prefill_worker_ratio=ratio, prefill_worker_token_time=s_per_token * 1e6)
        assert prefill_s(engine=engine) == pytest.approx(given, rel=1e-12)


def test_replicas_that_decode_or_do_both_keep_their_step_time() -> None:
    deployment = resolve(apart(), trace_of(ROWS))
    prefill, decode = pools_of(deployment, 2)
    assert decode.deployment is deployment
    assert in_role(deployment, "both") is deployment
    assert (prefill.deployment.step_time.curve.tokens_s[1:] > deployment.step_time.curve.tokens_s[1:]).all()


def test_a_line_that_was_measured_stays() -> None:
    deployment = resolve(apart(step_time="linear:1,0", num_gpu_blocks=1000), trace_of(ROWS))
    assert in_role(deployment, "prefill") is deployment


def test_no_slowdown_changes_nothing() -> None:
    step_time = resolve(apart(), trace_of(ROWS)).step_time
    same = slowed(step_time, Slowdown(ratio=1.0, s_per_token=0.0))
    assert same.terms == step_time.terms
    assert (same.curve == step_time.curve).all()


def test_the_host_and_the_api_server_are_no_slower() -> None:
    step_time = resolve(apart(), trace_of(ROWS)).step_time
    terms = slowed(step_time, Slowdown(ratio=3.0, s_per_token=1e-6)).terms
    for name in ("host_s", "host_s_per_seq", "prompt_launch_s", "overhead_s", "frontend_s", "frontend_s_per_token",
                 "latency_s", "kv_bytes_per_token"):
        assert terms[name] == step_time.terms[name]
    assert terms.prompt_s_per_pair == 3.0 * step_time.terms.prompt_s_per_pair


def test_a_wrong_number_in_the_catalog_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prefill_workers.toml").write_text("[vllm]\nratio = 9\n", encoding="utf-8")
    monkeypatch.setattr(prefill_workers, "data_dir", lambda _: tmp_path)
    prefill_workers._bundled.cache_clear()
    try:
        with pytest.raises(CatalogError, match=r"ratio of vllm = 9; must be a number from 0.5 to 4.0"):
            slowdown_of("vllm")
    finally:
        prefill_workers._bundled.cache_clear()
    assert catalog_files.data_dir("hardware_db").is_dir()


@pytest.mark.parametrize(("engine", "options", "says"), [
    ("vllm", {}, True), ("vllm", {"prefill_worker_ratio": 1.0}, False), ("trtllm", {}, False), ("sglang", {}, False),
    ("vllm", {"prefill_replicas": 0}, False)])
def test_a_note_says_where_no_run_shows_the_engine(engine: str, options: dict[str, Any], says: bool) -> None:
    found = replay(trace_of(ROWS), apart(engine=engine, **options)).summary["notes"]
    assert any("no published run shows vLLM's" in note for note in found) == says


def test_an_engine_without_a_row_has_the_mean_of_engines_with_runs() -> None:
    assert slowdown_of("another") == slowdown_of("vllm") == Slowdown(ratio=1.14, s_per_token=0.0)
    assert slowdown_of("another").ratio == pytest.approx(
        (slowdown_of("sglang").ratio * slowdown_of("trtllm").ratio) ** 0.5, abs=0.005)
