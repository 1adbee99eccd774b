"""The load at which objectives stop being kept, foretold from the strains of the loads that were tried."""

import math
from collections.abc import Mapping

from planner.settings.objectives import Verdict

STRONG = 0.25  # strain's distance from 1, further than which one strain alone does not tell the edge
STEEP = 2.0  # power of the load with which strain grows near the edge, until two strains tell it
APART = 0.05  # distance of two loads whose strains tell it, as a share: nearer ones tell chance
MOST_FORETOLD = 2  # foretold loads in turn outside a bracket; then a step is made


def strains(verdicts: Mapping[float, Verdict]) -> list[tuple[float, float]]:
    """Return loads with the logarithms of their strains, the strain nearest to 1 first."""
    told = [(load, math.log(verdict.strain)) for load, verdict in verdicts.items() if 0 < verdict.strain < math.inf]
    return sorted(told, key=lambda row: abs(row[1]))


def slope_of(verdicts: Mapping[float, Verdict], slope: float = STEEP) -> float:
    """Return the power of the load with which strain grows near the edge; beyond all loads `slope` at least.

    Strain grows faster the nearer the edge is, so a line through two loads below it leads too far.
    """
    told = strains(verdicts)
    for load, strain in told[1:]:
        if abs(math.log(load / told[0][0])) >= APART:
            secant = (strain - told[0][1]) / math.log(load / told[0][0])
            return max(secant, slope) if strain * told[0][1] > 0 or secant <= 0 else secant
    return slope


def foretold(verdicts: Mapping[float, Verdict], slope: float = STEEP) -> float | None:
    """Return the load at which strain is 1 if it grows as a power of the load; None if strains do not tell it.

    Parameters
    ----------
    slope : as of `slope_of` [1].

    >>> told = {load: Verdict(is_met=True, attainment=1.0, limiting_metric="ttft", strain=load ** 3 / 1000)
    ...         for load in (6.0, 8.0)}
    >>> round(foretold(told), 9)
    10.0
    """
    told = strains(verdicts)
    if not told or (len(told) == 1 and abs(told[0][1]) > STRONG):
        return None
    return told[0][0] * math.exp(min(max(-told[0][1] / slope_of(verdicts, slope), -1.0), 1.0))
