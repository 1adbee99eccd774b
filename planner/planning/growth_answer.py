"""Growth of the rate: the size that a fleet needs after each month, and when it must grow."""

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
    must_grow: Annotated[bool, Key("", "Whether it takes more GPUs of the same kind than the month before")]
    gpu: Annotated[str | None, Key("", "GPU")] = None
    tensor_parallel_size: Annotated[int | None, Key("1", "GPUs that share each layer")] = None
    quantization: Annotated[str | None, Key("", "Weight format")] = None
    is_change: Annotated[bool | None, Key("", "Whether the kind of replica is not that of the month before")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The cheapest path over the months of a growth."""

    growth: Annotated[str, Key("", "Growth as it was asked for")]
    factor_per_month: Annotated[float, Key("1", "Factor of the rate from month to month")]
    months: Annotated[tuple[Month, ...], Key("", "Months in order")]
    total_usd: Annotated[float | None, Key("USD", "Price of the GPUs over months 1 to the last, with the changes of "
                                           "kind. Null if a month has no number")]
    change_cost_usd: Annotated[float, Key("USD", "Cost of a change of kind (--change-cost)")] = 0.0
    kept_total_usd: Annotated[float | None, Key("USD", "Price over the same months if the kind that is cheapest today "
                                                "stays. Null if a month has no number")] = None
    cheaper_from_month: Annotated[int | None, Key("1", "First month in which another kind costs less than the kind "
                                                  "that is cheapest today. Null if none does")] = None
    sentence: Annotated[str, Key("", "When the fleet must grow or change, and to what")]
