"""The history of a session: each scenario that was replayed, with its verdict, its link and a way back to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from planner.planning.study import Study
from planner.report.difference_words import scenario_names
from planner.report.verdict_line import verdict_line
from planner.results.short_times import time_text
from planner.ui.kept_replays import study_key
from planner.ui.own_profiles import portable
from planner.ui.pinned import PIN
from planner.ui.replay_tasks import Numbers, ReplayQuestion
from planner.ui.settings_text import settings_text
from planner.ui.sidebar import SETTINGS

TRIED, MOST = "tried", 20  # the latest scenarios of a session


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """A scenario that was replayed.

    Parameters
    ----------
    study : it.
    row : its verdict and numbers, by the table's columns.
    settings : values of the sidebar's settings.
    text : the same as the address has them.
    """

    study: Study
    row: Mapping[str, Any]
    settings: Mapping[str, Any]
    text: str


def keep_try(own: ReplayQuestion, found: Numbers) -> None:
    """Keep a scenario with its verdict; the oldest makes room for it."""
    tried: dict[str, Try] = st.session_state.setdefault(TRIED, {})
    key = study_key(own.trace, own.study)
    summary = found.summary
    tried.pop(key, None)
    tried[key] = Try(study=portable(own.study), row={
        "TTFT p99": time_text(summary.figures.ttft.p99), "TPOT p99": time_text(summary.figures.tpot.p99),
        "verdict": verdict_line(summary).sentence,
    }, text=settings_text(), settings={name: st.session_state[name] for name in SETTINGS if name in st.session_state})
    while len(tried) > MOST:
        del tried[next(iter(tried))]


def draw_history() -> None:
    """Draw the scenarios of the session, the latest first; a click on a row sets the sidebar to it."""
    tried: list[Try] = list(st.session_state[TRIED].values())[::-1]
    if len(tried) < 2:
        return
    with st.expander(f"Tried in this session ({len(tried)})"):
        st.caption("Choose a row to go back to it.")
        names = scenario_names([each.study for each in tried])
        key = f"history_{next(reversed(st.session_state[TRIED]))}"  # a new table for each latest scenario: none chosen
        rows = [{"settings that differ": name, "link": f"replay?{each.text}",
                 "before and after": None if each is tried[0] else before_and_after(each.text, tried[0].text),
                 **each.row} for name, each in zip(names, tried, strict=True)]
        st.dataframe(rows, hide_index=True, key=key, selection_mode="single-row", alt="scenarios of this session",
                     on_select=lambda: _go_back(key, tried), column_config={
                         "link": st.column_config.LinkColumn(display_text="open"),
                         "before and after": st.column_config.LinkColumn(
                             display_text="compare", help="A link to Compare with this scenario and the latest.")})


def before_and_after(before: str, after: str) -> str:
    """Return a link to Compare with two scenarios, of which the first is pinned.

    Parameters
    ----------
    before, after : settings, as the address has them.

    Examples
    --------
    >>> before_and_after("limit=300", "limit=300&gpu=l40s")
    'compare?limit=300&gpu=l40s&pin=limit%3D300'
    """
    return "compare?" + "&".join(filter(None, [after, urlencode({PIN: before})]))


def _go_back(key: str, tried: list[Try]) -> None:
    """Set the sidebar's widgets to a scenario; an uploaded trace stays the one that is there."""
    for place in st.session_state[key]["selection"]["rows"]:
        for name, value in tried[place].settings.items():
            st.session_state[name] = value
