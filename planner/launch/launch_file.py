"""A launch that stands in a file: a script, a deployment file, or the arguments that a server wrote into its log."""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from planner.engines import ENGINES
from planner.errors import UsageError
from planner.launch.beginnings import launched, split_words
from planner.launch.connectors import ROLES
from planner.launch.described import Described
from planner.launch.flag_names import flags_in, normal
from planner.launch.manifests.command_files import is_dockerfile, is_unit_file, of_dockerfile, of_unit_file
from planner.launch.manifests.manifest_kinds import manifest_engines, read_manifest
from planner.launch.named_gpus import of_gpu
from planner.launch.scripts.embedded_scripts import code_of, recipes_of
from planner.launch.scripts.python_script import python_launches
from planner.launch.scripts.shell_script import applied_manifests, script_launches
from planner.launch.taken import REMEDY
from planner.traces.source import text_lines

OF_A_REPLICA = ("--port", "--host", "--node-rank", "--data-parallel-rank", "--base-gpu-id", "--dist-init-addr",
                "--served-model-name", "--nccl-port")
# A file with variables and a shell before it, and the number of an engine behind it: NVLINK=1 bash start.sh#2.
NAMED = re.compile(r"((?:[A-Za-z_]\w*=\S*\s+)*)(?:(?:\S*/)?(?:ba|da|z)?sh\s+)?(.+?)(?:#(\d+))?", re.DOTALL)
MOST_LINES = 100_000  # of a script; a log may have more
SUFFIXES = (".yaml", ".yml", ".json", ".sh", ".log", ".txt")  # of files that launch an engine
MEMBER = re.compile(r"<\w+\.(\w+): [^<>]*>")  # of an enumeration, as Python writes it
# Names in the line of the resolved config, and the arguments that they are.
RESOLVED = {"max_seq_len": "max_model_len", **{name: name for name in (
    "quantization", "kv_cache_dtype", "tensor_parallel_size", "pipeline_parallel_size")}}
TEXT = "the text"  # a source that is no file
QUOTES, OPEN, CLOSED = "'\"", "([{<", ")]}>"


