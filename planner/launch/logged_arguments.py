"""The arguments that a server writes into its log as it starts."""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.engines import ENGINES

MOST_LINES = 100_000  # of a script, and of a log up to the values that the engine resolved
QUOTES, OPEN, CLOSED = "'\"", "([{<", ")]}>"
MEMBER = re.compile(r"<\w+\.(\w+): [^<>]*>")  # of an enumeration, as Python writes it
# Names in the line of the resolved config, and the arguments that they are.
RESOLVED = {"max_seq_len": "max_model_len", **{name: name for name in (
    "quantization", "kv_cache_dtype", "tensor_parallel_size", "pipeline_parallel_size")}}
@dataclass(frozen=True, slots=True)
class Logged:
    """The arguments of a server by its log.

    Parameters
    ----------
    engine : whose log it is.
    arguments : by name, with underscores; without arguments that are None.
    version : the server's, if the log has it before them.
    """

    engine: str
    arguments: Mapping[str, Any]
    version: str | None


def read_log(lines: Iterator[str], kept: list[str]) -> Logged | None:
    """Return the arguments in a server's log; None if the lines are no log. Lines before the arguments are kept.

    vLLM writes the arguments that differ from their defaults, SGLang all of them.
    """
    version: str | None = None
    for line in lines:
        for name, engine in ENGINES.items():
            said = engine.dialect.log_version and engine.dialect.log_version.search(line)
            version = said[1] if said else version
            opening, sign = engine.dialect.log_opening or (None, "")
            if opening is not None and opening in line:
                arguments = dict(_arguments(line.partition(opening)[2], sign))
                return _resolved(Logged(name, arguments, version), lines)
        if len(kept) < MOST_LINES:
            kept.append(line)
    return None


def _resolved(logged: Logged, later: Iterator[str]) -> Logged:
    """Return the arguments of a log with the values that the engine resolved, which outrank them."""
    pattern = ENGINES[logged.engine].dialect.log_resolved
    for line in () if pattern is None else itertools.islice(later, MOST_LINES):
        if pattern is not None and (said := pattern.search(line)) is not None:
            values = dict(_arguments(said[2], "="))
            resolved = {RESOLVED[name]: value for name, value in values.items() if name in RESOLVED}
            return replace(logged, arguments={**logged.arguments, **resolved}, version=logged.version or said[1])
    return logged


def _arguments(text: str, sign: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of arguments up to the bracket that closes them."""
    for part in _parts(text):
        name, _, value = part.partition(sign)
        found = _value(value.strip())
        if found is not None:
            yield name.strip(" '\""), found


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between its commas, except commas in brackets and quotes."""
    depth, begin, quote, place = 0, 0, "", 0
    while place < len(text):
        letter = text[place]
        if quote:
            place += letter == "\\"
            quote = "" if letter == quote else quote
        elif letter in QUOTES:
            quote = letter
        elif letter in OPEN:
            depth += 1
        elif letter in CLOSED and depth == 0:
            break
        elif letter in CLOSED:
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[begin:place]
            begin = place + 1
        place += 1
    if text[begin:place].strip():
        yield text[begin:place]


def _value(text: str) -> Any:
    """Return the value of a Python literal, or the text; members of an enumeration are their names.

    >>> _value("{'level': None, 'cudagraph_mode': <CUDAGraphMode.FULL: 2>}")
    {'cudagraph_mode': 'FULL'}
    """
    try:
        return _given(ast.literal_eval(MEMBER.sub(r"'\1'", text)))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _given(value: Any) -> Any:
    """Return a value without the keys that are None, which are the defaults."""
    return {key: _given(each) for key, each in value.items() if each is not None} if isinstance(value, dict) else value
