"""JSON and TOML of users: what is nested deeper than Python can follow is a ValueError, as what is neither is."""

import json
import tomllib
from collections.abc import Callable
from typing import Any


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Parse JSON; `options` are those of `json.loads`, and so are errors.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ValueError: nested too deep
    """
    return _checked(lambda: json.loads(text, **options))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; errors are those of `tomllib.loads`."""
    found: dict[str, Any] = _checked(lambda: tomllib.loads(text))
    return found


def _checked(parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except RecursionError:
        raise ValueError("nested too deep") from None
