"""The page's address: widgets take its values, and a value that no widget can hold is told, not replaced."""

import difflib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import streamlit as st

TAKEN, WRONG = "link_taken", "link_wrong"  # in the session's state
TRUTHS = {"true": True, "false": False, "on": True, "off": False}


@dataclass(frozen=True, slots=True)
class Values:
    """The values that a widget can hold, as texts of the address.

    Parameters
    ----------
    accepts : tells whether a text is one.
    said : the accepted values in words.
    names : all of them, if they are names.
    why : returns a sentence on a text that is not accepted; None for one made of `said` and `names`.
    """

    accepts: Callable[[str], bool]
    said: str
    names: Collection[str] = ()
    why: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class Wrong:
    """An error in the address: the values of a key, and a sentence on them."""

    texts: list[str]
    said: str


def begin_run(keys: Collection[str]) -> None:
    """Begin a run of the page: values that are wrong stay in the address, even if the page has changed since.

    Parameters
    ----------
    keys : of all widgets that are ever in the address.
    """
    if WRONG not in st.session_state:
        st.session_state[TAKEN] = set()
        st.session_state[WRONG] = {
            key: Wrong(st.query_params.get_all(key), f"{key} is not an option of this server{_near(key, keys)}")
            for key in st.query_params if key not in keys}
    for key, wrong in st.session_state[WRONG].items():
        if key not in st.query_params:
            st.query_params[key] = wrong.texts


def in_link(key: str, first: Any, values: Values) -> dict[str, Any]:
    """Return the arguments that put a widget into the address, and keep its value from page to page.

    A value that the widget cannot hold stays in the address, and the widget out of it, until the user chooses another
    value or accepts the widget's own.

    Parameters
    ----------
    key : of the widget, and in the address.
    first : the widget's value on a new page.
    values : that it can hold.
    """
    taken: set[str] = st.session_state[TAKEN]
    texts = st.query_params.get_all(key)
    if key not in taken and texts:
        is_changed = st.session_state.get(key, first) != first
        refused = [text for text in texts if not values.accepts(text)]
        if refused and not is_changed:
            st.session_state[WRONG][key] = Wrong(texts, said_of(key, refused[0], values))
            return {"key": key}
        if refused:
            del st.query_params[key]  # the user chose another value
        elif key in st.session_state[WRONG]:
            st.session_state[key] = texts[-1]  # it became known, as a model that was added
        st.session_state[WRONG].pop(key, None)
    taken.add(key)
    return {"key": key, "bind": "query-params", "persist_state": "session"}


def wrong() -> list[str]:
    """Return the errors in the address, a sentence each."""
    return [each.said for each in st.session_state[WRONG].values()]


def accept_all() -> None:
    """Replace the wrong values in the address by the widgets' own values."""
    for key in st.session_state[WRONG]:
        st.session_state[TAKEN].add(key)
        if key in st.query_params:
            del st.query_params[key]
    st.session_state[WRONG] = {}


def one_of(names: Collection[str]) -> Values:
    """Return the values of a choice."""
    return Values(frozenset(names).__contains__, f"must be one of {', '.join(names)}", names)


def number(least: float | None, most: float | None, *, is_whole: bool, may_be_empty: bool) -> Values:
    """Return the numbers of a widget within its limits."""
    def accepts(text: str) -> bool:
        if text == "":
            return may_be_empty
        try:
            value = float(text)
        except ValueError:
            return False
        is_within = (least is None or value >= least) and (most is None or value <= most)
        return is_within and (value.is_integer() or not is_whole) and abs(value) < 2**53

    limits = "".join(f" {word} {limit:,g}" for word, limit in (("from", least), ("to", most)) if limit is not None)
    return Values(accepts, f"must be a {'whole ' * is_whole}number{limits}")


ANY = Values(lambda text: True, "may be any text")
SWITCH = Values(lambda text: text.lower() in TRUTHS, "must be true or false")


def said_of(key: str, text: str, values: Values) -> str:
    """Return a sentence on a value that is not known."""
    if values.why is not None:
        return f"{key}: {values.why(text)}"
    near = _near(text, values.names)
    if key in ("gpu", "model", "speculative_model"):
        return (f"{key} = {text!r}: this session has no such {key.replace('_', ' ')}{near}; add it on the page Catalog "
                f"if it is your own")
    return f"{key} = {text!r}: {near.removeprefix('; ') or values.said}"


def _near(text: str, known: Collection[str]) -> str:
    """Return a question whether the nearest known name is meant; nothing if none is near."""
    near = difflib.get_close_matches(text.lower(), sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
