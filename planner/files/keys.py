"""Keys of an answer's JSON: the fields of a dataclass, written as plain values by `asdict` and read by `fromdict`."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Key:
    """The content of a key.

    Parameters
    ----------
    unit : of its numbers; "1" of counts and shares, empty of everything else.
    meaning : in words.
    only : the answers that have the key, in words; in others its value is None and it is left out. Empty: all.
    names : names of the key by the answer's field `of`. If the name is empty, the answer lacks the key, and the field
        has a default. In other answers the key has the field's name.
    """

    unit: str
    meaning: str
    only: str = ""
    names: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """A part whose keys stand among the whole's; of a mapping, keys that vary.

    A later key of the whole takes the place of a key of the part with the same name. If the part is None, its keys
    are null.

    Parameters
    ----------
    meaning : of a mapping's keys, in words; of a part that several fields have, the words for {} in its keys' meanings.
    only : the answers that have the part's keys, in words; in others the part is None and they are left out.
    keys : names of the part's keys in the whole, with {} for the name of each in the part.
    """

    meaning: str = ""
    only: str = ""
    keys: str = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A field with its type and its declaration."""

    name: str
    hint: Any
    note: Key | Spread
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether the field has no default."""
        return self.default is MISSING

    def key(self, of: str) -> str:
        """Return the name of the key in an answer with this value of `of`; empty if the answer lacks the key."""
        names = self.note.names if isinstance(self.note, Key) else None
        return self.name if names is None else names.get(of, self.name)


_KNOWN: dict[type, tuple[Declared, ...]] = {}  # each kind is looked at once


def declared(kind: type) -> tuple[Declared, ...]:
    """Return the fields of a dataclass of keys, in order."""
    if kind not in _KNOWN:
        hints = get_type_hints(kind, include_extras=True)
        declarations = []
        for f in fields(kind):
            assert get_origin(hints[f.name]) is Annotated, f"{kind.__name__}.{f.name} has no Key"
            hint, note = get_args(hints[f.name])
            declarations.append(Declared(name=f.name, hint=hint, note=note, default=f.default))
        _KNOWN[kind] = tuple(declarations)
    return _KNOWN[kind]


def parts_of(hint: Any) -> list[Any]:
    """Return the dataclasses in a type, in its items and values too.

    >>> parts_of(tuple[int, ...])
    []
    """
    return [hint] if is_dataclass(hint) else [part for argument in get_args(hint) for part in parts_of(argument)]


def asdict(answer: Any, of: str = "") -> dict[str, Any]:
    """Return a dataclass of keys as plain values for JSON, its keys in the order of its fields.

    Parameters
    ----------
    of : field `of` of the whole, for a part.
    """
    values: dict[str, Any] = {}
    of = getattr(answer, "of", of)
    for field in declared(type(answer)):
        value, key = getattr(answer, field.name), field.key(of)
        if isinstance(field.note, Spread):
            values |= dict.fromkeys(_nulls(field)) if value is None else {
                field.note.keys.format(name): item for name, item in _plain(value, of).items()}
        elif key and (value is not None or not field.note.only):
            values[key] = _plain(value, of)
    return values


def _nulls(field: Declared) -> list[str]:
    """Return the keys that stand with null for a part that is None."""
    return [] if field.note.only else list(_required(field))


def _plain(value: Any, of: str) -> Any:
    if is_dataclass(value):
        return asdict(value, of)
    if isinstance(value, Mapping):
        return {key: _plain(item, of) for key, item in value.items()}
    return [_plain(item, of) for item in value] if isinstance(value, list | tuple) else value


def _required(field: Declared) -> Iterator[str]:
    """Yield the keys that a field always has; of a part, the part's."""
    if isinstance(field.note, Key):
        if field.is_required and not field.note.only:
            yield field.name
        return
    for part in [] if get_origin(field.hint) is Mapping else parts_of(field.hint):
        for inner in declared(part):
            yield from map(field.note.keys.format, _required(inner))


def fromdict(kind: type[T], values: Any, where: str = "", of: str = "") -> T:
    """Return a dataclass of keys from plain values, as `asdict` returns them; other keys are ignored.

    Parameters
    ----------
    where : the key that holds the values, for errors.
    of : as of `asdict`.

    Raises
    ------
    ValueError : a key is missing, or its value has another type.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where or kind.__name__}: must be an object")
    of = next((str(values.get("of", field.default)) for field in declared(kind) if field.name == "of"), of)
    names = {field.key(of) for field in declared(kind) if isinstance(field.note, Key)}
    return kind(**{field.name: _field(field, values, names, where, of) for field in declared(kind)})


def _field(field: Declared, values: Mapping[str, Any], names: set[str], where: str, of: str) -> Any:
    """Return the value of a field; `names` are the keys of the whole itself."""
    key = field.key(of)
    path = f"{where}.{key}" if where else key
    if not key:
        return field.default
    if isinstance(field.note, Key):
        if key not in values and field.is_required:
            raise ValueError(f"{path}: is missing")
        return _parsed(field.hint, values.get(key, None if field.is_required else field.default), path, of)
    needed, (begin, end) = set(_required(field)), field.note.keys.split("{}")
    others = {name.removeprefix(begin).removesuffix(end): value for name, value in values.items()
              if name not in names - needed and name.startswith(begin) and name.endswith(end)}
    alone = needed - names
    is_absent = bool(alone) and all(name not in values if field.note.only else values.get(name) is None
                                    for name in alone)
    return None if is_absent and NoneType in get_args(field.hint) else _parsed(field.hint, others, where, of)


def _parsed(hint: Any, value: Any, where: str, of: str) -> Any:
    """Return a plain value as a type has it."""
    if hint is Any:
        return value
    if get_origin(hint) in (Union, UnionType):
        return _of_union(get_args(hint), value, where, of)
    if is_dataclass(hint):
        return fromdict(hint, value, where, of)  # type: ignore[arg-type]
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{where}: must be a list")
        return tuple(_parsed(get_args(hint)[0], item, f"{where}[{place}]", of) for place, item in enumerate(value))
    if get_origin(hint) is Mapping:
        if not isinstance(value, Mapping):
            raise ValueError(f"{where}: must be an object")
        return {key: _parsed(get_args(hint)[1], item, f"{where}.{key}", of) for key, item in value.items()}
    if not isinstance(value, (int, float) if hint is float else hint) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{where} = {value!r}: must be {WORDS[hint]}")
    return value


def _of_union(hints: tuple[Any, ...], value: Any, where: str, of: str) -> Any:
    """Return a value as the first type of a union whose keys it has."""
    if value is None and NoneType in hints:
        return None
    kinds = [hint for hint in hints if hint is not NoneType]
    for kind in kinds[:-1]:
        if is_dataclass(kind) and isinstance(value, Mapping) and all(
                name in value for field in declared(kind) for name in _required(field)):  # type: ignore[arg-type]
            return _parsed(kind, value, where, of)
    return _parsed(kinds[-1], value, where, of)
