"""Power of GPUs in a replay: idle power, and the power of arithmetic and HBM traffic while steps run."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from planner.catalog.gpu_power import Power, limit_of, power_of
from planner.deployment.roofs import model_flops, peak
from planner.loop.state.count_table import node_counts
from planner.replays.fleet.shares import Share, busy_fraction


def mean_power_w(part: Share, duration_s: float) -> float:
    """Return the mean draw of one GPU of a pool's replicas, board alone: no host, no cooling [W].

    Parameters
    ----------
    part : the pool's part in a replay; its GPU must be named.
    duration_s : that the replicas were paid for, idle time included [s].
    """
    gpu = part.pool.deployment.gpu
    assert gpu is not None
    busy = busy_fraction([part], duration_s)
    return gpu.idle_w + busy * (busy_power_w(part) - gpu.idle_w)


def busy_power_w(part: Share) -> float:
    """Return the mean draw of one GPU while steps run [W].

    If the traffic is not known, as with a step time that is a line, it is the limit, which errs upward.
    """
    gpu, work = part.pool.deployment.gpu, work_of(part)
    assert gpu is not None
    return limit_of(gpu) if work is None else work_power_w(work, power_of(gpu))


class Work(NamedTuple):
    """Steps of one kind: their time, and the times of their parts at the hardware's peaks [s].

    Parameters
    ----------
    time_s : of the steps.
    flops_s, memory_s : arithmetic and HBM traffic at the peaks.
    prompts_s : that the steps' prompts take.
    """

    time_s: float
    flops_s: float
    memory_s: float
    prompts_s: float


def work_power_w(work: Sequence[Work], power: Power) -> float:
    """Return the mean draw of one GPU over steps of several kinds; never more than the limit is drawn [W]."""
    energy_j = sum(kind.time_s * power.draw_w(kind.flops_s / kind.time_s, kind.memory_s / kind.time_s,
                                              kind.prompts_s / kind.time_s) for kind in work)
    return energy_j / sum(kind.time_s for kind in work)


def work_of(part: Share) -> list[Work] | None:
    """Return the work of steps with prompts, and of decodes alone; None if the traffic is not known.

    Prompts are taken apart from decodes, since their steps reach the power limit and decodes' steps may not.
    """
    deployment = part.pool.deployment
    gpu, flops_per_s, busy_s = deployment.gpu, peak(deployment), float(part.engine.busy_s)
    assert gpu is not None
    if flops_per_s is None or deployment.stack is None or busy_s <= 0:
        return None
    room = gpu.hbm_bandwidth_bytes_per_s * deployment.layout.gpus_per_rank / deployment.layout.tensor_parallel_size
    memory_s = float(part.engine.total_hbm_bytes) / room
    prompt_flops_s, decode_flops_s = (flops / flops_per_s for flops in _flops(part))
    prompts_s, prompt_steps = _prompt_time(part)
    prompts_s = min(prompts_s, busy_s)
    beside = min(prompt_steps / int(part.engine.num_steps), 1.0)  # of the decodes, how many share a step with prompts
    mixed = Work(prompts_s + beside * (busy_s - prompts_s), prompt_flops_s + beside * decode_flops_s, beside * memory_s,
                 prompts_s)
    rest = 1.0 - beside
    alone = Work(rest * (busy_s - prompts_s), rest * decode_flops_s, rest * memory_s, 0.0)
    return [kind for kind in (mixed, alone) if kind.time_s > 0]


def _flops(part: Share) -> tuple[float, float]:
    """Return the arithmetic of prompts and of decodes [FLOP]."""
    engine, arch = part.engine, part.pool.deployment.architecture
    assert arch is not None
    nothing: dict[str, Any] = {"prompt_tokens": 0, "decodes": 0, "pairs": 0, "window_pairs": 0, "context": 0}
    decodes = int(engine.total_decode_tokens + engine.total_dropped)
    return (
        float(model_flops(arch, **nothing | {
            "prompt_tokens": int(engine.total_prompt_tokens), "pairs": int(engine.total_prompt_pairs),
            "window_pairs": int(engine.total_window_pairs)}, sampled=int(engine.total_sampled) - decodes)),
        float(model_flops(arch, **nothing | {"decodes": decodes, "context": int(engine.total_context_tokens)},
                          sampled=decodes)))


def _prompt_time(part: Share) -> tuple[float, float]:
    """Return how long prompts took, and in how many steps: of a whole prompt each, or of a full token budget.

    The loop keeps no time of steps with prompts. Their products take the step-time curve's time of a step with as many
    tokens, and attention the time of its pairs.
    """
    engine, step_time = part.engine, part.pool.deployment.step_time
    tokens = int(engine.total_prompt_tokens)
    if tokens == 0:
        return 0.0, 0.0
    per_step = tokens / max(int(engine.num_done), 1)
    budget = int(part.settings.max_num_batched_tokens)
    per_step = min(per_step, budget) if budget > 0 else per_step
    step_s = float(np.interp(per_step, node_counts(), step_time.curve["tokens_s"]))
    attention_s = (int(engine.total_prompt_pairs) * float(step_time.terms.prompt_s_per_pair)
                   + int(engine.total_window_pairs) * float(step_time.terms.prompt_s_per_window_pair))
    steps = tokens / per_step
    return steps * step_s + attention_s, steps
