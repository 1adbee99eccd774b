"""The page of sweeps: a grid of what-ifs, its Pareto front, and any configuration back in the sidebar."""

import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import streamlit as st

from planner.errors import UsageError
from planner.figures.grid import front_scatter, parallel_axes
from planner.grid import DEFAULT_FRONT, Sweep, parse_axis, plan_sweep
from planner.metrics import HEADLINES
from planner.pareto import is_less_better
from planner.slo import slo_text
from planner.study import Study
from planner.sweeping import sweep
from planner.trace import Trace
from planner.ui.results import answered, keep, show, theme
from planner.ui.sidebar import widget_value

FOUND = "found_sweep"
MOST = 2_000  # configurations that a page waits for; more are for planner sweep
EXAMPLE = "max_num_seqs=32,64,128,256\nmax_num_batched_tokens=1024,2048,8192\nreplicas=1,2"


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Explore")
    metrics = [key for key, _, _ in HEADLINES if is_less_better(key) is not None]
    with st.form("sweep"):
        left, right = st.columns([2, 1])
        text = left.text_area("what varies: an option with its values on each line", EXAMPLE, height=120)
        front = right.multiselect("the front is over", metrics, [each for each in DEFAULT_FRONT if each in metrics][:2],
                                  max_selections=4)
        asked = st.form_submit_button("Replay the grid", type="primary")
    if asked:
        plan = _plan(study, text, front)
        bar = st.progress(0.0, "replaying …")
        table = _swept(plan, trace, bar)
        bar.empty()
        keep(FOUND, trace, study, (plan, table))
    found = answered(FOUND, trace, study)
    if found is None:
        st.info("Say which options vary, and see which configurations no other beats.")
        return
    _draw(*found)


def _plan(study: Study, text: str, front: list[str]) -> Sweep:
    axes = dict(parse_axis(line) for line in text.splitlines() if line.strip())
    plan = plan_sweep(study.trace, study.scenario, axes, slo=slo_text(study.slo), front=front)
    count = len(plan.points())
    if count > MOST:
        raise UsageError(f"{count:,} configurations: a page waits for {MOST:,} at most; use planner sweep")
    return plan


def _swept(plan: Sweep, trace: Trace, bar: Any) -> pl.DataFrame:
    with tempfile.TemporaryDirectory() as folder:
        return sweep(plan, Path(folder) / "sweep.parquet", trace=trace,
                     progress=lambda done, total: bar.progress(done / total, f"{done:,} of {total:,}"))


def _draw(plan: Sweep, table: pl.DataFrame) -> None:
    axes = list(plan.axes)
    show(front_scatter(table, axes, plan.front, theme=theme()), key="front")
    show(parallel_axes(table, axes, plan.front, theme=theme()), key="parallel")
    rows = table.sort("is_pareto", descending=True, maintain_order=True).select(*axes, "status", "is_pareto",
                                                                                *plan.front)
    st.caption("Choose a row to have it in the sidebar.")
    st.dataframe(rows, hide_index=True, key="chosen", on_select=lambda: _load(rows, axes), selection_mode="single-row")


def _load(rows: pl.DataFrame, axes: list[str]) -> None:
    """Set the sidebar's widgets to the configuration that was chosen."""
    chosen = st.session_state["chosen"]["selection"]["rows"]
    if chosen:
        row = rows.row(chosen[0], named=True)
        for axis in axes:
            st.session_state[axis] = widget_value(axis, row[axis])
