"""Predictions against measurements: the values of a replay of each measured run, and their errors."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.deployment.deploy import Deployment, deploy, resolve_pools
from planner.errors import PlannerError
from planner.files.keys import asdict
from planner.loop.state.engine_settings import Recording
from planner.loop.state.engine_state import FAILED, REJECTED
from planner.loop.state.terms import StepTime
from planner.measured.agentic import OF_SERVER, server_figures, warm_ttft
from planner.measured.agentic_load import is_warm
from planner.measured.lanes import HITS, hit_rates
from planner.measured.lanes_load import counted_window
from planner.measured.run_table import GROUPS, METRICS, Measurement, counted
from planner.measured.stalls import MEANS, STEADY, Stall, stall_of
from planner.measured.statistics import POWER, THROUGHPUT, statistics
from planner.measured.validate_answer import Errors, ErrorSummary, GroupErrors
from planner.progress import in_parallel, later
from planner.replays.driver import run
from planner.replays.fleet.replicas import serve
from planner.replays.fleet.shares import shares
from planner.replays.result_tables import ReplayResult, Replica
from planner.results.summary import describe_weighted
from planner.results.utilization import hardware
from planner.steptime.engine_constants import EngineConstants
from planner.traces import Trace
from planner.traces.shaping.client_load import NAME
from planner.traces.times import TIMES

NO_ROWS = Recording()
FEW = 64  # runs that are through before processes would have started


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The values of a replay of one measured run.

    Parameters
    ----------
    measurement : the run.
    predicted : by the names of METRICS, and of other measured values; empty without a prediction.
    status : "ok", or why there is no prediction.
    stall : of one wave of its requests, if the measurement shows one (`with_stalls`).
    """

    measurement: Measurement
    predicted: Mapping[str, float]
    status: str
    stall: Stall | None = None


def predict(measurement: Measurement, constants: EngineConstants | None = None) -> Prediction:
    """Replay one measured run.

    Parameters
    ----------
    constants : in place of the engine's bundled ones.
    """
    if measurement.status != "ok":
        return Prediction(measurement=measurement, predicted={}, status=measurement.status)
    try:
        if measurement.pools and constants is not None:
            return Prediction(measurement=measurement, predicted={},
                              status="prefill and decode apart: pools take their engines' constants, no calibration")
        return _predicted(measurement, *served(measurement, constants))
    except PlannerError as error:
        return Prediction(measurement=measurement, predicted={}, status=str(error))


def served(measurement: Measurement, constants: EngineConstants | None = None) -> tuple[ReplayResult, tuple[int, int]]:
    """Replay one measured run, and return the GPUs by which its client counts output tokens and all tokens."""
    if measurement.pools:
        return _served_apart(measurement)
    return _served_alone(measurement, deploy_measured(measurement, constants))


def deploy_measured(measurement: Measurement, constants: EngineConstants | None = None) -> Deployment:
    """Make the deployment of a measured run concrete; its `status` must be "ok"."""
    scenario, load = measurement.scenario, measurement.load
    assert scenario is not None
    assert load is not None
    longest: Any = (load.requests["input_tokens"] + load.requests["output_tokens"]).max()
    return deploy(scenario, layout=measurement.layout, constants=constants, longest_request=int(longest),
                  enable_prefix_caching=bool(scenario.enable_prefix_caching))


def replay_measured(measurement: Measurement, deployment: Deployment) -> Prediction:
    """Replay one measured run on a deployment, and take the statistics that its client reports.

    Neither the opening requests count nor requests of a recorded load without measured times. There is no prediction
    if one that was measured does not fit: the server had another deployment.
    """
    return _predicted(measurement, *_served_alone(measurement, deployment))


