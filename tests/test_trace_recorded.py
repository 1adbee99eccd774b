"""Published traces: counts, rates and percentiles are those that their publishers' files are known to have."""

import os
from pathlib import Path

import numpy as np
import pytest

from planner.trace import Trace, read_trace

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[2] / "shared")) / "traces"

# name: format, requests, requests/s, input p50/p95/p99/max, output p50/p95/p99/max
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
}
HIT_FRAC = {"mooncake_conversation_trace.jsonl.gz": 0.3736, "mooncake_synthetic_trace.jsonl.gz": 0.6512,
            "mooncake_arxiv_toolagent_slice_1000.jsonl": 0.3907}


def recorded(name: str) -> Trace:
    if not (SHARED / name).exists():
        pytest.skip(f"{name} is not at hand; PLANNER_SHARED names the folder above traces/")
    return read_trace(str(SHARED / name))


@pytest.mark.parametrize("name", RECORDED)
def test_counts_and_percentiles(name):
    format_, num, rate_per_s, input_tokens, output_tokens = RECORDED[name]
    trace = recorded(name)
    table = trace.requests
    assert (trace.format, table.height, trace.account.rows_read) == (format_, num, num)
    assert (num - 1) / trace.account.span_s == pytest.approx(rate_per_s, abs=6e-5)
    for column, wanted in (("input_tokens", input_tokens), ("output_tokens", output_tokens)):
        assert np.percentile(table[column].to_numpy(), (50, 95, 99, 100)) == pytest.approx(wanted, abs=0.06)
    assert table["arrival_s"].is_sorted()


@pytest.mark.parametrize("name", HIT_FRAC)
def test_prefix_ids_cover_the_prompts_and_repeat_as_published(name):
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
