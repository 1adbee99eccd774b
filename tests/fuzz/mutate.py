"""Malformed inputs: a valid one with bytes, numbers or parts of its JSON changed."""

import json
import random
import re
from typing import Any

TEXTS = (b"", b"-1", b"0", b"nan", b"inf", b"-inf", b"1e400", b"1e-400", b"99999999999999999999999", b"0.5", b"null",
         b"true", b"{}", b"[]", b'"', b"''", b"\\", b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\n",
         b"\r\n", b",", b";", b"\t", b":", b"=", b"[[", b"]]", b"2026-02-30T25:61:61Z", b"1969-12-31 23:59:59",
         b"9999-12-31T23:59:59.999999999+99:99", b"\xf0\x9f\x99\x82", b"9" * 400, b"[" * 300, b'{"a":' * 300)
VALUES: tuple[Any, ...] = (None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, 10**30, -(10**30), 2**63, 2**64,
                           float("nan"), float("inf"), "", "x", "-", "NaN", "1e999", "\ud800", "\x00", "a" * 300,
                           [], {}, [[]], [None], [1, "a", None, 1.5], {"a": 1}, [{}], "2026-01-01", "{",
                           '{"a":', 10**5000)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(rb"[A-Za-z_][A-Za-z_0-9]*")


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return an input with one to four changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(MUTATIONS)(data, rng)
    return data[:1_000_000]


def cut(data: bytes, rng: random.Random) -> bytes:
    """Return the beginning of an input."""
    return data[: rng.randrange(len(data) + 1)]


def _byte(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + rng.randrange(2):]


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(TEXTS) + data[at:]


def _remove(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.randrange(1, 30):]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    at, end = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    return data[:end] + data[at:end] * rng.randrange(1, 4) + data[end:]


def _number(data: bytes, rng: random.Random) -> bytes:
    return _replaced(data, _NUMBER, rng)


def _word(data: bytes, rng: random.Random) -> bytes:
    return _replaced(data, _WORD, rng)


def _replaced(data: bytes, pattern: re.Pattern[bytes], rng: random.Random) -> bytes:
    found = list(pattern.finditer(data))
    if not found:
        return data
    one = rng.choice(found)
    return data[: one.start()] + rng.choice(TEXTS) + data[one.end():]


def _line(data: bytes, rng: random.Random) -> bytes:
    parts = data.split(b"\n")
    at = rng.randrange(len(parts))
    parts.insert(rng.randrange(len(parts) + 1), parts.pop(at))
    return b"\n".join(parts)


def _json(data: bytes, rng: random.Random) -> bytes:
    """Change one node of the document, or of one of the lines."""
    parts = [data] if rng.random() < 0.5 else data.split(b"\n")
    at = rng.randrange(len(parts))
    try:
        value = json.loads(parts[at])
    except (ValueError, RecursionError):  # an earlier change nested it too deep
        return _number(data, rng)
    try:
        parts[at] = json.dumps(_changed(value, rng)).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):  # a number with too many digits to print
        return data
    return b"\n".join(parts)


def _changed(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        if rng.random() < 0.12:
            return {name: each for name, each in value.items() if name != key}
        return value | {key: _changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        return [*value[:at], _changed(value[at], rng), *value[at + 1:]]
    return rng.choice((*VALUES, [value], {"a": value}))


MUTATIONS = (cut, _byte, _insert, _remove, _repeat, _number, _number, _word, _line, _json, _json, _json)
