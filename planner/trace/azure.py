"""The Azure LLM inference traces of 2023, 2024 and 2025: wall-clock arrivals and token counts as CSV."""

import polars as pl

from planner.trace.reader import Head, Reader

_COLUMNS = {"arrival_s": "TIMESTAMP", "input_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"}
_OTHER_SHAPES = (r"[Tt]", " "), (r"\s*([Zz]|\+00:?00)$", "")  # ISO 8601's T and the mark of UTC, which all times are in


def _matches(head: Head) -> bool:
    return head.layout == "csv" and set(_COLUMNS.values()) <= set(head.columns)


def _native(raw: pl.DataFrame) -> pl.DataFrame:
    text = raw["arrival_s"]
    instant = _instants(text)
    if instant.null_count() > text.null_count():
        plain = text.str.strip_chars()
        for pattern, replacement in _OTHER_SHAPES:
            plain = plain.str.replace(pattern, replacement)
        instant = _instants(plain)
    return raw.with_columns(instant.alias("arrival_s"))


def _instants(text: pl.Series) -> pl.Series:
    """Parse to nanoseconds: the files have seven fractional digits. Years that do not fit 64 bits become null."""
    fits = text.is_between(pl.Series(["1970"]), pl.Series(["2262"]), closed="left")
    instant = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="ns", strict=False)
    return instant if fits.all() else instant.zip_with(fits.fill_null(False), pl.Series([None], dtype=instant.dtype))


AZURE = Reader(
    name="azure",
    meaning="Azure LLM inference traces (2023, 2024, 2025): TIMESTAMP,ContextTokens,GeneratedTokens",
    layout="csv",
    columns=_COLUMNS,
    matches=_matches,
    native=_native,
    block_tokens=None,
    exact_ids=False,
)
