"""An autoscaler's knowledge of the rate to come: the shape of past rates, and how far ahead it looks."""

import math
from dataclasses import dataclass

from planner.traces.shaping.forecast import Seasonal, seasonal
from planner.traces.shaping.rate_series import RateSeries


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The rates of the past, as a forecast of future ones.

    Parameters
    ----------
    history : rates of the past.
    season_s : after which the rate has its shape again [s].
    offset_s : clock of the history, less the replay's [s].
    lead_s : how far beyond the start-up it looks [s].
    """

    history: RateSeries
    season_s: float
    offset_s: float
    lead_s: float

    def of_startup(self, startup_s: float) -> "Ahead":
        """Return the forecast of a fleet whose replicas need `startup_s` to start."""
        horizon_s = startup_s + self.lead_s
        return Ahead(shape=seasonal(self.history, self.season_s, horizon_s), offset_s=self.offset_s,
                     horizon_s=horizon_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """How a rate changes until a replica that starts now serves.

    Parameters
    ----------
    shape : of the rate over a season.
    offset_s : clock of the shape, less the replay's [s].
    horizon_s : how far it looks ahead [s].
    """

    shape: Seasonal
    offset_s: float
    horizon_s: float

    def growth(self, now_s: float) -> float:
        """Return the factor from the rate of now to the largest until then: the load of now must be served too [1]."""
        clock_s = now_s + self.offset_s
        steps = max(math.ceil(self.horizon_s / self.shape.window_s), 1)
        return max(1.0, *(self.shape.ratio(clock_s, clock_s + self.horizon_s * step / steps)
                          for step in range(1, steps + 1)))
