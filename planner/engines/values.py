"""Values of launch commands: read from their text, refused with the flag's name, and written back."""

import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from planner.errors import UsageError
from planner.files.nested import parse_json

Read = Callable[[str, Any], Any]  # of a flag and its value: a text, or a value of a YAML or JSON file

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SCALED = re.compile(r"(\d+(?:\.\d+)?)([kmgt])|(\d+)([KMGT])")
_UNIT = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT])(i?)[bB]")


def whole(flag: str, value: Any) -> int:
    """Return a whole number, as Python's int reads it: 1_024 is 1,024."""
    if type(value) is int or (isinstance(value, float) and value.is_integer()):
        return int(value)
    try:
        return int(str(value))
    except ValueError:
        number = _scaled(str(value))
        hint = "" if number is None else f"; this flag has no suffixes: write {number}"
        raise _refused(flag, value, f"a whole number{hint}") from None


def scaled(flag: str, value: Any) -> int:
    """Return a whole number that may have a suffix: 25.6k is 25,600 and 32K is 32,768.

    Source: `human_readable_int` of vLLM and SGLang, which read few flags so.
    """
    if (number := _scaled(str(value))) is not None:
        return number
    if unit := _UNIT.fullmatch(str(value)):
        letter = unit[2].upper() if unit[3] else unit[2].lower()
        raise _refused(flag, value, f"a whole number, or one with a suffix: write {unit[1]}{letter}")
    return whole(flag, value)


def _scaled(text: str) -> int | None:
    """Return the number of a text with a suffix; None if it has none, or the number is not whole."""
    if (match := _SCALED.fullmatch(text)) is None:
        return None
    number = Fraction(match[1] or match[3]) * (_DECIMAL | _BINARY)[match[2] or match[4]]
    return int(number) if number.denominator == 1 else None


def from_one_on(read: Read) -> Read:
    """Return a reader of a whole number from 1 on: a limit below, with which no engine starts, is none of its own."""
    def positive(flag: str, value: Any) -> int:
        count: int = read(flag, value)
        if count < 1:
            raise _refused(flag, value, "a whole number from 1 on")
        return count

    return positive


positive = from_one_on(whole)


def scaled_or_auto(flag: str, value: Any) -> int:
    """Return a whole number that may have a suffix; "auto" is -1, as in vLLM."""
    return -1 if str(value).lower() == "auto" else scaled(flag, value)


def largest(flag: str, value: Any) -> int:
    """Return the largest of a list of whole numbers: several words, of a file, or as JSON."""
    try:
        sizes = parse_json(value) if isinstance(value, str) and value.startswith("[") else value
    except ValueError as error:
        raise _refused(flag, value, "a list of whole numbers") from error
    if isinstance(sizes, str | int):
        sizes = [sizes]
    if not isinstance(sizes, list) or not sizes:
        raise _refused(flag, value, "a list of whole numbers")
    return max(whole(flag, one) for one in sizes)


def number(flag: str, value: Any) -> float:
    """Return a number."""
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise _refused(flag, value, "a number") from error


def text(flag: str, value: Any) -> str:
    """Return a text as it is."""
    return str(value)


def listed_json(flag: str, value: Any) -> str:
    """Return a list as JSON; a text is taken as it is."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def truth(flag: str, value: Any) -> bool:
    """Return a truth value, as files have it."""
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise _refused(flag, value, "true or false")


def one_of(choices: Mapping[str, Any]) -> Read:
    """Return a reader of one of several words, in capitals or not, as the meaning of each."""
    known = {word.lower(): meaning for word, meaning in choices.items()}

    def read(flag: str, value: Any) -> Any:
        if str(value).lower() not in known:
            raise _refused(flag, value, f"one of {', '.join(choices)}, which are modelled")
        return known[str(value).lower()]

    return read


def table(flag: str, value: Any) -> dict[str, Any]:
    """Return a JSON object, or a mapping as it is."""
    if isinstance(value, dict):
        return value
    try:
        parsed = parse_json(str(value))
    except ValueError as error:
        is_quoted = "'" in str(value)
        hint = "; write its names and texts in double quotes, and the whole in single quotes" if is_quoted else ""
        raise UsageError(f"{flag} {value}: is not JSON: {error}{hint}") from error
    if not isinstance(parsed, dict):
        raise _refused(flag, value, "a JSON object")
    return parsed


def limits(flag: str, value: Any) -> dict[str, int]:
    """Return how many items of each kind a prompt may have: a JSON object, or vLLM's older `image=1,video=0`.

    >>> limits("--limit-mm-per-prompt", '{"image": 0, "video": {"count": 1}}'), limits("", "image=2")
    ({'image': 0, 'video': 1}, {'image': 2})
    """
    pairs = re.findall(r"(\w+)=(\d+)", value) if isinstance(value, str) else []
    parts = dict(pairs) or table(flag, value)
    counts = {name: part.get("count", 1) if isinstance(part, dict) else part for name, part in parts.items()}
    return {name: whole(f"{flag}.{name}", count) for name, count in counts.items()}


def _refused(flag: str, value: Any, wanted: str) -> UsageError:
    hint = "; put the variable's value in its place" if "$" in str(value) else ""
    return UsageError(f"{flag} {value}: must be {wanted}{hint}")
