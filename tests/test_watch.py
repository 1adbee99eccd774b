"""A watched plan: a simulated week of drift, a real Prometheus, a server's own metrics, and the files beside it."""

import http.server
import json
import re
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from command_line import H100, fails, planner
from exporter import open_metrics, served
from helpers import num_drawn
from test_prometheus import (
    SCENARIO,
    START_S,
    VLLM,
    Quiet,
    free_port,
    prometheus,  # noqa: F401
    range_of,
    requests,  # noqa: F401
    wait_for_scrapes,
)

from planner.measured.watched_metrics import recorded
from planner.planning.prediction_error import hurried
from planner.planning.study import Study, command_line, parse_command
from planner.planning.watch_answer import CAUSES, Drift, WatchAnswer
from planner.planning.watched_plan import Plan, read_plan
from planner.planning.watching import DriftLimits, watched
from planner.report.answer_schemas import answer_schema
from planner.report.watch_files import DRIFT, ENDED, MEASURED, PREDICTED, REPLICAS
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace

DAY_S = 86_400.0
MONDAY_S = 1_794_182_400  # 2026-11-09
WEDNESDAY, FRIDAY = "2026-11-11", "2026-11-13"
RATE_RPS = 0.03
INTERVAL_S = 6 * 3600.0
LONGER, SLOWER = 1.3, 1.2
LIMITS = DriftLimits(tolerance=0.15, server_tolerance=None, confirm=3)
SLO = ("--slo", "ttft:500 tpot:50", "--attainment", 0.99)
TIMES = ("arrival_s", "ttft_s", "tpot_s", "e2e_s", "end_s")


def drawn(path: Path, seed: int, days: float, longer_from_s: float = 1e9) -> Trace:
    """Write and read a Poisson trace with lognormal lengths, which are longer from an instant on."""
    rng = np.random.default_rng(seed)
    num = rng.poisson(RATE_RPS * days * DAY_S)
    arrival_s = np.sort(rng.uniform(0.0, days * DAY_S, num))
    factor = np.where(arrival_s >= longer_from_s, LONGER, 1.0)
    pl.DataFrame({"arrival_s": arrival_s,
                  "input_tokens": np.maximum(rng.lognormal(6.5, 0.7, num) * factor, 1).astype(int),
                  "output_tokens": np.maximum(rng.lognormal(5.0, 0.7, num) * factor, 2).astype(int)}).write_csv(path)
    return read_trace(str(path))


