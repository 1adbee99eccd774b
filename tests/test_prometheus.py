"""Traffic by metrics: from a real Prometheus, which scrapes an exporter or holds a replayed trace, and from files."""

import http.server
import json
import math
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from command_line import H100, fails, planner
from exporter import TOKENS, open_metrics, served

from planner.engines import ENGINES, METRICS
from planner.engines.dynamo_metrics import DYNAMO
from planner.engines.package import Metrics
from planner.measured.counted_traffic import CountedLengths, CountedTraffic
from planner.measured.drawn_traffic import law_of, model_of_traffic
from planner.measured.traffic_files import read_traffic
from planner.planning.closeness import replayed_capacity
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.traces.shaping.rate_series import read_rate_series
from planner.traces.synthesis.generate import generate

START_S = 1_700_000_000
SCENARIO = Scenario(model="llama-3.1-8b", gpu="h100-sxm")
LINEAR = Scenario(step_time="linear:0.01,0.00001", num_gpu_blocks=100_000)
VLLM = ENGINES["vllm"].metrics
assert VLLM is not None
LIVE = """global: {{scrape_interval: 1s}}
scrape_configs: [{{job_name: live, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""


def mean(values: pl.Series) -> float:
    return float(values.to_numpy().mean())


def free_port() -> int:
    with socket.socket() as here:
        here.bind(("127.0.0.1", 0))
        return int(here.getsockname()[1])


@pytest.fixture(scope="module")
def requests() -> pl.DataFrame:
    return served(read_trace("rag"), replace(SCENARIO, request_rate=3.0))


class Exporter(http.server.BaseHTTPRequestHandler):
    """A server of vLLM's metrics that finishes 20 requests a second, each of 100 and 10 tokens."""

    began = time.monotonic()
    num_scrapes = 0

    def do_GET(self) -> None:
        Exporter.num_scrapes += 1
        count = int(20 * (time.monotonic() - self.began))
        lines = [f'vllm:request_{side}_tokens_{part}{{model_name="live"{label}}} {value * count}'
                 for side, tokens in (("prompt", 100), ("generation", 10))
                 for part, label, value in (("bucket", ',le="5.0"', 0), ("bucket", ',le="200.0"', 1),
                                            ("bucket", ',le="+Inf"', 1), ("sum", "", tokens), ("count", "", 1))]
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(("\n".join(lines) + "\n").encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


class Quiet(http.server.ThreadingHTTPServer):
    """A server that does not write of clients that leave."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing."""


def until_ready(address: str) -> None:
    """Wait until a Prometheus that has been started answers queries; before, it answers 503."""
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("Prometheus was not ready within 30 s")


@pytest.fixture(scope="module")
def prometheus(requests: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a Prometheus that holds the requests of two pods, scraped every 15 s, and scrapes the exporter."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("no prometheus is installed: apt-get install prometheus")
    assert VLLM is not None
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "past.txt").write_text(open_metrics(requests, VLLM, start_s=START_S, every_s=15.0, num_pods=2))
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", "past.txt", "data"], cwd=folder,
                   check=True, capture_output=True)
    exporter = Quiet(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    (folder / "prometheus.yml").write_text(LIVE.format(port=exporter.server_port))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                                   "--storage.tsdb.retention.time=100y", f"--web.listen-address={address}"],
                                  cwd=folder, stdout=log, stderr=log)
        try:
            until_ready(address)
            yield f"http://{address}"
        finally:
            server.terminate()
            server.wait(20)
            exporter.shutdown()
            exporter.server_close()


def range_of(requests: pl.DataFrame, step_s: float = 15.0) -> tuple[object, ...]:
    last_s = math.ceil(float(requests["end_s"].to_numpy().max()) / step_s) * step_s
    return "--start", START_S, "--end", START_S + last_s, "--step", f"{step_s:g}s"


