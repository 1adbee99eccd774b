"""Pages run without a browser: one page of the dashboard as a script of its own, with its widgets by their keys."""

import time
from typing import Any

import pytest

testing = pytest.importorskip("streamlit.testing.v1")

SCRIPT = """
from planner.ui.app import PAGES, _show

_show(next(page for _, page, address, _ in PAGES if address == {place!r}))
"""
KINDS = ("selectbox", "number_input", "slider", "text_input", "text_area", "checkbox", "radio", "multiselect")


def opened(place: str, **values: Any) -> Any:
    """Return a page with widgets set by their keys, on the first three hundred requests."""
    page = testing.AppTest.from_string(SCRIPT.format(place=place), default_timeout=120).run()
    assert not page.exception
    widgets = {widget.key: widget for kind in KINDS for widget in page.get(kind)}
    for key, value in {"limit": 300, **values}.items():
        widgets[key].set_value(value)
    return page.run()


def uploaded(place: str, name: str, content: bytes, **values: Any) -> Any:
    """Return a page with a trace of its own."""
    page = opened(place, trace="your file", **values)
    page.get("file_uploader")[0].upload(name, content)
    return page.run()


def press(page: Any, label: str) -> Any:
    """Press a button and run the page."""
    next(button for button in page.button if button.label == label).click()
    return page.run()


def until(page: Any, is_done: Any) -> Any:
    """Run a page again until something holds, as a browser does every half second."""
    for _ in range(600):
        if is_done(page):
            return page
        time.sleep(0.05)
        page.run()
    raise AssertionError("it never held")
