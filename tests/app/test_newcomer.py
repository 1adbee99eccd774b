"""The ways of a newcomer in a real browser, with the clicks and seconds that each takes."""

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM, REASON, opened, set_option, settle, shoot

pytest.importorskip("playwright.sync_api")
pytest.importorskip("streamlit")

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).resolve().parents[3] / "shared"))
PAGES = ("Workload", "Replay", "Schedule", "Compare", "Capacity", "Sizing", "Explore", "Accuracy", "Catalog", "Plan")
MOST_CLICKS = 4
ANSWER_MS = 120_000  # other tests run meanwhile
LINK = ("limit=300&rate_scale=3&gpu=l40s&max_num_batched_tokens=1024&slo=p95_ttft%3A900+p95_tpot%3A60&"
        "price=l40s%3D1.25&watermark=0.02")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=REASON)


class Clicks:
    """Clicks on a page, counted, with the time since the first."""

    def __init__(self) -> None:
        self.count = 0
        self.began_s = time.perf_counter()

    def on(self, place: Any) -> None:
        """Click on a place of the page."""
        self.count += 1
        place.click()

    def told(self, what: str) -> None:
        """Print the clicks and seconds of a way."""
        print(f"{what}: {self.count} clicks, {time.perf_counter() - self.began_s:.1f} s")


def log_of(folder: Path) -> Path:
    """Return an hour of a chat service, or a small log where it is missing."""
    own = SHARED / "traces" / "azure_llm_2023_conv.csv"
    if own.exists():
        return own
    path = folder / "log.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(
        f"{k / 5},{500 + k % 900},{20 + k % 200}\n" for k in range(4000)))
    return path


def go(page: Any, name: str) -> None:
    """Open another page as a user does."""
    page.get_by_test_id("stSidebarNav").get_by_role("link", name=name).click()
    page.get_by_role("heading", name=name, exact=True).first.wait_for()
    settle(page)


def chips(page: Any) -> list[str]:
    """Return what the chips say."""
    return [str(text) for text in page.locator(".st-key-chips button").all_inner_texts()]


def answered(page: Any) -> str:
    """Wait for the answer of the first page; return its headline."""
    headline = page.locator(".st-key-card h2")
    headline.wait_for(timeout=ANSWER_MS)
    return str(headline.inner_text())


def test_from_a_log_to_its_price_a_month(browser: Any, address: str, tmp_path: Path) -> None:
    page, log = opened(browser, address), log_of(tmp_path)
    answered(page)  # for the sample, without a search
    sample = page.get_by_text("This answer for the bundled sample")
    sample.wait_for()
    clicks = Clicks()
    with page.expect_file_chooser() as chooser:
        clicks.on(page.locator(".st-key-file button").filter(has_text="Upload"))
    chooser.value.set_files(log)
    sample.wait_for(state="detached", timeout=ANSWER_MS)  # the search starts by itself
    headline = answered(page)
    clicks.told(f"log to month, {log.name}")
    assert clicks.count <= MOST_CLICKS
    shoot(page, "plan-headline")
    page.get_by_text("What more money buys").wait_for(timeout=ANSWER_MS)
    settle(page)
    assert answered(page) == headline
    assert re.fullmatch(r"\d+ × [A-Z0-9]+( SXM)?( \(.*\))? — [\d,]+ USD a month", headline)
    card = page.locator(".st-key-card").inner_text()
    assert re.search(r"TTFT \d+(\.\d)? ms for 99 % of requests, limit 500 ms", card)
    assert re.search(r"serves up to \d+(\.\d+)? requests/s, \d+(\.\d)? × the log's", card)
    assert re.search(r"prediction error ± \d+ % TTFT, ± \d+ % TPOT", card)
    assert "vllm serve" in card
    box = page.locator(".st-key-card").bounding_box()
    assert box["y"] + box["height"] < 900  # above the fold of a laptop
    shoot(page, "plan-answer")


def test_a_log_given_on_the_first_page_stays_on_the_others(browser: Any, address: str, tmp_path: Path) -> None:
    """The field for the log is in the sidebar there, with the same file."""
    (tmp_path / "own.csv").write_text("arrival_s,input_tokens,output_tokens\n" + "".join(
        f"{k / 5},500,20\n" for k in range(50)))
    page = opened(browser, address)
    page.get_by_test_id("stMain").locator(".st-key-file input[type=file]").set_input_files(tmp_path / "own.csv")
    page.wait_for_url(re.compile("trace=your"))
    for name in ("Replay", "Plan", "Workload"):
        go(page, name)
        place = page.get_by_test_id("stMain" if name == "Plan" else "stSidebar")
        place.locator(".st-key-file").get_by_text("own.csv").wait_for()
    page.get_by_text("50 of 50 rows read").wait_for()


