"""A controller that follows Kubernetes' rules on the twin's metrics decides as the planner's simulated autoscaler.

The controller scales the twin while clients send it requests. That a scaled fleet takes the steps of the autoscaled
replay is held without a wall clock in test_live_fleet.py.
"""

import math
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from test_prometheus import free_port, until_ready
from test_twin import serving

from planner.deployment.autoscale import Autoscale, read_autoscale
from planner.deployment.recommendation import Timed, recommend, wanted_by
from planner.policies.autoscaler import FleetLoad
from planner.replays.fleet.scaler import Scaler
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.twin.server import ServeOptions

MODEL = "llama-3.3-70b"
TARGET, MOST = 5.0, 8
SPEED = 10.0
SYNC_S = 15.0
STARTUP_S = 20.0
STEADY_S = 60.0  # of the stabilization of a smaller number
RUSH = 16  # requests in flight, of clients that have 24
QUERY = "sum(vllm:num_requests_running)"
HPA: dict[str, Any] = {
    "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "llm", "annotations": {"planner/rules": f'{{"startup": {{"warmup_s": {STARTUP_S}}}}}'}},
    "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "llm"}, "minReplicas": 1, "maxReplicas": MOST,
             "behavior": {"scaleDown": {"stabilizationWindowSeconds": int(STEADY_S)}},
             "metrics": [{"type": "Pods", "pods": {"metric": {"name": "vllm:num_requests_running"},
                                                   "target": {"type": "AverageValue", "averageValue": "5"}}}]}}


class Controller:
    """Kubernetes' HorizontalPodAutoscaler, written from its documentation alone.

    The stabilization window of a smaller number is STEADY_S. All other settings are Kubernetes' defaults.
    """

    def __init__(self) -> None:
        self.num_replicas = 1
        self._past: list[tuple[float, int]] = []  # times and numbers of recommendations
        self._growth: list[tuple[float, int]] = []

    def sync(self, now_s: float, total: float) -> int:
        """Decide on a metric's sum over all pods."""
        count = self.num_replicas
        ratio = total / count / TARGET
        wanted = count if abs(ratio - 1.0) <= 0.1 else math.ceil(ratio * count)
        wanted = min(max(wanted, 1), MOST)
        self._past = [(at_s, number) for at_s, number in self._past if at_s > now_s - STEADY_S] + [(now_s, wanted)]
        steady = max(wanted, min(count, max(number for _, number in self._past)))  # shrinks to the most of the window
        before = count - sum(number for at_s, number in self._growth if at_s > now_s - 15.0)
        decided = min(steady, max(before + 4, 2 * before)) if steady > count else steady
        if decided > count:
            self._growth.append((now_s, decided - count))
        self.num_replicas = decided
        return decided


def simulated(scaler: Autoscale, series: Sequence[tuple[float, float]]) -> list[int]:
    """Return the numbers of replicas that the planner's autoscaler asks for, one after another."""
    metric, count = scaler.metrics[0], 1
    asked: list[Timed] = []
    changes: list[Timed] = []
    counts = []
    for now_s, total in series:
        load = FleetLoad(now_s, count, count, int(total), 0, 0.0, 0.0, math.nan, math.nan, math.nan)
        advice = recommend([wanted_by(metric.autoscaler, load, metric.target, scaler.rules.tolerance)], count, 0, now_s,
                           asked, changes, scaler.rules)
        assert advice is not None
        asked.append(Timed(now_s, advice.asked))
        if advice.num_replicas != count:
            changes.append(Timed(now_s, advice.num_replicas - count))
        count = advice.num_replicas
        counts.append(count)
    return counts


def read_hpa(folder: Path) -> Path:
    path = folder / "hpa.yaml"
    path.write_text(yaml.safe_dump(HPA))
    return path


def running_in(client: httpx.Client, address: str) -> float | None:
    """Return the twin's running requests by Prometheus; None if it has no value, as after a scrape that failed."""
    response = client.get(f"http://{address}/api/v1/query", params={"query": QUERY})
    rows = response.raise_for_status().json()["data"]["result"]
    return float(rows[0]["value"][1]) if rows else None


