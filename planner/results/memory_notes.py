"""Notes on memory that the model leaves out, and on a release's changes to it."""

from planner.catalog.layers.mlps import Experts
from planner.deployment.deploy import Deployment
from planner.engines import ENGINES
from planner.engines.releases import is_before
from planner.files.counts import share_text
from planner.model.precision import expert_format
from planner.traces import Trace

# "Estimated CUDA graph memory" in start-up logs of vLLM 0.19 to 0.27: 0.17 to 2.75 GiB, half of them below 0.53. By
# model, kernels and sizes they follow no rule that we found: two graphs are measured, and their growth is multiplied.
GRAPHS_GIB = (0.2, 2.8)
USUAL_GRAPHS_GIB = 0.5
# With linear attention vLLM charges a pass over many tokens to the graphs since 0.26 (vllm-project/vllm#50780: 18 to
# 24 % of the KV cache). Three formats of Qwen3.8-27B on an RTX PRO 6000 have 7.5 to 8.9 GiB less than the memory model
# says (vllm-project/recipes#831), and an H100 NVL has as much as it says. Those run 1,024 sequences, for which vLLM
# records most graphs; with 256 and fewer, two RTX 5090 have as much as the memory model says.
HYBRID_SINCE, HYBRID_GIB, HYBRID_SEQS = "0.26", 8.9, 1024
PADDED = "start-up logs of Qwen3-VL-30B-A3B (54 GiB of experts) on an MI300X have 2 to 21 GiB"
SHARE_THAT_MATTERS = 0.05  # of the KV cache


def memory_notes(deployment: Deployment) -> list[str]:
    """Say which memory the model leaves out of this deployment."""
    return [*graph_memory(deployment), *hybrid_memory(deployment), *expert_memory(deployment),
            *compressed_memory(deployment)]


