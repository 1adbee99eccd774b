"""List prices as text: GPUs of clouds and tokens of hosted APIs, each row with its source and date."""

from collections.abc import Sequence

from planner.catalog.prices import MOST_DAYS, ApiPrice, GpuPrice, is_old, today
from planner.report.text import Grid, Text


def gpu_price_table(prices: Sequence[GpuPrice]) -> Text:
    """Return prices of instances, a row each."""
    rows = [(row.cloud or "–", row.region or "–", row.instance or "–", "any" if row.gpus is None else f"{row.gpus:,}",
             row.gpu, row.term, f"{row.usd_per_hour:,.4g}" if row.usd_per_hour < 1 else f"{row.usd_per_hour:,.2f}",
             f"{row.usd_per_gpu_hour:,.2f}", row.source, _dated(row)) for row in prices]
    return Text([Grid(heads=("cloud", "region", "instance", "GPUs", "gpu", "term", "USD/h", "USD/GPU-hour", "source",
                             "date"), rows=rows, left=(0, 1, 2, 4, 5, 8, 9), notes=_marks(prices))])


def api_price_table(prices: Sequence[ApiPrice]) -> Text:
    """Return prices of hosted APIs in USD per million tokens, a row each."""
    rows = [(row.provider, row.model, row.served_as, f"{row.input:g}",
             "–" if row.cached_input is None else f"{row.cached_input:g}", f"{row.output:g}", row.source, _dated(row))
            for row in prices]
    return Text(["USD per million tokens", Grid(heads=(
        "provider", "model", "served as", "input", "cached input", "output", "source", "date"), rows=rows,
        left=(0, 1, 2, 6, 7), notes=_marks(prices))])


def _dated(row: GpuPrice | ApiPrice) -> str:
    """Return the date of a price, with a star if it is old."""
    return "–" if row.date is None else row.date + "*" * is_old(row.date, today())


def _marks(prices: Sequence[GpuPrice | ApiPrice]) -> tuple[str, ...]:
    old = any(row.date is not None and is_old(row.date, today()) for row in prices)
    return (f"* older than {MOST_DAYS} days",) if old else ()
