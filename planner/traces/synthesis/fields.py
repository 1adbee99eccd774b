"""A workload's tables made into dataclasses: exactly their fields, and numbers in range."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from planner.errors import UnknownNameError, UsageError
from planner.schema import MAX_SECONDS, MAX_TOKENS

_T = TypeVar("_T")

SMALLEST = 1e-9
MOST_REQUESTS = 1e9


def fill(cls: type[_T], table: Any, where: str) -> _T:
    """Make a dataclass of a table that has exactly its fields; lists become tuples.

    Raises
    ------
    UnknownNameError, UsageError : a key is unknown, or one without a default is missing; or as the dataclass raises.
    """
    values = dict(table or {}) if isinstance(table, Mapping | None) else _no_table(table, where)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    names = [field.name for field in fields]
    for key in values:
        if key not in names:
            raise UnknownNameError(f"key in {where}", key, names)
    missing = [field.name for field in fields if field.default is dataclasses.MISSING and field.name not in values]
    if missing:
        raise UsageError(f"{where} lacks {', '.join(missing)}")
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})


def _no_table(table: Any, where: str) -> dict[str, Any]:
    raise UsageError(f"{where} = {table!r}; must be a table")


def positive(name: str, *values: Any) -> None:
    """Raise UsageError if a value is no number above 0, or one that no second, rate or share can be."""
    for value in values:
        if not _is_number(value) or not 0 < value < float("inf"):
            raise UsageError(f"{name} = {value!r}; must be a number, finite and > 0")
        if not SMALLEST <= value <= MAX_SECONDS:
            raise UsageError(f"{name} = {value!r}; must be from {SMALLEST:g} to {MAX_SECONDS:g}")


def not_too_many(rate_per_s: float, duration_s: float) -> None:
    """Raise UsageError if a rate over a duration makes more requests than memory can hold."""
    if rate_per_s * duration_s > MOST_REQUESTS:
        raise UsageError(f"{rate_per_s:g} requests/s over {duration_s:g} s are {rate_per_s * duration_s:.3g} requests; "
                         f"must be <= {MOST_REQUESTS:g}")


def not_negative(name: str, *values: Any) -> None:
    """Raise UsageError if a value is no finite number from 0 on."""
    for value in values:
        if not _is_number(value) or not 0 <= value < float("inf"):
            raise UsageError(f"{name} = {value!r}; must be a number, finite and >= 0")


def whole(name: str, value: Any, *, least: int = 1, most: int = MAX_TOKENS) -> None:
    """Raise UsageError if a value is no whole number within bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{name} = {value!r}; must be a whole number from {least} to {most}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
