"""The verdict on a replay in one line: its overload, its requests without an answer, its targets."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from planner.files.counts import count_text
from planner.results.saturation import YES
from planner.results.summary_answer import Saturation, Summary
from planner.settings.judged import Judged, sentences, shares

WHY = {  # requests that were rejected, by reason, and the option that limits them
    "too_long": ("longer than the context{}", "max_model_len", "tokens"),
    "token_budget": ("prompt above max_num_batched_tokens{}, not split", "max_num_batched_tokens", ""),
    "kv_cache": ("larger than the KV cache{}", "num_gpu_blocks", "blocks"),
    "queue_full": ("the queue was full{}", "", ""),
    "quota": ("over the tenant's quota{}", "", ""),
    "no_replica": ("no replica was available{}", "", ""),
}


class VerdictKind(Enum):
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

    kind: VerdictKind
    sentence: str


def verdict_line(summary: Summary) -> VerdictLine:
    """Return the verdict on a replay."""
    figures, without_answer = summary.figures, unserved(summary)
    targets = _targets(figures.objectives)
    if (refusal := summary.would_not_start) is not None:
        return VerdictLine(kind=VerdictKind.UNSERVED, sentence=f"{refusal[0].upper()}{refusal[1:]}")
    if figures.saturation.saturated == YES:
        return VerdictLine(kind=VerdictKind.OVERLOADED,
                           sentence=_joined(f"Overloaded{_rates(figures.saturation)}", without_answer))
    if targets is not None and targets[0]:
        return VerdictLine(kind=VerdictKind.KEPT, sentence=_joined(f"Keeps its targets: {targets[1]}", without_answer))
    if without_answer:
        missed = f"Misses its targets: {targets[1]}" if targets is not None else ""
        return VerdictLine(kind=VerdictKind.UNSERVED, sentence=_joined(without_answer, missed))
    if targets is not None:
        return VerdictLine(kind=VerdictKind.MISSED, sentence=f"Misses its targets: {targets[1]}")
    count = "The request is served" if figures.completed == 1 else f"All {figures.completed:,} requests are served"
    return VerdictLine(kind=VerdictKind.NO_TARGETS, sentence="; ".join([count, *(shares(figures.objectives)
                                                                           or ["no targets are set"])]))


def first_words(summary: Summary) -> list[str]:
    """Return lines that stand before all numbers: the engine would not start, or no request is completed."""
    return [*filter(None, [summary.would_not_start]),
            *([unserved(summary)] if summary.figures.completed == 0 else [])]


def _targets(judged: Sequence[Judged]) -> tuple[bool, str] | None:
    """Return whether the targets are met, with the first that decides it in words; None if nothing is asked."""
    verdicts = sentences(judged)
    if not verdicts:
        return None
    missed = [text for text, is_met in verdicts if is_met is False]
    return not missed, "; ".join(missed or [text for text, _ in verdicts])


def _rates(found: Saturation) -> str:
    """Return the rates of arrivals and of served requests in words."""
    offered, served = found.offered_request_rate, found.served_request_rate
    if offered is None or served is None:
        return ""
    return f": {offered:,.3g} requests/s arrive, {served:,.3g}/s are served"


def unserved(summary: Summary) -> str:
    """Return in words which requests have no answer; empty if all have one."""
    figures = summary.figures
    counts = [(count, f"rejected: {_reason(summary, name)}")
              for name, count in (figures.rejected_by_reason or {}).items()]
    counts += [(figures.failed - figures.num_cancelled, "failed"), (figures.num_cancelled, "cancelled"),
               (figures.unfinished, "unfinished")]
    parts = [f"{count:,} {words}" for count, words in sorted(counts, key=lambda each: -each[0]) if count]
    if not parts:
        return ""
    sent = count_text(summary.workload["num_requests"], "request")
    return f"{figures.completed:,} of {sent} served; {'; '.join(parts)}"


def _reason(summary: Summary, name: str) -> str:
    words, option, unit = WHY[name]
    limit = {**summary.deployment, **summary.policy}.get(option)
    return words.format("" if limit is None else f" of {limit:,} {unit}".rstrip())


def _joined(*parts: str) -> str:
    return ". ".join(filter(None, parts))
