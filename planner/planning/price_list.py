"""A file of the user's own prices of GPUs, by term of contract: on demand, reserved, spot."""

import math
from pathlib import Path

from planner.catalog.catalog_files import load_gpu, read_toml
from planner.catalog.prices import TERMS
from planner.errors import CatalogError, UsageError

ON_DEMAND, RESERVED, SPOT = TERMS
KEYS = {"on_demand": ON_DEMAND, "reserved": RESERVED, "spot": SPOT}  # of a GPU's table in a prices file
HOURS_PER_MONTH = 730.0  # a twelfth of a year, as cloud vendors' price calculators have it
PriceList = dict[str, dict[str, float]]  # USD per GPU-hour, by term and GPU


def read_prices(path: Path) -> PriceList:
    """Read a TOML file with a table for each GPU: on_demand, reserved, spot [USD per GPU-hour].

    Raises
    ------
    UsageError, UnknownNameError : the file cannot be read; a GPU, a term or a price is wrong.
    """
    try:
        tables = read_toml(path)
    except CatalogError as error:
        raise UsageError(f"--prices {error}") from error
    found: PriceList = {term: {} for term in TERMS}
    for name, table in tables.items():
        if not isinstance(table, dict) or not table or set(table) - set(KEYS):
            raise UsageError(f"--prices {path}: [{name}] = {table!r}: must be a table of {', '.join(KEYS)} in USD per "
                             f"GPU-hour, as in on_demand = 2.5")
        gpu = load_gpu(name).name
        for key, price in table.items():
            if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < math.inf:
                raise UsageError(f"--prices {path}: [{name}] {key} = {price!r}: must be a number of at least 0")
            found[KEYS[key]][gpu] = float(price)
    return found


def usd_per_month(usd_per_hour: float) -> float:
    """Return the price of a month of 730 hours [USD].

    >>> usd_per_month(2.0)
    1460.0
    """
    return HOURS_PER_MONTH * usd_per_hour


def usd_per_year(usd_per_hour: float) -> float:
    """Return the price of 12 months [USD].

    >>> usd_per_year(2.0)
    17520.0
    """
    return 12 * HOURS_PER_MONTH * usd_per_hour
