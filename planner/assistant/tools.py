"""The tools of the server: a row for each, and its input schema from the options that its command declares."""

import inspect
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from typer.models import ArgumentInfo

from planner.commands.cli import app
from planner.commands.db_cli import db
from planner.commands.short_help import COMMON
from planner.commands.trace_cli import trace
from planner.errors import UnknownNameError, UsageError
from planner.report.answer_schemas import SCHEMAS, Schema, answer_schema
from planner.settings.scenario import OPTION_DEFAULTS

HIDDEN = {"context", "json", "quiet", "short_help", "full_help", "backend", "address", "overwrite"}
TYPES: Mapping[Any, Schema] = {
    str: {"type": "string"}, Path: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"},
    bool: {"type": "boolean"}}
OTHERS = "options"  # the argument with the rare options of a scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool of the server.

    Parameters
    ----------
    command : that answers, in words.
    bare : the command that answers without arguments; None for the same.
    is_writing : whether a call can write a file.
    """

    command: str
    bare: str | None = None
    is_writing: bool = False


TOOLS = {
    "describe_trace": Tool(command="trace describe", is_writing=True),
    "read_launch": Tool(command="launch"),
    "replay": Tool(command="replay", is_writing=True),
    "explain": Tool(command="replay --explain", is_writing=True),
    "capacity": Tool(command="capacity"),
    "size": Tool(command="size", is_writing=True),
    "compare": Tool(command="compare", is_writing=True),
    "sweep": Tool(command="sweep", is_writing=True),
    "share": Tool(command="share"),
    "rollouts": Tool(command="rollouts"),
    "probe": Tool(command="probe", is_writing=True),
    "check": Tool(command="check", is_writing=True),
    "validate": Tool(command="validate", is_writing=True),
    "catalog": Tool(command="db show", bare="db list"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An argument or option of a command.

    Parameters
    ----------
    hint : its type, without None.
    flags : of an option, the second one for false; none of an argument.
    """

    name: str
    hint: Any
    help: str
    flags: tuple[str, ...]
    is_required: bool
    default: Any

    @property
    def is_file(self) -> bool:
        """Whether the value names a file, which must be below the folders."""
        return self.hint is Path or self.name in ("trace", "source", "sources", "write")

    @property
    def schema(self) -> Schema:
        """The schema of its value."""
        default = {} if self.default is None or isinstance(self.default, Path) else {"default": self.default}
        return {"description": self.help.replace("\\[", "["), **_schema(self.hint), **default}


def parameters_of(command: str) -> dict[str, Parameter]:
    """Return the arguments and options of a command, by name."""
    parameters = inspect.signature(_function_of(command)).parameters
    return {name: _parameter(p) for name, p in parameters.items() if name not in HIDDEN}


def _function_of(command: str) -> Callable[..., Any]:
    group, name = {"trace": trace, "db": db}.get(command.split()[0], app), command.split()[-1]
    return next(entry.callback for entry in group.registered_commands
                if entry.callback is not None and (entry.name or entry.callback.__name__) == name)


def _parameter(p: inspect.Parameter) -> Parameter:
    hint, info = get_args(p.annotation)
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    hint = kinds[0] if get_origin(hint) in (Union, UnionType) else hint
    dashed = p.name.replace("_", "-")
    both = (f"--{dashed}", f"--no-{dashed}") if hint is bool else (f"--{dashed}",)
    named = tuple(flag for flag in info.param_decls or () if flag.startswith("--"))
    flags = () if isinstance(info, ArgumentInfo) else named or both
    is_required = p.default is inspect.Parameter.empty
    return Parameter(name=p.name, hint=hint, help=info.help or "", flags=flags,
                     is_required=is_required, default=None if is_required else p.default)


def _schema(hint: Any) -> Schema:
    if get_origin(hint) is list:
        return {"type": "array", "items": _schema(get_args(hint)[0])}
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    return dict(TYPES[hint])


def input_schema(tool: Tool) -> Schema:
    """Return the schema of a tool's arguments: rare options of a scenario are in an object, the others one by one."""
    known = _known(tool)
    shown = {name: p.schema for name, p in known.items() if name in COMMON or name not in OPTION_DEFAULTS}
    rest = sorted(known.keys() - shown.keys())
    others = {OTHERS: {"type": "object", "propertyNames": {"enum": rest},
                       "description": "Rare options by name; the resource planner://options has their meanings."}}
    return {"type": "object", "properties": shown | (others if rest else {}), "additionalProperties": False,
            "required": [name for name, p in known.items() if p.is_required and tool.bare is None]}


