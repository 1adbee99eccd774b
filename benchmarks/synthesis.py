"""How far predictions of drawn traces are from those of the recorded ones they were fitted to.

The deployments, objectives and loads are others than those that the models were developed on (llama-3.1-8b on one
H100, at 0.4, 0.7 and 0.9 of its capacity). As a yardstick, the recorded trace itself is replayed with its requests
dealt anew among neighbours: what moves by that is no property of the traffic that a model could keep. Needs the
recorded traces in $PLANNER_SHARED or ../shared; writes reports/synthesis.md.
"""

import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planner.planning.closeness import LOADS, compare_predictions, compare_statistics
from planner.report.trace_tables import closeness_table
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.fitting import fit_workload
from planner.traces.shaping.rescaling import rate_of
from planner.traces.synthesis import generate

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("PLANNER_SHARED") or ROOT.parent / "shared") / "traces"

DRAWS = 5
NEIGHBOURS = 200  # requests among which the recorded ones are dealt anew
CLOSE = 0.10
STRETCHED = 0.05  # of the recorded rate: below, time is stretched so far that single gaps decide
METRICS = ("median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms")


class Case(NamedTuple):
    """A trace, a deployment, and what the load must keep."""

    trace: str
    model: str
    gpu: str
    tensor_parallel_size: int
    slo: str
    attainment: float

    @property
    def scenario(self) -> Scenario:
        """The deployment."""
        return Scenario(model=self.model, gpu=self.gpu, tensor_parallel_size=self.tensor_parallel_size)

    @property
    def title(self) -> str:
        """What is replayed on what, and when it keeps its objectives."""
        return (f"{self.trace.split('.')[0]} on {self.model}, {self.tensor_parallel_size} × {self.gpu}; {self.slo}, "
                f"{self.attainment:.0%}")


CASES = (
    Case("azure_llm_2023_conv.csv", "Qwen/Qwen3-32B", "h200-sxm", 2, "ttft:1000 tpot:60", 0.95),
    Case("azure_llm_2023_conv.csv", "llama-3.1-8b", "l40s", 1, "ttft:1000 tpot:60", 0.95),
    Case("azure_llm_2023_code.csv", "Qwen/Qwen3-32B", "h200-sxm", 2, "ttft:1000 tpot:60", 0.95),
    Case("azure_llm_2023_code.csv", "llama-3.1-8b", "l40s", 1, "ttft:1000 tpot:60", 0.95),
    Case("azure_llm_2023_code.csv", "llama-3.1-8b", "h200-sxm", 1, "ttft:1000 tpot:60", 0.95),
    Case("mooncake_conversation_trace.jsonl.gz", "Qwen/Qwen3-32B", "h200-sxm", 2, "ttft:20000 tpot:200", 0.9),
    Case("mooncake_conversation_trace.jsonl.gz", "llama-3.1-8b", "h200-sxm", 1, "ttft:10000 tpot:100", 0.9),
)


def dealt_anew(trace: Trace, seed: int) -> Trace:
    """Return the trace with its arrivals, and the requests at them changed for others near by."""
    n = trace.num_requests
    places = np.arange(n) + np.random.default_rng(seed).random(n) * NEIGHBOURS
    rows = np.argsort(places, kind="stable")
    arrivals = trace.requests["arrival_s"]
    dealt = trace.take(rows)
    return dataclasses.replace(dealt, requests=dealt.requests.with_columns(arrivals))


