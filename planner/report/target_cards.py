"""The three numbers that one looks at first: TTFT, TPOT and served requests, each against its limit."""

from dataclasses import dataclass

from planner.catalog.pooling import RATES
from planner.files.counts import share_text
from planner.results.short_times import time_text
from planner.results.summary_answer import Latency, Summary
from planner.settings.judged import ATTAINMENT, Judged
from planner.settings.statistic import parse_statistic

METRICS = {"ttft": "Time to first token", "tpot": "Time per output token", "e2el": "End to end"}
ALWAYS = ("ttft", "tpot")
MOST_PERCENT = 200  # of a limit; above it the number of times is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One number with its limit.

    Parameters
    ----------
    title : its name.
    value : the number as text, with its name.
    beside : the number that belongs to it, as text.
    used : share of the limit that is used [1]; None without a limit.
    limit : the limit in words; empty without one.
    is_met : None without a limit.
    """

    title: str
    value: str
    beside: str
    used: float | None = None
    limit: str = ""
    is_met: bool | None = None


def cards(summary: Summary) -> list[Card]:
    """Return the cards of a replay: TTFT, TPOT, end to end if it has a target, and the served requests.

    A pooling model's results come in one piece: they have an end-to-end latency alone.
    """
    judged = summary.figures.objectives
    own = {metric: [each for each in judged if _metric(each) == metric] for metric in METRICS}
    always = ALWAYS if summary.deployment.get("pooling") is None else ("e2el",)
    shown = [metric for metric in METRICS if metric in always or own[metric]]
    return [*(_latency(getattr(summary.figures, metric), METRICS[metric], own[metric]) for metric in shown),
            _served(summary)]


def _metric(judged: Judged) -> str:
    statistic = parse_statistic(judged.name)
    return judged.name if statistic is None else statistic.metric


def _latency(latency: Latency, title: str, judged: list[Judged]) -> Card:
    """Return the card of a latency: the statistic nearest to its limit, else p99 against the requests' limit."""
    p50, p99 = latency.median, latency.p99
    beside = f"p50 {time_text(p50)}"
    of_statistics = [(_used(each.value, each.limit), each.limit, each) for each in judged
                     if each.unit == "ms" and each.limit]
    if of_statistics:
        _, allowed, worst = max(of_statistics, key=lambda row: row[0])
        name = worst.name.partition("_")[0]
        return _limited(title, name, worst.value, allowed, beside if name == "p99" else
                        f"p50 {time_text(p50)}, p99 {time_text(p99)}", worst.is_met)
    limit = next((each.limit for each in judged if each.unit == "1"), None)
    if limit is None:
        return Card(title=title, value=f"p99 {time_text(p99)}", beside=beside)
    return _limited(title, "p99", p99, limit, beside, None if p99 is None else p99 <= limit)


def _used(value: float | None, limit: float) -> float:
    return float("inf") if value is None else value / limit


def _limited(title: str, name: str, value: float | None, limit: float, beside: str, is_met: bool | None) -> Card:
    if value is None:
        text = "never" if is_met is False else time_text(None)  # requests without an answer reach the percentile
        return Card(title=title, value=f"{name} {text}", beside=beside, limit=f"limit {time_text(limit)}",
                    is_met=is_met)
    return Card(title=title, value=f"{name} {time_text(value)}", beside=beside, used=value / limit, is_met=is_met,
                limit=f"{_times(value / limit)} the limit of {time_text(limit)}")


def _times(used: float) -> str:
    if used < MOST_PERCENT / 100:
        return f"{share_text(used)} of"
    return f"{used:,.0f} ×" if used >= 10 else f"{used:.1f} ×"


def _served(summary: Summary) -> Card:
    """Return the card of the served requests: the share within all limits, if one is asked for."""
    figures, total = summary.figures, summary.workload["num_requests"]
    count, tokens = figures.completed, figures.output_throughput or figures.total_token_throughput
    unit = RATES.get(summary.deployment.get("pooling"), "requests/s")
    rate = f"{figures.request_throughput:,.3g} {unit}, {tokens:,.0f} tokens/s"
    title, value = "Served", f"{count:,} of {total:,}" if count < total else f"all {total:,}"
    asked = next((each for each in figures.objectives if each.name == ATTAINMENT), None)
    if asked is None:
        return Card(title=title, value=value, beside=rate, used=count / total if total else None,
                    limit="" if count == total else f"{share_text(count / total)} of the requests")
    reached, required = asked.value or 0.0, asked.limit or 1.0
    return Card(title=title, value=value, beside=rate, used=reached, is_met=asked.is_met,
                limit=f"{share_text(reached, required)} within all limits, {share_text(required, reached)} required")
