"""The prices that an answer rests on, with their sources and dates, and a note on old prices."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from planner.catalog.catalog_files import load_gpu
from planner.catalog.prices import MOST_DAYS, TERMS, ApiPrice, GpuPrice, apis_with, is_old, today
from planner.errors import UsageError
from planner.planning.fleets import cloud_prices, price_of
from planner.planning.search_options import Choices
from planner.planning.size_answer import KindNames


def checked_prices(kinds: Sequence[KindNames], model: str, choices: Choices) -> Choices:
    """Return choices with the API prices of the model alone, after a check that all GPUs have a price.

    Raises
    ------
    UsageError : the cloud has no on-demand price of a GPU and the user states none; no API has a price of the model.
    """
    for name in {gpu.partition(":")[0] for kind in kinds for gpu in (kind.gpu, kind.decode_gpu) if gpu}:
        if choices.cloud and name not in choices.prices:
            known = ", ".join(sorted({row.gpu for row in choices.cloud if row.term == TERMS[0]}))
            raise UsageError(f"--cloud {choices.cloud[0].cloud}: no price on demand of {name}; it has prices of "
                             f"{known}. Leave {name} out, or give its price, as in --price '{name}=2.5'")
    return replace(choices, apis=apis_with(choices.apis, model)) if choices.apis else choices


def used_prices(gpus: Iterable[str], choices: Choices) -> tuple[GpuPrice, ...]:
    """Return the prices of GPUs on each term that has one: of a cloud's instances, of the user, or of the profile."""
    rows: list[GpuPrice] = []
    for gpu in map(load_gpu, dict.fromkeys(gpus)):
        whole = load_gpu(gpu.slice_of or gpu.name)
        catalog = whole.provenance["price_usd_per_hour"]
        for term, stated in zip(TERMS, (choices.prices, choices.reserved_prices, choices.spot_prices), strict=True):
            of_cloud, price = cloud_prices(whole, term, choices), price_of(gpu, term, choices)
            rows += of_cloud
            if price is not None and not of_cloud:
                source, date = ("stated by the user", None) if stated.keys() & {gpu.name, gpu.slice_of} else (
                    catalog.source, catalog.date)
                rows.append(GpuPrice(gpu=gpu.name, term=term, usd_per_hour=price, source=source, date=date))
    return tuple(rows)


def old_notes(prices: Sequence[GpuPrice | ApiPrice]) -> list[str]:
    """Return a note if prices are older than 90 days today; nothing if none is."""
    old = dict.fromkeys(f"{row.gpu if isinstance(row, GpuPrice) else row.provider} ({row.date})" for row in prices
                        if row.date is not None and is_old(row.date, today()))
    return [f"prices older than {MOST_DAYS} days: {', '.join(old)}; check them, and give others by --price, --prices "
            f"or --cloud"] if old else []
