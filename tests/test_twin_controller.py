"""A controller that follows Kubernetes' rules on the twin's metrics decides as the planner's simulated autoscaler.

The twin's number of replicas does not change while it runs. So its series are recorded with a number that stays, and
both decide on them. A replay with the autoscaler closes the loop.
"""

import contextlib
import math
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from test_prometheus import free_port
from test_twin import MODEL, serving

from planner.deployment.autoscale import Autoscale, read_autoscale
from planner.deployment.recommendation import Timed, recommend, wanted_by
from planner.policies.autoscaler import FleetLoad
from planner.replays.fleet.scaler import Scaler
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.twin.server import ServeOptions

TARGET, MOST = 5.0, 8
SPEED = 30.0  # a second of the wall clock is half a minute of the deployment
SYNC_S = 15.0
RUSH = 16  # requests in flight, of clients that have 24
QUERY = "sum(vllm:num_requests_running)"
HPA: dict[str, Any] = {
    "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "llm", "annotations": {"planner/rules": '{"startup": {"warmup_s": 20}}'}},
    "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "llm"}, "minReplicas": 1, "maxReplicas": MOST,
             "metrics": [{"type": "Pods", "pods": {"metric": {"name": "vllm:num_requests_running"},
                                                   "target": {"type": "AverageValue", "averageValue": "5"}}}]}}


class Controller:
    """The defaults of Kubernetes' HorizontalPodAutoscaler, written from its documentation alone."""

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
        self._past = [(at_s, number) for at_s, number in self._past if at_s > now_s - 300.0] + [(now_s, wanted)]
        steady = max(wanted, min(count, max(number for _, number in self._past)))  # shrinks to the most of 5 minutes
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


def until_scraped(address: str) -> None:
    """Wait until Prometheus has a value of the twin."""
    for _ in range(200):
        with contextlib.suppress(httpx.TransportError, KeyError):
            if httpx.get(f"http://{address}/api/v1/query", params={"query": QUERY}).json()["data"]["result"]:
                return
        time.sleep(0.1)
    raise AssertionError("Prometheus has read nothing in 20 s")


def send_waves(url: str) -> None:
    """Send a quiet time, a rush and a quiet time: so many requests in flight, for so long [s]."""
    for num_clients, for_s in ((2, 2.0), (24, 4.0), (2, 13.0)):
        end_s = time.monotonic() + for_s

        def ask(end_s: float = end_s) -> None:
            with httpx.Client(timeout=60) as client:
                while time.monotonic() < end_s:
                    client.post(url + "/v1/completions", json={"prompt": "x" * 400, "max_tokens": 1500,
                                                               "ignore_eos": True})

        clients = [threading.Thread(target=ask) for _ in range(num_clients)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()


@pytest.mark.slow
def test_an_hpa_on_the_scraped_twin_decides_as_the_simulated_one(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("no prometheus is installed: apt-get install prometheus")
    address = f"127.0.0.1:{free_port()}"
    with serving(ServeOptions(models=(MODEL,), speed=SPEED), stream_interval=100) as twin:
        target = twin.url.removeprefix("http://")
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
            "scrape_configs": [{"job_name": "twin", "static_configs": [{"targets": [target]}]}]}))
        with (tmp_path / "log").open("w") as log, subprocess.Popen(
                ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                 f"--web.listen-address={address}"], cwd=tmp_path, stdout=log, stderr=log) as server:
            try:
                until_scraped(address)
                for _ in range(4):  # a busy machine may not scrape in the rush
                    begin_s = time.time()
                    send_waves(twin.url)
                    answer = httpx.get(f"http://{address}/api/v1/query_range", timeout=30, params={
                        "query": QUERY, "start": begin_s, "end": time.time(), "step": "500ms"})
                    rows = answer.json()["data"]["result"][0]["values"]
                    series = [(k * SYNC_S, float(value)) for k, (_, value) in enumerate(rows)]
                    if sum(value >= RUSH for _, value in series) >= 4:
                        break
            finally:
                server.terminate()
                server.wait(20)
    assert len(series) > 25
    controller = Controller()
    decided = [controller.sync(now_s, total) for now_s, total in series]
    assert decided == simulated(read_autoscale(read_hpa(tmp_path)), series)
    assert max(decided) >= 4 > decided[-1]  # it grew in the rush, and shrank 5 minutes after it


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
    scenario = Scenario(model=MODEL, gpu="h100-sxm", router="least-outstanding-requests",
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
