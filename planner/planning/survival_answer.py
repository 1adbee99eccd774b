"""The answer of `planner size --survive`: the worst failure, the price of surviving it, and the share of a year."""

from dataclasses import dataclass
from typing import Annotated

from planner.files.keys import Key
from planner.planning.missed import Reached


@dataclass(frozen=True, slots=True, kw_only=True)
class YearShare:
    """The share of a year in which a number of replicas meets the objectives."""

    num_replicas: Annotated[int, Key("1", "Replicas")]
    num_units: Annotated[int, Key("1", "Units that they are on")]
    share: Annotated[float, Key("1", "Share of the time in which enough replicas work")]
    missed_minutes_per_year: Annotated[float, Key("min", "Time per year of 8,760 hours in which too few work")]
    cost_usd_per_month: Annotated[float, Key("USD", "Price of the GPUs over 730 hours")]
    saved_minutes_per_year: Annotated[float | None, Key("min", "Time per year that the last replica saves. Null in the "
                                                        "first row")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """A fleet that meets the objectives while a unit of it has failed."""

    unit: Annotated[str, Key("", "Unit that fails: gpu, node or zone")]
    num_units: Annotated[int, Key("1", "Units that hold the replicas")]
    num_failed: Annotated[int, Key("1", "Replicas that the worst unit takes down")]
    num_replicas_without: Annotated[int, Key("1", "Replicas that meet the objectives if nothing fails")]
    more_gpus: Annotated[int, Key("1", "GPUs in addition to a fleet that nothing happens to")]
    more_usd_per_month: Annotated[float, Key("USD", "Price of these GPUs over 730 hours")]
    at_s: Annotated[float, Key("s", "Worst moment that was replayed, on the clock of the load")]
    duration_s: Annotated[float | None, Key("s", "Time until the replicas are back. Null if they do not return")]
    health_check_s: Annotated[float, Key("s", "Time until the router finds out")]
    num_moments: Annotated[int, Key("1", "Moments that were replayed")]
    attainment: Annotated[float, Key("1", "Share of requests within their own limits, with the failure")]
    reached: Annotated[tuple[Reached, ...], Key("", "Each objective with the value that the fleet reaches with the "
                                                "failure")]
    replay_command: Annotated[str | None, Key("", "Command that replays the worst failure. Null if no options of a "
                                              "replay describe the load")]
    year: Annotated[tuple[YearShare, ...], Key("", "Share of a year by number of replicas. Empty without --mtbf and "
                                               "--mttr")]
    sentence: Annotated[str, Key("", "The fleet, its units and the price of survival")]