def week(folder: Path, seed: int, *, drifts: bool = True) -> Path:
    """Write the metrics of a week: lengths +30 % from Wednesday, steps 1.2 times as long from Friday."""
    assert VLLM is not None
    trace = drawn(folder / f"week{seed}.csv", seed, 7, 2 * DAY_S if drifts else 1e9)
    done = served(trace, SCENARIO)
    if drifts:
        slow = served(hurried(trace, SLOWER), SCENARIO).with_columns([pl.col(name) * SLOWER for name in TIMES])
        done = pl.concat([done.filter(pl.col("arrival_s") < 4 * DAY_S), slow.filter(pl.col("arrival_s") >= 4 * DAY_S)])
    path = folder / f"week{seed}.txt"
    path.write_text(open_metrics(done, VLLM, start_s=MONDAY_S, every_s=INTERVAL_S))
    return path


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the saved plan of a day of the same traffic."""
    folder = tmp_path_factory.mktemp("plan")
    drawn(folder / "day.csv", 999, 1)
    run = planner("capacity", folder / "day.csv", *H100, *SLO, "--quick", "--json", folder / "capacity.json")
    assert run.returncode == 0, run.stderr
    run = planner("replay", folder / "day.csv", *H100, *SLO, "--json", folder / "plan.json")
    assert run.returncode == 0, run.stderr
    return folder / "plan.json"


def answers_of(plan: Plan, path: Path, interval_s: float = INTERVAL_S) -> list[WatchAnswer]:
    answers: list[WatchAnswer] = []
    for source in recorded(str(path), interval_s, {}):
        answers.append(watched(plan, source, None, LIMITS, answers))
    return answers


def confirmed(answers: list[WatchAnswer]) -> dict[str, Drift]:
    """Return the first drift of each cause."""
    drifts: dict[str, Drift] = {}
    for drift in (drift for answer in answers for drift in answer.drifts):
        drifts.setdefault(drift.cause, drift)
    return drifts


def test_a_week_of_drift_is_told_by_the_command(day: Path, tmp_path: Path) -> None:
    """Day and cause, the exit code, and lines of JSON that keep their schema."""
    run = planner("watch", day, "--url", week(tmp_path, 0), "--interval", INTERVAL_S, "--json-lines",
                  tmp_path / "lines.json")
    assert run.returncode == 1, run.stderr
    assert f"traffic drift since {WEDNESDAY}T00:00:00Z: mean_input_tokens is " in run.stdout
    assert f"traffic drift since {WEDNESDAY}T00:00:00Z: mean_output_tokens is " in run.stdout
    assert f"server drift since {FRIDAY}T00:00:00Z: mean_tpot_ms is " in run.stdout
    assert "the plan still keeps the objectives with 1 replica, at 0.03" in run.stdout
    lines = [json.loads(line) for line in (tmp_path / "lines.json").read_text().splitlines()]
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed; pip install '.[dev]'")
    for line in lines:
        jsonschema.Draft202012Validator(answer_schema("watch")).validate(line)
    assert [line["holds"] for line in lines[:10]] == [True] * 10
    tpot = next(row for row in lines[-3]["quantities"] if row["name"] == "mean_tpot_ms")
    assert tpot["measured"] / tpot["predicted"] == pytest.approx(SLOWER, rel=0.01)


def test_weeks_of_drift(day: Path, tmp_path: Path) -> None:
    """`watch` names Wednesday's traffic and Friday's server in every week, with at most one false alarm in fifty."""
    plan, false_alarms, num_weeks = read_plan(day), [], num_drawn(10, 50)
    for seed in range(num_weeks):
        drifts = confirmed(answers_of(plan, week(tmp_path, seed)))
        expected = {"traffic": WEDNESDAY, "server": FRIDAY}
        false_alarms += [drift for cause, drift in drifts.items() if drift.since < expected.get(cause, "9")]
        named = {cause: drifts[cause].since[:10] if cause in drifts else None for cause in expected}
        if named != expected:
            assert any(drift in false_alarms for drift in drifts.values()), (seed, named)
    assert len(false_alarms) <= num_weeks / 50, false_alarms


def test_a_week_without_drift_and_plans_of_other_commands(day: Path, tmp_path: Path) -> None:
    """A capacity is a plan too: a lower rate is no drift, and so is a replay's folder."""
    path = week(tmp_path, 1, drifts=False)
    for plan in (day, day.parent / "capacity.json"):
        run = planner("watch", plan, "--url", path, "--interval", INTERVAL_S)
        assert run.returncode == 0, run.stdout
        assert "no confirmed drift" in run.stdout
    planner("replay", day.parent / "day.csv", *H100, *SLO, "--save", tmp_path / "saved")
    run = planner("watch", tmp_path / "saved", "--url", path, "--interval", INTERVAL_S, "--json-lines", "-")
    assert run.returncode == 0
    assert all(json.loads(line)["holds"] for line in run.stdout.splitlines())


