"""One figure at a time: a row of names, of which the chosen figure is drawn over the full width."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from planner.report.figures import FIGURE_WORDS, FIGURES

FIRST = "ttft_cdf"
CHOICE = "figure_shown"  # in the session's state


def shown_figure(summaries: Sequence[dict[str, Any]]) -> str:
    """Ask for the figure to draw, on Replay and on Compare; return its name.

    Parameters
    ----------
    summaries : of the replays that it draws; only autoscaled ones have a figure of replicas.
    """
    names = [name for name in FIGURES if name != "replicas" or any(summary.get("autoscale") for summary in summaries)]
    place = names.index(FIRST)
    chosen: str = st.radio("figure", names, index=place, key=CHOICE, format_func=FIGURE_WORDS.__getitem__,
                           horizontal=True, label_visibility="collapsed", persist_state="session")
    return chosen
