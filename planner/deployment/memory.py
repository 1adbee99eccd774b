"""The memory of one GPU: weights, activations, buffers, recurrent states, and the KV blocks that fit in the rest."""

import math
from dataclasses import dataclass, replace

from planner.catalog.architecture import Architecture
from planner.catalog.gpus import Gpu
from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu, state_bytes_per_seq
from planner.catalog.layers.mlps import Dense, Experts
from planner.catalog.parameters import (
    attention_gemms,
    compressor_parameters,
    mixing_parameters,
    per_layer_embeddings,
    per_layer_parameters,
)
from planner.deployment.draft_cache import draft_kv_bytes_per_token, draft_layers
from planner.deployment.kept_scales import kept_scale_bytes
from planner.deployment.sliding_windows import WindowRules, Windows, windows_of
from planner.engines import ENGINES
from planner.engines.compressed_groups import BLOCK_SIZE, CompressedGroups
from planner.engines.engine import Activations, Occupied
from planner.errors import CapacityError, UsageError
from planner.model.drafting import Draft
from planner.model.layout import Layout
from planner.model.precision import (
    WEIGHT_FORMATS,
    attention_format,
    expert_format,
    head_format,
    linear_format,
    weight_format,
)

ACTIVATION_BYTES_PER_ELEMENT = 2  # activations are 16-bit between the kernels, for any format of the weights
CONTEXT_BYTES = 0.5e9  # CUDA's memory on a GPU before an engine starts
# Memory that weights, KV and the sampler leave unexplained in start-up logs of vLLM 0.18 to 0.20 on H200 and B200
# (`benchmarks/accuracy/kv_capacity.csv`): on one GPU, and more if TP or PP > 1.
RUNTIME_BYTES = 0.43e9  # kernel workspaces outside PyTorch's pool
COMMUNICATION_BYTES = 1.3e9  # buffers of NCCL and of all-reduces; SGLang's log has 1.2e9


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """The parts of one GPU's memory; the fullest GPU of the deployment.

    usable = weights + activations + communication + runtime + state + kv, all [bytes]; blocks = floor(kv / block).

    Parameters
    ----------
    capacity_bytes : total that the runtime reports.
    usable_bytes : gpu_memory_utilization times that. The rest holds the CUDA context (about 0.5e9) and,
        in vLLM before 0.21, the CUDA graphs (0.2e9 to 0.7e9); later versions charge the graphs to the usable part.
    weight_bytes, activation_bytes, communication_bytes, runtime_bytes : see the functions and constants here.
    state_bytes : states of sequences outside the blocks: linear attention's.
    state_blocks : KV blocks that a sequence takes for its states, if the engine keeps them there; see `pages`.
    max_num_seqs : sequences that can run; fewer than asked for if SGLang has no room for the states of more.
    kv_bytes : memory left for the KV cache.
    kv_bytes_per_token : on this GPU; 0 if the attention keeps no KV, as an encoder's in vLLM.
    block_size : tokens of a block.
    num_gpu_blocks : KV blocks that fit.
    windows : how sliding layers share the KV cache.
    logged_kv_tokens : of vLLM's start-up log; with sliding layers the room for contexts of the longest length.
    compressed : how vLLM's pool is laid out for compressed sparse attention; None elsewhere.
    """

    capacity_bytes: float
    usable_bytes: float
    weight_bytes: float
    activation_bytes: float
    communication_bytes: float
    runtime_bytes: float
    state_bytes: float
    state_blocks: int
    max_num_seqs: int
    kv_bytes: float
    kv_bytes_per_token: float
    block_size: int
    num_gpu_blocks: int
    windows: Windows
    logged_kv_tokens: int
    compressed: CompressedGroups | None = None

    @property
    def num_kv_tokens(self) -> int:
        """Tokens that the KV blocks hold if no state is in them: N = (M - W) / k, rounded down to whole blocks."""
        return self.num_gpu_blocks * self.block_size

    def __str__(self) -> str:
        parts = ("capacity", "usable", "weight", "activation", "communication", "runtime", "state", "kv")
        lines = [f"{part + ':':<15}{getattr(self, part + '_bytes') / 2**30:10.2f} GiB" for part in parts]
        states = f", {self.state_blocks} for a sequence's states" if self.state_blocks else ""
        lines.append(f"{'blocks:':<15}{self.num_gpu_blocks:10,d} of {self.block_size} tokens, "
                     f"{self.kv_bytes_per_token:,.0f} B a token{states}{self.windows}")
        if self.windows.window_tokens:
            lines.append(f"{'tokens:':<15}{self.logged_kv_tokens:10,d} in vLLM's start-up log")
        return "\n".join(lines)


