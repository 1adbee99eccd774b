"""Keys of an answer's JSON: the fields of a dataclass, written as plain values by `asdict` and read by `fromdict`."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Key:
    """What a key holds.

    Parameters
    ----------
    unit : of its numbers; "1" of counts and shares, empty of everything else.
    meaning : in words.
    only : where the key is written, in words; elsewhere its value is None and it is left out. Empty: everywhere.
    """

    unit: str
    meaning: str
    only: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """A part whose keys stand among those of the whole; of a mapping, keys that vary.

    A later key of the whole takes the place of a key of the part with the same name. Where the part is None, its keys
    are null.

    Parameters
    ----------
    meaning : of a mapping's keys, in words.
    only : where the part's keys are written, in words; elsewhere the part is None and they are left out.
    """

    meaning: str = ""
    only: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A field with its type and what is declared of it."""

    name: str
    hint: Any
    note: Key | Spread
    is_required: bool


_KNOWN: dict[type, tuple[Declared, ...]] = {}  # each kind is looked at once


def declared(kind: type) -> tuple[Declared, ...]:
    """Return the fields of a dataclass of keys, in order."""
    if kind not in _KNOWN:
        hints = get_type_hints(kind, include_extras=True)
        found = []
        for f in fields(kind):
            assert get_origin(hints[f.name]) is Annotated, f"{kind.__name__}.{f.name} has no Key"
            hint, note = get_args(hints[f.name])
            found.append(Declared(name=f.name, hint=hint, note=note, is_required=f.default is MISSING))
        _KNOWN[kind] = tuple(found)
    return _KNOWN[kind]


def parts_of(hint: Any) -> list[Any]:
    """Return the dataclasses in a type, those of its items and values too.

    >>> parts_of(tuple[int, ...])
    []
    """
    return [hint] if is_dataclass(hint) else [part for each in get_args(hint) for part in parts_of(each)]


def asdict(answer: Any) -> dict[str, Any]:
    """Return a dataclass of keys as plain values for JSON, its keys in the order of its fields."""
    found: dict[str, Any] = {}
    for each in declared(type(answer)):
        value = getattr(answer, each.name)
        if isinstance(each.note, Spread):
            found |= dict.fromkeys(_nulls(each)) if value is None else _plain(value)
        elif value is not None or not each.note.only:
            found[each.name] = _plain(value)
    return found


def _nulls(each: Declared) -> list[str]:
    """Return the keys that stand with null for a part that is None."""
    return [] if each.note.only else list(_required(each))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _required(each: Declared) -> Iterator[str]:
    """Yield the keys that a field always has; of a part, the part's."""
    if isinstance(each.note, Key):
        if each.is_required and not each.note.only:
            yield each.name
        return
    for part in [] if get_origin(each.hint) is Mapping else parts_of(each.hint):
        for inner in declared(part):
            yield from _required(inner)


def fromdict(kind: type[T], values: Any, where: str = "") -> T:
    """Return a dataclass of keys from plain values, as `asdict` returns them; other keys are ignored.

    Parameters
    ----------
    where : the key that holds the values, for errors.

    Raises
    ------
    ValueError : a key is missing, or its value is of another type.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where or kind.__name__}: must be an object")
    names = {each.name for each in declared(kind) if isinstance(each.note, Key)}
    return kind(**{each.name: _field(each, values, names, where) for each in declared(kind)})


def _field(each: Declared, values: Mapping[str, Any], names: set[str], where: str) -> Any:
    """Return the value of a field; `names` are the keys of the whole itself."""
    path = f"{where}.{each.name}" if where else each.name
    if isinstance(each.note, Key):
        if each.name not in values and each.is_required:
            raise ValueError(f"{path}: is missing")
        return _parsed(each.hint, values.get(each.name), path)
    needed = set(_required(each))
    others = {key: value for key, value in values.items() if key not in names - needed}
    own = needed - names
    is_absent = bool(own) and all(others.get(name) is None for name in own)
    return None if is_absent and NoneType in get_args(each.hint) else _parsed(each.hint, others, where)


def _parsed(hint: Any, value: Any, where: str) -> Any:
    """Return a plain value as a type has it."""
    if hint is Any:
        return value
    if get_origin(hint) in (Union, UnionType):
        return _of_union(get_args(hint), value, where)
    if is_dataclass(hint):
        return fromdict(hint, value, where)  # type: ignore[arg-type]
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{where}: must be a list")
        return tuple(_parsed(get_args(hint)[0], each, f"{where}[{place}]") for place, each in enumerate(value))
    if get_origin(hint) is Mapping:
        if not isinstance(value, Mapping):
            raise ValueError(f"{where}: must be an object")
        return {key: _parsed(get_args(hint)[1], each, f"{where}.{key}") for key, each in value.items()}
    if not isinstance(value, (int, float) if hint is float else hint) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{where} = {value!r}: must be {WORDS[hint]}")
    return value


def _of_union(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    """Return a value as the first type of a union whose keys it has."""
    if value is None and NoneType in hints:
        return None
    kinds = [hint for hint in hints if hint is not NoneType]
    for kind in kinds[:-1]:
        if is_dataclass(kind) and isinstance(value, Mapping) and all(
                name in value for each in declared(kind) for name in _required(each)):  # type: ignore[arg-type]
            return _parsed(kind, value, where)
    return _parsed(kinds[-1], value, where)
