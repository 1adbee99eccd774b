"""Limits of each request, by the metrics of `vllm bench serve --goodput`, and which requests meet them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

METRICS = ("ttft", "tpot", "e2el")
DEADLINE = "deadline"  # name of a request's own limit on its end-to-end latency, which its trace gives
NONE_OWN: Mapping[str, Floats] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Upper limits that a good request keeps, each in seconds; infinite without a limit.

    Parameters
    ----------
    ttft_s : arrival to first token.
    tpot_s : mean time per output token after the first; a one-token output has none and passes.
    e2el_s : arrival to last token.
    """

    ttft_s: float = math.inf
    tpot_s: float = math.inf
    e2el_s: float = math.inf

    @property
    def limits_s(self) -> dict[str, float]:
        """The objectives that were set, by metric [s]."""
        limits = {"ttft": self.ttft_s, "tpot": self.tpot_s, "e2el": self.e2el_s}
        return {name: limit for name, limit in limits.items() if limit < math.inf}


def attainment_by_metric(slo: Slo, ttft_s: Floats, tpot_s: Floats, e2e_s: Floats, *,
                         own_s: Mapping[str, Floats] = NONE_OWN) -> dict[str, NDArray[np.bool_]]:
    """Return per metric which requests meet it, shape [num_requests].

    Parameters
    ----------
    ttft_s, tpot_s, e2e_s : measured or predicted [s]; NaN if a request has none. A request without a first token
        misses every objective; one with a single token passes on TPOT.
    own_s : limits of single requests by metric, "deadline" for one more on the end-to-end latency, shape
        [num_requests] each; NaN if `slo` holds [s].
    """
    answered = ~np.isnan(ttft_s) & ~np.isnan(e2e_s)
    return {name: answered & (values <= limit)
            for name, (values, limit) in _limited(slo, ttft_s, tpot_s, e2e_s, own_s).items()}


def used_share(slo: Slo, ttft_s: Floats, tpot_s: Floats, e2e_s: Floats, *,
               own_s: Mapping[str, Floats] = NONE_OWN) -> Floats:
    """Return the share that each request uses of the limit that it uses most, infinite without an answer.

    Parameters as of `attainment_by_metric`; shape [num_requests] [1].
    """
    used = np.where(np.isnan(ttft_s) | np.isnan(e2e_s), math.inf, 0.0)
    for values, limit in _limited(slo, ttft_s, tpot_s, e2e_s, own_s).values():
        used = np.fmax(used, values / limit)
    return used


def _limited(slo: Slo, ttft_s: Floats, tpot_s: Floats, e2e_s: Floats,
             own_s: Mapping[str, Floats]) -> dict[str, tuple[Floats, float | Floats]]:
    """Return the times of each metric that has a limit, and the limit, for all requests or for each [s]."""
    values = {"ttft": ttft_s, "tpot": np.where(np.isnan(tpot_s), 0.0, tpot_s), "e2el": e2e_s, DEADLINE: e2e_s}
    limits: dict[str, float | Floats] = dict(slo.limits_s)
    limits |= {name: np.where(np.isnan(each_s), limits.get(name, math.inf), each_s) for name, each_s in own_s.items()}
    return {name: (values[name], limits[name]) for name in values
            if np.isfinite(limits.get(name, math.inf)).any()}


def meets(slo: Slo, ttft_s: Floats, tpot_s: Floats, e2e_s: Floats, *,
          own_s: Mapping[str, Floats] = NONE_OWN) -> NDArray[np.bool_]:
    """Return which requests meet every objective, shape [num_requests]."""
    good = ~np.isnan(ttft_s) & ~np.isnan(e2e_s)
    for met in attainment_by_metric(slo, ttft_s, tpot_s, e2e_s, own_s=own_s).values():
        good &= met
    return good
