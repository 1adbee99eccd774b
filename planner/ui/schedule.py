"""The page of the schedule: what the engine did with each of some requests, step by step."""

import polars as pl
import streamlit as st

from planner.explanation.story import tell
from planner.figures.schedule import schedule_timeline
from planner.planning.study import Study
from planner.trace import Trace
from planner.ui.downloads import harmless
from planner.ui.results import plain, replayed, scheduled, show, theme

MOST = 200
STORY = "story"


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Schedule")
    whole = replayed(trace, study).requests
    columns = st.columns(2)
    first = int(columns[0].number_input("from request", 0, whole.height - 1, 0, 10, key="first", bind="query-params"))
    count = int(columns[1].number_input("requests", 1, MOST, 40, 10, key="count", bind="query-params"))
    chosen = whole.slice(first, count)
    shown = scheduled(trace, study, chosen)
    steps, schedule = shown.steps_table(), shown.schedule_table()
    show(schedule_timeline(chosen, steps, schedule, theme=theme()), key="timeline", on_select=_clicked)
    st.subheader("A request's own story")
    picked = st.selectbox("request", chosen["request_id"].to_list(), key=STORY,
                          help="Or click on one of its spans in the figure.")
    story = tell(chosen, steps, schedule, picked)
    st.info(plain(story.sentence), icon=":material/history:")
    st.dataframe(story.events, hide_index=True, column_config={
        name: st.column_config.NumberColumn(format="%.2f") for name in ("at_ms", "lasts_ms")})
    with st.expander("Its row of the table of requests"):
        st.dataframe(harmless(chosen.filter(request_id=picked).transpose(
            include_header=True, header_name="column", column_names=["value"]).cast({"value": pl.String})),
            hide_index=True)


def _clicked() -> None:
    """Tell the story of the request whose span was clicked."""
    points = st.session_state["timeline"]["selection"]["points"]
    if points:
        st.session_state[STORY] = points[0]["customdata"][1]
