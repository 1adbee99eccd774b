"""OpenTelemetry spans of GenAI calls: OTLP JSON and flat spans, by the GenAI, vLLM and OpenInference attributes."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from planner.traces.reader import ENDED, OBJECTS, Head, Reader, Skip, value_at
from planner.traces.turns import with_turns

_COLUMNS = ("arrival_s", ENDED, "request_id", "input_tokens", "output_tokens", "cached_tokens", "max_output_tokens",
            "ttft_s", "e2e_s", "session_id", "tenant", "status")
# Attribute names, the newest convention first; vLLM's and OpenInference's own among them.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", "llm.token_count.prompt_details.cache_read"),
    "max_output_tokens": ("gen_ai.request.max_tokens",),
    "ttft_s": ("gen_ai.response.time_to_first_chunk", "gen_ai.latency.time_to_first_token"),
    "e2e_s": ("gen_ai.latency.e2e",),
    "session_id": ("gen_ai.conversation.id", "session.id", "exgentic.session.id"),
}
_CALLS = ("chat", "text_completion", "generate_content", "completion")
_STARTS = ("startTimeUnixNano", "start_time_unix_nano", "start_time")
_ENDS = ("endTimeUnixNano", "end_time_unix_nano", "end_time")


def _matches(head: Head) -> bool:
    first = head.first
    is_span = "attributes" in first and any(key in first for key in _STARTS)
    return isinstance(first.get("resourceSpans"), list) or _has_spans(first) or is_span


def _has_spans(value: Mapping[str, Any]) -> bool:
    spans = value.get("spans")
    return isinstance(spans, list) and any(isinstance(span, Mapping) and "attributes" in span for span in spans)


def _requests(value: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    for span, resource in _spans(value):
        attributes = _attributes(span.get("attributes"))
        if _is_call(attributes):
            yield _request(span, attributes, _attributes(resource))


def _spans(value: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """Yield the spans of an export with the attributes of their resource."""
    for group in _mappings(value.get("resourceSpans")):
        resource = value_at(group, "resource.attributes")
        for scope in _mappings(group.get("scopeSpans") or group.get("instrumentationLibrarySpans")):
            for span in _mappings(scope.get("spans")):
                yield span, resource
    for span in _mappings(value.get("spans")):
        yield span, span.get("resource_attributes")
    if "attributes" in value:
        yield value, value.get("resource_attributes")


def _mappings(values: Any) -> Sequence[Mapping[str, Any]]:
    return [value for value in values if isinstance(value, Mapping)] if isinstance(values, list) else ()


def _attributes(values: Any) -> dict[str, Any]:
    """Return attributes by name, from a mapping or OTLP's list of keys and typed values."""
    if isinstance(values, Mapping):
        return dict(values)
    return {str(one.get("key")): next(iter(value.values()), None)
            for one in _mappings(values) if isinstance(value := one.get("value"), Mapping)}


def _is_call(attributes: Mapping[str, Any]) -> bool:
    """Tell a model's call from the agent's and tools' spans around it."""
    operation = attributes.get("gen_ai.operation.name")
    if operation is not None:
        return operation in _CALLS
    return any(name in attributes for name in (*_NAMES["input_tokens"], *_NAMES["output_tokens"]))


def _request(span: Mapping[str, Any], attributes: Mapping[str, Any], resource: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: next((attributes[key] for key in keys if attributes.get(key) is not None), None)
              for name, keys in _NAMES.items()}
    return values | {
        "arrival_s": _instant(span, _STARTS),
        ENDED: _instant(span, _ENDS),
        "request_id": span.get("spanId") or span.get("span_id"),
        "tenant": resource.get("service.name"),
        "status": value_at(span, "status.code"),
    }


def _instant(span: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """Return an instant as a date's text, or unchanged if it is no count of nanoseconds."""
    key = next((key for key in keys if span.get(key) is not None), None)
    if key is None or not key.lower().replace("_", "").endswith("unixnano"):
        return None if key is None else span[key]
    text = str(span[key])
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        return text
    seconds, nanoseconds = divmod(int(text), 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{nanoseconds:09d}"


OTEL = Reader(
    name="otel",
    meaning="OpenTelemetry GenAI spans: OTLP JSON, flat spans, vLLM's and OpenInference's attributes",
    layouts=OBJECTS,
    columns={name: name for name in _COLUMNS},
    time="spans' start and end, ns since 1970 or dates; arrivals count from the earliest; latencies in s",
    tokens="the usage that the span carries (gen_ai.usage.*, llm.token_count.*)",
    matches=_matches,
    units={"arrival_s": "date", ENDED: "date"},
    clock="other",
    rows=_requests,
    skips=(Skip(reason="the span's status is an error", where=pl.col("status").is_in(["2", "STATUS_CODE_ERROR"])),),
    finish=with_turns,
)
