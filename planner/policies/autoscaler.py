"""An autoscaler as a frozen value: a metric of a fleet's load, and the number of replicas that follows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from planner.errors import PolicyError
from planner.policies.functions import check_function


class FleetLoad(NamedTuple):
    """What an autoscaler may look at when it is asked: scalars, of the replicas that serve or start."""

    now_s: float
    num_replicas: int  # those that serve and those that start; those that drain are not among them
    num_ready: int  # those that serve
    num_running: int  # requests, as engines count them
    num_waiting: int  # requests that were sent to them and do not run
    kv_cache_usage: float  # mean share of KV blocks in use of those that serve
    request_rate: float  # requests sent in the window, to whichever replica [1/s]
    attainment: float  # share of the requests that left in the window within the objectives; NaN where none did
    slo_use: float  # the window's percentile over its limit, the largest of the objectives; NaN where there is none
    scheduled: float  # replicas on the schedule; NaN without one


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """An autoscaler: a metric, and the number of replicas that it asks for.

    Parameters
    ----------
    name : how reports call it.
    metric : pure function of `FleetLoad`; NaN where there is nothing to tell it from, so that nothing changes.
    desired : of the load and the target: how many replicas are asked for, a fraction counting as a whole one; None for
        replicas · metric / target, as Kubernetes' HorizontalPodAutoscaler does it, where the metric is a mean over all
        replicas, those that start counting as 0 [1].
    needs : keys that its table must have.
    uses : keys that its table may have besides.

    Raises
    ------
    PolicyError : a field has a value that it cannot have.
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
