"""Texts of servers: logs of vLLM and SGLang, access logs and scrapes of metrics, and the requests in them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from planner.errors import TraceError
from planner.files.counts import count_text
from planner.files.finite import number_in
from planner.traces.dates import dates

Record = Mapping[str, Any]

LOOKED_AT = 200  # lines by which a text is known
DECODE_STEPS = 40  # of SGLang between two lines on decodes, --decode-log-interval
PATHS = ("/completions", "/generate", "/v1/messages", "/v1/responses", "/invocations", "/infer")
_ISO = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_PREFILL = re.compile(r"Prefill batch.*?#new-seq: (\d+), #new-token: (\d+), #cached-token: (\d+)")
_DECODE = re.compile(r"Decode batch.*?#running-req: (\d+)")
_FINISH = re.compile(r"Finish: .*meta_info")
_FINISHED = {name: re.compile(rf"'{name}': ([\d.]+)")
             for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "e2e_latency")}
_RECEIVED = re.compile(r"Received request ([\w-]+)")
_INTERVAL = re.compile(r"Avg prompt throughput: ([\d.]+) tokens/s, Avg generation throughput: ([\d.]+) tokens/s.*?"
                       r"Running: (\d+)")
_ACCESS = re.compile(r"\"(?:POST|GET|PUT) (\S+)(?: HTTP/[\d.]+)?\" (\d{3})")
_CLOCK = re.compile(rf"\[(\d\d/\w{{3}}/\d{{4}}:\d\d:\d\d:\d\d [+-]\d{{4}})\]|({_ISO})|\b(\d\d-\d\d \d\d:\d\d:\d\d)\b")
_SCRAPE = re.compile(r"^(# (HELP|TYPE) \w|(\w+:)?\w+\{[^}]*\} [\d.eE+-]+(\s|$))")
_RANK = re.compile(r"\b[TD]P([1-9]\d*)\b")


@dataclass(frozen=True, slots=True)
class ServerText:
    """A text of a server.

    Parameters
    ----------
    kind : an engine's name, "access" or "scrape".
    requests : with arrival_s as a date's text; with lengths if they are known.
    lacks : its content and the remedy, if it is no trace; {lengths} stands for the ways to lengths and rates.
    tokens_per_s : vLLM's statistics: time, prompt and output tokens a second, running requests.
    notes : how requests were made of lines.
    has_years : whether its times have a year.
    """

    kind: str
    requests: Sequence[Record]
    lacks: str = ""
    tokens_per_s: Sequence[tuple[str, float, float, int]] = ()
    notes: tuple[str, ...] = ()
    has_years: bool = True

    @property
    def has_lengths(self) -> bool:
        """Whether each request has its lengths."""
        return bool(self.requests) and all("output_tokens" in request for request in self.requests)


def kind_of(lines: Sequence[str]) -> str | None:
    """Return the kind of a text by its first lines; None if it is no server's."""
    kept = [line for line in lines[:LOOKED_AT] if line.strip()]
    if not kept or kept[0].lstrip().startswith(("{", "[{")):
        return None
    for kind, patterns, _ in KINDS:
        if any(pattern.search(line) for line in kept for pattern in patterns):
            return kind
    if _SCRAPE.match(kept[0]):
        return "scrape"
    return "access" if sum(_ACCESS.search(line) is not None for line in kept) > len(kept) / 2 else None


def read_server_text(lines: Sequence[str]) -> ServerText | None:
    """Return the requests in a server's text; None if it is no server's."""
    kind = kind_of(lines)
    return None if kind is None else READERS[kind](lines)


def instead_of(source: str, text: ServerText) -> TraceError:
    """Return the error of a server's text that is no trace: its content, and how to use it."""
    lengths = (f"planner trace convert {source} trace.csv --lengths metrics.prom takes lengths from a scrape of "
               f"/metrics; planner size --rate-series {source} takes its rates")
    return TraceError(f"trace {source}: {text.lacks.format(lengths=lengths, source=source)}")


def _scrape(_: Sequence[str]) -> ServerText:
    return ServerText("scrape", (), "is a scrape of /metrics, without single requests; its histograms give lengths: "
                                    "--lengths {source} beside an access log in planner trace convert; planner trace "
                                    "from-prometheus {source} draws a trace, and planner validate compares latencies")


def _stamp(line: str) -> str | None:
    match = _CLOCK.search(line)
    return None if match is None else match[1] or match[2] or f"2000-{match[3]}"  # vLLM writes no year


