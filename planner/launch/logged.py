"""A launch that stands in a file: the command in a script, or the arguments that a server wrote into its log."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.engines import ENGINES
from planner.errors import UsageError
from planner.traces.source import text_lines

QUOTES, OPEN, CLOSED = "'\"", "([{<", ")]}>"


@dataclass(frozen=True, slots=True)
class Logged:
    """What a server's log says that it was launched with.

    Parameters
    ----------
    engine : whose log it is.
    arguments : by name, with underscores; without those that are None.
    version : the server's, where the log has it before them.
    """

    engine: str
    arguments: Mapping[str, Any]
    version: str | None


def file_of(command: str) -> Path | None:
    """Return the path that stands in place of a launch command; None where it is none of a file."""
    try:
        path = Path(command)
        return path if path.is_file() or path.is_fifo() else None
    except (OSError, ValueError):  # too long for a path, or no path at all
        return None


def read_file(path: Path, begins: Callable[[str], bool]) -> Logged | str:
    """Read a launch out of a file: a server's arguments, or the line of a script that launches one.

    vLLM writes the arguments that differ from their defaults, SGLang all of them.

    Parameters
    ----------
    begins : tells whether a line launches an engine.

    Raises
    ------
    UsageError : it has neither.
    """
    whole, version = "", None
    for _, line in text_lines(path):
        for name, engine in ENGINES.items():
            said = engine.dialect.log_version and engine.dialect.log_version.search(line)
            version = said[1] if said else version
            if engine.dialect.log_opening is None:
                continue
            opening, sign = engine.dialect.log_opening
            _, found, rest = line.partition(opening)
            if found:
                return Logged(name, dict(_arguments(rest, sign)), version)
        whole += line.removesuffix("\\")
        if line.endswith("\\"):
            continue
        if begins(whole):
            return whole
        whole = ""
    raise UsageError(f"--from-command {path}: launches no engine that is known; give a script with vllm serve, python "
                     f"-m sglang.launch_server or trtllm-serve in it, or a server's log from its beginning")


def _arguments(text: str, sign: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of what stands up to the bracket that closes it."""
    for part in _parts(text):
        name, _, value = part.partition(sign)
        found = _value(value.strip())
        if found is not None:
            yield name.strip(" '\""), found


def _parts(text: str) -> Iterator[str]:
    """Yield what stands between commas, those inside brackets and quotes aside."""
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
    """Return what Python reads of a text, or the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
