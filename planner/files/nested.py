"""JSON and TOML of users: text nested deeper than Python can follow is a ValueError, as is text in neither format."""

import json
import tomllib
from collections.abc import Callable
from typing import Any


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Parse JSON; `options` and errors are the same as of `json.loads`.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ValueError: nested too deep
    """
    return _checked(lambda: json.loads(text, **options))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; errors are the same as of `tomllib.loads`."""
    table: dict[str, Any] = _checked(lambda: tomllib.loads(text))
    return table


def _checked(parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except RecursionError:
        raise ValueError("nested too deep") from None
