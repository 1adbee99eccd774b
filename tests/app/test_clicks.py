"""What users come for, done in a real browser, with the clicks and the seconds that it takes.

A click is also a field that is filled in, a file that is given, or a key that moves the slider.
"""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM, REASON, metric, opened, set_option, settle
from measured_runs import write_synthetic

pytest.importorskip("playwright.sync_api")
pytest.importorskip("streamlit")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=REASON)


@dataclass(slots=True)
class User:
    """Somebody before a page, whose clicks are counted from when the page is there."""

    page: Any
    clicks: int = 0
    began_s: float = field(default_factory=time.perf_counter)

    def press(self, name: str, place: int = 0) -> None:
        self.clicks += 1
        self.page.get_by_test_id("stMain").get_by_role("button", name=name, exact=True).nth(place).click()

    def fill(self, label: str, text: str) -> None:
        self.clicks += 1
        place = self.page.get_by_label(label, exact=True).first
        place.fill(text)
        place.press("Enter")
        settle(self.page)

    def choose(self, label: str, option: str) -> None:
        self.clicks += 2
        place = self.page.get_by_role("combobox", name=label, exact=True).first
        place.click()
        place.fill(option)  # the list shows only a few
        place.press("Enter")
        settle(self.page)

    def set(self, label: str, text: str) -> None:
        self.clicks += 3  # the dialog, its field, and out of it
        set_option(self.page, label, text)

    def go(self, name: str) -> None:
        self.clicks += 1
        self.page.get_by_test_id("stSidebarNav").get_by_role("link", name=name).click()

    def tell(self, task: str, most_clicks: int) -> None:
        print(f"{task}: {self.clicks} clicks, {time.perf_counter() - self.began_s:.1f} s")
        assert self.clicks <= most_clicks


def user(browser: Any, url: str) -> User:
    page = opened(browser, url)
    settle(page)
    return User(page)


def test_why_it_is_slow_and_what_to_change(browser: Any, address: str) -> None:
    own = user(browser, f"{address}/replay?limit=2000&gpu=l40s&rate_scale=3.0&router=round-robin")
    own.page.get_by_text("Overloaded: ").wait_for()
    own.page.get_by_text("a request takes").first.wait_for()
    own.press("Find what to change")
    own.page.get_by_role("button", name="Apply").first.wait_for()
    own.press("Apply", -1)
    own.page.get_by_text("Keeps its targets").wait_for()
    own.page.get_by_text("less on average").wait_for()
    own.tell("why slow, and what to change", 2)


def test_chunk_sizes_are_compared(browser: Any, address: str) -> None:
    own = user(browser, f"{address}/replay?limit=2000&rate_scale=2.0&max_num_batched_tokens=512")
    own.press("Pin to compare")
    own.page.get_by_role("button", name="Unpin").wait_for()
    own.set("Chunk size", "8192")
    own.go("Compare")
    own.page.get_by_role("columnheader", name="chunk size 8,192 tokens").wait_for()
    own.page.get_by_text(re.compile("a request takes .* (more|less) on average")).first.wait_for()
    own.tell("chunk sizes compared", 5)


def test_two_gpus_are_compared(browser: Any, address: str) -> None:
    own = user(browser, f"{address}/replay?limit=2000")
    own.press("Pin to compare")
    own.page.get_by_role("button", name="Unpin").wait_for()
    own.choose("GPU", "L40S")
    own.go("Compare")
    own.page.get_by_role("columnheader", name="GPU L40S").wait_for()
    own.page.get_by_role("cell", name="USD per million output tokens").wait_for()
    own.tell("two GPUs compared", 4)


def test_the_capacity_within_percentiles(browser: Any, address: str) -> None:
    own = user(browser, f"{address}/capacity?limit=1000")
    own.choose("Targets [ms] for", "p99 of all requests")
    own.fill("TPOT", "40")
    own.press("Find the capacity")
    own.page.get_by_role("heading", name="requests per second").wait_for()
    own.page.get_by_text("Use of each limit").wait_for()
    own.fill("limit 2 [ms]", "30")
    own.page.get_by_text("These targets are kept up to").wait_for()
    own.tell("capacity within percentiles", 5)


def test_a_grid_has_its_cheapest(browser: Any, address: str) -> None:
    own = user(browser, f"{address}/explore?limit=1000&rate_scale=2.0")
    own.press("Replay the grid")
    own.page.get_by_text("Cheapest within the targets").first.wait_for()
    own.tell("grid of 24", 1)


def test_a_report_for_those_without_a_network(browser: Any, address: str, tmp_path: Path) -> None:
    own = user(browser, f"{address}/replay?limit=1000")
    with own.page.expect_download() as found:
        own.press("Report, HTML")
    found.value.save_as(tmp_path / "report.html")
    own.tell("report offline", 1)
    page = browser.new_context(offline=True).new_page()
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_selector(".js-plotly-plot .main-svg")


def test_own_measurements(browser: Any, address: str, tmp_path: Path) -> None:
    write_synthetic(tmp_path / "runs.csv", {}, noise=0.02)
    own = user(browser, f"{address}/accuracy")
    own.clicks += 1
    own.page.locator(".st-key-measured input[type=file]").set_input_files(tmp_path / "runs.csv")
    own.page.get_by_text("predicted over measured").first.wait_for()
    own.tell("own measurements", 1)


def test_prefill_and_decode_apart(browser: Any, address: str) -> None:
    own = user(browser, f"{address}/replay?limit=1000&rate_scale=4.0&data_parallel_size=4")
    own.press("Pin to compare")
    own.page.get_by_role("button", name="Unpin").wait_for()
    own.set("Replicas that only prefill", "2")
    own.page.get_by_text("replicas that only prefill 2 against replicas that only prefill 0").wait_for()
    assert "pinned" in own.page.locator("[data-testid=stMetric]").first.inner_text()
    assert metric(own.page, "Served") == "all 1,000"
    own.tell("prefill and decode apart", 4)
