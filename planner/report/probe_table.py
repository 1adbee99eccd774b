"""The benchmarks of `planner probe` as text: their expected numbers and their commands."""

from planner.files.counts import count_text
from planner.planning.probe_answer import Benchmark, ProbeAnswer

UNITS = {"mean_ttft_ms": "ms", "mean_tpot_ms": "ms", "mean_e2el_ms": "ms", "request_throughput": "requests/s",
         "output_throughput": "tokens/s"}


def probe_table(answer: ProbeAnswer) -> str:
    """Return the benchmarks with their expected values and intervals, then the commands, as text."""
    lines = [f"capacity {answer.capacity_rps:.4g} requests/s, {answer.in_flight:.0f} requests in flight on average"]
    for each in answer.benchmarks:
        lines += ["", f"{each.name}: {_load(each)}", f"  tests {each.tests}"]
        lines += [f"  {name:20} {value:>12,.4g} {UNITS[name]:11}{_between(each, name, answer.level)}".rstrip()
                  for name, value in each.expected.items()]
    return "\n".join([*lines, "", f"launch: {answer.launch}", *(each.command for each in answer.benchmarks),
                      f"verdict: {answer.verdict}"])


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
    return "" if bounds is None else f"{bounds[0]:,.4g} to {bounds[1]:,.4g} ({100 * level:.0f} %)"
