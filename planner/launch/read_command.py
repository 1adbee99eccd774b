"""A launch command read: the engine, the model, the options that its flags set, and what was left aside."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from planner.catalog.catalog_files import load_gpu
from planner.engines import ENGINES
from planner.engines.dialect import Dialect, Flag, Switch, Tree
from planner.engines.releases import check_release, stated_release
from planner.engines.values import table, truth, whole
from planner.errors import UsageError
from planner.launch.logged import Logged, file_of, read_file
from planner.launch.rank_flags import read_ranks

# The words that a launch begins with; of the words before them (docker run) only variables and an image's tag are read.
BEGINNINGS = tuple((pattern, name) for name, engine in ENGINES.items() for pattern in engine.dialect.commands)
IMAGES = "|".join(image for engine in ENGINES.values() for image in engine.dialect.images)
IMAGE = re.compile(rf"(?:\S*/)?(?:{IMAGES}):v?([^-@\s]+)\S*")  # its tag, up to a dash
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*=")
ENDS = (";", "&", "&&", "|", "||", ">", ">>", "2>", "2>&1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a launch command asks for.

    Parameters
    ----------
    options : of `Scenario`, by name: `engine`, `model`, and what the flags set.
    left_aside : flags that have no part in a prediction, or none that is modelled, as they were written; of variables
        of the environment their names alone, since values may be secret.
    """

    options: Mapping[str, Any]
    left_aside: tuple[str, ...]


def read_launch(command: str, *, reads_files: bool = True) -> Launch:
    """Read what launches an engine: `vllm serve …`, `python -m sglang.launch_server …`, `trtllm-serve …`.

    Or the path of a file with it: a script, or the log of a server of vLLM's or SGLang's from its beginning.

    Parameters
    ----------
    reads_files : False refuses every file that the command names or is, as for text from a browser.

    >>> launch = read_launch("vllm serve Qwen/Qwen3-32B -tp 2 --max-num-seqs 256 --port 8000")
    >>> launch.options
    {'engine': 'vllm', 'model': 'Qwen/Qwen3-32B', 'tensor_parallel_size': 2, 'max_num_seqs': 256}
    >>> launch.left_aside
    ('--port 8000',)

    Raises
    ------
    UsageError : it launches none of these engines, names no model, or has a value that is wrong or not modelled.
    """
    path = file_of(command) if reads_files else None
    launched = command if path is None else read_file(path, _begins)
    found: dict[str, Any] = {}
    left: list[str] = []
    dialect = (_of_log(launched, found, left) if isinstance(launched, Logged)
               else _of_command(launched, found, left, reads_files))
    if "model" not in found:
        raise UsageError(f"--from-command: names no model, as {' '.join(dialect.launch)} MODEL does")
    _settle_draft(found, left)
    _settle_adapters(found, left)
    return Launch(options=_settled(read_ranks(found)), left_aside=tuple(left))


def launch_options(command: str, gpu: str | None, version: str | None = None,
                   otherwise: str | None = None, *, reads_files: bool = True) -> tuple[dict[str, Any], list[str]]:
    """Return the options that a launch command sets on a GPU, and what a user should know of them.

    What the server fills in by the GPU and its release is filled in: vLLM's limits of sequences and tokens, and its
    share of the memory.

    Parameters
    ----------
    version : of the engine, where it is given beside the command, whose own gives way to it.
    otherwise : the engine's version where neither says it.
    reads_files : as for `read_launch`.

    Raises
    ------
    UsageError, UnknownNameError, CatalogError : as `read_launch` and `catalog_files.load_gpu`.
    """
    launch = read_launch(command, reads_files=reads_files)
    notes, own = [], {}
    if launch.left_aside:
        notes.append(f"--from-command: left aside, as without effect or not modelled: {', '.join(launch.left_aside)}")
    serve_defaults = ENGINES[launch.options["engine"]].serve_defaults
    if serve_defaults is not None and gpu is not None:
        check_release(version)
        defaults = _served_on(serve_defaults, gpu, version or launch.options.get("engine_version") or otherwise)
        own = {name: value for name, value in defaults.items() if name not in launch.options}
        if own:
            notes.append(f"--from-command: vllm serve's own on {gpu}: "
                         f"{', '.join(f'{name} = {value:,}' for name, value in own.items())}")
    return dict(launch.options) | own, notes


def _served_on(defaults: Callable[[str, float, str | None], dict[str, Any]], gpus: str, version: str | None
               ) -> dict[str, Any]:
    """Return a server's own defaults on a GPU, or on all of several with commas between."""
    profiles = [load_gpu(name) for name in gpus.split(",")]
    found = [defaults(profile.name, profile.hbm_capacity_bytes, version) for profile in profiles]
    if any(each != found[0] for each in found):
        raise UsageError(f"--from-command: vllm serve has other limits of its own on some of {gpus}; give "
                         f"--max-num-seqs and --max-num-batched-tokens in the command")
    return found[0]


