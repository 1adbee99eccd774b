"""Growth of the rate: what a fleet needs after each month, and when it must grow."""

from dataclasses import dataclass
from typing import Annotated

from planner.files.keys import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """A month with its own number of replicas."""

    month: Annotated[int, Key("1", "Month: 0 is the rate of today, and the rate of month m is that at its end")]
    rate_rps: Annotated[float, Key("requests/s", "Rate")]
    num_replicas: Annotated[int | None, Key("1", "Replicas, with spares. Null if no number was found")]
    num_gpus: Annotated[int | None, Key("1", "GPUs, with spares. Null if there is no number")]
    cost_usd_per_month: Annotated[float | None, Key("USD", "Price of the GPUs over 730 hours. Null if there is no "
                                                    "number")]
    must_grow: Annotated[bool, Key("", "Whether it takes more GPUs than the month before")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The months of the cheapest kind under a growth."""

    growth: Annotated[str, Key("", "Growth as it was asked for")]
    factor_per_month: Annotated[float, Key("1", "Factor of the rate from month to month")]
    months: Annotated[tuple[Month, ...], Key("", "Months in order")]
    total_usd: Annotated[float | None, Key("USD", "Price of the GPUs over months 1 to the last. Null if a month has no "
                                           "number")]
    sentence: Annotated[str, Key("", "When the fleet must grow, and to what")]
