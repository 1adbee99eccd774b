"""Figures: what they draw equals what the tables and the summary say, and nothing to draw is drawn as such."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import EVERYTHING, filled, number, play, scenario_of, trace_of

from planner.errors import UnknownNameError
from planner.loop.state.engine_settings import Recording
from planner.measured.published import Published
from planner.planning.capacity_answer import CapacityAnswer, Confidence, Probe
from planner.planning.cheapest_kept import by_choice
from planner.planning.check_answer import TargetVerdict
from planner.planning.size_answer import Fleet, Schedule, SchedulePart, SizeAnswer, UnableFleet
from planner.report import figures
from planner.report.figures.accuracy_figures import predicted_over_measured, published_errors
from planner.report.figures.answer_figures import (
    attainment_over_load,
    capacity_figure,
    fleet_costs,
    fleet_load,
    target_margins,
)
from planner.report.figures.bins import MOST_BINS, bin_steps, num_replicas, time_bins, within
from planner.report.figures.latency_figures import latency_cdf, time_by_phase
from planner.report.figures.phase_colors import PHASE_COLORS, SPAN_COLORS, TERM_COLORS
from planner.report.figures.rate_figures import arrivals, lengths
from planner.report.figures.schedule_figures import STEP_KINDS, schedule_timeline, whole_strip
from planner.report.figures.style import LINE_COLORS, PAPER, themed
from planner.report.figures.sweep_figures import front_scatter, parallel_axes
from planner.results.phases import PHASES
from planner.results.saved import SavedResult, load_result, save_result
from planner.results.spans import spans
from planner.run import replay
from planner.settings.objectives import Required
from planner.steptime.by_term import TERMS


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SavedResult:
    """Eighty requests on so few blocks that some are preempted, saved and read back."""
    draws = np.random.default_rng(7)
    arrivals = np.cumsum(draws.exponential(0.02, 80))
    rows = [(float(a), int(draws.integers(1, 120)), int(draws.integers(1, 60))) for a in arrivals]
    scenario = scenario_of(num_gpu_blocks=60, max_num_batched_tokens=64, policy="prefill-first")
    outcome = replay(trace_of(rows), scenario, slo="ttft:500 tpot:30", recording=EVERYTHING)
    folder: Path = tmp_path_factory.mktemp("saved") / "small"
    save_result(outcome.result, outcome.summary, folder)
    saved = load_result(folder)
    assert saved.summary["num_preemptions"] > 0
    return saved


def by_hand(result: SavedResult, column: str, edges: np.ndarray) -> np.ndarray:
    """Return the integral of a column over each bin, step by step."""
    found = np.zeros(len(edges) - 1)
    origin = result.requests["arrival_s"].min()
    for start, duration, value in result.steps.select("start_s", "duration_s", column).iter_rows():
        for k in range(len(found)):
            overlap = min(start - origin + duration, edges[k + 1]) - max(start - origin, edges[k])
            found[k] += value * max(0.0, overlap)
    return found


@pytest.mark.parametrize(("metric", "limit_ms"), [("ttft", 500), ("tpot", 30), ("e2el", None)])
def test_distributions_carry_the_percentiles_of_the_summary(result: SavedResult, metric: str,
                                                            limit_ms: float | None) -> None:
    line, markers, *objectives = latency_cdf(result, metric).data
    keys = [f"{name}_{metric}_ms" for name in ("median", "p90", "p99")]
    assert list(markers.x) == pytest.approx([result.summary[key] for key in keys])
    assert list(markers.y) == [50, 90, 99]
    assert len(line.x) <= 500
    assert all(np.diff(line.x) >= 0)
    assert line.x[list(line.y).index(95)] == pytest.approx(result.summary[f"p95_{metric}_ms"])
    assert [list(trace.x) for trace in objectives] == ([] if limit_ms is None else [[limit_ms, limit_ms]])


def test_an_unknown_metric_is_an_error(result: SavedResult) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'ttft'"):
        latency_cdf(result, "tttf")


def test_throughput_adds_up_to_the_tokens(result: SavedResult) -> None:
    output, prompt = figures.throughput(result).data
    assert sum(output.y) * output.dx == pytest.approx(result.summary["total_output_tokens"])
    assert sum(prompt.y) * prompt.dx == pytest.approx(result.steps["num_prompt_tokens"].sum())


@pytest.mark.parametrize(("column", "draw", "row", "scale"), [
    ("num_running", figures.queue, 0, 1), ("num_waiting", figures.queue, 1, 1),
    ("num_used_blocks", figures.kv_use, 0, 16),
])
def test_means_are_over_time_and_peaks_are_kept(result: SavedResult, column: str, draw: Callable[[Any], Any], row: int,
                                                scale: int) -> None:
    peak, mean = draw(result).data[2 * row : 2 * row + 2]
    edges = np.arange(len(mean.y) + 1) * mean.dx
    assert np.allclose(mean.y, scale * by_hand(result, column, edges) / mean.dx)
    assert max(peak.y) == scale * number(result.steps[column].max())
    assert all(peak.y >= mean.y - 1e-9)


def test_a_span_is_drawn_in_bins_of_its_own(result: SavedResult) -> None:
    """Means over each bin of the span alone, of steps cut at its edges; a span after the end has no bins."""
    whole = time_bins([result])
    span = (0.25 * whole.end_s, 0.5 * whole.end_s)
    _, mean = figures.queue(result, span=span).data[:2]
    edges = span[0] + np.arange(len(mean.y) + 1) * mean.dx
    assert edges[-1] == pytest.approx(span[1])
    assert mean.x0 == pytest.approx(span[0] + 0.5 * mean.dx)
    assert np.allclose(mean.y, by_hand(result, "num_running", edges) / mean.dx)
    for draw in (getattr(figures, name) for name in figures.OVER_TIME if name != "replicas"):
        shown = draw(result, span=span)
        assert shown.layout[shown.data[0].xaxis.replace("x", "xaxis")].range == pytest.approx(span)
    assert time_bins([result], (whole.end_s + 1, whole.end_s + 2)).count == 0
    assert not figures.queue(result, span=(whole.end_s + 1, whole.end_s + 2)).data
    sent = within(result, span).requests["arrival_s"] - result.requests["arrival_s"].min()
    assert sent.len() > 0
    assert sent.is_between(*span).all()


def test_kv_use_shows_its_capacity(result: SavedResult) -> None:
    figure = figures.kv_use(result)
    assert figure.layout.shapes[0].y0 == 60 * 16
    assert max(figure.data[0].y) / (60 * 16) == pytest.approx(result.summary["kv_cache_usage_peak"])


def test_terms_add_up_to_the_busy_time(result: SavedResult) -> None:
    traces = figures.step_terms(result).data
    assert {trace.name for trace in traces} <= {term.removesuffix("_s").replace("_", " ") for term in TERMS}
    total = np.sum([trace.y for trace in traces], axis=0)
    assert total.max() <= 100 + 1e-9
    assert total.sum() / 100 * traces[0].dx == pytest.approx(result.steps["duration_s"].sum())


def test_composition_is_a_mean_over_steps(result: SavedResult) -> None:
    traces = figures.step_composition(result).data
    bins = time_bins([result])
    each = replace(result, steps=result.steps.with_columns(each=1 / pl.col("duration_s")))
    shares = by_hand(each, "each", np.arange(bins.count + 1) * bins.width_s)
    decodes = np.nan_to_num(np.asarray(traces[3].y))
    assert decodes @ shares == pytest.approx(result.steps["num_decodes"].sum())
    assert np.nanmax(traces[4].y) == pytest.approx(1e3 * number(result.steps["duration_s"].max()))


def test_the_strip_counts_all_requests_and_shades_those_that_are_shown(result: SavedResult) -> None:
    requests = result.requests
    strip = whole_strip(requests, requests.slice(20, 10))
    rate, slowest = strip.data
    assert sum(rate.y) * rate.dx == pytest.approx(requests.height)
    assert np.nanmax(slowest.y) == pytest.approx(number(requests["ttft_s"].max()))
    assert [rate.customdata[0][0], rate.customdata[-1][1]] == [0, requests.height]
    (shade,) = strip.layout.shapes
    origin = number(requests["arrival_s"][0])
    assert [shade.x0, shade.x1] == pytest.approx([requests["arrival_s"][k] - origin for k in (20, 29)])
    assert whole_strip(requests.head(1), requests.head(1)).data


def test_phases_add_up_to_the_latency(result: SavedResult) -> None:
    bars = {bar.name: bar for bar in time_by_phase(result).data}
    assert {"queue", "prefill", "decode", "interference", "preemption", "recompute"} <= set(bars) <= set(PHASES)
    total = sum(bar.x for bar in bars.values())
    assert total[0] == pytest.approx(result.summary["mean_e2el_ms"])
    slowest = number(result.requests["e2e_s"].sort(descending=True).head(8).mean())
    assert total[1] == pytest.approx(1e3 * slowest)
    assert bars["preemption"].x[0] == pytest.approx(1e3 * number(result.requests["preempted_s"].mean()))


def test_overlapping_steps_share_their_time_and_replicas_are_averaged(result: SavedResult) -> None:
    steps = pl.DataFrame({"start_s": [0.0, 0.5, 0.0], "duration_s": [1.0, 1.0, 2.0], "replica": [0, 0, 1],
                          "num_running": [4, 6, 2]})
    requests = pl.DataFrame({"arrival_s": [0.0, 0.0], "replica": [0, 1]})
    two = replace(result, requests=requests, steps=steps)
    bins = time_bins([two])
    assert (bins.count, bins.width_s, num_replicas(two)) == pytest.approx((3, 2 / 3, 2))
    means = bin_steps(two, replace(bins, count=1, width_s=2.0)).mean("num_running")
    assert means == pytest.approx([(4 / 2 + 6 / 2 + 2) / 2])
    means = bin_steps(two, replace(bins, count=2, width_s=1.0)).mean("num_running")
    assert means == pytest.approx([((4 * 1 + 6 * 0.5) / 1.5 + 2) / 2, (6 * 0.5 + 2) / 2])


def test_long_replays_stay_small_and_short_ones_end_where_they_end(result: SavedResult) -> None:
    n = 50_000
    steps = pl.DataFrame({name: np.ones(n) for name in result.steps.columns}).with_columns(
        start_s=pl.Series(np.arange(n) * 0.04), duration_s=0.04)
    long = replace(result, name="long", steps=steps)
    figure = figures.queue([long, result])
    assert {len(trace.y) for trace in figure.data} == {MOST_BINS}
    of_short = [trace for trace in figure.data if trace.legendgroup == "small"]
    assert all(np.isnan(trace.y[1:]).all() and not np.isnan(trace.y[0]) for trace in of_short)
    texts = [json.dumps(json.loads(figure.to_json())) for figure in figures.all_figures([long] * 12).values()]
    assert sum(map(len, texts)) < 900_000  # beside Plotly's own 4.8 MB


def without(result: SavedResult, case: str) -> SavedResult:
    none = pl.lit(None)
    changed: dict[str, dict[str, Any]] = {
        "a single request": {"requests": result.requests.head(1), "steps": result.steps.head(1)},
        "none completed": {"requests": result.requests.with_columns(status=pl.lit("rejected"), ttft_s=none)},
        "no steps": {"steps": result.steps.head(0)},
        "nothing at all": {"requests": result.requests.head(0), "steps": result.steps.head(0)},
        "null columns": {"requests": result.requests.with_columns(tpot_s=none, stalled_s=none, queue_s=none),
                         "steps": result.steps.with_columns(num_waiting=none, num_used_blocks=none)},
    }
    return replace(result, **changed[case])


@pytest.mark.slow
@pytest.mark.parametrize("case", ["a single request", "none completed", "no steps", "nothing at all", "null columns"])
def test_what_is_missing_leaves_a_note(result: SavedResult, case: str) -> None:
    for shown in (without(result, case), [result, without(result, case)]):
        for figure in figures.all_figures(shown).values():
            assert json.loads(figure.to_json())["layout"]["title"]["text"]
            assert figure.data or [note.text for note in figure.layout.annotations]


def test_names_are_shown_as_they_are_and_told_apart(result: SavedResult) -> None:
    hostile = replace(result, name="<a href='https://e.v'>x</a>\n\u202e")
    assert figures.labels([hostile, hostile, replace(result, name="n" * 99)]) == [
        "<a href='https://e.v'>x</a>\ufffd\ufffd", "<a href='https://e.v'>x</a>\ufffd\ufffd (2)", "n" * 39 + "…"]
    for figure in figures.all_figures([hostile, result]).values():
        assert "<a" not in figure.to_json().replace("\\u003c", "<")


@pytest.mark.parametrize("options", [{}, {"policy": "vllm-v0"}, {"num_gpu_blocks": 14, "block_size": 4},
                                     {"max_num_batched_tokens": 16, "max_num_seqs": 3}])
def test_spans_are_a_requests_whole_time_and_all_its_tokens(options: dict[str, Any]) -> None:
    """From arrival to its last token without a hole; prompts, recomputed tokens and outputs are all in them."""
    result = play([(0.01 * k, 12 + 5 * k % 20, 3 + k % 6) for k in range(9)], max_model_len=64, **options)
    requests = result.requests_table()
    found = spans(requests, result.steps_table(), result.schedule_table())
    assert set(found["kind"]) <= set(SPAN_COLORS)
    for row in requests.iter_rows(named=True):
        own = found.filter(request_id=row["request_id"])
        assert own["start_s"][0] == row["arrival_s"]
        assert own["end_s"][-1] == pytest.approx(row["finished_at_s"])
        assert own["start_s"][1:].to_list() == pytest.approx(own["end_s"][:-1].to_list())
        assert own["num_tokens"].sum() == row["input_tokens"] + row["output_tokens"] - 1 + row["num_recomputed_tokens"]
        waited = own.filter(kind="waiting")
        assert (waited["end_s"] - waited["start_s"]).sum() == pytest.approx(row["queue_s"] + row["frontend_s"])
    figure = schedule_timeline(requests, result.steps_table(), result.schedule_table())
    lanes = [bar for bar in figure.data if bar.name in STEP_KINDS]
    assert {bar.name for bar in figure.data} - set(STEP_KINDS) == set(found["kind"])
    assert sum(len(bar.x) for bar in lanes) == result.steps_table().height
    assert sum(np.sum(bar.x) for bar in lanes) == pytest.approx(result.steps_table()["duration_s"].sum())
    nothing = schedule_timeline(requests.head(0), result.steps_table(), result.schedule_table())
    assert nothing.layout.annotations[0].text == "no request ran"


def test_traffic_and_answers_are_drawn() -> None:
    trace = trace_of([(0.5 * k, 100 + k, 10) for k in range(40)])
    rates = arrivals(trace)
    assert np.nansum(rates.data[0].y) * (19.5 / len(rates.data[0].y)) == pytest.approx(40)
    assert max(lengths(trace).data[0].x) == 139
    probes = tuple(Probe(load=rate, attainment=share, is_met=share >= 0.9, limiting_metric="ttft")
                   for rate, share in ((1.0, 1.0), (2.0, 0.95), (3.0, 0.5)))
    drawn = attainment_over_load(filled(CapacityAnswer, probes=probes, attainment=0.9, capacity=2.0,
                                        confidence=Confidence(p10=1.8, p50=2.0, p90=2.2)))
    assert [len(trace.x) for trace in drawn.data] == [3, 2, 1]
    fleets = filled(SizeAnswer, alternatives=(filled(Fleet, cost_usd_per_hour=6.0), filled(UnableFleet)))
    assert list(fleet_costs(fleets).data[0].x) == [6.0]


def test_a_sweep_is_drawn() -> None:
    table = pl.DataFrame({"gpu": ["a", "b", "a"], "max_num_seqs": [1, 2, 3], "status": ["done", "done", "too large"],
                          "is_pareto": [True, False, False], "p99_ttft_ms": [1.0, 2.0, None],
                          "p99_tpot_ms": [3.0, 4.0, None]})
    front = front_scatter(table, ["gpu", "max_num_seqs"], ["p99_ttft_ms", "p99_tpot_ms"])
    assert {trace.name: list(trace.x) for trace in front.data} == {"on the front": [1.0], "not on the front": [2.0]}
    assert (front.layout.xaxis.type, front.layout.yaxis.title.text) == ("log", "TPOT, p99 [ms]")
    chosen = by_choice(table.with_columns(misses=pl.lit(""), cost_usd_per_million_output_tokens=pl.Series(
        [3.0, 2.0, None])), None)
    starred = front_scatter(chosen, ["gpu", "max_num_seqs"], ["p99_ttft_ms", "p99_tpot_ms"],
                            limits={"p99_ttft_ms": 1.5})
    star = next(trace for trace in starred.data if trace.name == "cheapest within the targets")
    assert [chosen.row(place, named=True)["gpu"] for place, _ in star.customdata] == ["b"]
    assert [shape.x0 for shape in starred.layout.shapes] == [1.5, 1.5]  # the limit, and the region beyond it
    lines = parallel_axes(table, ["gpu", "max_num_seqs"], ["p99_ttft_ms", "p99_tpot_ms"]).data[0]
    assert [list(axis.values) for axis in lines.dimensions] == [[0, 1], [1, 2], [1.0, 2.0], [3.0, 4.0]]
    assert not front_scatter(table.tail(1), ["gpu"], ["p99_ttft_ms", "p99_tpot_ms"]).data
    runs = pl.DataFrame({"id": ["x", "y"], "measured_tpot": [10.0, None], "predicted_tpot": [11.0, 5.0]})
    assert list(predicted_over_measured(runs, "tpot").data[1].y) == [11.0]


def test_a_load_stands_against_its_fleet() -> None:
    """Load and what is borne as steps, each as long as its part; the whole fleet bears the peak and its headroom."""
    parts = (SchedulePart(start_s=0.0, duration_s=3600.0, rate_rps=5.0, num_replicas=1, num_gpus=1, served_rps=6.0),
             SchedulePart(start_s=3600.0, duration_s=7200.0, rate_rps=20.0, num_replicas=3, num_gpus=3,
                          served_rps=20.0))
    best = filled(Fleet, schedule=filled(Schedule, parts=parts, peak_rps=20.0), headroom=0.5, num_replicas=3)
    found = filled(SizeAnswer, cheapest=best)
    drawn = {trace.name: trace for trace in fleet_load(found).data}
    assert list(drawn["load"].x) == [0.0, 1.0, 3.0]
    assert list(drawn["load"].y) == [5.0, 20.0, 20.0]
    assert list(drawn["capacity on the schedule"].y) == [6.0, 20.0, 20.0]
    assert list(drawn["capacity of the whole fleet"].y) == [30.0, 30.0, 30.0]
    assert list(drawn["replicas on the schedule"].y) == [1, 3, 3]
    assert not fleet_load(replace(found, cheapest=replace(best, schedule=None))).data


def test_targets_show_the_room_that_they_leave() -> None:
    row = filled(TargetVerdict, scenario="a<b", metric="p99_ttft_ms", kind="max", limit=200.0, margin=50.0)
    checks = [row, replace(row, margin=-20.0), replace(row, kind="max_regression", limit=0.05, margin=0.01),
              replace(row, margin=None)]
    kept, missed = target_margins(checks).data
    assert list(kept.x) == [25.0, 1.0]
    assert list(missed.x) == [-10.0]
    assert kept.y[0] == "a&lt;b: p99_ttft_ms max"
    assert not target_margins([]).data


@pytest.mark.slow
def test_a_hundred_thousand_requests_stay_a_small_figure() -> None:
    """Every figure is binned or drawn at percentiles, says so, and is no larger than one of a thousand requests."""
    many, few = (large_result(count) for count in (100_000, 1_000))
    small = figures.all_figures(few)
    for name, figure in figures.all_figures(many).items():
        assert points(figure) <= max(2 * points(small[name]), 200), name
        assert len(figure.to_json()) < 400_000, name
        assert re.search(r"bins|markers at|means of completed", figure.layout.title.subtitle.text), name
    for figure in (arrivals(trace_of(large_rows(100_000))), lengths(trace_of(large_rows(100_000)))):
        assert len(figure.to_json()) < 200_000
        assert re.search(r"means (of|over)|of 100,000 requests", figure.layout.title.subtitle.text)


def large_rows(count: int) -> list[tuple[float, int, int]]:
    return [(0.001 * k, 20 + k % 50, 1 + k % 7) for k in range(count)]


def large_result(count: int) -> SavedResult:
    outcome = replay(trace_of(large_rows(count)), scenario_of(step_time="linear:0.001,0.000001"), slo="ttft:100",
                     recording=Recording(steps=True))
    return SavedResult(name="large", summary=outcome.summary, requests=outcome.requests, steps=outcome.steps)


def points(figure: Any) -> int:
    """How many numbers a figure draws."""
    return sum(len(values) for trace in figure.data for values in (trace.x, trace.y) if values is not None)


def test_published_figures_are_drawn_against_their_targets() -> None:
    rows = [Published(section="A & B", name="a metric of a name that is long", value=0.1, limit=0.2, at_least=False,
                      peers=""),
            Published(section="A & B", name="b", value=0.3, limit=0.2, at_least=False, peers=""),
            Published(section="A & B", name="c", value=0.4, limit=None, at_least=False, peers=""),
            Published(section="A & B", name="d", value=None, limit=0.2, at_least=True, peers="")]
    drawn = {trace.name: trace for trace in published_errors(rows).data}
    assert {name: list(trace.x) for name, trace in drawn.items()} == {
        "target met": [10.0], "target missed": [30.0], "no target": [40.0], "target": [20.0, 20.0]}
    assert drawn["target met"].y[0] == "a metric of a name that is<br>long"


def test_the_rows_of_a_figure_over_time_have_one_cursor(result: SavedResult) -> None:
    """They have one x axis, and the hover names the row of each number."""
    figure = figures.step_composition(result)
    assert {trace.xaxis for trace in figure.data} == {"x3"}
    assert figure.layout.hoversubplots == "axis"
    assert {trace.hovertemplate.partition(" ")[2] for trace in figure.data} == {"prompt tokens", "decodes",
                                                                               "step time [ms]"}


def test_a_colour_means_one_thing() -> None:
    """No phase, span or term shares a colour with another, or with a result."""
    for colors in (PHASE_COLORS, TERM_COLORS):
        assert len(set(colors.values())) == len(colors)
        assert not set(colors.values()) & set(LINE_COLORS)
    assert set(PHASE_COLORS) == set(PHASES)
    assert set(TERM_COLORS) == set(TERMS)
    assert set(SPAN_COLORS.values()) <= set(PHASE_COLORS.values())


def test_a_dark_figure_has_lines_that_can_be_read(result: SavedResult) -> None:
    """At least 4.5 : 1 against the page, WCAG 2.1."""
    second = replace(result, name="second")
    for figure in figures.all_figures([result, second]).values():
        dark = themed(figure, "dark")
        colors = {trace.line.color for trace in dark.data if trace.type == "scatter" and trace.line.width}
        assert all(contrast(color, PAPER["dark"][0]) >= 4.5 for color in colors)


def contrast(color: str, paper: str) -> float:
    """Return the contrast ratio of two colours, WCAG 2.1."""
    def luminance(text: str) -> float:
        parts = [int(text[place:place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    light, dark = sorted((luminance(color), luminance(paper)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("attainment", [None, 0.9])
def test_each_limit_has_a_line_that_is_1_at_its_edge(attainment: float | None) -> None:
    probes = tuple(Probe(load=rate, attainment=1 - rate / 40, is_met=rate < 3, limiting_metric="p99_ttft",
                         statistics_ms={"p99_ttft": 100 * rate, "p50_tpot": None if rate > 3 else 10.0})
                   for rate in (1.0, 2.0, 3.0, 4.0))
    found = filled(CapacityAnswer, probes=probes, attainment=attainment, capacity=3.0, confidence=None,
                   slo=Required(text="", limits_s={"p99_ttft": 0.3, "p50_tpot": 0.02}, attainment=attainment))
    figure = capacity_figure(found)
    lines = {trace.name: list(trace.y) for trace in figure.data}
    assert lines["p99 TTFT ÷ 300 ms"] == pytest.approx([1 / 3, 2 / 3, 1.0, 4 / 3])
    assert lines["p50 TPOT ÷ 20 ms"] == [0.5, 0.5, 0.5, None]
    shares = [line for name, line in lines.items() if name.startswith("requests outside")]
    assert len(shares) == (attainment is not None)
    if shares:
        assert shares[0] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert figure.layout.shapes[0].y0 == 1
