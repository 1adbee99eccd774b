"""A launch command, pasted: its options go into the sidebar's widgets, and its notes stand below; no file is read."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from planner.errors import PlannerError
from planner.launch import launch_options

TEXT, SAID, WRONG = "launch", "launch_notes", "launch_error"  # in the session's state

Take = Callable[[dict[str, Any]], None]


def launch_field(take: Take) -> None:
    """Draw the field.

    Parameters
    ----------
    take : sets the widgets to options of a scenario; raises UsageError if one of them cannot be set.
    """
    st.text_area("Launch command", key=TEXT, height=68, placeholder="vllm serve Qwen/Qwen3-32B -tp 2 …",
                 help="Paste vllm serve …, python -m sglang.launch_server … or trtllm-serve …: its options become the "
                      "settings of model and engine.")
    st.button("Use its options", key="launch_take", on_click=_take, args=(take,), width="stretch")
    if wrong := st.session_state.get(WRONG):
        st.error(wrong, icon=":material/error:")
    for note in st.session_state.get(SAID, ()):
        st.caption(note)


def _take(take: Take) -> None:
    """Set the widgets to the command's options; keep its notes, or its error."""
    st.session_state[SAID], st.session_state[WRONG] = (), None
    try:
        options, notes = launch_options(st.session_state[TEXT], reads_files=False)
        take(options)
    except PlannerError as error:
        st.session_state[WRONG] = _as_field(str(error))
        return
    st.session_state[SAID] = tuple(_as_field(note) for note in notes)


def _as_field(text: str) -> str:
    """Return text of the command line's option as text of this field."""
    return text.removeprefix("--from-command: ").replace("--from-command", "the launch command")
