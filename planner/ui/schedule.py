"""The page of the schedule: what the engine did with each of some requests, step by step."""

import streamlit as st

from planner.figures.schedule import schedule_timeline
from planner.study import Study
from planner.trace import Trace
from planner.ui.results import replayed, scheduled, show, theme

MOST = 200


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Schedule")
    whole = replayed(trace, study).requests
    columns = st.columns(2)
    first = int(columns[0].number_input("from request", 0, whole.height - 1, 0, 10, key="first", bind="query-params"))
    count = int(columns[1].number_input("requests", 1, MOST, 40, 10, key="count", bind="query-params"))
    chosen = whole.slice(first, count)
    shown = scheduled(trace, study, chosen)
    show(schedule_timeline(chosen, shown.steps_table(), shown.schedule_table(), theme=theme()), key="schedule")
    story = st.selectbox("a request's own story", chosen["request_id"].to_list(), key="story")
    st.dataframe(chosen.filter(request_id=story).transpose(include_header=True, header_name="", column_names=["value"])
                 .cast({"value": str}), hide_index=True)
