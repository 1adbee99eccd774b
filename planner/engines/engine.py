"""A serving engine as frozen values: defaults, scheduler, CUDA graphs, memory, kernels, launch flags and log lines."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from planner.catalog.architecture import Architecture
from planner.catalog.gpus import Gpu
from planner.engines.compressed_groups import CompressedGroups
from planner.engines.dialect import Dialect
from planner.engines.log_lines import LogReader
from planner.engines.package import Client, Metrics, Package
from planner.engines.releases import Default, is_before


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDefaults:
    """Default settings of one engine, by the names of the scenario's options.

    `gpu_memory_utilization` is SGLang's `mem_fraction_static` and TensorRT-LLM's `free_gpu_memory_fraction`.
    With `async_scheduling` the engine composes a step while the previous one runs: vLLM's async scheduling, SGLang's
    overlap scheduler (`event_loop_overlap`), TensorRT-LLM's (`_executor_loop_overlap`).
    """

    policy: str
    max_num_seqs: int
    max_num_batched_tokens: int
    max_prefill_tokens: int  # 0 is no limit
    enable_chunked_prefill: bool
    async_scheduling: bool
    gpu_memory_utilization: float
    max_num_queued_reqs: int = 0  # 0 is no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The parts of a deployment that defaults depend on."""

    gpu: str | None  # name of the GPU; None if it is not given
    gpu_capacity_bytes: float | None  # memory of the GPU [bytes]
    version: str | None = None  # release of the engine; None is the newest
    performance_mode: str = "balanced"  # of vLLM, as usage_context
    usage_context: str = "openai_api_server"
    num_ranks: int = 1  # ranks of data-parallel attention [1]
    num_gpus: int = 1  # GPUs of the engine [1]
    num_stages: int = 1  # pipeline stages [1]
    chunk_tokens: int | None = None  # a rank's `max_num_batched_tokens` if the user gives it; else None [tokens]
    draft_method: str | None = None  # how tokens are drafted; None without drafts
    # How tokens of ranks reach whole experts (`all2all_backend`); None without ranks or whole experts.
    exchange: str | None = None


class Occupied(NamedTuple):
    """Memory of a GPU before KV blocks are allocated [bytes].

    `capacity` is the total, `context` the CUDA context, `working` activations, communication buffers and workspaces.
    """

    capacity: float
    context: float
    weights: float
    communication: float
    working: float


class Activations(NamedTuple):
    """Sizes that activation memory depends on: residual stream and largest layer [bytes], and sizes of the sampler.

    `version` is the engine's release, None for the newest.
    """

    residual: float
    layer: float
    max_num_batched_tokens: int
    max_num_seqs: int
    vocab_size: int
    version: str | None = None


class WindowPages(NamedTuple):
    """Blocks of a model with sliding layers, if windows of running requests come from the same pool of KV."""

    block_size: int  # of the layers that see all of the context [tokens]
    block_bytes: int  # of the same layers [bytes]
    page_size: int  # of a block of sliding layers [tokens]
    page_bytes: int  # of all sliding layers together [bytes]


