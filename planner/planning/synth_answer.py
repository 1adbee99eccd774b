"""The answer of `trace synth`: the workload model, the drawn trace and their closeness."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from planner.files.keys import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """The workload model, the drawn trace and their closeness."""

    name: Annotated[str, Key("", "Name of the model")]
    meaning: Annotated[str, Key("", "Traffic that it describes")]
    source: Annotated[str, Key("", "Trace that it was fitted to, or its origin")]
    duration_s: Annotated[float, Key("s", "Time that it describes")]
    rate_per_s: Annotated[float, Key("requests/s", "Mean rate")]
    num_numbers: Annotated[int, Key("1", "Numbers that describe it")]
    tenants: Annotated[tuple[Mapping[str, Any], ...], Key("", "Name, rate, arrival process, epochs, kinds of requests "
                                                          "and the processes that were tried, of each tenant")]
    closeness: Annotated[Mapping[str, Any] | None, Key("", "Statistics of drawn traces beside the recorded ones, and "
                                                       "predictions with a deployment", only="with --fit")] = None
    drawn: Annotated[str | None, Key("", "The drawn trace in words", only="with --output")] = None
