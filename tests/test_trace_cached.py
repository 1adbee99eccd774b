"""Cached prompt tokens: counted apart from the prompt, or contained in it; and ignored keys of nested rows."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from planner.traces import Trace

AT = "2026-11-01T10:00:00Z"
APART = "cached tokens are counted apart: the prompt is"
CONTAINED = "is read as cached_tokens, which"


@pytest.mark.parametrize(("usage", "tokens", "note"), [
    ({"input_tokens": 4, "cache_creation_input_tokens": 12000, "cache_read_input_tokens": 8000, "output_tokens": 310},
     (20004, 8000), APART),
    ({"input_tokens": 4, "cache_read_input_tokens": 8000, "output_tokens": 310,
      "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 20}}, (8124, 8000), APART),
    ({"inputTokens": 4, "cacheReadInputTokens": 100, "cacheWriteInputTokens": 50, "outputTokens": 5},
     (154, 100), APART),
    ({"inputTokens": 4, "cacheReadTokens": 100, "cacheCreationTokens": None, "outputTokens": 5}, (104, 100), APART),
    ({"prompt_tokens": 400, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 300}},
     (400, 300), CONTAINED),
    ({"input_tokens": 400, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 300}}, (400, 300), CONTAINED),
    ({"prompt_tokens": 400, "completion_tokens": 5, "cache_read_input_tokens": 300, "total_tokens": 405},
     (400, 300), CONTAINED),
    ({"input_tokens": 400, "output_tokens": 5, "cache_read_input_tokens": 300, "total_tokens": 405},
     (400, 300), CONTAINED),  # the total proves it
    ({"prompt_tokens": 40, "completion_tokens": 5, "cache_read_tokens": 300}, (340, 300), APART),  # so do the values
])
def test_both_conventions_of_cached_tokens_are_read(read: Callable[..., Trace], usage: Mapping[str, Any],
                                                    tokens: tuple[int, int], note: str) -> None:
    prompt, output = (next(key for key in usage if key.startswith(names)) for names in (
        ("input", "prompt"), ("output", "completion")))
    spec = f"columns,arrival_s=at,input_tokens=usage.{prompt},output_tokens=usage.{output}"
    for text in (json.dumps({"at": AT, "usage": usage}) + "\n", json.dumps([{"at": AT, "usage": usage}], indent=1)):
        trace = read(text, format=spec)
        assert trace.requests.select("input_tokens", "cached_tokens").rows() == [tokens]
        assert any(note in line for line in trace.account.notes)


def test_thoughts_of_gemini_are_part_of_the_output(read: Callable[..., Trace]) -> None:
    """`totalTokenCount` is the sum of the prompt, the candidates and the thoughts."""
    usage = {"promptTokenCount": 2000, "candidatesTokenCount": 100, "thoughtsTokenCount": 500, "totalTokenCount": 2600}
    trace = read("\n".join(json.dumps({"at": AT, "usageMetadata": part}) for part in (
        usage, {"promptTokenCount": 20, "candidatesTokenCount": 7, "totalTokenCount": 27})))
    assert trace.requests["output_tokens"].to_list() == [600, 7]
    assert any("thoughts are counted apart" in note for note in trace.account.notes)


def test_columns_of_a_table_are_added_too(read: Callable[..., Trace]) -> None:
    trace = read("arrival_s,input_tokens,cache_read_input_tokens,cache_creation_input_tokens,output_tokens\n"
                 "0,4,8000,,310\n1,4,,12000,310\n")
    assert trace.requests["input_tokens"].to_list() == [8004, 12004]
    assert trace.requests["cached_tokens"].to_list() == [8000, None]


def test_ignored_keys_of_nested_rows_are_named(read: Callable[..., Trace]) -> None:
    row = {"arrival_s": 0, "model": "m", "usage": {"prompt": 5, "completion": 2, "audio": 1, "details": {"tier": "x"}}}
    trace = read(json.dumps(row), format="columns,input_tokens=usage.prompt,output_tokens=usage.completion")
    assert trace.account.ignored_columns == ("model", "usage.audio", "usage.details.tier")
