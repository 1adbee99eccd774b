"""The page of the schedule: what the engine did with each of some requests, step by step."""

import polars as pl
import streamlit as st

from planner.planning.study import Study
from planner.results.story import tell
from planner.traces import Trace
from planner.ui.downloads import harmless
from planner.ui.kept_replays import kept, show, study_key, theme
from planner.ui.link import in_link, number
from planner.ui.replay_tasks import Asked
from planner.ui.tasks import Window, window
from planner.ui.words import plain

MOST = 200
STORY = "story"
KEYS = ("first", "count")  # in the address


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    columns = st.columns(2)
    last = trace.num_requests - 1
    first = int(columns[0].number_input("from request", 0, last, 0, 10, **in_link(
        "first", 0, number(0, last, is_whole=True, may_be_empty=False))))
    count = int(columns[1].number_input("requests", 1, MOST, 40, 10, **in_link(
        "count", 40, number(1, MOST, is_whole=True, may_be_empty=False))))
    shown: Window = kept(window, Asked(trace=trace, study=study), first, count, theme(),
                         key=f"{study_key(trace, study)} {first} {count}", said="Replaying …")
    show(shown.figure, key="timeline", on_select=_clicked)
    st.subheader("A request's own story")
    picked = st.selectbox("request", shown.requests["request_id"].to_list(), key=STORY,
                          help="Or click on one of its spans in the figure.")
    story = tell(shown.requests, shown.steps, shown.schedule, picked)
    st.info(plain(story.sentence), icon=":material/history:")
    st.dataframe(story.events, hide_index=True, column_config={
        name: st.column_config.NumberColumn(format="%.2f") for name in ("at_ms", "lasts_ms")})
    with st.expander("Its row in the table of requests"):
        st.dataframe(harmless(shown.requests.filter(request_id=picked).transpose(
            include_header=True, header_name="column", column_names=["value"]).cast({"value": pl.String})),
            hide_index=True)


def _clicked() -> None:
    """Tell the story of the request whose span was clicked."""
    points = st.session_state["timeline"]["selection"]["points"]
    if points:
        st.session_state[STORY] = points[0]["customdata"][1]
