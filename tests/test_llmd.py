"""Benchmark Reports: the schema's keys and units, and the values of the summary."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from helpers import scenario_of

from planner.errors import UsageError
from planner.loop.state.engine_settings import Recording
from planner.report.llmd import llmd_report, write_llmd_report
from planner.results.saved import SavedResult
from planner.run import replay
from planner.traces import read_trace

SAMPLE = Path(os.environ.get("PLANNER_SHARED", Path(__file__).parents[2] / "shared")) / "formats" / (
    "llmd_benchmark_report_v0_2.yaml")


OBSERVED = ".results.observability.components.aggregate."
OPTIONAL = (".results.request_performance.aggregate.requests.incomplete",  # in the schema, though not in the sample
            *(OBSERVED + name for name in ("cache_hit_rate", "gpu_utilization", "preemptions")))


@pytest.fixture(scope="module")
def result() -> SavedResult:
    outcome = replay(read_trace("chat", limit=300), scenario_of(), slo="ttft:500", recording=Recording(steps=True))
    return SavedResult(name="run", summary=outcome.summary, requests=outcome.requests, steps=outcome.steps)


def paths(value: Any, path: str = "") -> set[str]:
    """Return the paths of all keys; native parts are a tool's own."""
    if isinstance(value, list):
        return {each for item in value for each in paths(item, path)}
    if not isinstance(value, dict) or path.endswith((".native", ".profiling")):
        return {path}
    return {each for key, item in value.items() for each in paths(item, f"{path}.{key}")}


def test_keys_are_the_schemas(result: SavedResult) -> None:
    if not SAMPLE.exists():
        pytest.skip("the sample report is not at hand; PLANNER_SHARED names the folder above formats/")
    known = paths(yaml.safe_load(SAMPLE.read_text()))
    statistics = {path.rsplit(".", 1)[1] for path in known if ".time_to_first_token." in path} | {"stddev"}
    fields = {"value", "std_dev", "min", "max", "distribution"}
    for path in paths(llmd_report(result)):
        parent, _, leaf = path.rpartition(".")
        is_statistic = leaf in {*statistics, "units"} and (
            parent in OPTIONAL or any(each.startswith(f"{parent}.") for each in known))
        assert path in known or is_statistic or path in OPTIONAL or (
            leaf in fields and parent.endswith("_seq_len")), path


def test_values_are_the_summarys(result: SavedResult, tmp_path: Path) -> None:
    for name in ("report.yaml", "report.json"):
        write_llmd_report(result, tmp_path / name)
    report = yaml.safe_load((tmp_path / "report.yaml").read_text())
    assert json.loads((tmp_path / "report.json").read_text()) == report == llmd_report(result)
    assert report["version"] == "0.2"
    found = report["results"]["request_performance"]["aggregate"]
    assert found["requests"]["total"] == 300
    assert found["requests"]["failures"] == found["requests"]["incomplete"] == 0
    summary = result.summary
    for name, key, units in (("time_to_first_token", "ttft", "s"), ("time_per_output_token", "tpot", "s/token"),
                             ("request_latency", "e2el", "s"), ("inter_token_latency", "itl", "s/token")):
        assert found["latency"][name]["units"] == units
        assert 1e3 * found["latency"][name]["mean"] == pytest.approx(summary[f"mean_{key}_ms"])
        assert 1e3 * found["latency"][name]["p99"] == pytest.approx(summary[f"p99_{key}_ms"])
    assert found["throughput"]["request_rate"] == {"units": "queries/s", "mean": summary["request_throughput"]}
    lengths = result.requests["input_tokens"].to_numpy()
    assert found["requests"]["input_length"]["p99p9"] == pytest.approx(np.percentile(lengths, 99.9))


def test_an_unknown_ending_is_refused(result: SavedResult, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the ending must be \.yaml, \.yml or \.json"):
        write_llmd_report(result, tmp_path / "report.txt")
    assert not list(tmp_path.iterdir())
