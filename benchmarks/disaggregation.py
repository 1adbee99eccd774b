"""Prefill and decode together or apart: goodput over rate for long and short prompts, and where `size` crosses over.

Writes reports/disaggregation.md. By the bundled constants and workloads; every figure is a prediction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.replay_speed import ROOT
from planner.deployment.shaped_load import shape_load
from planner.planning.search_options import Choices
from planner.planning.size_answer import Fleet, UnableFleet
from planner.planning.sizing import size
from planner.run import replay
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.shaping.client_load import at_client_rate, random_load

REPLICAS = 8
NUM_REQUESTS = 1500
ONE = Scenario(model="llama-3.1-70b", gpu="h100-sxm", tensor_parallel_size=4, max_num_seqs=1024,
               max_num_batched_tokens=8192, router="least-outstanding-requests")  # limits of `vllm serve` on an H100
SLOW_LINK = 1.0  # GB/s: 10 Gbit/s Ethernet
SLO = "ttft:5000 tpot:30"
SIZED_TPOTS_MS = (30, 40, 60, 100)
FLEETS: Mapping[str, Mapping[str, Any]] = {
    "together": {}, "together, steps of 512 tokens": {"max_num_batched_tokens": 512},
    **{f"{prefill} + {REPLICAS - prefill}": {"prefill_replicas": prefill} for prefill in (2, 3, 4, 5, 6)},
    f"5 + 3, {SLOW_LINK:g} GB/s": {"prefill_replicas": 5, "kv_transfer_bandwidth": SLOW_LINK}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A trace, the rates to offer it at, and the rate that fleets are sized for."""

    name: str
    trace: Trace
    rates_per_s: tuple[float, ...]
    sized_per_s: float

    def at(self, rate_per_s: float) -> Trace:
        """Return its first requests at a rate."""
        return shape_load(Scenario(request_rate=rate_per_s, limit=NUM_REQUESTS), self.trace)


def workloads() -> tuple[Workload, Workload]:
    """Return one of long prompts, the bundled sample, and one of short ones, 64 tokens that 512 answer."""
    drawn = random_load(num_prompts=NUM_REQUESTS, input_tokens=64, output_tokens=512, range_ratio=0.5, seed=0)
    long = Workload(name="long-context", trace=read_trace("long-context"), sized_per_s=2.0,
                    rates_per_s=(1, 2, 2.5, 3, 3.5, 4, 5, 6))
    short = Workload(name="64 + 512 tokens", trace=at_client_rate(drawn, 1.0, seed=0), sized_per_s=20.0,
                     rates_per_s=(10, 20, 30, 40, 60, 80, 100))
    return long, short


def goodput(workload: Workload) -> list[str]:
    """Return the table of goodput over rate, of each fleet."""
    rows = []
    for rate in workload.rates_per_s:
        trace = workload.at(rate)
        found = [replay(trace, replace(ONE, data_parallel_size=REPLICAS, **own), slo=SLO).summary["request_goodput"]
                 for own in FLEETS.values()]
        cells = [f"**{value:.2f}**" if value == max(found) else f"{value:.2f}" for value in found]
        rows.append(f"| {rate:g} | {' | '.join(cells)} |")
    return [f"| {workload.name} [1/s] | {' | '.join(FLEETS)} |", "|" + "---|" * (len(FLEETS) + 1), *rows, ""]


def crossing(workload: Workload) -> list[str]:
    """Return the table of the fewest replicas that `size` finds, together and apart, by the limit on TPOT."""
    trace, rows = workload.at(workload.sized_per_s), []
    choices = Choices(gpus=(str(ONE.gpu),), quantizations=(None,), ranks=(ONE.tensor_parallel_size,), prices={},
                      disaggregate=True, compare_assumptions=False)
    for tpot_ms in SIZED_TPOTS_MS:
        objectives = parse_objectives(f"ttft:5000 tpot:{tpot_ms}", 0.95)
        fleets = size(trace, ONE, objectives, choices).alternatives
        rows.append(f"| {tpot_ms} | {_needed(fleets, is_apart=False)} | {_needed(fleets, is_apart=True)} |")
    return [f"| TPOT limit [ms], {workload.name} at {workload.sized_per_s:g}/s | together | prefill + decode |",
            "|---|---|---|", *rows, ""]


def _needed(fleets: Sequence[Fleet | UnableFleet], *, is_apart: bool) -> str:
    """Return how many replicas a kind of fleet needs."""
    for fleet in fleets:
        if isinstance(fleet, Fleet) and bool(fleet.prefill_replicas) == is_apart:
            prefill, decode = fleet.prefill_replicas, fleet.num_replicas - fleet.prefill_replicas
            return f"{prefill} + {decode}" if prefill else str(decode)
    return "none does"


def main() -> None:
    """Run all, print the tables and write them."""
    loads = workloads()
    lines = [
        "# Prefill and decode, together or apart", "",
        f"{REPLICAS} replicas of Llama-3.1-70B, each on four H100, {NUM_REQUESTS:,} requests: "
        "`python -m benchmarks.disaggregation`. Every figure is a prediction.", "",
        f"Goodput [requests/s within {SLO} ms] over the rate offered; 5 + 3: five replicas prefill, three decode.", "",
        *(line for workload in loads for line in goodput(workload)),
        "Fewest replicas that keep 95 % within TTFT 5,000 ms and the limit, by `planner size --disaggregate`.", "",
        *(line for workload in loads for line in crossing(workload))]
    print("\n".join(lines))
    (ROOT / "reports" / "disaggregation.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
