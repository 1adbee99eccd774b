"""Every page, filled, in light, in dark and on a phone: it fits, it can be read, and the keyboard reaches it.

Pages take dark and the phone in turn; with PLANNER_LAWS=all each page has both.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM, REASON, opened, set_axes, set_option, settle, shoot
from helpers import num_drawn
from measured_runs import write_synthetic
from test_watch_page import DRIFTED, interval, lines

pytest.importorskip("playwright.sync_api")
pytest.importorskip("streamlit")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=REASON)

LOOKS = {"light": ("light", 1400, 2400), "narrow": ("light", 400, 3200), "dark": ("dark", 1400, 2400)}
PAGES = ("Plan", "Replay", "Workload", "Schedule", "Compare", "Capacity", "Sizing", "Explore", "Accuracy", "Catalog",
         "Watch")
GRAVE = ("serious", "critical")
WIDER = "() => { const m = document.querySelector('[data-testid=stMain]'); return m.scrollWidth - m.clientWidth }"


@pytest.fixture(scope="module")
def page(chromium: Any, address: str) -> Iterator[Any]:
    """One session for all pages, so that what one has is there for the next."""
    page = opened(chromium, f"{address}/replay?limit=300&rate_scale=3.0&gpus=h100-sxm",
                  viewport={"width": 1400, "height": 2400})
    settle(page)
    yield page
    page.context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_can_be_read(page: Any, tmp_path: Path, name: str) -> None:
    """No error, no scrolling to the side, nothing that axe finds serious, in any of its looks."""
    look(page, "light")
    page.get_by_test_id("stSidebarNav").get_by_role("link", name=name).click()
    page.get_by_role("heading", name=name, exact=True).first.wait_for()
    settle(page)
    fill(page, name, tmp_path)
    settle(page)
    turn = 1 + PAGES.index(name) % 2
    for look_name in ["light", *[*LOOKS][turn:], *[*LOOKS][1:turn]][:num_drawn(2, 3)]:
        look(page, look_name)
        shoot(page, f"{name.lower()}-{look_name}")
        assert page.locator("[data-testid=stException]").count() == 0
        assert page.evaluate(WIDER) <= 0, f"{look_name}: scrolls to the side"
        if look_name == "narrow":
            continue  # what axe finds there it has found in the light look
        found = [(each["id"], node["html"][:200]) for each in axe.Axe().run(page).response["violations"]
                 if each["impact"] in GRAVE for node in each["nodes"]]
        assert not found, look_name


def look(page: Any, name: str) -> None:
    scheme, width, height = LOOKS[name]
    was_dark = page.evaluate("() => matchMedia('(prefers-color-scheme: dark)').matches")
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": height})
    if was_dark != (scheme == "dark"):
        page.locator("h1").first.click()
        page.keyboard.press("r")  # run the page again: figures are drawn for the theme that it was run in
    settle(page)


def fill(page: Any, name: str, folder: Path) -> None:
    """Do what a page asks for."""
    if name == "Plan":
        page.get_by_text("Prices", exact=True).click()
        page.get_by_role("button", name="Find the cheapest fleet").click()
        page.get_by_text("What more money buys").wait_for(timeout=120_000)
    elif name == "Replay":
        page.get_by_role("button", name="Find what to change").click()
        page.get_by_role("button", name="Apply").first.wait_for()
    elif name == "Compare":
        page.get_by_role("button", name="Pin this scenario").click()
        page.get_by_role("button", name="Remove").wait_for()
        set_option(page, "Running sequences, at most", "32")
        page.get_by_text("against running sequences, at most: default").wait_for()
    elif name == "Capacity":
        page.get_by_role("button", name="Find the capacity").click()
        page.get_by_text("Attainment over the request rate").wait_for()
    elif name == "Sizing":
        (folder / "day.csv").write_text("start_s,rate_rps\n" + "".join(
            f"{3600 * hour},{5 + 25 * (8 <= hour < 20) + 10 * (hour == 14)}\n" for hour in range(24)))
        page.get_by_text("a file of rates").click()
        settle(page)
        page.locator(".st-key-rate_series input[type=file]").set_input_files(folder / "day.csv")
        settle(page)
        page.get_by_role("button", name="Find the fleet").click()
        page.get_by_text("Load against the fleet").wait_for()
    elif name == "Explore":
        set_axes(page, "max_num_seqs=8,32,128\ndata_parallel_size=1,2")
        page.get_by_role("button", name="Replay the grid").click()
        page.get_by_text("6 configurations; labels").wait_for()
    elif name == "Accuracy":
        write_synthetic(folder / "runs.csv", {}, noise=0.02)
        page.locator(".st-key-measured input[type=file]").set_input_files(folder / "runs.csv")
        page.get_by_text("predicted over measured").first.wait_for()
    elif name == "Watch":
        (folder / "watch.jsonl").write_bytes(lines(interval(0, 21.0), interval(1, 41.0), DRIFTED))
        page.locator(".st-key-watched input[type=file]").set_input_files(folder / "watch.jsonl")
        page.get_by_text("mean_tpot_ms over time").wait_for()


def test_the_dialog_of_settings_can_be_read(page: Any) -> None:
    """All of its fields, in light and in dark; axe looks at it as at a page."""
    look(page, "light")
    page.get_by_role("button", name="All settings").click()
    page.get_by_role("dialog").get_by_label("Search").wait_for()
    settle(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        settle(page)
        shoot(page, f"all-settings-{scheme}")
        found = [(each["id"], node["html"][:200]) for each in axe.Axe().run(page).response["violations"]
                 if each["impact"] in GRAVE for node in each["nodes"]]
        assert not found, scheme
    page.get_by_role("dialog").get_by_role("button", name="Done").click()
    page.get_by_role("dialog").wait_for(state="detached")


def test_the_keyboard_reaches_everything(browser: Any, address: str) -> None:
    """From the top by Tab alone: the pages, the sidebar's widgets, and the page's own button, which Enter presses."""
    page = opened(browser, f"{address}/compare?limit=300")
    settle(page)
    reached: list[str] = []
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.append(str(page.evaluate("() => { const e = document.activeElement; return e.getAttribute('aria-label')"
                                         " || e.innerText || e.tagName }")))
        if reached[-1] == "Pin this scenario":
            break
    assert reached[-1] == "Pin this scenario"
    assert {"Workload", "Capacity", "Catalog"} <= {text.split("\n")[-1] for text in reached}
    for label in ("or a sample", "Model", "GPU", "Load", "TTFT", "All settings"):
        assert any(label in text for text in reached), label
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Remove").wait_for()
