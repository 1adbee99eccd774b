"""The dashboard in a real browser: Chromium without a window, driven as a user would."""

import os
import re
import socket
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from browsing import CHROMIUM, REASON, WAIT_MS, metric, opened, set_axes, set_option, settle, shoot
from measured_runs import write_synthetic

browsers = pytest.importorskip("playwright.sync_api")
pytest.importorskip("streamlit")

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).resolve().parents[3] / "shared"))
ATTEMPTS = 6  # to click on a link in a table
LOADING_S = 8.0  # of CPU time, in which a process has loaded the loop and has begun its job
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=REASON)


def upload(page: Any, path: Path) -> None:
    """Give the sidebar a trace."""
    page.locator(".st-key-file input[type=file]").set_input_files(path)


def go(page: Any, name: str) -> None:
    """Open another page as a user does."""
    page.get_by_test_id("stSidebarNav").get_by_role("link", name=name).click()
    page.get_by_role("heading", name=name, exact=True).first.wait_for()
    settle(page)


def test_an_upload_is_replayed_and_a_slider_changes_the_numbers(browser: Any, address: str, tmp_path: Path) -> None:
    trace = SHARED / "traces" / "azure_llm_2023_conv.csv"
    if not trace.exists():
        trace = tmp_path / "trace.csv"
        trace.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{k / 5},{500 + k % 900},{20 + k % 200}\n"
                                                                           for k in range(19366)))
    page = opened(browser, f"{address}/replay?trace=your+file&rate_scale=1.5")
    page.get_by_text("Upload a trace in the sidebar").wait_for()
    upload(page, trace)
    page.get_by_text("Time to first token").first.wait_for()
    assert metric(page, "Served") == "all 19,366"
    before = metric(page, "Time to first token")
    slider = page.get_by_role("slider")
    slider.focus()
    begin = time.perf_counter()
    slider.press("ArrowRight")
    page.wait_for_function("before => ![...document.querySelectorAll('[data-testid=stMetric]')].some("
                           "each => each.innerText.includes('Time to first token') && each.innerText.includes(before))",
                           arg=before)
    print(f"from slider to number: {1e3 * (time.perf_counter() - begin):.0f} ms")
    assert metric(page, "Time to first token") != before
    assert "rate_scale=1.6" in page.url
    shoot(page, "replay")


def test_a_broken_upload_shows_the_readers_error(browser: Any, address: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text("arrival_s,input_tokens,output_tokens\n0,10,5\n1,<b>x</b>,5\n")
    page = opened(browser, f"{address}/workload?trace=your+file")
    upload(page, broken)
    alert = page.get_by_role("alert").filter(has_text="input_tokens")
    alert.wait_for()
    assert "broken.csv line 3" in alert.inner_text()
    assert "<b>x</b>" in alert.inner_text()  # as text, not as markup
    page.get_by_text("leave out bad rows").click()
    page.get_by_text("1 row dropped").wait_for()
    shoot(page, "broken")


def test_a_link_reproduces_the_view(browser: Any, address: str) -> None:
    link = f"{address}/replay?limit=2000&max_num_seqs=16&rate_scale=3.0&gpu=l40s&slo=ttft%3A800"
    first, second = (opened(browser, link) for _ in range(2))
    shown = [[metric(page, label) for label in ("Time to first token", "Time per output token", "Served")]
             for page in (first, second)]
    assert shown[0] == shown[1]
    command = second.locator("[data-testid=stCode]").inner_text()
    for words in ("--gpu l40s", "--max-num-seqs 16", "--rate-scale 3.0", "--limit 2000", "ttft:800"):
        assert words in command


def test_a_links_scenario_and_an_upload_stay_on_every_page(browser: Any, address: str, tmp_path: Path) -> None:
    trace = tmp_path / "own.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{k / 5},500,20\n" for k in range(50)))
    page = opened(browser, f"{address}/replay?gpu=l40s&rate_scale=3.0&max_num_seqs=16&trace=your+file")
    upload(page, trace)
    page.get_by_text("Time to first token").first.wait_for()
    for name in ("Capacity", "Sizing", "Explore", "Catalog", "Replay"):
        go(page, name)
        for words in ("gpu=l40s", "rate_scale=3.0", "max_num_seqs=16", "trace=your+file"):
            assert words in page.url, name
        assert page.get_by_text("own.csv").count() > 0
        assert page.get_by_text("Upload a trace in the sidebar").count() == 0
    assert metric(page, "Served") == "all 50"
    go(page, "Capacity")
    page.get_by_text("More: method and confidence").click()
    page.get_by_label("Windows for the confidence", exact=True).fill("0")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("replicates=0"))
    go(page, "Replay")
    go(page, "Capacity")
    assert page.get_by_label("Windows for the confidence", exact=True).input_value() == "0"
    assert "replicates=0" in page.url


