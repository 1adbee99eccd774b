"""Classes and functions of Python packages that start an engine, as the commands that start the same one."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from planner.engines import ENGINES, Engine
from planner.launch.beginnings import shell_script_of
from planner.launch.described import Described
from planner.launch.manifests.document_values import count_of, flags_of
from planner.launch.manifests.option_files import of_ray
from planner.launch.scripts.shell_script import script_launches

RAY_SERVE, RAY_DATA = "LLMConfig", "vLLMEngineProcessorConfig"
FILE = "the arguments"  # of a class, as the engine's file has them


def is_engine(name: str) -> bool:
    """Tell whether a class of a package starts an engine."""
    return _engine(name) is not None or (name.startswith("ray.") and name.endswith((RAY_SERVE, RAY_DATA)))


def _engine(name: str) -> tuple[Engine, Mapping[str, Any]] | None:
    """Return the engine that a class starts, and the options that the class sets; None if it starts none."""
    short = f"{name.partition('.')[0]}.{name.rpartition('.')[2]}"
    return next(((engine, engine.package.classes[short]) for engine in ENGINES.values()
                 if short in engine.package.classes), None)


def described_class(name: str, arguments: dict[str, Any], place: str, variables: Mapping[str, str],
                    around: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines that a class starts, as commands with the same options.

    Parameters
    ----------
    name : of the class, with its package.
    arguments : of its call, by name or by their place.
    around : options that the rest of the text states.
    """
    started = _engine(name)
    if started is None:
        yield from _of_ray(name.rpartition(".")[2], arguments)
        return
    engine, context = started
    dialect, files = engine.dialect, {}
    model = next((arguments.pop(key) for key in ("model", "model_path", "0") if key in arguments), None)
    options = {key: value for key, value in arguments.items() if not key.isdigit()}
    known = {name: value for name, value in variables.items() if name in dialect.known_variables}
    if engine.package.class_backends:
        backend = next(value for part, value in engine.package.class_backends.items() if part in name)
        files = {FILE: yaml.safe_dump({"backend": backend, **options}, sort_keys=False)}
    words = [*(dialect.command if model is None else (*dialect.launch, str(model))),
             *([dialect.files[0], FILE] if files else flags_of(options))]
    yield Described(words=words, place=place, files=files, variables=known, options={**context, **around})


def _of_ray(last: str, arguments: dict[str, Any]) -> Iterator[Described]:
    """Yield the engines of a class of Ray: Serve's configuration, or Data's processor, whose engines are replicas."""
    if last == RAY_SERVE:
        yield from of_ray({"llm_configs": [arguments]})
        return
    yield Described(words=["vllm", "serve", str(arguments.get("model_source")), *flags_of(
        arguments.get("engine_kwargs") or {})], place=last, replicas=count_of(arguments.get("concurrency")),
        options={"usage_context": "engine_context"})


def described_command(words: Sequence[str], place: str, variables: Mapping[str, str], around: Mapping[str, Any]
                      ) -> Iterator[Described]:
    """Yield the engines that a command launches, which may be a shell's script; none if it launches something else."""
    around = {name: value for name, value in around.items() if name != "usage_context"}
    script, arguments = shell_script_of(words) or (words[0] if len(words) == 1 else shlex.join(words), ())
    for engine in script_launches(script, variables, arguments):
        yield replace(engine, place=place, options=around)
