"""The page of sweeps: a grid of what-ifs, its Pareto front, and any configuration back in the sidebar."""

from pathlib import Path

import polars as pl
import streamlit as st

from planner.errors import UsageError
from planner.figures.grid import front_scatter, parallel_axes
from planner.metrics.summary import HEADLINES
from planner.planning.grid import DEFAULT_FRONT, Sweep, parse_axis, plan_sweep
from planner.planning.pareto import is_less_better
from planner.planning.study import Study, command_line
from planner.planning.sweeping import describe
from planner.settings.objectives import objectives_text
from planner.trace import Trace
from planner.ui.downloads import answer_downloads
from planner.ui.own_profiles import portable, profile_of
from planner.ui.results import answered, keep, show, theme
from planner.ui.running import Running, finished, start
from planner.ui.sidebar import widget_value

FOUND, RUNNING = "found_sweep", "running_sweep"
MOST = 2_000  # configurations of a page; more are for planner sweep
EXAMPLE = "max_num_seqs=32,64,128,256\nmax_num_batched_tokens=1024,2048,8192\ndata_parallel_size=1,2"


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Explore")
    metrics = [key for key, _, _ in HEADLINES if is_less_better(key) is not None]
    with st.form("sweep"):
        left, right = st.columns(2)
        text = left.text_area("what varies: an option with its values on each line", EXAMPLE, height=120)
        front = right.multiselect("the front is over", metrics, [each for each in DEFAULT_FRONT if each in metrics][:2],
                                  max_selections=4)
        asked = st.form_submit_button("Replay the grid", type="primary")
    running: Running | None = st.session_state.get(RUNNING)
    if asked:
        if running is not None:
            running.progress.stop.set()
        running = st.session_state[RUNNING] = start(_plan(study, text, front), trace, study)
    if running is not None and running.progress.is_over:
        del st.session_state[RUNNING]
        keep(FOUND, running.trace, running.study, (running, finished(running)))
    elif running is not None:
        st.fragment(run_every=0.5)(_watch)(running)
    found = answered(FOUND, trace, study)
    if found is None:
        if running is None:
            st.info("Say which options vary, and see which configurations no other beats.")
        return
    _draw(*found)


def _watch(running: Running) -> None:
    """Draw how far a sweep is, and offer to stop it; the rest of the page stays as it is meanwhile."""
    progress = running.progress
    if progress.is_over:
        st.rerun()
    left, right = st.columns([5, 1], vertical_alignment="center")
    left.progress(progress.num_done / progress.total,
                  f"{progress.num_done:,} of {progress.total:,} configurations replayed")
    right.button("Stop", width="stretch", disabled=progress.stop.is_set(), on_click=progress.stop.set)


def _plan(study: Study, text: str, front: list[str]) -> Sweep:
    axes = dict(parse_axis(line) for line in text.splitlines() if line.strip())
    axes |= {kind: [profile_of(kind, str(name)) for name in axes[kind]] for kind in ("gpu", "model") if kind in axes}
    plan = plan_sweep(study.trace, study.scenario, axes, slo=objectives_text(study.objectives), front=front)
    count = len(plan.points())
    if count > MOST:
        raise UsageError(f"{count:,} configurations: a page takes {MOST:,} at most; use planner sweep")
    return plan


def _draw(running: Running, table: pl.DataFrame) -> None:
    plan, axes = running.plan, list(running.plan.axes)
    if table.height < running.progress.total:
        st.warning(f"Stopped: {table.height:,} of {running.progress.total:,} configurations were replayed; the front "
                   f"is that of these.")
    show(front_scatter(table, axes, plan.front, theme=theme()), key="front")
    show(parallel_axes(table, axes, plan.front, theme=theme()), key="parallel")
    rows = table.sort("is_pareto", descending=True, maintain_order=True).select(*axes, "status", "is_pareto",
                                                                                *plan.front)
    st.caption("Choose a row to have it in the sidebar.")
    st.dataframe(rows, hide_index=True, key="chosen", on_select=lambda: _load(rows, axes), selection_mode="single-row",
                 alt="configurations")
    answer_downloads("sweep", describe(plan, Path("sweep.parquet"), table), _command(running), table)


def _command(running: Running) -> str:
    """Return the command that replays the same grid."""
    plan = running.plan
    axes = [f"{axis}={','.join(str(widget_value(axis, value)) for value in values)}"
            for axis, values in plan.axes.items()]
    return command_line(portable(running.study), "sweep", {**dict.fromkeys(plan.axes), "axis": axes,
                                                           "pareto": ",".join(plan.front)})


def _load(rows: pl.DataFrame, axes: list[str]) -> None:
    """Set the sidebar's widgets to the configuration that was chosen."""
    chosen = st.session_state["chosen"]["selection"]["rows"]
    if chosen:
        row = rows.row(chosen[0], named=True)
        for axis in axes:
            st.session_state[axis] = widget_value(axis, row[axis])
