"""Numbers of things, and shares of them, in words."""

import math

_MOST_DIGITS = 6  # after the point, of two numbers that would read alike


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one.

    >>> count_text(1, "request"), count_text(2000, "request")
    ('1 request', '2,000 requests')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def does_text(number: int, noun: str, verb: str) -> str:
    """Return a number with its noun and a verb that fits it.

    >>> does_text(1, "request", "wait"), does_text(2000, "request", "wait")
    ('1 request waits', '2,000 requests wait')
    """
    return f"{count_text(number, noun)} {verb}{'s' * (number == 1)}"


def share_text(share: float, other: float | None = None) -> str:
    """Return a share in per cent with one digit after the point, or as many as set it apart from all and from nothing.

    Parameters
    ----------
    share : [1].
    other : another share that it is set apart from, such as the required one [1].

    >>> share_text(0.9312), share_text(0.99996), share_text(1.0)
    ('93.1 %', '99.996 %', '100 %')
    >>> share_text(0.931, 0.99), share_text(0.98999, 0.99), share_text(0.9998, 0.99)
    ('93.1 %', '98.999 %', '99.98 %')
    """
    value = 100.0 * share
    if math.isclose(value, round(value), rel_tol=1e-12):
        return f"{value:.0f} %"
    others = (100.0 * round(share), None if other is None else 100.0 * other)
    return f"{value:.{max(digits_apart(value, number, 1) for number in others)}f} %"


def figure_text(value: float) -> str:
    """Return a number with four digits, from 1,000 on as a whole number.

    >>> figure_text(24410.3), figure_text(3.14159), figure_text(0.5)
    ('24,410', '3.142', '0.5')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def change_text(change: float) -> str:
    """Return a change as a signed share in per cent, or as a factor if a value grew tenfold or more.

    >>> change_text(0.0512), change_text(-0.3), change_text(66.5)
    ('+5.1 %', '-30.0 %', '67.5 ×')
    """
    return f"{1 + change:,.3g} ×" if change >= 9 else f"{100 * change:+.1f} %"


def digits_apart(value: float, other: float | None, least: int) -> int:
    """Return how many digits after the point two numbers need so that they do not read alike."""
    if other is None or value == other:
        return least
    return next((digits for digits in range(least, _MOST_DIGITS) if round(value, digits) != round(other, digits)),
                _MOST_DIGITS)
