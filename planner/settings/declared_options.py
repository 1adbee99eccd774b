"""Options of a question, each declared once: the command line and the functions of Python take them from here."""

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def declare(default: Any, meaning: str, *, name: str = "", kind: Any = None,
            read: Callable[[Any], Any] | None = None, is_switch: bool = False) -> Any:
    """Declare a field of a dataclass that is an option of its command.

    Parameters
    ----------
    default : a function that makes one is called for each.
    name, kind : of the option, if they differ from the field's.
    read : returns the field's value from the option's text; without a value given it stays at its default.
    is_switch : whether there is no --no-… for it.
    """
    kept = {"default_factory": default} if callable(default) else {"default": default}
    return field(**kept, metadata={"help": meaning, "name": name, "kind": kind, "read": read, "is_switch": is_switch})


def options_of(kind: type[Any], only: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a dataclass that are options, by the option's name; with `only`, of these fields alone."""
    return {f.metadata["name"] or f.name: f for f in fields(kind) if f.metadata and (not only or f.name in only)}


def chosen(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return a dataclass of options from values by field; texts and paths are read as on the command line.

    A value of None stands for the default.
    """
    declared = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: _value(declared[name], value) for name, value in values.items() if value is not None})


def _value(f: Any, value: Any) -> Any:
    read = f.metadata.get("read")
    if read is None or not isinstance(value, str | Path):
        return value
    return read(Path(value) if f.metadata["kind"] is Path else value)
