"""An autoscaler as a frozen value: a metric of a fleet's load, and the number of replicas from it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from planner.errors import PolicyError
from planner.policies.functions import check_function


class FleetLoad(NamedTuple):
    """The values that an autoscaler reads: scalars of the replicas that serve or start."""

    now_s: float
    num_replicas: int  # replicas that serve or start, without draining replicas
    num_ready: int  # replicas that serve
    num_running: int  # requests, as engines count them
    num_waiting: int  # requests that were sent to replicas and do not run
    kv_cache_usage: float  # share of KV blocks in use, mean over the replicas that serve
    request_rate: float  # requests sent to all replicas in the window [1/s]
    attainment: float  # share of requests that left in the window and met their objectives; NaN if none left
    slo_use: float  # the window's percentile / limit, maximum over the objectives; NaN without any
    scheduled: float  # replicas of the schedule; NaN without a schedule
    forecast_rate: float = math.nan  # request rate to expect when a replica that starts now serves; NaN without one


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """An autoscaler: a metric, and the number of replicas that it asks for.

    Parameters
    ----------
    name : name in reports.
    metric : pure function of `FleetLoad`. NaN if there are no data; then the number of replicas does not change.
    desired : function of the load and the target: the number of replicas to ask for, rounded up. None: replicas ·
        metric / target, as in Kubernetes' HorizontalPodAutoscaler. The metric must then be a mean over all replicas;
        starting replicas count as 0 [1].
    needs : required keys of its table.
    uses : optional keys of its table.

    Raises
    ------
    PolicyError : a field has an invalid value.
    """

    name: str
    metric: Callable[[FleetLoad], float]
    desired: Callable[[FleetLoad, float], float] | None = None
    needs: tuple[str, ...] = ("target",)
    uses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        owner = f"autoscaler {self.name!r}"
        check_function(owner, "metric", self.metric, ("load",))
        if self.desired is not None:
            check_function(owner, "desired", self.desired, ("load", "target"))
        for field in ("needs", "uses"):
            keys = getattr(self, field)
            if not isinstance(keys, tuple) or not all(isinstance(key, str) for key in keys):
                raise PolicyError(f"{owner}: {field} = {keys!r}; must be a tuple of keys, as in ('target',)")
        if self.desired is None and "target" not in self.needs:
            raise PolicyError(f"{owner}: needs = {self.needs!r}; must have 'target', unless `desired` returns the "
                              f"number of replicas")
