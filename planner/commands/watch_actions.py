"""The action of `planner watch`: intervals are read, judged, printed and served as metrics."""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import Any

from planner.commands.actions import fitted
from planner.commands.outputs import check_outputs
from planner.errors import PlannerError, TraceError, UsageError
from planner.files.writing import append_text, write_text
from planner.measured.metric_source import MetricSource
from planner.measured.watched_metrics import OWN, recorded, running
from planner.planning.watch_answer import CAUSES, WatchAnswer
from planner.planning.watched_plan import Plan, read_plan
from planner.planning.watching import DriftLimits, watched
from planner.progress import stage
from planner.report.watch_files import DRIFT, ENDED, FILES, MEASURED, PREDICTED, REPLICAS
from planner.report.watch_table import drift_lines, watch_line, watch_table

Report = Callable[[WatchAnswer], None]


def watch(path: Path, url: str | None, length: Mapping[str, Any], place: Mapping[str, Any], model_name: str | None,
          rules: Mapping[str, Any], json_lines: Path | None, port: int | None, write: Sequence[str]) -> bool:
    """Watch a plan, and print, write and serve each interval; False if drift was confirmed."""
    files = {kind: Path(target or FILES[kind][0]) for kind, _, target in map(_written, write)}
    if url is None and not files:
        raise UsageError("--url: is missing; give the address of a Prometheus server or of a server's /metrics")
    check_outputs({"--json-lines": json_lines, **{f"--write {kind}": target for kind, target in files.items()}}, path)
    for kind, target in files.items():
        write_text(target, FILES[kind][1]())
    if url is None:
        return True
    limits = DriftLimits(**rules)
    sources = _sources(url, length, place, limits.confirm)
    with stage(f"replaying {path}"):
        plan = read_plan(path)
    reports = [_printed(json_lines), *([] if port is None else [_served(port, plan)])]
    before: deque[WatchAnswer] = deque(maxlen=2 * limits.confirm)
    holds, last = True, None
    for source in sources:
        answer = watched(plan, source, model_name, limits, before)
        before.append(answer)
        holds &= answer.holds
        last = answer if answer.quantities or last is None else last
        for report in reports:
            report(answer)
    if last is None or not last.quantities:
        raise TraceError("; ".join(last.notes) if last else f"{url}: has no intervals; give a longer --for")
    if str(json_lines) != "-":
        print(fitted(watch_table(last), sys.stdout))
    return holds


def _written(asked: str) -> tuple[str, str, str]:
    parts = asked.partition("=")
    if parts[0] not in FILES:
        raise UsageError(f"--write {asked}: must be {' or '.join(FILES)}, or one with a path, as rules=watch.yml")
    return parts


def _sources(url: str, length: Mapping[str, Any], place: Mapping[str, Any], confirm: int) -> Iterator[MetricSource]:
    interval_s, for_s, once = (length[name] for name in ("interval_s", "for_s", "once"))
    for name, value in (("--interval", interval_s), ("--for", for_s)):
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{name} {value:g}: must be a number above 0 [s]")
    is_address, is_own = url.startswith(("http://", "https://")), url.rstrip("/").endswith(OWN)
    if place["start"] is not None and (is_own or not is_address):
        raise UsageError(f"--start {place['start']}: needs the address of a Prometheus server; leave it out")
    if not is_address or place["start"] is not None:
        return recorded(url, interval_s, place)
    if once and not is_own:
        return recorded(url, interval_s, {**place, "start": f"-{confirm * interval_s + 1e-3}s", "end": "now"})
    num = confirm if once else None if for_s is None else max(round(for_s / interval_s), 1)
    return running(url, interval_s, num, place)


def _printed(json_lines: Path | None) -> Report:
    """Return a report of intervals on the terminal, and as lines of JSON."""
    is_alone, told, noted = str(json_lines) == "-", set[tuple[str, str]](), set[str]()
    if json_lines is not None and not is_alone:
        write_text(json_lines, "")

    def report(answer: WatchAnswer) -> None:
        if json_lines is not None:
            line = dumps(answer.values_by_key, allow_nan=False) + "\n"
            sys.stdout.write(line) if is_alone else append_text(json_lines, line)
        if not is_alone:
            print(watch_line(answer))
            new = [drift for drift in answer.drifts if (drift.name, drift.since) not in told]
            told.update((drift.name, drift.since) for drift in new)
            for line in drift_lines(answer) if new else ():
                print(f"  {line}")
        sys.stdout.flush()
        for note in set(answer.notes) - noted:
            print(f"note: {note}", file=sys.stderr)
        noted.update(answer.notes)

    return report


def _served(port: int, plan: Plan) -> Report:
    """Serve metrics of the watch on localhost, and return a report that sets them."""
    try:
        from prometheus_client import CollectorRegistry, Gauge, start_http_server
    except ImportError:
        raise UsageError(f"--metrics-port {port}: needs prometheus-client; pip install "
                         f"'llm-serving-planner[watch]'") from None
    registry = CollectorRegistry()

    def gauge(name: str, meaning: str, *labels: str) -> Any:
        return Gauge(name, meaning, labels, registry=registry)

    measured, predicted = gauge(MEASURED, "Measured value", "quantity"), gauge(
        PREDICTED, "Value of a replay: of the plan, or of its deployment at the measured traffic", "quantity", "of")
    drift = gauge(DRIFT, "1 if drift is confirmed", "cause", "quantity")
    replicas, ended = gauge(REPLICAS, "Replicas without spares", "of"), gauge(ENDED, "End of the last interval")
    try:
        start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise PlannerError(f"--metrics-port {port}: cannot be served: {error.strerror}; give another port") from error
    replicas.labels("plan").set(plan.num_replicas)

    def report(answer: WatchAnswer) -> None:
        for one in answer.quantities:
            for series, value in ((measured.labels(one.name), one.measured),
                                  (predicted.labels(one.name, "plan"), one.planned),
                                  (predicted.labels(one.name, "measured traffic"), one.predicted)):
                series.set(float("nan") if value is None else value)
        drift.clear()
        for cause in CAUSES:
            drift.labels(cause, "").set(0)
        for confirmed in answer.drifts:
            drift.labels(confirmed.cause, confirmed.name).set(1)
        if answer.replan is not None and answer.replan.num_replicas is not None:
            replicas.labels("new plan").set(answer.replan.num_replicas)
        if answer.quantities:
            ended.set_to_current_time()

    return report
