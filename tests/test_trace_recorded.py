"""Published traces: counts, rates and percentiles are those that their publishers' files are known to have."""

import os
from pathlib import Path

import numpy as np
import pytest
from helpers import number

from planner.errors import TraceError
from planner.traces import Trace, read_trace
from planner.traces.shaping.rate_series import read_rate_series

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[2] / "shared"))

# name: format, requests, requests/s, input p50/p95/p99/max, output p50/p95/p99/max; no rate where none is recorded
RECORDED = {
    "azure_llm_2023_conv.csv": ("azure", 19_366, 5.5301, (1020, 4083, 4142, 14_050), (129, 451, 601, 1000)),
    "azure_llm_2023_code.csv": ("azure", 8_819, 2.5664, (1469, 7303.3, 7436, 7437), (13, 90, 251.5, 1899)),
    "azure_llm_2024_conv_sparse_sample.csv": (
        "azure", 5_880, 0.0628, (399, 1485.3, 2605.1, 6909), (90, 284.1, 477.4, 1346)),
    "mooncake_conversation_trace.jsonl.gz": (
        "mooncake", 12_031, 3.4012, (6909, 39_550.5, 85_400.4, 126_195), (350, 698, 1118.5, 2000)),
    "mooncake_arxiv_toolagent_slice_1000.jsonl": (
        "mooncake", 1_000, 5.6409, (6558, 27_306.7, 77_828.1, 121_290), (34, 610.1, 831, 2000)),
    "mooncake_synthetic_trace.jsonl.gz": (
        "mooncake", 3_993, 3.906, (11_587, 48_904.6, 66_456.2, 191_378), (69, 519, 768.1, 893)),
    "ragpulse_0_trace.jsonl.gz": ("ragpulse", 7_106, 0.0118, (3139.5, 4425, 5438.3, 7712), (234, 670, 891, 2183)),
    "burstgpt_1_first400.csv": ("burstgpt", 383, 0.0102, (353, 1638.8, 1958.4, 2126), (238, 841.7, 1424.8, 2019)),
    "burstgpt_3_slice_45.csv": ("burstgpt", 45, 0.0344, (353, 1541, 2288.8, 2573), (106, 461, 921.4, 928)),
    "dynamo_request_trace_pi.jsonl.gz": (
        "dynamo", 17, 0.0987, (3423, 8381.6, 8700.3, 8780), (389, 885.8, 1058, 1101)),
    "vidur_arxiv_summarization.csv.gz": (
        "lengths", 28_257, None, (2730, 3813, 3933.4, 4054), (167, 736.2, 3271.3, 4056)),
    "sarathi_sharegpt_8k.csv.gz": ("lengths", 30_731, None, (1730, 6563, 7433.7, 8141), (415, 920, 998, 1024)),
    "etalon_bwb.csv.gz": ("lengths", 33_768, None, (1037, 1584, 1800, 3504), (1601, 2342, 2533, 2858)),
    "llmservingsim_sharegpt_llama31_8b_300_sps10.jsonl.gz": (
        "llmservingsim", 300, 10.2619, (731.5, 1748.9, 2765.2, 3998), (632, 773, 784.1, 1021)),
    "llmservingsim_me2_01_mixed.jsonl": (
        "llmservingsim", 608, 9.9674, (2909.5, 26_411.8, 28_447.5, 31_383), (873.5, 13_045.4, 15_038.7, 15_890)),
    "apex_llama_creation_05.jsonl": ("apex", 512, 0.4657, (309, 423.4, 565.8, 1232), (1106.5, 1807, 2340.7, 3501)),
    "apex_llama_lmsys_05.jsonl": ("apex", 1_024, 0.5056, (17, 307.7, 586.2, 1037), (117, 435.9, 532.6, 761)),
    "apex_llama_summarization_05.jsonl": (
        "apex", 1_302, 0.4794, (2943, 4000.8, 4075, 4092), (161.5, 297, 357, 458)),
}
# Files in shapes of their own, by a map of their columns: requests, those left out, sessions, percentiles. WEKA's
# published percentiles count 27 requests without output.
MAPPED = {
    "weka_claude_code_requests.csv.gz": (
        "columns,arrival_s=t_s,session_id=session_id,tenant=model,e2e_s=api_time_s,think_time_s=think_time_s",
        49_334, {"output_tokens < 1": 27}, 773, (103_659, 300_666, 498_519, 894_371), (216, 1554, 3686.3, 18_195)),
    "exgentic_swebench_claude_code_spans.jsonl.gz": (
        "columns,arrival_s=start_time_s:date,e2e_s=duration_ms:ms,tenant=request_model,where is_error=false",
        2_294, {"is_error is not false": 148}, 46, (27_214, 54_026.2, 63_204.2, 67_657), (106, 845.8, 1762.7, 7566)),
}
HIT_FRAC = {"mooncake_conversation_trace.jsonl.gz": 0.3736, "mooncake_synthetic_trace.jsonl.gz": 0.6512,
            "mooncake_arxiv_toolagent_slice_1000.jsonl": 0.3907}
