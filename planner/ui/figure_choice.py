"""One figure at a time: a row of names, of which the chosen figure is drawn over the full width."""

from collections.abc import Sequence

import streamlit as st

from planner.report.figures import FIGURE_WORDS, FIGURES
from planner.results.summary_answer import Summary

FIRST = "ttft_cdf"
CHOICE = "figure_shown"  # in the session's state


def shown_figure(summaries: Sequence[Summary]) -> str:
    """Ask for the figure to draw, on Replay and on Compare; return its name.

    Parameters
    ----------
    summaries : of the replays that it draws; only autoscaled ones have a figure of replicas.
    """
    is_scaled = any(summary.figures.scaling is not None for summary in summaries)
    names = [name for name in FIGURES if name != "replicas" or is_scaled]
    place = names.index(FIRST)
    chosen: str = st.radio("figure", names, index=place, key=CHOICE, format_func=FIGURE_WORDS.__getitem__,
                           horizontal=True, label_visibility="collapsed", persist_state="session")
    return chosen
