"""A year of traffic sized by strata of its rates, and a week by strata against the week itself.

Run `python -m benchmarks.strata`: it writes reports/strata.md. The week takes 3 GB of memory.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planner.deployment.deploy import resolve
from planner.planning.loads import StrataTraffic, traffic_of
from planner.planning.search_options import Choices
from planner.planning.sizing import size
from planner.replays.fleet.replicas import serve
from planner.settings.objectives import Objectives, judge, parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.shaping.rate_series import RateSeries
from planner.traces.shaping.strata import at_rates

REPORT = Path(__file__).resolve().parent.parent / "reports" / "strata.md"
COLUMNS = ("p50 TTFT [ms]", "p99 TTFT [ms]", "p50 TPOT [ms]", "p99 TPOT [ms]")
HOUR_S = 3600.0
WEEK_RPS, YEAR_REQUESTS = 16.0, 1e9
SCENARIO = Scenario(model="llama-3.1-8b", gpu="h100-sxm", router="random")
SLO = "p99_ttft:500 p99_tpot:30"
COUNTS, STRATA = (2, 3, 4, 5), (12, 24, 48, 96, 192)


class Row(NamedTuple):
    """A replay of a load by a number of replicas: its percentiles as `COLUMNS` [ms], and its wall time [s]."""

    num_replicas: int
    name: str
    values_ms: list[float]
    is_met: bool
    seconds: float


def hourly(num_hours: int, mean_rps: float, seed: int) -> RateSeries:
    """Return rates with days, weekends, growth by half a year and noise of 15 %, at a mean rate."""
    hours, rng = np.arange(num_hours, dtype=np.float64), np.random.default_rng(seed)
    day = 1.0 + 0.6 * np.sin(2 * np.pi * (hours % 24 - 9) / 24)
    rates = day * np.where((hours // 24) % 7 < 5, 1.0, 0.6) * np.exp(0.5 * hours / 8760)
    rates *= np.exp(0.15 * rng.standard_normal(num_hours))
    return RateSeries(source="synthetic", start_s=HOUR_S * hours, duration_s=np.full(num_hours, HOUR_S),
                      rate_rps=rates * mean_rps / rates.mean())


def main() -> None:
    """Replay the week in full and by strata, size the year, and write the report."""
    trace, objectives = read_trace("chat"), parse_objectives(SLO)
    week = hourly(168, WEEK_RPS, 1)
    full = at_rates(trace, week.rate_rps.tolist(), np.round(week.rate_rps * week.duration_s).astype(int).tolist(),
                    "thin", 0)
    loads = {f"the week, {full.num_requests:,} requests": full}
    for count in STRATA:
        traffic = traffic_of(trace, SCENARIO, "thin", week, count)
        assert isinstance(traffic, StrataTraffic)
        loads[f"{count} strata"] = traffic.load()
        loads[f"{count} strata, drawn again"] = traffic.drawn_again(1)
    rows = [_row(name, load, objectives, count) for count in COUNTS for name, load in loads.items()]
    started = time.perf_counter()
    year = hourly(8760, YEAR_REQUESTS / (8760 * HOUR_S), 5)
    answer = size(trace, SCENARIO, objectives, Choices(gpus=("h100-sxm",), ranks=(1,), series=year, num_strata=96,
                                                       compare_assumptions=False))
    text = _report(rows, answer, time.perf_counter() - started)
    REPORT.write_text(text)
    print(text)


def _row(name: str, load: Trace, objectives: Objectives, count: int) -> Row:
    started = time.perf_counter()
    served = serve(load, resolve(SCENARIO, load), count)
    seconds, times_s = time.perf_counter() - started, served.times_s
    values = [1e3 * float(np.nanpercentile(times_s[metric], q)) for metric in ("ttft", "tpot") for q in (50, 99)]
    return Row(count, name, values, judge(objectives, times_s).is_met, seconds)


def _off(rows: list[Row]) -> float:
    """Return the largest error of the strata's p99, of fleets that keep the targets in the week [1]."""
    full = {row.num_replicas: row for row in rows if row.name.startswith("the week")}
    return max(abs(row.values_ms[k] / full[row.num_replicas].values_ms[k] - 1.0)
               for row in rows if full[row.num_replicas].is_met for k in (1, 3))


def _report(rows: list[Row], answer: Any, seconds: float) -> str:
    heads = ("replicas", "load", *COLUMNS, "keeps the targets", "replay [s]")
    cells = [(str(row.num_replicas), row.name, *(f"{value:,.4g}" for value in row.values_ms),
              "yes" if row.is_met else "no", f"{row.seconds:.1f}") for row in rows]
    table = ["| " + " | ".join(each) + " |" for each in (heads, ["---"] * len(heads), *cells)]
    agree = all(row.is_met == full.is_met for row in rows for full in rows
                if full.name.startswith("the week") and full.num_replicas == row.num_replicas)
    best, assumed = answer.cheapest, answer.assumptions[0]
    return "\n".join([
        "# A year by strata", "",
        f"Hourly rates with days, weekends, growth and noise; the bundled chat trace, thinned; Llama-3.1-8B on H100, "
        f"replicas behind a random router; targets `{SLO}`. Written by `python -m benchmarks.strata`.", "",
        "## A week in full and by strata", "",
        f"Where the week keeps its targets, p99 of TTFT and TPOT by strata is at most {_off(rows):.1%} off. "
        f"{'All' if agree else 'Not all'} verdicts are the same.", "",
        *table, "",
        "## A year", "",
        f"`planner size chat --rate-series year.csv --strata 96` for {YEAR_REQUESTS:,.0f} requests in 8,760 hours: "
        f"{best.num_replicas} replicas in {seconds:.0f} s. {assumed[0].upper()}{assumed[1:]}.",
        *(f"{note[0].upper()}{note[1:]}." for note in answer.notes if "strata" in note), ""])


if __name__ == "__main__":
    main()
