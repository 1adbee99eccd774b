"""A saved plan for a watch: its replay, and replays of its deployment at the traffic of a server's metrics."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.deployment.deploy import resolve
from planner.errors import PlannerError, UsageError
from planner.files.nested import parse_json
from planner.measured.counted_traffic import CountedLengths, CountedTraffic
from planner.measured.drawn_traffic import model_of_traffic
from planner.measured.scraped import Histogram
from planner.planning.prediction_error import hurried, step_error
from planner.planning.study import Study, parse_command
from planner.replays.fleet.replicas import serve
from planner.replays.result_tables import ReplayResult
from planner.results.saved import SUMMARY
from planner.results.uncertainty import residuals_for
from planner.run import replay
from planner.settings.objectives import Objectives
from planner.settings.scenario import LOAD_OPTIONS, OPTION_DEFAULTS, Scenario
from planner.traces import Trace
from planner.traces.shaping.burstiness import gap_cv
from planner.traces.shaping.client_load import read_load
from planner.traces.synthesis.generate import generate

Floats = NDArray[np.float64]

LEVEL = 0.8  # of the published intervals
MOST_GAP_CV = 20.0  # variation of gaps that a model draws
NUM_BUCKETS = 50  # of lengths without a histogram
WITHOUT_ERRORS = 0.1  # error of step times without published errors [1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Requests that ended in a time, as a server counts them.

    Parameters
    ----------
    requests : rows of `ReplayResult.requests_table` that are completed, with `end_s`.
    duration_s : length of the time [s].
    kv_use : mean share of KV blocks in use, over the whole replay [1].
    """

    requests: pl.DataFrame
    duration_s: float
    kv_use: float

    @property
    def rate_rps(self) -> float:
        """Requests that end in a second [1/s]."""
        return self.requests.height / self.duration_s

    def mean(self, name: str) -> float:
        """Return the mean of a column; 0 without a value."""
        values = self.column(name)
        return float(values.mean()) if len(values) else 0.0

    def column(self, name: str) -> Floats:
        """Return the known values of a column."""
        return np.asarray(self.requests[name].drop_nulls().to_numpy(), np.float64)

    @property
    def cached_share(self) -> float:
        """Share of the prompt tokens that the prefix cache had [1]."""
        return float(self.column("num_cached_tokens").sum() / max(self.column("input_tokens").sum(), 1.0))

    def in_state(self, name: str) -> float:
        """Return the mean number of requests that are "running" or "waiting", by Little's law [1]."""
        waits_s = self.mean("queue_s")
        return self.rate_rps * (waits_s if name == "waiting" else self.mean("e2e_s") - waits_s)

    def tpot_s(self, kind: str) -> tuple[Floats, Floats]:
        """Return TPOT of requests and their weights: 1, or their number of gaps for histograms of all gaps ("itl")."""
        several = self.requests.filter(pl.col("tpot_s").is_not_null())
        gaps = several["output_tokens"].to_numpy().astype(np.float64) - 1.0
        return several["tpot_s"].to_numpy().astype(np.float64), gaps if kind == "itl" else np.ones(len(gaps))

    def times_s(self, kind: str) -> tuple[Floats, Floats]:
        """Return the values that a histogram of a kind has, and their weights."""
        if kind == "ttft":
            return self.column("ttft_s"), np.ones(len(self.column("ttft_s")))
        return self.tpot_s(kind)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """A saved plan with its replay.

    Parameters
    ----------
    study : its trace, deployment, load and objectives.
    result : its replay.
    ended : all requests of the replay.
    num_spare : spare replicas beside the replayed ones.
    """

    study: Study
    result: ReplayResult
    ended: Ended
    num_spare: int

    @property
    def objectives(self) -> Objectives:
        """The objectives; empty without any."""
        return self.study.objectives or Objectives()

    def option(self, name: str) -> Any:
        """Return the value in force of an option; None if it follows from the trace."""
        if name == "num_gpu_blocks":
            return int(self.result.replicas[0].settings.num_gpu_blocks)
        return self.result.deployment.options()[name]

    @property
    def num_replicas(self) -> int:
        """Replicas of the replay, all ranks of data-parallel attention of an engine as one."""
        return self.result.num_replicas // self.result.deployment.layout.data_parallel_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTimes:
    """Two replays at measured traffic: as predicted, and with steps that take longer by the published error."""

    ended: Ended
    slower: Ended
    factor: float  # steps of `slower` over steps of `ended`


def read_plan(path: Path) -> Plan:
    """Read a plan that `size`, `capacity` or `replay` wrote with --json, or a folder of replay --save; replay it.

    Raises
    ------
    PlannerError : the file cannot be read, has no replay_command, or its trace has changed since.
    """
    file = path / SUMMARY if path.is_dir() else path
    try:
        saved = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlannerError(f"cannot read the plan {path}: {error}; write one with planner size --json") from error
    line = saved.get("replay_command") if isinstance(saved, dict) else None
    if not isinstance(line, str):
        raise PlannerError(f"{path}: has no replay_command; must be the --json of planner size, capacity or replay "
                           f"whose objectives are met")
    study = parse_command(line)
    trace = read_load(study.trace, study.scenario, study.format, study.on_bad_rows)
    if saved.get("trace_sha256") not in (None, trace.sha256):
        raise PlannerError(f"{path}: trace {study.trace} has changed since the plan was made; make the plan again")
    result = replay(trace, study.scenario, slo=study.objectives).result
    ended = _ended(result, 0.0, math.inf)
    if not ended.requests.height:
        raise PlannerError(f"{path}: the replay of the plan completes no request; make the plan again")
    spare = saved.get("num_spare")
    return Plan(study=study, result=result, ended=ended, num_spare=spare if isinstance(spare, int) else 0)


