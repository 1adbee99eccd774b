"""The dashboard in a real browser: where its pictures go, how a page is opened, awaited and looked at."""

import shutil
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
REASON = "no chromium; apt-get install chromium"
SHOTS = Path(__file__).resolve().parents[2] / "out" / "screenshots"
WAIT_MS = 60_000
IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"  # no run of the page is under way


def opened(browser: Any, url: str, **options: Any) -> Any:
    """Return a page of its own session, once its sidebar is there; without animations, which take the CPU to draw."""
    context = {"viewport": {"width": 1400, "height": 1400}, "reduced_motion": "reduce", **options}
    page = browser.new_context(accept_downloads=True, **context).new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(url)
    page.get_by_label("or a sample", exact=True).first.wait_for()
    return page


def settle(page: Any) -> None:
    """Wait until the page has stopped running, and its figures have been drawn."""
    page.wait_for_timeout(300)  # until the run that an action starts has begun
    page.wait_for_selector(IDLE)
    page.wait_for_function("() => [...document.querySelectorAll('.js-plotly-plot')].every("
                           "each => each.querySelector('.main-svg'))")
    page.wait_for_timeout(300)  # and until what it sent has been laid out
    page.wait_for_selector(IDLE)


def set_option(page: Any, label: str, text: str) -> None:
    """Set an option in the dialog of all settings, and close it."""
    page.get_by_role("button", name="All settings").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("spinbutton", name=label).fill(text)
    page.keyboard.press("Enter")
    settle(page)
    dialog.get_by_role("button", name="Done").click()
    dialog.wait_for(state="detached")
    settle(page)


def set_axes(page: Any, text: str) -> None:
    """Set the options that vary on the page Explore, as text."""
    page.get_by_text("As text", exact=True).click()
    page.get_by_role("textbox", name="An option with its values").fill(text)


def metric(page: Any, label: str) -> str:
    """Return a headline number, once the page has stopped running."""
    page.wait_for_selector(IDLE)
    box = page.locator("[data-testid=stMetric]").filter(has_text=label).first
    return str(box.locator("[data-testid=stMetricValue]").inner_text())


def shoot(page: Any, name: str) -> None:
    """Keep what a page looks like."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")
