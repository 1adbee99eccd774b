"""How far a fleet's size rests on the draw of its strata: the same fleet, sized for other draws."""

from planner.errors import UsageError
from planner.planning.alternatives import fewest_near
from planner.planning.fleets import Kind, spare_replicas
from planner.planning.loads import StrataTraffic, Traffic
from planner.planning.search_options import Choices
from planner.progress import in_parallel, later
from planner.settings.objectives import Objectives

DRAWS = 2
MOST_STRATA = 1_000  # with this number, each has 400 requests


def check_strata(choices: Choices) -> None:
    """Raise UsageError if the number of strata does not fit."""
    count = choices.num_strata
    if count is None:
        return
    if choices.series is None:
        raise UsageError(f"--strata {count}: needs --rate-series, whose rates it stands for")
    if not 2 <= count <= MOST_STRATA:
        raise UsageError(f"--strata {count}: must be from 2 to {MOST_STRATA:,}")


def strata_notes(traffic: Traffic, kind: Kind, count: int, objectives: Objectives, choices: Choices) -> tuple[str, ...]:
    """Return a sentence with the replicas that other draws of the strata need; nothing without strata.

    Parameters
    ----------
    count : replicas, without spares, that the first draw needs [1].
    """
    if not isinstance(traffic, StrataTraffic):
        return ()
    calls = [later(_needed)(traffic, number, kind, count, objectives, choices) for number in range(1, DRAWS + 1)]
    needed = in_parallel("sizing for other draws of the strata", calls, len(calls), choices.jobs)
    spares = spare_replicas(choices, kind.divided)
    numbers = " and ".join("more than were tried" if each is None else f"{each + spares:,}" for each in needed)
    return (f"{DRAWS} other draws of the {len(traffic.strata_rps):,} strata need {numbers} replicas; this draw needs "
            f"{count + spares:,}",)


def _needed(traffic: StrataTraffic, number: int, kind: Kind, count: int, objectives: Objectives,
            choices: Choices) -> int | None:
    sized = fewest_near(traffic.drawn_again(number), kind, objectives, choices, count)
    return None if sized is None else sized.count
