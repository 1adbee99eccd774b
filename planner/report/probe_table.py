"""The benchmarks of `planner probe` and `planner measure` as text."""

from planner.files.counts import count_text, figure_text, share_text
from planner.planning.measure_answer import MeasureAnswer
from planner.planning.probe_answer import Benchmark, ProbeAnswer
from planner.report.text import Grid, Text

UNITS = {"mean_ttft_ms": "ms", "mean_tpot_ms": "ms", "mean_e2el_ms": "ms", "request_throughput": "requests/s",
         "output_throughput": "tokens/s"}


def probe_table(answer: ProbeAnswer) -> Text:
    """Return the benchmarks with their expected values and intervals, then the commands."""
    lines: list[str | Grid] = [f"capacity {answer.capacity_rps:.4g} requests/s, {answer.in_flight:.0f} requests in "
                               f"flight on average"]
    for each in answer.benchmarks:
        lines += ["", f"{each.name}: {_load(each)}", f"  tests {each.tests}"]
        rows = [(name, figure_text(value), UNITS[name], _between(each, name, answer.level))
                for name, value in each.expected.items()]
        lines.append(Grid(heads=("", "", "", ""), rows=rows, left=(0, 2, 3), indent=2))
    return Text([*lines, "", f"launch: {answer.launch}", *(each.command for each in answer.benchmarks),
                 f"verdict: {answer.verdict}"])


def measure_table(answer: MeasureAnswer) -> Text:
    """Return the runs of a campaign in order, and the commands around them."""
    rows = [(f"{run.max_concurrency:,}", f"{run.num_prompts:,}", f"{run.random_input_len:,}",
             f"{run.random_output_len:,}", f"{run.duration_s:.0f} s", share_text(run.uncertainty_left))
            for run in answer.runs]
    return Text([
        f"{count_text(len(answer.runs), 'run')}, about {answer.duration_s / 60:.0f} min; they leave "
        f"{share_text(answer.runs[-1].uncertainty_left)} of the uncertainty that the prior has over "
        f"{answer.num_candidates} loads",
        Grid(heads=("in flight", "prompts", "prompt length", "output length", "time", "uncertainty left"), rows=rows),
        "", f"launch: {answer.launch}", f"then: {answer.calibrate}"])


def probe_script(answer: ProbeAnswer) -> str:
    """Return a shell script that runs the benchmarks against a server that runs already."""
    head = ["#!/usr/bin/env bash", "# Benchmarks that test a predicted capacity. The server must run on port 8000:",
            *(f"# {line}" for line in answer.launch.splitlines()), "set -euo pipefail"]
    runs = [line for each in answer.benchmarks for line in (f"# {each.name}: {each.tests}", each.command)]
    return "\n".join([*head, *runs, "# The verdict, where planner is installed:", f"# {answer.verdict}"]) + "\n"


def _load(each: Benchmark) -> str:
    return (f"{each.max_concurrency:,} in flight, {count_text(each.num_prompts, 'request')} of "
            f"{each.random_input_len:,} and {each.random_output_len:,} tokens")


def _between(each: Benchmark, name: str, level: float) -> str:
    bounds = each.intervals.get(name)
    return "" if bounds is None else f"{figure_text(bounds[0])} to {figure_text(bounds[1])} ({100 * level:.0f} %)"