# Sums over 10-minute windows: mean and peak requests/s, windows.
RATES = {"m-large": (195.8, 583, 2016), "m-mid": (1790, 3445, 2016), "m-small": (1174, 3880, 2016),
         "deepseek-r1": (16.0, 42.5, 144), "mm-image": (9.5, 13.3, 144)}
# Samples of benchmarks' and gateways' outputs: format, rows kept and dropped, columns that must be there.
SAMPLES = {
    "aiperf_profile_export.sample.jsonl": ("aiperf", 2, 1, {"ttft_s", "e2e_s", "tpot_s", "session_id", "parent_id"}),
    "dynamo_request_trace_v1.jsonl": ("dynamo", 2, 0, {"ttft_s", "e2e_s", "cached_tokens", "session_id"}),
    "guidellm_benchmarks_v1_2025-06.json": ("guidellm", 1, 0, {"ttft_s", "e2e_s", "tpot_s"}),
    "kv_cache_tester_detailed_results.csv": ("kv-cache-tester", 2, 0, {"ttft_s", "e2e_s", "session_id"}),
    "llmperf_individual_responses.json": ("llmperf", 5, 0, {"ttft_s", "e2e_s", "tpot_s"}),
    "llmservingsim_vllm_requests.jsonl": ("llmservingsim", 2, 0, {"ttft_s", "e2e_s", "tpot_s"}),
    "lmbenchmark_requests.csv": ("lmbenchmark", 11, 0, {"ttft_s", "e2e_s", "tpot_s"}),
}
NO_TRACES = {
    "aiperf_profile_export_aiperf.csv": "AIPerf's or genai-perf's summary",
    "aiperf_profile_export_aiperf.json": "AIPerf's summary",
    "inference_perf_stage_lifecycle_metrics.json": "inference-perf's summary of a stage",
    "llmd_benchmark_report_v0_2.yaml": "is YAML with the keys version, run, scenario",
    "otel_genai_spans_inference_perf.json": "input_tokens is empty; must be given",  # its spans hold texts alone
    "vllm_bench_serve_summary.json": "is a summary without requests",
}


def shared(folder: str, name: str) -> str:
    path = SHARED / folder / name
    if not path.exists():
        pytest.skip(f"{name} is not at hand; PLANNER_SHARED names the folder above {folder}/")
    return str(path)


def recorded(name: str) -> Trace:
    return read_trace(shared("traces", name))


def check_lengths(trace: Trace, rel: float = 0.0, **wanted: tuple[float, ...]) -> None:
    for column, percentiles in wanted.items():
        found = np.percentile(trace.requests[column].to_numpy(), (50, 95, 99, 100))
        assert found == pytest.approx(percentiles, rel=rel, abs=0.06)


@pytest.mark.parametrize("name", RECORDED)
def test_counts_and_percentiles(name: str) -> None:
    format_, num, rate_per_s, input_tokens, output_tokens = RECORDED[name]
    trace = recorded(name)
    table, account = trace.requests, trace.account
    assert (trace.format, table.height) == (format_, num)
    assert account.rows_read == num + sum(account.dropped.values())
    if rate_per_s is None:
        assert trace.arrivals == "absent"
    else:
        assert (num - 1) / account.span_s == pytest.approx(rate_per_s, abs=6e-5)
    check_lengths(trace, input_tokens=input_tokens, output_tokens=output_tokens)
    assert table["arrival_s"].is_sorted()


@pytest.mark.parametrize("name", MAPPED)
def test_files_in_shapes_of_their_own_come_through_a_map(name: str) -> None:
    spec, num, dropped, num_sessions, input_tokens, output_tokens = MAPPED[name]
    trace = read_trace(shared("traces", name), format=spec, on_bad_rows="drop")
    assert trace.account.dropped == dropped
    assert trace.account.rows_read == num
    assert trace.requests["session_id"].n_unique() == num_sessions
    check_lengths(trace, rel=2e-3, input_tokens=input_tokens, output_tokens=output_tokens)