def _known(tool: Tool) -> dict[str, Parameter]:
    path, *fixed = tool.command.split(" --")
    return {name: p for name, p in parameters_of(path).items() if name not in fixed}


def output_schema(tool: Tool) -> Schema:
    """Return the schema of a tool's structured result, which has the answer of its command."""
    answers = [answer_schema(command.split(" --")[0]) for command in filter(None, (tool.command, tool.bare))]
    parts = {name: part for schema in answers for name, part in schema.pop("$defs", {}).items()}
    for schema in answers:
        del schema["$schema"]
    return {"type": "object", "required": ["command", "exit_code", "answer", "notes", "errors"], "properties": {
        "command": {"type": "string", "description": "Command line that gives the same answer"},
        "exit_code": {"type": "integer", "description": "0: done. 1: a target, threshold or objective is missed"},
        "answer": answers[0] if len(answers) == 1 else {"anyOf": answers},
        "notes": {"type": "array", "items": {"type": "string"}, "description": "Notes to pass on to the user"},
        "errors": {"type": "object", "description": "Errors on measured runs, by key of the answer. Empty if the "
                                                    "answer has none"}}, "$defs": parts}


def description(tool: Tool) -> str:
    """Return the help of a tool's command."""
    function = _function_of(tool.command.split(" --")[0])
    return inspect.cleandoc(function.__doc__ or "").partition("Example: ")[0].strip()


def words_of(tool: Tool, arguments: Mapping[str, Any], folders: Sequence[Path]) -> list[str]:
    """Return the words of the command line that answers a call.

    Parameters
    ----------
    folders : that files must be below; relative paths count from the first.

    Raises
    ------
    UsageError : an argument is missing, unknown or of another type, or names a file outside the folders.
    """
    values = _values(arguments)
    known = _known(tool)
    for name in values:
        if name not in known:
            raise UnknownNameError("option", name, known)
    missing = [name for name, p in known.items() if p.is_required and name not in values]
    if missing and (values or tool.bare is None):
        raise UsageError(f"{', '.join(missing)}: must be given")
    if not values and tool.bare is not None:
        return tool.bare.split()
    places: list[str] = []
    options: list[str] = []
    for name, value in values.items():
        if known[name].is_file:
            for path in value if isinstance(value, list) else [value]:
                _check_file(known[name], str(path), folders)
        (options if known[name].flags else places).extend(_words(known[name], value))
    return [*tool.command.split(), *places, *options]


def _values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options by name, of the object `options` too; an option may stand there or beside it."""
    others = arguments.get(OTHERS) or {}
    if not isinstance(others, Mapping):
        raise UsageError(f"{OTHERS} = {others!r}: must be an object")
    values = {**{name: value for name, value in arguments.items() if name != OTHERS}, **others}
    for name, value in values.items():
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, str | int | float | None) or "\0" in str(item):
                raise UsageError(f"{name} = {item!r}: must be text without NUL, a number, a boolean, or a list of them")
    return values


def _words(parameter: Parameter, value: Any) -> Iterator[str]:
    if value is None:
        return
    if parameter.hint is bool:
        yield from parameter.flags[not value:][:1]
        return
    for item in value if isinstance(value, list) else [value]:
        if not parameter.flags and str(item).startswith("-"):
            raise UsageError(f"{parameter.name} = {item!r}: must not start with '-'")
        yield from (*parameter.flags[:1], str(item))


def _check_file(parameter: Parameter, value: str, folders: Sequence[Path]) -> None:
    """Raise UsageError if a value names a file that is below no folder; names of samples have no folder."""
    path = value.partition("=")[2] if parameter.name == "write" else value
    if "://" in path:
        raise UsageError(f"{parameter.name} = {value!r}: databases cannot be read through this server; export a file")
    real = (folders[0] / Path(path).expanduser()).resolve()
    if not any(real.is_relative_to(folder.resolve()) for folder in folders):
        raise UsageError(f"{parameter.name} = {value!r}: is outside {', '.join(map(str, folders))}; copy the file "
                         f"there, or start the server with another --folder")


def command_line(words: Sequence[str]) -> str:
    """Return words as a command line for a shell."""
    return shlex.join(["planner", *words])


assert {tool.command.split(" --")[0] for tool in TOOLS.values()} <= SCHEMAS.keys()