@pytest.fixture(scope="module")
def rag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the saved plan of the traffic that the Prometheus server holds."""
    path = tmp_path_factory.mktemp("rag") / "rag.json"
    assert planner("replay", "rag", *H100, "--request-rate", 3, *SLO, "--json", path).returncode in (0, 1)
    return path


def test_a_plan_beside_a_real_prometheus(prometheus: str, requests: pl.DataFrame, rag: Path,  # noqa: F811
                                         tmp_path: Path) -> None:
    """Two pods are another deployment than the plan's one replica; traffic and times are the plan's."""
    place = range_of(requests, 300.0)[:4]
    run = planner("watch", rag, "--url", prometheus, *place, "--interval", 300, "--confirm", 2, "--json-lines",
                  tmp_path / "lines.json")
    assert run.returncode == 1, run.stderr
    lines = [json.loads(line) for line in (tmp_path / "lines.json").read_text().splitlines()]
    assert {(drift["cause"], drift["name"]) for line in lines for drift in line["drifts"]} == {("plan", "num_replicas")}
    row = {each["name"]: each for each in lines[1]["quantities"]}
    assert row["mean_ttft_ms"]["measured"] == pytest.approx(row["mean_ttft_ms"]["predicted"], rel=0.15)
    assert row["mean_tpot_ms"]["measured"] == pytest.approx(row["mean_tpot_ms"]["predicted"], rel=0.05)
    assert row["running"]["measured"] > 0
    fails(planner("watch", rag, "--url", prometheus, *place, "--interval", 90_000), 2, "--step 90000", "within the")
    run = planner("watch", rag, "--url", prometheus, "--once", "--match", 'job="other"')  # each interval has a line
    assert (run.returncode, run.stdout.split("  ")[-1]) == (3, "not judged\n")
    assert "has none of the counters" in run.stderr.strip().splitlines()[-1]
    fails(planner("watch", rag, "--url", f"http://127.0.0.1:{free_port()}"), 3, "cannot be reached")


def test_a_live_prometheus_is_watched(prometheus: str, rag: Path, tmp_path: Path) -> None:  # noqa: F811
    """20 requests a second of 100 and 10 tokens are other traffic than the plan's."""
    wait_for_scrapes(6)
    for k in range(5):  # a busy machine may not scrape in an interval, which then is not judged
        path = tmp_path / f"lines{k}.json"
        run = planner("watch", rag, "--url", prometheus, "--interval", 3, "--for", 6, "--confirm", 2, "--json-lines",
                      path)
        if run.returncode == 1:
            break
    assert run.returncode == 1, run.stderr
    last = json.loads(path.read_text().splitlines()[-1])
    assert {(drift["name"], drift["direction"]) for drift in last["drifts"]} == {
        ("request_rate", 1), ("mean_input_tokens", -1), ("mean_output_tokens", -1)}
    assert last["replan"]["num_replicas"] == 1


class Replayed(http.server.BaseHTTPRequestHandler):
    """A server of its own metrics, which replays recorded ones from its first scrape on."""

    began: float | None = None
    by_tenth: dict[int, list[str]]

    def do_GET(self) -> None:
        if self.path == "/version":
            text = '{"version": "0.0.1"}'
        else:
            Replayed.began = Replayed.began or time.monotonic()
            text = "\n".join(self.by_tenth[int(10 * (time.monotonic() - Replayed.began))]) + "\n"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


@pytest.fixture
def own_metrics(tmp_path: Path) -> Iterator[str]:
    """Serve the metrics of 30 requests a second, of two replicas' times."""
    assert VLLM is not None
    trace = read_trace("chat")
    done = served(trace, replace(SCENARIO, request_rate=10.0, limit=400))
    Replayed.began, Replayed.by_tenth = None, {}
    for line in open_metrics(done, VLLM, start_s=0, every_s=0.1).splitlines():
        if not line.startswith("#"):
            text, at_s = line.rsplit(" ", 1)
            Replayed.by_tenth.setdefault(round(10 * float(at_s)), []).append(text)
    server = Quiet(("127.0.0.1", 0), Replayed)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()


