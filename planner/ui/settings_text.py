"""Settings as a link has them: the text that an address has for them, and the settings of such a text."""

from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

import streamlit as st

from planner.errors import PlannerError, UsageError
from planner.ui.kept_settings import Setting
from planner.ui.link import Values, said_of
from planner.ui.sidebar import SETTINGS, asked_of

NAME, MOST_NAME = "name", 60  # key of a scenario's own name, and its most characters


def settings_text() -> str:
    """Return the sidebar's settings that differ from a new page's, as its address has them."""
    return urlencode([(name, text) for name in SETTINGS for text in st.query_params.get_all(name)])


def with_name(text: str, name: str) -> str:
    """Return such a text with a name of its scenario, or without one if the name is empty.

    >>> with_name("limit=300&name=old", "two words"), with_name("limit=300&name=old", "")
    ('limit=300&name=two+words', 'limit=300')
    """
    others = [(key, value) for key, value in parse_qsl(text, keep_blank_values=True) if key != NAME]
    return urlencode([*others, (NAME, name)] if name else others)


def name_of(text: str) -> str:
    """Return the name that such a text gives its scenario; empty without one."""
    return parse_qs(text).get(NAME, [""])[-1][:MOST_NAME]


def settings_of(text: str) -> dict[str, Any]:
    """Return all settings of such a text; its name is none of them.

    Raises
    ------
    UsageError : it has a setting or a value that this session does not know.
    """
    given = parse_qs(text, keep_blank_values=True)
    settings: dict[str, Any] = {name: setting.first for name, setting in SETTINGS.items()}
    for name, texts in given.items():
        if name == NAME:
            continue
        if name not in SETTINGS:
            raise UsageError(f"{name} is not a setting of a scenario")
        settings[name] = _read(name, SETTINGS[name], texts)
    return settings


def _read(name: str, setting: Setting, texts: list[str]) -> Any:
    values = setting.values()
    for text in texts:
        if not values.accepts(text):
            raise UsageError(said_of(name, text, values))
    return setting.read(texts)


def why_wrong(text: str) -> str:
    """Return why a text makes no scenario; empty if it makes one."""
    try:
        asked_of(settings_of(text))
    except PlannerError as error:
        return str(error)
    return ""


def scenarios() -> Values:
    """Return the texts of scenarios, as values of a setting."""
    return Values(lambda text: not why_wrong(text), "must be the settings of a scenario", why=why_wrong)
