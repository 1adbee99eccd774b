"""Commands for the catalog of GPUs and models: list, show, prices, apis, add-gpu, add-model."""

from pathlib import Path
from typing import Annotated

import typer

from planner.commands.options import takes_scenario
from planner.commands.trace_cli import JsonOption
from planner.settings.scenario import Scenario, names_in

db = typer.Typer(no_args_is_help=True, help="Show and extend the catalog of GPU and model profiles.")


@db.command("list")
def db_list(json: JsonOption = None) -> None:
    """Which GPUs and models does the planner know?

    Example: planner db list
    """
    from planner.commands import db_actions

    db_actions.db_list(json)


@db.command("show")
@takes_scenario(without=("fleet", *names_in("Cache tiers")))
def db_show(
    name: Annotated[str, typer.Argument(help="GPU or model.")], scenario: Scenario, json: JsonOption = None
) -> None:
    """What does the catalog say about a GPU or model, and what is the source?

    For a model with --gpu, also its memory use and step times.

    Example: planner db show llama-3.1-8b --gpu h100-sxm
    """
    from planner.commands import db_actions

    db_actions.db_show(name, scenario, json)


@db.command("prices")
def db_prices(
    gpu: Annotated[str | None, typer.Option(help=r"GPUs, separated by commas. \[all]")] = None,
    cloud: Annotated[str | None, typer.Option(help=r"Cloud, or CLOUD:REGION, as in aws:us-east-1. \[all]")] = None,
    json: JsonOption = None,
) -> None:
    """Which list prices of clouds' GPUs does the planner know, from which source and date?

    `planner size --cloud` takes them. A star marks a price that is older than 90 days.

    Example: planner db prices --gpu h100-sxm
    """
    from planner.commands import db_actions

    db_actions.db_prices(gpu, cloud, json)


@db.command("apis")
def db_apis(
    model: Annotated[str | None, typer.Option(help=r"Model. \[all]")] = None,
    api: Annotated[str, typer.Option(help=r"Provider. \[all]")] = "all",
    json: JsonOption = None,
) -> None:
    """Which prices of hosted APIs does the planner know, from which source and date?

    `planner size --api` compares a fleet with them. A star marks a price that is older than 90 days.

    Example: planner db apis --model llama-3.1-8b
    """
    from planner.commands import db_actions

    db_actions.db_apis(model, api, json)


@db.command("add-gpu")
def db_add_gpu(path: Annotated[Path, typer.Argument(help="GPU profile in TOML.")]) -> None:
    """How do I add a GPU? Checks a GPU profile and adds it to your own catalog.

    Example: planner db add-gpu my-gpu.toml
    """
    from planner.catalog.catalog_files import add_gpu
    from planner.commands import db_actions

    db_actions.db_added(add_gpu(path))


@db.command("add-model")
def db_add_model(
    path: Annotated[Path, typer.Argument(help="Hugging Face config.json, or model profile in TOML.")],
    name: Annotated[str | None, typer.Option(help="Short name of the model.")] = None,
) -> None:
    """How do I add a model? Checks a model's architecture and adds it to your own catalog.

    Example: planner db add-model my-model/config.json --name my-model
    """
    from planner.catalog.catalog_files import add_model
    from planner.commands import db_actions

    db_actions.db_added(add_model(path, name))
