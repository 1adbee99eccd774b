"""Files of options that an engine reads with --config, given in place of its command."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.engines import ENGINES
from planner.engines.dialect import Tree
from planner.launch.described import Described
from planner.launch.flag_names import names_of, normal

COMMANDS = {"vllm": ("vllm", "serve"), "sglang": ("python", "-m", "sglang.launch_server"), "trtllm": ("trtllm-serve",)}


def is_engine_config(document: Mapping[str, Any]) -> bool:
    """Tell whether a document's keys are an engine's options."""
    return _engine(document) is not None


def of_engine_config(document: Mapping[str, Any], path: Path) -> Iterator[Described]:
    """Yield the engine whose options these are."""
    engine = _engine(document)
    if engine is not None:
        yield Described(words=[*COMMANDS[engine], ENGINES[engine].dialect.files[0], str(path)], place=path.name)


def _engine(document: Mapping[str, Any]) -> str | None:
    """Return the engine that knows all keys, or most of them and one that names the engine; None if none does."""
    keys = {f"--{normal(str(key))}" for key in document}
    known = {name: len(keys & set(names_of(name))) for name in COMMANDS}
    trees = {name for entry in ENGINES["trtllm"].dialect.file_entries if isinstance(entry, Tree)
             for name in entry.names} - {"--speculative-config"}
    if keys & trees:
        return "trtllm"
    best = max(known, key=lambda name: known[name])
    return best if keys and known[best] >= max(1, 0.75 * len(keys)) else None
