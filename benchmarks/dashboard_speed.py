"""Times and memory of the dashboard in a real browser, against targets: `python -m benchmarks.dashboard_speed`.

A time begins with the user's action and ends when the answer is on the screen. The server has loaded the compiled
loop. The memory is the sum over the server and all its processes (proportional set size: shared pages count once).
The benchmark needs Chromium and playwright. Other work on the machine lengthens the times, so the load is printed.
"""

import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import sync_playwright

from benchmarks.dashboard_server import served
from planner.traces import read_trace

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).resolve().parents[2] / "shared"))
HOUR = SHARED / "traces" / "azure_llm_2023_conv.csv"  # conversations of an hour of Azure, 19,366 requests
WAIT_MS = 300_000
IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"  # no run of the page is under way
MOVES, SESSIONS, PLANS = 10, 4, 3
CARD = "Time to first token"
HEADLINE = ".st-key-card h2"  # of a plan
NUMBER = ("before => { const cards = [...document.querySelectorAll('[data-testid=stMetric]')]; "
          f"const own = cards.find(each => each.innerText.includes('{CARD}')); "
          "return own && !own.closest('[data-stale=true]') && own.innerText !== before }")
DRAWN = ("() => [...document.querySelectorAll('.js-plotly-plot')].length > 0 && "
         "[...document.querySelectorAll('.js-plotly-plot')].every(each => each.querySelector('.main-svg'))")


def opened(browser: Any, url: str) -> Any:
    """Return a page of its own session."""
    page = browser.new_context(viewport={"width": 1400, "height": 1400}, reduced_motion="reduce").new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(url)
    return page


def settle_run(page: Any) -> None:
    """Wait until the page has stopped running."""
    page.wait_for_timeout(300)
    page.wait_for_selector(IDLE)


def settle(page: Any) -> None:
    """Wait until the page has stopped running, and its figures are drawn."""
    settle_run(page)
    page.wait_for_function(DRAWN)


def first_number_s(browser: Any, url: str) -> float:
    """Return the time from the address to the first number, in a browser with an empty cache [s]."""
    began_s = time.perf_counter()
    page = opened(browser, f"{url}/replay")
    page.wait_for_function(NUMBER, arg="")
    found_s = time.perf_counter() - began_s
    page.context.close()
    return found_s


def given(browser: Any, url: str, log: Path) -> Any:
    """Return the page Replay of a log."""
    page = opened(browser, f"{url}/replay?trace=your+file")
    page.locator(".st-key-file input[type=file]").set_input_files(log)
    page.wait_for_function(NUMBER, arg="")
    settle(page)
    return page


def planned_s(browser: Any, url: str, log: Path) -> tuple[float, float]:
    """Return the times from a log to the headline of its plan, and to the whole answer [s]."""
    page = opened(browser, f"{url}/plan?trace=your+file")
    field = page.locator(".st-key-file input[type=file]")
    field.wait_for(state="attached")
    settle_run(page)
    began_s = time.perf_counter()
    field.set_input_files(log)
    page.locator(HEADLINE).wait_for()
    headline_s = time.perf_counter() - began_s
    page.get_by_text("What more money buys").wait_for()
    page.wait_for_function(DRAWN)
    whole_s = time.perf_counter() - began_s
    page.context.close()
    return headline_s, whole_s


def moved_s(page: Any, moves: int) -> tuple[list[float], list[float]]:
    """Return the times from each move of the slider to the number, and to the figure that is shown [s]."""
    numbers, figures = [], []
    for _ in range(moves):
        slider = page.get_by_role("slider")
        slider.focus()
        before = page.locator("[data-testid=stMetric]").filter(has_text=CARD).first.inner_text()
        began_s = time.perf_counter()
        slider.press("ArrowRight")
        page.wait_for_function(NUMBER, arg=before)
        numbers.append(time.perf_counter() - began_s)
        page.wait_for_selector(IDLE)
        page.wait_for_function(DRAWN)
        figures.append(time.perf_counter() - began_s)
        settle(page)
    return numbers, figures


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a process and all that it has started and that still run [s]."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def memory_bytes(process: psutil.Process) -> int:
    """Return the memory of a process and all that it has started [B]."""
    total = 0
    for each in (process, *process.children(recursive=True)):
        try:
            total += each.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total


