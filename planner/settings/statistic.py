"""A statistic of a metric over all requests, by the name that objectives, targets and the summary have for it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.settings.slo import METRICS

LABELS = {"ttft": "TTFT", "tpot": "TPOT", "e2el": "end-to-end latency", "deadline": "the deadline"}
LATENCIES = ("ttft", "tpot", "e2el")
TOLD = (50.0, 90.0, 95.0, 99.0)  # percentiles of every load that a search tries
SHARES = frozenset((  # keys of a summary that are from 0 to 1, and shown in per cent
    "slo_attainment", "wasted_work", "prefix_cache_hit_rate", "gpu_hit_rate", "cpu_hit_rate", "remote_hit_rate",
    "kv_cache_usage_mean", "kv_cache_usage_peak", "gpu_busy_fraction", "mfu", "mbu", "rank_wait_fraction"))
_STATISTIC = re.compile(r"(?:mean|median|p(\d+(?:\.\d+)?))_(\w+)")


def is_share(key: str) -> bool:
    """Tell whether a key of a summary, or of a part of it, as `tenants.gold.mfu`, is a share shown in per cent."""
    return key.rpartition(".")[2] in SHARES or "slo_attainment_by_metric" in key


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """A statistic of a metric over all requests.

    Parameters
    ----------
    metric : a name of `slo.METRICS`.
    percentile : in (0, 100]; None for the mean.
    """

    metric: str
    percentile: float | None

    @property
    def name(self) -> str:
        """The name in the grammar: "mean_ttft", "p99_ttft"."""
        return f"mean_{self.metric}" if self.percentile is None else f"p{self.percentile:g}_{self.metric}"

    @property
    def key(self) -> str:
        """The name with its unit, as keys of the summary are: "p99_ttft_ms", and "median_ttft_ms" for p50."""
        return f"median_{self.metric}_ms" if self.percentile == 50 else f"{self.name}_ms"

    @property
    def label(self) -> str:
        """The name in a sentence: "p99 TTFT"."""
        return f"{self.name.partition('_')[0]} {LABELS[self.metric]}"

    def of(self, values: NDArray[np.float64]) -> float:
        """Return the statistic of values without NaN; infinite if infinite ones reach it, NaN without any.

        Percentiles are linear between order statistics, as the summary's.
        """
        if len(values) == 0:
            return math.nan
        if self.percentile is None:
            return float(values.mean())
        return _percentiles(values, [self.percentile])[0]

    def over(self, times: Mapping[str, NDArray[np.float64]]) -> float:
        """Return the statistic over requests, infinite for requests without an answer; one-token outputs have no TPOT.

        Parameters
        ----------
        times : by metric, "ttft", "tpot", "e2el", shape [num_requests]; NaN if a request has none.
        """
        return self.of(counted_s(self.metric, times))


def counted_s(metric: str, times: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the values of a metric that count, as `Statistic.over`: infinite for requests without an answer [s]."""
    values, answered = times[metric], ~np.isnan(times["e2el"])
    return np.where(answered, values, math.inf)[~(answered & np.isnan(values))]


def _percentiles(values: NDArray[np.float64], shares: Sequence[float]) -> list[float]:
    """Return percentiles of at least one value, in one pass."""
    method: Literal["linear", "higher"] = "linear" if np.isfinite(values).all() else "higher"
    return [float(value) for value in np.percentile(values, shares, method=method)]


def parse_statistic(name: str) -> Statistic | None:
    """Read `"p99_ttft"`, also with its unit, `"p99_ttft_ms"`; None if a name is no statistic of a metric.

    >>> parse_statistic("median_tpot_ms").name
    'p50_tpot'

    Raises
    ------
    UsageError : the percentile is not in (0, 100].
    """
    match = _STATISTIC.fullmatch(name.removesuffix("_ms"))
    if match is None or match[2] not in METRICS:
        return None
    percentile = None if name.startswith("mean") else 50.0 if match[1] is None else float(match[1])
    if percentile is not None and not 0 < percentile <= 100:
        raise UsageError(f"{name}: {match[1]} is no percentile above 0 and up to 100")
    return Statistic(metric=match[2], percentile=percentile)


def statistics_ms(times: Mapping[str, NDArray[np.float64]]) -> dict[str, float | None]:
    """Return the mean and the percentiles `TOLD` of each metric by name [ms]; None if one has no end or no value.

    Parameters
    ----------
    times : as `Statistic.over`.
    """
    by_name: dict[str, float | None] = {}
    for metric in LATENCIES:
        values = counted_s(metric, times)
        reached = [float(values.mean()), *_percentiles(values, TOLD)] if len(values) else [math.nan] * (1 + len(TOLD))
        for percentile, value in zip((None, *TOLD), reached, strict=True):
            name = Statistic(metric=metric, percentile=percentile).name
            by_name[name] = 1e3 * value if math.isfinite(value) else None
    return by_name


def metric_key(name: str) -> str:
    """Return the summary's key for a metric: a statistic by any of its names becomes that key, another stays.

    >>> metric_key("p99_ttft"), metric_key("p50_ttft_ms"), metric_key("request_goodput")
    ('p99_ttft_ms', 'median_ttft_ms', 'request_goodput')
    """
    statistic = parse_statistic(name)
    return name if statistic is None else statistic.key
