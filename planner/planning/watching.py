"""Drift of a server from its plan: measured values against replays, judged in several intervals in a row."""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from planner.catalog.catalog_files import load_model
from planner.deployment.deploy import resolve
from planner.engines import ENGINES, METRICS
from planner.errors import PlannerError, TraceError
from planner.files.counts import change_text, count_text, figure_text
from planner.files.finite import number_in
from planner.measured.counted_traffic import CountedTraffic, counted_traffic
from planner.measured.metric_source import MetricSource
from planner.measured.scraped import FEWEST, Histogram
from planner.planning.fewest import fewest_replicas
from planner.planning.missed import UnreachableError
from planner.planning.prediction_error import hurried, needed_requests
from planner.planning.watch_answer import Difference, Drift, Quantity, Replan, WatchAnswer
from planner.planning.watched_plan import (
    Ended,
    ExpectedTimes,
    Plan,
    as_histogram,
    deployed,
    drawn,
    percentiles,
    prediction_at,
    published_high,
)
from planner.settings.default_router import routed
from planner.settings.scenario import attention_ranks

DEVIATIONS = 2.0  # standard errors that a mean must differ by in every interval
BLOCKS = 0.1  # share by which the number of KV blocks may differ: it is predicted
MOST_TIMES = 8  # replicas of a new size over the plan's
LEAST_LOAD = 2000  # requests of a new size's load


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftLimits:
    """How far measured values may lie from their predictions.

    Parameters
    ----------
    tolerance : share by which rate, lengths and tokens without prefix hits may differ from the plan's [1].
    server_tolerance : share by which times may exceed a replay; None for the published error [1].
    confirm : intervals in a row that make drift.
    """

    tolerance: float
    server_tolerance: float | None
    confirm: int


def watched(plan: Plan, source: MetricSource, model_name: str | None, limits: DriftLimits,
            before: Sequence[WatchAnswer]) -> WatchAnswer:
    """Return the answer of one interval, the first of `source`.

    Parameters
    ----------
    before : answers of earlier intervals, at least `limits.confirm`, the latest last.

    Raises
    ------
    UsageError : the metrics have several models or engines, and none is chosen.
    """
    start, end = (_utc(at_s) for at_s in source.edges_s[:2])
    try:
        traffic = counted_traffic(source, model_name, None)
        prediction = prediction_at(plan, traffic) if traffic.requests.sum() >= FEWEST else None
    except TraceError as error:
        return WatchAnswer(start=start, end=end, num_requests=0.0, holds=not (before and before[-1].drifts),
                           quantities=(), differences=(), drifts=before[-1].drifts if before else (),
                           notes=(f"{start}: no values: {error}",))
    judged = prediction is not None
    quantities = tuple(quantity if judged else replace(quantity, low=None, high=None, cause="")
                       for quantity in _quantities(plan, traffic, prediction, limits))
    answer = WatchAnswer(
        start=start, end=end, num_requests=float(traffic.requests.sum()), holds=True, quantities=quantities, drifts=(),
        differences=tuple(_differences(plan, source, traffic)),
        notes=traffic.notes if judged else (*traffic.notes, f"{start}: {traffic.requests.sum():.0f} requests ended; "
                                            f"intervals with fewer than {FEWEST} are not judged"))
    drifts = tuple(_drifts(answer, before, limits.confirm)) if judged else before[-1].drifts if before else ()
    known = {(drift.name, drift.direction) for drift in (before[-1].drifts if before else ())}
    is_new = any((drift.name, drift.direction) not in known for drift in drifts)
    return replace(answer, drifts=drifts, holds=not drifts,
                   replan=replanned(plan, traffic, quantities, drifts) if is_new and plan.objectives.limits_s else None)


