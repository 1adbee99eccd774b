"""Engines' own logs: decodes told by lines of statistics, from replays whose steps are known."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from measured_runs import error_in

from planner.errors import TraceError, UsageError
from planner.loop.state.engine_settings import Recording
from planner.measured.accuracy import accuracy, predict_file
from planner.measured.calibration.calibrate import calibrate
from planner.measured.serverlog import engine_of_log, read_server_log
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces.shaping.client_load import client_load

KV_TOKENS = 400_000
STATS_S = 0.05  # between two lines of vLLM's, ten seconds by itself
DEPLOYED: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "async_scheduling": False}


def steps_of(engine: str, **options: Any) -> pl.DataFrame:
    """Return the steps of a burst of 24 requests, 8 at once."""
    scenario = Scenario(**DEPLOYED, engine=engine, max_concurrency=8, num_prompts=24, random_input_len=600,
                        random_output_len=300, **options)
    return replay(client_load(scenario), scenario, slo=None, recording=Recording(steps=True)).result.steps_table()


def vllm_lines(steps: pl.DataFrame) -> Iterator[str]:
    yield f"INFO 11-20 10:01:00 [kv_cache_utils.py:1291] GPU KV cache size: {KV_TOKENS:,} tokens"
    since, prompts, tokens = 0.0, 0, 0
    for step in steps.iter_rows(named=True):
        prompts, tokens = prompts + step["num_prompt_tokens"], tokens + step["num_sampled"]
        now = step["start_s"] + step["duration_s"]
        if now - since < STATS_S:
            continue
        share = 100 * (step["decode_context_tokens"] + step["num_decodes"]) / KV_TOKENS
        yield (f"(APIServer pid=7) INFO 11-20 10:02:00 [loggers.py:123] Engine 000: Avg prompt throughput: "
               f"{prompts / (now - since):.1f} tokens/s, Avg generation throughput: {tokens / (now - since):.1f} "
               f"tokens/s, Running: {step['num_running']} reqs, Waiting: 0 reqs, GPU KV cache usage: {share:.3f}%, "
               f"Prefix cache hit rate: 0.0%")
        since, prompts, tokens = now, 0, 0


def sglang_lines(steps: pl.DataFrame) -> Iterator[str]:
    since, tokens, count = 0.0, 0, 0
    for step in steps.iter_rows(named=True):
        if step["num_prompts"]:
            yield (f"[2026-04-05 20:02:51 TP0] Prefill batch, #new-seq: {step['num_prompts']}, #new-token: "
                   f"{step['num_prompt_tokens']}, #cached-token: 0, token usage: 0.08, #running-req: "
                   f"{step['num_decodes']}, #queue-req: 0, ")
            continue
        tokens, count, now = tokens + step["num_decodes"], count + 1, step["start_s"] + step["duration_s"]
        if count % 10:
            continue
        yield (f"[2026-04-05 20:02:51 TP0] Decode batch, #running-req: {step['num_decodes']}, #token: "
               f"{step['decode_context_tokens'] + step['num_decodes']}, token usage: 0.08, cuda graph: True, gen "
               f"throughput (token/s): {tokens / (now - since):.2f}, #queue-req: 0, ")
        since, tokens = now, 0


def trtllm_lines(steps: pl.DataFrame) -> Iterator[str]:
    before = "N/A"
    for k, step in enumerate(steps.iter_rows(named=True)):
        yield (f"[04/28/2025-09:56:44] [TRT-LLM] [I] iter = {k}, global_rank = 0, rank = 0, num_scheduled_requests = "
               f"{step['num_prompts'] + step['num_decodes']}, kv_cache_util = 0.010, currank_total_requests = 0/0, "
               f"host_step_time = 1.0ms, prev_device_step_time = {before}, timestamp = 2025-04-28 09:56:44, states = "
               f"{{'num_ctx_requests': {step['num_prompts']}, 'num_ctx_tokens': {step['num_prompt_tokens']}, "
               f"'num_generation_tokens': {step['num_decodes']}, 'cached_kv_tokens': {step['decode_context_tokens']}}}")
        before = f"{1e3 * step['duration_s']}ms"


LINES: dict[str, Callable[[pl.DataFrame], Iterator[str]]] = {
    "vllm": vllm_lines, "sglang": sglang_lines, "trtllm": trtllm_lines}


def write(path: Path, lines: Iterator[str] | list[str]) -> Path:
    text = "\n".join(["starting …", *lines, ""]).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def sglang(running: int, context: int, speed: float, more: str = "", rank: str = "TP0") -> str:
    return (f"[2026-04-05 20:02:51 {rank}] Decode batch. #running-req: {running}, #token: {context}, token usage: "
            f"0.08, {more}gen throughput (token/s): {speed}, #queue-req: 0")


def vllm(prompts: float, speed: float, running: int, usage: float) -> str:
    return (f"INFO 11-20 10:02:00 metrics.py:455] Avg prompt throughput: {prompts} tokens/s, Avg generation "
            f"throughput: {speed} tokens/s, Running: {running} reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache "
            f"usage: {usage}%, CPU KV cache usage: 0.0%.")


@pytest.mark.parametrize("engine", LINES)
def test_a_log_of_our_own_steps_is_predicted_without_error(engine: str, tmp_path: Path) -> None:
    steps = steps_of(engine)
    path = write(tmp_path / "server.log", LINES[engine](steps))
    found = predict_file(path, Scenario(**DEPLOYED, engine=engine), client=None, jobs=1)
    result = accuracy(found, level=None, limits={})
    assert error_in(result.overall.by_metric, "duration_ms").n >= 10
    assert error_in(result.overall.by_metric, "duration_ms").mape < 0.01
    assert "left out" in result.notes[0]
    kinds = [group.value for group in result.groups if group.group == "client"]
    assert kinds == [f"decodes of {n}" for n in ("1", "2 to 3", "4 to 7", "8 to 15") if f"decodes of {n}" in kinds]
    assert "decodes of 8 to 15" in kinds


def test_a_log_calibrates(tmp_path: Path) -> None:
    slow = steps_of("sglang").with_columns(pl.col("start_s", "duration_s") * 1.3)
    path = write(tmp_path / "server.log", sglang_lines(slow))
    found = calibrate(path, Scenario(**DEPLOYED, engine="sglang"), names=None, folds=2, jobs=1)
    assert error_in(found.before, "duration_ms").mape > 0.2
    assert error_in(found.after, "duration_ms").mape < 0.05
    assert found.source.num_left_out > 0


def test_windows_are_between_lines_of_one_rank(tmp_path: Path) -> None:
    log = read_server_log(write(tmp_path / "a.log.gz", [
        sglang(8, 1000, 400.0), sglang(4, 100, 999.0, rank="DP1 TP0"), sglang(8, 1400, 500.0),
        "[2026-04-05 20:02:52 DP1 TP0] Prefill batch. #new-seq: 1, #new-token: 5, #running-req: 4, #queue-req: 0, ",
        sglang(8, 1800, 500.0), sglang(4, 200, 80.0, rank="DP1 TP0"), sglang(4, 300, 80.0, rank="DP1 TP0"),
        sglang(7, 1000, 500.0), sglang(0, 0, 0.0, rank="DP1 TP0"), sglang(0, 0, 0.0, rank="DP1 TP0")]))
    assert log.engine == "sglang"
    assert [(w.line, w.num_decodes, w.context_tokens, w.step_s) for w in log.windows] == [
        (4, 8, 1200, 8 / 500), (6, 8, 1600, 8 / 500), (8, 4, 250, 4 / 80)]
    assert log.left_out == {"with prompts": 1, "whose requests changed": 1, "without requests": 2}


def test_vllm_tells_contexts_by_the_share_of_its_cache(tmp_path: Path) -> None:
    lines = ["GPU KV cache size: 100,000 tokens", vllm(0.0, 100.0, 10, 10.0), vllm(0.0, 500.0, 10, 30.0),
             "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 1.00 tokens/s",
             vllm(7.0, 500.0, 10, 30.0)]
    log = read_server_log(write(tmp_path / "a.log", lines))
    assert log.kv_tokens == 100_000
    window, = log.windows
    assert (window.kv_share, window.tokens_per_decode, window.step_s) == pytest.approx((0.2, 2.5, 10 * 2.5 / 500))
    assert log.left_out == {"with prompts": 1}


def test_an_iteration_has_its_time_in_the_next_line(tmp_path: Path) -> None:
    line = ("iter = {}, global_rank = 0, rank = 0, currank_total_requests = 0/0, host_step_time = 9ms, "
            "prev_device_step_time = {}ms, timestamp = x, num_scheduled_requests: {}, states = {{'num_ctx_requests': "
            "0, 'num_ctx_tokens': {}, 'num_generation_tokens': 16{}}}")
    cached = ", 'cached_kv_tokens': 640"
    log = read_server_log(write(tmp_path / "a.log", [
        line.format(5, 1, 10, 0, cached), line.format(6, 7.5, 10, 99, cached), line.format(7, 80, 0, 0, cached),
        line.format(8, 2000, 10, 0, ""), line.format(9, 7, 10, 0, cached), line.format(11, 7, 10, 0, cached)]))
    assert [(w.line, w.num_decodes, w.context_tokens, w.step_s) for w in log.windows] == [(2, 10, 640, 0.0075)]
    assert log.left_out == {"with prompts": 1, "without requests": 1, "whose lines say no context": 1}


@pytest.mark.parametrize(("lines", "options", "error", "message"), [
    ([sglang(8, 9, 9.0), sglang(8, 9, 9.0)], {}, UsageError, "is a log of sglang, not of vllm; give --engine sglang"),
    ([sglang(8, 9, 9.0)], {"engine": "sglang"}, TraceError, "has no steps of decodes only: one line of statistics"),
    ([sglang(8, 9, 9.0), sglang(4, 9, 9.0)], {"engine": "sglang"}, TraceError, "only: 1 whose requests changed;"),
    ([sglang(8, 9, 9.0), sglang(8, 9, 9.0, "accept len: 2.50, ")], {"engine": "sglang"}, UsageError,
     "up to 2.5 tokens a step, with draft tokens; give --num-speculative-tokens"),
    ([sglang(8, 9, 9.0), sglang(8, 9, 9.0)],
     {"engine": "sglang", "num_speculative_tokens": 3, "speculative_method": "eagle3"}, UsageError,
     "has no draft tokens; leave out --num-speculative-tokens 3"),
    ([vllm(0, 9, 8, 9), vllm(0, 9, 8, 9)], {"model": "gpt-oss-20b"}, UsageError, "has several kinds of layers"),
])
def test_what_a_log_cannot_tell_is_said(lines: list[str], options: dict[str, Any], error: type[Exception],
                                        message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "server.log", lines)
    scenario = Scenario(**{"model": "llama-3.1-8b", "gpu": "h100-sxm"} | options)
    with pytest.raises(error, match=message):
        predict_file(path, scenario, client=None, jobs=1)


def test_an_impossible_number_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "server.log", [sglang(8, 9, 9.0), sglang(8, 10**30, 9.0)])
    with pytest.raises(TraceError, match=r"server\.log line 3: has 8 tokens a step with a context of 5e\+29"):
        predict_file(path, Scenario(model="llama-3.1-8b", gpu="h100-sxm", engine="sglang"), client=None, jobs=1)
    assert engine_of_log(write(tmp_path / "b.log", [vllm(0, 9, 8, 9).replace("9 tokens", "9.1.2 tokens")])) is None


def test_without_the_size_of_the_cache_the_predicted_one_counts(tmp_path: Path) -> None:
    lines = [vllm(0, 100, 8, 50), vllm(0, 100, 8, 50)]
    stated = write(tmp_path / "a.log", ["GPU KV cache size: 1,600 tokens", *lines])
    own = write(tmp_path / "b.log", lines)
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", num_gpu_blocks=100, block_size=16)
    one, other = (predict_file(path, scenario, client=None, jobs=1).predictions[0].predicted for path in (stated, own))
    assert one == other


def test_what_is_no_log_is_none(tmp_path: Path) -> None:
    assert engine_of_log(write(tmp_path / "a.csv", [sglang(8, 9, 9.0)])) is None
    assert engine_of_log(write(tmp_path / "a.txt", ["Decode batch of mine"])) is None
    with pytest.raises(TraceError, match="has no line of an engine's statistics"):
        read_server_log(tmp_path / "a.txt")


def test_ranks_of_data_parallel_attention_are_predicted_one_by_one(tmp_path: Path) -> None:
    path = write(tmp_path / "server.log", [sglang(8, 9000, 400.0, rank=f"DP{k} TP{k} EP{k}") for k in (0, 1, 0, 1)])
    scenario = Scenario(model="deepseek-v3", gpu="b200-sxm", engine="sglang", data_parallel_size=8,
                        data_parallel_attention=True, expert_parallel=True)
    found = predict_file(path, scenario, client=None, jobs=1).predictions
    assert [p.measurement.id for p in found] == ["line 4", "line 5"]
    assert found[0].measurement.groups["layout"] == "tp1-dp8-ep8"
    assert found[0].predicted == found[1].predicted
    bench = write(tmp_path / "requests.csv", ["arrival_s,input_tokens,output_tokens,ttft_s,e2e_s", "0,9,9,1,2"])
    with pytest.raises(UsageError, match="does not tell which rank served which request"):
        predict_file(bench, scenario, client=None, jobs=1)
