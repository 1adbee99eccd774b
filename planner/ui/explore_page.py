"""The page of sweeps: a grid of what-ifs, its Pareto front, and any configuration back in the sidebar."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import polars as pl
import streamlit as st

from planner.errors import UsageError
from planner.planning.cheapest_kept import CHEAPEST, COST, KEEPS, by_choice
from planner.planning.grid import DEFAULT_FRONT, Sweep, parse_axis, plan_sweep
from planner.planning.pareto import is_less_better
from planner.planning.study import Study, command_line
from planner.planning.sweep_answer import SweepAnswer
from planner.planning.sweeping import describe
from planner.report.difference_words import setting_label, setting_words
from planner.report.figures.sweep_figures import front_scatter, metric_words, parallel_axes
from planner.report.sweep_tables import sweep_headline
from planner.results.summary import HEADLINES
from planner.settings.objectives import objectives_text
from planner.settings.scenario import Scenario
from planner.settings.statistic import metric_key, parse_statistic
from planner.traces import Trace
from planner.ui.applied import set_options
from planner.ui.axis_choice import AXES, axes_form, axis_words
from planner.ui.downloads import answer_downloads
from planner.ui.kept_answers import KeptAnswer, answer, is_asked, question_of, search
from planner.ui.kept_replays import show
from planner.ui.kept_settings import Setting, bound
from planner.ui.link import one_of
from planner.ui.named import PROFILES, named
from planner.ui.option_fields import MOST as MOST_OF
from planner.ui.option_fields import widget_value
from planner.ui.own_profiles import portable, profile_of
from planner.ui.replay_tasks import check_load
from planner.ui.study_files import save_form
from planner.ui.table_words import rounded
from planner.ui.targets_form import targets_words
from planner.ui.tasks import PART, sweep
from planner.ui.words import plain

NAME = "sweep"
MOST = 2_000  # configurations of a page; more are for planner sweep
EXAMPLE = "max_num_seqs=32,64,128,256\nmax_num_batched_tokens=1024,2048,8192\ndata_parallel_size=1,2"
STAR = "★"
KEYS = (AXES,)  # in the address
METRICS = [key for key, _, _ in HEADLINES if is_less_better(key) is not None]
FRONT = [each for each in DEFAULT_FRONT if each in METRICS][:2]
EXPLORE_SETTINGS = {"pareto": Setting(first=FRONT, values=lambda: one_of(METRICS), read=list)}


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    text = axes_form(EXAMPLE)
    front = st.multiselect("Best by", METRICS, max_selections=4, format_func=metric_words, **bound("pareto"),
                           help="The Pareto front has each configuration that no other one beats in all of these.")
    form = {"targets": targets_words(study.objectives), "best by": [metric_words(metric) for metric in front],
            "options that vary": "; ".join(axis_words(text).values())}
    question = question_of(trace, _without_axes(study, text), form)
    if st.button("Replay the grid", type="primary", key="sweep_find"):
        plan = _plan(study, text, front)
        points = plan.points()
        for point in points:
            check_load(trace, point.scenario)
        search(NAME, question, (plan, _command(study, plan), study), sweep, plan, trace, PART, total=len(points))
    found = answer(NAME, question, "configurations replayed", so_far=_draw_so_far)
    if found is not None:
        described = _draw(found)
        if found.question.key == question.key and found.cut is None:
            save_form("explore", sweep_headline(described).partition(";")[0], described)
    elif not is_asked(NAME):
        st.info("Choose options and their values. Each combination is replayed: see the cheapest one within the "
                "targets, and the configurations that no other one beats.")


def _without_axes(study: Study, text: str) -> Study:
    """Return a study without the options that vary: their values in the sidebar do not change a sweep.

    The engine does: values that belong to it are not replayed with others.
    """
    axes = {line.partition("=")[0].strip().replace("-", "_") for line in text.splitlines()} - {"engine"}
    usual: dict[str, Any] = {f.name: f.default for f in fields(Scenario) if f.name in axes}
    return replace(study, scenario=replace(study.scenario, **usual))


def _plan(study: Study, text: str, front: list[str]) -> Sweep:
    axes = dict(parse_axis(line) for line in text.splitlines() if line.strip())
    for name, values in axes.items():
        checked = [named({name: value})[name] for value in values]
        axes[name] = [profile_of(PROFILES[name], value) for value in checked] if name in PROFILES else checked
        if name in MOST_OF and any(isinstance(value, int) and value > MOST_OF[name] for value in values):
            raise UsageError(f"{name}: the dashboard takes up to {MOST_OF[name]:,}")
    plan = plan_sweep(study.trace, study.scenario, axes, slo=objectives_text(study.objectives), front=front)
    count = len(plan.points())
    if count > MOST:
        raise UsageError(f"{count:,} configurations: a page takes {MOST:,} at most; use planner sweep")
    return plan


def _draw(found: KeptAnswer) -> SweepAnswer:
    """Draw a sweep; return it as its command writes it."""
    (plan, command, study), whole = found.about, found.value
    axes, table = list(plan.axes), _by_choice(whole, study)
    if found.cut is not None:
        st.warning(f"{found.cut} The front is of the {table.height:,} configurations that were replayed.")
    _cheapest(table, axes, study)
    st.caption("Choose a point or a row to copy its values into the sidebar.")
    show(front_scatter(table, axes, plan.front, limits=_limits(study)), key="front",
         on_select=lambda: _load(table, axes, [point["customdata"][0] for point in _selected("front")["points"]]))
    st.dataframe(**_rows(table, plan), key="chosen", selection_mode="single-row",
                 on_select=lambda: _load(table, axes, _selected("chosen")["rows"]))
    with st.expander("All configurations as lines"):
        show(parallel_axes(table, axes, plan.front), key="parallel")
    described = describe(plan, Path("sweep.parquet"), whole)
    answer_downloads("sweep", described, command, whole)
    return described


def _draw_so_far(whole: pl.DataFrame, about: tuple[Sweep, str, Study]) -> None:
    """Draw the configurations that are replayed while the others are under way; a click does nothing yet."""
    plan, _, study = about
    axes, table = list(plan.axes), _by_choice(whole, study)
    _cheapest(table, axes, study, "so far ")
    show(front_scatter(table, axes, plan.front, limits=_limits(study)), key="front_so_far")
    st.dataframe(**_rows(table, plan), key="chosen_so_far")


def _by_choice(whole: pl.DataFrame, study: Study) -> pl.DataFrame:
    return by_choice(whole, None if study.objectives is None else study.objectives.attainment)


def _rows(table: pl.DataFrame, plan: Sweep) -> dict[str, Any]:
    """Return the arguments that draw configurations as a table, the cheapest with a star."""
    columns = [*plan.axes, KEEPS, *plan.front, "is_pareto", "status"]
    star = pl.when(CHEAPEST).then(pl.lit(STAR)).otherwise(pl.lit("")).alias(STAR)
    return {"data": rounded(table.select(star, *columns)),
            "hide_index": True, "alt": "configurations",
            "column_config": {STAR: st.column_config.TextColumn("", help="the cheapest within the targets"),
                              KEEPS: "within the targets", "is_pareto": "on the front",
                              **{axis: setting_label(axis) for axis in plan.axes},
                              **{metric: st.column_config.NumberColumn(
                                  metric_words(metric), format="%.2f" if metric == COST else "localized")
                                 for metric in plan.front}}}


def _cheapest(table: pl.DataFrame, axes: list[str], study: Study, so_far: str = "") -> None:
    """Say which configuration is the cheapest within the targets."""
    if study.objectives is None:
        return
    rows = table.filter(pl.col(CHEAPEST)).to_dicts()
    if rows:
        values = ", ".join(setting_words(axis, widget_value(axis, rows[0][axis])) for axis in axes)
        st.success(plain(f"Cheapest {so_far}within the targets: {values}, {rows[0][COST]:,.2f} USD per million output "
                         f"tokens; {table[KEEPS].sum():,} of {table.height:,} configurations are within."),
                   icon=":material/star:")
    elif not table[KEEPS].any():
        st.warning(f"No configuration {so_far}is within the targets.", icon=":material/block:")


def _limits(study: Study) -> dict[str, float]:
    """Return limits by metric of the summary: of statistics, and of the requests' own limits for their p99 [ms]."""
    limits_s = {} if study.objectives is None else study.objectives.limits_s
    return {metric_key(name) if parse_statistic(name) else f"p99_{name}_ms": 1e3 * limit
            for name, limit in limits_s.items()}


def _command(study: Study, plan: Sweep) -> str:
    """Return the command that replays the same grid; as here, no share of requests limits its front."""
    if study.objectives is not None:
        study = replace(study, objectives=replace(study.objectives, attainment=None))
    axes = [f"{axis}={','.join(str(widget_value(axis, value)) for value in values)}"
            for axis, values in plan.axes.items()]
    varied = dict.fromkeys(plan.axes.keys() - {"engine"})
    return command_line(portable(study), "sweep", {**varied, "axis": axes, "pareto": ",".join(plan.front)})


def _selected(key: str) -> Any:
    """Return the selection of a figure or a table."""
    return st.session_state[key]["selection"]


def _load(table: pl.DataFrame, axes: list[str], places: list[int]) -> None:
    """Set the sidebar's widgets to the configuration that was chosen."""
    if places:
        row = table.row(places[0], named=True)
        set_options({axis: row[axis] for axis in axes})
