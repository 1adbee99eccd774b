"""Public list prices, each with its source and date: GPUs of clouds, and tokens of hosted APIs."""

import calendar
import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, TypeVar

from planner.catalog.catalog_files import data_dir, load_gpu, load_model
from planner.errors import CatalogError, UnknownNameError, UsageError
from planner.files.finite import number_in
from planner.files.keys import Key

MOST_DAYS = 90  # age of a price beyond which an answer says so
TERMS = ("on demand", "reserved", "spot")
Day = Annotated[str, Key("", "Date of the source, yyyy-mm-dd, or yyyy-mm if the day is not known")]
Row = TypeVar("Row", "GpuPrice", "ApiPrice")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """A price of GPUs: of an instance of a cloud, of a GPU's profile, or of the user."""

    gpu: Annotated[str, Key("", "GPU")]
    term: Annotated[str, Key("", "on demand, reserved or spot")]
    usd_per_hour: Annotated[float, Key("USD/h", "Price of the instance; of one GPU if `gpus` is null")]
    cloud: Annotated[str | None, Key("", "Cloud. Null for a price of the GPU's profile or of the user")] = None
    region: Annotated[str | None, Key("", "Region of the cloud; global if its price does not depend on it")] = None
    instance: Annotated[str | None, Key("", "Name of the instance")] = None
    gpus: Annotated[int | None, Key("1", "GPUs of the instance. Null if any number up to a node is sold")] = None
    source: Annotated[str, Key("", "Document or list that has the price")]
    date: Annotated[str | None, Key("", "Date of the source, yyyy-mm-dd, or yyyy-mm if the day is not known. Null for "
                                    "a price of the user")]

    @property
    def usd_per_gpu_hour(self) -> float:
        """Price of one GPU [USD/h]."""
        return self.usd_per_hour / (self.gpus or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPrice:
    """The price of a model behind a hosted API."""

    provider: Annotated[str, Key("", "Provider of the API")]
    model: Annotated[str, Key("", "Model, as the catalog names it")]
    served_as: Annotated[str, Key("", "Name of the model at the provider")]
    input: Annotated[float, Key("USD", "Price of a million input tokens")]
    cached_input: Annotated[float | None, Key("USD", "Price of a million input tokens that the provider has cached. "
                                              "Null if they cost as much as others")]
    output: Annotated[float, Key("USD", "Price of a million output tokens")]
    source: Annotated[str, Key("", "Document or list that has the price")]
    date: Day


def today() -> date:
    """Return the date, in UTC."""
    return datetime.now(UTC).date()


def is_old(stated: str, now: date) -> bool:
    """Tell whether a source's date is over 90 days ago; of a month without a day, whether its last day is.

    >>> is_old("2026-08-26", date(2026, 11, 28)), is_old("2026-08", date(2026, 11, 28))
    (True, False)
    """
    year, month, *day = map(int, stated.split("-"))
    last = date(year, month, day[0] if day else calendar.monthrange(year, month)[1])
    return (now - last).days > MOST_DAYS


def gpu_prices() -> tuple[GpuPrice, ...]:
    """Return the prices of all clouds, in the order of the file: of a cloud, the usual region first.

    Raises
    ------
    CatalogError : a row is wrong.
    """
    path = data_dir("hardware_db") / "prices" / "clouds.csv"
    return tuple(GpuPrice(
        cloud=row["cloud"], region=row["region"], instance=row["instance"], gpu=row["gpu"],
        gpus=int(_number(row, "gpus", where)) if row["gpus"] else None, term=_known(row, "term", TERMS, where),
        usd_per_hour=_number(row, "usd_per_hour", where), source=row["source"], date=row["date"])
        for where, row in _rows(path, optional=("gpus",)))


def api_prices() -> tuple[ApiPrice, ...]:
    """Return the prices of all hosted APIs.

    Raises
    ------
    CatalogError : a row is wrong.
    """
    path = data_dir("hardware_db") / "prices" / "apis.csv"
    return tuple(ApiPrice(
        provider=row["provider"], model=row["model"], served_as=row["served_as"],
        input=_number(row, "input", where), output=_number(row, "output", where),
        cached_input=_number(row, "cached_input", where) if row["cached_input"] else None, source=row["source"],
        date=row["date"]) for where, row in _rows(path, optional=("cached_input",)))


def prices_of_cloud(text: str) -> tuple[GpuPrice, ...]:
    """Return the prices of a cloud, as in "aws" or "aws:us-east-1"; without a region, of each GPU's first region.

    Raises
    ------
    UnknownNameError : there are no prices of this cloud or region.
    """
    cloud, _, region = text.partition(":")
    rows = _of(gpu_prices(), "cloud", cloud, "cloud")
    if region:
        return _of(rows, "region", region, f"region of {cloud}")
    first: dict[str, str | None] = {}
    return tuple(row for row in rows if first.setdefault(row.gpu, row.region) == row.region)


def prices_of_api(text: str) -> tuple[ApiPrice, ...]:
    """Return the prices of a hosted API's provider, or of all of them for "all".

    Raises
    ------
    UnknownNameError : there are no prices of this provider.
    """
    return api_prices() if text == "all" else _of(api_prices(), "provider", text, "provider of --api")


def apis_with(prices: Sequence[ApiPrice], model: str) -> tuple[ApiPrice, ...]:
    """Return the prices of a model.

    Raises
    ------
    UsageError : there is none.
    """
    name = load_model(model).name
    rows = tuple(row for row in prices if row.model == name)
    if not rows:
        raise UsageError(f"--api: no price of {name}; prices are known of "
                         f"{', '.join(sorted({row.model for row in prices}))}")
    return rows


def of_gpus(prices: Iterable[GpuPrice], names: str) -> tuple[GpuPrice, ...]:
    """Return the prices of GPUs, which are named by commas.

    Raises
    ------
    UnknownNameError : there is no such GPU.
    """
    gpus = {load_gpu(name).name for name in names.split(",")}
    return tuple(row for row in prices if row.gpu in gpus)


def _of(prices: Sequence[Row], key: str, name: str, kind: str) -> tuple[Row, ...]:
    rows = tuple(row for row in prices if getattr(row, key) == name)
    if not rows:
        raise UnknownNameError(kind, name, {getattr(row, key) for row in prices})
    return rows


def _rows(path: Path, optional: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of a file with their places; only the optional columns may be empty."""
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 1):
            where = f"{path} row {number}"
            for key, value in row.items():
                if not value and key not in optional:
                    raise CatalogError(f"{where}: {key} = {value!r}; must not be empty")
            try:
                is_old(row["date"], date.min)
            except ValueError as error:
                raise CatalogError(f"{where}: date = {row['date']!r}; must be yyyy-mm-dd or yyyy-mm") from error
            yield where, row


def _number(row: dict[str, str], key: str, where: str) -> float:
    value = number_in(row[key])
    if not 0 < value < math.inf:
        raise CatalogError(f"{where}: {key} = {row[key]!r}; must be a number above 0")
    return value


def _known(row: dict[str, str], key: str, known: tuple[str, ...], where: str) -> str:
    if row[key] not in known:
        raise CatalogError(f"{where}: {key} = {row[key]!r}; must be one of {', '.join(known)}")
    return row[key]
