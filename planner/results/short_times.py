"""Times for a person to read: two or three digits, in the unit that fits."""

MISSING = "–"


def time_text(value_ms: float | None) -> str:
    """Return a time with two or three digits; a dash without one.

    >>> [time_text(value) for value in (0.25, 9.46, 66.383, 999.6, 1240.0, 1368193.6, 7.9e6, None)]
    ['0.25 ms', '9.5 ms', '66 ms', '1.00 s', '1.24 s', '22.8 min', '2.19 h', '–']
    """
    if value_ms is None:
        return MISSING
    if value_ms < 999.5:
        digits = 2 if value_ms < 0.995 else 1 if value_ms < 9.95 else 0
        return f"{value_ms:.{digits}f} ms" if value_ms else "0 ms"
    value, unit = next(((value_ms / unit_ms, unit) for unit_ms, unit, most in (
        (1e3, "s", 120e3), (60e3, "min", 7200e3)) if value_ms < most), (value_ms / 3600e3, "h"))
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
