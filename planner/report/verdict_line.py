"""The verdict on a replay in one line: its overload, its requests without an answer, its targets."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from planner.files.counts import count_text
from planner.results.saturation import YES
from planner.settings.judged import judged_of, sentences, shares

WHY = {  # requests that were rejected, by reason, and the limit that they exceed with its place in the summary
    "too_long": ("longer than the context{}", ("deployment", "max_model_len"), "tokens"),
    "token_budget": ("prompt above max_num_batched_tokens{}, not split", ("policy", "max_num_batched_tokens"), ""),
    "kv_cache": ("larger than the KV cache{}", ("deployment", "num_gpu_blocks"), "blocks"),
    "queue_full": ("the queue was full{}", None, ""),
    "quota": ("over the tenant's quota{}", None, ""),
    "no_replica": ("no replica was available{}", None, ""),
}


class Kind(Enum):
    """The kinds of a verdict."""

    KEPT = "kept"
    MISSED = "missed"
    OVERLOADED = "overloaded"
    UNSERVED = "unserved"
    NO_TARGETS = "no targets"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictLine:
    """A verdict in words.

    Parameters
    ----------
    kind : the most serious finding.
    sentence : that finding first, then the others; not escaped.
    """

    kind: Kind
    sentence: str


def verdict_line(summary: Mapping[str, Any]) -> VerdictLine:
    """Return the verdict on a replay.

    Parameters
    ----------
    summary : as `run.replay` makes it.
    """
    without_answer, targets = unserved(summary), _targets(summary)
    if (refusal := summary.get("would_not_start")) is not None:
        return VerdictLine(kind=Kind.UNSERVED, sentence=f"{refusal[0].upper()}{refusal[1:]}")
    if summary.get("saturated") == YES:
        return VerdictLine(kind=Kind.OVERLOADED, sentence=_joined(f"Overloaded{_rates(summary)}", without_answer))
    if targets is not None and targets[0]:
        return VerdictLine(kind=Kind.KEPT, sentence=_joined(f"Keeps its targets: {targets[1]}", without_answer))
    if without_answer:
        missed = f"Misses its targets: {targets[1]}" if targets is not None else ""
        return VerdictLine(kind=Kind.UNSERVED, sentence=_joined(without_answer, missed))
    if targets is not None:
        return VerdictLine(kind=Kind.MISSED, sentence=f"Misses its targets: {targets[1]}")
    completed = summary["completed"]
    count = "The request is served" if completed == 1 else f"All {completed:,} requests are served"
    return VerdictLine(kind=Kind.NO_TARGETS, sentence="; ".join([count, *(shares(judged_of(summary))
                                                                           or ["no targets are set"])]))


def first_words(summary: Mapping[str, Any]) -> list[str]:
    """Return lines that stand before all numbers: the engine would not start, or no request is completed."""
    return [*filter(None, [summary.get("would_not_start")]),
            *([unserved(summary)] if summary["completed"] == 0 else [])]


def _targets(summary: Mapping[str, Any]) -> tuple[bool, str] | None:
    """Return whether the targets are met, with the first that decides it in words; None if nothing is asked."""
    verdicts = sentences(judged_of(summary))
    if not verdicts:
        return None
    missed = [text for text, is_met in verdicts if is_met is False]
    return not missed, "; ".join(missed or [text for text, _ in verdicts])


def _rates(summary: Mapping[str, Any]) -> str:
    """Return the rates of arrivals and of served requests in words."""
    offered, served = summary.get("offered_request_rate"), summary.get("served_request_rate")
    if offered is None or served is None:
        return ""
    return f": {offered:,.3g} requests/s arrive, {served:,.3g}/s are served"


def unserved(summary: Mapping[str, Any]) -> str:
    """Return in words which requests have no answer; empty if all have one."""
    cancelled = summary.get("num_cancelled", 0)
    counts = [(count, f"rejected: {_reason(summary, name)}")
              for name, count in summary.get("rejected_by_reason", {}).items()]
    counts += [(summary["failed"] - cancelled, "failed"), (cancelled, "cancelled"),
               (summary["unfinished"], "unfinished")]
    parts = [f"{count:,} {words}" for count, words in sorted(counts, key=lambda each: -each[0]) if count]
    if not parts:
        return ""
    sent = count_text(summary["workload"]["num_requests"], "request")
    return f"{summary['completed']:,} of {sent} served; {'; '.join(parts)}"


def _reason(summary: Mapping[str, Any], name: str) -> str:
    words, place, unit = WHY[name]
    limit = None if place is None else summary[place[0]].get(place[1])
    return words.format("" if limit is None else f" of {limit:,} {unit}".rstrip())


def _joined(*parts: str) -> str:
    return ". ".join(filter(None, parts))
