"""Objectives: their one grammar, read and written here, and the verdict on a load that should keep them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from planner.errors import UnknownNameError, UsageError
from planner.files.finite import number_in
from planner.files.keys import Key
from planner.settings.judged import ATTAINMENT, Judged, missed_sentence
from planner.settings.slo import METRICS, Slo, attainment_by_metric, used_share
from planner.settings.statistic import Statistic, parse_statistic

Floats = NDArray[np.float64]

LIMIT = "_limit"  # after a metric's name among the times of requests: the limits of single requests
_KNOWN = (*METRICS, *(f"{kind}_{metric}" for kind in ("mean", "p50", "p90", "p95", "p99") for metric in METRICS))
_EXAMPLE = "'ttft:500 tpot:50' for each request, 'p99_ttft:1000' for a statistic over all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """The limits that a load must keep.

    Parameters
    ----------
    slo : limits of each request; none if only statistics are limited.
    attainment : share of requests that must meet their own limits; None if no share is asked for [1].
    statistics : limits of statistics over all requests [s]. Requests without an answer count as slower than any limit.
    own_factor : by which limits of single requests are multiplied, deadlines and their tenants' [1].
    """

    slo: Slo = field(default_factory=Slo)
    attainment: float | None = None
    statistics: Mapping[Statistic, float] = field(default_factory=dict)
    own_factor: float = 1.0

    @property
    def limits_s(self) -> dict[str, float]:
        """All limits by their names in the grammar [s]."""
        return self.slo.limits_s | {statistic.name: limit for statistic, limit in self.statistics.items()}

    def scaled(self, factor: float) -> "Objectives":
        """Return them with every limit multiplied by `factor`."""
        return replace(self, slo=Slo(**{f"{name}_s": limit * factor for name, limit in self.slo.limits_s.items()}),
                       statistics={statistic: limit * factor for statistic, limit in self.statistics.items()},
                       own_factor=self.own_factor * factor)


def parse_objectives(text: str, attainment: float | None = None) -> Objectives:
    """Read `"ttft:1000 tpot:60 p99_e2el:20000"`, in milliseconds.

    A metric by itself limits each request. With `mean_`, `median_` or `pNN_` before it, it limits that statistic over
    all requests. Every name may end in its unit, `_ms`.

    >>> found = parse_objectives("ttft:1000 p99_tpot_ms:60", 0.99)
    >>> found.limits_s
    {'ttft': 1.0, 'p99_tpot': 0.06}

    Parameters
    ----------
    attainment : share of requests that must meet their own limits; None if no share is asked for [1].

    Raises
    ------
    UsageError : a part is not `name:milliseconds`, is repeated or is not above 0; `attainment` is not in (0, 1].
    UnknownNameError : a name is neither a metric nor a statistic of one.
    """
    _check_share(attainment)
    limits: dict[str, float] = {}
    statistics: dict[Statistic, float] = {}
    for part in text.replace(",", " ").split():
        name, _, value = part.partition(":")
        statistic, metric = parse_statistic(name), name.removesuffix("_ms")
        if statistic is None and metric not in METRICS:
            raise UnknownNameError("SLO metric", name, _KNOWN)
        limit_ms = number_in(value)
        if not 0 < limit_ms < math.inf:
            raise UsageError(f"--slo {part!r}: {value!r} is not a number of milliseconds above 0, as in 'ttft:500'")
        if statistic in statistics or f"{metric}_s" in limits:
            raise UsageError(f"--slo {text!r}: {metric if statistic is None else statistic.name} is given twice")
        if statistic is None:
            limits[f"{metric}_s"] = limit_ms / 1e3
        else:
            statistics[statistic] = limit_ms / 1e3
    if not limits and not statistics:
        raise UsageError(f"--slo {text!r}: no objective given; expected {_EXAMPLE}")
    return Objectives(slo=Slo(**limits), attainment=attainment, statistics=statistics)


def given_objectives(text: str | None, attainment: float | None = None, *,
                     may_be_own: bool = False) -> Objectives | None:
    """Read objectives that may be left out; None if the text is missing or blank.

    Parameters
    ----------
    may_be_own : whether a share may be asked for though no limit is given here: single requests may have their own.

    Raises
    ------
    UsageError : a share of requests is asked for, and no objective limits each request.
    UsageError, UnknownNameError : as `parse_objectives`.
    """
    _check_share(attainment)
    objectives = None if text is None or not text.strip() else parse_objectives(text, attainment)
    if attainment is None or (objectives is not None and objectives.slo.limits_s):
        return objectives
    if may_be_own:
        return objectives or Objectives(attainment=attainment)
    raise share_of_nothing(attainment)


def share_of_nothing(attainment: float) -> UsageError:
    """Return the error that a share of requests is asked for, and requests have no limits."""
    return UsageError(f"--attainment {attainment}: needs slo with an objective of each request, as in "
                      f"--slo 'ttft:500 tpot:50'")


def _check_share(attainment: float | None) -> None:
    if attainment is not None and not 0 < attainment <= 1:
        raise UsageError(f"--attainment {attainment}: must be a share in (0, 1]")


def request_limits(text: str, where: str) -> Slo:
    """Read objectives of each request alone.

    Raises
    ------
    UsageError : one of them is a statistic, which `where` does not take.
    UsageError, UnknownNameError : as `parse_objectives`.
    """
    objectives = parse_objectives(text)
    if objectives.statistics:
        name = next(iter(objectives.statistics)).name
        raise UsageError(f"{where}: {name} is a statistic over all requests; must be of each request, as in "
                         f"'ttft:500 tpot:50'")
    return objectives.slo


@dataclass(frozen=True, slots=True, kw_only=True)
class Required:
    """Objectives as an answer states them."""

    text: Annotated[str, Key("", "Objectives in the grammar of --slo")]
    limits_s: Annotated[Mapping[str, float], Key("s", "Limits by name")]
    attainment: Annotated[float | None, Key("1", "Share of requests that must be within their own limits. Null if "
                                            "none is required")]


def required_of(objectives: Objectives) -> Required:
    """Return objectives as answers state them."""
    return Required(text=objectives_text(objectives) or "", limits_s=objectives.limits_s,
                 attainment=objectives.attainment)


def objectives_text(objectives: Objectives | None) -> str | None:
    """Return objectives as `parse_objectives` reads them, None without any.

    >>> objectives_text(parse_objectives("ttft:500 median_tpot_ms:50"))
    'ttft:500 p50_tpot:50'
    """
    limits_s = {} if objectives is None else objectives.limits_s
    return " ".join(f"{name}:{1e3 * limit_s:.12g}" for name, limit_s in limits_s.items()) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a load keeps its objectives.

    Parameters
    ----------
    is_met : all of them, in every group.
    attainment : share of requests that meet their own limits, in the worst group; 1 without limits [1].
    limiting_metric : the objective that is kept worst, "ttft" or "p99_ttft".
    strain : factor of all limits with which the objectives would just be kept; above 1 they are missed, infinite if
        requests without an answer miss them [1].
    unanswered : share of requests that were rejected, or not through when the replay ended [1].
    judged : each objective with its value, in the worst group.
    statistics_ms : of all requests, as `statistic.statistics_ms`; empty if a search does not ask for them [ms].
    """

    is_met: bool
    attainment: float
    limiting_metric: str
    strain: float = math.nan
    unanswered: float = 0.0
    judged: tuple[Judged, ...] = ()
    statistics_ms: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, float | None]:
        """The statistics of all requests and of the objectives by name [ms]."""
        return {**self.statistics_ms, **{one.name: one.value for one in self.judged if one.unit == "ms"}}

    @property
    def shortfall(self) -> str:
        """Which objectives are missed and by how much, in words."""
        return missed_sentence(self.judged, self.unanswered)


