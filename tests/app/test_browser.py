"""The dashboard in a real browser: Chromium without a window, driven as a user would."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from measured_runs import write_synthetic

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("streamlit")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SHOTS = Path(__file__).resolve().parents[2] / "out" / "screenshots"
WAIT_MS = 60_000
SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).resolve().parents[3] / "shared"))
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium; apt-get install chromium")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The dashboard, served by `planner ui`'s own command on a free port."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "planner.cli", "ui", "--port", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://localhost:{port}"
    for _ in range(120):
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=1).close()
            break
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    yield url
    server.terminate()
    server.wait(timeout=20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Any, url: str, **options: Any) -> Any:
    """Return a page of its own session, once its sidebar is there."""
    page = browser.new_context(viewport={"width": 1400, "height": 1400}, accept_downloads=True, **options).new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(url)
    page.get_by_label("trace", exact=True).first.wait_for()
    return page


def metric(page: Any, label: str) -> str:
    """Return a headline number, once the page has stopped running."""
    page.wait_for_selector("[data-testid=stStatusWidget]", state="detached")
    box = page.locator("[data-testid=stMetric]").filter(has_text=label).first
    return str(box.locator("[data-testid=stMetricValue]").inner_text())


def shoot(page: Any, name: str) -> None:
    """Keep what a page looks like."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")


def test_an_upload_is_replayed_and_a_slider_changes_the_numbers(browser: Any, address: str, tmp_path: Path) -> None:
    trace = SHARED / "traces" / "azure_llm_2023_conv.csv"
    if not trace.exists():
        trace = tmp_path / "trace.csv"
        trace.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{k / 5},{500 + k % 900},{20 + k % 200}\n"
                                                                           for k in range(19366)))
    page = opened(browser, f"{address}/?trace=your+file&rate_scale=1.5")
    page.get_by_text("Upload a trace in the sidebar").wait_for()
    page.locator("input[type=file]").set_input_files(trace)
    page.get_by_text("requests completed").wait_for()
    assert metric(page, "requests completed") == "19,366"
    before = metric(page, "TTFT, p99")
    slider = page.get_by_role("slider")
    slider.focus()
    begin = time.perf_counter()
    slider.press("ArrowRight")
    page.wait_for_function("before => ![...document.querySelectorAll('[data-testid=stMetric]')].some("
                           "each => each.innerText.includes('TTFT, p99') && each.innerText.includes(before))",
                           arg=before)
    print(f"from slider to number: {1e3 * (time.perf_counter() - begin):.0f} ms")
    assert metric(page, "TTFT, p99") != before
    assert "rate_scale=1.6" in page.url
    shoot(page, "replay")


def test_a_broken_upload_shows_the_readers_error(browser: Any, address: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text("arrival_s,input_tokens,output_tokens\n0,10,5\n1,<b>x</b>,5\n")
    page = opened(browser, f"{address}/workload?trace=your+file")
    page.locator("input[type=file]").set_input_files(broken)
    alert = page.get_by_role("alert").filter(has_text="input_tokens")
    alert.wait_for()
    assert "broken.csv line 3" in alert.inner_text()
    assert "<b>x</b>" in alert.inner_text()  # as text, not as markup
    page.get_by_text("leave out bad rows").click()
    page.get_by_text("1 rows dropped").wait_for()
    shoot(page, "broken")


def test_a_link_reproduces_the_view(browser: Any, address: str) -> None:
    link = f"{address}/?limit=2000&max_num_seqs=16&rate_scale=3.0&gpu=l40s&slo=ttft%3A800"
    first, second = (opened(browser, link) for _ in range(2))
    shown = [[metric(page, label) for label in ("TTFT, p99", "SLO attainment", "bottleneck")]
             for page in (first, second)]
    assert shown[0] == shown[1]
    command = second.locator("[data-testid=stCode]").inner_text()
    for words in ("--gpu l40s", "--max-num-seqs 16", "--rate-scale 3.0", "--limit 2000", "ttft:800"):
        assert words in command


def test_two_scenarios_are_compared(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/compare?limit=1000&rate_scale=4.0")
    page.get_by_role("button", name="Add it").click()
    page.get_by_text("scenario 1", exact=False).first.wait_for()
    page.get_by_label("max_num_seqs", exact=True).first.fill("8")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("max_num_seqs=8"))
    page.get_by_role("button", name="Add it").click()
    page.get_by_text("against scenario 1").wait_for()
    page.get_by_text("Time to first token").first.wait_for()
    shoot(page, "compare")


def test_a_capacity_is_found(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/capacity?limit=1000")
    page.get_by_role("button", name="Find the capacity").click()
    page.get_by_text("Attainment over the request rate").wait_for()
    assert re.fullmatch(r"[\d.]+ requests/s", metric(page, "capacity"))
    shoot(page, "capacity")


def test_a_grid_has_a_front(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/explore?limit=300&rate_scale=3.0")
    page.get_by_role("textbox", name="what varies").fill("max_num_seqs=8,32,128\nreplicas=1,2")
    page.get_by_role("button", name="Replay the grid").click()
    page.get_by_text("Pareto front").wait_for()
    page.get_by_text("6 configurations", exact=True).wait_for()
    page.wait_for_selector("[data-testid=stDataFrame]")
    shoot(page, "explore")


def test_measurements_are_compared_with_predictions(browser: Any, address: str, tmp_path: Path) -> None:
    write_synthetic(tmp_path / "runs.csv", {}, noise=0.02)
    page = opened(browser, f"{address}/accuracy")
    page.locator("input[type=file]").set_input_files(tmp_path / "runs.csv")
    page.get_by_text("predicted over measured").first.wait_for()
    assert re.fullmatch(r"[\d.]+%", metric(page, "tpot_ms, mean error"))
    shoot(page, "accuracy")


def test_a_report_is_downloaded_and_opens(browser: Any, address: str, tmp_path: Path) -> None:
    page = opened(browser, f"{address}/?limit=500")
    metric(page, "TTFT, p99")
    with page.expect_download() as found:
        page.get_by_role("button", name="Report, HTML").click()
    path = tmp_path / "report.html"
    found.value.save_as(path)
    report = browser.new_page()
    report.goto(path.as_uri())
    report.wait_for_selector(".js-plotly-plot .main-svg")
    assert "Replay of chat" in report.title()


@pytest.mark.parametrize(("name", "options"), [
    ("dark", {"color_scheme": "dark"}), ("narrow", {"viewport": {"width": 400, "height": 900}})])
def test_every_page_shows_itself(browser: Any, address: str, name: str, options: dict[str, Any]) -> None:
    context = browser.new_context(**{"viewport": {"width": 1400, "height": 1100}, **options})
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    for place in ("", "workload", "schedule", "compare", "capacity", "sizing", "explore", "accuracy",
                  "catalog"):
        page.goto(f"{address}/{place}?limit=300")
        page.wait_for_selector("h1")
        page.wait_for_selector("[data-testid=stStatusWidget]", state="detached")
        assert page.locator("[data-testid=stException]").count() == 0
        shoot(page, f"{place or 'replay'}-{name}")
