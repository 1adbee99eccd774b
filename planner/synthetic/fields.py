"""A workload's tables made into dataclasses: exactly their fields, and numbers in range."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from planner.errors import UnknownNameError, UsageError

_T = TypeVar("_T")


def fill(cls: type[_T], table: Any, where: str) -> _T:
    """Make a dataclass of a table that has exactly its fields; lists become tuples.

    Raises
    ------
    UnknownNameError, UsageError : a key is unknown, or one without a default is missing; or as the dataclass raises.
    """
    given = dict(table or {}) if isinstance(table, Mapping | None) else _no_table(table, where)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    names = [field.name for field in fields]
    for key in given:
        if key not in names:
            raise UnknownNameError(f"key in {where}", key, names)
    missing = [field.name for field in fields if field.default is dataclasses.MISSING and field.name not in given]
    if missing:
        raise UsageError(f"{where} lacks {', '.join(missing)}")
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})


def _no_table(table: Any, where: str) -> dict[str, Any]:
    raise UsageError(f"{where} = {table!r}; must be a table")


def positive(name: str, *values: Any) -> None:
    """Raise UsageError where a value is no finite number above 0."""
    for value in values:
        if not _is_number(value) or not 0 < value < float("inf"):
            raise UsageError(f"{name} = {value!r}; must be a number, finite and > 0")


def not_negative(name: str, *values: Any) -> None:
    """Raise UsageError where a value is no finite number from 0 on."""
    for value in values:
        if not _is_number(value) or not 0 <= value < float("inf"):
            raise UsageError(f"{name} = {value!r}; must be a number, finite and >= 0")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
