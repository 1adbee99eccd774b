"""List prices as text: GPUs of clouds and tokens of hosted APIs, each row with its source and date."""

from collections.abc import Sequence

from planner.catalog.prices import MOST_DAYS, ApiPrice, GpuPrice, is_old, today
from planner.planning.size_answer import ApiCost, SizeAnswer
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


def price_words(result: SizeAnswer) -> list[str]:
    """Return the prices and the instances of the cheapest fleet; nothing without a fleet."""
    best = result.cheapest
    if best is None:
        return []
    gpus = {name for gpu in (best.kind.gpu, best.kind.decode_gpu) if gpu for name in (gpu, gpu.partition(":")[0])}
    texts = [f"{_named(row)} {row.usd_per_hour:,.2f} USD/h ({row.source}{f', {row.date}' if row.date else ''})"
             for row in result.prices if row.term == "on demand" and row.gpu in gpus]
    return [f"prices on demand: {'; '.join(texts)}", *([f"instances: {best.instances}"] if best.instances else [])]


def _named(row: GpuPrice) -> str:
    place = f" in {row.cloud} {row.region}" if row.cloud else ""
    return f"{row.instance} of {row.gpus} × {row.gpu}{place}" if row.gpus else f"{row.gpu}{place}"


def api_rows(result: SizeAnswer) -> list[str | Grid]:
    """Return the cheapest fleet beside hosted APIs, a row each; nothing if none were asked for."""
    rows, best = result.apis, result.cheapest
    if not rows or best is None:
        return []
    cells = [("fleet", "", f"{best.cost_usd_per_month:,.2f}", f"{rows[0].fleet_usd_per_million_tokens:.3f}", "", "",
              ""), *((row.price.provider, row.price.served_as, f"{row.usd_per_month:,.2f}",
                f"{row.usd_per_million_tokens:.3f}", *_break_even(row), _dated(row.price)) for row in rows)]
    share = f"{100 * (best.cached_input_share or 0.0):.0f} % of the input tokens"
    return [Grid(heads=("", "served as", "USD/month", "in + out", "break-even mean/s", "peak/s", "date"), rows=cells,
                 left=(0, 1, 6)),
            f"in + out: USD per million tokens of input and output together. Break-even: the lowest rate of this "
            f"traffic at which a fleet costs at most as much as the API. The fleet has replicas in proportion to the "
            f"rate, at least one, and its spares. APIs bill {share} as cached if they have a price for cached tokens"]


def _break_even(row: ApiCost) -> tuple[str, str]:
    if row.break_even_mean_rps is None or row.break_even_peak_rps is None:
        return "never", "–"
    return f"{row.break_even_mean_rps:,.4g}", f"{row.break_even_peak_rps:,.4g}"


def _dated(row: GpuPrice | ApiPrice) -> str:
    """Return the date of a price, with a star if it is old."""
    return "–" if row.date is None else row.date + "*" * is_old(row.date, today())


def _marks(prices: Sequence[GpuPrice | ApiPrice]) -> tuple[str, ...]:
    old = any(row.date is not None and is_old(row.date, today()) for row in prices)
    return (f"* older than {MOST_DAYS} days",) if old else ()
