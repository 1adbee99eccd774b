"""Every answer for a reader: its text, as the terminal, reports and notebooks have it, and the rows of its table."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from planner.measured.calibration.calibrate_answer import CalibrateAnswer
from planner.measured.validate_answer import ValidateAnswer
from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.check_answer import CheckAnswer
from planner.planning.measure_answer import MeasureAnswer
from planner.planning.probe_answer import Benchmark, ProbeAnswer
from planner.planning.rollouts_answer import RolloutsAnswer
from planner.planning.share_answer import ShareAnswer
from planner.planning.size_answer import SizeAnswer
from planner.planning.sweep_answer import SweepAnswer
from planner.planning.watch_answer import WatchAnswer
from planner.report.gate_tables import gate_table
from planner.report.measured_tables import accuracy_table, calibration_table
from planner.report.plan_tables import capacity_table, sizing_table
from planner.report.probe_table import measure_table, probe_table
from planner.report.rollouts_table import rollouts_table
from planner.report.share_table import share_table
from planner.report.summary_tables import summary_table
from planner.report.sweep_tables import sweep_table
from planner.report.text import Text
from planner.report.watch_table import watch_table
from planner.results.answers import Answer, Shown, shown
from planner.results.summary_answer import Summary

FLEET = ("gpu", "tensor_parallel_size", "quantization", "num_replicas", "num_gpus", "cost_usd_per_hour",
         "cost_usd_per_million_output_tokens", "attainment", "p99_ttft_ms", "p99_tpot_ms", "headroom",
         "limiting_metric", "reason")
TEXTS: Mapping[type, Callable[[Any], Text]] = {
    CapacityAnswer: capacity_table, SizeAnswer: sizing_table, SweepAnswer: sweep_table, CheckAnswer: gate_table,
    ShareAnswer: share_table, ProbeAnswer: probe_table, MeasureAnswer: measure_table, ValidateAnswer: accuracy_table,
    CalibrateAnswer: calibration_table, WatchAnswer: watch_table, RolloutsAnswer: rollouts_table,
    Summary: summary_table}
ROWS: Mapping[type, Callable[[Any], list[dict[str, Any]]]] = {
    CapacityAnswer: lambda answer: answer["probes"],
    SizeAnswer: lambda answer: [_fleet(row) for row in answer["alternatives"]],
    SweepAnswer: lambda answer: [{name: row[name] for name in (*answer.axes, *answer.pareto)} for row in answer.front],
    CheckAnswer: lambda answer: answer["checks"],
    ShareAnswer: lambda answer: [{"deployment": row["deployment"], "rate_rps": row["rate_rps"], **_fleet(row["fleet"])}
                                 for row in answer["deployments"]],
    ProbeAnswer: lambda answer: [_benchmark(each) for each in answer.benchmarks],
    MeasureAnswer: lambda answer: answer["runs"],
    RolloutsAnswer: lambda answer: answer["fleets"],
    WatchAnswer: lambda answer: answer["quantities"],
    Summary: lambda answer: [{"key": key, "value": value} for key, value in answer.values_by_key.items()
                             if type(value) in (int, float)]}


def text_of(answer: Any) -> Text:
    """Return an answer as text."""
    return TEXTS[type(answer)](answer)


@shown.register
def _shown(answer: Answer) -> Shown:
    text, rows = text_of(answer), ROWS[type(answer)](answer)
    return Shown(text=str(text), headline="\n".join([*filter(None, text.words), *answer["notes"]]),
                 table=pl.DataFrame(rows, strict=False, infer_schema_length=None))


def _fleet(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: row.get(key) for key in FLEET}


def _benchmark(each: Benchmark) -> dict[str, Any]:
    return {"name": each.name, "max_concurrency": each.max_concurrency, "num_prompts": each.num_prompts,
            "random_input_len": each.random_input_len, "random_output_len": each.random_output_len, **each.expected}