def judge(objectives: Objectives, times_s: Mapping[str, Floats], groups: NDArray[np.int64] | None = None) -> Verdict:
    """Tell whether requests keep the objectives.

    Parameters
    ----------
    times_s : by metric, "ttft", "tpot", "e2el", shape [num_requests]; NaN if a request has none. If single
        requests have limits of their own, these too, as "ttft_limit" or "deadline_limit"; NaN if one has none.
    groups : tenant or class of each request, of which every one must keep them; None for one group.
    """
    own_s = own_limits(objectives, times_s)
    met = attainment_by_metric(objectives.slo, *(times_s[metric] for metric in METRICS), own_s=own_s)
    shared = {name: limit_s for name, limit_s in objectives.slo.limits_s.items() if name not in own_s}
    kinds = [slice(None)] if groups is None else [groups == group for group in np.unique(groups)]
    used = used_share(objectives.slo, *(times_s[metric] for metric in METRICS), own_s=own_s)
    verdicts = [_judge_group(objectives, shared, {name: values[kind] for name, values in met.items()}, used[kind],
                             {name: values[kind] for name, values in times_s.items()}) for kind in kinds]
    return min(verdicts, key=lambda verdict: (verdict.is_met, verdict.attainment))


def own_limits(objectives: Objectives, times_s: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the limits of single requests among times as `judge` takes them, by metric, shape [num_requests] [s]."""
    return {name.removesuffix(LIMIT): objectives.own_factor * values for name, values in times_s.items()
            if name.endswith(LIMIT)}


def _judge_group(objectives: Objectives, shared_s: Mapping[str, float], met: Mapping[str, NDArray[np.bool_]],
                 used: Floats, times_s: Mapping[str, Floats]) -> Verdict:
    """Return the verdict on one group; `used` is the share that each of its requests uses of its limits [1]."""
    asked = objectives.attainment
    share = float(np.all(list(met.values()), axis=0).mean()) if met else 1.0
    shares = {name: float(values.mean()) for name, values in met.items()}
    judged = [Judged(name=name, limit=1e3 * shared_s[name] if name in shared_s else None, value=value, unit="1",
                     is_met=None if asked is None else value >= asked) for name, value in shares.items()]
    slack = {name: value / (asked or 1.0) for name, value in shares.items()}
    strains = []
    if met and asked is not None:
        judged.append(Judged(name=ATTAINMENT, limit=asked, value=share, unit="1", is_met=share >= asked))
        in_time = min(max(math.ceil(asked * len(used) - 1e-9), 1), len(used))  # requests that must be
        strains.append(float(np.partition(used, in_time - 1)[in_time - 1]))
    for statistic, limit in objectives.statistics.items():
        reached = statistic.over(times_s)
        is_met = bool(math.isnan(reached) or reached <= limit)
        judged.append(Judged(name=statistic.name, limit=1e3 * limit, unit="ms", is_met=is_met,
                             value=1e3 * reached if math.isfinite(reached) else None))
        slack[statistic.name] = limit / reached if reached > 0 else math.inf
        strains.append(reached / limit if reached > 0 else 0.0)
    return Verdict(is_met=all(one.is_met is not False for one in judged), attainment=share,
                   limiting_metric=min(slack, key=lambda name: slack[name], default="none"),
                   strain=max(strains, default=math.nan), unanswered=float(np.isnan(times_s["e2el"]).mean()),
                   judged=tuple(judged))