def _utc(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _quantities(plan: Plan, traffic: CountedTraffic, prediction: ExpectedTimes | None,
                limits: DriftLimits) -> Iterator[Quantity]:
    """Yield measured values. The limit of a percentile is the objective's, at the next edge of a bucket above it."""
    yield from _traffic(plan, traffic, limits)
    ended = None if prediction is None else prediction.ended
    for metric in ("ttft", "tpot"):
        kind = "itl" if metric == "tpot" and "tpot" not in traffic.latencies else metric
        histogram = traffic.latencies.get(kind)
        if histogram is not None:
            yield _mean_time(plan, metric, kind, histogram, prediction, limits)
            for key, (of, share, limit_s) in percentiles(plan.objectives).items():
                if of == metric:
                    values = [None if one is None else 1e3 * as_histogram(*one.times_s(kind), histogram).quantile(share)
                              for one in (plan.ended, ended)]
                    high = next((1e3 * edge for edge, _ in histogram.edges if edge >= limit_s), math.inf)
                    is_judged = kind == metric and math.isfinite(high)
                    measured = 1e3 * histogram.quantile(share)
                    if math.isinf(histogram.bucket(share)[1]):  # above the last edge, which the quantile is
                        measured = math.nextafter(measured, math.inf)
                    yield Quantity(name=key, unit="ms", planned=values[0], predicted=values[1], measured=measured,
                                   high=high if is_judged else None, cause="objective" if is_judged else "")
    for name in ("running", "waiting", "kv_use"):
        values = [None if one is None else one.kv_use if name == "kv_use" else one.in_state(name)
                  for one in (plan.ended, ended)]
        yield Quantity(name=name, unit="1", planned=values[0], predicted=values[1],
                       measured=traffic.gauges[name][0] if name in traffic.gauges else None)


def _traffic(plan: Plan, traffic: CountedTraffic, limits: DriftLimits) -> Iterator[Quantity]:
    """Yield the rate, the lengths and the prefix hits beside the plan's.

    A lower rate and more hits are no drift. Limits leave room for chance, and for the hours of the plan's own trace.
    """
    ended, window_s, tolerance = plan.ended, float(traffic.window_s.sum()), limits.tolerance
    parts = _windows(ended, window_s)
    rate = max([part.rate_rps for part in _windows(ended, limits.confirm * window_s)], default=ended.rate_rps)
    yield Quantity(name="request_rate", unit="requests/s", planned=ended.rate_rps, predicted=None, cause="traffic",
                   measured=float(traffic.requests.sum()) / window_s,
                   high=rate * (1 + max(tolerance, DEVIATIONS / math.sqrt(rate * window_s))))
    for side, lengths in traffic.lengths.items():
        name = f"{side}_tokens"
        mean, values = ended.mean(name), ended.column(name)
        spread = [float(values.std()) / math.sqrt(max(lengths.num.sum(), 1.0)), _spread([part.mean(name)
                                                                                        for part in parts])]
        room = max(tolerance * mean, DEVIATIONS * max(spread))
        yield Quantity(name=f"mean_{name}", unit="tokens", planned=mean, predicted=None, cause="traffic",
                       measured=lengths.mean, low=mean - room, high=mean + room)
    if traffic.cached is not None and traffic.cached[:, 1].sum() > 0:
        hits, queries = traffic.cached.sum(axis=0)
        share = ended.cached_share
        low = share - max(tolerance * (1 - share), DEVIATIONS * _spread([part.cached_share for part in parts]))
        yield Quantity(name="cached_share", unit="1", planned=share, predicted=None, cause="traffic",
                       measured=float(hits / queries), low=low if low > 0 else None)


def _windows(ended: Ended, window_s: float) -> list[Ended]:
    """Return the whole windows of a plan's replay with enough requests."""
    if window_s >= ended.duration_s / 2:
        return []
    place = np.floor(ended.column("end_s") / window_s)
    order = np.argsort(place, kind="stable")
    edges = np.searchsorted(place[order], np.arange(1, int(place.max(initial=0.0)) + 1))
    rows = ended.requests[order]
    return [replace(ended, requests=rows[first:end], duration_s=window_s)
            for first, end in itertools.pairwise(edges.tolist()) if end - first >= FEWEST]


def _spread(values: Sequence[float]) -> float:
    return float(np.std(values)) if len(values) > 1 else 0.0


def _mean_time(plan: Plan, metric: str, kind: str, histogram: Histogram, prediction: ExpectedTimes | None,
               limits: DriftLimits) -> Quantity:
    """Return a mean time with its upper limit: by the published error, or by slower steps if these have more effect.

    TTFT has no limit if most of it is waiting: it then follows the arrivals within the interval, which metrics lack.
    """
    def mean_ms(one: Ended) -> float | None:
        values, weights = one.times_s(kind)
        return 1e3 * float(np.average(values, weights=weights)) if len(values) else None

    quantity = Quantity(name=f"mean_{metric}_ms", unit="ms", planned=mean_ms(plan.ended), measured=1e3 * histogram.mean,
                        predicted=None if prediction is None else mean_ms(prediction.ended))
    if prediction is None or quantity.predicted is None:
        return quantity
    waits_ms = 1e3 * prediction.slower.mean("queue_s")
    if metric == "ttft" and waits_ms > 0.5 * quantity.predicted:
        return quantity
    if limits.server_tolerance is not None:
        high = quantity.predicted * (1 + limits.server_tolerance)
    else:
        high = max(published_high(plan, f"{metric}_ms", quantity.predicted), mean_ms(prediction.slower) or 0.0)
    values, _ = prediction.ended.times_s(kind)
    chance_ms = 1e3 * float(values.std()) * math.sqrt(1 / len(values) + 1 / histogram.count)
    return replace(quantity, cause="server", high=max(high, quantity.predicted + DEVIATIONS * chance_ms))


def _differences(plan: Plan, source: MetricSource, traffic: CountedTraffic) -> Iterator[Difference]:
    """Yield facts that the metrics tell of a deployment, if they differ from the plan's."""
    metrics = next(one for one in METRICS if one.prefix == traffic.engine)
    labels = {metrics.model: traffic.model} if traffic.model else {}

    def alive(name: str) -> dict[Any, list[float]]:
        series = source.read(f"{metrics.prefix}:{name}", labels if name != metrics.info else {})
        inside = {pairs: [value for at_s, value in points if at_s > source.edges_s[0] and math.isfinite(value)]
                  for pairs, points in series.items()}
        return {pairs: values for pairs, values in inside.items() if values}

    planned = ENGINES[plan.study.scenario.engine].metrics
    if planned is not None and planned.prefix != metrics.prefix and not metrics.runs_waiting:
        yield Difference(name="engine", planned=planned.prefix, measured=metrics.prefix)
    yield from _other_model(plan, traffic.model)
    release = plan.study.scenario.engine_version
    if source.version is not None and release is not None and source.version.split(".")[:2] != release.split(".")[:2]:
        yield Difference(name="engine_version", planned=release, measured=source.version)
    running = {} if metrics.runs_waiting else alive(metrics.running)
    count = plan.result.num_replicas + plan.num_spare
    if running and len(running) != count and plan.study.scenario.autoscale is None:
        yield Difference(name="num_replicas", planned=f"{count}", measured=f"{len(running)}")
    seats, most = plan.option("max_num_seqs"), max((max(values) for values in running.values()), default=0.0)
    if seats and most > seats and not plan.result.deployment.pools:
        yield Difference(name="max_num_seqs", planned=f"{seats}", measured=f"at least {most:.0f}")
    for pairs in alive(metrics.info) if metrics.info else ():
        stated = dict(pairs)
        for name in metrics.info_options:
            value, text = plan.option(name), stated.get(name, "None")
            if value is not None and text != "None" and not _is_equal(value, text, name):
                yield Difference(name=name, planned=str(value), measured=text)


def _is_equal(planned: Any, text: str, name: str) -> bool:
    if isinstance(planned, bool):
        return str(planned).lower() == text.lower()
    return math.isclose(number_in(text), planned, rel_tol=BLOCKS if name == "num_gpu_blocks" else 1e-6)


def _other_model(plan: Plan, name: str) -> Iterator[Difference]:
    """Yield the model if the metrics' name is a known one's, and not the plan's; users may call a model otherwise."""
    planned = plan.study.scenario.model
    if planned and name and _known_model(name) not in (None, _known_model(planned)):
        yield Difference(name="model", planned=planned, measured=name)


@functools.cache
def _known_model(name: str) -> str | None:
    try:
        return load_model(name).name
    except PlannerError:
        return None


def _drifts(answer: WatchAnswer, before: Sequence[WatchAnswer], confirm: int) -> Iterator[Drift]:
    """Yield deviations in one direction in each of the last judged intervals. Drift ends with one interval within."""
    judged = [one for one in before if any(quantity.cause for quantity in one.quantities)]
    last = [*judged[len(judged) - confirm + 1:], answer] if confirm > 1 else [answer]
    kept = {(drift.name, drift.direction): drift for drift in (before[-1].drifts if before else ())}
    for quantity in answer.quantities:
        key = quantity.name, quantity.beyond
        if quantity.beyond and (key in kept or (len(last) == confirm and all(key in _beyond(one) for one in last))):
            yield Drift(cause=quantity.cause, name=quantity.name, direction=quantity.beyond,
                        since=kept[key].since if key in kept else last[0].start, sentence=_sentence(quantity))
    for difference in {one.name: one for one in answer.differences}.values():
        key = difference.name, 0
        if key in kept or (len(last) == confirm and all(key in _beyond(one) for one in last)):
            yield Drift(cause="plan", name=difference.name, direction=0,
                        since=kept[key].since if key in kept else last[0].start,
                        sentence=f"{difference.name} is {difference.measured}, the plan has {difference.planned}")


def _beyond(answer: WatchAnswer) -> set[tuple[str, int]]:
    return {(quantity.name, quantity.beyond) for quantity in answer.quantities if quantity.beyond} | {
        (difference.name, 0) for difference in answer.differences}


def _sentence(quantity: Quantity) -> str:
    measured = quantity.measured or 0.0
    against, expected = {"traffic": ("the plan has", quantity.planned),
                         "server": ("at the measured traffic the prediction is", quantity.predicted),
                         "objective": ("the bucket of its objective ends at", quantity.high)}[quantity.cause]
    change = f" ({change_text(measured / expected - 1)})" if expected else ""
    unit = "" if quantity.unit == "1" else f" {quantity.unit}"
    return f"{quantity.name} is {figure_text(measured)}{unit}, {against} {figure_text(expected or 0.0)}{change}"


def replanned(plan: Plan, traffic: CountedTraffic, quantities: Sequence[Quantity],
              drifts: Sequence[Drift]) -> Replan | None:
    """Size the plan's deployment at the measured traffic, with slower steps if the server is slower.

    The rate is the measured one, and at least the plan's. Prefill and decode apart and pools are not sized.
    """
    scenario = plan.study.scenario
    planned, rate = plan.num_replicas, max(float(traffic.requests.sum() / traffic.window_s.sum()), plan.ended.rate_rps)
    if plan.result.deployment.pools or scenario.prefill_replicas or scenario.autoscale is not None:
        return Replan(planned_replicas=planned, num_replicas=None, rate_rps=rate,
                      sentence="the plan has several kinds of replicas, or an autoscaler: make it again with a trace "
                               "of trace from-prometheus")
    by_name = {quantity.name: quantity for quantity in quantities}
    slower = max([1.0, *((by_name[drift.name].measured or 0.0) / (by_name[drift.name].predicted or 1.0)
                         for drift in drifts if drift.name == "mean_tpot_ms")])
    wanted = max(LEAST_LOAD, needed_requests(plan.objectives))
    trace = drawn(plan, traffic, math.ceil(wanted / traffic.requests.sum()))
    factor = rate * float(traffic.window_s.sum()) / float(traffic.requests.sum()) * slower
    load = hurried(trace, factor) if factor != 1 else trace
    one = replace(routed(deployed(plan)), data_parallel_size=attention_ranks(scenario))
    try:
        count, _, _ = fewest_replicas(load, resolve(one, load), plan.objectives.scaled(1 / slower), planned,
                                      bound=MOST_TIMES * planned)
    except UnreachableError as error:
        return Replan(planned_replicas=planned, num_replicas=None, rate_rps=rate, sentence=f"re-plan now: {error}")
    words = (f"re-plan now: {count_text(count, 'replica')} instead of {planned}" if count > planned else
             f"the plan still keeps the objectives with {count_text(planned, 'replica')}")
    return Replan(planned_replicas=planned, num_replicas=count, rate_rps=rate, sentence=f"{words}, at {rate:.4g}/s")
