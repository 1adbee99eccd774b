"""Command-line options made from the scenario's fields, so that each option is declared once."""

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any

import typer

from planner.commands.display import progress_shown
from planner.commands.short_help import HELP_OPTIONS
from planner.errors import UsageError
from planner.settings.declared_options import chosen, options_of
from planner.settings.option_text import option_values, takes_list
from planner.settings.scenario import ALIASES, OPTION_DEFAULTS, OPTION_TYPES, Scenario, scenario_from

FROM_COMMAND = "from_command"
_CONTEXT = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
_LAUNCH = inspect.Parameter(
    FROM_COMMAND, inspect.Parameter.KEYWORD_ONLY, default=None,
    annotation=Annotated[list[str] | None, typer.Option(
        metavar="TEXT",
        help="Launch command of the engine in quotes ('vllm serve …', 'python -m sglang.launch_server …', "
             "'trtllm-serve …'), or a file: a script with the command, or the server's log. FILE#2 is the second of "
             "its different engines. Other options override the command.",
        rich_help_panel="Deployment")])

_QUIET = inspect.Parameter(
    "quiet", inspect.Parameter.KEYWORD_ONLY, default=False,
    annotation=Annotated[bool, typer.Option("--quiet", help="Show no progress. Notes and errors are still shown.")])

_NO_CACHE = inspect.Parameter(
    "no_cache", inspect.Parameter.KEYWORD_ONLY, default=False,
    annotation=Annotated[bool, typer.Option("--no-cache", help="Search again. Without it, an answer to the same "
                                            "question is read from disk: $PLANNER_ANSWERS, or planner/answers in the "
                                            "user's cache folder.")])