def _of_command(command: str, found: dict[str, Any], left: list[str], reads_files: bool) -> Dialect:
    """Take over what a command line sets."""
    try:
        words = shlex.split(command.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise UsageError(f"--from-command: {error}; put quotes around the whole command") from error
    engine, before, words = _launched(words)
    dialect = ENGINES[engine].dialect
    found["engine"] = engine
    _take_version(next((image[1] for image in map(IMAGE.fullmatch, before) if image), None), found)
    for name, _, value in (word.rstrip(";").partition("=") for word in before if VARIABLE.match(word)):
        if name in dialect.variables:
            found[dialect.variables[name].option] = dialect.variables[name].read(name, value)
        else:
            left.append(name)
    for flag, value in _settings(dialect, words, reads_files):
        _apply(dialect, flag, value, found, left)
    return dialect


def _of_log(logged: Logged, found: dict[str, Any], left: list[str]) -> Dialect:
    """Take over what a server's log sets; values of what is left aside may be secret, and SGLang's are mostly defaults.
    """
    dialect = ENGINES[logged.engine].dialect
    found["engine"] = logged.engine
    _take_version(logged.version, found)
    others: list[str] = []
    for name, value in logged.arguments.items():
        if name == "model_tag":  # the first word of `vllm serve`
            found.setdefault("model", str(value))
        else:
            _apply(dialect, f"--{_normal(name)}", value, found, others)
    names = [each.partition(" ")[0] for each in others]
    if dialect.logs_all_arguments and names:
        names = [f"{len(names)} more of {ENGINES[logged.engine].title}'s arguments"]
    left += names
    return dialect


def _take_version(version: str | None, found: dict[str, Any]) -> None:
    """Take over a version that is a release's; "latest" and nightly builds are as the newest."""
    release = stated_release(version)
    if release is not None:
        found["engine_version"] = release


def _begins(line: str) -> bool:
    """Tell whether a line of a script launches an engine."""
    try:
        _launched(shlex.split(line, comments=True))
    except (ValueError, UsageError):
        return False
    return True


def _launched(words: Sequence[str]) -> tuple[str, Sequence[str], list[str]]:
    """Return the engine that a command launches, its words up to the arguments, and the arguments."""
    for start in range(len(words)):
        for length in (1, 2, 3):
            said = " ".join(words[start:start + length])
            for pattern, engine in BEGINNINGS:
                if pattern.fullmatch(said) and not _goes_on(words, start, length):
                    rest = words[start + length:]
                    ends = [place for place, word in enumerate(rest) if word in ENDS]
                    return engine, words[:start + length], list(rest[:ends[0]] if ends else rest)
    raise UsageError("--from-command: launches no engine that is known; give what begins with vllm serve, python -m "
                     "sglang.launch_server or trtllm-serve")


def _goes_on(words: Sequence[str], start: int, length: int) -> bool:
    """Tell whether the next word still belongs to the beginning, as the serve of `trtllm-serve serve`."""
    said = " ".join(words[start:start + length + 1])
    return len(words) > start + length and any(pattern.fullmatch(said) for pattern, _ in BEGINNINGS)


def _settings(dialect: Dialect, words: Sequence[str], reads_files: bool) -> Iterator[tuple[str, Any]]:
    """Yield flags with their values, None for a switch; files first, since the command line goes over them."""
    given = list(_flags(dialect, words))
    for flag, value in given:
        if _normal(flag) in dialect.files:
            if not reads_files:
                raise UsageError(f"--from-command: {flag} {value}: no file is read here; give its settings as flags")
            yield from _from_file(Path(str(value)), flag)
    yield from ((flag, value) for flag, value in given if _normal(flag) not in dialect.files)


def _flags(dialect: Dialect, words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the flags of a command line with their values; the first word without one is the model."""
    place, has_model = 0, False
    switches = {name for entry in dialect.entries if isinstance(entry, Switch)
                for name in (*entry.names, *map(_negated, entry.names))} | set(dialect.silent) | set(dialect.refused)
    while place < len(words):
        word = words[place]
        place += 1
        if not word.startswith("-"):
            if has_model:
                raise UsageError(f"--from-command: {word!r} belongs to no flag")
            has_model = True
            yield dialect.model[0], word
            continue
        flag, is_joined, value = word.partition("=")
        if is_joined:
            yield flag, value
        elif _normal(flag) in switches and (place == len(words) or words[place].startswith("-")
                                            or _normal(flag) not in dialect.refused):
            yield flag, None
        elif place < len(words) and not re.match(r"-+[a-zA-Z]", words[place]):
            yield flag, words[place]
            place += 1
        else:
            yield flag, None


def _from_file(path: Path, flag: str) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a YAML file, as flags."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(f"{flag} {path}: cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{flag} {path}: has no keys")
    yield from ((f"--{key}", value) for key, value in found.items())


def _apply(dialect: Dialect, flag: str, value: Any, found: dict[str, Any], left: list[str]) -> None:
    """Take a flag over into the options, or list it as left aside."""
    name = _normal(flag)
    if name in dialect.refused:
        if value is None or str(value).lower() not in ("1", "false", "none", "null"):
            raise UsageError(f"--from-command: {flag} {dialect.refused[name]}")
        return
    if name in dialect.model:
        found["model"] = str(value)
    elif name in dialect.experts:
        found["experts"] = whole(flag, value)
    elif name in dialect.kv_tokens:
        found["kv_tokens"] = whole(flag, value)
    elif (entry := _entry(dialect, name)) is None:
        left.append(flag if value is None else f"{flag} {value}")
    elif isinstance(entry, Tree):
        for key, part in table(flag, value).items():
            _apply(dialect, f"{flag}.{key}", part, found, left)
    elif isinstance(entry, Switch):
        chosen = entry.value if value is None or truth(flag, value) else entry.otherwise
        chosen = entry.otherwise if name not in entry.names else chosen
        if chosen is not None:
            found[entry.option] = chosen
    elif value is None:
        raise UsageError(f"--from-command: {flag} lacks its value")
    else:
        found[entry.option] = entry.read(flag, value)


def _entry(dialect: Dialect, name: str) -> Flag | Switch | Tree | None:
    for entry in (*dialect.entries, *dialect.file_entries):
        if name in entry.names or (isinstance(entry, Switch) and name in map(_negated, entry.names)):
            return entry
    return None


def _settle_draft(found: dict[str, Any], left: list[str]) -> None:
    """Find how tokens are drafted as the engines do; weights of a head are left aside, as its layer is known without.

    vLLM tells the method by the draft's name (`SpeculativeConfig.__post_init__`); SGLang's EAGLE without a draft of its
    own is the target's MTP layer.
    """
    model = found.get("speculative_model")
    if model is None:
        method = found.get("speculative_method", "")
        if (other := ENGINES[found["engine"]].dialect.methods_without_draft.get(method)) is not None:
            found["speculative_method"] = other
        return
    named = [method for method in ("eagle3", "eagle", "medusa") if method in model.lower()]
    method = found.setdefault("speculative_method", named[0] if named else "draft_model")
    if method != "draft_model":
        left.append(f"speculative model {model}")
        del found["speculative_model"]


def _settle_adapters(found: dict[str, Any], left: list[str]) -> None:
    """Take vLLM's --max-loras, 1 by itself, where --enable-lora is there; without it the server ignores all of them."""
    if found.pop("enable_lora", False):
        found.setdefault("max_loras", 1)
        return
    ignored = [name for name in ("max_loras", "max_cpu_loras", "max_lora_rank") if name in found]
    left += [f"--{name.replace('_', '-')} {found.pop(name)}" for name in ignored]


def _settled(found: dict[str, Any]) -> dict[str, Any]:
    """Return the options with what several flags say together, and without what means "the default"."""
    experts, kv_tokens = found.pop("experts", None), found.pop("kv_tokens", None)
    ranks = found.get("tensor_parallel_size", 1)
    if found.get("data_parallel_attention"):
        ranks *= found["data_parallel_size"]
    if experts is not None:
        if experts not in (1, ranks):
            raise UsageError(f"--from-command: experts over {experts} of {ranks} GPUs are not modelled; over 1 or "
                             f"{ranks} they are")
        found["expert_parallel"] = experts == ranks > 1
    if kv_tokens is not None:
        found["num_gpu_blocks"] = kv_tokens // found.get("block_size", 16)
    if found.get("max_num_batched_tokens", 0) < 0:  # SGLang: prompts run whole
        del found["max_num_batched_tokens"]
        found["enable_chunked_prefill"] = False
    if found.get("max_model_len", 0) < 0:  # vLLM: as long as memory allows
        del found["max_model_len"]
    return {name: value for name, value in found.items() if value is not None}


def _negated(name: str) -> str:
    return f"--no-{name.removeprefix('--')}" if name.startswith("--") else name


def _normal(flag: str) -> str:
    """Return a flag with dashes for underscores, as all three engines read it."""
    return flag.replace("_", "-")