def hybrid_memory(deployment: Deployment) -> list[str]:
    """Say that vLLM may refuse to start for want of blocks for recurrent states, if its graphs take as much as some do.
    """
    memory, scenario, arch = deployment.memory, deployment.scenario, deployment.architecture
    engine = ENGINES[scenario.engine]
    if memory is None or arch is None or not arch.num_linear_layers or not memory.state_blocks:
        return []
    if (is_before(scenario.engine_version, HYBRID_SINCE) or scenario.kv_cache_memory_bytes is not None
            or scenario.cudagraph_mode in ("none", "piecewise")):  # only full graphs need the blocks
        return []
    block_bytes = memory.kv_bytes_per_token * memory.block_size
    taken_gib = HYBRID_GIB * min(memory.max_num_seqs / HYBRID_SEQS, 1)
    least = int((memory.kv_bytes - taken_gib * 2**30) // block_bytes)
    if least >= memory.max_num_seqs:
        return []
    return [f"{engine.title} may refuse to start: it needs a KV block for the recurrent states of each of max_num_seqs "
            f"= {memory.max_num_seqs:,} sequences. The planner counts {memory.num_gpu_blocks:,} blocks without the "
            f"memory of CUDA graphs, which takes up to {taken_gib:.1f} GiB with linear attention since {HYBRID_SINCE} "
            f"and leaves {max(least, 0):,}; lower --max-num-seqs"]


def compressed_memory(deployment: Deployment) -> list[str]:
    """Say how vLLM's start-up log counts compressed sparse attention."""
    memory, length = deployment.memory, deployment.settings.max_model_len
    engine = ENGINES[deployment.scenario.engine]
    if memory is None or memory.compressed is None:
        return []
    groups = memory.compressed
    if groups.needed_bytes(length) > memory.kv_bytes:
        return []
    concurrency = groups.concurrency(memory.num_gpu_blocks, length)
    return [f"the start-up log of {engine.title} counts {int(concurrency * length):,} tokens of KV cache, which are "
            f"{concurrency:.2f} requests of {length:,} tokens, each with windows and compressor rows of "
            f"{groups.in_flight:,} tokens in flight. The blocks hold {memory.num_kv_tokens:,} tokens of context, and a "
            f"request that decodes holds {memory.state_blocks} more blocks, so more short requests fit"]


def expert_memory(deployment: Deployment) -> list[str]:
    """Say that an engine pads 16-bit experts on a vendor's GPUs, by a rule that depends on its build."""
    arch, gpu, memory, scenario = deployment.architecture, deployment.gpu, deployment.memory, deployment.scenario
    engine = ENGINES[scenario.engine]
    if arch is None or gpu is None or memory is None or gpu.vendor not in engine.memory.pads_experts_on:
        return []
    if not any(arch.mlps_of(Experts)) or expert_format(arch, scenario.quantization) not in ("bf16", "fp16"):
        return []
    return [f"the padding of 16-bit experts on {gpu.vendor} GPUs is left out of {memory.weight_bytes / 2**30:.1f} GiB "
            f"of weights. It depends on the build of {engine.title}: {PADDED} more, and the KV cache is smaller by as "
            f"much; --kv-cache-memory-bytes sets the KV cache that your server's log shows"]


def graph_memory(deployment: Deployment) -> list[str]:
    """Say that CUDA graphs take some of the KV cache, if their usual size is more than a small share of it."""
    engine, memory, scenario = ENGINES[deployment.scenario.engine], deployment.memory, deployment.scenario
    since = engine.memory.charges_graphs_since
    mode = scenario.cudagraph_mode or engine.defaults.cudagraph_mode
    if memory is None or since is None or is_before(scenario.engine_version, since) or mode == "none":
        return []
    kv_gib = memory.kv_bytes / 2**30
    if scenario.kv_cache_memory_bytes is not None or SHARE_THAT_MATTERS * kv_gib > USUAL_GRAPHS_GIB:
        return []
    return [f"the memory of CUDA graphs and of kernels' workspaces is left out. {engine.title} takes it from the KV "
            f"cache since {since}, and start-up logs show {GRAPHS_GIB[0]} to {GRAPHS_GIB[1]} GiB, of {kv_gib:.1f} GiB "
            f"here; --kv-cache-memory-bytes sets the KV cache that your server's log shows"]


def window_memory(deployment: Deployment, trace: Trace) -> list[str]:
    """Say if requests are so short that SGLang's pool of sliding layers would be full before the other one."""
    engine, arch, scenario = ENGINES[deployment.scenario.engine], deployment.architecture, deployment.scenario
    ratio = None if arch is None else engine.memory.window_pool_ratio(arch)
    if arch is None or deployment.memory is None or ratio is None or scenario.disable_hybrid_kv_cache_manager:
        return []
    ratio = ratio if scenario.swa_full_tokens_ratio is None else scenario.swa_full_tokens_ratio
    lengths = trace.requests["input_tokens"] + trace.requests["output_tokens"]
    share = float(lengths.clip(upper_bound=arch.sliding_window).sum()) / max(float(lengths.sum()), 1.0)
    if share <= ratio:
        return []
    return [f"{share_text(share)} of the requests' tokens are within the sliding window of {arch.sliding_window:,} "
            f"tokens, and {engine.title}'s pool for these layers has {ratio:g} times the other layers' tokens "
            f"(swa_full_tokens_ratio). It is full first, at {share_text(ratio / share)} of the requests that the "
            f"planner lets in"]


def release_of_windows(deployment: Deployment) -> list[str]:
    """Say how an older release keeps the KV of sliding layers."""
    scenario, memory, arch = deployment.scenario, deployment.memory, deployment.architecture
    engine, version = ENGINES[scenario.engine], scenario.engine_version
    if memory is None or arch is None or not arch.sliding_window or scenario.disable_hybrid_kv_cache_manager:
        return []
    layout, chunk = deployment.layout, memory.windows.window_chunk
    if chunk > 0:
        tokens = engine.memory.tokens_in_flight(1, 2, None) // engine.memory.tokens_in_flight(1, 2, version)
        return [] if tokens == 1 else [
            f"{engine.title} {version}: sliding layers keep {chunk:,} tokens of a prompt beside their window while it "
            f"is computed; newer releases keep those of all steps in flight"]
    newest, older = (engine.memory.window_pages(
        arch, 16, 2.0, layout.tensor_parallel_size, layout.pipeline_parallel_size, release)
        for release in (None, version))
    return [] if newest is None or older is not None else [
        f"{engine.title} {version}: sliding layers keep all of the context in the KV cache; newer releases keep their "
        f"window"]
