"""Command-line options made from the scenario's fields, so that each is declared once."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any

import typer

from planner.scenario import Scenario, scenario_from


def takes_scenario(without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command every option of `Scenario` except those named; it receives them as its argument `scenario`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "scenario"]
        names = [f.name for f in fields(Scenario) if f.name not in without]

        def with_options(**values: Any) -> None:
            options = {name: values.pop(name) for name in names}
            command(**values, scenario=scenario_from(options))

        options = [_parameter(f) for f in fields(Scenario) if f.name in names]
        with_options.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
        with_options.__annotations__ = {p.name: p.annotation for p in [*own, *options]}
        with_options.__name__ = command.__name__
        with_options.__doc__ = command.__doc__
        return with_options

    return decorate


def _parameter(f: Any) -> inspect.Parameter:
    kind = typing.get_type_hints(Scenario)[f.name]
    option = typer.Option(help=f.metadata["help"].replace("[", r"\["), rich_help_panel=f.metadata["panel"])
    annotation: Any = Annotated[kind, option]
    return inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=annotation)
