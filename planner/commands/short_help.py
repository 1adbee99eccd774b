"""`--help` with the options that most people need, and `--help-all` with every option."""

import inspect
from typing import Annotated, Any

import typer

HELP_ALL = "--help-all"
# Options of any command that `--help` shows; commands without a scenario show all of theirs.
COMMON = frozenset((
    "from_command", "model", "gpu", "engine", "quantization", "tensor_parallel_size", "data_parallel_size",
    "max_num_seqs", "max_num_batched_tokens", "router", "request_rate", "max_concurrency",
    "slo", "attainment", "json", "save", "explain", "output", "max_error", "predictions", "optimize", "axis", "period",
    "scaling", "fit", "quiet",
))


def _print_short(context: typer.Context, _: Any, is_asked: bool) -> None:
    """Print the help without the options that few need, and say how many there are."""
    if not is_asked or context.resilient_parsing:
        return
    rare: list[Any] = [parameter for parameter in context.command.params
                       if parameter.param_type_name == "option" and not getattr(parameter, "hidden", False)
                       and parameter.name not in (*COMMON, "short_help")]
    try:
        for parameter in rare:
            parameter.hidden = True
        typer.echo(context.get_help())
    finally:
        for parameter in rare:
            parameter.hidden = False
    typer.echo(f"{len(rare)} more options: {context.command_path} {HELP_ALL}")
    raise typer.Exit


SHORT_HELP = inspect.Parameter(
    "short_help", inspect.Parameter.KEYWORD_ONLY, default=False,
    annotation=Annotated[bool, typer.Option("--help", is_eager=True, callback=_print_short,
                                            help=f"Show the common options; {HELP_ALL} shows all.")])
FULL_HELP = {"help_option_names": [HELP_ALL]}  # settings of a command that has SHORT_HELP
