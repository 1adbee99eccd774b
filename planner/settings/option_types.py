"""Types of an option's values, from its annotation, and the error for a wrong value."""

import types
import typing
from collections.abc import Sequence
from typing import Any

from planner.errors import UsageError
from planner.files.keys import WORDS


def types_in(hint: Any) -> list[Any]:
    """Return the types of an annotation's values, without None.

    >>> types_in(int | float | None)
    [<class 'int'>, <class 'float'>]
    """
    kinds = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    return [kind for kind in kinds if kind is not types.NoneType]


def of_no_type(option: str, value: Any, kinds: Sequence[Any]) -> UsageError:
    """Return the error that a value has none of its option's types, and is none of its choices."""
    wanted = " or ".join(", ".join(map(str, typing.get_args(kind))) or WORDS[kind] for kind in kinds)
    return UsageError(f"{option} = {value!r}: must be {wanted}")
