"""Sharding of a scenario's model over GPUs, and the links between nodes and stages."""

from dataclasses import replace

from planner.catalog.architecture import Architecture
from planner.catalog.gpus import Gpu
from planner.catalog.layers.gqa import Gqa
from planner.catalog.layers.latent import Mla
from planner.catalog.layers.mlps import Experts
from planner.engines import ENGINES
from planner.engines.engine import Engine
from planner.errors import CatalogError, UsageError
from planner.model.layout import ALL_GATHER, AUTO, Layout
from planner.model.node_link import NodeLink
from planner.settings.scenario import Scenario, attention_ranks


def layout_of(scenario: Scenario, architecture: Architecture | None, gpu: Gpu | None) -> Layout:
    """Return how a scenario spreads its model.

    Raises
    ------
    UsageError : ranks of data-parallel attention would share no experts, so nothing would make them step together.
    """
    if scenario.data_parallel_attention and architecture is not None and not architecture.num_moe_layers:
        raise UsageError(f"data_parallel_attention with {architecture.name}, which has no experts: its ranks would not "
                         f"step together; leave it out, and --data-parallel-size is of replicas by themselves")
    size, ranks, shares = (scenario.tensor_parallel_size, attention_ranks(scenario),
                           scenario.prefill_context_parallel_size)
    layout = Layout(tensor_parallel_size=size, pipeline_parallel_size=scenario.pipeline_parallel_size,
                    data_parallel_size=ranks,
                    expert_parallel_size=expert_parallel_size(scenario),
                    enable_eplb=scenario.enable_eplb, num_redundant_experts=scenario.num_redundant_experts,
                    decode_context_parallel_size=scenario.decode_context_parallel_size,
                    prefill_context_parallel_size=shares,
                    splits_cache=ENGINES[scenario.engine].kernels.splits_shared_cache)
    return with_exchange(layout, scenario.all2all_backend, ENGINES[scenario.engine], architecture, gpu)


def with_exchange(layout: Layout, backend: str, engine: Engine, architecture: Architecture | None,
                  gpu: Gpu | None) -> Layout:
    """Return a layout whose attention ranks send tokens to their experts by a backend, or by the engine's choice.

    An engine chooses kernels that send tokens for whole experts alone.
    """
    if backend != AUTO:
        return replace(layout, exchange=backend)
    if gpu is None or architecture is None or layout.data_parallel_size == 1 or (
            layout.expert_parallel_size < layout.num_expert_gpus):
        return layout
    visited = max((experts.num_experts_per_tok for _, experts in architecture.mlps_of(Experts)), default=0)
    return replace(layout, exchange=engine.kernels.exchange(gpu, layout.expert_parallel_size, visited) or ALL_GATHER)


def expert_parallel_size(scenario: Scenario) -> int:
    """Return the GPUs that the experts of a layer are spread over, whole or in slices [1].

    >>> expert_parallel_size(Scenario(tensor_parallel_size=8, expert_parallel=True, expert_tensor_parallel_size=2))
    4

    Raises
    ------
    UsageError : a layer's GPUs are not a multiple of an expert's GPUs, or experts are not spread.
    """
    sliced = scenario.expert_tensor_parallel_size
    gpus = (scenario.tensor_parallel_size * scenario.prefill_context_parallel_size * attention_ranks(scenario))
    if sliced != 1 and not scenario.expert_parallel:
        raise UsageError(f"expert_tensor_parallel_size = {sliced}: every GPU holds a slice of each expert without "
                         f"--expert-parallel; give it, or leave the size out")
    if sliced < 1 or gpus % sliced:
        raise UsageError(f"expert_tensor_parallel_size = {sliced}; must divide the {gpus} GPUs that share a layer's "
                         f"experts")
    return gpus // sliced if scenario.expert_parallel else 1


def check_heads(architecture: Architecture, layout: Layout, engine: Engine) -> None:
    """Refuse numbers of tensor-parallel ranks that engines do not start with: heads cannot be divided over them.

    A KV head may be on several ranks.

    Raises
    ------
    CatalogError : the number of ranks does not divide that of heads, or of their groups, or neither it that of KV heads
        nor they it.
    UsageError : as `_check_context_ranks`.
    """
    ranks = layout.tensor_parallel_size
    for attention, _ in architecture.by_attention:
        undivided = attention.undivided(ranks)
        if undivided is not None:
            what, number = undivided
            raise CatalogError(f"tensor_parallel_size = {ranks}: {architecture.name} has {what}, which no engine "
                               f"divides over {ranks} ranks; give a divisor of {number}")
    _check_context_ranks(architecture, layout, engine)
    _check_prompt_shares(architecture, layout, engine)


