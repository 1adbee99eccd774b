"""The page of one replay: its headlines against a pinned one, why it came out so, its figures, and downloads."""

from typing import Any

import streamlit as st

from planner.explanation.causes import explain
from planner.figures import all_figures
from planner.metrics.saved import SavedResult, to_json
from planner.metrics.summary import HEADLINES
from planner.planning.study import Study, command_line, study_toml
from planner.report import to_html
from planner.report.content import describe, value_text
from planner.trace import Trace
from planner.ui.downloads import table_csv
from planner.ui.own_profiles import portable
from planner.ui.results import plain, replayed, show, theme

PINNED = "pinned"


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Replay")
    result = replayed(trace, study)
    pinned: SavedResult | None = st.session_state.get(PINNED)
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.caption(plain(describe(result)))
    if right.button("Unpin" if pinned else "Pin as baseline", width="stretch"):
        st.session_state[PINNED] = None if pinned else result
        st.rerun()
    headlines(result, pinned)
    st.info(explain(result.requests, result.steps, result.summary["deployment"]["num_replicas"])["sentence"],
            icon=":material/lightbulb:")
    for note in result.summary["notes"]:
        st.caption(note)
    shown = [result] if pinned is None else [result, pinned]
    columns = st.columns(2)
    for place, (name, figure) in enumerate(all_figures(shown, theme=theme()).items()):
        with columns[place % 2]:
            show(figure, key=f"replay-{name}")
    downloads(result, study)


def headlines(result: SavedResult, pinned: SavedResult | None) -> None:
    """Draw the headline numbers, with their differences to the pinned ones."""
    with st.container(horizontal=True):
        for key, label, unit in HEADLINES:
            value = result.summary[key]
            if value is not None:
                st.metric(label, value_text(value, unit), _delta(value, pinned, key, unit), delta_color="off",
                          delta_arrow="off", width="content")


def _delta(value: Any, pinned: SavedResult | None, key: str, unit: str) -> str | None:
    before = None if pinned is None else pinned.summary[key]
    if before is None or isinstance(value, str):
        return None
    return f"{value_text(before, unit)} pinned"


def downloads(result: SavedResult, study: Study) -> None:
    """Offer the result's files, and the command line and the file that do the same."""
    st.subheader("Take it with you")
    study = portable(study)
    st.code(command_line(study), language=None, wrap_lines=True)
    columns = st.columns(4)
    columns[0].download_button("Summary, JSON", to_json(result.summary), "summary.json", "application/json",
                               width="stretch", on_click="ignore")
    columns[1].download_button("Requests, CSV", lambda: table_csv(result.requests), "requests.csv", "text/csv",
                               width="stretch", on_click="ignore")
    columns[2].download_button("Scenario, TOML", study_toml(study), "scenario.toml", "application/toml",
                               width="stretch", on_click="ignore")
    columns[3].download_button("Report, HTML", lambda: to_html([result]), "report.html", "text/html",
                               width="stretch", on_click="ignore")
