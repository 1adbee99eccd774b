"""Host time of a step: scheduling work, and kernel launches outside CUDA graphs."""

from planner.catalog.layers.mlps import Experts
from planner.engines import ENGINES
from planner.steptime.attention_time import OPERATORS
from planner.steptime.contribution import Contribution
from planner.steptime.step_context import StepContext, runs_flashinfer

ON_TOP = ("overhead_s", "overhead_s_per_seq", "frontend_s", "frontend_s_per_token", "latency_s", "latency_s_per_token",
          "latency_s_per_seq")


def host(stack: StepContext) -> Contribution:
    """Return the terms of the host's work, beside the GPU's and on top of it."""
    prompt_s, decode_s = launches_s(stack)
    host_s, host_s_per_seq = host_times(stack)
    return Contribution("host", {
        "prompt_launch_s": prompt_s / stack.gpu.launch_speed, "decode_launch_s": decode_s / stack.gpu.launch_speed,
        "graph_seqs": stack.graph_seqs, "graph_tokens": stack.graph_tokens, "is_overlapped": stack.is_overlapped,
        "host_s": host_s, "host_s_per_seq": host_s_per_seq, "tokens_per_decode": stack.tokens_per_decode,
        **{name: getattr(stack.constants, name) for name in ON_TOP}})


def host_times(stack: StepContext) -> tuple[float, float]:
    """Return the host's work on a step without launches, and the extra work for each sequence [s].

    vLLM's engine sends a step to the worker process of each GPU (`MultiprocExecutor`), which works beside the GPU
    except before the step's first kernel and after its last: this alone without asynchronous scheduling. Ranks
    of SGLang and TensorRT-LLM schedule for themselves, and take as long either way.
    """
    c = stack.constants
    if stack.layout.num_gpus == 1:
        return c.host_s, c.host_s_per_seq
    if ENGINES[stack.engine].scheduler.has_worker_processes and not stack.is_overlapped:
        return c.host_s + c.serial_workers_s, c.host_s_per_seq + c.serial_workers_s_per_seq
    return c.host_s + c.workers_s, c.host_s_per_seq


def launches_s(stack: StepContext) -> tuple[float, float]:
    """Return the host's time to launch a step's kernels if it is no graph: with prompts, and of decodes [s].

    A prompt beside decodes does not shorten them. Without any graph all runs as it is written, as in measurements of
    decodes without one; if there are graphs, steps beyond them run as prompts did, compiled in vLLM.
    """
    prompt_s, decode_s = prompt_launch_s(stack), decode_launch_s(stack)
    if not stack.graph_seqs and not stack.graph_tokens:
        return max(prompt_s, decode_s), decode_s
    return prompt_s, min(prompt_s, decode_s)


def prompt_launch_s(stack: StepContext) -> float:
    """Return the host's time to launch the kernels of all layers one by one, in a step with prompts [s].

    Routed experts also have a router, top-k, permutations and two grouped products. MLA and linear attention have
    several times the small kernels of other attention: projections to the latent and from it, or a convolution, gates,
    norms and the parts of the chunked delta rule. Under vLLM FlashInfer takes longer to set up than FlashAttention.
    """
    arch, c, older = stack.arch, stack.constants, stack.older_release
    is_plain = stack.tokens_per_decode == 1 and stack.layout.data_parallel_size == 1
    num_flashinfer = arch.num_attention_layers if runs_flashinfer(stack.engine, stack.gpu) else 0
    launch_s = arch.num_halves / 2 * c.launch_s_per_layer + _num_expert_layers(stack) * c.launch_s_per_moe_layer
    for num_layers, constant in _launches(stack):
        launch_s += num_layers * float(getattr(c, constant))
    launch_s += num_flashinfer * c.launch_s_per_flashinfer_layer
    return launch_s * (older.launch_share if older is not None and is_plain else 1.0)


def decode_launch_s(stack: StepContext) -> float:
    """Return the same of decodes alone [s], whose attention is simpler to set up.

    Published without a graph, for a token or a few: 8.7 ms with Qwen3-0.6B, 11.4 with Qwen3-8B and 36 to 43 with
    Qwen3-30B-A3B (28, 36 and 48 layers; SGLang on H100, YiconRain/profiling), 48 with the last under vLLM (RTX 5090,
    pjordanandrsn/experts4bit-qlora), 38 with DeepSeek-V2-Lite (27; vLLM on L40, HC-Skadi/nano-vllm), 83 with
    DeepSeek-V3 (61; sgl-project/sglang#12160).
    """
    arch, c = stack.arch, stack.constants
    parts = _num_expert_layers(stack) + sum(count for count, _ in _launches(stack))
    return arch.num_halves / 2 * c.decode_launch_s_per_layer + parts * c.decode_launch_s_per_part


def _num_expert_layers(stack: StepContext) -> int:
    return sum(count for count, _ in stack.arch.mlps_of(Experts))


def _launches(stack: StepContext) -> list[tuple[int, str]]:
    """Return the layers whose attention takes more to launch, and the constant of how much more."""
    return [(sum(group.count for group in groups), constant) for attention, groups in stack.arch.by_attention
            if (constant := OPERATORS[type(attention)].launches) is not None]
