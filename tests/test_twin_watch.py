"""`planner watch` beside the twin of the plan: nothing has drifted, unless the twin is slower than planned."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import planner
from test_twin import MODEL, serving

from planner.twin.server import ServeOptions

DEPLOYMENT = ("--model", MODEL, "--gpu", "h100-sxm", "--engine", "vllm")
RATE_RPS = 10.0
PROMPT, OUTPUT = 400, 60  # tokens
INTERVAL_S = 6.0  # 60 requests


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the saved plan of an even load."""
    folder = tmp_path_factory.mktemp("plan")
    rows = [f"{k / RATE_RPS:.2f},{PROMPT},{OUTPUT}" for k in range(600)]
    (folder / "load.csv").write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]) + "\n")
    run = planner("replay", folder / "load.csv", *DEPLOYMENT, "--slo", "ttft:500 tpot:50", "--json",
                  folder / "plan.json")
    assert run.returncode == 0, run.stderr
    return folder / "plan.json"


def send(url: str, until: threading.Event) -> None:
    """Send the load of the plan, each prompt a new text, until an event."""
    with httpx.Client(base_url=url, timeout=60) as client, ThreadPoolExecutor(16) as pool:
        begin_s, sent = time.monotonic(), 0
        while not until.wait(max(begin_s + sent / RATE_RPS - time.monotonic(), 0.0)):
            prompt = [PROMPT * sent + k for k in range(PROMPT)]
            pool.submit(client.post, "/v1/completions", json={"prompt": prompt, "max_tokens": OUTPUT,
                                                              "ignore_eos": True})
            sent += 1


def watch(plan: Path, slow: float) -> list[Any]:
    """Watch a twin for two intervals; return the line of each."""
    is_over = threading.Event()
    with serving(ServeOptions(models=(MODEL,), slow=slow)) as twin, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send, twin.url, is_over)
        try:
            run = planner("watch", plan, "--url", twin.url + "/metrics", "--interval", INTERVAL_S, "--for",
                          2.5 * INTERVAL_S, "--confirm", 2, "--tolerance", 0.3, "--json-lines", "-")
        finally:
            is_over.set()
        sending.result()
    assert run.returncode in (0, 1), run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == int(bool(lines[-1]["drifts"]))
    return lines


@pytest.mark.slow
@pytest.mark.parametrize(("slow", "causes"), [(1.0, set()), (2.0, {"server"})])
def test_watch_tells_a_slow_twin_from_a_planned_one(plan: Path, slow: float, causes: set[str]) -> None:
    lines = watch(plan, slow)
    assert {drift["cause"] for drift in lines[-1]["drifts"]} == causes
    measured = {each["name"]: each for each in lines[-1]["quantities"]}["mean_tpot_ms"]
    assert measured["measured"] / measured["predicted"] == pytest.approx(slow, rel=0.1)