def test_a_trace_comes_back_from_prometheus_with_its_capacity(prometheus: str, requests: pl.DataFrame,
                                                              tmp_path: Path) -> None:
    """Capacity within 10 %, the count of requests and mean lengths nearly exact, after two pods and a real server."""
    run = planner("trace", "from-prometheus", prometheus, *range_of(requests), "--output", tmp_path / "drawn.jsonl",
                  "--json", tmp_path / "traffic.json")
    assert run.returncode == 0, run.stderr
    traffic = json.loads((tmp_path / "traffic.json").read_text())
    drawn, recorded = read_trace(str(tmp_path / "drawn.jsonl")), read_trace("rag")
    assert (traffic["metrics"], traffic["model_name"], traffic["scrape_interval_s"]) == ("vllm", "demo", 15.0)
    assert drawn.num_requests == pytest.approx(requests.height, abs=2)
    for name in ("input_tokens", "output_tokens"):
        assert mean(drawn.requests[name]) == pytest.approx(mean(requests[name]), rel=0.005)
    hits = mean(requests["num_cached_tokens"]) / mean(requests["input_tokens"])
    assert traffic["cached_share"] == pytest.approx(hits, abs=0.001)
    assert traffic["latencies"]["ttft"]["mean_ms"] == pytest.approx(1e3 * mean(requests["ttft_s"]), rel=0.001)
    objectives = parse_objectives("ttft:1000 tpot:50", 0.99)
    wanted, capacity = (replayed_capacity(trace, SCENARIO, objectives) for trace in (recorded, drawn))
    assert capacity == pytest.approx(wanted, rel=0.1)


def test_arrivals_are_those_of_the_clients_and_not_the_ends(prometheus: str, requests: pl.DataFrame,
                                                            tmp_path: Path) -> None:
    planner("trace", "from-prometheus", prometheus, *range_of(requests), "--rates", tmp_path / "rates.csv")
    series = read_rate_series(tmp_path / "rates.csv")
    edges_s = np.append(series.start_s, series.start_s[-1] + series.duration_s[-1]) - START_S
    arrived = np.histogram(requests["arrival_s"], edges_s)[0]
    assert np.abs(series.rate_rps * series.duration_s - arrived).max() < 1.5


def test_a_range_of_more_points_than_an_answer_may_have(prometheus: str, requests: pl.DataFrame) -> None:
    end_s = START_S + 12_500
    run = planner("trace", "from-prometheus", prometheus, "--start", START_S, "--end", end_s, "--step", "1s",
                  "--json", "-")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["num_requests"] == pytest.approx(requests.height, abs=2)


def wait_for_scrapes(number: int) -> None:
    """Wait until the server has scraped the exporter so often: it begins some seconds after its start."""
    deadline = time.monotonic() + 60
    while Exporter.num_scrapes < number:
        assert time.monotonic() < deadline, "the server does not scrape"
        time.sleep(0.1)


def test_a_live_server_is_read_while_it_is_scraped(prometheus: str) -> None:
    """20 requests a second, scraped every second, over the last six seconds."""
    wait_for_scrapes(9)
    run = planner("trace", "from-prometheus", prometheus, "--start", "-6s", "--step", "1s", "--json", "-")
    assert run.returncode == 0, run.stderr
    traffic = json.loads(run.stdout)
    assert traffic["request_rate"] == pytest.approx(20, rel=0.25)
    assert (traffic["model_name"], traffic["scrape_interval_s"]) == ("live", pytest.approx(1.0, abs=0.1))
    assert traffic["counts_ends"]
    assert traffic["mean_input_tokens"] == pytest.approx(100)


def test_errors_of_a_server_name_the_remedy(prometheus: str) -> None:
    wait_for_scrapes(2)
    place = ("trace", "from-prometheus", prometheus)
    fails(planner(*place), 2, "--start", "as in --start -24h")
    fails(planner(*place, "--start", "-1h", "--match", 'job="other"'), 3, "has none of the counters",
          "its jobs are live")
    fails(planner(*place, "--start", START_S, "--end", START_S + 900, "--model-name", "x"), 3, "it has demo")
    fails(planner(*place, "--start", START_S, "--end", START_S + 900, "--match", "job"), 3, "status 400", "parse error")
    fails(planner(*place, "--start", "-1h", "--end", "yesterday"), 2, "--end yesterday", "must be a date")
    fails(planner(*place, "--start", "-1h", "--step", "2h"), 2, "--step 2h", "within the range")
    fails(planner("trace", "from-prometheus", f"{prometheus}/other", "--start", "-1h"), 3, "status 404",
          "the address before /api/v1")
    fails(planner("trace", "from-prometheus", f"http://127.0.0.1:{free_port()}", "--start", "-1h"), 3,
          "cannot be reached", "refused")


