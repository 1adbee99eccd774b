"""Scrapes of /metrics: Prometheus's text format or OpenMetrics, one or several, and the JSON of its queries."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.engines import METRICS
from planner.errors import TraceError
from planner.files.finite import number_in
from planner.files.nested import parse_json

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]

_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*?)\})?\s+(\S+)(?:\s+(-?\d+(?:\.\d+)?))?\s*(?:# \{.*)?")
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_TIME = re.compile(r"#\s*at\s+(\d+(?:\.\d+)?)\s*")
_END = "# EOF"  # of OpenMetrics, whose times are seconds and not milliseconds
# A relabelled name has another prefix (kserve_vllm:…), and some stores write an underscore in place of the colon.
NAMES = rf"(?:\w*_)?({'|'.join(series.prefix for series in METRICS)})[:_](\w+)"
_ENGINE = re.compile(NAMES)
_HEAD = 4096  # bytes that a file is known by


@dataclass(frozen=True, slots=True)
class Scrape:
    """The content of one scrape of the metrics.

    Parameters
    ----------
    at_s : when, on any clock; None if it was not written down [s].
    values : by name (`vllm:time_to_first_token_seconds_sum`) and labels.
    """

    at_s: float | None
    values: Mapping[Key, float]

    def names(self) -> set[str]:
        """Return the names of its series."""
        return {name for name, _ in self.values}


def is_scrape(path: Path) -> bool:
    """Tell whether a file is a scrape or the JSON of a Prometheus query, by its head."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD).decode("utf-8", errors="replace").lstrip()
    except OSError:
        return False
    if head.startswith("{"):
        return '"resultType"' in head and '"status"' in head
    lines = [line for line in head.splitlines() if line.strip()]
    return bool(lines) and (lines[0].startswith(("# HELP ", "# TYPE ")) or bool(_TIME.fullmatch(lines[0]))
                            or bool(_ENGINE.match(lines[0]) and _SAMPLE.fullmatch(lines[0])))


