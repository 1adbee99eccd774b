"""Public list prices, each with its source and date: GPUs of clouds, and tokens of hosted APIs."""

import calendar
import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any, TypeVar

from planner.catalog.catalog_files import data_dir, load_model
from planner.errors import CatalogError, UnknownNameError
from planner.files.finite import number_in
from planner.files.keys import Key

MOST_DAYS = 90  # age of a price beyond which an answer says so
TERMS = ("on demand", "reserved", "spot")
DATE = r"20\d\d-(0[1-9]|1[0-2])(-([0-2]\d|3[01]))?"
NUMBERS, MAY_MISS = ("gpus", "usd_per_hour", "input", "cached_input", "output"), ("gpus", "cached_input")
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
    date: Annotated[str, Key("", "Date of the source, yyyy-mm-dd, or yyyy-mm if the day is not known")]


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
    """Return the prices of all clouds: of a cloud, its usual region first."""
    return tuple(GpuPrice(**row) for row in _rows("clouds.csv"))


def api_prices() -> tuple[ApiPrice, ...]:
    """Return the prices of all hosted APIs."""
    return tuple(ApiPrice(**row) for row in _rows("apis.csv"))


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
    """Return the prices of a hosted API's provider, or of all providers for "all".

    Raises
    ------
    UnknownNameError : there are no prices of this provider.
    """
    return api_prices() if text == "all" else _of(api_prices(), "provider", text, "provider of --api")


def apis_with(prices: Sequence[ApiPrice], model: str) -> tuple[ApiPrice, ...]:
    """Return the prices of a model.

    Raises
    ------
    UnknownNameError : there is none.
    """
    return _of(prices, "model", load_model(model).name, "model of --api")


def _of(prices: Sequence[Row], key: str, name: str, kind: str) -> tuple[Row, ...]:
    rows = tuple(row for row in prices if getattr(row, key) == name)
    if not rows:
        raise UnknownNameError(kind, name, {getattr(row, key) for row in prices})
    return rows


def _rows(file: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, with numbers above 0 for texts.

    Raises
    ------
    CatalogError : a row is wrong.
    """
    path = data_dir("hardware_db") / "prices" / file
    with path.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines), 1):
            yield {key: _value(key, text, f"{path} row {number}") for key, text in row.items()}


def _value(key: str, text: str, where: str) -> str | float | None:
    """Return a value of a row: a number, a text, or None for an empty number that may be missing."""
    if key in MAY_MISS and not text:
        return None
    if key in NUMBERS:
        if not 0 < (value := number_in(text)) < math.inf:
            raise CatalogError(f"{where}: {key} = {text!r}; must be a number above 0")
        return int(value) if key == "gpus" else value
    if not text or (key == "date" and not re.fullmatch(DATE, text)) or (key == "term" and text not in TERMS):
        raise CatalogError(f"{where}: {key} = {text!r}; must be a text, a date as yyyy-mm-dd or yyyy-mm, a term of "
                           f"{', '.join(TERMS)}")
    return text
