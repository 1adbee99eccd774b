"""The answer of `trace describe`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from planner.files.keys import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The description of a trace. A value that does not exist for the trace is null."""

    source: Annotated[str, Key("", "File, sample or database")]
    format: Annotated[str, Key("", "Name of the format")]
    num_requests: Annotated[int, Key("1", "Requests")]
    span_s: Annotated[float, Key("s", "From the first to the last arrival")]
    rates: Annotated[Mapping[str, float | None], Key("1/s", "Mean rates over the span: requests_per_s, "
                                                     "input_tokens_per_s, output_tokens_per_s")]
    burstiness: Annotated[Mapping[str, Any], Key("1", "gap_cv (variation of the gaps), and by the window's length: "
                                                 "dispersion (variance over mean of the counts) and peak_over_mean")]
    lengths: Annotated[Mapping[str, Any], Key("tokens", "Mean, std, min, max and percentiles of input_tokens and "
                                              "output_tokens, which are null without outputs, and their "
                                              "rank_correlation [1]")]
    shape: Annotated[Mapping[str, Any], Key("", "Rate over time: period (day or record), start_s and requests_per_s of "
                                            "each part, peak_over_mean")]
    sharing: Annotated[Mapping[str, Any] | None, Key("", "Tokens that prompts share with earlier ones, and hit rates "
                                                     "by the size of the cache. Null without prefixes")]
    sessions: Annotated[Mapping[str, Any] | None, Key("", "Number, turns and think times. Null without sessions")]
    tenants: Annotated[tuple[Mapping[str, Any], ...] | None, Key("", "Rate and lengths of each tenant. Null "
                                                             "without tenants")]
    anomalies: Annotated[tuple[Mapping[str, Any], ...], Key("", "Oddities, each with its kind and a sentence")]
    assumption: Annotated[str | None, Key("", "How the times of requests that wait for others were found. Null if all "
                                          "times are in the file")]
