"""genai-perf's profile_export.json (Triton perf_analyzer): the times of every response, tokens in usage chunks."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.files.nested import parse_json
from planner.traces.reader import ENDED, FIRST_TOKEN, OBJECTS, Head, Reader, value_at

_COLUMNS = ("arrival_s", FIRST_TOKEN, ENDED, "input_tokens", "output_tokens")


def _matches(head: Head) -> bool:
    experiments = head.first.get("experiments")
    return isinstance(experiments, list) and all(isinstance(value_at(one, "requests"), list) for one in experiments)


def _requests(export: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    experiments = export.get("experiments")
    for experiment in experiments if isinstance(experiments, list) else ():
        requests = value_at(experiment, "requests")
        for request in requests if isinstance(requests, list) else ():
            yield _request(request)


def _request(request: Any) -> dict[str, Any]:
    times = value_at(request, "response_timestamps")
    times = times if isinstance(times, list) and times else [None]
    usage = _usage(value_at(request, "response_outputs"))
    return {
        "arrival_s": value_at(request, "timestamp"), FIRST_TOKEN: times[0], ENDED: times[-1],
        "input_tokens": usage.get("prompt_tokens"), "output_tokens": usage.get("completion_tokens"),
    }


def _usage(outputs: Any) -> Mapping[str, Any]:
    """Return the usage that one of the response's chunks carries, the last first; empty if none does."""
    for output in reversed(outputs if isinstance(outputs, list) else []):
        text = value_at(output, "response")
        for line in reversed(text.splitlines() if isinstance(text, str) else []):
            try:
                usage = value_at(parse_json(line.removeprefix("data:")), "usage")
            except ValueError:
                continue
            if isinstance(usage, Mapping):
                return usage
    return {}


GENAI_PERF = Reader(
    name="genai-perf",
    meaning="genai-perf profile_export.json, of servers that report usage (stream_options include_usage)",
    layouts=OBJECTS,
    columns={name: name for name in _COLUMNS},
    time="ns on the client's own clock; arrivals count from the earliest",
    tokens="the server's usage in the responses; without it, a tokenizer would be needed",
    matches=_matches,
    units=dict.fromkeys(("arrival_s", FIRST_TOKEN, ENDED), "ns"),
    clock="other",
    rows=_requests,
)