@pytest.mark.slow
def test_wekas_conversations_hold_their_blocks_and_turns() -> None:
    trace = recorded("weka_claude_code_traces_small.jsonl.gz")
    assert trace.account.rows_read == 19_551  # 14,680 and 4,699 of main agents, 172 of sub-agents
    assert trace.account.dropped == {"no output tokens": 10}
    assert trace.requests["session_id"].n_unique() == 506
    assert trace.prefix is not None
    assert trace.prefix.block_tokens == 64
    blocks = trace.requests["input_tokens"].to_numpy() // 64
    assert np.array_equal(np.diff(trace.prefix.offsets), blocks)
    assert trace.requests["parent_id"].str.contains(";").sum() == 7  # turns that waited for a sub-agent


def test_dynamos_hits_and_sessions() -> None:
    trace = recorded("dynamo_request_trace_pi.jsonl.gz")
    table = trace.requests
    assert number(table["cached_tokens"].sum()) / number(table["input_tokens"].sum()) == pytest.approx(0.756, abs=6e-4)
    assert table["session_id"].n_unique() == 5
    assert number(table["think_time_s"].min()) >= 0
    gaps_s = (table["e2e_s"] - table["ttft_s"]) / (table["output_tokens"] - 1)
    assert table["tpot_s"].to_numpy() == pytest.approx(gaps_s.to_numpy())


def test_ragpulses_chunks_share_beginnings() -> None:
    trace = recorded("ragpulse_0_trace.jsonl.gz")
    assert trace.requests["session_id"].n_unique() == 3990
    assert trace.prefix is not None
    covered = np.diff(trace.prefix.offsets) * trace.prefix.block_tokens
    left = trace.requests["input_tokens"].to_numpy() - covered
    assert left.min() >= 0  # the chunks of a prompt add up to 6 to 12 tokens less than it, separators
    assert left.max() <= 12 + trace.prefix.block_tokens


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_of_tools(name: str) -> None:
    format_, kept, dropped, columns = SAMPLES[name]
    trace = read_trace(shared("formats", name))
    account = trace.account
    assert (trace.format, account.rows_kept, sum(account.dropped.values())) == (format_, kept, dropped)
    assert columns <= set(trace.requests.columns)


@pytest.mark.parametrize("name", NO_TRACES)
def test_samples_without_requests_say_what_they_are(name: str) -> None:
    with pytest.raises(TraceError, match=NO_TRACES[name]):
        read_trace(shared("formats", name))


def test_every_sample_is_covered() -> None:
    shared("formats", "lmbenchmark_requests.csv")
    assert {path.name for path in (SHARED / "formats").iterdir()} == {*SAMPLES, *NO_TRACES}
    others = {"README.md", "ragpulse_chunk_token_lengths.csv.gz", "weka_claude_code_traces_small.jsonl.gz",
              *(f"servegen_rate_{name}.csv.gz" for name in RATES)}
    assert {path.name for path in (SHARED / "traces").iterdir()} == {*RECORDED, *MAPPED, *others}


@pytest.mark.parametrize("name", RATES)
def test_rate_series(name: str) -> None:
    mean, peak, windows = RATES[name]
    series = read_rate_series(Path(shared("traces", f"servegen_rate_{name}.csv.gz")))
    assert len(series.start_s) == windows
    assert series.mean_rps == pytest.approx(mean, rel=0.01)
    assert series.peak_rps == pytest.approx(peak, rel=0.01)


@pytest.mark.parametrize("name", HIT_FRAC)
def test_prefix_ids_cover_the_prompts_and_repeat_as_published(name: str) -> None:
    """A cache without limits serves the beginning of a prompt whose ids were all seen before."""
    trace = recorded(name)
    prefix, input_tokens = trace.prefix, trace.requests["input_tokens"].to_numpy()
    assert prefix is not None
    assert prefix.block_tokens == 512
    assert np.array_equal(np.diff(prefix.offsets), -(-input_tokens // 512))
    seen: set[int] = set()
    hit_tokens = 0
    for row, tokens in enumerate(input_tokens.tolist()):
        ids = prefix.values[prefix.offsets[row] : prefix.offsets[row + 1]].tolist()
        known = next((at for at, block in enumerate(ids) if block not in seen), len(ids))
        hit_tokens += min(known * 512, tokens)
        seen.update(ids)
    assert hit_tokens / input_tokens.sum() == pytest.approx(HIT_FRAC[name], abs=6e-5)
