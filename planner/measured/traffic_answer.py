"""The answer of `trace from-prometheus`: a server's traffic by its metrics, and the capacities that fit it equally."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from planner.files.keys import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficAnswer:
    """The traffic by a server's metrics, and the capacities that fit it equally."""

    source: Annotated[str, Key("", "File or address")]
    metrics: Annotated[str | None, Key("", "Prefix of the metrics, which names the engine. Null for a file of rates")]
    model_name: Annotated[str | None, Key("", "Model in the labels of the metrics. Null without one")]
    start_s: Annotated[float, Key("s", "Begin, from 1970 if the source has dates")]
    duration_s: Annotated[float, Key("s", "Time that is counted")]
    num_windows: Annotated[int, Key("1", "Windows between two scrapes or steps of the query")]
    window_s: Annotated[float, Key("s", "Median length of a window")]
    scrape_interval_s: Annotated[float | None, Key("s", "Time between two scrapes. Null if it is unknown")]
    num_requests: Annotated[float, Key("1", "Requests")]
    request_rate: Annotated[float, Key("requests/s", "Mean rate")]
    peak_request_rate: Annotated[float, Key("requests/s", "Rate of the busiest window")]
    mean_input_tokens: Annotated[float | None, Key("tokens", "Mean prompt", only="of sources with lengths of prompts")]
    mean_output_tokens: Annotated[float | None, Key("tokens", "Mean output", only="of sources with lengths of outputs")]
    has_histograms: Annotated[Mapping[str, bool], Key("", "Whether the lengths of input and of output have histograms")]
    counts_ends: Annotated[bool, Key("", "Whether finished requests are counted in place of arrivals")]
    cached_share: Annotated[float | None, Key("1", "Prompt tokens that the prefix cache had. Null if not counted")]
    latencies: Annotated[Mapping[str, Any], Key("ms", "Mean, quantiles and their buckets of ttft, tpot, itl and e2el")]
    gauges: Annotated[Mapping[str, Mapping[str, float]], Key("1", "Mean and max of running, waiting and kv_use")]
    notes: Annotated[tuple[str, ...], Key("", "Notes for the reader")]
    drawn: Annotated[str | None, Key("", "The drawn trace in words", only="with --output")] = None
    capacities: Annotated[Mapping[str, float] | None, Key("requests/s", "Capacity as drawn, and by other assumptions "
                                                          "with the same metrics", only="with --slo")] = None
