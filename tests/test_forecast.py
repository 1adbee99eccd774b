"""Forecasts of rates: known waves, what a history must be, and an autoscaler that sees the next start-up ahead."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import cheapest, play, trace_of

from planner.deployment.foresight import Ahead
from planner.errors import AutoscaleError, UsageError
from planner.planning.search_options import Choices
from planner.planning.sizing import size
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces.shaping.forecast import Seasonal, coverage, forecast, seasonal
from planner.traces.shaping.rate_series import RateSeries

STEPS: dict[str, Any] = {"step_time": "linear:0.2,1e-9", "max_num_seqs": 1}


def series_of(rates: list[float], window_s: float = 600.0, start_s: float = 0.0) -> RateSeries:
    count = len(rates)
    return RateSeries(source="test", start_s=start_s + window_s * np.arange(float(count)),
                      duration_s=np.full(count, window_s), rate_rps=np.array(rates))


def test_a_wave_that_repeats_is_followed_whole() -> None:
    found = seasonal(series_of([1.0, 2.0, 4.0, 2.0] * 5), 2400.0, 600.0)
    assert found.strength == pytest.approx(1.0)
    assert found.ratio(300.0, 900.0) == pytest.approx(2.0)  # from the middle of a window to that of the next
    assert found.ratio(300.0, 2700.0) == pytest.approx(1.0)
    assert found.ratio(300.0, 600.0) == pytest.approx(math.sqrt(2.0))


def test_noise_has_no_shape() -> None:
    """Of rates that say nothing of the next season, little is followed."""
    rates = np.random.default_rng(1).lognormal(0.0, 0.5, 2016).tolist()
    assert seasonal(series_of(rates), 86400.0, 600.0).strength < 0.1


def test_the_clock_of_the_history_is_kept() -> None:
    """The latest whole seasons end with the series, wherever its clock begins."""
    late = seasonal(series_of([9.0, 1.0, 2.0, 4.0, 2.0, 1.0, 2.0, 4.0, 2.0], start_s=500.0), 2400.0, 600.0)
    assert late.start_s == 1100.0
    assert late.ratio(1400.0, 2000.0) == pytest.approx(2.0)


def test_a_forecast_is_a_quantile_of_the_past_seasons() -> None:
    past = series_of([1.0, 10.0, 3.0, 30.0, 2.0, 20.0])
    found = forecast(past, 2400.0, 1200.0, 0.5)
    assert found.rate_rps.tolist() == [2.0, 20.0, 2.0, 20.0]
    assert found.start_s.tolist() == [0.0, 600.0, 1200.0, 1800.0]
    assert forecast(past, 1200.0, 1200.0, 0.999).rate_rps == pytest.approx([3.0, 30.0], rel=0.01)
    assert coverage(past, 1200.0, 0.5) == 1.0  # 2 and 20 are the medians of 1, 3 and of 10, 30
    assert coverage(series_of([1.0, 2.0] * 2), 1200.0, 0.5) is None


@pytest.mark.parametrize(("rates", "season_s", "words"), [
    ([1.0] * 8, 900.0, "two or more whole windows of 600 s"), ([1.0] * 8, 600.0, "two or more whole windows"),
    ([1.0] * 3, 1200.0, "needs two seasons"), ([1.0] * 8, math.inf, "two or more whole windows")])
def test_what_makes_no_season_is_refused(rates: list[float], season_s: float, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        seasonal(series_of(rates), season_s, 600.0)


def test_windows_must_be_equally_long() -> None:
    uneven = RateSeries(source="test", start_s=np.array([0.0, 10.0, 30.0]), duration_s=np.array([10.0, 20.0, 20.0]),
                        rate_rps=np.ones(3))
    with pytest.raises(UsageError, match="windows of equal length; they are from 10 to 20 s"):
        seasonal(uneven, 20.0, 10.0)


def test_the_load_of_now_counts_while_the_rate_falls() -> None:
    wave = Seasonal(window_s=10.0, log_shape=np.log([1.0, 4.0]), start_s=0.0, strength=1.0)
    ahead = Ahead(shape=wave, offset_s=0.0, horizon_s=10.0)
    assert ahead.growth(5.0) == pytest.approx(4.0)
    assert ahead.growth(15.0) == 1.0
    assert Ahead(shape=wave, offset_s=10.0, horizon_s=10.0).growth(15.0) == pytest.approx(4.0)


def autoscale(folder: Path, name: str, more: str = "") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(f'minimum = 1\nmaximum = 4\ninterval_s = 5\nstartup = {{ warmup_s = 60 }}\n'
                    f'[down]\nstabilization_window_s = 0\n[[metric]]\nname = "{name}"\ntarget = 3\nwindow_s = 20\n'
                    f'{more}')
    return path


def test_an_autoscaler_with_a_forecast_starts_replicas_before_the_rise(tmp_path: Path) -> None:
    """Two requests a second rise to ten at 200 s, as in the seasons before: replicas need a minute to start."""
    (tmp_path / "past.csv").write_text("start_s,rate_rps\n" + "".join(
        f"{20 * k},{2.0 if k % 20 < 10 else 10.0}\n" for k in range(200)))
    rows = [(k / 2, 10, 1) for k in range(400)] + [(200 + k / 10, 10, 1) for k in range(1000)]
    late, early = (play(rows, **STEPS, autoscale=autoscale(tmp_path, name, more)) for name, more in (
        ("request-rate", ""), ("forecast", 'history = "past.csv"\nseason_s = 400\nlead_s = 20\n')))
    assert late.scaling is not None
    assert early.scaling is not None
    first, seen = late.scaling.events[0].at_s, early.scaling.events[0].at_s
    assert first > 200.0
    assert 100.0 < seen < 140.0 + 20.0
    assert early.scaling.events[0].metric == "forecast"
    waits = [float(np.nanmax(result.ttft_s)) for result in (late, early)]
    assert waits[1] < waits[0]


@pytest.mark.parametrize(("more", "words"), [
    ("", "forecast lacks history"), ("history = 3\n", "history = 3"),
    ('history = "none.csv"\n', "none.csv"), ('history = "past.csv"\n', "needs two seasons"),
    ('history = "past.csv"\nseason_s = -1\n', "season_s = -1"),
    ('history = "past.csv"\nseason_s = 40\nstarts_at = "7"\n', "must be a time of day")])
def test_bad_histories_are_refused(tmp_path: Path, more: str, words: str) -> None:
    (tmp_path / "past.csv").write_text("start_s,rate_rps\n" + "".join(f"{10 * k},1\n" for k in range(20)))
    with pytest.raises(AutoscaleError, match=words):
        play([(0.0, 10, 1)], **STEPS, autoscale=autoscale(tmp_path, "forecast", more))


def test_a_fleet_is_sized_for_the_forecast() -> None:
    """Servers of ten requests a second: the forecast of 5 and 45 a second needs one and five of them."""
    trace = trace_of([(k / 10, 1, 1) for k in range(100)])
    past = series_of([4.0, 40.0, 5.0, 45.0, 5.0, 44.0], window_s=60.0)
    scenario = Scenario(step_time="linear:0.1,1e-9", num_gpu_blocks=4000, max_num_seqs=1, async_scheduling=False,
                        model="llama-3.1-8b", gpu="h100-sxm", router="round-robin")
    choices = Choices(gpus=("h100-sxm",), ranks=(1,), series=past, forecast_s=120.0, season_s=120.0, jobs=1,
                      forecast_quantile=0.99, compare_assumptions=False, scaling="compress")
    found = size(trace, scenario, parse_objectives("ttft:101", 1.0), choices)
    schedule = cheapest(found).schedule
    assert schedule is not None
    assert [part.rate_rps for part in schedule.parts] == pytest.approx([5.0, 45.0], rel=0.01)
    assert [part.num_replicas for part in schedule.parts] == [1, 5]
    (note,) = [note for note in found.notes if "forecast" in note]
    assert "the 99 % quantile over past seasons of 120 s; forecast from the seasons before, the last one" in note
    with pytest.raises(UsageError, match="give --rate-series"):
        size(trace, scenario, parse_objectives("ttft:101", 1.0), replace(choices, series=None))
    with pytest.raises(UsageError, match="--forecast-quantile 1"):
        size(trace, scenario, parse_objectives("ttft:101", 1.0), replace(choices, forecast_quantile=1.0))
