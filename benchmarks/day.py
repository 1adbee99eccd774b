"""A recorded day of RAG traffic: fewest GPUs, router, prefix cache and autoscaler, by replays of the whole day.

`python benchmarks/day.py TRACE [RATE]`. TRACE is `0_trace.jsonl` of RAGPulse (https://github.com/flashserve/RAGPulse,
MIT), a week of a university's question service, sampled; its chunk lengths lie beside it. The day is its first recorded
day with more users of the same kind (`--duration 86400 --scaling thin`), at RATE requests/s in the mean (0.5). Prompts
share the recorded chunks. Writes reports/day.md with the answers, and wall time and processors' time of each question.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from planner import read_trace, replay
from planner.deployment.deploy import resolve
from planner.deployment.shaped_load import shape_load
from planner.planning.fewest import fewest_replicas
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace

ROOT = Path(__file__).resolve().parent.parent

DAY_S = 86_400.0
RATE_PER_S = 0.5
SLO, ATTAINMENT = "ttft:3000 tpot:120", 0.99
SERVING = Scenario(model="llama-3.1-8b", quantization="fp8", gpu="l4")
ROUTERS = ("random", "round-robin", "least-outstanding-requests", "prefix-aware")
LEAST = "least-outstanding-requests"
RULES = """\
minimum = 1
maximum = {most}
interval_s = 15
startup = {{ node_s = 60, image_s = 30, weights_gb_per_s = 2.0, warmup_s = 45 }}

[down]
stabilization_window_s = 300
max_step = 1
step_period_s = 60

[[metric]]
name = "request-rate"
target = {target}
window_s = 120
"""

Answer = TypeVar("Answer")


class Clock:
    """Wall time and processors' time of each question [s]; processes that a question starts count too."""

    def __init__(self) -> None:
        self.taken: dict[str, tuple[float, float]] = {}

    def time(self, question: str, ask: Callable[[], Answer]) -> Answer:
        """Ask a question and keep its times."""
        wall, processors = time.perf_counter(), _processors_s()
        answer = ask()
        self.taken[question] = time.perf_counter() - wall, _processors_s() - processors
        print(f"{question}: {self.taken[question][0]:.1f} s, processors {self.taken[question][1]:.1f} s", flush=True)
        return answer


def _processors_s() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def a_day(trace: Trace, rate_per_s: float) -> Trace:
    """Return the first recorded day with more users of the same kind."""
    return shape_load(Scenario(duration=DAY_S, request_rate=rate_per_s, scaling="thin"), trace)


def served(day: Trace, **options: Any) -> Mapping[str, Any]:
    """Return the summary of a replay of the day."""
    return replay(day, replace(SERVING, **options), slo=SLO).summary


def autoscaled(day: Trace, most: int, target: float) -> Mapping[str, Any]:
    """Return the summary of a replay with an autoscaler, which asks for a replica for each `target` requests/s."""
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rate.toml"
        rules.write_text(RULES.format(most=most, target=target), encoding="utf-8")
        return served(day, router=LEAST, autoscale=str(rules))


def row(name: str, summary: Mapping[str, Any]) -> str:
    """Return a row of the table of replays."""
    replicas = summary.get("replicas_mean") or summary["deployment"]["num_replicas"]
    return (f"| {name} | {replicas:.2f} | {summary['gpu_hours']:.1f} | {100 * summary['slo_attainment']:.2f} % | "
            f"{summary['p99_ttft_ms']:,.0f} | {summary['p99_tpot_ms']:.1f} | "
            f"{100 * (summary['prefix_cache_hit_rate'] or 0.0):.1f} % |")


def main(path: str, rate_per_s: float = RATE_PER_S) -> None:
    """Ask the questions, print their times and write the report."""
    clock = Clock()
    day = clock.time("read the week and make the day", lambda: a_day(read_trace(path), rate_per_s))
    objectives = parse_objectives(SLO, ATTAINMENT)
    count = clock.time("fewest GPUs", lambda: fewest_replicas(
        day, resolve(replace(SERVING, router=LEAST), day), objectives, guess=2)[0])
    routers = {name: clock.time(f"router {name}", partial(served, day, data_parallel_size=count, router=name))
               for name in ROUTERS}
    uncached = clock.time("without a prefix cache", lambda: served(
        day, data_parallel_size=count, router=LEAST, enable_prefix_caching=False))
    target = rate_per_s / max(count - 1, 1)
    scaled = clock.time("autoscaler", lambda: autoscaled(day, count + 1, target))
    wall_s, processors_s = (sum(times) for times in zip(*clock.taken.values(), strict=True))
    lines = [
        "# A recorded day", "",
        f"The trace has {day.num_requests:,} requests of 24 hours, {rate_per_s:g}/s on average. It is the first day of "
        f"[RAGPulse](https://github.com/flashserve/RAGPulse), a university's question service, with more users of the "
        f"same kind (`--duration 86400 --request-rate {rate_per_s:g} --scaling thin`). Llama 3.1 8B in FP8 on L4 under "
        f"vLLM; {SLO} for {ATTAINMENT:.0%} of the requests. Every answer is a replay of the whole day by "
        f"`python benchmarks/day.py TRACE`.", "",
        f"The fewest GPUs that keep the objectives are {count} with the router {LEAST}.", "",
        "| replay | replicas | GPU-hours | within limits | p99 TTFT [ms] | p99 TPOT [ms] | prefix hits |",
        "|---|---|---|---|---|---|---|",
        *(row(f"router {name}", summary) for name, summary in routers.items()),
        row(f"{LEAST}, no prefix cache", uncached),
        row(f"{LEAST}, autoscaler: a replica for each {target:.2g} requests/s", scaled), "",
        "| question | wall time [s] | processors [s] |", "|---|---|---|",
        *(f"| {name} | {wall:.1f} | {processors:.1f} |" for name, (wall, processors) in clock.taken.items()),
        f"| **all** | {wall_s:.1f} | {processors_s:.1f} |", "",
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the end; if it is above the number of "
        f"cores, other work ran, and wall times are longer than on a quiet machine. A study of a recorded day of RAG "
        f"traffic with another simulator took 40 CPUs and up to two hours a suggestion "
        f"([peers](../docs/peers.md), source 20). The model, the rate and the questions differ, so this is an order of "
        f"magnitude, not a comparison.", ""]
    (ROOT / "reports" / "day.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