def test_a_link_that_is_not_known_says_so_on_every_page_and_after_a_reload(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/replay?gpu=my-gpu&limit=300")
    for name in ("Replay", "Sizing", "Catalog", "Replay"):
        go(page, name)
        page.get_by_text("this session has no such gpu").wait_for()
        assert "gpu=my-gpu" in page.url
    page.reload()
    page.get_by_text("this session has no such gpu").wait_for()
    page.get_by_role("button", name="Continue with").click()
    page.get_by_text("Time to first token").first.wait_for()
    assert "my-gpu" not in page.url


def test_the_first_page_is_found_by_its_name(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/replay?limit=300")
    metric(page, "Time to first token")
    assert page.get_by_role("dialog").count() == 0  # which says that there is no such page
    go(page, "Replay")
    assert metric(page, "Served") == "all 300"


def test_nothing_is_fetched_from_elsewhere(browser: Any, address: str) -> None:
    """Not even the icon of the tab: the page works offline."""
    page = browser.new_context().new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for place in ("", "catalog", "explore"):
        page.goto(f"{address}/{place}?limit=300")
        page.get_by_label("or a sample", exact=True).first.wait_for()
        settle(page)
    icon = page.locator("link[rel*=icon]").first.get_attribute("href")
    assert icon is not None
    assert not icon.startswith("http") or icon.startswith(address)
    assert not [url for url in asked if not url.startswith((address, address.replace("http", "ws"), "data:", "blob:"))]


def test_work_ends_when_its_tab_is_closed(browser: Any, address: str, tmp_path: Path) -> None:
    """A replay that takes minutes: its process is gone soon after the tab."""
    trace = tmp_path / "long_outputs.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{k},100,100000\n" for k in range(100_000)))
    drafts = "num_speculative_tokens=3&speculative_method=ngram&speculative_acceptance=0.7"  # each step draws its own
    server = next(process for process in psutil.process_iter(["cmdline"]) if f"--port={address.rpartition(':')[2]}" in
                  " ".join(process.info["cmdline"] or []).replace("--server.port", "--port"))
    before = {child: seconds_used(child) for child in server.children()}
    page = opened(browser, f"{address}/replay?trace=your+file&{drafts}")
    upload(page, trace)
    page.get_by_text("Replaying").wait_for()

    def at_work() -> list[psutil.Process]:
        return [child for child in server.children() if seconds_used(child) > before.get(child, 0.0) + LOADING_S]

    assert wait_until(at_work)
    working = at_work()
    page.context.close()
    assert wait_until(lambda: not any(process.is_running() for process in working))


def seconds_used(process: psutil.Process) -> float:
    """Return a process's CPU time [s]; 0 if it has ended."""
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.NoSuchProcess:
        return 0.0


def wait_until(is_so: Any) -> bool:
    end_s = time.monotonic() + WAIT_MS / 1e3
    while time.monotonic() < end_s and not is_so():
        time.sleep(0.5)
    return bool(is_so())


def comparing_two(browser: Any, address: str) -> Any:
    """Return the page Compare with a pinned scenario, and another one in the sidebar."""
    page = opened(browser, f"{address}/replay?limit=1000&rate_scale=4.0")
    page.get_by_role("button", name="Pin to compare").click()
    page.get_by_role("button", name="Unpin").wait_for()
    set_option(page, "Running sequences, at most", "8")
    page.wait_for_url(re.compile("max_num_seqs=8"))
    go(page, "Compare")
    return page


def test_two_scenarios_are_compared(browser: Any, address: str) -> None:
    page = comparing_two(browser, address)
    page.get_by_text("against running sequences, at most: default").wait_for()
    page.get_by_role("columnheader", name="running sequences, at most 8").wait_for()
    page.get_by_test_id("stMain").get_by_text("Queue", exact=True).click()
    page.get_by_text("Running and waiting requests over time").wait_for()
    shoot(page, "compare")


def test_the_history_opens_before_and_after(browser: Any, address: str) -> None:
    """A click in the table of tried scenarios opens Compare in a tab of its own, with both."""
    page = opened(browser, f"{address}/replay?limit=300&rate_scale=3.0")
    settle(page)
    set_option(page, "Running sequences, at most", "8")
    page.get_by_text("Tried in this session (2)").click()
    table = page.get_by_test_id("stDataFrame").first
    table.wait_for()
    table.scroll_into_view_if_needed()
    settle(page)
    shoot(page, "replay-history")
    opened_beside = _clicked_link(page, table, 335, 88)  # "compare", in the row of the first scenario
    opened_beside.get_by_role("columnheader", name="running sequences, at most 8").wait_for()
    opened_beside.get_by_text(re.compile("a request takes .* more on average")).first.wait_for()


