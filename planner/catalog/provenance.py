"""Numbers, texts and dates of the catalog's files: read, checked, each number with its source."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.errors import CatalogError


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogNumber:
    """One number of the catalog and its source.

    Parameters
    ----------
    value, unit : the number and its SI unit.
    source : document, list or measurement.
    date : of the source, yyyy-mm.
    dense : for FLOP/s, that the number is without structured sparsity.
    note : differences from other sources; "" without any.
    """

    value: float
    unit: str
    source: str
    date: str
    dense: bool
    note: str


def quantity_of(table: Mapping[str, object], key: str, unit: str, path: Path) -> CatalogNumber:
    """Return one number with its unit, source and date.

    Parameters
    ----------
    table, key : its place, as `key = {value = ..., unit = ..., source = ..., date = ...}`.
    unit : that it must have.
    path : the file, which errors name.

    Raises
    ------
    CatalogError : it is missing, not positive, in another unit, or without source or date.
    """
    entry = table.get(key)
    if not isinstance(entry, dict):
        raise CatalogError(f"{path}: {key} is missing; write {key} = {{value = ..., unit = {unit!r}, source = ..., "
                           "date = ...}")
    value = entry.get("value")
    free = key in ("price", "idle_power")  # owned machines cost no rent
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) \
            or value < 0 or (value == 0 and not free):
        raise CatalogError(f"{path}: {key}.value = {value!r}; must be a positive number")
    if entry.get("unit") != unit:
        raise CatalogError(f"{path}: {key}.unit = {entry.get('unit')!r}; must be {unit!r}")
    return CatalogNumber(value=float(value), unit=unit, source=text_of(entry, "source", path, f"{key}."),
                         date=date_of(entry, path, f"{key}."), dense=entry.get("dense") is True,
                         note=str(entry.get("note", "")))


def text_of(table: Mapping[str, object], key: str, path: Path, prefix: str = "") -> str:
    """Return a text that must be there.

    Raises
    ------
    CatalogError : it is missing, empty or no text; `prefix` names its table.
    """
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise CatalogError(f"{path}: {prefix}{key} = {value!r}; must be a text that is not empty")
    return value


def date_of(table: Mapping[str, object], path: Path, prefix: str = "") -> str:
    """Return the key `date`, a month, yyyy-mm.

    Raises
    ------
    CatalogError : it is none.
    """
    value = text_of(table, "date", path, prefix)
    if not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", value):
        raise CatalogError(f"{path}: {prefix}date = {value!r}; must be yyyy-mm")
    return value
