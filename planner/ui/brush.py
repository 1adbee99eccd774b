"""The brush: a time that is selected in one figure holds for the figures of Replay and Compare, and in their link."""

import math
from typing import Any

import streamlit as st

from planner.report.figures import OVER_TIME
from planner.report.figures.bins import Span
from planner.ui.kept_replays import show
from planner.ui.kept_settings import Setting, last
from planner.ui.link import Values

TIMES = "times"  # in the session's state and in the address: "600-1200", "" for all of a replay


def brushed() -> Span | None:
    """Return the selected time, since the first arrival [s]; None for all of a replay."""
    return _span(st.session_state[TIMES])


def brush_words() -> str:
    """Return the selected time in words; empty for all of a replay."""
    span = brushed()
    return "" if span is None else f"{span[0]:,.12g} s to {span[1]:,.12g} s"


def draw_brush() -> None:
    """Draw the selected time, and a button that goes back to all of the replay."""
    if brushed() is not None:
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.button(f"{brush_words()} ✕", key="brush_reset", on_click=_reset)
            st.caption("The figures show the requests that arrive and the steps that run in this time. The numbers and "
                       "the reason are of the whole replay.")


def show_brushed(figure: Any, name: str, key: str) -> None:
    """Draw a figure; a horizontal drag over time selects the time of all figures.

    Parameters
    ----------
    name : of `FIGURES`.
    key : in the session's state.
    """
    if name not in OVER_TIME or not figure.data:
        show(figure, key=key)
        return
    unit_s = float((figure.layout.meta or {}).get("unit_s", 1.0))
    figure.update_layout(dragmode="select", selectdirection="h")
    own = f"{key}-{st.session_state[TIMES]}"  # a new figure for each time: without the last selection
    show(figure, key=own, on_select=lambda: _take(own, unit_s), selection="box")
    if brushed() is None:
        st.caption("Drag over a part of the time to see it in all figures.")


def _take(key: str, unit_s: float) -> None:
    """Keep the time that was selected in a figure."""
    if boxes := st.session_state[key]["selection"]["box"]:
        start_s, end_s = sorted(max(0.0, float(value) * unit_s) for value in boxes[-1]["x"])
        if end_s > start_s:
            st.session_state[TIMES] = _text(start_s, end_s)


def _reset() -> None:
    st.session_state[TIMES] = ""


def _text(start_s: float, end_s: float) -> str:
    """Return a time as the address has it, to a hundredth of its length or better.

    >>> _text(14.8155, 29.6987), _text(600.4, 1800.2)
    ('14.8-29.7', '600-1800')
    """
    places = max(0, 2 - math.floor(math.log10(end_s - start_s)))
    return "-".join(f"{value:.{places}f}" for value in (start_s, end_s))


def _span(text: str) -> Span | None:
    """Return a time of the address.

    >>> _span("600-1200.5"), _span("")
    ((600.0, 1200.5), None)
    """
    start, _, end = text.partition("-")
    return (float(start), float(end)) if text else None


def _is_time(text: str) -> bool:
    try:
        span = _span(text)
    except ValueError:
        return False
    return span is None or 0 <= span[0] < span[1] < math.inf


TIME_SETTINGS = {TIMES: Setting(first="", read=last, values=lambda: Values(
    _is_time, "must be two times in seconds since the first arrival, as in '600-1200'"))}