def _clicked_link(page: Any, table: Any, right: float, down: float) -> Any:
    """Return the tab that a link in a table opens; the table moves while figures above it are drawn."""
    for attempt in range(ATTEMPTS):
        table.evaluate("element => element.scrollIntoView({block: 'center'})")
        box = table.bounding_box()
        x, y = box["x"] + right, box["y"] + down
        page.mouse.move(x - 5, y)
        page.wait_for_timeout(500)  # until the cell knows of the mouse
        try:
            with page.expect_popup(timeout=WAIT_MS / ATTEMPTS) as found:
                page.mouse.click(x, y)
            return found.value
        except browsers.TimeoutError:
            if attempt == ATTEMPTS - 1:
                raise
    return None


def test_a_brush_over_one_figure_holds_for_all(browser: Any, address: str) -> None:
    """A drag over the throughput selects the time of the queue, of the latencies, and of Compare; a click goes back."""
    page = opened(browser, f"{address}/replay?limit=1000&rate_scale=4.0")
    main = page.get_by_test_id("stMain")
    main.get_by_text("Throughput", exact=True).click()
    page.get_by_text("Throughput over time").wait_for()
    settle(page)
    drag(page, 0.25, 0.5)
    page.wait_for_url(re.compile(r"times=[\d.]+-[\d.]+"))
    settle(page)
    start_s, end_s = map(float, re.search(r"times=([\d.]+)-([\d.]+)", page.url).groups())  # type: ignore[union-attr]
    assert time_range(page) == pytest.approx([start_s, end_s], rel=1e-3)
    shoot(page, "replay-brush")
    main.get_by_text("Queue", exact=True).click()
    page.get_by_text("Running and waiting requests over time").wait_for()
    settle(page)
    assert time_range(page) == pytest.approx([start_s, end_s], rel=1e-3)
    main.get_by_text("TTFT", exact=True).last.click()
    page.wait_for_function("() => /requests with a value: \\d{1,3};/.test(document.body.innerText)")
    page.get_by_role("button", name=re.compile(r"s to [\d.,]+ s ✕")).click()
    page.get_by_text("requests with a value: 1,000;").wait_for()
    assert "times=" not in page.url


