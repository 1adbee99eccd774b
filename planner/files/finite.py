"""Numbers out of files that floats can hold: JSON and TOML have integers of any size, NaN and infinity."""

import math
from typing import Any, TypeGuard

LARGE = 1e300  # beyond any time and any count, in any unit; sums and products of a few less do not overflow


def is_number(value: Any) -> TypeGuard[int | float]:
    """Tell whether a value is a number that one can reckon with; a truth value is none.

    >>> [is_number(value) for value in (1, 0.5, True, "1", float("nan"), 10**400)]
    [True, True, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGE


def number_in(text: str) -> float:
    """Return the number that a text writes, or NaN if it writes none.

    >>> [number_in(text) for text in ("2.5", "inf", "two")]
    [2.5, inf, nan]
    """
    try:
        return float(text)
    except ValueError:
        return math.nan


def is_numeral(text: str) -> bool:
    """Tell whether a text is written as a number.

    >>> [is_numeral(text) for text in ("1", "-2.5e3", "nan", "arrival_s", "")]
    [True, True, True, False, False]
    """
    try:
        float(text)
    except ValueError:
        return False
    return True