@dataclass(frozen=True, slots=True)
class Logged:
    """The arguments of a server by its log.

    Parameters
    ----------
    engine : whose log it is.
    arguments : by name, with underscores; without arguments that are None.
    version : the server's, if the log has it before them.
    """

    engine: str
    arguments: Mapping[str, Any]
    version: str | None


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that a launch command names: `NVLINK=1 start.sh#2` is its second engine, with a variable that is set.

    Parameters
    ----------
    path : of the file.
    number : of the engine, among the file's engines that differ; None if none is asked for [1].
    variables : of the script's environment.
    """

    path: Path
    number: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def file_of(command: str) -> NamedFile | None:
    """Return the file that a launch command names; None if it names no file."""
    files: list[tuple[str, str | None, str]] = [(command, None, "")]
    if match := NAMED.fullmatch(command.strip()):
        files.append((match[2], match[3], match[1]))
    for text, number, assigned in files:
        try:
            if not ((path := Path(text)).is_file() or path.is_fifo()):
                continue
        except (OSError, ValueError):  # too long for a path, or no path at all
            return None
        pairs = (word.partition("=") for word in assigned.split())
        return NamedFile(path, None if number is None else int(number), {
            name: value.strip("\"'") for name, _, value in pairs})
    return None


def check_no_path(command: str) -> None:
    """Raise UsageError if a text is a folder, a file that does not exist, or several files."""
    words = re.split(r"[\s,]+", command.strip())
    try:
        if len(words) > 1 and all(Path(word).is_file() for word in words):
            raise UsageError(f"--from-command {command.strip()}: names {len(words)} files, and one deployment is "
                             f"predicted; {REMEDY}")
        path = Path(command)
        if path.is_dir():
            files = sorted(each.name for each in path.iterdir() if each.is_file() and each.suffix in SUFFIXES)
            some = f", as {', '.join(files[:3])}" if files else ""
            raise UsageError(f"--from-command {command}: is a folder; give one of its files{some}")
    except (OSError, ValueError):  # too long for a path, or no path at all
        return
    if len(words) == 1 and (path.suffix in SUFFIXES or "/" in command):
        raise UsageError(f"--from-command {command}: there is no such file; give a file that launches an engine, or "
                         f"the command itself in quotes")


def read_text(command: str, role: str = "both", gpu: str | None = None) -> Described:
    """Read a launch out of a text: a command, or the lines of a script.

    Parameters
    ----------
    role, gpu : as of `read_file`.

    Raises
    ------
    UsageError : it is a script that launches several different engines.
    """
    is_script = any(mark in command.replace("\\\n", "").strip() for mark in ("\n", ";", "$(("))
    launches = _of_text(command) if is_script else []
    if launches:
        return _chosen(TEXT, launches, role, gpu)
    return Described(words=split_words(command), place="the command")


def read_file(file: NamedFile, role: str = "both", gpu: str | None = None) -> Logged | Described:
    """Read a launch out of a file: a server's arguments in its log, a deployment file, or the line of a script.

    vLLM writes the arguments that differ from their defaults, SGLang all of them.

    Parameters
    ----------
    role : of the engine that is looked for, if a file has several.
    gpu : of the engine that is looked for, one or several separated by commas; None is any.

    Raises
    ------
    UsageError : it launches no engine, or several different ones; or variables are set for a file that is no script.
    """
    path, number = file.path, file.number
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        _refuse_variables(file)
        found = read_manifest(path)
        return _chosen(str(path), [each if each.role != "both" else replace(each, role=_role(each)) for each in found],
                       role, gpu, number)
    version: str | None = None
    lines: list[str] = []
    lines_of_file = text_lines(path)
    for _, line in lines_of_file:
        for name, engine in ENGINES.items():
            said = engine.dialect.log_version and engine.dialect.log_version.search(line)
            version = said[1] if said else version
            if engine.dialect.log_opening is None:
                continue
            opening, sign = engine.dialect.log_opening
            _, found_there, rest = line.partition(opening)
            if found_there:
                _refuse_variables(file)
                return _resolved(Logged(name, dict(_arguments(rest, sign)), version), lines_of_file)
        if len(lines) < MOST_LINES:
            lines.append(line)
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    if path.suffix == ".ipynb":
        text = code_of(text)
    elif path.name.lower().startswith("makefile") or path.suffix == ".mk":
        text = recipes_of(text)
    launches = _of_text(text, path.parent, str(path), file)
    if not launches:
        raise UsageError(f"--from-command {path}: launches no engine that is known; give a script with vllm serve, "
                         f"python -m sglang.launch_server or trtllm-serve in it, a deployment file (Kubernetes, "
                         f"compose, Helm values), or a server's log from its beginning")
    return _chosen(str(path), launches, role, gpu, number)


def _resolved(logged: Logged, later: Iterator[tuple[int, str]]) -> Logged:
    """Return the arguments of a log with the values that the engine resolved, which outrank them."""
    pattern = ENGINES[logged.engine].dialect.log_resolved
    lines = () if pattern is None else (line for _, line in itertools.islice(later, MOST_LINES))
    for line in lines:
        if pattern is not None and (said := pattern.search(line)) is not None:
            values = dict(_arguments(said[2], "="))
            resolved = {RESOLVED[name]: value for name, value in values.items() if name in RESOLVED}
            return replace(logged, arguments={**logged.arguments, **resolved}, version=logged.version or said[1])
    return logged


def _refuse_variables(file: NamedFile) -> None:
    """Raise UsageError if variables are set for a file that is no script of a shell."""
    if file.variables:
        raise UsageError(f"--from-command: {' '.join(file.variables)} before {file.path}: only a script of a shell "
                         f"takes variables; set them in the file")


def _of_text(text: str, folder: Path | None = None, where: str = TEXT, file: NamedFile | None = None
             ) -> list[Described]:
    """Return the engines that a text launches: a Dockerfile, a unit of systemd, or a script of Python or a shell.

    Parameters
    ----------
    folder : of the file; None reads no file that the text names.
    where : the text is called so in messages.
    file : of the text; None if the text is pasted.
    """
    if manifests := list(applied_manifests(text)):
        found = [engine for each in manifests for engine in manifest_engines(each, folder or Path(), where)]
    elif is_dockerfile(text):
        found = list(of_dockerfile(text, folder))
    elif is_unit_file(text):
        found = list(of_unit_file(text, folder))
    else:
        found = python_launches(text, where)
    if found and file is not None:
        _refuse_variables(file)
    found = found or [*script_launches(text, {} if file is None else file.variables)]
    return [replace(launch, role=_role(launch)) for launch in found]


def _role(launch: Described) -> str:
    """Return the role that the flags of a command give its engine."""
    beginning = launched(launch.words)
    dialect = ENGINES[beginning.engine].dialect
    for flag, value in flags_in(beginning.engine, beginning.arguments):
        said = str(value).lower()
        if role := dialect.role_switches.get(normal(flag)) or dialect.roles.get(normal(flag), {}).get(said):
            return role
        if normal(flag) in dialect.connectors and (role := next((ROLES[word] for word in ROLES if word in said), None)):
            return role
    return launch.role


def _with_roles(launches: Sequence[Described]) -> Sequence[Described]:
    """Return the engines of a file: beside prefill, an engine without a role has the other, as Dynamo's default is."""
    roles = {each.role for each in launches}
    if len(roles) != 2 or "both" not in roles:
        return launches
    other = "decode" if "prefill" in roles else "prefill"
    return [replace(each, role=other) if each.role == "both" else each for each in launches]


