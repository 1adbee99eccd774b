"""An autoscaler at work on a pool of a fleet: it looks every so often, and asks for more or fewer replicas."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.deployment.autoscale import Autoscale, Metric, fields_read_by
from planner.deployment.recommendation import Recommendation, Rules, Timed, recommend, wanted_by
from planner.errors import PolicyError
from planner.loop.state import engine_state as st
from planner.loop.state.client_state import QUEUED
from planner.policies.autoscaler import FleetLoad
from planner.policies.functions import failing_place, said, users_code
from planner.replays.fleet.lifecycle import Lifecycle
from planner.replays.fleet.recent import Recent
from planner.replays.fleet.routes import may_be_sent
from planner.replays.fleet.timers import RunningFleet, Timer
from planner.replays.scaling_record import ScaleEvent, Scaling


class Scaler:
    """The state of a pool's autoscaler: which replicas serve, start and drain, and its recommendations.

    Parameters
    ----------
    autoscale : its rules.
    first_replica : the lowest number of the pool's replicas.
    startup_s : from a decision until the replica serves [s].
    first_s : the first arrival; from then on the initial replicas serve [s].
    """

    def __init__(self, autoscale: Autoscale, first_replica: int, startup_s: float, first_s: float) -> None:
        self._autoscale, self._startup_s, self._first_s = autoscale, startup_s, first_s
        self._replicas = range(first_replica, first_replica + autoscale.rules.maximum)
        self._lifecycle = Lifecycle(self._replicas, autoscale.initial, startup_s, first_s)
        self._asked: list[Timed] = []
        self._changes: list[Timed] = []
        self._events: list[ScaleEvent] = []
        self._num_evaluations = 0
        self._recent: Recent | None = None
        self._ahead = {id(metric): metric.forecast.of_startup(startup_s) for metric in autoscale.metrics
                       if metric.forecast is not None}

    def timers(self) -> list[Timer]:
        """Return the timer that sets it to work."""
        return [Timer(-math.inf, self._begin)]

    def scaling(self, end_s: float) -> Scaling:
        """Return the record of its work in a replay whose last request left at `end_s`."""
        rules = self._autoscale.rules
        return Scaling(source=self._autoscale.source, minimum=rules.minimum, maximum=rules.maximum,
                       initial=self._autoscale.initial, startup_s=self._startup_s, spans=self._lifecycle.spans(end_s),
                       events=tuple(self._events), num_evaluations=self._num_evaluations)

    def _begin(self, running: RunningFleet) -> list[Timer]:
        """Close the replicas that are not there yet, and note which requests the metrics count."""
        metrics = self._autoscale.metrics
        self._lifecycle.begin(running)
        running.memory.fleet.is_watched |= any("kv_cache_usage" in fields_read_by(one.autoscaler) for one in metrics)
        self._recent = Recent(running.memory, self._replicas, max(metric.window_s for metric in metrics),
                              any(metric.slo is not None for metric in metrics))
        return [self._next_evaluation()]

    def _next_evaluation(self) -> Timer:
        return Timer(self._first_s + (self._num_evaluations + 1) * self._autoscale.interval_s, self._evaluate)

    def _evaluate(self, running: RunningFleet) -> list[Timer]:
        """Look at the fleet, and change it if its autoscalers ask for that."""
        now_s, rules = float(running.memory.fleet.now_s), self._rules(running)
        self._num_evaluations += 1
        self._lifecycle.end_drained(running)
        count = self._lifecycle.count
        wanted = [self._wanted(metric, load) for metric, load in self._loads(running, now_s)]
        recommended = recommend(wanted, count, self._lifecycle.num_draining, now_s, self._asked, self._changes, rules)
        started: list[Timer] = []
        if recommended is not None:
            self._asked = [*_since(self._asked, now_s - max(rules.up.stabilization_window_s,
                                                            rules.down.stabilization_window_s)),
                           Timed(now_s, recommended.asked)]
            if recommended.num_replicas != count:
                started = self._change(running, recommended, count, now_s)
        if _is_stuck(running):  # nothing will ever happen; the loop reports this if no timer is left
            return started
        return [*started, self._next_evaluation()]

    def _rules(self, running: RunningFleet) -> Rules:
        """Return the rules that hold now: one replica at least while the gateway has requests that the pool accepts.

        With prefill and decode apart, while requests are in flight too: a prefilled request must be decoded.
        """
        rules, memory = self._autoscale.rules, running.memory
        is_needed = memory.fleet.num_prefill > 0 and memory.fleet.num_in_flight > 0
        if memory.gateway.num_queued > 0:
            queued = np.flatnonzero(np.asarray(memory.clients["stage"]) == QUEUED)
            is_needed |= bool(may_be_sent(memory, self._replicas.start, queued).any())
        return replace(rules, minimum=1) if rules.minimum == 0 and is_needed else rules

    def _change(self, running: RunningFleet, advice: Recommendation, count: int, now_s: float) -> list[Timer]:
        """Start or stop replicas, and note why."""
        rules, metric = self._autoscale.rules, self._autoscale.metrics[advice.place]
        kept_s = max(rules.up.cooldown_s, rules.down.cooldown_s, rules.up.step_period_s, rules.down.step_period_s)
        self._changes = [*_since(self._changes, now_s - kept_s), Timed(now_s, advice.num_replicas - count)]
        self._events.append(ScaleEvent(
            at_s=now_s, before=count, after=advice.num_replicas, metric=metric.autoscaler.name, value=advice.metric,
            target=None if math.isnan(metric.target) else metric.target, wanted=advice.wanted,
            limited_by=advice.limited_by))
        return self._lifecycle.change(running, advice.num_replicas, now_s)

    def _loads(self, running: RunningFleet, now_s: float) -> list[tuple[Metric, FleetLoad]]:
        """Return the load that each autoscaler reads."""
        assert self._recent is not None
        self._recent.look(now_s)
        ready = self._lifecycle.ready
        outstanding = int(running.memory.replicas["num_requests"][ready].sum())
        num_running = sum(_num_running(running.states[k]) for k in ready)
        usage = sum(kv_cache_usage(running.states[k]) for k in ready) if running.memory.fleet.is_watched else 0.0
        load = FleetLoad(now_s, self._lifecycle.count, len(ready), num_running, outstanding - num_running,
                         usage / max(len(ready), 1), 0.0, math.nan, math.nan, math.nan)
        return [(metric, self._over_time(metric, load, self._recent)) for metric in self._autoscale.metrics]

    def _over_time(self, metric: Metric, load: FleetLoad, recent: Recent) -> FleetLoad:
        """Fill in the values of an autoscaler's own window, objectives and schedule."""
        load = load._replace(request_rate=recent.request_rate(metric.window_s, self._first_s))
        if metric.slo is not None:
            load = load._replace(attainment=recent.attainment(metric.slo, metric.window_s))
            if metric.percentile is not None:
                load = load._replace(slo_use=recent.slo_use(metric.slo, metric.percentile, metric.window_s))
        if metric.schedule is not None:
            load = load._replace(scheduled=float(metric.schedule.at(load.now_s, self._first_s)))
        if metric.forecast is not None:
            growth = self._ahead[id(metric)].growth(load.now_s)
            load = load._replace(forecast_rate=load.request_rate * growth)
        return load

    def _wanted(self, metric: Metric, load: FleetLoad) -> tuple[float, int | None]:
        autoscaler = metric.autoscaler
        try:
            with users_code():
                return wanted_by(autoscaler, load, metric.target, self._autoscale.rules.tolerance)
        except Exception as error:  # a user may have written it
            place = "" if isinstance(error, PolicyError) else f"{failing_place(autoscaler.metric, error)}: "
            raise PolicyError(f"autoscaler {autoscaler.name!r} at {load.now_s:.6f} s: {place}{said(error)}; it must "
                              f"return a number in every state") from error


def _since(timed: Sequence[Timed], instant_s: float) -> list[Timed]:
    return [row for row in timed if row.at_s > instant_s]


def _num_running(state: st.State) -> int:
    """Return the requests that run on an engine now, with requests that leave at the end of its step."""
    count, i = int(state.engine.num_running), int(state.engine.last_to_leave)
    while i != st.NONE:
        count += not math.isnan(state.requests[i].first_scheduled_s)
        i = int(state.left_before[i])
    return count


def kv_cache_usage(state: st.State) -> float:
    """Return the share of an engine's KV blocks in use [1]."""
    num_blocks = int(state.settings.num_gpu_blocks)
    return (num_blocks - int(state.engine.num_free_blocks)) / num_blocks


def _is_stuck(running: RunningFleet) -> bool:
    """Tell whether a replica has requests, no replica has anything to do, and no request is left to send."""
    memory = running.memory
    fleet = memory.fleet
    has_more = fleet.next_planned < fleet.num_planned or fleet.num_ready > 0
    return not has_more and bool(np.isinf(memory.due["key"]).all()) and bool(memory.replicas["num_requests"].any())
