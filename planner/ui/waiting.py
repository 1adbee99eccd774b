"""How a page waits for a job: at once behind a spinner, or beside the page with how far it is and a way to stop it."""

import pickle
import time
from typing import Any

import streamlit as st

from planner.errors import PlannerError
from planner.ui.words import plain, without_paths
from planner.ui.work import Job, Task, start

PATIENCE_S = 0.2  # between two places at which Streamlit may end this run of the page, as when its tab is closed


def result_of(task: Task, *args: Any, said: str) -> Any:
    """Have a job done and return its result; it stops if this run of the page ends before it.

    Parameters
    ----------
    said : beside the spinner meanwhile.

    Raises
    ------
    PlannerError : the job's own, or that there is no result.
    """
    return pickle.loads(content_of(task, *args, said=said))


def content_of(task: Task, *args: Any, said: str) -> bytes:
    """Return the result of a job, pickled; otherwise as `result_of`."""
    job = start(task, *args)
    try:
        place = st.empty()
        with st.spinner(said):
            while not job.state.is_over.wait(PATIENCE_S):
                place.empty()
        return finished(job)
    finally:
        job.state.stop.set()


def waited_for(task: Task, *args: Any) -> Any:
    """Have a job done outside a run of the page, as for a download; raises as `result_of`."""
    job = start(task, *args)
    job.state.is_over.wait()
    return pickle.loads(finished(job))


def finished(job: Job) -> bytes:
    """Return the result of a job that is over, pickled.

    Raises
    ------
    PlannerError : there is none; it says why.
    """
    if job.state.content is None:
        raise PlannerError(without_paths(job.state.error or "Stopped before there was a result."))
    return job.state.content


def watch(job: Job, began_s: float, said: str) -> None:
    """Draw how far a job is, and offer to stop it; the rest of the page stays as it is meanwhile.

    Parameters
    ----------
    began_s : when it was started, by `time.monotonic` [s].
    said : the counted parts, "configurations replayed", or the work if it has no parts.
    """
    state = job.state
    if state.is_over.is_set():
        st.rerun()
    left, right = st.columns([5, 1], vertical_alignment="center")
    if state.total:
        left.progress(state.num_done / state.total, f"{state.num_done:,} of {state.total:,} {said}")
    else:
        stage = f" ({state.stage})" if state.stage else ""
        left.caption(plain(f"{said} … {time.monotonic() - began_s:,.0f} s{stage}"))
    right.button("Stop", width="stretch", disabled=state.stop.is_set(), on_click=state.stop.set)
