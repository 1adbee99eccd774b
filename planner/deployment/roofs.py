"""The hardware's least time for steps: their arithmetic and their HBM traffic at peak rates."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.catalog.architecture import Architecture
from planner.catalog.attention_reads import readings, window_tokens
from planner.catalog.parameters import num_active_parameters
from planner.deployment.deploy import Deployment
from planner.loop.compiled.jit import compile_with_signature, numba, uncompiled
from planner.loop.rows import STEP_ROW, all_sampled
from planner.loop.state import engine_state as st
from planner.loop.state.terms import CURVE, STEP_TIME
from planner.loop.timing import composition_bytes, decode_attention_bytes
from planner.model.precision import expert_format, peak_flops_per_s, weight_format


def model_flops(arch: Architecture, *, prompt_tokens: Any, decodes: Any, pairs: Any, window_pairs: Any, context: Any,
                sampled: Any) -> Any:
    """Return the arithmetic of steps, or of their totals [FLOP]: 2 FLOP per active parameter and token, and attention.

    The LM head counts for sampled tokens only, a sliding or sparse layer up to its window (for decodes as
    `engine.timing` does); indexers and recurrent states are left out.

    Parameters
    ----------
    prompt_tokens, decodes, sampled : tokens run of prompts, tokens run of decodes, and sampled tokens.
    pairs, window_pairs : of a prompt's token and one that it attends to, without and within the window.
    context : tokens computed before, of the decodes.
    """
    if arch.is_bidirectional:  # the counts have the pairs with earlier tokens
        pairs, window_pairs = (2 * count - prompt_tokens for count in (pairs, window_pairs))
    seen = np.minimum(context, decodes * window_tokens(arch))
    attention = sum(
        kind.attention.flops_per_pair(is_decode=False)
        * (kind.context * pairs + kind.window * window_pairs + kind.recent * prompt_tokens)
        + kind.attention.flops_per_pair(is_decode=True)
        * (kind.context * context + kind.window * seen + kind.recent * decodes)
        for kind in readings(arch))
    head = arch.vocab_size * arch.hidden_size
    layers = (num_active_parameters(arch) - head) * (prompt_tokens + decodes)
    return 2.0 * (layers + (0 if arch.pooling else head) * sampled) + attention


def peak(deployment: Deployment) -> float | None:
    """Return the dense peak of a replica in the format of its weights [FLOP/s]; None without a model or a GPU."""
    arch, gpu = deployment.architecture, deployment.gpu
    if arch is None or gpu is None:
        return None
    quantization = deployment.scenario.quantization
    flops_per_s = peak_flops_per_s(gpu, weight_format(arch, quantization),
                                   expert_format(arch, quantization) if arch.num_moe_layers else None)
    return flops_per_s * deployment.layout.gpus_per_rank


def step_roofs(deployment: Deployment, steps: Any) -> dict[str, NDArray[np.float64]]:
    """Return the least time that each step's arithmetic and its HBM traffic take at the hardware's peaks [s].

    A step passes the stages of a pipeline one after the other, so that one stage's GPUs work on it at a time. NaN where
    no model or GPU is named, or the step time is a line.

    Parameters
    ----------
    steps : records of `loop.rows.STEP_ROW`, shape [num_steps].

    Returns
    -------
    dict of str to NDArray
        `compute_s` and `memory_s`, shape [num_steps] each.
    """
    arch, gpu, flops_per_s = deployment.architecture, deployment.gpu, peak(deployment)
    if arch is None or gpu is None or flops_per_s is None or deployment.stack is None:
        return {name: np.full(len(steps), math.nan) for name in ("compute_s", "memory_s")}
    flops = model_flops(arch, prompt_tokens=steps["num_prompt_tokens"],
                        decodes=steps["num_decodes"] + steps["num_accepted_tokens"],
                        pairs=steps["prompt_pairs"], window_pairs=steps["window_pairs"],
                        context=steps["decode_context_tokens"], sampled=uncompiled(all_sampled)(steps))
    traffic = np.zeros(len(steps))
    _compiled_bytes()(deployment.step_time.terms, deployment.step_time.curve, steps, traffic)
    compute_s = flops * deployment.layout.pipeline_parallel_size / flops_per_s
    return {"compute_s": compute_s, "memory_s": traffic / gpu.hbm_bandwidth_bytes_per_s}


def _bytes(t: Any, curve: Any, steps: Any, out: Any) -> None:
    for i in range(len(steps)):
        step = steps[i]
        shared = step.num_prompt_tokens + step.num_decodes + step.num_drafted_tokens - step.num_spared_tokens
        out[i] = (
            composition_bytes(t, curve, shared, step.num_prompt_tokens, step.prompt_context_tokens, step.num_decodes,
                              all_sampled(step) - step.num_accepted_tokens + step.num_drafted_tokens,
                              step.num_drafted_tokens)
            + decode_attention_bytes(t, step.num_decodes, step.decode_context_tokens))


@functools.cache
def _compiled_bytes() -> Callable[..., None]:
    signature = numba.void(st.numba_record(STEP_TIME), st.numba_records(CURVE), st.numba_records(STEP_ROW),
                           numba.float64[::1])
    return compile_with_signature(_bytes, signature)
