"""Notes on steps outside CUDA graphs because they are larger than the largest graph: how many, and the cost."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.engines import ENGINES
from planner.loop.state.count_table import node_counts
from planner.replays.fleet.shares import Share, shares
from planner.replays.result_tables import ReplayResult

Floats = NDArray[np.floating[Any]]
LEAST_S = 1e-4  # a step that loses less is not worth a note,
LEAST_SHARE = 1e-3  # prompts that lose less of the busy time are not either


def graph_notes(result: ReplayResult) -> list[str]:
    """Return a note for each pool whose decodes, or whose prompts, lose time outside CUDA graphs.

    The steps' times follow the step-time curves at the sizes that occurred; nothing is recorded for it.
    """
    notes = []
    for part in shares(result, 0.0):
        stack = part.pool.deployment.stack
        if stack is None or not (stack.graph_seqs or stack.graph_tokens):  # --cudagraph-mode none is no limit
            continue
        lines = [*_decodes(result, part), *_prompts(result, part)]
        notes += [f"{part.pool.name}: {note}" for note in lines] if result.deployment.pools else lines
    return notes


def _decodes(result: ReplayResult, part: Share) -> list[str]:
    """Return a note on the time lost by steps with more decodes than the largest CUDA graph holds."""
    terms, engine = part.pool.deployment.step_time.terms, part.engine
    limit, most = int(terms.graph_seqs), int(engine.max_running)
    if limit == 0 or most <= limit or int(engine.total_decode_tokens) == 0:
        return []
    counts, steps = np.array([most]), None
    gaps = result.records.gaps
    if gaps.is_exact and not result.deployment.pools:  # each is a step; of several pools they are not told apart
        beyond = gaps.counts[(gaps.counts > limit) & (gaps.counts <= most)]
        counts, steps = (beyond, len(beyond)) if len(beyond) else (counts, None)
    context = int(engine.total_context_tokens) / int(engine.total_decode_tokens)
    gpu_s = _decode_gpu_s(part, counts, context)
    launched_s, lost_s = _host_times(terms, float(terms.decode_launch_s), counts * int(terms.tokens_per_decode), gpu_s)
    if lost_s.mean() < LEAST_S:
        return []
    number = "steps" if steps is None else f"{steps:,} steps"
    counts_tokens = ENGINES[part.pool.deployment.scenario.engine].graphs.counts_tokens
    per_decode = int(terms.tokens_per_decode) if counts_tokens else 1
    return [f"{number} with more than {limit:,} decodes run outside CUDA graphs: the host launches each kernel and "
            f"needs {1e3 * launched_s.mean():.1f} ms, the GPU {1e3 * gpu_s.mean():.1f} ms, so a step takes "
            f"{1e3 * lost_s.mean():.1f} ms longer; {_remedy(part, int(counts.max()) * per_decode)}"]


def _prompts(result: ReplayResult, part: Share) -> list[str]:
    """Return a note on the time lost by steps with more prompt tokens than the largest piecewise graph holds."""
    terms, engine = part.pool.deployment.step_time.terms, part.engine
    limit = int(terms.graph_tokens)
    tokens, before = _computed(result, part)
    if limit == 0 or not len(tokens):
        return []
    beside = int(int(engine.total_decode_tokens) / max(int(engine.num_steps), 1)) * int(terms.tokens_per_decode)
    sizes = tokens + beside
    sizes, before = sizes[sizes > limit], before[sizes > limit]
    gpu_s = _prompt_gpu_s(part, sizes, before)
    launched_s, lost_s = _host_times(terms, float(terms.prompt_launch_s), np.full(len(sizes), 1 + beside), gpu_s)
    loses = lost_s >= LEAST_S
    if lost_s[loses].sum() < LEAST_SHARE * float(engine.busy_s) or not loses.any():
        return []
    return [f"{int(loses.sum()):,} of {len(tokens):,} prompts are in steps of more than {limit:,} tokens, which run "
            f"outside CUDA graphs: the host launches each kernel and needs {1e3 * launched_s[loses].mean():.1f} ms, "
            f"the GPU {1e3 * gpu_s[loses].mean():.1f} ms, so such a step takes {1e3 * lost_s[loses].mean():.1f} ms "
            f"longer; {_remedy(part, int(sizes[loses].max()))}"]


def _computed(result: ReplayResult, part: Share) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the prompt tokens that a step computes of each request of a pool, up to its budget, and those before."""
    requests = result.records.requests
    ran = ~np.isnan(requests.first_token_s)
    if result.replica is not None:
        last = part.first_replica + part.pool.num_replicas
        ran &= (result.replica >= part.first_replica) & (result.replica < last)
    if part.pool.role == "decode":
        ran &= False
    inputs = requests.input_tokens[ran].astype(np.int64)
    tokens = inputs - np.maximum(requests.num_cached_tokens[ran], 0)
    budget = int(part.settings.max_num_batched_tokens)
    tokens = np.minimum(tokens, budget) if budget > 0 else tokens
    return tokens, inputs - tokens


def _decode_gpu_s(part: Share, counts: NDArray[np.int64], context: float) -> Floats:
    """Return the GPU's time of steps of `counts` decodes, each with `context` tokens [s]."""
    terms, curve = part.pool.deployment.step_time
    per_token = _at(curve, "decode_s_per_context_token", counts)
    windowed = _at(curve, "decode_s_per_window_token", counts) * np.minimum(context, int(terms.window_tokens))
    tokens = counts * int(terms.tokens_per_decode)
    total_s: Floats = (_at(curve, "tokens_s", tokens) + _at(curve, "decode_s", counts) + _at(curve, "head_s", tokens)
                       + counts * (per_token * context + windowed))
    return total_s


def _prompt_gpu_s(part: Share, tokens: NDArray[np.int64], before: NDArray[np.int64]) -> Floats:
    """Return the GPU's time of steps of `tokens` tokens of one prompt, after `before` earlier ones [s]."""
    terms, curve = part.pool.deployment.step_time
    pairs = tokens * (tokens + 1) / 2 + tokens * before
    attention_s = (float(terms.prompt_s) + tokens * float(terms.prompt_s_per_token)
                   + np.maximum(pairs * float(terms.prompt_s_per_pair),
                                (tokens + before) * float(terms.prompt_s_per_context_token)))
    total_s: Floats = _at(curve, "tokens_s", tokens) + attention_s + _at(curve, "head_s", np.ones(1))
    return total_s


def _host_times(terms: Any, launch_s: float, looked_at: NDArray[np.int64], gpu_s: Floats
                ) -> tuple[Floats, Floats]:
    """Return the host's time beside the GPU's of steps outside graphs, and how much longer they take than inside [s].

    See `loop.timing.hidden_s` for the rule, and its `looked_at`.
    """
    host_s = (float(terms.host_s) + looked_at * float(terms.host_s_per_seq)) * float(terms.is_overlapped)
    return launch_s + host_s, np.maximum(gpu_s, launch_s + host_s) - np.maximum(gpu_s, host_s)


def _at(curve: Any, name: str, counts: Any) -> Floats:
    values: Floats = np.interp(counts, node_counts(), curve[name])
    return values


def _remedy(part: Share, size: int) -> str:
    """Return the option that captures graphs of such steps, and the source of the limit."""
    scenario = part.pool.deployment.scenario
    asked = scenario.max_cudagraph_capture_size
    rule = ENGINES[scenario.engine].graphs.rule if asked is None else f"the option is set to {asked:,}"
    return f"--max-cudagraph-capture-size {-(-size // 8) * 8} captures such steps ({rule})"
