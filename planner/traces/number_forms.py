"""Numbers as spreadsheets and reports write them: separators of thousands and decimal commas, if a column agrees."""

import re
from collections.abc import Iterator

import polars as pl

from planner.schema import TRACE_COLUMNS

WHOLE = {column.name for column in TRACE_COLUMNS if column.dtype == "int"} | {"num_requests"}
NUMERIC = {column.name for column in TRACE_COLUMNS if column.dtype != "str"} | {"num_requests"}
# A separator of thousands and a decimal sign. An apostrophe is Swiss, a narrow space French.
FORMS = (("", ","), (",", "."), (".", ","), (" ", ","), (" ", "."), ("\u00a0", ","), ("\u202f", ","), ("'", "."),
         ("\u2019", "."), ("_", "."))
SEPARATED = re.compile(r"^[+-]?\d[\d.,'_ \u00a0\u202f\u2019]*\d$")
GROUPED = re.compile(r"^[+-]?\d{1,3}(\.\d{3})+$")
DOTS = "thousands '.', decimals ','"
REMEDY = "write numbers without separators of thousands and with a decimal point"


def plain_numbers(table: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, str]]:
    """Rewrite the columns of numbers that agree on one form with separators; and return the form of each, in words.

    A column that fits several forms with different values stays as it is.
    """
    forms = {}
    for name in NUMERIC.intersection(table.columns):
        text = table[name]
        if text.dtype != pl.String or not _needs_form(name, text):
            continue
        readings = list(_readings(text.str.strip_chars(), is_whole=name in WHOLE))
        if readings and all(values.equals(readings[0][1]) for _, values in readings):
            form, values = readings[0]
            forms[name] = form
            table = table.with_columns(values.cast(pl.String).alias(name))
    if DOTS in forms.values():  # 62.000 beside 1.248.000 is no 62
        for name in WHOLE.intersection(table.columns) - forms.keys():
            if table[name].dtype == pl.String and table[name].str.contains(r"^\d{1,3}(\.\d{3})*$").all():
                forms[name] = DOTS
                table = table.with_columns(pl.col(name).str.replace_all(".", "", literal=True))
    return table, forms


def _needs_form(name: str, text: pl.Series) -> bool:
    value = text.cast(pl.Float64, strict=False)
    if value.null_count() > text.null_count():
        return True
    return name in WHOLE and bool((value != value.floor()).any())


def _readings(text: pl.Series, *, is_whole: bool) -> Iterator[tuple[str, pl.Series]]:
    for thousands, decimal in FORMS:
        mark, groups = re.escape(decimal), rf"\d{{1,3}}(?:{re.escape(thousands)}\d{{3}})*" if thousands else r"\d+"
        digits = r"(?:\d{1,2}|\d{4,})" if is_whole else r"\d+"  # three digits of a whole number are thousands
        fits = text.str.contains(rf"^[+-]?{groups}(?:{mark}{digits})?$") | (text == "")
        if not fits.fill_null(True).all():
            continue
        plain = text.str.replace_all(thousands, "", literal=True) if thousands else text
        values = plain.str.replace(decimal, ".", literal=True).cast(pl.Float64, strict=False)
        if not is_whole or (values == values.floor()).fill_null(True).all():
            yield f"thousands {thousands!r}, decimals {decimal!r}" if thousands else f"decimals {decimal!r}", values
