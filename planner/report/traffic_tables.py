"""A server's traffic by its metrics as text, with the facts that metrics do not have."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from planner.files.counts import change_text, count_text, figure_text, share_text
from planner.measured.traffic_answer import TrafficAnswer
from planner.report.text import Grid, Text

WORDS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "time between tokens", "e2el": "end-to-end latency",
         "running": "running requests", "waiting": "waiting requests", "kv_use": "KV cache in use"}


def traffic_table(result: TrafficAnswer) -> Text:
    """Return the traffic in a few lines: rates and lengths, measured latencies, gauges, and the open assumptions."""
    begin = result.start_s
    since = f", from {datetime.fromtimestamp(begin, UTC):%Y-%m-%d %H:%M:%S} UTC" if begin > 1e8 else ""
    name = " ".join(part for part in (result.metrics, result.model_name) if part)
    lines: list[str | Grid] = [
        f"{result.source}{name and f' ({name})'}: {count_text(round(result.num_requests), 'request')} in "
        f"{count_text(result.num_windows, 'window')} of {result.window_s:g} s{since}",
        f"Rate: {result.request_rate:.4g} requests/s, peak {result.peak_request_rate:.4g}"]
    sides = (("prompts", result.mean_input_tokens), ("outputs", result.mean_output_tokens))
    means = [f"{word} {mean:,.1f}" for word, mean in sides if mean is not None]
    if means:
        lines.append(f"Mean lengths [tokens]: {', '.join(means)}")
    if result.cached_share is not None:
        lines.append(f"Prefix cache: {share_text(result.cached_share)} of the prompt tokens")
    lines += _latencies(result.latencies)
    lines += [f"{WORDS[what].capitalize() if what != 'kv_use' else WORDS[what]}: mean {_amount(what, value['mean'])}, "
              f"largest {_amount(what, value['max'])}" for what, value in result.gauges.items()]
    return Text([*lines, "The metrics leave open:", *(f"  {line}" for line in _open(result)),
                 *_capacities(result.capacities or {})])


def _amount(what: str, value: float) -> str:
    return share_text(value) if what == "kv_use" else f"{value:,.3g}"


def _latencies(latencies: Mapping[str, Any]) -> list[Grid]:
    shown = ("p50", "p90", "p99")

    def cell(row: Mapping[str, Any], name: str) -> str:
        low, high = row[f"{name}_bucket_ms"]
        return f"> {figure_text(low)}" if high is None else (
            f"{figure_text(row[f'{name}_ms'])} ({figure_text(low)} … {figure_text(high)})")

    rows = [(WORDS[what], figure_text(row["mean_ms"]), *(cell(row, name) for name in shown))
            for what, row in latencies.items()]
    return [Grid(heads=("measured [ms]", "mean", *shown), rows=rows)] if rows else []


def _open(result: TrafficAnswer) -> Iterator[str]:
    """Yield the facts that counters and histograms cannot have, and the assumption about each."""
    scraped = result.scrape_interval_s
    yield (f"bursts shorter than a window of {result.window_s:g} s"
           f"{'' if scraped is None else f' (scrapes every {scraped:.3g} s)'}: a Poisson process, or --gap-cv")
    yield "the correlation of prompt and output lengths: none, or --length-correlation"
    yield "sessions: a turn does not wait for the answer before it"
    for side, has_histogram in result.has_histograms.items():
        if not has_histogram:
            yield f"the spread of {side} lengths, which has no histogram: all have the mean of their windows"
    if result.cached_share:
        yield "prefixes: each prompt shares the measured share of its tokens with a prompt of the last minute"
    latency = result.latencies.get("e2el")
    if latency is not None and result.counts_ends:
        yield (f"arrivals: requests are counted when they end, {latency['mean_ms'] / 1e3:.3g} s after their arrival on "
               f"average")


def _capacities(capacities: Mapping[str, float]) -> list[Grid]:
    drawn = capacities.get("as drawn", 0.0)
    rows = [(words, f"{value:.4g}", "" if words == "as drawn" else change_text(value / drawn - 1))
            for words, value in capacities.items()]
    return [Grid(heads=("capacity with the same metrics", "requests/s", "difference"), rows=rows)] if rows else []
