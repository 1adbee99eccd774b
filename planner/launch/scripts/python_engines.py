"""Classes and functions of Python packages that start an engine, as the commands that start the same one."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from planner.engines import ENGINES
from planner.engines.releases import stated_release
from planner.errors import UsageError
from planner.launch.beginnings import IMAGE_NAME, OF_A_SHELL, find_launch, image_release, launched
from planner.launch.described import Described
from planner.launch.manifests.containers import SHELLS, count_of, flags_of
from planner.launch.manifests.ray_serve import of_ray
from planner.launch.scripts.python_values import Computed, Made, plain
from planner.launch.scripts.shell_script import script_launches

VLLM_CLASSES = {"LLM": "llm_class", "EngineArgs": "engine_context", "AsyncEngineArgs": "engine_context"}
SGLANG_CLASSES = ("Engine", "ServerArgs", "Runtime")
RAY_SERVE, RAY_DATA = "LLMConfig", "vLLMEngineProcessorConfig"
TABLES = ("model_loading_config", "deployment_config", "engine_kwargs", "runtime_env")  # arguments of Ray's classes
# Functions that run a command: of subprocess, os, asyncio, modal's images, and SGLang's documents.
RUN = ("run", "Popen", "call", "check_call", "check_output", "system", "popen", "execv", "execvp", "getoutput",
       "create_subprocess_exec", "create_subprocess_shell", "launch_server_cmd", "execute_shell_command", "entrypoint",
       "cmd")
PINNED = re.compile(r"(?:vllm|sglang|tensorrt[-_]llm)(?:\[[\w,]+\])?==(\d[\w.]*)")
BACKENDS = {"_tensorrt_engine": "tensorrt", "auto_deploy": "_autodeploy"}  # of TensorRT-LLM, by the class's module
FILE = "the arguments"  # of TensorRT-LLM's class, as its file has them


def is_engine(name: str) -> bool:
    """Tell whether a class of a package starts an engine."""
    return _engine(name) is not None or (name.startswith("ray.") and name.endswith((RAY_SERVE, RAY_DATA)))


def _engine(name: str) -> str | None:
    """Return the engine that a class starts; None if it starts none."""
    package, _, last = name.partition(".")[0], *name.rpartition(".")[1:]
    if package == "vllm" and last in VLLM_CLASSES:
        return "vllm"
    if package == "sglang" and last in SGLANG_CLASSES:
        return "sglang"
    return "trtllm" if package == "tensorrt_llm" and last == "LLM" else None


def stated(constants: Iterable[Any]) -> dict[str, Any]:
    """Return the release that texts of a script name: of a package that is installed, or of an image."""
    for text in constants:
        if not isinstance(text, str):
            continue
        pinned = PINNED.search(text)
        if pinned is not None:
            release = stated_release(pinned[1])
        else:
            release = image_release(text) if IMAGE_NAME.fullmatch(text) else None
        if release is not None:
            return {"engine_version": release}
    return {}


def described_class(made: Made, place: str, gpus: int | None, variables: Mapping[str, str], around: Mapping[str, Any]
                    ) -> Iterator[Described]:
    """Yield the engines that a class starts, as commands with the same options.

    Raises
    ------
    UsageError : its arguments do not stand in the text.
    """
    arguments = plain(made)
    unknown = next((value for value in made.arguments.values() if isinstance(value, Computed)
                    and value.text.startswith("**")), None)
    if unknown is not None:
        raise UsageError(f"--from-command: {place} starts an engine with {unknown.text}, which the text does not say; "
                         f"write the arguments out, or give the command of the same server")
    engine, last = _engine(made.name), made.name.rpartition(".")[2]
    if engine is None:
        yield from _of_ray(last, arguments, place)
        return
    context = arguments.pop("usage_context", VLLM_CLASSES.get(last))
    model = next((arguments.pop(key) for key in ("model", "model_path", "0") if key in arguments), None)
    options = {key: value for key, value in arguments.items() if not key.isdigit()}
    known = {name: value for name, value in variables.items() if name in ENGINES[engine].dialect.known_variables}
    own: dict[str, Any] = {**around} | ({"usage_context": context} if engine == "vllm" else {})
    if engine == "trtllm":
        backend = next((value for part, value in BACKENDS.items() if part in made.name), "pytorch")
        text = yaml.safe_dump({"backend": backend, **options}, sort_keys=False)
        words = ["trtllm-serve", *([] if model is None else [str(model)]), "--config", FILE]
        yield Described(words=words, place=place, files={FILE: text}, gpus=gpus, variables=known, options=own)
        return
    launch = list(ENGINES[engine].dialect.launch)
    yield Described(words=[*(launch if model is not None else launch[:-1] if engine == "sglang" else launch),
                           *([] if model is None else [str(model)]), *flags_of(options)],
                    place=place, gpus=gpus, variables=known, options=own)


def _of_ray(last: str, arguments: dict[str, Any], place: str) -> Iterator[Described]:
    """Yield the engines of a class of Ray: Serve's configuration, or Data's processor, whose engines are replicas.

    Raises
    ------
    UsageError : a table among its arguments does not stand in the text.
    """
    unknown = next((key for key in TABLES if not isinstance(arguments.get(key) or {}, Mapping)), None)
    if unknown is not None:
        raise UsageError(f"--from-command: {place} has {unknown} = {arguments[unknown]}, which the text does not say "
                         f"as a table; write it out")
    if last == RAY_SERVE:
        yield from of_ray({"llm_configs": [arguments]})
        return
    yield Described(words=["vllm", "serve", str(arguments.get("model_source")), *flags_of(
        arguments.get("engine_kwargs") or {})], place=place, replicas=count_of(arguments.get("concurrency")),
        options={"usage_context": "engine_context"})


def described_command(words: list[str], place: str, gpus: int | None, variables: Mapping[str, str],
                      around: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines that a command launches; none if it launches something else."""
    shell = next((number for number, word in enumerate(words) if OF_A_SHELL.fullmatch(word)), None) if (
        words[0].rpartition("/")[2] in SHELLS) else None
    script = words[0] if len(words) == 1 else words[shell + 1] if shell is not None and shell + 1 < len(words) else None
    if script is not None:
        found = [(launch.words, launch.files, {**variables, **launch.variables})
                 for launch in script_launches(script, variables)]
    else:
        found = [(words, {}, dict(variables))] if find_launch(words) is not None else []  # type: ignore[list-item]
    for launch_words, files, set_there in found:
        known = ENGINES[launched(launch_words).engine].dialect.known_variables
        yield Described(words=launch_words, place=place, files=files, gpus=gpus, options=around,
                        variables={name: value for name, value in set_there.items() if name in known})
