"""Pages run without a browser: one page of the dashboard as a script of its own, with its widgets by their keys."""

import time
from typing import Any

import pytest

testing = pytest.importorskip("streamlit.testing.v1")

SCRIPT = """
from planner.ui.app import PAGES, ask, draw

title, page = next((title, page) for title, page, address, _ in PAGES if address == {place!r})
draw(page, ask(title))
"""
KINDS = ("selectbox", "number_input", "slider", "text_input", "text_area", "checkbox", "radio", "multiselect")


def linked(place: str, **params: str) -> Any:
    """Return a page as a link opens it."""
    page = testing.AppTest.from_string(SCRIPT.format(place=place), default_timeout=120)
    page.query_params.update(params)
    return page.run()


def opened(place: str, **values: Any) -> Any:
    """Return a page with widgets and settings set by their keys, on the first three hundred requests."""
    page = testing.AppTest.from_string(SCRIPT.format(place=place), default_timeout=120).run()
    assert not page.exception
    widgets = {widget.key: widget for kind in KINDS for widget in page.get(kind)}
    for key, value in {"limit": 300, **values}.items():
        if key in widgets:
            widgets[key].set_value(value)
        else:  # a setting, whose field is in a dialog
            assert key in page.session_state, key
            page.session_state[key] = value
    return page.run()


def uploaded(place: str, name: str, content: bytes, **values: Any) -> Any:
    """Return a page with a trace of its own."""
    page = opened(place, trace="your file", **values)
    uploader(page, "Your log").upload(name, content)
    return page.run()


def uploader(page: Any, label: str) -> Any:
    """Return a field for files by its label."""
    return next(each for each in page.get("file_uploader") if each.label == label)


def press(page: Any, label: str) -> Any:
    """Press a button and run the page."""
    next(button for button in page.button if button.label == label).click()
    return page.run()


def said(page: Any) -> str:
    """Return all that a page says in words."""
    return "\n".join(str(each.value) for kind in ("error", "warning", "info", "success", "caption", "markdown", "code",
                                                  "title") for each in page.get(kind))


def until(page: Any, is_done: Any) -> Any:
    """Run a page again until something holds, as a browser does every half second."""
    for _ in range(600):
        if is_done(page):
            return page
        time.sleep(0.05)
        page.run()
    raise AssertionError("it never held")


def answered(page: Any, name: str) -> Any:
    """Run a page again until its search of that name is over."""
    return until(page, lambda page: f"running_{name}" not in page.session_state)