def test_credentials_are_sent_and_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of the environment, a name and password of the address, and a header; without them, status 401."""
    seen: list[Any] = []

    class Guarded(Exporter):
        def do_GET(self) -> None:
            seen.append((self.headers.get("Authorization"), self.headers.get("X-Scope-OrgID")))
            self.send_response(401)
            self.end_headers()

    guarded = Quiet(("127.0.0.1", 0), Guarded)
    threading.Thread(target=guarded.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{guarded.server_port}"
    try:
        monkeypatch.setenv("PROMETHEUS_TOKEN", "secret")
        run = planner("trace", "from-prometheus", f"http://{address}", "--start", "-1h",
                      "--header", "X-Scope-OrgID: team")
        fails(run, 3, "status 401", "$PROMETHEUS_TOKEN")
        run = planner("trace", "from-prometheus", f"http://ann:pass%40word@{address}", "--start", "-1h")
        fails(run, 3, f"http://{address}: refuses with status 401")
        assert "pass" not in run.stderr.replace("NAME:PASSWORD", "")
        fails(planner("trace", "from-prometheus", f"http://{address}", "--start", "-1h", "--header", "no colon"), 2,
              "--header no colon", "NAME: VALUE")
    finally:
        guarded.shutdown()
        guarded.server_close()
    assert seen == [("Bearer secret", "team"), ("Basic YW5uOnBhc3NAd29yZA==", None)]


def of_file(path: Path, **options: Any) -> CountedTraffic:
    return read_traffic(str(path), {}, **({"model_name": None, "lengths": None, "request_rate": None} | options))


@pytest.fixture(scope="module")
def few() -> pl.DataFrame:
    return served(read_trace("chat").part(0, 600), LINEAR)


@pytest.mark.parametrize("metrics", METRICS, ids=lambda metrics: metrics.prefix)
def test_each_engines_metrics_are_read(metrics: Metrics, few: pl.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "metrics.txt").write_text(open_metrics(few, metrics, start_s=START_S, every_s=10.0))
    traffic = of_file(tmp_path / "metrics.txt")
    assert (traffic.engine, traffic.source) == (metrics.prefix, str(tmp_path / "metrics.txt"))
    assert traffic.requests.sum() == pytest.approx(few.height, abs=2)
    for side in ("input", "output"):
        assert traffic.lengths[side].mean == pytest.approx(mean(few[f"{side}_tokens"]), rel=0.005)
        assert bool(len(traffic.lengths[side].edges)) == (side in metrics.histograms)
    assert traffic.latencies["ttft"].mean == pytest.approx(mean(few["ttft_s"]), rel=0.01)
    assert traffic.gauges.keys() >= {"running", *(["waiting"] if metrics.waiting else [])}
    assert traffic.counts_ends is not bool(metrics.waiting)  # else the change of waiting requests is added
    assert traffic.cached is not None


def test_restarts_and_pods_lose_nothing(few: pl.DataFrame, tmp_path: Path) -> None:
    """Requests between the last scrape before a restart and the restart are all that can be lost."""
    assert VLLM is not None
    (tmp_path / "metrics.txt").write_text(open_metrics(few, VLLM, start_s=START_S, every_s=5.0, num_pods=3,
                                                       restart_s=50.0))
    traffic = of_file(tmp_path / "metrics.txt")
    assert traffic.requests.sum() == pytest.approx(few.height, abs=3)
    assert any("3 counters of requests started anew" in note for note in traffic.notes)


def test_a_frontend_counts_and_its_workers_do_not(few: pl.DataFrame, tmp_path: Path) -> None:
    texts = [open_metrics(few, metrics, start_s=START_S, every_s=10.0) for metrics in (DYNAMO, VLLM) if metrics]
    (tmp_path / "both.txt").write_text("".join(text.replace("# EOF\n", "") for text in texts) + "# EOF\n")
    assert of_file(tmp_path / "both.txt").engine == "dynamo_frontend"


SAMPLES = {
    "wide": np.random.default_rng(1).lognormal(6.5, 1.0, 5000).round() + 1, "one length": np.full(400, 1000.0),
    "two lengths": np.repeat([12.0, 4000.0], 300), "all short": np.ones(500),
    "beyond the last edge": np.random.default_rng(2).uniform(4e5, 2e6, 1000)}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_law_keeps_the_mean_and_the_buckets(name: str) -> None:
    values = SAMPLES[name]
    edges = np.array([*TOKENS, math.inf])
    counts = np.histogram(values, [-math.inf, *np.nextafter(edges, math.inf)])[0].astype(float)
    lengths = CountedLengths(edges=edges, counts=counts[None], num=np.array([float(len(values))]),
                             sums=np.array([values.sum()]))
    law = law_of(lengths, slice(0, 1))
    drawn = law(np.linspace(0.0, 1.0, 200_001))
    assert drawn.mean() == pytest.approx(values.mean(), rel=0.003)
    shares = np.histogram(drawn, [-math.inf, *np.nextafter(edges, math.inf)])[0] / len(drawn)
    assert shares == pytest.approx(counts / len(values), abs=0.002)


def test_assumptions_change_the_draw_and_not_the_metrics(few: pl.DataFrame, tmp_path: Path) -> None:
    """Even and bursty gaps, and both correlations, with the counts and the means of the record."""
    assert VLLM is not None
    (tmp_path / "metrics.txt").write_text(open_metrics(few, VLLM, start_s=START_S, every_s=10.0))
    traffic = of_file(tmp_path / "metrics.txt")

    def drawn(gap_cv: float, correlation: float) -> pl.DataFrame:
        return generate(model_of_traffic(traffic, gap_cv=gap_cv, correlation=correlation, seed=1), seed=None).requests

    even, plain, bursty = (drawn(gap_cv, 0.0) for gap_cv in (0.0, 1.0, 3.0))
    spread = [float(np.std(gaps) / np.mean(gaps)) for part in (even, plain, bursty)
              for gaps in [np.diff(part["arrival_s"].to_numpy())]]
    assert spread[0] < 0.6 < 0.85 < spread[1] < 1.2 < 1.8 < spread[2]
    along, against = (drawn(1.0, correlation) for correlation in (1.0, -1.0))
    assert float(np.corrcoef(along["input_tokens"], along["output_tokens"])[0, 1]) > 0.6
    assert float(np.corrcoef(against["input_tokens"], against["output_tokens"])[0, 1]) < -0.3
    for part in (even, bursty, along, against):
        assert part.height == pytest.approx(few.height, abs=2)
        assert mean(part["input_tokens"]) == pytest.approx(mean(few["input_tokens"]), rel=0.01)
    assert drawn(1.0, 0.0).equals(plain)


def test_files_of_rates_with_lengths_of_a_scrape(few: pl.DataFrame, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """A saved rate() of query_range, Grafana's CSV and one scrape without times."""
    assert VLLM is not None
    monkeypatch.chdir(tmp_path)
    scrape = [line.rsplit(" ", 1)[0] for line in open_metrics(few, VLLM, start_s=START_S, every_s=10.0).splitlines()
              if line.endswith(f" {START_S + 10 * int(few['end_s'].to_numpy().max() / 10 + 1):.3f}")]
    Path("metrics.prom").write_text("\n".join(scrape) + "\n")
    Path("rates.json").write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [
        {"metric": {}, "values": [[START_S, "2"], [START_S + 60, "4"], [START_S + 120, "3"]]}]}}))
    Path("grafana.csv").write_text('"Time","Value"\n"2026-11-01 10:00:00",2\n"2026-11-01 10:01:00",4\n'
                                   '"2026-11-01 10:02:00",3\n')
    for source in ("rates.json", "grafana.csv"):
        run = planner("trace", "from-prometheus", source, "--lengths", "metrics.prom", "--output", "drawn.csv")
        assert run.returncode == 0, run.stderr
        drawn = pl.read_csv("drawn.csv")
        assert drawn.height == pytest.approx(540, abs=1)
        assert mean(drawn["input_tokens"]) == pytest.approx(mean(few["input_tokens"]), rel=0.01)
        fails(planner("trace", "from-prometheus", source, "--output", "drawn.csv"), 3, "has no lengths of prompts",
              "--lengths")
    Path("prompts.prom").write_text("\n".join(line for line in scrape if "generation" not in line) + "\n")
    fails(planner("trace", "from-prometheus", "rates.json", "--lengths", "prompts.prom", "--output", "drawn.csv"), 3,
          "prompts.prom: has no lengths of outputs")
    fails(planner("trace", "from-prometheus", "metrics.prom"), 2, "has no times", "--request-rate")
    run = planner("trace", "from-prometheus", "metrics.prom", "--request-rate", 2, "--json", "-")
    assert json.loads(run.stdout)["duration_s"] == pytest.approx(300, rel=0.01)