class TwoBatchOverlap(NamedTuple):
    """Steps that an engine splits to overlap the experts' exchange with compute."""

    decodes_from: int  # least tokens of a step of decodes that is split [1]
    prompts_from: int  # least tokens of a step with prompts that is split [1]
    whole_prompts_with: tuple[str, ...] = ()  # exchanges beside which steps with prompts stay whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults of an engine, and their dependence on the deployment, the release and the model."""

    options: EngineDefaults  # without a GPU; `sized` adapts them to the deployment
    sized: Callable[[EngineDefaults, Size], EngineDefaults] = lambda defaults, _: defaults
    # Texts of the defaults that depend on the GPU, for the help.
    by_gpu: Mapping[str, str] = field(default_factory=dict)
    since: tuple[Default, ...] = ()  # defaults that began with a release
    cudagraph_mode: str = "full_decode_only"  # the mode of CUDA graphs
    # Context limit that a release takes if none is given, of (model, release) [tokens].
    context: Callable[[Architecture, str | None], int] = lambda arch, _: arch.max_model_len
    # Seat limit over all ranks with compressed sparse attention; None for the usual one.
    compressed_max_num_seqs: int | None = None
    # KV type with DeepSeek's sparse attention, of a GPU; None for the checkpoint's.
    sparse_kv_cache_type: Callable[[Gpu], str] | None = None
    max_loras: int = 1  # adapters of a step, if they are turned on [1]
    # Defaults with a pooling model, of (defaults, model); None if the engine's pooling is not modelled.
    pooling: Callable[[EngineDefaults, Architecture], EngineDefaults] | None = None
    # Whether a batch of a pooling model is composed while the one before it runs; max_num_seqs then limits a batch.
    composes_ahead: bool = False
    # Why an engine does not run a deployment, of (scenario, model, GPU, their number); None if it does.
    refusal: Callable[[Any, Architecture, Gpu | None, int], str | None] = lambda *_: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """Facts about an engine's scheduler and its processes. Its rules are in `loop/`."""

    # Policies of the engine that may be given by the name of another one.
    policies: Mapping[str, str] = field(default_factory=dict)
    own_policies: tuple[str, ...] = ()  # policies that are its own scheduler's, and say nothing of another engine
    # Whether an engine is "refused" a start if a step holds fewer tokens than max_num_seqs, or, if prompts are not cut,
    # than max_model_len. "fitted": the default tokens are then at least max_model_len, and no more than max_num_seqs
    # prompts of it in any case. "": the engine starts in any case.
    whole_prompts: Literal["", "refused", "fitted"] = ""
    approximate: tuple[str, ...] = ()  # differences of the replay from the engine, as notes
    replayed_since: str | None = None  # first release whose own scheduler is the one that is replayed; None for all
    older_policy: str | None = None  # policy with the scheduler of earlier releases; None without one
    before_replayed: str = ""  # the nature of earlier releases, and the remedy, as a note says it after the release
    # Scheduler rules that ended with a release: their names in the loop's settings, and that release.
    older_rules: Mapping[str, str] = field(default_factory=dict)
    hashes_next_token: tuple[str, ...] = ()  # draft methods with which a cached block's hash covers the token after it
    has_worker_processes: bool = False  # whether a scheduler process feeds one worker process per GPU
    streams_by_step: bool = False  # whether `stream_interval` counts the steps of a request; else it counts tokens
    # Whether the engine that decodes reads the text of a prompt after another has prefilled it.
    rereads_prompts: bool = False
    # Whether it sends the first token, which comes with the KV, before its first step of the request; else the client
    # has it with the second.
    sends_token_on: bool = False
    # Whether a request that arrives during a step, with no other waiting, is the next step by itself.
    starts_alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Graphs:
    """CUDA graphs."""

    # Largest captured size, of (`Size`, max_num_seqs with 0 for no limit, tokens per decode) [1].
    capture_size: Callable[[Size, int, int], int] = lambda _, max_num_seqs, __: min(max_num_seqs or 256, 256)
    rule: str = "the engine is taken to capture up to 256 sequences"  # that rule in words
    counts_tokens: bool = False  # whether sizes are tokens; else they are sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of weights, steps, states and KV."""

    # Memory for weights, working memory and KV, of (`gpu_memory_utilization`, `Occupied`); by default a share of the
    # whole GPU [bytes].
    usable_bytes: Callable[[float, Occupied], float] = lambda share, occupied: share * occupied.capacity
    caches: Callable[[Architecture], bool] = lambda _: True  # whether keys and values of a model are kept
    # Peak of the largest step, of `Activations`; by default none is for the sampler [bytes].
    activation_bytes: Callable[[Activations], float] = lambda sizes: sizes.residual + sizes.layer
    # Recurrent states kept for a running sequence, of (prefix caching, overlap) [1].
    states_per_sequence: Callable[[bool | None, bool], int] = lambda *_: 1
    # Memory of recurrent states over that of KV at most; None if states of max_num_seqs are kept.
    state_ratio: float | None = None
    # Block size [tokens] and blocks of a sequence's recurrent states, of (model, block size, bytes of a KV element, TP
    # size, drafted tokens).
    state_pages: Callable[[Architecture, int, float, int, int], tuple[int, int]] = lambda _, size, *__: (size, 0)
    # Sequences that must each have a state block when the engine starts [1], of (release, max_num_seqs, largest batch
    # of a full CUDA graph).
    seats_with_states: Callable[[str | None, int, int], int] = lambda *_: 0
    # Release since which CUDA graphs take their memory from the share; None if they do not.
    charges_graphs_since: str | None = None
    # Blocks if sliding layers keep a window for each running request, of (model, block size, bytes of a KV element, TP
    # size, stages, release); None if they keep all of the context.
    window_pages: Callable[[Architecture, int, float, int, int, str | None], WindowPages | None] = lambda *_: None
    # Of a prompt, that they keep beside the window, of (max_num_batched_tokens, batches in flight, release) [tokens].
    tokens_in_flight: Callable[[int, int, str | None], int] = lambda tokens, *_: tokens
    # Whether a release logs its room for contexts of the longest length as its KV cache's tokens.
    logs_pool: Callable[[str | None], bool] = lambda _: False
    # Tokens in a pool of sliding layers over the others' tokens by default, of a model; None if they keep all of the
    # context.
    window_pool_ratio: Callable[[Architecture], float | None] = lambda *_: None
    # The same as `state_pages` for compressed sparse attention, of (model, block size).
    compressed_pages: Callable[[Architecture, int], tuple[int, int]] = lambda _, size: (size, 0)
    # Bytes of a token in the pools of compressed sparse attention, of (model, bytes of an element, stages); None if all
    # of it is in blocks.
    compressed_pool: Callable[[Architecture, float, int], float] | None = None
    # How one pool of blocks is laid out for it, of (model, bytes of an element, stages, layers of a draft, tokens in
    # flight); None without one pool.
    compressed_groups: Callable[[Architecture, float, int, int, int], CompressedGroups] | None = None
    # Weight formats that a release makes of 16-bit weights as it loads them.
    converts_to: Callable[[str | None], tuple[str, ...]] = lambda _: ()
    pads_experts_on: tuple[str, ...] = ()  # vendors of GPUs on which it pads 16-bit experts
    # First release without a second copy of the scales of NVFP4 experts; None for an engine that never had one.
    drops_scales_since: str | None = None
    # First release that takes the KV type of a checkpoint for "auto"; None for all.
    reads_kv_type_since: str | None = None
    # KV types with more than an element and its scale (`PACKED_KV`) -> the number format that a GPU must multiply in,
    # None for any.
    packed_kv: Mapping[str, str | None] = field(default_factory=dict)
    # Formats that a GPU without NVLink widens to 8 bit, in a workspace of one layer, for the attention of prompts.
    widened_kv: tuple[str, ...] = ()
    # Whether the engine refuses to start if its KV cache holds less than one longest context.
    needs_whole_context: bool = False
    # First release that fits its context limit to the KV cache if it is told to; None if none does.
    fits_context_since: str | None = None
    # Blocks of the KV cache that a release leaves out when it fits the limit [1].
    reserved_blocks: Callable[[str | None], int] = lambda _: 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Kernels, by the shape of the model, the release and the GPU."""

    # Tokens of a rank in the buffer of an exchange whose empty rows the experts' kernels start for, by its name [1].
    buffered_tokens: Mapping[str, int] = field(default_factory=dict)
    newest_since: str | None = None  # first release of the newest line; None if releases do not differ in speed
    # Layers of a model that releases before `newest_since` run with more kernels [1].
    older_layers: Callable[[Architecture], int] = lambda _: 0
    routes_with_experts: bool = False  # whether the benchmark of routed experts includes routing
    rotates_in_attention: bool = False  # whether the attention kernel applies the rotary embedding
    widens_weights: bool = True  # whether kernels for 16-bit activations convert narrower weights
    index_share: float = 1.0  # share of `index_layer_s` that an indexer adds if it runs beside other kernels
    compressed: str = "vllm"  # engine whose measured decode kernels of compressed attention these are
    # Share of the 16-bit peak that block-sparse prompts reach, by GPU generation; empty if not modelled.
    block_sparse_frac: Mapping[str, float] = field(default_factory=dict)
    block_sparse_unpadded: tuple[str, ...] = ()  # generations whose kernel does not pad heads to a tile
    runs_flash_attention: bool = False  # whether 16-bit attention is FlashAttention's on GPUs without a newer kernel
    flashinfer_generations: tuple[str, ...] = ()  # GPU generations on which attention is FlashInfer's
    # Whether groups of GPUs can share the tokens of a prompt (prefill context parallelism).
    shares_prompts: bool = False
    splits_shared_cache: bool = False  # whether each of these groups holds a part of each context, and not all of it
    # Kinds of attention, "mla" and "gqa", whose KV the GPUs of a tensor-parallel group can share by context.
    shares_contexts: tuple[str, ...] = ()
    # Whether all-reduces include the next norm by default, of (model, pipeline stages).
    fuses_allreduce: Callable[[Architecture, int], bool] = lambda *_: False
    # Largest message of that kernel, of (generation, GPUs, hidden size).
    largest_fused_bytes: Callable[[str, int, int], float] = lambda *_: 0.0
    # Backend of routed experts that `auto` is, by (GPU generation, format); the benchmark's own kernel elsewhere.
    auto_experts: Mapping[tuple[str, str], str] = field(default_factory=dict)
    # Time of experts' kernels that were measured under another engine alone, over their time there, by tokens.
    borrowed_experts: tuple[tuple[float, ...], tuple[float, ...]] = ((1.0,), (1.0,))
    # How tokens of attention ranks reach whole experts by default, of (GPU, GPUs that share the experts, experts that a
    # token visits); None is by all GPUs.
    exchange: Callable[[Gpu, int, int], str | None] = lambda *_: None
    fused_shared_experts: tuple[str, ...] = ()  # model types whose shared expert runs in the kernel of the routed ones
    # Two-batch overlap of the experts' exchange with compute; None without one.
    batch_overlap: TwoBatchOverlap | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The planner's facts about a serving engine. Every value has its source beside it."""

    name: str  # in options
    title: str  # as the engine writes itself
    defaults: Defaults
    scheduler: Scheduler = Scheduler()
    graphs: Graphs = Graphs()
    memory: Memory = Memory()
    kernels: Kernels = Kernels()
    dialect: Dialect  # launch commands and flags
    log: LogReader = LogReader()  # lines of the engine's log
    package: Package = Package()  # images, Python classes and other programs
    client: Client | None = None  # its benchmark client; None if it has none
    metrics: Metrics | None = None  # series of its /metrics; None if they are not read

    def is_older(self, version: str | None) -> bool:
        """Tell whether a release is before the newest line; a release candidate counts as its release."""
        return is_before(version, self.kernels.newest_since)

    def defaults_before(self, version: str | None) -> Iterator[Default]:
        """Yield the defaults that a release does not have yet."""
        yield from (default for default in self.defaults.since if is_before(version, default.since))

    def rules(self, version: str | None) -> dict[str, bool]:
        """Return which of the loop's rules a release follows, by their names in its settings."""
        older = {name: is_before(version, release) for name, release in self.scheduler.older_rules.items()}
        return older | {name: getattr(self.scheduler, name)
                        for name in ("streams_by_step", "rereads_prompts", "sends_token_on", "starts_alone")}

    def options_before(self, version: str | None, scenario: Any) -> dict[str, Any]:
        """Return a release's values of the options that a scenario leaves to the engine (None or "auto")."""
        return {default.option: default.before for default in self.defaults_before(version)
                if getattr(scenario, default.option) in (None, "auto")}
