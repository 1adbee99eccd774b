"""Tokens counted apart: cached tokens beside a prompt or in it, and Gemini's thoughts beside an output."""

import dataclasses
import re
from collections.abc import Sequence

from planner.files.finite import is_number
from planner.traces.reader import PART, THOUGHTS, Head, Reader, value_at

_READ = re.compile(r"^(usage)?(input)?(tokens)?(prompt)?cacheread(input|prompt)?(tokens?|tokencount)?$")
_WRITTEN = re.compile(
    r"^(usage)?(input)?(tokens)?(prompt)?cache(creation|write)(input|prompt)?(tokens?|tokencount)?(5m|1h)?$")
_WRITTEN_DEEPER = re.compile(r"cache_?creation\.ephemeral_(5m|1h)_input_tokens$", re.IGNORECASE)
_UNCACHED = ("inputtokens", "inputtokencount", "input", "uncachedinputtokens", "usageinputtokensnocache",
             "inputtokensnocache")  # names beside which cached tokens are counted apart
_CONTAINED = ("promptcachehittokens", "cachedcontenttokencount", "inputcachedtokens", "cachedtokens",
              "cachedinputtokens", "cachedprompttokens")
_DETAILS = ("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens",
            "input_token_details.cache_read", "prompt_tokens_details.cached_tokens")


def with_cached_parts(head: Head, reader: Reader) -> Reader:
    """Return a reader that adds cached tokens to prompts if the file counts them apart, and that reads their number.

    Hosted APIs of Anthropic and Amazon Bedrock, and agents on them, count `cache_read_input_tokens` and
    `cache_creation_input_tokens` beside `input_tokens`. OpenAI's `prompt_tokens` contain their cached tokens.
    """
    reader = _with_thoughts(head, reader)
    prompt = reader.columns.get("input_tokens", "")
    at = len(prompt) - len(prompt.rpartition(".")[2])
    siblings = [path for path in head.paths if path.startswith(prompt[:at]) and path != prompt]
    beside = [path for path in siblings if "." not in path[at:]]
    read = [path for path in beside if _READ.match(_plain(path[at:]))]
    written = ([path for path in beside if _WRITTEN.match(_plain(path[at:]))]
               or [path for path in siblings if _WRITTEN_DEEPER.search(path)])
    parts = [*read[:1], *written]
    if parts and _are_apart(head, prompt, parts):
        return _with_parts(reader, prompt, parts, read[:1])
    contained = ([prompt[:at] + path for path in _DETAILS if prompt[:at] + path in siblings] or read
                 or [path for path in beside if _plain(path[at:]) in _CONTAINED])
    if "cached_tokens" in reader.columns or not contained:
        return reader
    note = f"{contained[0]} is read as cached_tokens, which {prompt} contains"
    return dataclasses.replace(reader, columns={**reader.columns, "cached_tokens": contained[0]},
                               notes=(*reader.notes, note))


def _with_thoughts(head: Head, reader: Reader) -> Reader:
    """Return a reader that adds Gemini's thoughts, which the count of candidates lacks, to outputs."""
    output = reader.columns.get("output_tokens", "")
    thoughts = re.sub("candidates", "thoughts", output)
    if thoughts == output or thoughts not in head.paths:
        return reader
    return dataclasses.replace(reader, columns={**reader.columns, THOUGHTS: thoughts}, notes=(
        *reader.notes, f"thoughts are counted apart: the output is {output} + {thoughts}"))


def _with_parts(reader: Reader, prompt: str, parts: Sequence[str], read: Sequence[str]) -> Reader:
    columns = {**reader.columns, **{f"{PART}{k}": path for k, path in enumerate(parts)}}
    known = ""
    if read and "cached_tokens" not in columns:
        columns["cached_tokens"] = read[0]
        known = f"; {read[0]} is read as cached_tokens, the known prefix"
    note = f"cached tokens are counted apart: the prompt is {' + '.join((prompt, *parts))}{known}"
    return dataclasses.replace(reader, columns=columns, notes=(*reader.notes, note))


def _are_apart(head: Head, prompt: str, parts: Sequence[str]) -> bool:
    """Tell whether a prompt's count lacks the parts: by values that prove it, else by the names."""
    at = prompt.rpartition(".")
    prefix = at[0] + at[1]
    for record in head.objects:
        count, *cached = (value_at(record, path) for path in (prompt, *parts))
        total, output = (_first(record, prefix, names) for names in (
            ("total_tokens", "totalTokens"),
            ("output_tokens", "completion_tokens", "outputTokens", "completionTokens")))
        amounts = [value for value in cached if is_number(value)]
        if not is_number(count) or not sum(amounts):
            continue
        if is_number(total) and is_number(output) and total in (count + output, count + sum(amounts) + output):
            return bool(total > count + output)
        if max(amounts) > count:
            return True
    return _plain(at[2]) in _UNCACHED


def _first(record: object, prefix: str, names: Sequence[str]) -> object:
    return next((value for name in names if (value := value_at(record, prefix + name)) is not None), None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
