"""Dates and times as logs and exports write them, parsed to nanoseconds."""

import polars as pl

NS = 1_000_000_000
# Forms other than ISO 8601, tried in turn on a whole column; a comma before the fraction is a point already.
FORMS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d", "%Y-%m-%d %I:%M:%S%.f %p", "%d/%b/%Y:%H:%M:%S",
         "%a, %d %b %Y %H:%M:%S", "%d %b %Y %H:%M:%S", "%b %d, %Y, %I:%M:%S %p", "%b %d, %Y %H:%M:%S",
         "%b %d, %Y, %H:%M:%S", "%b %d, %Y @ %H:%M:%S%.f",
         "%b %d %Y %H:%M:%S", "%a %b %d %H:%M:%S %Y", "%Y%m%d %H%M%S", "%d.%m.%Y %H:%M:%S%.f",
         "%d.%m.%Y %H:%M", "%d.%m.%Y")
# The day and the month may each be first.
DAY_OR_MONTH = tuple((f"%m/%d/%Y{time}", f"%d/%m/%Y{time}") for time in (
    " %H:%M:%S%.f", ", %H:%M:%S", " %H:%M", " %I:%M:%S %p", ", %I:%M:%S %p", " %I:%M %p", ""))
_OFFSET = r"\d:\d{2}(?:\.\d+)?\s*([+-]\d{2}(?::?\d{2})?)$"


def dates(text: pl.Series) -> pl.Series:
    """Parse dates and times, UTC unless they name an offset, to nanoseconds; null if a cell is none.

    Years that do not fit 64 bits are null, too, as are dates whose day and month cannot be told apart.
    """
    instant = _parsed(text, FORMS[0])
    if instant.null_count() == text.null_count():
        return instant
    plain = (text.str.strip_chars().str.replace(r"(\d)[Tt](\d)", "$1 $2").str.replace(r"\s*(?:[Zz]|UTC|GMT)$", "")
             .str.replace(r"(:\d{2}),(\d)", "$1.$2").str.replace(r"^(\d{4})/(\d{1,2})/", "$1-$2-"))
    offset = plain.str.extract(_OFFSET)
    if offset.null_count() == len(offset):
        return _best(plain)
    digits = offset.str.replace(":", "")
    minutes = digits.str.slice(1, 2).cast(pl.Int64, strict=False) * 60
    minutes += digits.str.slice(3, 2).cast(pl.Int64, strict=False).fill_null(0)
    ahead = (minutes * (1 - 2 * offset.str.starts_with("-").cast(pl.Int64))).fill_null(0)
    plain = plain.str.replace(r"\s*[+-]\d{2}(:?\d{2})?$", "").zip_with(offset.is_not_null(), plain)
    return (_best(plain).to_physical() - ahead * 60 * NS).cast(pl.Datetime("ns"))


def _best(text: pl.Series) -> pl.Series:
    """Parse with the form that fits most cells; the first of several."""
    best = _parsed(text, FORMS[0])
    for form in FORMS[1:]:
        if best.null_count() == text.null_count():
            return best
        best = min(best, _parsed(text, form), key=lambda instant: instant.null_count())
    for forms in DAY_OR_MONTH:
        month_first, day_first = (_parsed(text, form) for form in forms)
        if month_first.null_count() == day_first.null_count() == text.null_count() and text.null_count() < len(text):
            apart = (day_first - month_first).drop_nulls()
            return month_first if apart.n_unique() == 1 else best  # on one day, either gives the same times
        best = min(best, month_first, day_first, key=lambda instant: instant.null_count())
    return best


def _parsed(text: pl.Series, form: str) -> pl.Series:
    """Parse one form to nanoseconds; Azure's files have seven fractional digits."""
    instant = text.str.to_datetime(form, time_unit="us", strict=False) if "%H" not in form and "%I" not in form else (
        text.str.to_datetime(form, time_unit="ns", strict=False))
    if form == FORMS[0]:  # the years must fit 64 bits
        fits = text.is_between(pl.Series(["1970"]), pl.Series(["2262"]), closed="left")
        return instant if fits.all() else instant.zip_with(fits.fill_null(False),
                                                           pl.Series([None], dtype=instant.dtype))
    return instant.cast(pl.Datetime("ns"), strict=False)
