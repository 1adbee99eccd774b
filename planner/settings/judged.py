"""Verdicts in words: each objective with the value that was reached, and the sentence that says so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from planner.files.counts import digits_apart, share_text
from planner.files.keys import Key
from planner.settings.slo import DEADLINE
from planner.settings.statistic import LABELS, parse_statistic

ATTAINMENT = "attainment"  # name of the verdict on the share of requests within all of their own limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One objective, with the value that was reached."""

    name: Annotated[str, Key("", 'In the grammar, "ttft" or "p99_ttft"; "deadline" for the trace\'s; "attainment" for '
                             "the share of requests within all of their limits")]
    limit: Annotated[float | None, Key("ms", 'Of "attainment" the share that is asked for [1]. Null if requests have '
                                       "limits of their own")]
    value: Annotated[float | None, Key("ms", "Of a statistic, null without one; of the others the share of requests "
                                       "within the limit [1]")]
    unit: Annotated[str, Key("", 'Of the value, "ms" or "1"')]
    is_met: Annotated[bool | None, Key("", "Null if no share of requests is asked for")]


def sentences(judged: Sequence[Judged]) -> list[tuple[str, bool | None]]:
    """Return each verdict in words, with whether it is met.

    There is one for each statistic and, if a share of requests is asked for, one for their limits together.

    >>> sentences([Judged(name="p99_ttft", limit=1000.0, value=1240.0, unit="ms", is_met=False)])
    [('p99 TTFT 1,240 ms of 1,000 ms allowed', False)]
    """
    asked = next((one for one in judged if one.name == ATTAINMENT), None)
    texts = [(_share_sentence(_of_requests(judged), asked), asked.is_met)] if asked is not None else []
    return [*texts, *((_statistic_sentence(one), one.is_met) for one in judged if one.unit == "ms")]


def shares(judged: Sequence[Judged]) -> list[str]:
    """Return in words the share of requests within each of their own limits.

    >>> shares([Judged(name="ttft", limit=500.0, value=0.998, unit="1", is_met=None)])
    ['99.8 % of the requests keep TTFT within 500 ms']
    """
    return [f"{share_text(one.value or 0.0)} of the requests keep {_limits([one])}"
            for one in _of_requests(judged)]


def _of_requests(judged: Sequence[Judged]) -> list[Judged]:
    return [one for one in judged if one.unit == "1" and one.name != ATTAINMENT]


def judged_of(tenant: Mapping[str, Any]) -> list[Judged]:
    """Return the verdicts in the figures of a tenant; one without objectives of its own has none."""
    return [Judged(**row) for row in tenant.get("objectives", ())]


def missed_sentence(judged: Sequence[Judged], unanswered: float) -> str:
    """Return in words which objectives are missed, and by how much; empty if none is.

    Parameters
    ----------
    unanswered : share of requests that were never answered [1].
    """
    missed = "; ".join(text for text, is_met in sentences(judged) if is_met is False)
    if not missed or unanswered == 0:
        return missed
    return (f"{missed}; {share_text(unanswered)} of the requests are never answered: too long for --max-model-len "
            f"or the KV cache, turned away, cancelled or unfinished")


def _share_sentence(ones: Sequence[Judged], asked: Judged) -> str:
    value, required = asked.value or 0.0, asked.limit or 1.0
    text = f"{share_text(value, required)} of the requests keep {_limits(ones)}, {share_text(required, value)} required"
    worst = min(ones, key=lambda one: one.value or 0.0)
    return text if len(ones) == 1 or value == 1 else f"{text}; {LABELS[worst.name]} is missed most"


def _limits(ones: Sequence[Judged]) -> str:
    """Return the limits of requests in words: first the limits that all share, then each request's own."""
    parts = [f"{LABELS[one.name]} within {one.limit:,.12g} ms" for one in ones if one.limit is not None]
    parts += [f"{LABELS[one.name]} within their tenant's limit" for one in ones
              if one.limit is None and one.name != DEADLINE]
    parts += ["their deadline"] * any(one.name == DEADLINE for one in ones)
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _statistic_sentence(judged: Judged) -> str:
    statistic = parse_statistic(judged.name)
    assert statistic is not None, judged
    assert judged.limit is not None, judged
    allowed = f"{_number(judged.limit, judged.value)} ms allowed"
    if judged.value is not None:
        return f"{statistic.label} {_number(judged.value, judged.limit)} ms of {allowed}"
    return f"{statistic.label} {'has no end' if judged.is_met is False else 'of no request'}, {allowed}"


def _number(value: float, other: float | None) -> str:
    """Write a number of milliseconds with as many digits as set it apart from another.

    >>> _number(1240.0, 1000.0), _number(1000.04, 1000.0)
    ('1,240', '1,000.04')
    """
    if value == round(value):
        return f"{value:,.0f}"
    return f"{value:,.{digits_apart(value, other, 0 if value >= 100 else 1)}f}"