def _served_alone(measurement: Measurement, deployment: Deployment) -> tuple[ReplayResult, tuple[int, int]]:
    """Replay a measured run of one engine; turns that wait for one another on one clock, with all attention ranks."""
    load = measurement.load
    assert load is not None
    step_time = _for_text(deployment.step_time, measurement.reading / measurement.tokens_per_counted)
    if {"parent_id", "session_id"} & set(load.requests.columns):
        gpus = deployment.num_gpus
        return serve(load, replace(deployment, step_time=step_time)), (gpus, gpus)
    replayed = run(load, deployment.policy, deployment.settings, step_time, NO_ROWS)
    gpus = 0 if measurement.layout is None else measurement.layout.gpus_per_rank
    replica = Replica(replayed.engine, replayed.settings, replayed.links)
    return ReplayResult(trace=load, deployment=deployment, records=replayed, replicas=(replica,)), (gpus, gpus)


def _served_apart(measurement: Measurement) -> tuple[ReplayResult, tuple[int, int]]:
    """Replay a measured run whose prefill and decode are apart: all workers behind one router.

    Output tokens are counted by GPU that decodes, all tokens by GPU of either side, as InferenceX does.
    """
    scenario, load = measurement.scenario, measurement.load
    assert scenario is not None
    assert load is not None
    deployment = resolve_pools(scenario, measurement.pools, load, f"row {measurement.id}")
    decoding = sum(pool.num_gpus for pool in deployment.pools if pool.role == "decode")
    return serve(load, deployment), (decoding, deployment.num_gpus)


def _predicted(measurement: Measurement, result: ReplayResult, gpus: tuple[int, int]) -> Prediction:
    """Take the statistics that a client reports of a replay.

    Parameters
    ----------
    gpus : by which output tokens and all tokens are counted [1].
    """
    assert measurement.load is not None
    deployment, replayed = result.deployment, result.records
    records = replayed.requests
    has_times = is_measured(measurement.load)
    refused = has_times & np.isin(records.state, (REJECTED, FAILED))
    if refused.any():
        return Prediction(measurement=measurement, predicted={}, status=_misfit(measurement.load, refused, deployment))
    done = np.isfinite(records.finished_s)
    counts = done & (np.arange(len(records)) >= measurement.num_opening) & has_times
    begin_s = 0.0 if measurement.load.format == NAME else records.arrival_s.min()  # a client waits before it sends
    makespan_s = replay_s = float(records.finished_s[done].max(initial=begin_s) - begin_s)
    all_outputs = float(records.num_output_tokens[done].sum())
    if measurement.is_lanes:
        counts, makespan_s = counted_window(records, measurement.num_opening)
        done = counts
    if not counts.any():
        return Prediction(measurement=measurement, predicted={}, status="no request of the replay was completed")
    kept = records[counts]
    times_s = {"ttft": kept.first_token_s - kept.arrival_s, "e2el": kept.finished_s - kept.arrival_s,
               "tpot": (kept.finished_s - kept.first_token_s)
               / np.where(kept.num_output_tokens > 1, kept.num_output_tokens - 1.0, math.nan)}
    names = METRICS if set(measurement.measured) <= set(METRICS) else tuple(measurement.measured)
    predicted = statistics(names, times_s, makespan_s)
    if any("itl_ms" in name for name in names) and (gaps := float((kept.num_output_tokens - 1).sum())) > 0:
        of_gaps = describe_weighted(replayed.gaps.values_s, replayed.gaps.counts)  # of all gaps, not of requests
        token_gap_ms = 1e3 * float((kept.finished_s - kept.first_token_s).sum()) / gaps
        tokens = float((records.num_output_tokens[done] - 1).sum()) / max(float(replayed.gaps.counts.sum()), 1.0)
        itl = {f"{name}_itl_ms": value for name, value in asdict(of_gaps).items()} | {
            "itl_ms": token_gap_ms,  # a server counts tokens, a client the messages that have one or more
            "mean_itl_ms": token_gap_ms * max(tokens, 1.0)}
        predicted |= {name: value for name in names if (value := itl.get(name)) is not None}
    inputs = measurement.load.requests["input_tokens"].to_numpy()[done].sum()
    outputs = records.num_output_tokens[done].sum()
    if set(HITS) & set(names):
        predicted |= hit_rates(replayed, counts)
    if OF_SERVER in names:
        predicted |= server_figures(replayed, makespan_s, float(kept.finished_s.max()))
        predicted |= warm_ttft(times_s["ttft"], is_warm(measurement.load)[counts])
    predicted |= _throughput(measurement, names, float(inputs), float(outputs), makespan_s, gpus)
    if set(POWER) & set(names):
        predicted |= _power(result, names, all_outputs, replay_s)
    return Prediction(measurement=measurement, predicted=predicted, status="ok")


