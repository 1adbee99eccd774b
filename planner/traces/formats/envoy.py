"""Envoy AI Gateway's access log: one JSON object a request, under its documented names."""

import polars as pl

from planner.traces.reader import ANY, Reader, Skip, has_columns

_NONE = ["-", ""]  # Envoy's text for nothing

ENVOY = Reader(
    name="envoy-ai-gateway",
    meaning="Envoy AI Gateway access logs: start_time, duration (ms), genai_tokens_input, genai_tokens_output",
    layouts=ANY,
    columns={"arrival_s": "start_time", "e2e_s": "duration", "input_tokens": "genai_tokens_input",
             "output_tokens": "genai_tokens_output", "tenant": "route_name", "code": "response_code"},
    also={"tenant": ("genai_model_name",)},
    time="dates (UTC without a time zone); arrivals are start_time, from the earliest; duration in ms",
    tokens="the provider's usage",
    matches=has_columns("start_time", "genai_tokens_input", "genai_tokens_output"),
    units={"start_time": "date", "duration": "ms"},
    clock="other",
    skips=(Skip(reason="response_code is not 2xx", where=~pl.col("code").str.starts_with("2")),
           Skip(reason="no token counts",
                where=pl.col("input_tokens").is_in(_NONE) | pl.col("output_tokens").is_in(_NONE))),
)