def log_of(folder: Path, count: int) -> Path:
    """Write a log of so many requests: the bundled chat, again and again."""
    trace = read_trace("chat")
    table = trace.requests.select("arrival_s", "input_tokens", "output_tokens")
    span_s = float(table["arrival_s"][-1]) + 0.1
    path = folder / f"log_{count}.csv"
    with path.open("wb") as file:
        file.write(b"arrival_s,input_tokens,output_tokens\n")
        for turn in range(-(-count // table.height)):
            part = table.head(count - turn * table.height).with_columns(table["arrival_s"].head(
                count - turn * table.height) + turn * span_s)
            part.write_csv(file, include_header=False)
    return path


def told(what: str, value: float, unit: str, target: float) -> None:
    """Print a figure against its target."""
    print(f"{what}: {value:,.3g} {unit} (target {target:g} {unit}){'' if value <= target else ', missed'}", flush=True)


def measure(browser: Any, folder: Path) -> None:
    """Print all figures."""
    with served() as (url, pid):
        first_number_s(browser, url)  # loads the loop
        told("first page to the number", statistics.median(first_number_s(browser, url) for _ in range(3)), "s", 3.0)
        before_s = cpu_s(psutil.Process(pid))
        plans = [planned_s(browser, url, HOUR) for _ in range(PLANS)]
        told("log to the headline of its plan, 19,366 requests", statistics.median(plan[0] for plan in plans), "s", 4.0)
        told("log to the whole plan", statistics.median(plan[1] for plan in plans), "s", 15.0)
        told("CPU of a plan", (cpu_s(psutil.Process(pid)) - before_s) / PLANS, "s", 10.0)
        pages = [given(browser, url, HOUR)]
        numbers, figures = moved_s(pages[0], MOVES)
        told("slider to the number, 19,366 requests", 1e3 * statistics.median(numbers), "ms", 250.0)
        told("slider to all figures, 19,366 requests", statistics.median(figures), "s", 1.0)
        before = memory_bytes(psutil.Process(pid))
        for _ in range(SESSIONS):
            pages.append(given(browser, url, HOUR))
            moved_s(pages[-1], MOVES // 2)
        told("each further session", (memory_bytes(psutil.Process(pid)) - before) / SESSIONS / 1e6, "MB", 100.0)
    for count, moves, figure in ((100_000, MOVES // 2, _of_a_long_log), (1_000_000, 1, _of_a_large_log)):
        with served() as (url, pid):
            first_number_s(browser, url)
            figure(browser, url, pid, log_of(folder, count), moves)


def _of_a_long_log(browser: Any, url: str, pid: int, log: Path, moves: int) -> None:
    numbers, _ = moved_s(given(browser, url, log), moves)
    told("slider to the number, 100,000 requests", statistics.median(numbers), "s", 2.0)


def _of_a_large_log(browser: Any, url: str, pid: int, log: Path, moves: int) -> None:
    peak = [0]
    with watched(lambda: peak.append(memory_bytes(psutil.Process(pid)))):
        moved_s(given(browser, url, log), moves)
    told("memory, 1,000,000 requests", max(peak) / 1e9, "GB", 2.0)


@contextmanager
def watched(look: Callable[[], None]) -> Iterator[None]:
    """Call a function every tenth of a second for as long as the block runs."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


def main() -> None:
    """Measure, and print the load of the machine."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox",
                                                                             "--enable-unsafe-swiftshader"])
        print(f"load of the machine at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        measure(browser, Path(folder))
        print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")
        browser.close()


if __name__ == "__main__":
    main()