def _throughput(measurement: Measurement, names: Sequence[str], inputs: float, outputs: float, makespan_s: float,
                gpus: tuple[int, int]) -> dict[str, float]:
    """Return the tokens per second and GPU that the client counts, by the requested statistics."""
    if not min(gpus) or not makespan_s > 0:
        return {}
    tokens = (outputs, outputs + inputs / measurement.tokens_per_counted)
    return {name: value / makespan_s / count for name, value, count in zip(THROUGHPUT, tokens, gpus, strict=True)
            if name in names}


def _power(result: ReplayResult, names: Sequence[str], outputs: float, makespan_s: float) -> dict[str, float]:
    """Return the mean power of a GPU board [W], and the energy of all boards by output token [J]."""
    figures = hardware(shares(result, makespan_s), makespan_s)
    if figures.energy_kwh is None:
        return {}
    values = (1e3 * figures.energy_kwh / figures.gpu_hours, 3.6e6 * figures.energy_kwh / outputs)
    return {name: value for name, value in zip(POWER, values, strict=True) if name in names}


def _misfit(load: Trace, refused: NDArray[np.bool_], deployment: Deployment) -> str:
    """Say which of the measured requests do not fit, and which settings to check."""
    lengths: Any = load.requests["input_tokens"] + load.requests["output_tokens"]
    longest, settings = int(lengths.filter(refused).max()), deployment.settings
    return (f"{refused.sum():,} of {load.num_requests:,} requests were served but do not fit, the longest with "
            f"{longest:,} tokens: max_model_len = {settings.max_model_len:,}, and KV blocks hold "
            f"{settings.num_gpu_blocks * settings.block_size:,}; give the server's num_gpu_blocks or its limits")


def _for_text(step_time: StepTime, reading: float) -> StepTime:
    """Return the step time of a run whose text takes longer or shorter to read, a token, than the fits' random text.

    DeepSeek's tokeniser takes 13 to 20 µs for each token that the client counted, if it makes one of it or five.
    """
    terms = step_time.terms.copy()
    terms["frontend_s_per_token"] *= reading
    return step_time._replace(terms=terms)


def is_measured(load: Trace) -> NDArray[np.bool_]:
    """Return which requests of a load count: all, or in a recorded load the requests with a measured time."""
    measured = [load.requests[name].is_not_null() for name in TIMES if name in load.requests.columns]
    if not measured:
        return np.ones(load.num_requests, bool)
    is_counted: NDArray[np.bool_] = np.any([column.to_numpy() for column in measured], axis=0)
    return is_counted


def predict_all(measurements: Sequence[Measurement], *, jobs: int = -1) -> list[Prediction]:
    """Replay measured runs, over processes.

    Parameters
    ----------
    jobs : processes; -1 for as many as there are cores.
    """
    if len(measurements) < FEW:
        return _predict_chunk(measurements)
    chunks = [list(measurements[k::64]) for k in range(min(64, len(measurements)))]
    calls = [later(_predict_chunk)(chunk) for chunk in chunks]
    parts = in_parallel(f"replaying {len(measurements):,} measured runs, in parts", calls, len(calls), jobs,
                        in_processes=True)
    by_id = {id(m): None for m in measurements}
    order = [m for chunk in chunks for m in chunk]
    predictions = dict(zip(map(id, order), (p for chunk in parts for p in chunk), strict=True))
    return [predictions[key] for key in by_id]


def _predict_chunk(measurements: Sequence[Measurement]) -> list[Prediction]:
    return [predict(m) for m in measurements]


