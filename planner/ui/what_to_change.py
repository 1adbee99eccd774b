"""Changes to try: up to three changes that help, each with a button that applies it and pins the present result."""

import streamlit as st

from planner.planning.study import Study
from planner.traces import Trace
from planner.ui.applied import set_options
from planner.ui.change_tasks import Change, Changes, find_changes
from planner.ui.kept_answers import answer, question_of, search
from planner.ui.pinned import pin
from planner.ui.replay_tasks import Asked
from planner.ui.words import plain

NAME = "changes"


def what_to_change(trace: Trace, study: Study) -> None:
    """Draw a button that looks for changes, and the changes with their buttons."""
    asked = Asked(trace=trace, study=study)
    question = question_of(trace, study, {})
    if st.button("Find what to change", key="changes_find", icon=":material/build:",
                 help="Replays the scenario with one setting changed at a time, and sizes the fleet if it misses its "
                      "targets."):
        search(NAME, question, None, find_changes, asked)
    found = answer(NAME, question, "Replaying changed settings", keeps_stale=False)
    if found is None:
        return
    changes: Changes = found.value
    for place, change in enumerate(changes.changes):
        _draw(place, change, asked)
    for note in changes.notes:
        st.caption(plain(note))


def _draw(place: int, change: Change, asked: Asked) -> None:
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.markdown(f"**{plain(change.title)}**: {plain(change.effect)}")
    right.button("Apply", key=f"change_{place}", width="stretch", on_click=_apply, args=(change, asked),
                 help="Sets it in the sidebar, and pins the present result to compare with.")


def _apply(change: Change, asked: Asked) -> None:
    pin(asked)
    set_options(change.options)
