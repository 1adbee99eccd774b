"""Results for pages: kept by all that they depend on, within a bound of bytes and figures shown in the page's theme."""

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Literal

import streamlit as st

from planner.planning.fingerprint import scenario_sha256
from planner.planning.study import Study
from planner.report.figures.bins import Span
from planner.report.figures.style import themed
from planner.traces import Trace
from planner.ui.replay_tasks import Numbers, Picture, ReplayQuestion, numbers, picture
from planner.ui.waiting import content_of
from planner.ui.words import plain
from planner.ui.work import Task

FONT = '"Source Sans", sans-serif'  # the page's
KEPT, KEPT_BYTES = "kept", 32 * 2**20  # results of a session, pickled: summaries and figures, no tables of steps


def replayed(asked: ReplayQuestion) -> Numbers:
    """Return the numbers of a replay.

    Raises
    ------
    PlannerError : as `run.replay`.
    """
    found: Numbers = kept(numbers, asked, key=study_key(asked.trace, asked.study), said="Replaying …")
    return found


def pictured(asked: Sequence[ReplayQuestion], figure: str, span: Span | None = None) -> Picture:
    """Return the reasons of replays and one figure of them, under their names.

    Parameters
    ----------
    figure : a name of `FIGURES`.
    span : the time that the figure shows, since the first arrival [s]; None for all of it.

    Raises
    ------
    PlannerError : as `run.replay`.
    """
    keys = [f"{each.study.name} {study_key(each.trace, each.study)}" for each in asked]
    known = tuple(replayed(each) for each in asked)
    found: Picture = kept(picture, tuple(asked), figure, span, known,
                          key=f"{figure} {span} {keys}", said="Drawing …")
    return found


def kept(task: Task, *args: Any, key: str, said: str) -> Any:
    """Return the result of a job, done in another process or as it was kept; the oldest make room for it.

    Parameters
    ----------
    key : of all that the result depends on, except the task.
    said : while it is done.

    Raises
    ------
    PlannerError : the job's own.
    """
    results: dict[str, bytes] = st.session_state.setdefault(KEPT, {})
    name = f"{task.__name__} {key}"
    if name not in results:
        content = content_of(task, *args, said=said)
        while results and sum(map(len, results.values())) + len(content) > KEPT_BYTES:
            results.pop(next(iter(results)))
        results[name] = content
    return pickle.loads(results[name])


def study_key(trace: Trace, study: Study) -> str:
    """Return a hash of all that a study's result depends on."""
    return scenario_sha256(study.scenario, trace.sha256, trace.source, repr(study.objectives))


def show(figure: Any, key: str, on_select: Callable[[], None] | None = None,
         selection: Literal["points", "box"] = "points") -> None:
    """Draw a figure as the report has it: in the page's theme, its title above it, no way to send it anywhere.

    Parameters
    ----------
    key : in the session's state.
    on_select : is called when a part of it was selected; its state then has the selection.
    selection : a click on a point, or a drag over a part.
    """
    figure = themed(figure, "dark" if st.context.theme.type == "dark" else "light")
    title = figure.layout.title
    st.markdown(f"**{plain(title.text)}**")
    st.caption(plain(title.subtitle.text))
    figure.update_layout(title=None, margin={"t": 10}, height=figure.layout.height - 70, font={"family": FONT})
    st.plotly_chart(figure, theme=None, key=key, on_select=on_select or "ignore", selection_mode=selection,
                    config={"displaylogo": False, "showSendToCloud": False}, alt=title.text)