def with_stalls(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return predictions with the stalls of their runs.

    If a run stalled, all runs get the metric STEADY beside their mean TTFT: without the stall, or the mean itself.
    """
    warm = [_warm(p) for p in predictions]
    stalled = [replace(p, stall=_stall(p.measurement, of_warm)) for p, of_warm in zip(predictions, warm, strict=True)]
    if not any(p.stall for p in stalled):
        return stalled
    return [_with_steady(p, of_warm) for p, of_warm in zip(stalled, warm, strict=True)]


def _warm(prediction: Prediction) -> Mapping[str, float]:
    """Return the values of a replay of warm replicas."""
    run = prediction.measurement
    if run.scenario is None or not run.scenario.cold:
        return prediction.predicted
    return predict(replace(run, scenario=replace(run.scenario, cold=False))).predicted


def _stall(run: Measurement, warm: Mapping[str, float]) -> Stall | None:
    if not warm or run.scenario is None or run.load is None or run.num_opening:
        return None
    return stall_of(run.measured, warm, run.scenario.max_concurrency or 0, run.load.num_requests)


def _with_steady(prediction: Prediction, warm: Mapping[str, float]) -> Prediction:
    run, stall = prediction.measurement, prediction.stall
    name = next((name for name in MEANS if name in run.measured and name in prediction.predicted), None)
    steady_ms = None if name is None else run.measured[name] if stall is None else stall.steady_ms
    if name is None or steady_ms is None:
        return prediction
    return replace(prediction, measurement=replace(run, measured={**run.measured, STEADY: steady_ms}),
                   predicted={**prediction.predicted, STEADY: warm[name]})


def errors(predictions: Iterable[Prediction]) -> Errors:
    """Return how far predictions are off.

    APE is |predicted − measured| / measured; the bias is the geometric mean of predicted / measured, less 1.
    """
    rows = list(predictions)
    return Errors(n=len(rows), coverage=sum(p.status == "ok" for p in rows) / max(len(rows), 1), by_metric={
        metric: summarize_errors(np.array([log_error(p, metric) for p in rows])) for metric in metrics_of(rows)})


def metrics_of(predictions: Sequence[Prediction]) -> list[str]:
    """Return the names of the measured metrics, in the order of the first row that has each."""
    return list(dict.fromkeys(name for p in predictions for name in p.measurement.measured))


def log_error(prediction: Prediction, metric: str) -> float:
    """Return log(predicted / measured), 0 within a bucket; NaN if one of them is not there or not above 0."""
    predicted, measured = prediction.predicted.get(metric, 0.0), prediction.measurement.measured.get(metric, 0.0)
    if not (predicted > 0 and measured > 0):
        return math.nan
    return math.log(counted(prediction.measurement, metric, predicted) / measured)


def summarize_errors(log_errors: NDArray[np.float64]) -> ErrorSummary | None:
    """Return the summary of log(predicted / measured); None if all are NaN.

    >>> summarize_errors(np.log([1.1, 0.9])).mape
    0.1
    """
    kept = log_errors[np.isfinite(log_errors)]
    if not len(kept):
        return None
    ape = np.abs(np.expm1(kept))
    return ErrorSummary(n=len(kept), mape=round(float(ape.mean()), 6), median_ape=round(float(np.median(ape)), 6),
                        bias=round(math.expm1(float(kept.mean())), 6))


def errors_by_group(predictions: Sequence[Prediction]) -> list[GroupErrors]:
    """Return `errors` of each value of each of GROUPS."""
    return [GroupErrors(group=group, value=value,
                        errors=errors(p for p in predictions if p.measurement.groups[group] == value))
            for group in GROUPS for value in sorted({p.measurement.groups[group] for p in predictions}, key=_by_number)]


def _by_number(text: str) -> list[tuple[int, str]]:
    """Sort "of 8 to 15" before "of 16 to 31"."""
    return [(int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", text)]


def predictions_table(predictions: Sequence[Prediction]) -> pl.DataFrame:
    """Return one row a measured run: its id, groups, status, and each metric measured and predicted."""
    metrics = metrics_of(predictions)
    return pl.DataFrame([
        {"id": p.measurement.id, **p.measurement.groups, "status": p.status,
         **{f"measured_{metric}": p.measurement.measured.get(metric) for metric in metrics},
         **{f"predicted_{metric}": p.predicted.get(metric) for metric in metrics}}
        for p in predictions], infer_schema_length=None)