def _check_prompt_shares(architecture: Architecture, layout: Layout, engine: Engine) -> None:
    """Refuse prefill context parallelism if the engine has none, or if its form is not modelled.

    Raises
    ------
    UsageError : the engine shares no prompts, or a layer keeps a state that each token changes.
    """
    if layout.prefill_context_parallel_size == 1:
        return
    asked = f"prefill_context_parallel_size = {layout.prefill_context_parallel_size}"
    if not engine.kernels.shares_prompts:
        raise UsageError(f"{asked}: {engine.title} has it in a form that is not modelled; leave it out, or give "
                         "another engine")
    if architecture.num_linear_layers:
        raise UsageError(f"{asked} with {architecture.name}: its layers of linear attention take a prompt's tokens one "
                         "after the other; leave it out")


def _check_context_ranks(architecture: Architecture, layout: Layout, engine: Engine) -> None:
    """Refuse decode context parallelism if the engine has none, or if its form is not modelled.

    A GPU of a group holds the same KV heads as the others: MLA's latent, or a KV head that several GPUs have.

    Raises
    ------
    UsageError : fewer GPUs have a KV head than share a context, or a layer has a kind that is not modelled.
    """
    ranks = layout.decode_context_parallel_size
    if layout.cache_parts == 1:
        return
    asked = (f"decode_context_parallel_size = {ranks}" if ranks > 1 else
             f"prefill_context_parallel_size = {layout.prefill_context_parallel_size}") + f" with {architecture.name}"
    for attention, groups in architecture.by_attention:
        if not isinstance(attention, Gqa | Mla) or any(group.window or group.indexer for group in groups):
            raise UsageError(f"{asked}: is modelled for layers that attend to all of the context, and this model has "
                             f"others; leave it out")
        kind = "mla" if isinstance(attention, Mla) else "gqa"
        if kind not in engine.kernels.shares_contexts:
            has = "with MLA alone" if engine.kernels.shares_contexts else "in a form that is not modelled"
            raise UsageError(f"{asked}: {engine.title} has it {has}; leave it out, or give another engine")
        if isinstance(attention, Gqa) and ranks > 1 and attention.num_kv_heads * ranks > layout.tensor_parallel_size:
            raise UsageError(f"{asked}: each of its {attention.num_kv_heads} KV heads must be on {ranks} GPUs, so it "
                             f"needs tensor_parallel_size >= {attention.num_kv_heads * ranks}; tensor_parallel_size is "
                             f"{layout.tensor_parallel_size}")


def node_link_of(scenario: Scenario, gpu: Gpu | None, layout: Layout) -> NodeLink | None:
    """Return the network between the nodes of a replica; None if it has one node.

    Raises
    ------
    UsageError : it spans nodes whose network is neither given nor published, or that its groups do not fill.
    """
    if gpu is None or layout.num_gpus <= gpu.gpus_per_node:
        return None
    layout.check_nodes(gpu.gpus_per_node)
    if scenario.inter_node_bandwidth is None and gpu.network_bytes_per_s:
        return NodeLink(bandwidth_bytes_per_s=gpu.network_bytes_per_s, latency_s=scenario.inter_node_latency)
    if scenario.inter_node_bandwidth is None:
        nodes = -(-layout.num_gpus // gpu.gpus_per_node)
        raise UsageError(f"a replica of {layout.num_gpus} {gpu.name} spans {nodes} nodes of {gpu.gpus_per_node}: give "
                         f"--inter-node-bandwidth, a GPU's share of the network in GB/s, as 50 for 400 Gb/s each")
    return NodeLink(bandwidth_bytes_per_s=scenario.inter_node_bandwidth * 1e9, latency_s=scenario.inter_node_latency)


def stage_transfer_of(architecture: Architecture | None, gpu: Gpu | None, layout: Layout,
                      node_link: NodeLink | None) -> tuple[float, float]:
    """Return a token's mean time from one pipeline stage to the next, and a step's time for all crossings [s].

    A token sends its hidden state and its residual, both in 16 bit: each GPU of a stage sends a part to its like,
    between nodes over the network, and the GPUs of the next stage gather the parts.

    Source: vLLM's `send_tensor_dict` with an `all_gather_group`, and `IntermediateTensors` of its models.
    """
    if architecture is None or gpu is None or layout.pipeline_parallel_size == 1:
        return 0.0, 0.0
    token_bytes, ranks = 2 * 2.0 * architecture.hidden_size, layout.tensor_parallel_size
    sent_s = token_bytes / ranks / gpu.scale_up_bandwidth_bytes_per_s
    gathered_s = (ranks - 1) * sent_s
    if node_link is None:
        return sent_s + gathered_s, 0.0
    share = layout.num_node_crossings(gpu.gpus_per_node) / (layout.pipeline_parallel_size - 1)
    over_s = max(token_bytes / ranks / node_link.bandwidth_bytes_per_s, sent_s)
    return gathered_s + (1 - share) * sent_s + share * over_s, share * node_link.latency_s
