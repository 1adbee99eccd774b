"""A launch command read: the engine, the model, the options that its flags set, and flags that set none."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner.catalog.catalog_files import is_path
from planner.engines import ENGINES
from planner.engines.releases import stated_release
from planner.errors import UsageError
from planner.launch.beginnings import PACKAGES, Beginning, image_release, launched
from planner.launch.checkpoint_format import known_model, missing_checkpoint
from planner.launch.chosen_engine import on_gpu
from planner.launch.described import Described
from planner.launch.flag_names import find_flag, flags_in, names_of, nested, normal
from planner.launch.launch_file import check_no_path, file_of, read_file, read_text
from planner.launch.logged_arguments import Logged
from planner.launch.manifests.document_values import lacks_variables
from planner.launch.settings_files import contradictions, layers, variables_of_files
from planner.launch.settle import check_longer_context, check_method, settle
from planner.launch.take_flags import Taken, take_flag, take_variable
from planner.settings.crossing import crossed
from planner.settings.deployment_options import SIZES
from planner.settings.scenario import Scenario

# Images that wrap an engine, whose tags count releases of their own; and tags of the newest build.
OTHER_IMAGE = re.compile(rf"(?:\S*/)?\S*(?:{PACKAGES})[\w.-]*(?:/release)?:(\w[\w.-]*)")
CACHED = re.compile(r"(?:.*/)?models--([^/]+?)--([^/]+?)(?:/snapshots/[^/]+)?/?")  # a folder of Hugging Face's cache
VARIABLE = re.compile(r"%\w+%")  # of Windows' shell
NEWEST = re.compile(r"latest|nightly|main|dev|edge", re.IGNORECASE)
IMAGES_FLAG = "--limit-mm-per-prompt"
PATH = re.compile(r"\.{0,2}/|\w+://")
ROUTED = "deals requests to the replicas; --router has the rule, and prefix-aware is near to its default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The settings that a launch command asks for.

    Parameters
    ----------
    options : of `Scenario`, by name: `engine`, `model`, and options of the flags.
    left_aside : flags without an effect on a prediction, as they were written; of variables of the environment their
        names alone, since values may be secret.
    unmodelled : flags that would change the answer, each with its effect.
    unknown : flags that are not the engine's, in its newest release or an older one that is known.
    notes : further facts for a user: replicas, GPUs requested.
    """

    options: Mapping[str, Any]
    left_aside: tuple[str, ...]
    unmodelled: tuple[tuple[str, str], ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_launch(command: str, *, reads_files: bool = True, model: str | None = None, role: str = "both",
                gpu: str | None = None, version: str | None = None) -> Launch:
    """Read the command that launches an engine: `vllm serve …`, `python -m sglang.launch_server …`, `trtllm-serve …`.

    Or the path of a file with it: a script, a deployment file (Kubernetes, compose, Helm values …), an engine's own
    file of options, or the log of a server of vLLM's or SGLang's from its beginning. `FILE#2` is the second of the
    file's different engines; variables before a script are set, as in `NVLINK=1 start.sh`.

    Parameters
    ----------
    reads_files : False refuses every file that the command names or is, as for text from a browser.
    model : given beside the command, whose own gives way to it.
    role : of the engine in a fleet: prefill, decode, or both.
    gpu : given beside the command; it outranks the GPU that a file names. Several are separated by commas.
    version : of the engine, given beside the command; it outranks the command's own.

    >>> launch = read_launch("vllm serve Qwen/Qwen3-32B -tp 2 --max-num-seqs 256 --port 8000")
    >>> launch.options
    {'engine': 'vllm', 'model': 'Qwen/Qwen3-32B', 'tensor_parallel_size': 2, 'max_num_seqs': 256}
    >>> launch.left_aside
    ('--port 8000',)

    Raises
    ------
    UsageError : it launches none of these engines, names no model, or has a value that is wrong or not modelled.
    """
    file = file_of(command) if reads_files else None
    if reads_files and file is None:
        check_no_path(command)
    source = read_text(command, role, gpu) if file is None else read_file(file, role, gpu)
    source = source if isinstance(source, Logged) else on_gpu(source, gpu)
    if isinstance(source, Logged):
        taken, notes = _of_log(source, role), list[str]()
    else:
        taken, notes = _of_words(source, role, reads_files, None if file is None else file.path.parent, version)
        notes = [*_around(source, taken.found), *_image(source, taken), *notes]
    taken.found["launched_model"] = taken.found.get("model", "")
    if model is not None:
        taken.found["model"] = model
    _check_model(taken)
    _check_path(taken)
    if not isinstance(source, Logged):  # a server with a log has started
        check_longer_context(taken)
        if model is None or is_path(model):  # else the checkpoint may be another one than the model's own
            check_method(taken)
    if taken.found.get("performance_mode") == "interactivity":
        del taken.found["performance_mode"]
        taken.unmodelled.append(("--performance-mode interactivity", "captures CUDA graphs of more sizes"))
    options = settle(taken)
    if not isinstance(source, Logged):
        options, notes = _replicated(options, source, [*notes, *_weights(options)])
    return Launch(options=options, left_aside=tuple(taken.no_effect), unmodelled=tuple(taken.unmodelled),
                  unknown=tuple(taken.unknown), notes=tuple(notes))


def launch_options(command: str, *, reads_files: bool = True, model: str | None = None, role: str = "both",
                   beside: Mapping[str, Any] = MappingProxyType({})) -> tuple[dict[str, Any], list[str]]:
    """Return the options that a launch command sets, and notes on them.

    Parameters
    ----------
    command, reads_files, model, role : as of `read_launch`.
    beside : options that are given beside the command. With another engine, values that belong to the command's own
        engine are left out.

    Raises
    ------
    UsageError : as `read_launch`.
    """
    launch = read_launch(command, reads_files=reads_files, model=model, role=role, gpu=beside.get("gpu"),
                         version=beside.get("engine_version"))
    options, engine, notes = dict(launch.options), beside.get("engine"), _notes(launch)
    if options.get("data_parallel_attention") and (size := beside.get("tensor_parallel_size")):
        notes.append(f"--tensor-parallel-size {size} counts the GPUs of each of the {options['data_parallel_size']} "
                     f"ranks of data-parallel attention in the command")
    if engine not in ENGINES:
        return options, notes
    options, about = crossed(options, dict.fromkeys(options.keys() - beside.keys(), options["engine"]), engine)
    return options, [*notes, *about]


def _notes(launch: Launch) -> list[str]:
    """Return the notes on flags that set no option: without effect, unknown, and each effect that is not modelled."""
    notes = [f"--from-command: {note}" for note in launch.notes]
    if launch.left_aside:
        notes.append(f"--from-command: left aside, as without effect: {', '.join(launch.left_aside)}")
    if launch.unknown:
        title = ENGINES[launch.options["engine"]].title
        notes.append(f"--from-command: left aside, as no flag of {title} that is known: {', '.join(launch.unknown)}")
    effects = dict.fromkeys(effect for _, effect in launch.unmodelled)
    for effect in effects:
        flags = ", ".join(flag for flag, each in launch.unmodelled if each == effect)
        notes.append(f"--from-command: not modelled, and would change the answer: {flags}: {effect}")
    return notes


def _of_words(source: Described, role: str, reads_files: bool, folder: Path | None, version: str | None
              ) -> tuple[Taken, list[str]]:
    """Take over the settings of a command line and its files, with notes on options that they set differently."""
    beginning = launched(source.words)
    taken = Taken(beginning.engine, role)
    taken.found |= source.options
    _take_version(beginning.release or image_release(source.image or ""), taken)
    read, missing = variables_of_files(beginning, folder, reads_files)
    for name, value in {**source.variables, **read, **beginning.variables}.items():
        take_variable(taken, name, value)
    _refuse_abbreviations(beginning)
    if taken.dialect.with_router in beginning.before:
        taken.unmodelled.append((str(taken.dialect.with_router), ROUTED))
    ordered = layers(beginning, source, folder, reads_files, version or taken.found.get("engine_version"))
    values = [dict(taken.found)]
    for layer in ordered:
        for flag, value in _whole_tables(layer.settings, (*taken.dialect.connectors, IMAGES_FLAG)):
            take_flag(taken, flag, value)
        values.append(dict(taken.found))
    notes = [f"{source.place} {note}" for note in lacks_variables(missing, "is not read")]
    return taken, [*notes, *contradictions([layer.place for layer in ordered], values)]


def _whole_tables(settings: Iterable[tuple[str, Any]], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield settings, with the keys of a table that stand in flags of their own as the table, for flags of these names.

    vLLM reads `--kv-transfer-config.kv_role kv_both` so.
    """
    of_tables = []
    for flag, value in settings:
        head, dot, path = flag.partition(".")
        if dot and normal(head) in names:
            of_tables.append((f"{normal(head)}.{path}", int(value) if str(value).isdigit() else value))
        else:
            yield flag, value
    yield from nested(of_tables).items()


def _refuse_abbreviations(beginning: Beginning) -> None:
    """Raise UsageError if a command has the beginning of a flag, and takes whole flags alone."""
    dialect, names = ENGINES[beginning.engine].dialect, names_of(beginning.engine)
    if not any(pattern.fullmatch(word) for word in beginning.before[-2:] for pattern in dialect.refuses_abbreviations):
        return
    for flag, _ in flags_in(beginning.engine, beginning.arguments):
        begun = [name for name in names if name.startswith(normal(flag))]
        if begun and find_flag(beginning.engine, flag) is None:
            meant = min(begun, key=len).removeprefix("--").replace("-", dialect.dash)
            raise UsageError(f"--from-command: {flag} is no flag of {ENGINES[beginning.engine].title}, which takes no "
                             f"abbreviations and does not start with it; did you mean --{meant}? Correct it, or leave "
                             f"it out")


def _of_log(logged: Logged, role: str) -> Taken:
    """Take over a server's log; values of flags that are left aside may be secret, and SGLang's are mostly defaults.
    """
    taken = Taken(logged.engine, role)
    _take_version(logged.version, taken)
    for name, value in logged.arguments.items():
        if name == "model_tag":  # the first word of `vllm serve`
            taken.found.setdefault("model", str(value))
        else:
            take_flag(taken, f"--{normal(name)}", value, is_typed=False)
    names = [each.partition(" ")[0] for each in (*taken.no_effect, *taken.unknown)]
    taken.no_effect, taken.unknown = names, []
    taken.unmodelled = [(flag.partition(" ")[0], effect) for flag, effect in taken.unmodelled]
    if taken.dialect.logs_all_arguments:
        names += [flag for flag, _ in taken.unmodelled]
        taken.unmodelled = []
        taken.no_effect = [f"{len(names)} more of {ENGINES[logged.engine].title}'s arguments"] if names else []
    return taken


def _take_version(version: str | None, taken: Taken) -> None:
    """Take over a version that is a release's; "latest" and nightly builds are as the newest."""
    release = stated_release(version)
    if release is not None:
        taken.found["engine_version"] = release


def _check_model(taken: Taken) -> None:
    """Read a model's name, also from a folder of Hugging Face's cache.

    Raises
    ------
    UsageError : there is none, or it is a variable without a value.
    """
    model = taken.found.get("model")
    if model is not None and (cached := CACHED.fullmatch(model)) and not Path(model).exists():
        taken.found["model"] = f"{cached[1]}/{cached[2]}"
    if model is None:
        raise UsageError(f"--from-command: names no model, as {' '.join(taken.dialect.launch)} MODEL does; give it "
                         f"there, or with --model")
    if " -" in model:
        raise UsageError(f"--from-command: the model is {model!r}, one word with spaces; write each of its words as a "
                         f"word of its own")
    if "$" in model or "{{" in model or VARIABLE.search(model):
        raise UsageError(f"--from-command: the model is {model}, a variable without a single value; put its value "
                         f"in its place, or give --model")


def _check_path(taken: Taken) -> None:
    """Raise UsageError if the model is a path that says nothing, and the name that it is served by is a known model's.
    """
    model, served = str(taken.found["model"]), "--served-model-name "
    if not PATH.match(model) or known_model(model) is not None:
        return
    names = (name for flag in taken.no_effect if flag.startswith(served) for name in flag.removeprefix(served).split())
    if (name := next(filter(known_model, names), None)) is not None:
        raise UsageError(f"--from-command: the model is {model}, a path that names none, and it is served as {name}; "
                         f"if it is that model, give --model {name}")


def _around(source: Described, found: Mapping[str, Any]) -> list[str]:
    """Return notes on a file's engine: that it requests other GPUs than its command uses."""
    notes = [f"{source.place} {note}" for note in source.notes]
    used = math.prod(found.get(name, 1) for name in SIZES)
    if not ENGINES[found["engine"]].dialect.ranks.needs_switch:  # the TP size is a rank's
        used *= found.get("data_parallel_size", 1)
    if source.gpus is None or source.gpus == used:
        return notes
    return [*notes, f"{source.place} requests {source.gpus} GPUs, and its command uses {used}; {used} are predicted"]


def _image(source: Described, taken: Taken) -> list[str]:
    """Say that an image's tag names no release, so that the newest is predicted."""
    if "engine_version" in taken.found:
        return []
    images = [match for word in ([source.image] if source.image else launched(source.words).before)
              if (match := OTHER_IMAGE.fullmatch(word.rpartition("=")[2])) and not NEWEST.match(match[1])]
    return [f"the tag of {images[0][0]} names no release of {ENGINES[taken.engine].title}; without --engine-version "
            f"the newest is predicted"] if images else []


def _weights(options: Mapping[str, Any]) -> list[str]:
    """Say that the engine would not load the model's checkpoint in the weight format that its command asks for."""
    names = ("model", "engine", "engine_version", "quantization")
    missing = missing_checkpoint(Scenario(**{name: options[name] for name in names if name in options}))
    return [] if missing is None else [f"the prediction is of {missing}"]


def _replicated(options: dict[str, Any], source: Described, notes: list[str]
                ) -> tuple[dict[str, Any], list[str]]:
    """Return the options with a file's replicas, and the notes."""
    if source.replicas <= 1:
        return options, notes
    if options.get("data_parallel_attention"):
        return options, [*notes, f"{source.place} has {source.replicas} replicas of an engine with ranks; one is "
                                 f"predicted. A fleet's file has replicas of it: replicas = {source.replicas} in a "
                                 f"[[pool]]"]
    options["data_parallel_size"] = source.replicas * options.get("data_parallel_size", 1)
    return options, notes
