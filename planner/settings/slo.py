"""Service-level objectives: the grammar of `vllm bench serve --goodput`, and which requests meet them."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.errors import UnknownNameError, UsageError
from planner.files.finite import number_in

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


def slo_text(slo: Slo | None) -> str | None:
    """Return objectives as `parse_slo` reads them, None where there are none.

    >>> slo_text(Slo(ttft_s=0.5, tpot_s=0.05))
    'ttft:500 tpot:50'
    """
    limits = {} if slo is None else slo.limits_s
    return " ".join(f"{name}:{1e3 * limit:g}" for name, limit in limits.items()) or None


def parse_slo(text: str) -> Slo:
    """Read `"ttft:500 tpot:50 e2el:5000"`, in milliseconds.

    >>> parse_slo("ttft:500 tpot:50").limits_s
    {'ttft': 0.5, 'tpot': 0.05}

    Raises
    ------
    UsageError : a part is not `metric:milliseconds`, is repeated, or is not positive.
    UnknownNameError : a metric is none of ttft, tpot, e2el.
    """
    limits: dict[str, float] = {}
    for part in text.replace(",", " ").split():
        name, _, value = part.partition(":")
        if name not in METRICS:
            raise UnknownNameError("SLO metric", name, METRICS)
        limit_ms = number_in(value)
        if not 0 < limit_ms < math.inf:
            raise UsageError(f"--slo {part!r}: {value!r} is not a number of milliseconds above 0, as in 'ttft:500'")
        if f"{name}_s" in limits:
            raise UsageError(f"--slo {text!r}: {name} is given twice")
        limits[f"{name}_s"] = limit_ms / 1e3
    if not limits:
        raise UsageError(f"--slo {text!r}: no objective given; expected for example 'ttft:500 tpot:50'")
    return Slo(**limits)


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
