"""Settings of all pages: in the session under their own names, drawn or not, and written into the page's address."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from planner.ui.link import WRONG, Values, Wrong, said_of

KEPT = "kept_settings"  # in the session's state, once the address was read


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of all pages.

    Parameters
    ----------
    first : its value on a new page.
    values : returns the texts that it can be in the address.
    read : returns the value of such texts; all but a list's take the last.
    """

    first: Any
    values: Callable[[], Values]
    read: Callable[[list[str]], Any]


def keep(settings: Mapping[str, Setting]) -> None:
    """Take settings from the address when the session begins, and later write them into it.

    A text that a setting cannot be stays in the address until the user chooses another value.

    Parameters
    ----------
    settings : by name, in the session's state and in the address.
    """
    if KEPT not in st.session_state:
        st.session_state[KEPT] = True
        for name, setting in settings.items():
            st.session_state[name] = setting.first
            if texts := st.query_params.get_all(name):
                _take(name, setting, texts)
    wrong: dict[str, Wrong] = st.session_state[WRONG]
    for name, setting in settings.items():
        if name in wrong and st.session_state[name] == setting.first:
            _take(name, setting, wrong[name].texts)  # it may be known by now, as a model that was added
        else:
            wrong.pop(name, None)
        if name not in wrong:
            _write(name, setting)


def bound(name: str) -> dict[str, Any]:
    """Return the arguments that make a widget show and change a setting, whose value stays when it is not drawn."""
    return {"key": name, "persist_state": "session"}


def last(texts: list[str]) -> str:
    """Return the last of the texts that an address has for a setting."""
    return texts[-1]


def changed(settings: Mapping[str, Setting]) -> Iterator[tuple[str, Any]]:
    """Yield the settings that differ from a new page's settings, with their values."""
    for name, setting in settings.items():
        if (value := st.session_state[name]) != setting.first:
            yield name, value


def _take(name: str, setting: Setting, texts: list[str]) -> None:
    """Take a setting from texts of the address, or note that it cannot be one of them."""
    values = setting.values()
    refused = [text for text in texts if not values.accepts(text)]
    if refused:
        st.session_state[WRONG][name] = Wrong(texts, said_of(name, refused[0], values))
        return
    st.session_state[WRONG].pop(name, None)
    st.session_state[name] = setting.read(texts)


def _write(name: str, setting: Setting) -> None:
    """Write a setting into the address, or remove it if it is as on a new page."""
    value = st.session_state[name]
    values = value or [None] if isinstance(value, list) else [value]
    texts = [] if value == setting.first else [*map(_text, values)]
    if st.query_params.get_all(name) == texts:
        return
    if texts:
        st.query_params[name] = texts
    else:
        del st.query_params[name]


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
