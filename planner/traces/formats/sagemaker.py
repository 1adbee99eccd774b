"""SageMaker Data Capture: JSONL with the bodies of requests and responses, usage inside."""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.files.nested import parse_json
from planner.traces.reader import OBJECTS, Head, Reader, value_at


def _matches(head: Head) -> bool:
    return value_at(head.first, "eventMetadata.inferenceTime") is not None and "captureData" in head.first


def _requests(capture: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    answer, question = (_body(value_at(capture, f"captureData.{end}")) for end in ("endpointOutput", "endpointInput"))
    yield {
        "request_id": value_at(capture, "eventMetadata.eventId"),
        "arrival_s": value_at(capture, "eventMetadata.inferenceTime"),
        "input_tokens": value_at(answer, "usage.prompt_tokens"),
        "output_tokens": value_at(answer, "usage.completion_tokens"),
        "cached_tokens": value_at(answer, "usage.prompt_tokens_details.cached_tokens"),
        "max_output_tokens": value_at(question, "max_tokens"),
    }


def _body(end: Any) -> Any:
    """Return a captured body as an object; None if it is none."""
    text, encoding = value_at(end, "data"), value_at(end, "encoding")
    if not isinstance(text, str):
        return None
    try:
        return parse_json(base64.b64decode(text) if str(encoding).upper() == "BASE64" else text)
    except ValueError:
        return None


SAGEMAKER = Reader(
    name="sagemaker",
    meaning="SageMaker Data Capture JSONL, of endpoints that report usage",
    layouts=OBJECTS,
    columns={name: name for name in ("request_id", "arrival_s", "input_tokens", "output_tokens", "cached_tokens",
                                     "max_output_tokens")},
    time="dates to whole seconds; arrivals are inferenceTime, from the earliest",
    tokens="the container's usage",
    matches=_matches,
    units={"arrival_s": "date"},
    clock="other",
    rows=_requests,
)
