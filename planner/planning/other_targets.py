"""Other targets on the loads that a search has tried: between which loads they stop being kept, without a replay."""

from collections.abc import Mapping

from planner.planning.capacity_answer import CapacityAnswer, Probe


def tried_loads(found: CapacityAnswer) -> list[Probe]:
    """Return the loads that a search has tried, in ascending order; none if an earlier release has written it."""
    return [probe for probe in found.probes if probe.statistics_ms is not None]


def kept_up_to(tried: list[Probe], limits_ms: Mapping[str, float],
               attainment: float | None) -> tuple[float | None, float | None]:
    """Return the largest load that keeps other targets with all tried loads below it, and the next larger that misses.

    >>> loads = [Probe(load=rate, attainment=1.0, is_met=True, limiting_metric="ttft",
    ...                statistics_ms={"p99_ttft": 50.0 * rate}) for rate in (1.0, 2.0, 3.0)]
    >>> kept_up_to(loads, {"p99_ttft": 120.0}, None), kept_up_to(loads, {"p99_ttft": 10.0}, None)
    ((2.0, 3.0), (None, 1.0))

    Parameters
    ----------
    limits_ms : by statistic, as `Probe.statistics_ms` names it; a statistic without an end misses any limit [ms].
    attainment : share of requests that must be within the search's own limits; None for none [1].

    Returns
    -------
    tuple
        None in place of a load that was not tried.
    """
    kept = None
    for each in tried:
        values = [((each.statistics_ms or {}).get(name), limit) for name, limit in limits_ms.items()]
        if any(value is None or value > limit for value, limit in values) or each.attainment < (attainment or 0.0):
            return kept, each.load
        kept = each.load
    return kept, None
