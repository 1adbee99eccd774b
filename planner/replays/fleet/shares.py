"""The pools of a fleet in a replay: the replicas of each, and their totals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.deployment.deploy import Pool, pools_of
from planner.loop.state import engine_state as st
from planner.replays.result_tables import ReplayResult

LARGEST = ("now_s", "peak_blocks", "max_running", "max_waiting")  # of the replicas, if other totals are summed
SUMMED = ("busy_s", "kv_block_s", *(name for name in st.ENGINE.names or () if name.startswith("total_")), "num_steps",
          "num_preemptions", "num_recomputed_tokens", "num_swapped_tokens", "num_queried_tokens", "num_hit_tokens",
          "num_done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A pool's part in a replay.

    Parameters
    ----------
    pool : its deployment, and how many replicas of it.
    first_replica : the number of the first of these.
    mean_replicas : of them, in the mean over the replay; an autoscaler may have fewer of them most of the time [1].
    engine : their totals, st.ENGINE.
    settings : of each, st.SETTINGS.
    links : of all together to their KV tiers, entries.LINK.
    """

    pool: Pool
    first_replica: int
    mean_replicas: float
    engine: Any
    settings: Any
    links: Any

    @property
    def num_gpus(self) -> float:
        """GPUs that are paid for, in the mean over the replay."""
        return self.pool.deployment.layout.gpus_per_rank * self.mean_replicas


def total_of(engines: Sequence[Any]) -> Any:
    """Return the totals of several engines, st.ENGINE: sums, and of peaks the largest.

    Unused replicas share one record, whose sums are 0: it counts once.
    """
    total: Any = st.records(1, st.ENGINE)[0]
    every = np.array(_distinct(engines), st.ENGINE)
    for names, join in ((SUMMED, np.add), (LARGEST, np.maximum)):
        for name in names:
            setattr(total, name, join.accumulate(every[name])[-1])  # in order, as the replicas are listed
    return total


def _distinct(records: Sequence[Any]) -> list[Any]:
    """Return each record once, in order."""
    return list({id(record): record for record in records}.values())


def shares(result: ReplayResult, duration_s: float) -> list[Share]:
    """Return the part of each pool in a replay of duration `duration_s`, in the order of their replicas."""
    parts, first = [], 0
    for pool in pools_of(result.deployment, result.num_replicas):
        theirs = result.replicas[first:first + pool.num_replicas]
        scaling = result.scaling
        if scaling is not None and scaling.pools:
            scaling = scaling.pools[pool.name]
        mean = pool.num_replicas if scaling is None else scaling.mean_replicas(duration_s)
        parts.append(Share(pool=pool, first_replica=first, mean_replicas=mean, settings=theirs[0].settings,
                           engine=total_of([replica.engine for replica in theirs]),
                           links=_links_of([replica.links for replica in theirs])))
        first += pool.num_replicas
    return parts


def _links_of(links: Sequence[Any]) -> Any:
    """Return the totals of several engines' links, entries.LINK."""
    total, links = links[0].copy(), _distinct(links)
    for name in ("num_read_blocks", "num_written_blocks", "num_hit_tokens"):
        total[name] = sum(link[name] for link in links)
    return total


def busy_fraction(parts: Sequence[Share], duration_s: float) -> float:
    """Return the share of the time that GPUs were busy, over all GPUs of some pools; 0 without GPUs [1]."""
    num_gpus = sum(part.num_gpus for part in parts)
    busy_s = sum(float(part.engine.busy_s) * part.pool.deployment.layout.gpus_per_rank for part in parts)
    return min(busy_s / num_gpus / duration_s, 1.0) if duration_s > 0 and num_gpus > 0 else 0.0


def same(values: Sequence[Any]) -> Any:
    """Return the common value; None if they differ.

    >>> same([2, 2]), same([2, 3])
    (2, None)
    """
    return values[0] if all(value == values[0] for value in values) else None
