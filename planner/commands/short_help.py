"""`--help` with the options that most people need, and `--help-all` with every option."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

# Options that `--help` shows of a command with a scenario; other commands show all of theirs.
COMMON = frozenset((
    "from_command", "model", "gpu", "engine", "quantization", "tensor_parallel_size", "data_parallel_size",
    "max_num_seqs", "max_num_batched_tokens", "router", "request_rate", "max_concurrency",
    "slo", "attainment", "json", "save", "explain", "output", "max_error", "predictions", "optimize", "axis", "period",
    "scaling", "fit", "quiet", "short_help", "full_help",
))


def _print_all(context: typer.Context, _: Any, is_asked: bool) -> None:
    """Print the help with every option."""
    if is_asked and not context.resilient_parsing:
        typer.echo(context.get_help())
        raise typer.Exit


def _print_short(context: typer.Context, _: Any, is_asked: bool) -> None:
    """Print the help with the common options, and the number of others."""
    if not is_asked or context.resilient_parsing:
        return
    rare: list[Any] = [parameter for parameter in context.command.params
                       if parameter.param_type_name == "option" and parameter.name not in COMMON]
    try:
        for parameter in rare:
            parameter.hidden = True
        typer.echo(context.get_help())
    finally:
        for parameter in rare:
            parameter.hidden = False
    typer.echo(f"{len(rare)} more options: {context.command_path} --help-all")
    raise typer.Exit


def _option(name: str, flag: str, callback: Callable[..., None], text: str) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[
        bool, typer.Option(flag, is_eager=True, callback=callback, help=text)])


# In a command's signature they replace the help option that Click would add.
HELP_OPTIONS = (_option("short_help", "--help", _print_short, "Show the common options."),
                _option("full_help", "--help-all", _print_all, "Show all options."))
