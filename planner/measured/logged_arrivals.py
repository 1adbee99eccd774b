"""Arrivals of a server's log with lengths drawn from a scrape of its metrics."""

from dataclasses import replace
from pathlib import Path

from planner.errors import TraceError
from planner.measured.scraped import drawn_lengths
from planner.traces import Trace
from planner.traces.reading import trace_of
from planner.traces.server_texts import read_server_text
from planner.traces.source import text_lines


def with_lengths(source: str, lengths: Path) -> Trace:
    """Return the requests of an access log, or of vLLM's log, with lengths of a scrape of /metrics.

    Lengths are drawn from the scrape's histograms, so that a request's own length is unknown, and prompts and outputs
    are paired at random.

    Raises
    ------
    TraceError : the file has no times of requests, or the scrape has no lengths.
    """
    text = read_server_text([line for _, line in text_lines(Path(source))])
    if text is None or not text.requests or text.has_lengths:
        raise TraceError(f"{source}: has no times of requests without lengths, which --lengths {lengths} adds; must be "
                         f"an access log, or vLLM's log with its received requests")
    drawn = drawn_lengths(lengths, len(text.requests))
    rows = [{**request, "input_tokens": int(prompt), "output_tokens": int(output)}
            for request, prompt, output in zip(text.requests, *drawn, strict=True)]
    trace = trace_of(source, rows)
    note = f"lengths are drawn from the histograms of {lengths}; prompts and outputs are paired at random"
    account = replace(trace.account, format=f"{text.kind}-log", notes=(*text.notes, note, *trace.account.notes))
    return replace(trace, format=account.format, account=account, zero_at_s=trace.zero_at_s if text.has_years else None)