def rows_of(found: dict[str, Any],
            control: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Yield each prediction's load, name and differences, of draws and of the yardstick."""
    yield "", "capacity [requests/s]", found["capacity_rps"], control["capacity_rps"]
    for load, own in zip(found["loads"], control["loads"], strict=True):
        for metric in METRICS:
            yield f"{load['load']:g} × {load['request_rate']:.3g}/s", metric, load[metric], own[metric]


def span(row: dict[str, Any]) -> str:
    """Return how far single replays are off."""
    return f"{100 * row['low']:+.0f} to {100 * row['high']:+.0f}"


def verdict(row: dict[str, Any], own: dict[str, Any]) -> str:
    """Say whether a prediction is close, and why it is not."""
    off = row["difference"]
    if abs(off) <= CLOSE:
        return "yes"
    widest = max(abs(own["low"]), abs(own["high"]))
    if abs(off) <= widest:
        return "no: no farther than the record dealt anew"
    return "no: in part the order of requests" if widest > CLOSE / 2 else "no: the model's"


def report_case(case: Case, trace: Trace, draws: list[Trace]) -> tuple[list[str], list[bool]]:
    """Return a case's lines, and which of its predictions are close."""
    objectives = parse_objectives(case.slo, case.attainment)
    found = compare_predictions(trace, draws, case.scenario, objectives)
    anew = [dealt_anew(trace, seed) for seed in range(DRAWS)]
    control = compare_predictions(trace, anew, case.scenario, objectives)
    lines = [f"## {case.title}", "",
             "| load | prediction | recorded | drawn | off [%] | single draws [%] | record dealt anew [%] | "
             "within 10 % |",
             "|---|---|---|---|---|---|---|---|"]
    close = []
    for load, name, row, own in rows_of(found, control):
        close.append(abs(row["difference"]) <= CLOSE)
        lines.append(f"| {load} | {name} | {row['recorded']:.4g} | {row['drawn']:.4g} | "
                     f"{100 * row['difference']:+.1f} | {span(row)} | {span(own)} | {verdict(row, own)} |")
    return [*lines, "", *stretch_lines(trace, found), ""], close


def stretch_lines(trace: Trace, found: dict[str, Any]) -> list[str]:
    """Say what it means where a deployment keeps its objectives only with the traffic stretched very far."""
    scale = found["capacity_rps"]["recorded"] / rate_of(trace)
    if scale >= STRETCHED:
        return []
    return [f"The capacity is 1/{1 / scale:.0f} of the recorded rate: this deployment is too small for the traffic. "
            f"Stretched so far, requests 10 ms apart come {0.01 / scale:.1f} s apart, and what decides is the order of "
            f"the gaps within a clump, of which the model keeps the law alone.", ""]


def model_lines(name: str, trace: Trace) -> tuple[list[str], list[Trace]]:
    """Return what the model of a trace is made of and how close its draws' statistics are, and the draws."""
    begin = time.perf_counter()
    model, candidates = fit_workload(trace)
    took_s = time.perf_counter() - begin
    draws = [generate(model, seed=seed) for seed in range(DRAWS)]
    tenant = model.tenants[0]
    values = trace.num_requests * 3 + (0 if trace.prefix is None else len(trace.prefix.values))
    tried = ", ".join(f"{each.process.process} {each.deviation:.2f} ({each.process.num_numbers})"
                      for each in candidates[tenant.name])
    lines = [f"### {name}", "", f"{model.num_numbers:,} numbers for a record of {values:,}; fitted in {took_s:.1f} s. "
             f"Arrivals: {tenant.arrivals.process}, {len(tenant.arrivals.window_s)} windows; {len(tenant.epochs)} "
             f"epochs of lengths. Burstiness off, in its tolerance (and numbers): {tried}.", "", "```",
             str(closeness_table({"statistics": compare_statistics(trace, draws)})), "```", ""]
    return lines, draws


def main() -> None:
    """Fit, draw, replay, print and write the report."""
    models, cases, close = [], [], []
    draws: dict[str, list[Trace]] = {}
    traces: dict[str, Trace] = {}
    for case in CASES:
        if case.trace not in traces:
            traces[case.trace] = read_trace(str(SHARED / case.trace))
            lines, draws[case.trace] = model_lines(case.trace, traces[case.trace])
            models += lines
        lines, found = report_case(case, traces[case.trace], draws[case.trace])
        print("\n".join(lines), flush=True)
        cases += lines
        close += found
    loads = ", ".join(f"{load:g}" for load in LOADS)
    text = "\n".join([
        "# Synthetic against recorded traffic", "",
        f"What a replay predicts of traces drawn from fitted models, against what it predicts of the recorded "
        f"trace; `python benchmarks/synthesis.py`. {sum(close)} of {len(close)} predictions (the median over {DRAWS} "
        f"draws) are within 10 % of the recorded trace's, at {loads} of its capacity.", "",
        f"Deployments, objectives and loads are others than those that the models were developed on. *Record dealt "
        f"anew* is the yardstick: the recorded trace, its arrivals as they are, its requests exchanged with others "
        f"within {NEIGHBOURS} places. A prediction that moves so far by that hangs on which request came in which "
        f"burst, and no model of the traffic can keep it.", "",
        *cases, "## The models", "", *models])
    (ROOT / "reports" / "synthesis.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
