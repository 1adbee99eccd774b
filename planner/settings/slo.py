"""Limits of each request, by the metrics of `vllm bench serve --goodput`, and which requests meet them."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

METRICS = ("ttft", "tpot", "e2el")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Upper limits that a good request keeps, each in seconds; infinite where there is none.

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


def attainment_by_metric(slo: Slo, ttft_s: NDArray[np.float64], tpot_s: NDArray[np.float64],
                         e2e_s: NDArray[np.float64]) -> dict[str, NDArray[np.bool_]]:
    """Return per metric which requests meet it, shape [num_requests].

    Parameters
    ----------
    ttft_s, tpot_s, e2e_s : measured or predicted [s]; NaN where a request has none. A request without a first token
        misses every objective; one with a single token passes on TPOT.
    """
    answered = ~np.isnan(ttft_s) & ~np.isnan(e2e_s)
    values = {"ttft": ttft_s, "tpot": np.where(np.isnan(tpot_s), 0.0, tpot_s), "e2el": e2e_s}
    return {name: answered & (values[name] <= limit) for name, limit in slo.limits_s.items()}


def meets(slo: Slo, ttft_s: NDArray[np.float64], tpot_s: NDArray[np.float64],
          e2e_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which requests meet every objective, shape [num_requests]."""
    good = ~np.isnan(ttft_s) & ~np.isnan(e2e_s)
    for met in attainment_by_metric(slo, ttft_s, tpot_s, e2e_s).values():
        good &= met
    return good
