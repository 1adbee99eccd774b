"""Measured runs of /metrics: what scrapes and queries say, worked out by hand; what is wrong with them; and a fit."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import planner
from hypothesis import given
from hypothesis import strategies as st
from measured_runs import error_in

from planner.catalog.catalog_files import data_dir
from planner.errors import TraceError, UsageError
from planner.measured.calibration.calibrate import calibrate
from planner.measured.run_table import Measurement, counted
from planner.measured.scrape import is_scrape
from planner.measured.scraped import Histogram, read_scraped
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.steptime.engine_constants import read_constants
from planner.traces.shaping.client_load import client_load

LINEAR = Scenario(step_time="linear:0.01,0.0001", num_gpu_blocks=10_000)
H100 = Scenario(model="llama-3.1-8b", gpu="h100-sxm")
EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, math.inf)
LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, math.inf)
MODEL = 'model_name="m"'


def histogram(name: str, buckets: Mapping[Any, float], total: float, labels: str = MODEL) -> str:
    """Return a histogram as text: its cumulative buckets, the last of which has all values."""
    lines = [f'{name}_bucket{{le="{edge}",{labels}}} {count}' for edge, count in buckets.items()]
    return "\n".join([f"# TYPE {name} histogram", *lines, f"{name}_sum{{{labels}}} {total}",
                      f"{name}_count{{{labels}}} {list(buckets.values())[-1]}", ""])


def of_values(name: str, values: Any, edges: tuple[float, ...]) -> str:
    values = np.asarray(values)
    buckets = {"+Inf" if math.isinf(edge) else edge: int((values <= edge).sum()) for edge in edges}
    return histogram(name, buckets, float(values.sum()))


def vllm(count: int = 20, running: float | None = 2) -> str:
    """Return a scrape of `count` requests: TTFT of 4/5 in (50, 100] ms, TPOT in (10, 20] ms, 100 tokens in, 10 out."""
    most = 4 * count // 5
    text = (histogram("vllm:time_to_first_token_seconds", {0.05: 0, 0.1: most, 0.25: count, "+Inf": count}, 0.1 * count)
            + histogram("vllm:request_time_per_output_token_seconds", {0.01: 0, 0.02: count, "+Inf": count},
                        0.015 * count)
            + histogram("vllm:request_prompt_tokens", {50: 0, 200: count, "+Inf": count}, 100 * count)
            + histogram("vllm:request_generation_tokens", {5: 0, 20: count, "+Inf": count}, 10 * count))
    return text + ("" if running is None else f"vllm:num_requests_running{{{MODEL}}} {running}\n")


@pytest.fixture
def runs(tmp_path: Path) -> Callable[..., list[Measurement]]:
    def read(text: str, scenario: Scenario = LINEAR) -> list[Measurement]:
        path = tmp_path / "metrics.prom"
        path.write_text(text)
        assert is_scrape(path)
        return read_scraped(path, scenario)

    return read


def test_one_scrape_worked_out(runs: Callable[..., list[Measurement]]) -> None:
    """20 requests: 16 in (50, 100] ms and 4 in (100, 250], so the median is 50 + 50 · 10/16 and p90 100 + 150 · 2/4."""
    (run,) = runs(vllm())
    assert run.measured == pytest.approx({
        "ttft_ms": 100.0, "tpot_ms": 15.0, "p50_ttft_ms": 81.25, "p90_ttft_ms": 175.0, "p50_tpot_ms": 15.0,
        "p90_tpot_ms": 19.0})
    assert run.bounds == {"p50_ttft_ms": (50.0, 100.0), "p90_ttft_ms": (100.0, 250.0), "p50_tpot_ms": (10.0, 20.0),
                          "p90_tpot_ms": (10.0, 20.0)}
    assert run.load is not None
    assert run.scenario is not None
    assert run.scenario.max_concurrency == 2
    assert run.num_opening == 2
    assert run.load.num_requests == 20
    assert run.load.requests["input_tokens"].mean() == pytest.approx(100, abs=0.5)
    assert run.load.requests["output_tokens"].mean() == pytest.approx(10, abs=0.5)


def test_the_difference_of_two_scrapes_counts_and_their_times_are_the_rate(
        runs: Callable[..., list[Measurement]]) -> None:
    """100 requests in 50 s: two a second, as a Poisson process; what was counted before is left out."""
    (run,) = runs(f"# at 1000\n{vllm(20)}# at 1050\n{vllm(120)}")
    assert run.load is not None
    assert run.scenario is not None
    assert run.load.num_requests == 100
    assert run.scenario.max_concurrency is None
    assert run.load.requests["arrival_s"].to_list()[-1] == pytest.approx(50.0)
    assert run.measured["ttft_ms"] == pytest.approx(100.0)
    (closed,) = runs(f"# at 1000\n{vllm(20)}# at 1050\n{vllm(120)}", Scenario(
        step_time="linear:0.01,0.0001", num_gpu_blocks=10_000, max_concurrency=7))
    assert closed.scenario is not None
    assert closed.scenario.max_concurrency == 7


def test_more_scrapes_are_windows(runs: Callable[..., list[Measurement]]) -> None:
    """Windows of 40, 60 and 60 requests; the 10 of the last scrape are too few for one, and go to the last."""
    found = runs("".join(vllm(count) for count in (20, 60, 120, 170, 180)))
    assert [run.id for run in found] == ["metrics#0", "metrics#1", "metrics#2"]
    assert [run.load.num_requests for run in found if run.load] == [40, 60, 60]


def query(texts: Mapping[float, str]) -> str:
    """Return what a range query answers of a server that showed these texts at these times."""
    found: dict[str, list[Any]] = {}
    for at_s, text in texts.items():
        for line in text.splitlines():
            if not line.startswith("#"):
                found.setdefault(line.rsplit(" ", 1)[0], []).append([at_s, line.rsplit(" ", 1)[1]])
    result = []
    for series, values in found.items():
        name, labels = series.rstrip("}").split("{")
        result.append({"metric": {"__name__": f"kserve_{name}",
                                  **dict(part.replace('"', "").split("=") for part in labels.split(","))},
                       "values": values})
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def test_a_range_query_says_the_same_as_the_text(tmp_path: Path, runs: Callable[..., list[Measurement]]) -> None:
    texts = {1000.0: vllm(20), 1050.0: vllm(120)}
    (wanted,) = runs("".join(f"# at {at}\n{text}" for at, text in texts.items()))
    path = tmp_path / "metrics.json"
    path.write_text(query(texts))
    assert is_scrape(path)
    (run,) = read_scraped(path, LINEAR)
    assert run.measured == wanted.measured
    assert run.load is not None
    assert wanted.load is not None
    assert run.load.requests.equals(wanted.load.requests)


def test_sglang_without_histograms_of_lengths(runs: Callable[..., list[Measurement]]) -> None:
    """Lengths are then all at the mean of the totals; the latency between tokens pools all gaps."""
    (run,) = runs(histogram("sglang:time_to_first_token_seconds", {0.1: 30, "+Inf": 40}, 4.0)
                  + histogram("sglang:inter_token_latency_seconds", {0.02: 300, "+Inf": 360}, 7.2)
                  + f"sglang:prompt_tokens_total{{{MODEL}}} 4000\nsglang:generation_tokens_total{{{MODEL}}} 400\n"
                  + f"sglang:cached_tokens_total{{{MODEL}}} 1000\nsglang:num_running_reqs{{{MODEL}}} 3.0\n",
                  replace(LINEAR, engine="sglang"))
    assert run.load is not None
    assert run.measured["ttft_ms"] == pytest.approx(100.0)
    assert run.measured["itl_ms"] == pytest.approx(20.0)
    assert "p90_ttft_ms" not in run.measured  # beyond the last bucket's edge
    assert set(run.load.requests["input_tokens"]) == {100}
    assert set(run.load.requests["output_tokens"]) == {10}
    assert set(run.load.requests["cached_tokens"]) == {25}


def test_a_prediction_within_the_bucket_is_right() -> None:
    run = Measurement(id="a", groups={}, measured={"p50_ttft_ms": 75.0, "ttft_ms": 80.0},
                      bounds={"p50_ttft_ms": (50.0, 100.0)})
    assert counted(run, "p50_ttft_ms", 51.0) == 75.0
    assert counted(run, "p50_ttft_ms", 200.0) == 150.0
    assert counted(run, "p50_ttft_ms", 25.0) == 37.5
    assert counted(run, "ttft_ms", 81.0) == 81.0


@given(st.lists(st.floats(0.001, 9.0), min_size=2, max_size=60), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_values_own(values: list[float], share: float) -> None:
    edges = [(edge, float(sum(value <= edge for value in values))) for edge in EDGES]
    found = Histogram(edges, float(len(values)), sum(values))
    low, high = found.bucket(share)
    assert low <= found.quantile(share) <= high
    rank = max(math.ceil(share * len(values)), 1)
    own = sorted(values)[rank - 1]
    assert low <= own <= high


def test_scrapes_of_another_deployment_are_refused(runs: Callable[..., list[Measurement]]) -> None:
    with pytest.raises(UsageError, match="was measured on engine = vllm, and --engine sglang would be predicted"):
        runs(vllm(), replace(LINEAR, engine="sglang"))
    with pytest.raises(UsageError, match=r"model = Qwen/Qwen3-8B, and --model llama-3.1-8b would be predicted"):
        runs(vllm().replace('"m"', '"Qwen/Qwen3-8B"'), H100)


@pytest.mark.parametrize(("text", "words"), [
    (vllm().replace('{le="0.1",', '{le="ten",', 1), "a bucket's le = 'ten'"),
    (vllm().replace(f'vllm:time_to_first_token_seconds_bucket{{le="0.25",{MODEL}}} 20',
                    f'vllm:time_to_first_token_seconds_bucket{{le="0.25",{MODEL}}} 3'), "must be cumulative"),
    (vllm().replace("request_time_per_output_token", "other"), "has no time between tokens"),
    (vllm().replace("time_to_first_token", "other"), "has no TTFT"),
    (vllm().replace("vllm:", "triton:"), "has none of the histograms vllm:time_to_first_token_seconds"),
    (vllm(10), "counts 10 requests; must be at least 20"),
    (vllm(running=None), "write a line `# at SECONDS` before each"),
    (vllm(running=0), "is 0; or give --max-concurrency"),
    (vllm(120) + vllm(20), "the server restarted in between"),
    (vllm() + vllm().replace('"m"', '"n"'), "has several of model_name: m, n"),
    (vllm().replace("vllm:request_prompt_tokens", "vllm:x"), "input tokens of a request are 0"),
    (vllm() + "what is this?\n", "line 27: 'what is this?' is not a sample"),
    (vllm() + "vllm:num_requests_waiting{a=b} 1\n", "line 27: the labels {a=b} cannot be read"),
    (vllm() + "vllm:num_requests_waiting many\n", "line 27: 'many' is not a number"),
])
def test_bad_scrapes(runs: Callable[..., list[Measurement]], text: str, words: str) -> None:
    with pytest.raises(TraceError) as raised:
        runs(text)
    assert words in str(raised.value)


@pytest.mark.parametrize(("found", "words"), [
    ({"status": "error", "error": "parse error", "data": {"resultType": "matrix"}}, "parse error"),
    ({"status": "success", "data": {"resultType": "scalar", "result": []}}, "must be matrix"),
    ({"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {"le": "1"}, "values": []}]}},
     "has no __name__"),
    ({"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {"__name__": "a"}, "values": [1]}]}},
     "is not a point"),
    ({"status": "success", "data": {"resultType": "vector", "result": [3]}}, "is not a series"),
    ({"status": "success", "data": {"resultType": "vector", "result": []}}, "has none of the histograms"),
])
def test_bad_queries(tmp_path: Path, found: Any, words: str) -> None:
    path = tmp_path / "query.json"
    path.write_text(json.dumps(found))
    assert is_scrape(path)
    with pytest.raises(TraceError) as raised:
        read_scraped(path, LINEAR)
    assert words in str(raised.value)


def scraped(concurrency: int, calibration: str | None = None, seed: int = 0) -> dict[str, Any]:
    """Return what a server that is as predicted would have measured of a closed loop, without its opening."""
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", max_concurrency=concurrency, num_prompts=600,
                        random_input_len=400, random_output_len=60, random_range_ratio=0.5, calibration=calibration,
                        seed=seed)
    table = replay(client_load(scenario), scenario).requests.slice(concurrency)
    return {"ttft": table["ttft_s"], "tpot": table["tpot_s"], "e2el": table["e2e_s"], "in": table["input_tokens"],
            "out": table["output_tokens"], "running": concurrency}


def as_text(*measured: Mapping[str, Any]) -> str:
    """Return the scrape after these loads, one after the other."""
    values = {key: np.concatenate([each[key].to_numpy() for each in measured])
              for key in ("ttft", "tpot", "e2el", "in", "out")}
    return (of_values("vllm:time_to_first_token_seconds", values["ttft"], EDGES)
            + of_values("vllm:request_time_per_output_token_seconds", values["tpot"], EDGES)
            + of_values("vllm:e2e_request_latency_seconds", values["e2el"], EDGES)
            + of_values("vllm:request_prompt_tokens", values["in"], LENGTHS)
            + of_values("vllm:request_generation_tokens", values["out"], LENGTHS)
            + f"vllm:num_requests_running{{{MODEL}}} {measured[-1]['running']}\n")


def test_a_server_that_is_as_predicted_is_predicted(tmp_path: Path) -> None:
    """Lengths are known by their buckets alone, and the order of arrivals is not: means are a few per cent off."""
    path = tmp_path / "metrics.prom"
    path.write_text(as_text(scraped(16)))
    out = tmp_path / "out.json"
    done = planner("validate", path, "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--json", out)
    assert done.returncode == 0, done.stderr
    overall = json.loads(out.read_text())["overall"]
    assert overall["tpot_ms"]["mape"] < 0.05
    assert overall["ttft_ms"]["mape"] < 0.15
    assert overall["e2el_ms"]["mape"] < 0.05
    assert overall["p50_tpot_ms"]["mape"] < 0.01


def test_a_fit_to_scrapes_finds_the_constant_that_made_them(tmp_path: Path) -> None:
    """Dense products that take 1.3 times as long; of three loads with a scrape after each, two are between scrapes."""
    constants = read_constants(data_dir("hardware_db") / "engines" / "vllm.toml")
    true = 1.3 * constants["linear_ratio"]
    slow = tmp_path / "slow.toml"
    rows = "\n".join(f"{name} = {value}" for name, value in (constants | {"linear_ratio": true}).items())
    slow.write_text(f"[constants]\n{rows}\n")
    loads = [scraped(8, str(slow), seed) for seed in range(3)]
    path = tmp_path / "metrics.prom"
    path.write_text("".join(as_text(*loads[:k + 1]) for k in range(len(loads))))
    found = calibrate(path, H100, names=["linear_ratio"], folds=2, jobs=1)
    assert found.fitted["linear_ratio"].value == pytest.approx(true, rel=0.05)
    assert error_in(found.after, "tpot_ms").mape < 0.5 * error_in(found.before, "tpot_ms").mape
    assert found.source.num_runs == 2
