"""Serving engines, one file each: every fact about an engine except its scheduler rules."""

from planner.engines.atom import ATOM
from planner.engines.dynamo_metrics import DYNAMO
from planner.engines.engine import Engine
from planner.engines.sglang import SGLANG
from planner.engines.tei import TEI
from planner.engines.trtllm import TRTLLM
from planner.engines.vllm import VLLM

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (VLLM, SGLANG, TRTLLM, ATOM, TEI)}
# Series of the servers whose /metrics are read.
METRICS = (*(engine.metrics for engine in ENGINES.values() if engine.metrics is not None), DYNAMO)


def engine_named(text: str) -> str | None:
    """Return the engine that another tool's file names; None if it is not known.

    >>> engine_named("TensorRT-LLM"), engine_named("trt"), engine_named("lmdeploy")
    ('trtllm', 'trtllm', None)
    """
    return next((engine.name for engine in ENGINES.values()
                 if text.lower() in (engine.name, engine.title.lower(), *engine.package.aliases)), None)


def defaults_text(name: str) -> str:
    """Return each engine's default of an option, for its help.

    >>> defaults_text("max_prefill_tokens")
    "[engine's: vllm 0, sglang 16384, trtllm 0, atom 0, tei 0]"
    """
    return f"[engine's: {', '.join(f'{engine.name} {default_text(engine, name)}' for engine in ENGINES.values())}]"


def default_text(engine: Engine, name: str) -> str:
    """Return an engine's default of an option, or the words for its dependence."""
    value = getattr(engine.defaults.options, name)
    words = {True: "on", False: "off"}
    return engine.defaults.by_gpu.get(name, words[value] if isinstance(value, bool) else str(value))


__all__ = ["ENGINES", "METRICS", "Engine", "default_text", "defaults_text", "engine_named"]
