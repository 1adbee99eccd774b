"""Descriptions of traces: numbers by hand, published values, what is odd, and how all of it is shown."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import trace_of
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.files.keys import asdict
from planner.report.figures.trace_figures import workload_figures
from planner.report.trace_report import write_description
from planner.report.trace_tables import description_table
from planner.traces import Trace, read_trace
from planner.traces.prefix_ids import PrefixIds
from planner.traces.shaping.anomalies import find_anomalies
from planner.traces.shaping.description import describe
from planner.traces.shaping.earliest_sends import at_earliest_sends

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[2] / "shared")) / "traces"

# name: requests/s, variation of gaps, variance over mean in 1 s and in 60 s: the table beside the traces
PUBLISHED = {
    "azure_llm_2023_conv.csv": (5.5301, 1.094, 1.39, 20.55),
    "azure_llm_2023_code.csv": (2.5664, 13.151, 13.18, 160.54),
    "mooncake_conversation_trace.jsonl.gz": (3.4012, 3.034, 7.89, 2.85),
    "mooncake_synthetic_trace.jsonl.gz": (3.906, 1.011, 1.09, 12.98),
    "azure_llm_2024_conv_sparse_sample.csv": (0.0628, 1.149, 1.01, 1.72),
}


def described(trace: Trace, **options: Any) -> dict[str, Any]:
    return asdict(describe(trace, **options))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_traces_are_as_bursty_as_is_known(name: str) -> None:
    if not (SHARED / name).exists():
        pytest.skip(f"{name} is not at hand; PLANNER_SHARED names the folder above traces/")
    found = described(read_trace(str(SHARED / name)))
    rate, variation, second, minute = PUBLISHED[name]
    assert found["rates"]["requests_per_s"] == pytest.approx(rate, abs=6e-5)
    assert found["burstiness"]["gap_cv"] == pytest.approx(variation, abs=6e-4)
    assert found["burstiness"]["dispersion"]["1s"] == pytest.approx(second, abs=6e-3)
    assert found["burstiness"]["dispersion"]["60s"] == pytest.approx(minute, abs=6e-3)


def test_numbers_by_hand() -> None:
    trace = trace_of([(0.0, 10, 1), (1.0, 20, 2), (4.0, 30, 3), (5.0, 40, 40)], session_id=["a", "b", "a", "a"],
                     tenant=["x", "x", None, "x"], hash_ids=[[0], [1, 2], [0, 3], [0, 3, 4]], hash_block_tokens=16)
    found = described(trace, cache_tokens=32)
    assert found["rates"] == pytest.approx({"requests_per_s": 0.6, "input_tokens_per_s": 12.0,
                                            "output_tokens_per_s": 1.2})
    assert found["lengths"]["input_tokens"]["p50"] == 25.0
    assert found["lengths"]["rank_correlation"] == pytest.approx(1.0)
    assert found["sharing"]["infinite_hit_rate"] == pytest.approx((16 + 16 + 16) / 100)
    assert found["sharing"]["hit_rate"] == pytest.approx((16 + 16) / 100)  # the third one begins again after two others
    assert found["sessions"]["num_sessions"] == 2
    assert found["sessions"]["turns"]["max"] == 3
    assert found["sessions"]["turn_gap_s"]["max"] == 4.0
    assert found["sessions"]["prompt_growth_tokens"]["mean"] == 15.0
    assert [(row["tenant"], row["num_requests"]) for row in found["tenants"]] == [("x", 3), ("", 1)]
    with pytest.raises(UsageError, match="cache size = 0 tokens; must be above 0"):
        described(trace, cache_tokens=0)


def test_one_request_and_a_burst_have_what_exists_of_them() -> None:
    for rows, said in (([(1.0, 5, 5)], "1 request over 0 s"), ([(1.0, 5, 5)] * 3, "3 requests over 0 s")):
        found = describe(trace_of(rows))
        assert found.rates["requests_per_s"] is None
        assert found.burstiness["gap_cv"] is None
        assert (found.sharing, found.sessions, found.tenants) == (None, None, None)
        json.dumps(asdict(found), allow_nan=False)
        assert said in str(description_table(found))


def test_a_day_is_shown_by_the_hour() -> None:
    times = np.sort(np.concatenate([np.random.default_rng(0).uniform(h * 3600, h * 3600 + 3600, 10 + 40 * (h % 24 > 11))
                                    for h in range(49)]))
    shape = describe(trace_of([(float(at), 1, 1) for at in times])).shape
    assert shape["period"] == "day"
    assert len(shape["requests_per_s"]) == 24
    assert shape["peak_over_mean"] == pytest.approx(50 / 30, rel=0.15)


def test_late_parts_of_a_record_are_whole_seconds() -> None:
    text = str(description_table(describe(trace_of([(500.0 * k, 10, 10) for k in range(100)]))))
    assert "e+0" not in text
    assert "47,438" in text
    heavy = describe(trace_of([(0.1 * k, 10_000, 10) for k in range(101)]))
    assert ", 100,000 input tokens/s, " in str(description_table(heavy))


def kinds(trace: Trace) -> set[str]:
    return {str(odd["kind"]) for odd in find_anomalies(trace)}


RNG = np.random.default_rng(0)
TIMES = np.cumsum(RNG.exponential(1.0, 2000))
LENGTHS = RNG.integers(1, 5000, 2000)
OUTPUTS = RNG.integers(1, 1500, 2000)


def users(times: NDArray[Any] = TIMES, inputs: NDArray[Any] = LENGTHS, outputs: NDArray[Any] = OUTPUTS,
          **columns: Any) -> Trace:
    return trace_of(list(zip(map(float, times), map(int, inputs), map(int, outputs), strict=True)), **columns)


def test_ordinary_traffic_is_not_odd() -> None:
    assert kinds(users()) == set()


@pytest.mark.parametrize(("trace", "kind"), [
    (users(np.floor(TIMES / 5) * 5), "quantised clock"),
    (users(outputs=np.minimum(OUTPUTS, 1000)), "capped outputs"),
    (users(np.where(TIMES > 1000, TIMES + 900, TIMES)), "idle stretches"),
    (users(np.zeros(2000)), "no arrivals"),
    (users(np.arange(2000.0)), "regular arrivals"),
    (users(inputs=np.full(2000, 77)), "constant prompts"),
    (users(inputs=np.where(RNG.random(2000) < 0.1, 181, LENGTHS)), "common prompts"),
    (users(np.repeat(TIMES[:1000], 2), np.repeat(LENGTHS[:1000], 2), np.repeat(OUTPUTS[:1000], 2)), "repeated rows"),
    (users(max_output_tokens=(OUTPUTS + (RNG.random(2000) < 0.9)).tolist()), "outputs at the client's limit"),
])
def test_what_is_odd_is_told(trace: Trace, kind: str) -> None:
    assert kind in kinds(trace)


def test_a_closed_loop_is_found_by_its_latencies() -> None:
    """Eight clients that each send as their last request ends."""
    free, rows = np.zeros(8), []
    for _ in range(400):
        client = int(free.argmin())
        latency = float(RNG.uniform(1.0, 9.0))
        rows.append((float(free[client]), latency))
        free[client] += latency
    closed = trace_of([(at, 10, 10) for at, _ in rows], e2e_s=[latency for _, latency in rows])
    assert "closed loop" in kinds(closed)
    opened = users(e2e_s=RNG.uniform(1.0, 9.0, 2000).tolist())
    assert "closed loop" not in kinds(opened)


def test_the_page_holds_every_figure_and_escapes_names(tmp_path: Path) -> None:
    trace = trace_of([(0.0, 10, 1), (1.0, 20, 2), (4.0, 30, 3)], tenant=["<script>", "b", "b"],
                     hash_ids=[[0], [0, 1], [0, 1]], hash_block_tokens=16)
    found = describe(trace)
    figures = workload_figures(trace, found)
    assert set(figures) == {"arrivals", "lengths", "burstiness", "shape", "hit_rate"}
    write_description(trace, found, tmp_path / "w.html")
    page = (tmp_path / "w.html").read_text()
    assert all(f'id="{name}"' in page for name in figures)
    assert "&lt;script&gt;" in page
    assert "<script>  " not in page
    with pytest.raises(UsageError, match=r"the ending must be \.html"):
        write_description(trace, found, tmp_path / "w.pdf")
    assert "hit_rate" not in workload_figures(users(), describe(users()))


def delayed(**columns: Any) -> Trace:
    """Two sessions of three turns whose later turns have the arrival of the first, and delays of 10 and 20 s."""
    trace = trace_of([(0.0, 128, 4)] * 3 + [(5.0, 128, 4)] * 3, session_id=["a"] * 3 + ["b"] * 3,
                     think_time_s=[None, 10.0, 20.0] * 2, **columns)
    ids = np.array([0, 1] * 3 + [2, 3] * 3)  # each session sends its own two blocks again and again
    return replace(trace, prefix=PrefixIds(values=ids, offsets=np.arange(0, 13, 2), block_tokens=64))


def test_delays_between_turns_are_in_the_description_and_sessions_interleave() -> None:
    """Session a is sent at 0, 10 and 30 s, b at 5, 15 and 35 s: each turn comes after one of the other session."""
    found = described(delayed())
    assert found["span_s"] == 35.0
    assert (found["sessions"]["turn_gap_s"]["min"], found["sessions"]["turn_gap_s"]["max"]) == (10.0, 20.0)
    assert found["sharing"]["working_set_tokens"]["99%"] == 4 * 64  # sessions one after another would need 2 blocks
    assert "4 requests wait for others: each is sent after the requests before it" in found["assumption"]
    assert "with no time for their answers, and its delay" in str(description_table(describe(delayed())))


def test_measured_times_of_answers_are_before_the_delays() -> None:
    found = described(delayed(e2e_s=[2.0] * 6))
    assert (found["span_s"], found["sessions"]["turn_gap_s"]["min"]) == (39.0, 12.0)
    assert "with their measured time" in found["assumption"]


def test_a_request_waits_for_the_last_of_its_parents_and_recorded_arrivals_stay() -> None:
    rows = [(0.0, 8, 1), (3.0, 8, 1), (3.0, 8, 1), (50.0, 8, 1)]
    trace = trace_of(rows, request_id=["a", "b", "c", "d"], parent_id=[None, None, "a;b", "c"],
                     think_time_s=[None, None, 4.0, 1.0], e2e_s=[1.0, 2.0, 1.0, 1.0])
    assert at_earliest_sends(trace)[0].requests["arrival_s"].to_list() == [0.0, 3.0, 9.0, 50.0]
    assert described(read_trace("agents"))["assumption"] is None