def test_from_a_preset_and_a_launch_line_to_a_price(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/?limit=500&gpus=h100-sxm")
    settle(page)
    for label in ("Your log", "or a sample", "Launch command"):
        assert page.get_by_test_id("stMain").get_by_label(label).count(), label
        assert not page.get_by_test_id("stSidebar").get_by_label(label).count(), label
    clicks = Clicks()
    clicks.on(page.get_by_role("textbox", name="Launch command"))
    page.keyboard.insert_text("vllm serve Qwen/Qwen3-32B -tp 2 \\\n  --max-num-seqs 64 --quantization fp8")
    clicks.on(page.get_by_role("button", name="Use its options"))
    page.get_by_role("button", name="running sequences, at most 64").wait_for()
    settle(page)
    assert {"model Qwen/Qwen3-32B ✕", "weight format fp8 ✕", "running sequences, at most 64 ✕"} <= set(chips(page))
    clicks.on(page.get_by_role("button", name="Find the cheapest fleet"))
    answered(page)
    clicks.told("launch line to month")
    assert clicks.count <= MOST_CLICKS
    command = page.locator(".st-key-card [data-testid=stCode]").first.inner_text()
    assert "Qwen3-32B" in command
    assert "--max-num-seqs 64" in command


def test_a_link_holds_on_every_page_of_a_fresh_browser(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/plan?{LINK}")
    settle(page)
    expected = {"GPU L40S ✕", "load ×3 ✕", "chunk size 1,024 tokens ✕", "targets p95 TTFT 900 ms, p95 TPOT 60 ms ✕",
                "own prices ✕", "KV blocks kept free at admission 0.02 share ✕"}
    clicks = Clicks()
    for name in PAGES:
        go(page, name)
        clicks.count += 1
        assert expected <= set(chips(page)), name
        for words in ("rate_scale=3", "gpu=l40s", "max_num_batched_tokens=1024", "p95_ttft", "price=", "watermark="):
            assert words in page.url, name
        assert page.get_by_role("spinbutton", name="TTFT").input_value() == "900"
    page.go_back()
    settle(page)
    assert expected <= set(chips(page))
    fresh = opened(browser, page.url)
    settle(fresh)
    assert set(chips(fresh)) == set(chips(page))
    clicks.told("a link on every page, and in another browser")


def test_chips_set_back_and_the_address_follows(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/catalog?{LINK}")
    settle(page)
    clicks = Clicks()
    clicks.on(page.get_by_role("button", name="load ×3"))
    settle(page)
    assert "rate_scale" not in page.url
    clicks.on(page.get_by_role("button", name="reset all"))
    page.locator(".st-key-chips").wait_for(state="detached")
    settle(page)
    assert "?" not in page.url
    clicks.told("chips set back")


def test_the_dialog_is_searched_and_keeps_its_settings(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/catalog")
    clicks = Clicks()
    clicks.on(page.get_by_role("button", name="All settings"))
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Search").fill("max_num_batched")
    page.keyboard.press("Enter")
    dialog.get_by_text("Deployment", exact=True).wait_for(state="detached")
    settle(page)  # the fields that are left are drawn again
    field = dialog.get_by_role("spinbutton", name="Chunk size")
    assert field.get_attribute("placeholder") == "8,192 (the engine's)"
    field.fill("512")
    page.keyboard.press("Enter")
    settle(page)
    shoot(page, "all-settings")
    clicks.on(dialog.get_by_role("button", name="Done"))
    dialog.wait_for(state="detached")
    settle(page)
    clicks.told("a setting in the dialog")
    assert "max_num_batched_tokens=512" in page.url
    assert chips(page) == ["chunk size 512 tokens ✕"]
    set_option(page, "Context limit", "8192")
    assert "max_num_batched_tokens=512" in page.url  # the dialog was drawn anew
    assert "max_model_len=8192" in page.url
    go(page, "Replay")
    command = page.locator("[data-testid=stCode]").first.inner_text()
    assert "--max-num-batched-tokens 512" in command
    assert "--max-model-len 8192" in command


def test_targets_are_one_form_for_all_pages(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/replay?limit=300")
    settle(page)
    page.get_by_role("spinbutton", name="End to end").fill("20000")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("slo=.*e2el"))
    page.get_by_text("Targets as text").click()
    text = page.get_by_role("textbox", name="Targets")
    text.wait_for()
    settle(page)
    assert text.input_value() == "ttft:500 tpot:50 e2el:20000"
    text.fill("ttft:500 mean_tpot:40")
    page.keyboard.press("Enter")
    page.get_by_text("mean TPOT", exact=False).first.wait_for()
    for name in PAGES:
        go(page, name)
        assert page.get_by_role("textbox", name="Targets").input_value() == "ttft:500 mean_tpot:40", name
        assert "mean_tpot" in page.url


def test_a_price_is_changed_in_place(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/?limit=300&gpus=h100-sxm&slo=p99_ttft:2000")
    settle(page)
    page.get_by_text("Prices", exact=True).click()
    table = page.get_by_test_id("stDataFrame").first
    table.wait_for()
    settle(page)
    page.wait_for_timeout(500)  # until the section has opened
    box = table.bounding_box()
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + 53)
    page.wait_for_timeout(500)  # until the cell is a field
    page.keyboard.press("Control+a")
    page.keyboard.type("1.5", delay=50)
    page.wait_for_timeout(300)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="own prices").wait_for()
    settle(page)
    assert "price=h100-sxm%3D1.5" in page.url
    page.get_by_role("button", name="Find the cheapest fleet").click()
    assert answered(page) == "1 × H100 SXM — 1,095 USD a month"


def test_a_fleet_for_a_day(browser: Any, address: str, tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("start_s,rate_rps\n" + "".join(
        f"{3600 * hour},{5 + 25 * (8 <= hour < 20)}\n" for hour in range(24)))
    page = opened(browser, f"{address}/sizing?limit=1000&gpus=h100-sxm&ranks=1")
    clicks = Clicks()
    clicks.on(page.get_by_text("a file of rates"))
    settle(page)
    page.locator(".st-key-rate_series input[type=file]").set_input_files(tmp_path / "day.csv")
    settle(page)
    clicks.on(page.get_by_role("button", name="Find the fleet"))
    answered(page)
    page.get_by_text("Load against the fleet").wait_for()
    clicks.told("fleet for a day")
    said = page.get_by_test_id("stMain").inner_text()
    assert "USD a year" in said
    assert "On a schedule" in said