def drag(page: Any, start: float, end: float) -> None:
    """Drag over a part of the first figure, from a share of its width to another."""
    plot = page.locator(".js-plotly-plot .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + (start + end) / 2 * box["width"], y, steps=5)
    page.mouse.move(box["x"] + end * box["width"], y, steps=5)
    page.mouse.up()


def test_a_brush_over_the_whole_trace_chooses_requests(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/schedule?limit=400")
    page.get_by_text("Whole trace").wait_for()
    settle(page)
    drag(page, 0.5, 0.6)
    page.wait_for_url(re.compile(r"first=\d+"))
    settle(page)
    first, count = (int(page.get_by_role("spinbutton", name=name, exact=True).input_value())
                    for name in ("From request", "Number of requests"))
    assert 150 < first < 250  # of requests that arrive at a steady rate
    assert 10 < count < 80
    page.get_by_text(f"Requests {first} to {first + count - 1} of the trace").wait_for()
    shoot(page, "schedule-brush")


def time_range(page: Any) -> list[float]:
    """Return the range of the time axis of the figure that is shown."""
    return list(page.evaluate("() => { const own = document.querySelector('.js-plotly-plot')._fullLayout; "
                              "return Object.entries(own).find(([name, axis]) => /^xaxis/.test(name) && axis.range)[1]"
                              ".range.map(Number) }"))


def test_a_link_opens_both_scenarios_in_a_fresh_session(browser: Any, address: str) -> None:
    page = comparing_two(browser, address)
    page.get_by_role("button", name="Copy link").click()
    link = page.get_by_test_id("stPopoverBody").get_by_test_id("stCode").inner_text().strip()
    fresh = opened(browser, link)
    settle(fresh)
    fresh.get_by_role("columnheader", name="running sequences, at most 8").wait_for()
    sentence = fresh.get_by_text(re.compile("against running sequences, at most: default: a request takes .* average"))
    sentence.first.wait_for()
    fresh.locator(".js-plotly-plot .legendtext").first.wait_for()
    curves = fresh.locator(".js-plotly-plot .legendtext").all_text_contents()
    assert {"running sequences, at most: default", "running sequences, at most 8"} <= set(curves)
    fresh.reload()
    sentence.first.wait_for()
    shoot(fresh, "compare-link")


def test_a_capacity_is_found(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/capacity?limit=1000")
    page.get_by_role("button", name="Find the capacity").click()
    page.get_by_text("Attainment over the request rate").wait_for()
    page.get_by_role("heading", name=re.compile(r"[\d.]+ requests per second, [\d.]+ × the traffic")).wait_for()
    shoot(page, "capacity")


def test_a_grid_has_a_front(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/explore?limit=300&rate_scale=3.0")
    set_axes(page, "max_num_seqs=8,32,128\ndata_parallel_size=1,2")
    page.get_by_role("button", name="Replay the grid").click()
    page.get_by_text("Pareto front").wait_for()
    page.get_by_text("6 configurations; labels").wait_for()
    page.wait_for_selector("[data-testid=stDataFrame]")
    shoot(page, "explore")


def test_measurements_are_compared_with_predictions(browser: Any, address: str, tmp_path: Path) -> None:
    write_synthetic(tmp_path / "runs.csv", {}, noise=0.02)
    page = opened(browser, f"{address}/accuracy")
    page.locator(".st-key-measured input[type=file]").set_input_files(tmp_path / "runs.csv")
    page.get_by_text("predicted over measured").first.wait_for()
    page.get_by_text(re.compile(r"TPOT: [\d.]+ % off in the median of \d+ runs")).wait_for()
    shoot(page, "accuracy")


def test_a_report_is_downloaded_and_opens(browser: Any, address: str, tmp_path: Path) -> None:
    page = opened(browser, f"{address}/replay?limit=500")
    metric(page, "Time to first token")
    with page.expect_download() as found:
        page.get_by_role("button", name="Report, HTML").click()
    path = tmp_path / "report.html"
    found.value.save_as(path)
    report = browser.new_page()
    report.goto(path.as_uri())
    report.wait_for_selector(".js-plotly-plot .main-svg")
    assert "Replay of chat" in report.title()


def test_a_click_tells_a_requests_story(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/schedule?limit=30&count=20&first=0")
    settle(page)
    page.get_by_text("610 prompt tokens").wait_for()  # of the first request
    bar = page.locator(".js-plotly-plot .barlayer .point path").last
    bar.click(force=True)
    page.wait_for_function("() => !document.body.innerText.includes('610 prompt tokens')")
    settle(page)
    assert page.get_by_role("combobox", name="request").first.input_value() != "0"
    assert "its prompt ran in" in page.get_by_test_id("stAlert").first.inner_text()


def test_a_long_sweep_leaves_the_page_alive_and_can_be_stopped(browser: Any, address: str) -> None:
    page = opened(browser, f"{address}/explore?rate_scale=2.0")
    set_axes(page, "max_num_seqs=" + ",".join(map(str, range(1, 2001))))
    page.get_by_role("button", name="Replay the grid").click()
    page.get_by_text("of 2,000 configurations replayed").wait_for()
    page.wait_for_function("() => /[1-9]\\d* of 2,000/.test(document.body.innerText)")
    page.get_by_text("Cheapest so far within the targets").wait_for(timeout=3 * WAIT_MS)  # while it runs
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    shoot(page, "explore-live")
    page.get_by_role("link", name="Catalog").click()  # another page, while it runs
    page.get_by_role("heading", name="Add your own").wait_for()
    settle(page)
    page.get_by_role("link", name="Explore").click()
    page.wait_for_url("**/explore*")
    page.get_by_test_id("stMain").get_by_role("button", name="Stop").click()  # Streamlit's header has one of its own
    page.get_by_text("Stopped:").wait_for()
    said = page.get_by_test_id("stMain").inner_text()
    assert re.search(r"Stopped: [\d,]+ of 2,000 were done", said)
    page.get_by_text("Pareto front").wait_for()
    shoot(page, "explore-stopped")


def test_two_sessions_do_not_see_each_others_uploads(browser: Any, address: str, tmp_path: Path) -> None:
    trace = tmp_path / "secret.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,777,3\n1,778,3\n")
    link = f"{address}/workload?trace=your+file"
    one, two = opened(browser, link), opened(browser, link)
    upload(one, trace)
    one.get_by_text("2 of 2 rows read").wait_for()
    two.get_by_text("Upload a trace in the sidebar").wait_for()
    two.reload()
    two.get_by_text("Upload a trace in the sidebar").wait_for()
    assert "secret" not in two.content()


def test_it_is_not_reached_from_other_machines(address: str) -> None:
    port = int(address.rpartition(":")[2])
    socket.create_connection(("localhost", port), timeout=5).close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; says which address of ours would
        except OSError:
            pytest.skip("this machine has no address but the loopback's")
        own = probe.getsockname()[0]
    with pytest.raises(OSError, match=r"refused|timed out"):
        socket.create_connection((own, port), timeout=5)
