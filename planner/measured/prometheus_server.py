"""Queries to a Prometheus server, or to another one with its HTTP API (Thanos, Mimir, VictoriaMetrics, Grafana)."""

import base64
import http.client
import json
import math
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

import polars as pl

from planner.errors import TraceError, UsageError
from planner.files.finite import number_in
from planner.files.nested import parse_json
from planner.measured.scrape import NAMES, Labels, query_result
from planner.progress import counted
from planner.traces.units import instants_s

MOST_POINTS = 11_000  # of a series in one answer: Prometheus's limit
MOST_WINDOWS = 1_500  # of a range, with the default step
STEPS_S = (15, 30, 60, 120, 300, 600, 900, 1800, 3600)  # default steps
TIMEOUT_S = 60.0  # of one answer
TOKEN = "PROMETHEUS_TOKEN"  # variable of a bearer token
LOOKED_AT_S = 600  # seconds in which scrapes are looked at
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Server:
    """The address of an API, and the headers of its requests."""

    url: str
    headers: Mapping[str, str]

    def ask(self, path: str, parameters: Sequence[tuple[str, Any]]) -> Any:
        """Return the JSON that the API answers.

        Raises
        ------
        TraceError : the server cannot be reached, refuses, or does not answer as Prometheus does.
        """
        text = self.text(f"/api/v1/{path}?{urlencode(parameters)}", "application/json")
        try:
            reply = parse_json(text)
        except ValueError:
            reply = None
        if not isinstance(reply, dict) or "data" not in reply:
            raise TraceError(f"{self.url}: the answer of /api/v1/{path} is not Prometheus's JSON; give the address "
                             f"before /api/v1 (a sign-in page in between needs --header or ${TOKEN})")
        return reply

    def text(self, path: str, accept: str) -> str:
        """Return the text at a path of the server.

        Raises
        ------
        TraceError : the server cannot be reached, or refuses.
        """
        request = urllib.request.Request(f"{self.url}{path}", headers={"Accept": accept, **self.headers})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return str(answer.read(), "utf-8", "replace")
        except urllib.error.HTTPError as error:
            raise TraceError(f"{self.url}: {_refusal(error)}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise TraceError(f"{self.url}: cannot be reached: {reason}; give the address of a running Prometheus "
                             f"server, as in http://localhost:9090") from None

    def names(self, start_s: float, end_s: float, selector: str) -> set[str]:
        """Return the names of engines' series in a range."""
        return set(self.ask("label/__name__/values", [("match[]", selector_of(NAMES, {}, selector)),
                                                      *_range(start_s, end_s)])["data"])

    def others(self, start_s: float, end_s: float) -> str:
        """Return the jobs that the server scrapes, for an error."""
        jobs = self.ask("label/job/values", _range(start_s, end_s))["data"]
        return f"its jobs are {', '.join(jobs[:20])}" if jobs else "it has no series of any job"

    def series(self, selector: str, start_s: float, end_s: float, step_s: float) -> dict[Labels, Points]:
        """Return the points of each series, over as many queries as the limit of points needs."""
        parts: dict[Labels, Points] = {}
        span_s = step_s * (MOST_POINTS - 1)
        starts = [start_s + k * (span_s + step_s) for k in range(int((end_s - start_s) // (span_s + step_s)) + 1)]
        for begin_s in counted("querying", starts) if len(starts) > 1 else starts:
            reply = self.ask("query_range", [("query", selector), ("start", begin_s),
                                             ("end", min(begin_s + span_s, end_s)), ("step", step_s)])
            for (_, labels), points in query_result(self.url, reply):
                parts.setdefault(labels, []).extend(points)
        return parts

    def scrape_interval_s(self, selector: str, at_s: float) -> float | None:
        """Return the median time between two scrapes before an instant; None if there are fewer than two [s]."""
        reply = self.ask("query", [("query", f"{selector}[{LOOKED_AT_S}s]"), ("time", at_s)])
        gaps = [after - before for _, points in query_result(self.url, reply)
                for (before, _), (after, _) in pairwise(points)]
        return round(median(gaps), 3) if gaps else None


def server_at(url: str, headers: Sequence[str]) -> Server:
    """Return a server with the headers of the user, of a name and password in the address, or of $PROMETHEUS_TOKEN.

    Raises
    ------
    UsageError : a header is not NAME: VALUE.
    """
    place = urlsplit(url)
    sent: dict[str, str] = {}
    if place.username is not None:
        pair = f"{unquote(place.username)}:{unquote(place.password or '')}"
        sent["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif token := os.environ.get(TOKEN):
        sent["Authorization"] = f"Bearer {token}"
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not re.fullmatch(r"[\w-]+", name.strip()) or "\n" in value:
            raise UsageError(f"--header {name[:40]}: must be NAME: VALUE, as in 'X-Scope-OrgID: team'")
        sent[name.strip()] = value.strip()
    host = place.netloc.rpartition("@")[2]
    path = re.sub(r"/(api/v1.*|graph|query)?$", "", place.path)
    return Server(urlunsplit((place.scheme, host, path, "", "")), sent)


def selector_of(pattern: str, labels: Mapping[str, str], more: str) -> str:
    """Return the selector of series by a pattern of their names, by labels, and by the user's own matchers.

    >>> selector_of("vllm[:_].+", {"model_name": "m"}, 'job="a"')
    '{__name__=~"vllm[:_].+",model_name="m",job="a"}'
    """
    pairs = [f"__name__=~{json.dumps(pattern)}", *(f"{label}={json.dumps(value)}" for label, value in labels.items())]
    return "{" + ",".join([*pairs, *([more] if more else [])]) + "}"


def instant_s(option: str, text: str, now_s: float) -> float:
    """Return an instant of a date, seconds since 1970, `now`, or a time before an instant such as -6h [s].

    >>> instant_s("--start", "-1.5h", 10_000.0), instant_s("--start", "1970-01-01T01:00:00Z", 0.0)
    (4600.0, 3600.0)
    """
    if text == "now":
        return now_s
    if text.startswith("-") and (span := _SPAN.fullmatch(text[1:])):
        return now_s - float(span[1]) * _UNITS_S[span[2]]
    at_s = number_in(text)
    if math.isnan(at_s):
        try:
            at_s = instants_s(pl.Series([text])).fill_null(math.nan)[0]
        except pl.exceptions.PolarsError:
            at_s = math.nan
    if not math.isfinite(at_s):
        raise UsageError(f"{option} {text}: must be a date and time (2026-11-01T10:00:00Z), seconds since 1970, or a "
                         f"time before the end (-6h)")
    return float(at_s)


def step_s(text: str | None, start_s: float, end_s: float, scrape_interval_s: float | None) -> float:
    """Return the step of a range: the user's, or one that gives at most MOST_WINDOWS, and no scrape twice [s].

    Raises
    ------
    UsageError : it is no time, or does not fit the range.
    """
    if text is None:
        least_s = max((end_s - start_s) / MOST_WINDOWS, scrape_interval_s or 0.0)
        return float(next((step for step in STEPS_S if step >= least_s), 3600 * math.ceil(least_s / 3600)))
    span = _SPAN.fullmatch(text)
    chosen_s = float(span[1]) * _UNITS_S[span[2]] if span else number_in(text)
    if not 0 < chosen_s <= (end_s - start_s):
        raise UsageError(f"--step {text}: must be a time above 0, within the range of {end_s - start_s:g} s, as in 30s")
    return chosen_s


def _range(start_s: float, end_s: float) -> list[tuple[str, Any]]:
    return [("start", start_s), ("end", end_s)]


def _refusal(error: urllib.error.HTTPError) -> str:
    if error.code in (401, 403):
        return (f"refuses with status {error.code}; give a token in ${TOKEN}, --header 'Authorization: …', or "
                f"http://NAME:PASSWORD@host")
    try:
        reason = json.loads(error.read()).get("error", "")
    except (ValueError, AttributeError, OSError):
        reason = ""
    remedy = "give the address before /api/v1, as in http://localhost:9090" if error.code == 404 else "mend the query"
    return f"answers with status {error.code}: {str(reason or error.reason)[:200]}; {remedy}"
