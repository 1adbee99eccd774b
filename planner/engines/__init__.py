"""Serving engines, one file each: every fact about vLLM, SGLang and TensorRT-LLM except their scheduler rules."""

from planner.engines.engine import Engine
from planner.engines.sglang import SGLANG
from planner.engines.trtllm import TRTLLM
from planner.engines.vllm import VLLM

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (VLLM, SGLANG, TRTLLM)}


def defaults_text(name: str) -> str:
    """Return each engine's default of an option, for its help.

    >>> defaults_text("max_num_seqs")
    "[engine's: vllm 128, sglang 2048, trtllm 2048]"
    """
    words = {True: "on", False: "off"}
    values = {engine.name: getattr(engine.defaults, name) for engine in ENGINES.values()}
    texts = (f"{engine} {words[value] if isinstance(value, bool) else value}" for engine, value in values.items())
    return f"[engine's: {', '.join(texts)}]"


__all__ = ["ENGINES", "Engine", "defaults_text"]