def shows_progress(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option --quiet. Without it, the command shows progress of work that lasts over 2 s."""

    @functools.wraps(command)
    def shown(*, quiet: bool, **values: Any) -> None:
        with progress_shown(quiet=quiet):
            command(**values)

    parameters = inspect.signature(command).parameters.values()
    return _with_parameters(shown, [*parameters, _QUIET])


def keeps_answers(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option --no-cache. Without it, the command reads known answers from disk and keeps new ones.
    """

    @functools.wraps(command)
    def keeping(*, no_cache: bool, **values: Any) -> None:
        from planner.planning.answers_on_disk import answers_kept

        with answers_kept(not no_cache):
            command(**values)

    return _with_parameters(keeping, [*inspect.signature(command).parameters.values(), _NO_CACHE])


def _with_parameters(command: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """Replace the parameters of a function that Typer reads."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def takes_scenario(without: tuple[str, ...] = (),
                   lists: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command all options of `Scenario` except `without`. The command receives them as its argument `scenario`.

    With `lists`, an option takes several values separated by commas. The command then receives `choices`: the values
    of each option that was given, and `launched`: the options of a launch command that no other option overrides.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command).parameters.values()
               if p.name not in ("scenario", "choices", "launched")]
        names = [f.name for f in fields(Scenario) if f.name not in without]

        @functools.wraps(command)
        def with_options(context: typer.Context, **values: Any) -> None:
            options = {name: values.pop(name) for name in names}
            launch = _one_launch(values.pop(FROM_COMMAND))
            notes: list[str] = []
            for option in HELP_OPTIONS:
                del values[option.name]
            launched: dict[str, Any] = {}
            if launch is not None:
                launched, given, notes = _over_launch(launch, options, context, lists)
                options |= launched | given
            try:
                command(**values, **({"choices": _choices(options), "launched": launched} if lists else {
                    "scenario": scenario_from(options)}))
            finally:  # the answer comes first
                for note in notes:
                    print(f"note: {note}", file=sys.stderr)

        options = [_CONTEXT, _LAUNCH, *(_parameter(f, lists) for f in fields(Scenario) if f.name in names)]
        return _with_parameters(with_options, [*own, *options, *HELP_OPTIONS])

    return decorate


def takes(kind: type[Any], only: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that a dataclass declares, in the place of its argument of this type.

    The command receives the dataclass. With `only`, the other fields stay at their defaults.
    """
    declared = options_of(kind, only)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(command).parameters.values()
        argument = next(p.name for p in parameters if p.annotation is kind)

        @functools.wraps(command)
        def with_options(**values: Any) -> None:
            options = {f.name: values.pop(name) for name, f in declared.items()}
            command(**values, **{argument: chosen(kind, options)})

        options = [_declared_parameter(name, f) for name, f in declared.items()]
        every = [q for p in parameters for q in (options if p.name == argument else [p])]
        return _with_parameters(with_options, [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in every])

    return decorate


def _declared_parameter(name: str, f: Any) -> inspect.Parameter:
    """Return the option of a field; if its text is read, it has no default of its own."""
    kind, is_read = f.metadata["kind"], f.metadata["read"] is not None
    flags = [f"--{name.replace('_', '-')}"] if f.metadata["is_switch"] else []
    option = typer.Option(*flags, help=f.metadata["help"].replace("[", r"\["))
    annotation: Any = Annotated[kind | None if is_read else f.type, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None if is_read else f.default,
                             annotation=annotation)


def _one_launch(launches: list[str] | None) -> str | None:
    """Return the launch command that is given; None if there is none.

    Raises
    ------
    UsageError : there are several.
    """
    if launches is not None and len(launches) > 1:
        from planner.launch.take_flags import REMEDY

        raise UsageError(f"--from-command is given {len(launches)} times, and one deployment is predicted; for engines "
                         f"with prefill and decode apart, {REMEDY}")
    return launches[0] if launches else None


def _over_launch(launch: str, options: dict[str, Any], context: typer.Context,
                 lists: bool) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return the options of an engine's launch command, those on our command line, which override them, and notes.

    Parameters
    ----------
    lists : whether our options take lists; the values of one engine are then left out later, by what-if.
    """
    from planner.launch import launch_options

    sources = {name: context.get_parameter_source(name) for name in options}
    given = {name: value for name, value in options.items() if getattr(sources[name], "name", "") == "COMMANDLINE"}
    beside = {name: value for name, value in given.items() if name == "gpu" or not lists}
    found, notes = launch_options(launch, model=given.get("model"), beside=beside)
    defaults = {f.name: f.default for f in fields(Scenario)}
    others = [name for name, value in found.items() if name not in options and value != defaults[name]]
    own = {parameter.name for parameter in context.command.params}  # as `planner size` tries several numbers of ranks
    for is_own, what in ((True, "gives way to this command's own"), (False, "left aside: this command has no option")):
        names = [name for name in others if (name in own) == is_own]
        if names:
            notes.append(f"--from-command: its {', '.join(names)} {what}")
    stays = ("engine",)  # whose the other values are
    return {name: value for name, value in found.items()
            if name in options and (name not in given or name in stays)}, given, notes


def _choices(options: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the values of each option that differs from its default. A text may list several values."""
    found = {name: option_values(name, value, f"--{name.replace('_', '-')} {value}")
             if isinstance(value, str) and takes_list(name) else [value] for name, value in options.items()}
    return {name: values for name, values in found.items() if values not in ([None], [OPTION_DEFAULTS[name]])}


@functools.cache
def _parameter(f: Any, lists: bool) -> inspect.Parameter:
    """Return the option of a field of `Scenario`, the same one for all commands."""
    is_list = lists and takes_list(f.name)
    aliases = [alias for alias, name in ALIASES.items() if name == f.name]
    flags = [f"--{name.replace('_', '-')}" for name in (f.name, *aliases)] if aliases else []
    option = typer.Option(*flags, help=f.metadata["help"].replace("[", r"\["), rich_help_panel=f.metadata["panel"],
                          metavar="VALUE,…" if is_list else None)
    annotation: Any = Annotated[str | None if is_list else OPTION_TYPES[f.name], option]
    default = str(f.default) if is_list and f.default is not None else f.default
    return inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
