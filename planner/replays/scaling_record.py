"""How an autoscaled fleet's replicas came and went: when each was paid for and served, and why their number changed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl


class ReplicaSpan(NamedTuple):
    """One life of a replica, on the trace's clock [s]; it is paid for from its start to its end."""

    replica: int  # its number, which a later one may have again
    start_s: float  # when it was asked for
    ready_s: float  # when it served; NaN if it was given up before
    drain_s: float  # from when on it was sent nothing; NaN if it served to the end
    end_s: float


class ScaleEvent(NamedTuple):
    """One change of the number of replicas, and why."""

    at_s: float
    before: int  # replicas that serve or start
    after: int
    metric: str  # the autoscaler that asked for the most
    value: float  # its metric
    target: float | None
    wanted: int  # the number that it asked for
    limited_by: str  # the reason against that: minimum, maximum, stabilization, step, cooldown, draining; else ""
    pool: str | None = None  # whose replicas, if a fleet has several


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The record of an autoscaler at work, or of all autoscalers of a fleet's pools together.

    Parameters
    ----------
    source : its file, or the fleet's.
    minimum, maximum, initial : replicas [1].
    startup_s : from the decision until a replica serves [s]; None if pools have their own.
    spans : of all replicas, in order of their starts.
    events : in order of time.
    num_evaluations : how often it looked [1].
    pools : the records of a fleet's pools by name, constant pools included; empty for a single pool.
    """

    source: str
    minimum: int
    maximum: int
    initial: int
    startup_s: float | None
    spans: tuple[ReplicaSpan, ...]
    events: tuple[ScaleEvent, ...]
    num_evaluations: int
    pools: Mapping[str, "Scaling"] = field(default_factory=dict)

    @property
    def paid_s(self) -> float:
        """The time of all replicas together, their start-up and draining in it [s]."""
        return math.fsum(span.end_s - span.start_s for span in self.spans)

    def mean_replicas(self, duration_s: float) -> float:
        """Return the replicas that are paid for, in the mean over a replay's duration [1]."""
        if self.pools:
            return math.fsum(pool.mean_replicas(duration_s) for pool in self.pools.values())
        return self.paid_s / duration_s if self.events and duration_s > 0 else float(self.initial)


def staying(num_replicas: int, first_replica: int, first_s: float, end_s: float) -> Scaling:
    """Return the record of a pool whose replicas serve from the first arrival to the last departure."""
    spans = tuple(ReplicaSpan(first_replica + k, first_s, first_s, math.nan, end_s) for k in range(num_replicas))
    return Scaling(source="", minimum=num_replicas, maximum=num_replicas, initial=num_replicas, startup_s=None,
                   spans=spans, events=(), num_evaluations=0)


def together(source: str, pools: Mapping[str, Scaling]) -> Scaling:
    """Return the record of a fleet, from its pools' records."""
    parts = pools.values()
    events = [event._replace(pool=name) for name, pool in pools.items() for event in pool.events]
    return Scaling(source=source, pools=pools, startup_s=None, minimum=sum(part.minimum for part in parts),
                   maximum=sum(part.maximum for part in parts), initial=sum(part.initial for part in parts),
                   num_evaluations=sum(part.num_evaluations for part in parts),
                   spans=tuple(sorted((span for part in parts for span in part.spans), key=lambda span: span.start_s)),
                   events=tuple(sorted(events, key=lambda event: event.at_s)))


def events_table(events: Sequence[ScaleEvent]) -> pl.DataFrame:
    """Return one row for each change of the number of replicas."""
    kinds = {"at_s": pl.Float64, "before": pl.Int64, "after": pl.Int64, "metric": pl.String, "value": pl.Float64,
             "target": pl.Float64, "wanted": pl.Int64, "limited_by": pl.String, "pool": pl.String}
    table = pl.DataFrame([event._asdict() for event in events], schema=kinds)
    return table if any(event.pool for event in events) else table.drop("pool")


def counts_over_time(spans: Sequence[Any]) -> list[tuple[float, int, int]]:
    """Return when the fleet changes, and how many replicas it pays for and how many serve from then on.

    Parameters
    ----------
    spans : as `ReplicaSpan`; None stands for NaN, too.

    >>> counts_over_time([ReplicaSpan(0, 0.0, 0.0, math.nan, 9.0), ReplicaSpan(1, 2.0, 5.0, 7.0, 8.0)])
    [(0.0, 1, 1), (2.0, 2, 1), (5.0, 2, 2), (7.0, 2, 1), (8.0, 1, 1), (9.0, 0, 0)]
    """
    changes: dict[float, list[int]] = {}
    for _, start_s, ready_s, drain_s, end_s in spans:
        serves = ready_s is not None and not math.isnan(ready_s)
        left_s = end_s if drain_s is None or math.isnan(drain_s) else drain_s
        for at_s, paid, ready in ((start_s, 1, 0), (end_s, -1, 0), (ready_s, 0, 1), (left_s, 0, -1)):
            if paid or serves:
                change = changes.setdefault(float(at_s), [0, 0])
                change[0] += paid
                change[1] += ready
    counts, paid, ready = [], 0, 0
    for at_s in sorted(changes):
        paid, ready = paid + changes[at_s][0], ready + changes[at_s][1]
        counts.append((at_s, paid, ready))
    return counts