def read_scrapes(path: Path) -> list[Scrape]:
    """Read scrapes in the order of time; names of engines' metrics lose a relabelling's prefix.

    Parameters
    ----------
    path : text as /metrics gives it, several scrapes one after the other (a line `# at 1790000000` before each says
        when), or the JSON of /api/v1/query_range or /api/v1/query.

    Raises
    ------
    TraceError : the file cannot be read, a line is no sample, or the query's result is none of raw series.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
    return scrapes_in(str(path), text)


def scrapes_in(where: str, text: str) -> list[Scrape]:
    """Read the scrapes of a text, as `read_scrapes` reads a file.

    Raises
    ------
    TraceError : as `read_scrapes`.
    """
    if not text.lstrip().startswith("{"):
        return list(_of_open_metrics(where, text) if text.rstrip().endswith(_END) else _of_text(where, text))
    try:
        reply = parse_json(text)
    except ValueError as error:
        raise TraceError(f"{where}: cannot be read as JSON: {error}") from error
    by_time: dict[float, dict[Key, float]] = {}
    for key, points in query_result(where, reply):
        for at_s, value in points:
            by_time.setdefault(at_s, {})[key] = value
    return [Scrape(at_s, by_time[at_s]) for at_s in sorted(by_time)]


def _of_open_metrics(where: str, text: str) -> Iterator[Scrape]:
    """Yield a scrape for each time of an OpenMetrics text, whose series may have several points in a row."""
    by_time: dict[float | None, dict[Key, float]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            key, value, stamp_ks = _sample(f"{where} line {number}", line)
            by_time.setdefault(None if stamp_ks is None else stamp_ks * 1e3, {})[key] = value
    yield from (Scrape(at_s, by_time[at_s]) for at_s in sorted(by_time, key=lambda at_s: at_s or 0.0))


def _of_text(where: str, text: str) -> Iterator[Scrape]:
    """Yield the scrapes of a text: a series that is there again, or a line that says when, begins the next."""
    values: dict[Key, float] = {}
    at_s: float | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if time := _TIME.fullmatch(line.strip()):
            if values:
                yield Scrape(at_s, values)
                values = {}
            at_s = float(time[1])
        elif line.strip() and not line.lstrip().startswith("#"):
            key, value, stamp_s = _sample(f"{where} line {number}", line)
            if key in values:
                yield Scrape(at_s, values)
                values, at_s = {}, None
            values[key] = value
            at_s = stamp_s if stamp_s is not None else at_s
    if values:
        yield Scrape(at_s, values)


def _sample(where: str, line: str) -> tuple[Key, float, float | None]:
    match = _SAMPLE.fullmatch(line.strip())
    if match is None:
        raise TraceError(f"{where}: {line.strip()[:60]!r} is not a sample of Prometheus's text format; must be "
                         f'name{{label="value"}} number')
    labels = _LABEL.findall(match[2] or "")
    if _LABEL.sub("", match[2] or "").strip():
        raise TraceError(f"{where}: the labels {{{match[2][:60]}}} cannot be read; must be name=\"value\", with commas "
                         f"between")
    at_s = None if match[4] is None else _number(where, match[4]) / 1e3
    return (_name(match[1]), tuple(sorted(labels))), _number(where, match[3]), at_s


def query_result(source: str, reply: Any) -> Iterator[tuple[Key, list[tuple[float, float]]]]:
    """Yield each series of an answer of Prometheus's API, with its times [s] and values.

    Raises
    ------
    TraceError : the query failed, or its result is none of raw series.
    """
    data = reply.get("data")
    if reply.get("status") != "success" or not isinstance(data, dict):
        raise TraceError(f"{source}: status = {str(reply.get('status'))[:60]!r}; must be the result of a query that "
                         f"succeeded ({str(reply.get('error'))[:200]})")
    if data.get("resultType") not in ("matrix", "vector") or not isinstance(data.get("result"), list):
        raise TraceError(f"{source}: resultType = {str(data.get('resultType'))[:60]!r}; must be matrix (query_range) "
                         f"or vector (query)")
    yield from (_series(f"{source} result {place}", series) for place, series in enumerate(data["result"]))


def _series(where: str, series: Any) -> tuple[Key, list[tuple[float, float]]]:
    metric = series.get("metric") if isinstance(series, dict) else None
    points = series.get("values", [series.get("value")]) if isinstance(series, dict) else None
    if not isinstance(metric, dict) or not isinstance(points, list):
        raise TraceError(f"{where}: is not a series; must have metric, and values or value")
    if "__name__" not in metric:
        raise TraceError(f"{where}: has no __name__, so the metric is unknown; query raw series, "
                         f'{{__name__=~"vllm:.+"}}, without rate() or sum()')
    labels = tuple(sorted((str(k), str(v)) for k, v in metric.items() if k != "__name__"))
    pairs = []
    for point in points:
        if not isinstance(point, list) or len(point) != 2:
            raise TraceError(f"{where}: {str(point)[:60]!r} is not a point; must be a time and a value")
        pairs.append((_number(where, point[0]), _number(where, point[1])))
    return (_name(str(metric["__name__"])), labels), pairs


def _number(where: str, text: Any) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError) as error:
        raise TraceError(f"{where}: {str(text)[:60]!r} is not a number") from error
    return math.nan if math.isinf(value) else value


def _name(name: str) -> str:
    match = _ENGINE.fullmatch(name)
    return name if match is None else f"{match[1]}:{match[2]}"


def grown(before: Scrape | None, after: Scrape, name: str, where: str) -> dict[Labels, float]:
    """Return by how much each series of a counter grew between two scrapes; from 0 without an earlier one.

    Raises
    ------
    TraceError : one shrank: the server was started anew in between.
    """
    grown_by = {}
    for (series, labels), value in after.values.items():
        if series != name:
            continue
        earlier = 0.0 if before is None else before.values.get((series, labels), 0.0)
        if not value >= earlier:
            raise TraceError(f"{where}: {name} went from {earlier:g} to {value:g}: the server restarted in between, "
                             f"or values are missing; take scrapes of one run of the server")
        grown_by[labels] = value - earlier
    return grown_by


def total(counts: Mapping[Labels, float]) -> float:
    """Return the sum over all labels."""
    return math.fsum(counts.values())


def upper_edges(counts: Mapping[Labels, float], where: str) -> list[tuple[float, float]]:
    """Return a histogram's upper edges, in order, with how many values are at most each, over all other labels.

    Raises
    ------
    TraceError : an edge is no number, or negative, or there are fewer values below an edge than below one before.
    """
    by_edge: dict[float, float] = {}
    for labels, count in counts.items():
        text = dict(labels).get("le", "")
        edge = number_in(text)
        if not edge >= 0:
            raise TraceError(f"{where}: a bucket's le = {text[:60]!r}; must be a number of at least 0, or +Inf")
        by_edge[edge] = by_edge.get(edge, 0.0) + count
    edges: Sequence[tuple[float, float]] = sorted(by_edge.items())
    for (low, below), (high, upto) in itertools.pairwise(edges):
        if upto < below:
            raise TraceError(f"{where}: {below:g} values up to {low:g}, but {upto:g} up to {high:g}; buckets must be "
                             f"cumulative")
    return list(edges)