def test_sources_that_need_a_choice(few: pl.DataFrame, tmp_path: Path) -> None:
    assert VLLM is not None
    text = open_metrics(few, VLLM, start_s=START_S, every_s=10.0).replace("# EOF\n", "")
    path = tmp_path / "metrics.txt"
    place = ("trace", "from-prometheus", path)
    path.write_text(text + text.replace('"demo"', '"other"') + "# EOF\n")
    fails(planner(*place), 2, "has the models demo, other", "--model-name")
    assert planner(*place, "--model-name", "other").returncode == 0
    path.write_text(text.replace('"demo"', '"demo",engine_type="prefill"') +
                    text.replace('"demo"', '"demo",engine_type="decode"') + "# EOF\n")
    fails(planner(*place), 2, "engine_type decode, prefill", "each of them counts a request")
    path.write_text(text + text.replace("vllm:", "sglang:num_requests_total_not_") +
                    f'sglang:num_requests_total{{model_name="demo"}} 3 {START_S}\n# EOF\n')
    fails(planner(*place), 2, "has series of vllm, sglang", "--match")
    path.write_text(f'vllm:num_requests_running{{model_name="demo"}} 3 {START_S}\n# EOF\n')
    fails(planner(*place), 3, "has none of the counters vllm:request_success_total", "vllm:num_requests_running")
    fails(planner(*place, "--gap-cv", 1, "--slo", "ttft:500"), 2, "capacities need --slo and a deployment")


def test_capacities_say_how_far_the_unknown_moves_the_answer(few: pl.DataFrame, tmp_path: Path) -> None:
    assert ENGINES["trtllm"].metrics is not None
    (tmp_path / "metrics.txt").write_text(open_metrics(few, ENGINES["trtllm"].metrics, start_s=START_S, every_s=30.0))
    run = planner("trace", "from-prometheus", tmp_path / "metrics.txt", *H100, "--slo", "ttft:1000 tpot:50", "--save",
                  tmp_path / "model.toml", "--json", tmp_path / "traffic.json")
    assert run.returncode == 0, run.stderr
    assert "capacity with the same metrics" in run.stdout
    assert "the spread of input lengths, which has no histogram" in run.stdout
    capacities = json.loads((tmp_path / "traffic.json").read_text())["capacities"]
    assert capacities["even arrivals in each window"] > capacities["as drawn"] > capacities[
        "exponential lengths of prompts and outputs"]
    run = planner("trace", "synth", tmp_path / "model.toml", "--grow", 2, "--output", tmp_path / "twice.csv")
    assert run.returncode == 0, run.stderr