def _chosen(source: str, launches: Sequence[Described], role: str, gpu: str | None, number: int | None = None
            ) -> Described:
    """Return the engine of a file that is asked for, with the replicas of all that are equal to it.

    Parameters
    ----------
    number : of the engine, among the engines that differ; None if none is asked for [1].
    """
    launches = _with_roles(launches)
    kinds = list(dict.fromkeys(_deployment(each, any_gpu=False) for each in launches))
    if number is not None and not 1 <= number <= len(kinds):
        raise UsageError(f"--from-command {source}#{number}: {source} launches {len(kinds)} different engines; give a "
                         f"number from 1 to {len(kinds)}")
    if number is not None:
        launches = [each for each in launches if _deployment(each, any_gpu=False) == kinds[number - 1]]
    of_role = [each for each in launches if each.role == role] or [
        each for each in launches if role == "both" or each.role == "both"]
    if not of_role:
        raise UsageError(f"--from-command {source}: has no engine for {role}, only for {launches[0].role} "
                         f"({launches[0].place}); give the file that has one")
    of_role = of_gpu(of_role, gpu)
    first, any_gpu = of_role[0], gpu is not None
    if role == "both" and len({each.role for each in of_role}) > 1:
        raise UsageError(f"--from-command {source}: launches separate engines for prefill and decode "
                         f"({', '.join(each.place for each in of_role)}); {REMEDY}")
    if all(_deployment(each, any_gpu) == _deployment(first, any_gpu) for each in of_role):
        return replace(first, replicas=sum(each.replicas for each in of_role))
    numbers = {kinds.index(_deployment(each, any_gpu=False)) + 1: each.place for each in reversed(of_role)}
    places = ", ".join(f"#{one}: {place}" for one, place in sorted(numbers.items()))
    remedy = "choose one with --gpu" if all(
        _deployment(each, True) == _deployment(first, True) for each in of_role) else (
        f"give {'the command of one of them' if source == TEXT else f'{source}#1 for #1'}, or each to a [[pool]] of a "
        f"fleet's file as its from_command")
    raise UsageError(f"--from-command {source}: launches several engines that differ ({places}); {remedy}")


def _deployment(launch: Described, any_gpu: bool) -> tuple[str, ...]:
    """Return the words that identify a deployment: its launch without flags that differ between equal replicas.

    Parameters
    ----------
    any_gpu : whether deployments on different GPUs are equal.
    """
    beginning = launched(launch.words)
    flags = (f"{flag}={value}" for flag, value in flags_in(beginning.engine, beginning.arguments)
             if normal(flag) not in OF_A_REPLICA)
    names = () if any_gpu else (str(named.gpu or named.text) for named in launch.gpu_names)
    options = (f"{name}={value}" for name, value in launch.options.items())
    return (beginning.engine, launch.role, *flags, *names, *options)


def _arguments(text: str, sign: str) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of arguments up to the bracket that closes them."""
    for part in _parts(text):
        name, _, value = part.partition(sign)
        found = _value(value.strip())
        if found is not None:
            yield name.strip(" '\""), found


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between its commas, except commas in brackets and quotes."""
    depth, begin, quote, place = 0, 0, "", 0
    while place < len(text):
        letter = text[place]
        if quote:
            place += letter == "\\"
            quote = "" if letter == quote else quote
        elif letter in QUOTES:
            quote = letter
        elif letter in OPEN:
            depth += 1
        elif letter in CLOSED and depth == 0:
            break
        elif letter in CLOSED:
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[begin:place]
            begin = place + 1
        place += 1
    if text[begin:place].strip():
        yield text[begin:place]


def _value(text: str) -> Any:
    """Return the value of a Python literal, or the text; members of an enumeration are their names.

    >>> _value("{'level': None, 'cudagraph_mode': <CUDAGraphMode.FULL: 2>}")
    {'cudagraph_mode': 'FULL'}
    """
    try:
        return _given(ast.literal_eval(MEMBER.sub(r"'\1'", text)))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _given(value: Any) -> Any:
    """Return a value without the keys that are None, which are the defaults."""
    return {key: _given(each) for key, each in value.items() if each is not None} if isinstance(value, dict) else value
