"""The actions of the commands for the catalog: read, print and write."""

import sys
from pathlib import Path

from planner.catalog.catalog_files import bundled_like, gpu_names, load_gpu, model_names
from planner.catalog.prices import apis_with, gpu_prices, prices_of_api, prices_of_cloud
from planner.commands.actions import publish
from planner.files.keys import asdict
from planner.report.price_tables import api_price_table, gpu_price_table
from planner.report.profile_tables import show_profile
from planner.settings.scenario import Scenario


def db_list(json: Path | None) -> None:
    """Print the names of all profiles."""
    names = {"gpus": gpu_names(), "models": model_names()}
    publish(names, "\n".join(f"{kind}: {', '.join(values)}" for kind, values in names.items()), json)


def db_prices(gpu: str | None, cloud: str | None, json: Path | None) -> None:
    """Print the list prices of clouds' GPUs."""
    names = None if gpu is None else {load_gpu(name).name for name in gpu.split(",")}
    prices = [row for row in (gpu_prices() if cloud is None else prices_of_cloud(cloud))
              if names is None or row.gpu in names]
    publish({"prices": [asdict(row) for row in prices]}, gpu_price_table(prices), json)


def db_apis(model: str | None, api: str, json: Path | None) -> None:
    """Print the prices of hosted APIs."""
    prices = prices_of_api(api)
    prices = prices if model is None else apis_with(prices, model)
    publish({"prices": [asdict(row) for row in prices]}, api_price_table(prices), json)


def db_added(copy: Path) -> None:
    """Print the path of a profile's copy, and the bundled profile that it replaces."""
    print(copy)
    if (name := bundled_like(copy)) is not None:
        print(f"note: from now on {copy.stem} is yours, not the bundled {name}; delete {copy} to have that again",
              file=sys.stderr)


def db_show(name: str, scenario: Scenario, json: Path | None) -> None:
    """Print one profile."""
    value, text = show_profile(name, scenario)
    publish(value, text, json)
