"""The page of the schedule: steps around the slowest request, one request's history, and a file for Perfetto."""

from typing import Any

import polars as pl
import streamlit as st

from planner.planning.study import Study
from planner.results.story import tell
from planner.traces import Trace
from planner.ui.downloads import harmless
from planner.ui.kept_replays import kept, replayed, show, study_key
from planner.ui.link import in_link, number, one_of
from planner.ui.replay_tasks import ReplayQuestion
from planner.ui.schedule_tasks import MOST_TIMELINE_STEPS, SLOWEST, ScheduleWindow, timeline, window
from planner.ui.waiting import waited_for
from planner.ui.words import plain, sentence

MOST = 200
STORY = "story"
BY_PLACE = "a place in the trace"
KEYS = ("around", "first", "count")  # in the address


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    own = ReplayQuestion(trace=trace, study=study)
    first, count = _asked(trace)
    shown: ScheduleWindow = kept(window, own, first, count, key=f"{study_key(trace, study)} {first} {count}",
                                 said="Replaying …")
    _strip(shown)
    st.caption(f"Requests {shown.first:,} to {shown.first + shown.requests.height - 1:,} of the trace, in order of "
               f"arrival. Drag over the time above to show others, at most {MOST}.")
    show(shown.figure, key="timeline", on_select=_clicked)
    _story(shown)
    num_steps = replayed(own).summary.figures.engine.num_steps
    st.download_button("Whole replay for Perfetto, JSON", lambda: waited_for(timeline, own), "timeline.json.gz",
                       "application/gzip", on_click="ignore", disabled=num_steps > MOST_TIMELINE_STEPS,
                       help=f"A Chrome trace of all steps and requests, for Perfetto or chrome://tracing. Up to "
                            f"{MOST_TIMELINE_STEPS:,} steps; for more, use planner replay --timeline.")


def _asked(trace: Trace) -> tuple[int | str, int]:
    """Ask which requests to show: around a slow one, or from a place on; and how many."""
    left, middle, right = st.columns(3)
    ways = [*SLOWEST, BY_PLACE]
    usual = BY_PLACE if "first" in st.query_params else ways[0]  # a link to a place shows it
    around: str = left.selectbox("Requests around", ways, ways.index(usual),
                                 **in_link("around", usual, one_of(ways)))
    last = trace.num_requests - 1
    first = int(middle.number_input("From request", 0, last, 0, 10, disabled=around != BY_PLACE, **in_link(
        "first", 0, number(0, last, is_whole=True, may_be_empty=False))))
    count = int(right.number_input("Number of requests", 1, MOST, 40, 10, **in_link(
        "count", 40, number(1, MOST, is_whole=True, may_be_empty=False))))
    return first if around == BY_PLACE else around, count


def _strip(shown: ScheduleWindow) -> None:
    """Draw the whole trace; a horizontal drag over it chooses the requests to show."""
    if not shown.strip.data:
        return
    key = f"strip-{shown.first}-{shown.requests.height}"  # a new figure for each window: without the last selection
    shown.strip.update_layout(dragmode="select", selectdirection="h")
    before = [(0.0, 0), *((point_s, until) for point_s, (_, until) in _ends(shown.strip.data[0]))]
    show(shown.strip, key=key, selection="box", on_select=lambda: _brush(key, before))


def _ends(line: Any) -> list[tuple[float, list[int]]]:
    """Return when each bin of the strip ends [s], with its custom data."""
    return [((place + 1) * line.dx, custom) for place, custom in enumerate(line.customdata)]


def _brush(key: str, before: list[tuple[float, int]]) -> None:
    """Show the requests of the bins that were selected.

    Parameters
    ----------
    before : edges of the bins [s], each with the number of requests that arrive before it.
    """
    if boxes := st.session_state[key]["selection"]["box"]:
        start_s, end_s = sorted(map(float, boxes[-1]["x"]))
        first = max((count for edge_s, count in before if edge_s <= start_s), default=0)
        until = min((count for edge_s, count in before if edge_s >= end_s), default=before[-1][1])
        st.session_state["around"] = BY_PLACE
        st.session_state["first"] = min(first, before[-1][1] - 1)
        st.session_state["count"] = max(1, min(MOST, until - first))


def _story(shown: ScheduleWindow) -> None:
    """Tell the story of one request, at first of the one that the window is around."""
    st.subheader("One request's history", anchor=False)
    names: list[Any] = shown.requests["request_id"].to_list()
    place = names.index(shown.subject) if shown.subject in names else 0
    if st.session_state.get(STORY) not in names:
        st.session_state.pop(STORY, None)
    picked = st.selectbox("Request", names, place, key=STORY, help="Or click on one of its spans in the figure.")
    story = tell(shown.requests, shown.steps, shown.schedule, picked)
    st.info(plain(sentence(story.sentence)), icon=":material/history:")
    st.dataframe(story.events, hide_index=True, alt="events of the request", column_config={
        "at_ms": st.column_config.NumberColumn("since its arrival [ms]", format="%.1f"), "what": "event",
        "lasts_ms": st.column_config.NumberColumn("lasts [ms]", format="%.1f"), "num_tokens": "tokens"})
    with st.expander("Its row in the table of requests"):
        st.dataframe(harmless(shown.requests.filter(request_id=picked).transpose(
            include_header=True, header_name="column", column_names=["value"]).cast({"value": pl.String})),
            hide_index=True)


def _clicked() -> None:
    """Tell the story of the request whose span was clicked."""
    points = st.session_state["timeline"]["selection"]["points"]
    if points and isinstance(points[0]["customdata"][1], str):  # not a step
        st.session_state[STORY] = points[0]["customdata"][1]
