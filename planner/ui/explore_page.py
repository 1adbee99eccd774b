"""The page of sweeps: a grid of what-ifs, its Pareto front, and any configuration back in the sidebar."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import streamlit as st

from planner.errors import UsageError
from planner.planning.grid import DEFAULT_FRONT, Sweep, parse_axis, plan_sweep
from planner.planning.pareto import is_less_better
from planner.planning.study import Study, command_line
from planner.planning.sweeping import describe
from planner.report.figures.sweep_figures import front_scatter, parallel_axes
from planner.results.summary import HEADLINES
from planner.settings.objectives import objectives_text
from planner.traces import Trace
from planner.ui.applied import set_options
from planner.ui.downloads import answer_downloads
from planner.ui.kept_answers import Answer, answer, is_asked, question_of, search
from planner.ui.kept_replays import show, theme
from planner.ui.link import ANY, in_link, one_of
from planner.ui.named import PROFILES, named
from planner.ui.own_profiles import portable, profile_of
from planner.ui.replay_tasks import check_load
from planner.ui.sidebar import MOST as MOST_OF
from planner.ui.sidebar import widget_value
from planner.ui.tasks import PART, sweep

NAME = "sweep"
MOST = 2_000  # configurations of a page; more are for planner sweep
EXAMPLE = "max_num_seqs=32,64,128,256\nmax_num_batched_tokens=1024,2048,8192\ndata_parallel_size=1,2"
KEYS = ("axes", "pareto")  # in the address
METRICS = [key for key, _, _ in HEADLINES if is_less_better(key) is not None]
FRONT = [each for each in DEFAULT_FRONT if each in METRICS][:2]


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    left, right = st.columns(2)
    text = left.text_area("axes: an option with its values on each line", EXAMPLE, height=120,
                          **in_link("axes", EXAMPLE, ANY))
    front = right.multiselect("the front is over", METRICS, FRONT, max_selections=4,
                              **in_link("pareto", FRONT, one_of(METRICS)))
    form = {"slo": objectives_text(study.objectives), "what varies": " ".join(text.split()), "front": front}
    question = question_of(trace, study, form)
    if st.button("Replay the grid", type="primary", key="sweep_find"):
        plan = _plan(study, text, front)
        points = plan.points()
        for point in points:
            check_load(trace, point.scenario)
        search(NAME, question, (plan, _command(study, plan)), sweep, plan, trace, PART, total=len(points))
    found = answer(NAME, question, "configurations replayed")
    if found is not None:
        _draw(found)
    elif not is_asked(NAME):
        st.info("Choose the options to vary, and see the Pareto front of the configurations.")


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


def _draw(found: Answer) -> None:
    (plan, command), table = found.about, found.value
    axes = list(plan.axes)
    if found.cut is not None:
        st.warning(f"{found.cut} The front is of the {table.height:,} configurations that were replayed.")
    show(front_scatter(table, axes, plan.front, theme=theme()), key="front")
    show(parallel_axes(table, axes, plan.front, theme=theme()), key="parallel")
    rows = table.sort("is_pareto", descending=True, maintain_order=True).select(*axes, "status", "is_pareto",
                                                                                *plan.front)
    st.caption("Choose a row to copy it into the sidebar.")
    st.dataframe(rows, hide_index=True, key="chosen", on_select=lambda: _load(rows, axes), selection_mode="single-row",
                 alt="configurations")
    answer_downloads("sweep", describe(plan, Path("sweep.parquet"), table), command, table)


def _command(study: Study, plan: Sweep) -> str:
    """Return the command that replays the same grid; as here, no share of requests limits its front."""
    if study.objectives is not None:
        study = replace(study, objectives=replace(study.objectives, attainment=None))
    axes = [f"{axis}={','.join(str(widget_value(axis, value)) for value in values)}"
            for axis, values in plan.axes.items()]
    return command_line(portable(study), "sweep", {**dict.fromkeys(plan.axes), "axis": axes,
                                                   "pareto": ",".join(plan.front)})


def _load(rows: pl.DataFrame, axes: list[str]) -> None:
    """Set the sidebar's widgets to the configuration that was chosen."""
    chosen = st.session_state["chosen"]["selection"]["rows"]
    if chosen:
        row = rows.row(chosen[0], named=True)
        set_options({axis: row[axis] for axis in axes})