def test_a_servers_own_metrics_and_the_watchs(own_metrics: str, tmp_path: Path) -> None:
    """Two scrapes make an interval; the watch's own metrics have its last values."""
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed; pip install '.[watch]'")
    planner("replay", "chat", *H100, "--request-rate", 10, "--limit", 400, "--engine-version", "0.11.0", *SLO, "--json",
            tmp_path / "plan.json")
    port, seen = free_port(), [""]

    def scrape() -> None:
        while "planner_watch_interval_end" not in seen[-1] or MEASURED + "{" not in seen[-1]:
            time.sleep(0.2)
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    seen.append(answer.read().decode())
            except OSError:
                continue

    scraper = threading.Thread(target=scrape, daemon=True)
    scraper.start()
    run = planner("watch", tmp_path / "plan.json", "--url", own_metrics, "--interval", 6, "--for", 12, "--confirm", 2,
                  "--tolerance", 1, "--metrics-port", port, "--json-lines", tmp_path / "lines.json")
    scraper.join(10)
    lines = [json.loads(line) for line in (tmp_path / "lines.json").read_text().splitlines()]
    assert len(lines) == 2
    rates = [row["measured"] for line in lines for row in line["quantities"] if row["name"] == "request_rate"]
    assert np.mean(rates) == pytest.approx(10, rel=0.3)
    assert lines[1]["differences"] == [{"name": "engine_version", "planned": "0.11.0", "measured": "0.0.1"}]
    assert "plan drift since" in run.stdout
    assert f'{MEASURED}{{quantity="request_rate"}}' in seen[-1]
    assert f'{REPLICAS}{{of="plan"}} 1.0' in seen[-1]


def test_growth_is_planned_again(tmp_path: Path) -> None:
    """Twice the plan's rate on one replica: traffic drift, missed objectives, and the number that keeps them."""
    assert VLLM is not None
    assert planner("replay", "chat", *H100, "--request-rate", 8, *SLO, "--json", tmp_path / "plan.json").returncode == 0
    done = served(read_trace("chat"), replace(SCENARIO, request_rate=18.0, limit=10_000))
    (tmp_path / "metrics.txt").write_text(open_metrics(done, VLLM, start_s=START_S, every_s=60.0))
    run = planner("watch", tmp_path / "plan.json", "--url", tmp_path / "metrics.txt", "--interval", 120)
    assert run.returncode == 1
    assert "traffic drift since 2023-11-14T22:13:20Z: request_rate is " in run.stdout
    assert "objective drift since 2023-11-14T22:13:20Z: p99_tpot_ms is " in run.stdout
    assert re.search(r"re-plan now: [2-3] replicas instead of 1, at 1\d\.\d+/s", run.stdout), run.stdout
    assert "server drift" not in run.stdout


def test_facts_of_another_deployment(day: Path, tmp_path: Path) -> None:
    """The model, the block size and the seats by labels and gauges; equal facts are no difference."""
    path = week(tmp_path, 2, drifts=False)
    text = path.read_text().replace("# EOF\n", "")
    info = "".join(f'vllm:cache_config_info{{block_size="32",gpu_memory_utilization="0.92",num_gpu_blocks="28000",'
                   f'enable_prefix_caching="True"}} 1 {MONDAY_S + k * INTERVAL_S}\n' for k in range(29))
    path.write_text(text.replace('"demo"', '"meta-llama/Llama-3.1-70B-Instruct"') + info + "# EOF\n")
    answers = answers_of(read_plan(day), path)
    assert {(each.name, each.planned, each.measured) for each in answers[3].differences} == {
        ("model", "llama-3.1-8b", "meta-llama/Llama-3.1-70B-Instruct"), ("block_size", "16", "32")}
    assert {drift.cause for drift in answers[3].drifts} == {"plan"}
    path.write_text(text.replace("vllm:", "sglang:").replace("sglang:num_requests_running", "sglang:num_running_reqs")
                    .replace("sglang:request_success", "sglang:num_requests") + "# EOF\n")
    assert [each.name for each in answers_of(read_plan(day), path)[0].differences] == ["engine"]


