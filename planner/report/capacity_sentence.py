"""A capacity in one sentence, and its confidence in another."""

from planner.planning.capacity_answer import CapacityAnswer
from planner.settings.statistic import LABELS, parse_statistic


def capacity_sentence(found: CapacityAnswer) -> str:
    """Return the capacity, its multiple of the traffic's rate, and the objective that gives way next."""
    then = f"then {limit_words(found.limiting_metric)} gives way"
    if found.is_rate:
        unit = found.unknown.unit.replace("/s", " per second")
        return f"{found.capacity:,.3g} {unit}, {found.rate_scale:,.2g} × the traffic; {then}."
    return (f"{found.capacity:,} {found.unknown.unit}, at {found.request_throughput or 0.0:,.3g} requests per second; "
            f"{then}.")


def confidence_sentence(found: CapacityAnswer) -> str:
    """Return how sure the capacity is, from other windows of the traffic and errors of the step times; empty without.

    `Confidence` has the quantiles.
    """
    sure = found.confidence
    if sure is None:
        return ""
    return (f"It is at least {sure.p10:,.3g} {found.unknown.unit} with 90 % confidence, and at least {sure.p50:,.3g} "
            f"with 50 %, by other windows of the traffic and the errors of the step times.")


def limit_words(name: str) -> str:
    """Return an objective in words.

    >>> limit_words("p99_tpot"), limit_words("ttft")
    ('p99 TPOT', 'TTFT')
    """
    statistic = parse_statistic(name)
    return LABELS.get(name, name) if statistic is None else f"{name.partition('_')[0]} {LABELS[statistic.metric]}"
