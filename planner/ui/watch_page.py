"""The page of a watched plan: predicted beside measured values, interval by interval, and drift by its cause."""

import os
from collections import deque
from collections.abc import Iterable, Sequence

import streamlit as st

from planner.errors import UsageError
from planner.files.keys import fromdict
from planner.files.nested import parse_json
from planner.planning.study import Study
from planner.planning.watch_answer import WatchAnswer
from planner.report.figures.answer_figures import watched_over_time
from planner.report.watch_table import drift_lines, watch_grid, watch_line
from planner.traces import Trace
from planner.ui.hosting import WATCH
from planner.ui.kept_replays import show
from planner.ui.words import plain

MOST = 2_000  # intervals, the latest
LOOK_S = 10.0  # between two looks at the server's file
EXAMPLE = "planner watch plan.json --url http://localhost:9090 --json-lines watch.jsonl"


def page(trace: Trace | None, study: Study) -> None:
    """Draw the page: the server's own watch, which is read again every few seconds, or an upload."""
    if path := os.environ.get(WATCH):
        st.fragment(run_every=LOOK_S)(_draw_file)(path)
        return
    file = st.file_uploader("Lines of planner watch", type=["jsonl"], key="watched", max_upload_size=50,
                            help="The file that planner watch --json-lines writes. planner ui --watch FILE shows it "
                                 "while it grows.")
    if file is None:
        st.info("Does the plan still hold? Watch the server, and upload the file here:")
        st.code(EXAMPLE, language=None, wrap_lines=True)
        return
    _draw(_read(file.name, file.getvalue().splitlines(keepends=True)))


def _draw_file(path: str) -> None:
    """Draw the file of a watch under way."""
    try:
        with open(path, "rb") as lines:
            intervals = _read(os.path.basename(path), lines)
    except OSError as error:
        st.info(plain(f"{os.path.basename(path)}: cannot be read: {error.strerror}; planner watch --json-lines writes "
                      f"it"))
        return
    except UsageError as error:  # a fragment has no other place for it
        st.error(str(error), icon=":material/error:")
        return
    _draw(intervals)


def _read(name: str, lines: Iterable[bytes]) -> list[WatchAnswer]:
    """Return the latest intervals of a file of JSON lines; a last line without an end is still being written.

    Raises
    ------
    UsageError : a line is no interval.
    """
    latest = deque(((place, line) for place, line in enumerate(lines, start=1) if line.endswith(b"\n")), maxlen=MOST)
    intervals = []
    for place, line in latest:
        try:
            intervals.append(fromdict(WatchAnswer, parse_json(line)))
        except ValueError as error:
            raise UsageError(f"{name} line {place}: {error}; give a file of planner watch --json-lines") from error
    return intervals


def _draw(intervals: Sequence[WatchAnswer]) -> None:
    """Draw the last judged interval, one quantity over time, and the intervals in a line each."""
    values = [one for one in intervals if one.quantities]
    if not values:
        st.info("No interval with values yet.")
        return
    last = values[-1]
    if last.drifts:
        st.error("\n\n".join(plain(line) for line in drift_lines(last)), icon=":material/trending_up:")
    else:
        st.success(plain(f"No confirmed drift at {last.end}."), icon=":material/check_circle:")
    grid = watch_grid(last)
    st.markdown(plain(f"{last.start} to {last.end}: {last.num_requests:,.0f} requests"))
    st.dataframe([dict(zip((grid.heads[0] or "quantity", *grid.heads[1:]), row, strict=True)) for row in grid.rows],
                 hide_index=True, alt="predicted beside measured")
    names = [one.name for one in last.quantities]
    chosen: str = st.selectbox("Over time", names, key="watched_quantity")
    show(watched_over_time(values, chosen), key=f"watched-{chosen}")
    with st.expander(f"Intervals ({len(intervals):,})"):
        st.code("\n".join(map(watch_line, reversed(intervals))), language=None)
    for note in last.notes:
        st.caption(plain(note))