def steer(client: httpx.Client, address: str, url: str,
          until: threading.Event) -> tuple[list[tuple[float, float]], list[int], list[int]]:
    """Scale the twin by the metric in Prometheus, until an event; return the series, decisions and ready replicas."""
    controller, series, decided, ready = Controller(), [], [], []
    begin_s = time.monotonic()
    while not until.wait(SYNC_S / SPEED):
        total = running_in(client, address)
        if total is None:  # a controller without a value changes nothing
            continue
        now_s = (time.monotonic() - begin_s) * SPEED
        ready.append(client.get(url + "/scale").json()["status"]["readyReplicas"])
        series.append((now_s, total))
        decided.append(controller.sync(now_s, total))
        assert scale(client, url, decided[-1])["spec"]["replicas"] == decided[-1]
    return series, decided, ready


def scale(client: httpx.Client, url: str, num_replicas: int) -> Any:
    return client.put(url + "/scale", json={"spec": {"replicas": num_replicas}}).raise_for_status().json()


def send_waves(client: httpx.Client, url: str) -> None:
    """Send a quiet time, a rush and a quiet time: so many requests in flight, for so long [s]."""
    for num_clients, for_s in ((2, 4.0), (24, 8.0), (2, 12.0)):
        end_s = time.monotonic() + for_s

        def ask(end_s: float = end_s) -> None:
            while time.monotonic() < end_s:
                client.post(url + "/v1/completions", json={"prompt": "x" * 400, "max_tokens": 400,
                                                           "ignore_eos": True})

        with ThreadPoolExecutor(num_clients) as pool:
            for _ in range(num_clients):
                pool.submit(ask)


@pytest.mark.slow
def test_an_hpa_that_scales_the_twin_decides_as_the_simulated_one(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus is installed: apt-get install prometheus")
    address = f"127.0.0.1:{free_port()}"
    with serving(ServeOptions(models=(MODEL,), speed=SPEED), model=MODEL, max_replicas=2 * MOST, startup_s=STARTUP_S,
                 stream_interval=100, tensor_parallel_size=2, router="least-outstanding-requests") as twin:
        target = twin.url.removeprefix("http://")
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
            "scrape_configs": [{"job_name": "twin", "static_configs": [{"targets": [target]}]}]}))
        with (tmp_path / "log").open("w") as log, subprocess.Popen(
                ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                 f"--web.listen-address={address}"], cwd=tmp_path, stdout=log, stderr=log) as server:
            try:
                until_ready(address)
                with httpx.Client(timeout=60) as client, ThreadPoolExecutor() as pool:
                    for _ in range(4):  # a busy machine may not scrape in the rush
                        is_over = threading.Event()
                        steering = pool.submit(steer, client, address, twin.url, is_over)
                        send_waves(client, twin.url)
                        is_over.set()
                        series, decided, ready = steering.result()
                        if sum(value >= RUSH for _, value in series) >= 2:
                            break
                        scale(client, twin.url, 1)
            finally:
                server.terminate()
                server.wait(20)
    assert len(series) >= 10
    assert decided == simulated(read_autoscale(read_hpa(tmp_path)), series)
    assert max(decided) >= 4 > decided[-1]  # it grew in the rush, and shrank a minute after it
    assert max(ready) >= 4 > ready[-1]  # and so did the twin


def test_an_hpa_decides_as_the_autoscaler_of_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With replicas that come and go: each look of the replay's autoscaler is given to the controller too."""
    looks: list[FleetLoad] = []
    evaluate = Scaler._loads

    def looked(scaler: Scaler, running: Any, now_s: float) -> Any:
        loads = evaluate(scaler, running, now_s)
        looks.extend(load for _, load in loads)
        return loads

    monkeypatch.setattr(Scaler, "_loads", looked)
    trace = tmp_path / "waves.csv"
    rows = [f"{at_s:.2f},200,1500" for begin_s, rate, for_s in ((0, 0.2, 60), (60, 3.0, 120), (180, 0.2, 600))
            for at_s in (begin_s + k / rate for k in range(int(rate * for_s)))]
    trace.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]) + "\n")
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", router="least-outstanding-requests",
                        autoscale=str(read_hpa(tmp_path)))
    scaling = replay(read_trace(str(trace)), scenario).result.scaling
    assert scaling is not None
    controller, counts = Controller(), []
    for load in looks:
        assert load.num_replicas == controller.num_replicas
        controller.sync(load.now_s, load.num_running)
        counts.append(controller.num_replicas)
    changes = [(before, after) for before, after in zip([1, *counts], counts, strict=False) if before != after]
    assert changes == [(event.before, event.after) for event in scaling.events] != []
    assert max(counts) >= 4 > counts[-1]
