"""Results for pages: replays kept by all that they depend on, and their figures in the page's theme."""

import html
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import streamlit as st

from planner.deployment.deploy import shape_load
from planner.metrics.saved import SavedResult
from planner.planning.fingerprint import scenario_sha256
from planner.planning.study import Study, without_load
from planner.replays.results import ReplayResult
from planner.run import replay
from planner.settings.engine import Recording
from planner.trace import Trace
from planner.traffic.workload import limit

MARKS = "\\`*_{}[]()#+-.!|<>$:~"
KEPT = 4  # replays of a session: each holds its steps


def replayed(trace: Trace, study: Study) -> SavedResult:
    """Return a study's result with its steps, replayed or as it was kept.

    The summary is a plain replay's, as the command line's: sums over recorded steps differ in their last digits.

    Raises
    ------
    PlannerError : as `run.replay`.
    """
    key = study_key(trace, study)
    kept: dict[str, SavedResult] = st.session_state.setdefault("replays", {})
    if key not in kept:
        with st.spinner("Replaying …"):
            plain_run, outcome = (replay(trace, study.scenario, slo=study.objectives, recording=Recording(steps=steps))
                                  for steps in (False, True))
        while len(kept) >= KEPT:
            kept.pop(next(iter(kept)))
        kept[key] = SavedResult(name=study.name, summary=plain_run.summary, requests=outcome.requests,
                                steps=outcome.steps)
    return kept[key]


def scheduled(trace: Trace, study: Study, requests: pl.DataFrame) -> ReplayResult:
    """Return a replay with its schedule, up to the end of some requests: what comes later cannot change them."""
    until_s: Any = requests["finished_at_s"].max()
    shaped = shape_load(study.scenario, trace)
    count = int((shaped.requests["arrival_s"] <= until_s).sum())
    plain_load = without_load(study.scenario)
    return replay(limit(shaped, count), replace(plain_load, max_concurrency=study.scenario.max_concurrency),
                  slo=None, recording=Recording(steps=True, schedule=True)).result


def answered(name: str, trace: Trace, study: Study) -> Any:
    """Return the answer that was kept under a name, None where there is none; say so where it is another scenario's."""
    kept = st.session_state.get(name)
    if kept is None:
        return None
    if kept[0] != study_key(trace, study):
        st.warning("The sidebar has changed since: this answer is for the scenario that it had then.")
    return kept[1]


def keep(name: str, trace: Trace, study: Study, answer: Any) -> None:
    """Keep an answer in the session."""
    st.session_state[name] = study_key(trace, study), answer


def study_key(trace: Trace, study: Study) -> str:
    """Return a hash of all that a study's result depends on."""
    limits = None if study.objectives is None else study.objectives.limits_s
    return scenario_sha256(study.scenario, trace.sha256, trace.source, limits)


def theme() -> Any:
    """Return the theme that the page is seen in."""
    return "dark" if st.context.theme.type == "dark" else "light"


def show(figure: Any, key: str, on_select: Callable[[], None] | None = None) -> None:
    """Draw a figure as the report has it: with its own template, its title above it, no way to send it anywhere.

    Parameters
    ----------
    key : in the session's state.
    on_select : is called when a point of it was clicked; its state then has the selection.
    """
    title = figure.layout.title
    st.markdown(f"**{plain(title.text)}**")
    st.caption(plain(title.subtitle.text))
    figure.update_layout(title=None, margin={"t": 10}, height=figure.layout.height - 70)
    st.plotly_chart(figure, theme=None, key=key, on_select=on_select or "ignore", selection_mode="points",
                    config={"displaylogo": False, "showSendToCloud": False}, alt=title.text)


def plain(text: str) -> str:
    """Return text that Markdown shows as it is: the entities that Plotly reads undone, marks escaped."""
    return "".join(f"\\{char}" if char in MARKS else char for char in html.unescape(text))