def test_intervals_with_few_requests_and_without_any_are_not_judged(day: Path, tmp_path: Path) -> None:
    assert VLLM is not None
    done = served(drawn(tmp_path / "few.csv", 3, 0.02), SCENARIO)
    (tmp_path / "few.txt").write_text(open_metrics(done, VLLM, start_s=MONDAY_S, every_s=60.0))
    answers = answers_of(read_plan(day), tmp_path / "few.txt", 60.0)
    assert not any(quantity.cause for answer in answers for quantity in answer.quantities)
    assert any("are not judged" in note for answer in answers for note in answer.notes)
    assert any("no finished request" in note for answer in answers for note in answer.notes)


def test_rules_and_dashboard(day: Path, tmp_path: Path) -> None:
    """Prometheus takes the rules, and both files name only series that the watch serves."""
    run = planner("watch", day, "--write", f"rules={tmp_path / 'rules.yml'}", "--write",
                  f"dashboard={tmp_path / 'board.json'}")
    assert run.returncode == 0, run.stderr
    rules, board = (tmp_path / "rules.yml").read_text(), json.loads((tmp_path / "board.json").read_text())
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", "rules", tmp_path / "rules.yml"], check=True, capture_output=True)
    assert all(f'{DRIFT}{{cause="{cause}"}}' in rules for cause in CAUSES)
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for text in (rules, *queries):
        assert set(re.findall(r"planner_watch_\w+", text)) <= {DRIFT, ENDED, MEASURED, PREDICTED, REPLICAS}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)


def test_inputs_that_cannot_be_watched(day: Path, tmp_path: Path) -> None:
    metrics = week(tmp_path, 4, drifts=False)
    fails(planner("watch", day), 2, "--url", "is missing")
    fails(planner("watch", day, "--url", metrics, "--start", "-1h"), 2, "--start -1h", "leave it out")
    fails(planner("watch", day, "--url", metrics, "--interval", 0), 2, "--interval 0", "above 0")
    fails(planner("watch", day, "--url", metrics, "--interval", 1e9), 2, "--interval 1e+09", "a shorter interval")
    fails(planner("watch", day, "--write", "slides"), 2, "--write slides", "rules or dashboard")
    fails(planner("watch", tmp_path / "none.json", "--url", metrics), 3, "cannot read the plan")
    (tmp_path / "other.json").write_text('{"feasible": false}')
    fails(planner("watch", tmp_path / "other.json", "--url", metrics), 3, "has no replay_command")
    (tmp_path / "changed.json").write_text(json.dumps({**json.loads(day.read_text()), "trace_sha256": "0"}))
    fails(planner("watch", tmp_path / "changed.json", "--url", metrics), 3, "has changed since")
    (tmp_path / "timeless.txt").write_text("vllm:request_success_total 3\n")
    fails(planner("watch", day, "--url", tmp_path / "timeless.txt"), 2, "has no times", "# at SECONDS")
    (tmp_path / "empty.txt").write_text(f"up 1 {MONDAY_S}\nup 1 {MONDAY_S + 60}\n# EOF\n")
    run = planner("watch", day, "--url", tmp_path / "empty.txt")
    assert (run.returncode, run.stdout.split("  ")[-1]) == (3, "not judged\n")
    assert "has none of the counters" in run.stderr


@pytest.mark.parametrize("scenario", [
    Scenario(model="llama-3.1-8b", gpu="h100-sxm", request_rate=12.0, async_scheduling=False, max_num_seqs=64),
    Scenario(model="llama-3.1-8b", fleet='pool = [{replicas = 2, gpu = "h100-sxm"}]', enable_prefix_caching=True),
    Scenario(step_time="linear:0.01,0.0001", num_gpu_blocks=1000, seed=3, session_start_fraction="0.1,0.2")])
def test_a_command_is_read_as_it_is_written(scenario: Scenario) -> None:
    study = Study(name="replay", trace="a b.csv", format="csv", scenario=scenario, on_bad_rows="drop",
                  objectives=parse_objectives("ttft:500 p99_tpot:50", 0.9))
    assert parse_command(command_line(study, options={"on_bad_rows": "drop"})) == study


def test_dates_are_in_utc() -> None:
    assert datetime.fromtimestamp(MONDAY_S, UTC).strftime("%A") == "Monday"
