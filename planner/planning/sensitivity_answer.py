"""Sensitivity of a fleet's size: the effect of each assumption, changed both ways, on the GPUs and on the choice."""

from dataclasses import dataclass
from typing import Annotated

from planner.files.keys import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The chosen kind under one changed assumption, and the kind that is cheapest then."""

    change: Annotated[str, Key("", "Change, as in +20 %")]
    num_gpus: Annotated[int | None, Key("1", "GPUs of the chosen kind. Null if no number up to eight times as many "
                                        "replicas meets the objectives")]
    cost_usd_per_hour: Annotated[float | None, Key("USD/h", "Price of these GPUs. Null if there is no number")]
    cheapest: Annotated[str, Key("", "Cheapest fleet in words; none if none of the compared kinds meets the "
                                 "objectives")]
    cheapest_usd_per_hour: Annotated[float | None, Key("USD/h", "Its price. Null if there is none")]
    is_flipped: Annotated[bool, Key("", "Whether another kind than the chosen one is the cheapest")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """One assumption, changed both ways."""

    assumption: Annotated[str, Key("", "Assumption")]
    low: Annotated[Changed | None, Key("", "The change that makes the load lighter or the price lower. Null if there "
                                       "is none")]
    high: Annotated[Changed | None, Key("", "The change the other way. Null if there is none")]
    span_usd_per_hour: Annotated[float | None, Key("USD/h", "Range of the chosen kind's price. Null if a change leaves "
                                                   "it without a fleet")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """The assumptions that the choice of the cheapest fleet depends on."""

    chosen: Annotated[str, Key("", "Cheapest fleet in words")]
    num_gpus: Annotated[int, Key("1", "Its GPUs")]
    cost_usd_per_hour: Annotated[float, Key("USD/h", "Its price, without power")]
    compared: Annotated[tuple[str, ...], Key("", "Other kinds that were sized under each change")]
    swings: Annotated[tuple[Swing, ...], Key("", "Assumptions, the largest span first")]
    break_even: Annotated[float | None, Key("1", "Growth of the chosen GPU's price until another GPU is cheaper. Null "
                                            "if no other GPU is compared")]
    sentence: Annotated[str, Key("", "Which assumptions flip the choice or the number of GPUs")]