def _ended(result: ReplayResult, begin_s: float, end_s: float, factor: float = 1.0) -> Ended:
    """Return the requests of a replay that end in a time, all times longer by a factor."""
    times = [pl.col(name) * factor for name in ("arrival_s", "queue_s", "ttft_s", "tpot_s", "e2e_s")]
    done = result.requests_table().filter(pl.col("status") == "completed").with_columns(times)
    done = done.with_columns(end_s=pl.col("arrival_s") + pl.col("e2e_s"))
    kept = done.filter((pl.col("end_s") >= begin_s) & (pl.col("end_s") < end_s))
    whole_s = max(result.duration_s, 1e-9)
    room_block_s = whole_s * sum(int(replica.settings.num_gpu_blocks) for replica in result.replicas)
    return Ended(requests=kept, duration_s=end_s - begin_s if math.isfinite(end_s) else whole_s * factor,
                 kv_use=float(result.records.engine.kv_block_s) / room_block_s)


def drawn(plan: Plan, traffic: CountedTraffic, times: int) -> Trace:
    """Return a trace of traffic that is repeated some times.

    Within windows it is as bursty as the plan's trace. Lengths without a histogram are spread as the plan's.
    """
    lengths = {side: part if len(part.edges) else _spread_out(part, plan.ended.column(f"{side}_tokens"))
               for side, part in traffic.lengths.items()}
    bursts = gap_cv(plan.result.trace.requests["arrival_s"].to_numpy())
    traffic = replace(
        traffic, requests=np.tile(traffic.requests, times),
        edges_s=np.append(0.0, np.cumsum(np.tile(traffic.window_s, times))),
        cached=None if traffic.cached is None else np.tile(traffic.cached, (times, 1)),
        lengths={side: replace(part, counts=np.tile(part.counts, (times, 1)), num=np.tile(part.num, times),
                               sums=np.tile(part.sums, times)) for side, part in lengths.items()})
    model = model_of_traffic(traffic, gap_cv=1.0 if bursts is None else min(bursts, MOST_GAP_CV), correlation=0.0,
                             seed=0)
    return generate(model, seed=None)


def _spread_out(part: CountedLengths, planned: Floats) -> CountedLengths:
    """Return lengths of the same means with the plan's distribution, in `NUM_BUCKETS`."""
    edges = np.unique(np.quantile(planned, np.linspace(0.0, 1.0, NUM_BUCKETS + 1)[1:]))
    shares = np.diff(np.searchsorted(np.sort(planned), edges, side="right"), prepend=0) / len(planned)
    return replace(part, edges=edges * part.mean / planned.mean(), counts=part.num[:, None] * shares)


def deployed(plan: Plan) -> Scenario:
    """Return the scenario of a plan without the options of its load, for traffic of metrics."""
    options: dict[str, Any] = {name: OPTION_DEFAULTS[name] for name in LOAD_OPTIONS}
    return replace(plan.study.scenario, **options)


def prediction_at(plan: Plan, traffic: CountedTraffic) -> ExpectedTimes:
    """Replay a plan's deployment at the traffic of one window; the same traffic before it fills the server."""
    window_s = float(traffic.window_s.sum())
    error = published_error(plan)
    factor = 1.0 + (WITHOUT_ERRORS if error is None else error)
    trace = drawn(plan, traffic, 2)
    deployment = resolve(deployed(plan), trace)
    as_predicted, slower = (_ended(serve(hurried(trace, times), deployment), window_s, 2 * window_s, times)
                            for times in (1.0, factor))
    return ExpectedTimes(ended=as_predicted, slower=slower, factor=factor)


def published_error(plan: Plan) -> float | None:
    """Return the published error of the step times; None if there is none [1]."""
    return step_error(plan.result.deployment)


def published_high(plan: Plan, metric: str, predicted: float) -> float:
    """Return the upper end of the published interval of a time; the time itself without one."""
    try:
        bounds = residuals_for(plan.result.deployment).interval(metric, predicted, LEVEL)
    except UsageError:  # step times are a line
        return predicted
    return predicted if bounds is None else bounds[1]


def as_histogram(values: Floats, weights: Floats, like: Histogram) -> Histogram:
    """Return values counted in the buckets of another histogram, so that quantiles have the same error."""
    order = np.argsort(values)
    upto = np.append(0.0, np.cumsum(weights[order]))
    edges = [(edge, float(upto[np.searchsorted(values[order], edge, side="right")])) for edge, _ in like.edges]
    return Histogram(edges, float(weights.sum()), float((values * weights).sum()))


def percentiles(objectives: Objectives) -> Mapping[str, tuple[str, float, float]]:
    """Return the percentiles of TTFT and TPOT that objectives limit, by key: the metric, the share and the limit [s].

    >>> from planner.settings.objectives import parse_objectives
    >>> dict(percentiles(parse_objectives("ttft:500 p90_tpot:50", 0.99)))
    {'p99_ttft_ms': ('ttft', 0.99, 0.5), 'p90_tpot_ms': ('tpot', 0.9, 0.05)}
    """
    share = objectives.attainment if objectives.attainment is not None and objectives.attainment < 1 else 0.99
    asked = [(metric, 100 * share, limit_s) for metric, limit_s in objectives.slo.limits_s.items()]
    asked += [(one.metric, one.percentile, limit_s) for one, limit_s in objectives.statistics.items()
              if one.percentile is not None]
    return {f"p{percent:g}_{metric}_ms": (metric, percent / 100, limit_s) for metric, percent, limit_s in asked
            if metric in ("ttft", "tpot")}
