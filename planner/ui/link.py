"""The page's address: widgets take its values, and a value that no widget can hold is told, not replaced."""

import difflib
from collections.abc import Callable, Collection, Iterable
from typing import Any

import streamlit as st

TAKEN, UNKNOWN = "link_taken", "link_unknown"  # in the session's state

Accepts = Callable[[str], bool]


def begin_run() -> None:
    """Forget what the last run of the page found wrong in the address."""
    st.session_state[UNKNOWN] = {}


def in_link(key: str, first: Any, accepts: Accepts, known: Collection[str] = ()) -> dict[str, Any]:
    """Return the arguments that put a widget into the address, and keep its value from page to page.

    A value that the widget cannot hold stays in the address, and the widget out of it, until the user chooses another
    value or accepts the widget's own.

    Parameters
    ----------
    key : of the widget, and in the address.
    first : the widget's value on a new page.
    accepts : tells whether the widget can hold a text of the address.
    known : the values that it can hold, where these are names.
    """
    taken: set[str] = st.session_state.setdefault(TAKEN, set())
    texts = st.query_params.get_all(key)
    if key not in taken and texts:
        is_changed = st.session_state.get(key, first) != first
        wrong = [text for text in texts if not accepts(text)]
        if wrong:
            if not is_changed:
                st.session_state[UNKNOWN][key] = _said(key, wrong[0], known)
                return {"key": key}
            del st.query_params[key]  # the user chose another value
        elif key in st.session_state and not is_changed and texts[-1] in known:
            st.session_state[key] = texts[-1]  # it became known, as a model that was added
    taken.add(key)
    return {"key": key, "bind": "query-params", "persist_state": "session"}


def is_any(text: str) -> bool:
    """Accept every text."""
    return True


def is_choice(names: Iterable[str]) -> Accepts:
    """Return what accepts the names of a choice."""
    return frozenset(names).__contains__


def is_switch(text: str) -> bool:
    """Accept the values of a checkbox."""
    return text.lower() in ("true", "false")


def is_number(least: float | None, most: float | None, *, is_whole: bool, may_be_empty: bool) -> Accepts:
    """Return what accepts the numbers of a widget within its limits."""
    def accepts(text: str) -> bool:
        if text == "":
            return may_be_empty
        try:
            value = float(text)
        except ValueError:
            return False
        is_within = (least is None or value >= least) and (most is None or value <= most)
        return is_within and (value.is_integer() or not is_whole) and abs(value) < 2**53

    return accepts


def unknown(keys: Iterable[str]) -> dict[str, str]:
    """Return what is wrong in the address, a sentence by key.

    Parameters
    ----------
    keys : of all widgets that are ever in the address.
    """
    known = set(keys)
    others = {key: f"{key} is no option of this server{_near(key, known)}" for key in st.query_params
              if key not in known}
    return {**st.session_state[UNKNOWN], **others}


def accept_all(keys: Iterable[str]) -> None:
    """Replace what is wrong in the address by the widgets' own values."""
    st.session_state[TAKEN] |= set(keys)
    for key in keys:
        if key in st.query_params:
            del st.query_params[key]


def _said(key: str, text: str, known: Collection[str]) -> str:
    """Return a sentence on a value that is not known."""
    if key in ("gpu", "model", "speculative_model"):
        return (f"{key} = {text!r}: this session has no such {key.replace('_', ' ')}{_near(text, known)}; add it on "
                f"the page Catalog if it is your own")
    return f"{key} = {text!r}: is not a value of this option{_near(text, known)}"


def _near(text: str, known: Collection[str]) -> str:
    """Return a question whether the nearest known name is meant; nothing where none is near."""
    near = difflib.get_close_matches(text.lower(), sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
