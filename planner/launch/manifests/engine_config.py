"""Files of an engine's own options: files of --config, and TensorRT-LLM's for prefill and decode apart."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from planner.engines import ENGINES
from planner.engines.dialect import Tree
from planner.launch.described import Described
from planner.launch.flag_names import names_of, normal
from planner.launch.manifests.document_values import count_of

SERVERS = {"context_servers": "prefill", "generation_servers": "decode"}
# Keys of the router and of addresses: tensorrt_llm/llmapi/disagg_utils.py.
OF_THE_ROUTER = ("hostname", "port", "urls", "num_instances", "router", "conditional_disagg_config", "max_retries",
                 "perf_metrics_max_requests", "disagg_cluster", "otlp_config", "node_id", "schedule_style")
ELSEWHERE = ("names addresses without options; the options stand in the commands of these servers; give each "
             "command to its [[pool]]")


def is_engine_config(document: Mapping[str, Any]) -> bool:
    """Tell whether a document's keys are an engine's options."""
    return _engine(document) is not None


def of_engine_config(document: Mapping[str, Any], path: Path) -> Iterator[Described]:
    """Yield the engine whose options these are."""
    engine = _engine(document)
    if engine is not None:
        dialect = ENGINES[engine].dialect
        yield Described(words=[*dialect.command, dialect.files[0], str(path)], place=path.name)


def _engine(document: Mapping[str, Any]) -> str | None:
    """Return the engine that has a table among the keys for itself, or that knows most of them; None if none does."""
    keys = {f"--{normal(str(key))}" for key in document}
    known = {name: len(keys & set(names_of(name))) for name in ENGINES}
    tables = {name: {table for entry in (*engine.dialect.entries, *engine.dialect.file_entries)
                     if isinstance(entry, Tree) for table in entry.names} for name, engine in ENGINES.items()}
    counts = Counter(table for names in tables.values() for table in names)
    for name, names in tables.items():
        if ENGINES[name].dialect.file_entries and any(counts[table] == 1 for table in keys & names):
            return name
    best = max(known, key=lambda name: known[name])
    return best if keys and known[best] >= max(1, 0.75 * len(keys)) else None


def is_trtllm_disaggregated(document: Mapping[str, Any]) -> bool:
    """Tell whether a document has context and generation servers."""
    return all(isinstance(document.get(name), Mapping) for name in SERVERS)


def of_trtllm_disaggregated(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the servers of both roles; options beside them hold for both, and a server's own go before."""
    for name, role in SERVERS.items():
        servers = document[name]
        own = _options(servers)
        options = {**_options(document), **own}
        model = options.pop("model", None)
        text = yaml.safe_dump(options, sort_keys=False)
        words = ["trtllm-serve", *([] if model is None else [str(model)]), "--config", name]
        yield Described(words=words, place=name, files={name: text}, replicas=count_of(servers.get("num_instances")),
                        role=role, notes=() if own else (ELSEWHERE,))


def _options(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of servers among the keys of a table."""
    return {key: value for key, value in document.items() if key not in (*SERVERS, *OF_THE_ROUTER)}
