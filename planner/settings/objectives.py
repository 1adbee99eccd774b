"""What a load must keep: objectives of each request and the share that must meet them, or percentiles over all."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.settings.slo import METRICS, Slo, attainment_by_metric, parse_slo

Floats = NDArray[np.float64]

_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)_(\w+):(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """What a load must keep.

    Parameters
    ----------
    slo : limits of each request; one without limits where only percentiles are asked for.
    attainment : share of requests that must meet them [1].
    percentiles : limits on percentiles over all requests, by (metric, percentile) [s]. Requests that got no answer
        count as slower than any limit.
    """

    slo: Slo
    attainment: float
    percentiles: Mapping[tuple[str, float], float]

    def scaled(self, factor: float) -> "Objectives":
        """Return them with every limit multiplied by `factor`."""
        return Objectives(
            slo=Slo(**{f"{name}_s": limit * factor for name, limit in self.slo.limits_s.items()}),
            attainment=self.attainment,
            percentiles={key: limit * factor for key, limit in self.percentiles.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a load keeps its objectives.

    Parameters
    ----------
    is_met : all of them, in every group.
    attainment : share of requests that meet their own limits, in the worst group; 1 where there are none [1].
    limiting_metric : the objective that is kept worst, "ttft" or "p99_ttft".
    strain : what is used of what is allowed, of the misses or of the worst percentile's limit; 1 is the edge [1].
    unanswered : share of requests that were rejected, or not through when the replay ended [1].
    """

    is_met: bool
    attainment: float
    limiting_metric: str
    strain: float = math.nan
    unanswered: float = 0.0

    @property
    def shortfall(self) -> str:
        """What is missed, in words."""
        missed = f"{self.attainment:.2%} of the requests meet their limits, {self.limiting_metric} worst"
        return missed if self.unanswered == 0 else (
            f"{missed}; {self.unanswered:.2%} are never answered, as those longer than --max-model-len or the KV cache")


def of_requests(text: str | None) -> Objectives | None:
    """Return objectives of each request alone, read as by `slo.parse_slo`; None where there are none."""
    if text is None or not text.strip():
        return None
    return Objectives(slo=parse_slo(text), attainment=1.0, percentiles={})


def parse_objectives(text: str, attainment: float) -> Objectives:
    """Read `"ttft:1000 tpot:60 p99_e2el:20000"`, in milliseconds: limits of each request, and of percentiles.

    >>> found = parse_objectives("ttft:1000 p99_tpot:60", 0.99)
    >>> found.slo.limits_s, dict(found.percentiles)
    ({'ttft': 1.0}, {('tpot', 99.0): 0.06})

    Raises
    ------
    UsageError, UnknownNameError : as `slo.parse_slo`; `attainment` is no share in (0, 1].
    """
    if not 0 < attainment <= 1:
        raise UsageError(f"--attainment {attainment}: must be a share in (0, 1]")
    plain, percentiles = [], {}
    for part in text.replace(",", " ").split():
        match = _PERCENTILE.fullmatch(part)
        if match is None:
            plain.append(part)
            continue
        limit = parse_slo(f"{match[2]}:{match[3]}").limits_s
        percentile = float(match[1])
        if not 0 < percentile <= 100:
            raise UsageError(f"--slo {part!r}: {match[1]} is no percentile above 0 and up to 100")
        if (match[2], percentile) in percentiles:
            raise UsageError(f"--slo {text!r}: p{percentile:g}_{match[2]} is given twice")
        percentiles[match[2], percentile] = limit[match[2]]
    slo = Slo() if percentiles and not plain else parse_slo(" ".join(plain))
    return Objectives(slo=slo, attainment=attainment, percentiles=percentiles)


def judge(objectives: Objectives, times_s: Mapping[str, Floats], groups: NDArray[np.int64] | None = None) -> Verdict:
    """Tell whether requests keep the objectives.

    Parameters
    ----------
    times_s : by metric, "ttft", "tpot", "e2el", shape [num_requests]; NaN where a request has none.
    groups : tenant or class of each request, of which every one must keep them; None for one group.
    """
    met = attainment_by_metric(objectives.slo, *(times_s[metric] for metric in METRICS))
    kinds = [slice(None)] if groups is None else [groups == group for group in np.unique(groups)]
    verdicts = [_judge_group(objectives, {name: values[kind] for name, values in met.items()},
                             {name: values[kind] for name, values in times_s.items()}) for kind in kinds]
    return min(verdicts, key=lambda verdict: (verdict.is_met, verdict.attainment))


def _judge_group(objectives: Objectives, met: Mapping[str, NDArray[np.bool_]],
                 times_s: Mapping[str, Floats]) -> Verdict:
    share = float(np.all(list(met.values()), axis=0).mean()) if met else 1.0
    slack = {name: float(values.mean()) / objectives.attainment for name, values in met.items()}
    is_met = share >= objectives.attainment
    answered = ~np.isnan(times_s["e2el"])
    for (metric, percentile), limit in objectives.percentiles.items():
        one_token = 0.0 if metric == "tpot" else np.inf
        values = np.where(np.isnan(times_s[metric]), np.where(answered, one_token, np.inf), times_s[metric])
        found = float(np.percentile(values, percentile, method="linear" if np.isfinite(values).all() else "higher"))
        slack[f"p{percentile:g}_{metric}"] = limit / found if found > 0 else np.inf
        is_met &= found <= limit
    allowed = 1.0 - objectives.attainment
    strains = [1 / value if value > 0 else np.inf for name, value in slack.items() if name not in met]
    if met:
        strains.append((1.0 - share) / allowed if allowed > 0 else 2.0 - share)
    return Verdict(is_met=bool(is_met), attainment=share, limiting_metric=min(slack, key=lambda name: slack[name]),
                   strain=float(max(strains)), unanswered=float(1.0 - answered.mean()))
