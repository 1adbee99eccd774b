"""Forecasts of a request rate from a series of past rates: its usual shape over a season, and how far to trust it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.traces.shaping.rate_series import RateSeries

Floats = NDArray[np.float64]

DAY_S = 86400.0
FLOOR = 0.01  # of the mean rate: windows below it, as of an outage, count as this
TOLERANCE = 1e-6  # of windows that must be equally long [1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seasonal:
    """The usual shape of a rate over a season.

    Parameters
    ----------
    window_s : length of a window [s].
    log_shape : mean logarithm of the rate in each window of the season, shape [num_windows].
    start_s : instant of the season's first window, by the series' clock [s].
    strength : share of a change of the shape that the rate follows, by least squares over the past seasons [1].
    """

    window_s: float
    log_shape: Floats
    start_s: float
    strength: float

    def ratio(self, from_s: float, to_s: float) -> float:
        """Return the rate at an instant over that at another one, by the series' clock.

        >>> wave = Seasonal(window_s=10.0, log_shape=np.log([1.0, 4.0]), start_s=0.0, strength=0.5)
        >>> wave.ratio(5.0, 15.0), wave.ratio(15.0, 25.0)
        (2.0, 0.5)
        """
        return math.exp(self.strength * (self._log_rate(to_s) - self._log_rate(from_s)))

    def _log_rate(self, now_s: float) -> float:
        """Return the shape at an instant, linear between the middles of the windows."""
        place = (now_s - self.start_s) / self.window_s - 0.5
        low, count = math.floor(place), len(self.log_shape)
        share = place - low
        return float((1 - share) * self.log_shape[low % count] + share * self.log_shape[(low + 1) % count])


def seasonal(series: RateSeries, season_s: float, lead_s: float) -> Seasonal:
    """Return the shape of a series over its seasons, and how far a rate follows it over `lead_s`.

    The rate x is taken to change as log x(t + h) − log x(t) = w · (p(t + h) − p(t)) with the shape p of the other
    seasons; w is fitted over all seasons, within 0 and 1.

    Raises
    ------
    UsageError : the windows are not equally long, or do not make two whole seasons.
    """
    seasons = np.log(np.maximum(_seasons(series, season_s), FLOOR * series.mean_rps))
    window_s = float(series.duration_s[0])
    others = (seasons.sum(axis=0) - seasons) / (len(seasons) - 1)
    steps = min(max(round(lead_s / window_s), 1), seasons.size - 1)
    shape, rate = (values.ravel()[steps:] - values.ravel()[:-steps] for values in (others, seasons))
    power = float((shape * shape).sum())
    strength = float((shape * rate).sum()) / power if power > 0 else 0.0
    return Seasonal(window_s=window_s, log_shape=seasons.mean(axis=0), strength=min(max(strength, 0.0), 1.0),
                    start_s=float(series.start_s[len(series.start_s) - seasons.size]))


def forecast(series: RateSeries, duration_s: float, season_s: float, quantile: float) -> RateSeries:
    """Return the rates that follow a series, window by window: a quantile over the past seasons' rates.

    A mean would be exceeded in half of the windows. The clock begins anew at 0.

    Raises
    ------
    UsageError : as `seasonal`; the duration is shorter than a window; the quantile is no share.
    """
    seasons, window_s = _seasons(series, season_s), float(series.duration_s[0])
    if not 0 < quantile < 1:
        raise UsageError(f"--forecast-quantile {quantile}: must be a share above 0 and below 1, as in 0.9")
    if not window_s <= duration_s < math.inf:
        raise UsageError(f"--forecast {duration_s}: must be at least a window of {series.source}, {window_s:g} s")
    count = math.ceil(duration_s / window_s - TOLERANCE)
    rates: Any = np.quantile(seasons, quantile, axis=0)  # the seasons end with the series, so the next one begins here
    return RateSeries(source=f"forecast of {series.source}", start_s=window_s * np.arange(float(count)),
                      duration_s=np.full(count, window_s), rate_rps=np.resize(rates, count))


def coverage(series: RateSeries, season_s: float, quantile: float) -> float | None:
    """Return the share of the last season's windows that a forecast from the seasons before covers; None for two."""
    seasons = _seasons(series, season_s)
    if len(seasons) < 3:
        return None
    return float((seasons[-1] <= np.quantile(seasons[:-1], quantile, axis=0)).mean())


def _seasons(series: RateSeries, season_s: float) -> Floats:
    """Return the latest whole seasons of a series, shape [num_seasons, num_windows] [1/s]."""
    window_s = float(series.duration_s[0])
    if float(np.ptp(series.duration_s)) > TOLERANCE * window_s:
        raise UsageError(f"{series.source}: a forecast needs windows of equal length; they are from "
                         f"{series.duration_s.min():g} to {series.duration_s.max():g} s long")
    per_season = round(season_s / window_s) if 0 < season_s < math.inf else 0
    if per_season < 2 or abs(per_season * window_s - season_s) > TOLERANCE * season_s:
        raise UsageError(f"season of {season_s:g} s: must be two or more whole windows of {window_s:g} s "
                         f"({series.source})")
    count = len(series.rate_rps) // per_season
    if count < 2:
        raise UsageError(f"{series.source}: lasts {series.duration_s.sum():g} s; a forecast needs two seasons of "
                         f"{season_s:g} s or more")
    return series.rate_rps[len(series.rate_rps) - count * per_season:].reshape(count, per_season)
