"""What tests of step times need: a stack from a few names, one step as a record, and how long it takes."""

import functools
from dataclasses import replace
from typing import Any

from planner import engines
from planner.catalog.catalog_files import load_gpu, load_model
from planner.loop import timing
from planner.loop.rows import STEP_ROW
from planner.loop.state import engine_state as st
from planner.model.layout import Layout
from planner.steptime.by_term import step_terms
from planner.steptime.engine_constants import EngineConstants, load_engine
from planner.steptime.roofline import roofline
from planner.steptime.step_context import StepContext

ENGINES = tuple(engines.ENGINES)
TEXT_ENGINES = tuple(engine for engine in ENGINES if engine != "tei")  # that generate text
gpu_of, model_of = functools.cache(load_gpu), functools.cache(load_model)


@functools.cache
def stack_of(model: str = "llama-3.1-8b", gpu: str = "h100-sxm", engine: str = "vllm", layout: Layout | None = None,
             quantization: str | None = None, kv_bytes_per_element: float = 2.0) -> StepContext:
    """Return a stack with its engine's bundled constants, whose steps up to 512 are CUDA graphs."""
    return StepContext(
        arch=model_of(model), gpu=gpu_of(gpu), layout=layout or Layout(), quantization=quantization,
        kv_bytes_per_element=kv_bytes_per_element, engine=engine, constants=load_engine(engine), graph_seqs=512,
        graph_tokens=512, is_overlapped=True)


def with_constants(stack: StepContext, **changes: Any) -> StepContext:
    """Return a stack whose engine has other constants."""
    constants: EngineConstants = replace(stack.constants, **changes)
    return replace(stack, constants=constants)


def step(prompt: int = 0, decodes: int = 0, context: int = 0, *, cached: int = 0, window: int = 0) -> Any:
    """Return one step: a prompt chunk after `cached` tokens, and decodes with `context` tokens each."""
    row = st.records(1, STEP_ROW)
    row.num_prompts = int(prompt > 0)
    row.num_prompt_tokens = prompt
    row.prompt_context_tokens = cached
    row.prompt_pairs = prompt * cached + prompt * (prompt + 1) // 2
    pairs_in_window: Any = timing.window_pairs
    row.window_pairs = pairs_in_window.py_func(window, cached, prompt) if window else row.prompt_pairs
    row.num_decodes = decodes
    row.decode_context_tokens = decodes * context
    row.num_sampled = int(prompt > 0) + decodes
    return row


def terms_of(stack: StepContext, row: Any) -> dict[str, float]:
    """Return how the time of a step divides [s]; each of its decodes has all drafts."""
    row.num_drafted_tokens = row.num_decodes * (stack.tokens_per_decode - 1)
    return {name: float(values[0]) for name, values in step_terms(roofline(stack), row, 0.0).items()}


def seconds(stack: StepContext, row: Any) -> float:
    """Return how long a step takes [s]."""
    return sum(terms_of(stack, row).values())


def gpu_seconds(stack: StepContext, row: Any) -> float:
    """Return what the GPU does of it [s]."""
    return seconds(stack, row) - terms_of(stack, row)["overhead_s"]