def _sglang(lines: Sequence[str]) -> ServerText:
    finished = [request for line in lines if _FINISH.search(line) and (request := _finished(line)) is not None]
    if finished:
        return ServerText("sglang", finished, notes=(
            "requests are the log's finished ones; arrivals are their ends less their latencies",))
    prefills = [(stamp, int(match[1]), int(match[2]), int(match[3])) for line in lines
                if (match := _PREFILL.search(line)) and not _RANK.search(line) and (stamp := _stamp(line))]
    decoded = DECODE_STEPS * sum(int(match[1]) for line in lines
                                 if (match := _DECODE.search(line)) and not _RANK.search(line))
    count = sum(sequences for _, sequences, _, _ in prefills)
    if not count or not decoded:
        return ServerText("sglang", (), "is SGLang's log without lines on prefills or finished requests; start the "
                                        "server with --log-requests, or give its log with 'Prefill batch' lines")
    output = max(round(decoded / count), 1)
    requests = [{"arrival_s": stamp, "input_tokens": (new + cached) // sequences + (k < (new + cached) % sequences),
                 "cached_tokens": cached // sequences, "output_tokens": output}
                for stamp, sequences, new, cached in prefills for k in range(sequences)]
    batched = sum(sequences > 1 for _, sequences, _, _ in prefills)
    return ServerText("sglang", requests, notes=(
        f"requests are the sequences of {len(prefills):,} prefill lines; {batched:,} lines have several, which share "
        f"their tokens evenly, and a prompt in chunks counts once a chunk. Start the server with --log-requests for "
        f"single requests", f"outputs have the mean length of {output:,} tokens: {DECODE_STEPS} steps a decode line "
        f"(--decode-log-interval) and its running requests give {decoded:,} tokens"))


def _finished(line: str) -> dict[str, Any] | None:
    values = {name: number_in(match[1]) for name, pattern in _FINISHED.items() if (match := pattern.search(line))}
    stamp = _stamp(line)
    if stamp is None or not {"prompt_tokens", "completion_tokens", "e2e_latency"} <= values.keys():
        return None
    begin = dates(pl.Series([stamp])) - pl.Series([int(values["e2e_latency"] * 1e9)], dtype=pl.Duration("ns"))
    return {"arrival_s": begin.dt.to_string("%Y-%m-%d %H:%M:%S%.9f")[0], "input_tokens": int(values["prompt_tokens"]),
            "output_tokens": int(values["completion_tokens"]), "cached_tokens": int(values.get("cached_tokens", 0)),
            "e2e_s": values["e2e_latency"]}


def _vllm(lines: Sequence[str]) -> ServerText:
    received = [{"arrival_s": stamp, "request_id": match[1]} for line in lines
                if (match := _RECEIVED.search(line)) and (stamp := _stamp(line))]
    looks = [(stamp, float(match[1]), float(match[2]), int(match[3])) for line in lines
             if (match := _INTERVAL.search(line)) and (stamp := _stamp(line))]
    mean = [sum(part) / len(looks) for part in list(zip(*looks, strict=True))[1:]]
    rates = "" if not mean else (f" On average over {count_text(len(looks), 'interval line')}: {mean[0]:.4g} prompt "
                                 f"tokens/s, {mean[1]:.4g} output tokens/s and {mean[2]:.3g} running requests.")
    return ServerText("vllm", received, f"is vLLM's log with {count_text(len(received), 'received request')}, without "
                                        f"token counts.{rates} Use: {{lengths}}", looks, has_years=False)


def _access(lines: Sequence[str]) -> ServerText:
    requests, left_out = [], Counter[str]()
    for line in lines:
        match = _ACCESS.search(line)
        stamp = _stamp(line)
        if match is None or stamp is None:
            left_out["without a request and a time"] += bool(line.strip())
        elif not any(path in match[1] for path in PATHS):
            left_out["of other paths"] += 1
        elif not match[2].startswith("2"):
            left_out["with another status than 2xx"] += 1
        else:
            requests.append({"arrival_s": stamp})
    left = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
    notes = ["arrivals are the times in the access log, which most servers write when a request ends",
             *([f"lines of the access log are left out: {left}"] if left else [])]
    return ServerText("access", requests, f"is an access log with the times of "
                                          f"{count_text(len(requests), 'request')}, without token counts; {{lengths}}",
                      notes=tuple(notes))


KINDS = (("sglang", (_PREFILL, _DECODE, _FINISH), _sglang), ("vllm", (_RECEIVED, _INTERVAL), _vllm))  # engines' logs
READERS = {kind: read for kind, _, read in KINDS} | {"access": _access, "scrape": _scrape}


def per_minute(text: ServerText) -> Iterator[tuple[float, float]]:
    """Yield the start of each minute [s] and the rate of requests in it [1/s]; the last minute may be cut off."""
    seconds = dates(pl.Series([request["arrival_s"] for request in text.requests])).to_physical() / 1e9
    minutes = Counter(int(at_s // 60) for at_s in seconds.drop_nulls())
    for minute in range(min(minutes), max(minutes) + 1):
        yield minute * 60.0, minutes[minute] / 60