def plan_memory(arch: Architecture, gpu: Gpu, layout: Layout, *, engine: str, quantization: str | None,
                kv_bytes_per_element: float, gpu_memory_utilization: float, max_num_batched_tokens: int,
                max_num_seqs: int, block_size: int, draft: Draft | None = None,
                adapters_bytes: float = 0.0, states_per_seq: int = 1, state_memory_ratio: float | None = None,
                kv_cache_memory_bytes: int | None = None, window_rules: WindowRules | None = None,
                moe_backend: str = "auto", graph_seqs: int = 1) -> MemoryPlan:
    """Divide the memory of the fullest GPU as the engine does at start-up.

    Parameters
    ----------
    arch, gpu, layout : model; GPU; how the model is spread over GPUs.
    quantization : a key of WEIGHT_FORMATS, None for the checkpoint's own format.
    kv_bytes_per_element : 2 for a 16-bit KV cache, 1 for fp8 [bytes].
    engine : name of the engine; its memory rules are in `engines`.
    gpu_memory_utilization : share of memory, as the engine defines it (`Memory.usable_bytes`) [1].
    max_num_batched_tokens, max_num_seqs, block_size : largest step [tokens], [1]; KV block, over all GPUs that share
        contexts [tokens].
    adapters_bytes : room for LoRA adapters, counted as weights [bytes].
    draft : drafting method: its weights, and the KV of its layers in the same blocks; None without one.
    states_per_seq : of SGLang and linear attention, see `states_per_sequence` [1].
    state_memory_ratio : of SGLang and linear attention, states over KV; None for the engine's default [1].
    window_rules : of sliding layers; None for the newest release's.
    moe_backend : kernels of routed experts.
    graph_seqs : largest batch of decodes that runs as one full CUDA graph; 0 without such graphs [1].
    kv_cache_memory_bytes : memory for KV and states in place of the rest under `gpu_memory_utilization` [bytes].

    Raises
    ------
    CapacityError, UsageError
        If no KV block fits, with the parts and the remedy; if an argument is out of range.

    Notes
    -----
    Within 3 % of vLLM for Llama-3.1-8B. Blocks hold the KV of layers that see all of the context. vLLM takes the
    windows of sliding layers from the same pool as requests run; SGLang gives them a pool of their own (`windows_of`).
    TensorRT-LLM keeps all of the context in them unless max_attention_window is set, which is not modelled: a log of
    gpt-oss-120b has 36,864 B a token, all of its 36 layers.

    The states of linear attention (Qwen3.5) are set aside for max_num_seqs sequences, in SGLang for as many as 0.9 of
    the memory for KV holds, and it runs no more (`handle_max_mamba_cache`); with its radix cache that memory is all
    theirs, and `states_per_seq` are one sequence's. In vLLM they are in the blocks (`pages`), of which it wants as many
    as `Memory.seats_with_states`. `Memory.compressed_pages` places the windows of compressed sparse attention.
    Left out is scratch memory of sparse attention (GLM-5), up to 0.5e9 for the indexer's logits.
    """
    _check(gpu_memory_utilization, max_num_batched_tokens, max_num_seqs, block_size)
    window_rules = window_rules or WindowRules(max_num_batched_tokens=max_num_batched_tokens)
    rules, ranks, stages = ENGINES[engine].memory, layout.tensor_parallel_size, layout.pipeline_parallel_size
    shared_by, longest = layout.cache_parts, window_rules.longest or arch.max_model_len
    weights = (weight_bytes(arch, quantization, layout) + draft_weight_bytes(draft, layout) + adapters_bytes
               + vision_weight_bytes(arch, layout)
               + kept_scale_bytes(arch, gpu, layout, rules, quantization=quantization, version=window_rules.version,
                                  moe_backend=moe_backend))
    activations = activation_bytes(arch, max_num_batched_tokens, max_num_seqs, ranks, engine, window_rules.version)
    communication = COMMUNICATION_BYTES if layout.num_gpus > 1 else 0.0
    per_token = kv_bytes_per_token_per_gpu(arch, kv_bytes_per_element, ranks, stages) / shared_by * rules.caches(arch)
    block_size, state_blocks = pages(arch, engine, block_size, kv_bytes_per_element, ranks, draft)
    per_seq = 0 if state_blocks else state_bytes_per_seq(arch, kv_bytes_per_element, ranks, stages)
    if arch.keeps_recent_entries and rules.compressed_pool is not None:
        per_token, per_seq = rules.compressed_pool(arch, kv_bytes_per_element, stages), 0
    compressed = None
    if arch.keeps_recent_entries and rules.compressed_groups is not None:
        compressed = rules.compressed_groups(
            arch, kv_bytes_per_element, stages, draft_layers(draft), rules.tokens_in_flight(
                max_num_batched_tokens, window_rules.num_batches, window_rules.version))
        per_token = compressed.block_bytes / BLOCK_SIZE
    windows = windows_of(
        arch, rules, layout, block_size=block_size, kv_bytes_per_element=kv_bytes_per_element,
        bytes_per_token=per_token, draft_bytes_per_token=draft_kv_bytes_per_token(
            draft, kv_bytes_per_element, ranks) / shared_by,
        rules=window_rules)
    beside = activations + communication + RUNTIME_BYTES
    usable = rules.usable_bytes(gpu_memory_utilization, Occupied(
        capacity=gpu.hbm_capacity_bytes, context=CONTEXT_BYTES, weights=weights, communication=communication,
        working=beside))
    if kv_cache_memory_bytes is not None:
        usable = weights + beside + kv_cache_memory_bytes
        _check_room(arch, gpu, usable, kv_cache_memory_bytes)
    kv = usable - weights - beside
    num_states = max_num_seqs
    ratio = rules.state_ratio if state_memory_ratio is None else state_memory_ratio
    if ratio is not None and rules.state_ratio is not None and arch.num_linear_layers:
        fitting = int(kv * ratio / (1 + ratio) // per_seq)
        max_num_seqs = max(min(max_num_seqs, fitting // states_per_seq), 1)
        num_states = max_num_seqs if states_per_seq == 1 else max(fitting, 1)
    states = float(num_states * per_seq)
    kv -= states
    num_gpu_blocks = _num_blocks(kv, windows, max_num_seqs, longest, rules.reserved_blocks(window_rules.version))
    plan = MemoryPlan(
        capacity_bytes=gpu.hbm_capacity_bytes, usable_bytes=usable, weight_bytes=weights, activation_bytes=activations,
        communication_bytes=communication, runtime_bytes=RUNTIME_BYTES, state_bytes=states,
        state_blocks=state_blocks, max_num_seqs=max_num_seqs, kv_bytes=kv,
        kv_bytes_per_token=windows.bytes_per_token, block_size=windows.block_size, num_gpu_blocks=num_gpu_blocks,
        windows=windows, logged_kv_tokens=windows.logged_tokens(
            num_gpu_blocks, longest, of_pool=rules.logs_pool(window_rules.version)), compressed=compressed)
    seats = rules.seats_with_states(window_rules.version, max_num_seqs, graph_seqs)
    return _checked(plan, arch, gpu, gpu_memory_utilization, seats)


def _num_blocks(kv: float, windows: Windows, max_num_seqs: int, longest: int, reserved: int) -> int:
    """Return the KV blocks that fit in memory [1]; for attention that keeps no KV as many as no batch can use up."""
    if windows.bytes_per_token:
        return int(kv // (windows.bytes_per_token * windows.block_size))
    return max_num_seqs * math.ceil(longest / windows.block_size) + reserved if kv >= 0 else 0


def pages(arch: Architecture, engine: str, block_size: int, kv_bytes_per_element: float, tensor_parallel_size: int,
          draft: Draft | None = None) -> tuple[int, int]:
    """Return the tokens of a KV block [tokens], and the blocks that a sequence takes for its recurrent states [1].

    An engine may keep both in one pool (`Memory.state_pages`), as the windows of compressed sparse attention
    (`Memory.compressed_pages`).

    >>> from planner.catalog.catalog_files import load_model
    >>> pages(load_model("qwen3.5-35b-a3b"), "vllm", 16, 2.0, 1)
    (1056, 3)
    """
    if arch.keeps_recent_entries:
        return ENGINES[engine].memory.compressed_pages(arch, block_size)
    if not arch.num_linear_layers:
        return max(block_size, *(group.indexer.least_block_tokens for group in arch.layers if group.indexer), 1), 0
    num_drafted = 0 if draft is None else draft.num_tokens
    return ENGINES[engine].memory.state_pages(arch, block_size, kv_bytes_per_element, tensor_parallel_size, num_drafted)


def weight_bytes(arch: Architecture, quantization: str | None, layout: Layout) -> float:
    """Weights on the GPU that holds most of them [bytes].

    Attention (KV heads replicated if there are more ranks than heads; MLA's down-projections and the indexer
    and CSA's always), MLP and LM head are split over tensor-parallel ranks, layers over stages, rounded up and with MoE
    layers first. Embedding, router and compressors are 16-bit in every format. The LM head is 16-bit unless the
    checkpoint has another format for it. Attention is 16-bit if the checkpoint says so (gpt-oss).

    Parameters
    ----------
    quantization : a key of WEIGHT_FORMATS, else UnknownNameError; None for the checkpoint's own format.
    layout : how the model is spread over GPUs.

    Notes
    -----
    Norms, biases and the copies that kernels make (MLA's absorbed matrices) are left out: up to 3 % low.

    >>> from planner.catalog.catalog_files import load_model
    >>> weight_bytes(load_model("llama-3.1-8b"), "bf16", Layout())
    16059990016.0
    """
    tables = 1 if layout.pipeline_parallel_size > 1 else arch.num_tables  # a stage has one of the two
    of_tables = 2.0 + (tables - 1) * WEIGHT_FORMATS[head_format(arch, quantization)].bytes_per_element
    return (layers_bytes(arch, quantization, layout) + (of_tables * arch.vocab_size * arch.hidden_size
            + 2.0 * per_layer_embeddings(arch)) / layout.tensor_parallel_size)


def layers_bytes(arch: Architecture, quantization: str | None, layout: Layout) -> float:
    """Weights of a stage's layers on one GPU, without embedding and LM head [bytes]; see `weight_bytes`."""
    element, attention_element, linear_element = bytes_per_element(arch, quantization)
    tensor_parallel_size, pipeline_parallel_size = layout.tensor_parallel_size, layout.pipeline_parallel_size
    num_layers, num_mlps = (-(-count // pipeline_parallel_size) for count in (arch.num_layers, arch.num_mlp_layers))
    num_moe = min(num_mlps, arch.num_moe_layers)
    routed = sum(min(num_mlps, count) * _expert_layer_bytes(arch, experts, quantization, layout, element)
                 for count, experts in arch.mlps_of(Experts))
    projected = sum(gemm.parameters * (linear_element if gemm.part == "linear" else attention_element)
                    for gemm in attention_gemms(arch, tensor_parallel_size) if gemm.part != "unquantized")
    attention = (projected + 2.0 * (compressor_parameters(arch) + mixing_parameters(arch))
                 ) / arch.num_layers  # the mean, if layers differ
    own_inputs = element * per_layer_parameters(arch) / arch.num_layers * (2 + 1 / tensor_parallel_size) / 3
    dense = _mean_dense_bytes(arch, min(num_mlps - num_moe, arch.num_dense_layers), element)
    return num_layers * (attention + own_inputs) + routed + dense / tensor_parallel_size


def _mean_dense_bytes(arch: Architecture, num_layers: int, element: float) -> float:
    """Weights of `num_layers` dense MLPs on all GPUs, of the mean width [bytes]."""
    groups = list(arch.mlps_of(Dense))
    if not groups:
        return 0.0
    least = min((mlp for _, mlp in groups), key=lambda mlp: mlp.width)
    wider = sum(count * (mlp.width - least.width) for count, mlp in groups)
    mean = 1 + wider / (least.width * arch.num_dense_layers)
    return num_layers * mean * element * least.parameters(arch.hidden_size)


def _expert_layer_bytes(arch: Architecture, experts: Experts, quantization: str | None, layout: Layout,
                        element: float) -> float:
    """Weights of one MoE layer on one GPU [bytes]."""
    expert_element = WEIGHT_FORMATS[expert_format(arch, quantization)].bytes_per_element
    hidden, ranks = arch.hidden_size, layout.tensor_parallel_size
    held = -(-layout.slots(experts.num_experts) // layout.expert_parallel_size) / layout.expert_tensor_parallel_size
    return (2.0 * experts.router_parameters(hidden)
            + element * (experts.shared_parameters(hidden) / ranks + experts.latent_parameters(hidden))
            + expert_element * held * experts.expert_parameters(hidden) * expert_padding(arch, quantization))


def expert_padding(arch: Architecture, quantization: str | None) -> float:
    """How much larger experts are in memory than in the checkpoint: MXFP4's kernels want rows of 256 values [1].

    Start-up logs of vLLM on H100 have 13.47 GiB for gpt-oss-20b and 64.38 for 120B, 0.63 and 3.7 more than unpadded.

    >>> from planner.catalog.catalog_files import load_model
    >>> round(weight_bytes(load_model("gpt-oss-120b"), None, Layout()) / 2**30, 2)
    64.47
    """
    if expert_format(arch, quantization) != "mxfp4":
        return 1.0
    return 256 * math.ceil(arch.hidden_size / 256) / arch.hidden_size


def vision_weight_bytes(arch: Architecture, layout: Layout) -> float:
    """Weights of the vision encoder on one GPU of the first stage, in 16 bit; 0 without an encoder [bytes]."""
    return 0.0 if arch.vision is None else 2.0 * arch.vision.parameters / layout.tensor_parallel_size


def draft_weight_bytes(draft: Draft | None, layout: Layout) -> float:
    """Weights of the draft on one GPU, of a pipeline's last stage; 0 without a draft [bytes].

    Embedding and LM head count if they are not the target's: a draft model's, EAGLE-3's head, and each of Medusa's
    heads, which also has a block of hidden_size². DSpark's second head has an embedding and a projection.
    """
    if draft is None or draft.arch is None:
        return 0.0
    arch, one_stage = draft.arch, replace(layout, pipeline_parallel_size=1)
    head = 2.0 * arch.vocab_size * arch.hidden_size / layout.tensor_parallel_size
    if draft.method == "medusa":
        return draft.num_tokens * (2.0 * arch.hidden_size**2 + head)
    if draft.method == "draft_model":
        return weight_bytes(arch, draft.quantization, one_stage)
    joining = 2.0 * draft.fused_inputs * arch.hidden_size**2
    markov = 2 * 2.0 * arch.vocab_size * draft.markov_rank / layout.tensor_parallel_size
    return (layers_bytes(arch, draft.quantization, one_stage) + joining + markov
            + (0.0 if draft.shares_head else head))


def bytes_per_element(arch: Architecture, quantization: str | None) -> tuple[float, float, float]:
    """Bytes of one weight of the MLPs and experts, of the attention, and of linear attention, scales included [B]."""
    element, attention, linear = (WEIGHT_FORMATS[format_of(arch, quantization)].bytes_per_element
                                  for format_of in (weight_format, attention_format, linear_format))
    return element, attention, linear


def activation_bytes(arch: Architecture, max_num_batched_tokens: int, max_num_seqs: int,
                     tensor_parallel_size: int, engine: str, version: str | None = None) -> float:
    """Peak of the largest step's activations on one GPU, with an engine's buffers to sample from them [bytes].

    Two 16-bit copies of the residual stream for T tokens, plus the largest of: attention's query, key, value and
    output (and gate); linear attention's, before and after its convolution; a dense MLP's gate, up and product;
    an MoE layer's k copies of its input and output, and its experts' gate, up and product. `Memory.activation_bytes`
    has the engine's work on S·V logits to sample from them.

    >>> from planner.catalog.catalog_files import load_model
    >>> round(activation_bytes(load_model("llama-3.1-8b"), 2048, 256, 1, "vllm") / 1e9, 2)
    0.69
    """
    tokens, hidden, ranks = max_num_batched_tokens, arch.hidden_size, tensor_parallel_size
    per_token = [*(attention.activation_width / ranks for attention, _ in arch.by_attention),
                 *(group.mlp.activation_width(hidden, ranks) for group in arch.mlps)]
    layer = tokens * max(per_token) * ACTIVATION_BYTES_PER_ELEMENT
    residual = 2 * tokens * hidden * ACTIVATION_BYTES_PER_ELEMENT
    return ENGINES[engine].memory.activation_bytes(Activations(
        residual=residual, layer=layer, max_num_batched_tokens=tokens, max_num_seqs=max_num_seqs,
        vocab_size=0 if arch.pooling else arch.vocab_size, version=version))


def _check(gpu_memory_utilization: float, *sizes: int) -> None:
    """Refuse sizes below 1 and a share outside (0, 1]."""
    names = ("max_num_batched_tokens", "max_num_seqs", "block_size")
    for name, value in zip(names, sizes, strict=True):
        if value < 1:
            raise UsageError(f"{name} = {value}; must be >= 1")
    if not 0 < gpu_memory_utilization <= 1:
        raise UsageError(f"gpu_memory_utilization = {gpu_memory_utilization}; must be > 0 and <= 1")


def _check_room(arch: Architecture, gpu: Gpu, usable: float, kv_cache_memory_bytes: int) -> None:
    """Refuse a KV cache of a given size beside which the weights have no room."""
    room = gpu.hbm_capacity_bytes - CONTEXT_BYTES
    if usable > room:
        raise CapacityError(
            f"kv_cache_memory_bytes = {kv_cache_memory_bytes:,}: {arch.name} has room for "
            f"{(room - usable + kv_cache_memory_bytes) / 2**30:.1f} GiB of KV on each {gpu.name}; lower it, or raise "
            f"tensor_parallel_size")


def _checked(plan: MemoryPlan, arch: Architecture, gpu: Gpu, gpu_memory_utilization: float, seats: int) -> MemoryPlan:
    """The plan, or an error that says the need, the room, and the remedy."""
    if arch.num_linear_layers and plan.state_blocks and 1 <= plan.num_gpu_blocks < seats:
        raise CapacityError(
            f"max_num_seqs = {plan.max_num_seqs:,} exceeds the {plan.num_gpu_blocks:,} KV blocks of {arch.name} on "
            f"{gpu.name}. Each sequence in a full CUDA graph needs one for its recurrent states, so vLLM does not "
            f"start; lower max_num_seqs to {plan.num_gpu_blocks:,}, raise gpu_memory_utilization or "
            f"tensor_parallel_size, or set cudagraph_mode = piecewise")
    if plan.num_gpu_blocks >= 1:
        return plan
    needed = plan.usable_bytes - plan.kv_bytes + plan.kv_bytes_per_token * plan.block_size
    remedy = "raise tensor_parallel_size or pipeline_parallel_size, or quantize the weights"
    if plan.weight_bytes < plan.usable_bytes:
        remedy = f"lower max_num_seqs or max_num_batched_tokens, raise gpu_memory_utilization, or {remedy}"
    states = f", recurrent states {plan.state_bytes / 2**30:.1f} GiB" if plan.state_bytes else ""
    raise CapacityError(
        f"{arch.name} does not fit one {gpu.name}: weights {plan.weight_bytes / 2**30:.1f} GiB, activations "
        f"{plan.activation_bytes / 2**30:.1f} GiB, buffers and runtime "
        f"{(plan.communication_bytes + plan.runtime_bytes) / 2**30:.1f} GiB{states} and one KV block need "
        f"{needed / 2**30:.1f} GiB, but {gpu_memory_utilization:g} x {plan.capacity_bytes / 2**30:.1f} GiB = "
        f"{plan.usable_bytes / 2**30:.1f} GiB is usable; {remedy}")
