"""Notes with a result: defaults and assumptions for facts that the trace or the options do not give."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.catalog.catalog_files import other_checkpoint
from planner.catalog.families import COMPRESSED
from planner.catalog.gpu_power import clock_share
from planner.catalog.pooling import RESULTS
from planner.deployment.deploy import Deployment, Pool, pools_of
from planner.engines import ENGINES
from planner.engines.engine import Engine
from planner.engines.releases import is_before
from planner.files.counts import count_text, does_text, share_text
from planner.launch.checkpoint_format import published_checkpoints
from planner.model.precision import KV_BYTES_PER_ELEMENT, PACKED_KV, WEIGHT_FORMATS, weight_format
from planner.results.memory_notes import memory_notes, release_of_windows, window_memory
from planner.results.session_notes import session_notes
from planner.results.uncertainty import runs_note
from planner.settings.default_router import SERVICE_ROUTER
from planner.settings.deployment_options import FITTED_LENGTH
from planner.settings.scenario import Scenario, given_options
from planner.settings.tier_options import shares_store
from planner.steptime.engine_constants import read_table
from planner.steptime.first_use import first_use_of
from planner.steptime.prefill_workers import has_runs
from planner.steptime.roofline import priors
from planner.traces import Trace
from planner.traces.shaping.burstiness import share_together, tick_of

FASTEST_DISKS = 28.0  # two NVMe disks on four lanes of PCIe 5.0 each [GB/s]
COARSE_S = 0.5  # resolution of a clock that piles requests up
SWITCHES = {  # options that do nothing while this one is off
    "cold": ("first_use_s",),
    "num_speculative_tokens": ("speculative_method", "speculative_model", "speculative_acceptance",
                               "num_speculative_tokens_per_batch_size"),
    "max_loras": ("max_cpu_loras", "max_lora_rank", "lora_disk_bandwidth"),
    "kv_remote_size": ("kv_remote_bandwidth", "kv_remote_latency", "kv_remote_scope"),
    "prefill_replicas": ("prefill_worker_ratio", "prefill_worker_token_time", "kv_transfer_bandwidth",
                         "kv_transfer_latency", "kv_transfer", "local_prefill_below"),
    "batch_wait_timeout_iters": ("batch_wait_max_tokens_ratio",),
    "batch_wait_max_tokens_ratio": ("batch_wait_timeout_iters",),
}


def notes(deployment: Deployment, trace: Trace, *, num_followers: int = 0,
          num_truncated: int = 0) -> list[str]:
    """Return one sentence for each assumption, and for each input that was ignored.

    Parameters
    ----------
    num_followers : requests that were sent when those before them had left [1].
    num_truncated : requests whose output was cut at the longest context or at their own limit [1].
    """
    lines = []
    for pool in pools_of(deployment, 1):
        of_pool = [*pool.notes, *_engines(pool.deployment, trace), *_prefill_worker(pool)]
        lines += [f"{pool.name}: {note}" for note in of_pool] if deployment.pools else of_pool
    if num_followers:
        lines.append(f"{does_text(num_followers, 'request', 'wait')} for earlier requests to finish; "
                     f"--no-wait-for-parents sends all at their recorded times")
    if num_truncated:
        lines.append(f"{does_text(num_truncated, 'output', 'end')} at max_model_len or at the request's "
                     f"max_output_tokens")
    return [*dict.fromkeys(lines), *_load(deployment, trace)]


def _engines(deployment: Deployment, trace: Trace) -> list[str]:
    """Return the assumptions and ignored inputs of one engine's settings and step times."""
    architecture = deployment.architecture
    columns, policy, settings = trace.requests.columns, deployment.policy, deployment.settings
    lines = _disk(deployment.scenario)
    if policy.name == "edf" and "deadline_s" not in columns:
        lines.append("edf: the trace has no deadline_s, so all deadlines are equal: order of arrival")
    if policy.name == "sjf" and not {"predicted_output_tokens", "max_output_tokens"} & set(columns):
        lines.append("sjf: the trace has no predicted_output_tokens, so requests are ordered by prompt length alone")
    if policy.name == "priority" and "priority" not in columns:
        lines.append("priority: the trace has no priority, so all are equal: order of arrival")
    if policy.placeholders and (settings.pipeline_parallel_size > 1 or deployment.scenario.data_parallel_attention):
        lines.append(f"{policy.name}: pipelines and the prefill delayer are not modelled; prompts may start earlier")
    if policy.reserve == "model-len":
        slots = settings.num_gpu_blocks // -(-settings.max_model_len // settings.block_size)
        lines.append(f"{policy.name} reserves KV blocks for {settings.max_model_len:,} tokens a request, so at most "
                     f"{slots:,} requests run at once; a lower --max-model-len admits more")
    if policy.promises != "nothing" and "max_output_tokens" not in columns:
        lines.append(f"{policy.name} reserves KV blocks for output tokens still to come. The trace has no "
                     f"max_output_tokens, so each request may grow to max_model_len = {settings.max_model_len:,} "
                     f"tokens; a lower --max-model-len admits more")
    is_whole = policy.cut == "none" or not settings.enable_chunked_prefill
    if is_whole and policy.budget == "step" and 0 < settings.max_num_batched_tokens < settings.max_model_len:
        lines.append(f"prompts are not split into chunks, so prompts above max_num_batched_tokens = "
                     f"{settings.max_num_batched_tokens:,} are rejected; engines require at least max_model_len, and "
                     f"--max-num-batched-tokens sets it")
    if settings.enable_prefix_caching and trace.prefix is not None and "cached_tokens" in columns:
        lines.append("prefix hits are computed from hash_ids; the trace's cached_tokens are ignored")
    if not settings.enable_prefix_caching and trace.prefix is not None:
        lines.append("prefix caching is off, so the trace's hash_ids are ignored; --enable-prefix-caching turns it on")
    memory, is_linear = deployment.memory, architecture is not None and architecture.num_linear_layers > 0
    engine = ENGINES[deployment.scenario.engine]
    if engine.memory.state_ratio is not None and is_linear and memory is not None:
        per_seq = engine.memory.states_per_sequence(
            deployment.scenario.enable_prefix_caching, settings.async_scheduling)
        lines.append(f"{engine.title} stores recurrent states for {memory.max_num_seqs:,} sequences in "
                     f"{memory.state_bytes / 2**30:.1f} GiB beside the KV cache, and runs no more sequences at once"
                     + (f" ({per_seq} states a sequence: the radix cache stores states of prefixes)" if per_seq > 1
                        else "") + "; --max-num-seqs changes the number; if memory limits it, raise "
                     "--gpu-memory-utilization, use more GPUs"
                     + (" or give --no-enable-prefix-caching" if per_seq > 1 else ""))
    is_apart = (deployment.scenario.data_parallel_size > 1 and not deployment.scenario.data_parallel_attention
                and not ENGINES[deployment.scenario.engine].dialect.ranks.needs_switch)
    if is_apart and architecture is not None and architecture.num_moe_layers:
        lines.append("data_parallel_size counts independent replicas; in vLLM, data-parallel ranks of a mixture of "
                     "experts take each step together, and --data-parallel-attention replays such ranks")
    if (draft := deployment.draft) is not None:
        lines.append(f"speculative decoding: {draft.method} drafts {draft.num_tokens} tokens a step, and "
                     f"{draft.mean_acceptance_length - 1:.2f} are accepted on average"
                     + (f" ({draft.acceptance_source})" if draft.acceptance_source else "")
                     + (f"; large batches draft as few as {min(draft.lengths)}" if draft.lengths else "")
                     + ("" if deployment.stack else "; a linear step time does not include the draft's cost"))
    if "image_tokens" in columns:
        lines.append(_images(deployment))
    if "adapter" in columns and not settings.max_loras:
        lines.append("the trace's LoRA adapters are ignored; --max-loras replays them")
    lines += _pooling(deployment) + _checkpoint(deployment) + window_memory(deployment, trace)
    lines += memory_notes(deployment) + _kv_cache(deployment) + _encoders(deployment) + _kernels(deployment)
    return lines + _first_use(deployment) + _context(deployment) + _release(deployment) + _calibration(deployment)


def _disk(scenario: Scenario) -> list[str]:
    """Return a note on a disk that is as fast as a network."""
    if scenario.kv_remote_size is None or shares_store(scenario) or scenario.kv_remote_bandwidth <= FASTEST_DISKS:
        return []
    return [f"kv_remote_scope = replica: kv_remote_bandwidth is {scenario.kv_remote_bandwidth:g} GB/s; one NVMe disk "
            f"reads about 7 GB/s over PCIe 4.0 and 14 GB/s over PCIe 5.0"]


def _prefill_worker(pool: Pool) -> list[str]:
    """Say that it was not measured how much longer this engine's steps take on a replica that only prefills."""
    scenario = pool.deployment.scenario
    if pool.role != "prefill" or pool.deployment.slowdown is None or scenario.prefill_worker_ratio is not None or (
            has_runs(scenario.engine)):
        return []
    return [f"a step takes {pool.deployment.slowdown.ratio:g} times its kernels on a replica that only prefills: "
            f"the mean of the other engines, since no published run shows {ENGINES[scenario.engine].title}'s; "
            f"--prefill-worker-ratio sets the number"]


def _pooling(deployment: Deployment) -> list[str]:
    """Say the result of a pooling model, and the limits of its prediction."""
    arch, scheduler = deployment.architecture, ENGINES[deployment.scenario.engine].scheduler
    return [] if arch is None or arch.pooling is None else [
        *scheduler.approximate,
        f"{arch.name} generates no tokens: a request's result is one {RESULTS[arch.pooling]}. Output lengths of the "
        f"trace have no effect, and TTFT is the end-to-end latency. No run of such a model is among the measurements: "
        f"the API server and the host have the times of text generation"]


def _checkpoint(deployment: Deployment) -> list[str]:
    """Say that the model's name is an alias, and which checkpoint has the weight format that is asked for."""
    model, arch, asked = deployment.scenario.model, deployment.architecture, deployment.scenario.quantization
    if model is None or arch is None:
        return []
    other = other_checkpoint(model)
    lines = [] if other is None else [f"{model} is the catalog's {arch.profile_name}, and a launch command names "
                                      f"{other}; --model takes the name of another checkpoint"]
    return lines + [f"quantization = {asked}: every linear layer except the LM head is in {asked}. Checkpoints that "
                    f"are published can keep parts in other formats; --model {name} predicts this one"
                    for name in published_checkpoints(deployment.scenario)]


def _kv_cache(deployment: Deployment) -> list[str]:
    """Say that the checkpoint decides the format of the KV cache, or the stand-in for a packed format."""
    arch, kv_cache_dtype = deployment.architecture, deployment.resolved.kv_cache_dtype
    if deployment.stack is not None and kv_cache_dtype.lower() not in KV_BYTES_PER_ELEMENT:
        return [_packed_kv(kv_cache_dtype.lower(), deployment.stack.kv_bytes_per_element)]
    if arch is None or "kv_cache_dtype" in deployment.given or arch.model_type in COMPRESSED or (
            arch.kv_cache_dtype is None):
        return []
    engine = ENGINES[deployment.scenario.engine].title
    if kv_cache_dtype == arch.kv_cache_dtype:
        return [f"the KV cache is in {arch.kv_cache_dtype}: the checkpoint states this format, and {engine} follows it "
                f"unless --kv-cache-dtype is given"]
    return [f"the checkpoint states a KV cache in {arch.kv_cache_dtype}, but {engine} keeps it in 16 bit on this GPU "
            f"or in this release; --kv-cache-dtype {arch.kv_cache_dtype} changes it"]


def _packed_kv(name: str, element_bytes: float) -> str:
    """Say how large a packed format of the KV cache is, and which measured kernel stands for its kernel."""
    form = PACKED_KV.get(name)
    edges = "" if form is None or not form.edge_layers else (
        f", where the first and the last {form.edge_layers} layers stay in 16 bit if the model has no linear attention")
    rotary = "; every key counts as rotary in all dimensions" if name in ("octave_k3v4", "octave_k3v3") else ""
    return (f"the KV cache in {name} takes {element_bytes:.4g} B an element with its scales, by the engine's source"
            f"{edges}{rotary}. No kernel that reads this format is measured: attention takes the time of the nearest "
            f"measured kernel, 8 bit where there is one, and no less for fewer bytes; your server's may be slower")


def _encoders(deployment: Deployment) -> list[str]:
    """Say which encoders of a multimodal model are not in the prediction."""
    arch = deployment.architecture
    remedies = {"vision": "a config.json with the sizes of its vision_config as --model adds them",
                "audio": "a lower --gpu-memory-utilization makes room for its weights"}
    return [] if arch is None else [
        f"the {name} encoder of {arch.name} is left out: its sizes are not known, so its weights and its time are not "
        f"in the prediction; {remedies[name]}" for name in arch.encoders_left_out]


def _images(deployment: Deployment) -> str:
    """Say how the images of a trace count."""
    arch = deployment.architecture
    if deployment.scenario.language_model_only:
        return ("image_tokens count as prompt tokens alone: a server without its vision encoder rejects prompts with "
                "images")
    if arch is None or arch.vision is None or deployment.stack is None:
        return ("image_tokens count as prompt tokens alone: the vision encoder is not known; give a config.json with "
                "the sizes of its vision_config as --model")
    return ("images: the vision encoder's time is spread over the tokens of their prompts; the image processor of the "
            "host and the memory of the encoder's cache are left out")


def _kernels(deployment: Deployment) -> list[str]:
    """Say which kernels and which power were not measured on the GPU."""
    stack, lines = deployment.stack, []
    if stack is None:
        return []
    if unmeasured := priors(stack):
        lines.append(f"step times use priors (medians over other GPUs) for {', '.join(unmeasured)}: their kernels "
                     f"were not measured on {stack.gpu.name}")
    lines += runs_note(stack.gpu.name)
    if stack.is_staged and stack.layout.num_gpus > 1:
        lines.append(f"collectives go through the host: {stack.gpu.name} has no peer access on PCIe unless its host is "
                     f"set up for it; --pcie-p2p is for such hosts")
    if stack.node_link is not None and deployment.scenario.inter_node_bandwidth is None:
        lines.append(f"a replica spans nodes: the network of published {stack.gpu.name} clusters applies, "
                     f"{stack.node_link.bandwidth_bytes_per_s / 1e9:g} GB/s per GPU; --inter-node-bandwidth changes it")
    if deployment.scenario.pcie_p2p is not None and not stack.gpu.scale_up_link.startswith("PCIe"):
        lines.append(f"pcie_p2p = {deployment.scenario.pcie_p2p}: no effect, since {stack.gpu.scale_up_link} joins "
                     f"{stack.gpu.name}")
    if stack.gpu.power_limit_w:
        lines.append(f"power_limit = {stack.gpu.power_limit_w:g} W of {stack.gpu.tdp_w:g} W: large products run at "
                     f"{share_text(clock_share(stack.gpu))} of their clocks. Times that memory bounds stay: decodes of "
                     f"RTX 3090 were measured up to 6 % slower down to 57 % of the limit, and 14 % slower at 43 %")
    if WEIGHT_FORMATS[weight_format(stack.arch, stack.quantization)].widened_bytes:
        lines.append("bitsandbytes' weights are widened to 16 bit before each product: the planner counts the traffic, "
                     "and nobody measured the kernel")
    if not stack.gpu.hbm_energy_j_per_byte:
        lines.append(f"energy_kwh uses priors (medians over H100, B200 and MI355X): the serving power of "
                     f"{stack.gpu.name} was not published")
    if (gpu := stack.gpu).kernels_of != gpu.name:
        lines.append(f"step times use kernels measured on {gpu.kernels_of}, which has the same chip as {gpu.name}: "
                     f"the planner assumes the same shares of the peaks")
    return lines


def _context(deployment: Deployment) -> list[str]:
    """Say the context limit if it is not the model's."""
    arch, settings = deployment.architecture, deployment.settings
    engine = ENGINES[deployment.scenario.engine]
    if deployment.scenario.max_model_len == FITTED_LENGTH:
        return _fitted(deployment)
    if arch is None or deployment.scenario.max_model_len is not None or settings.max_model_len >= arch.max_model_len:
        return []
    return [f"{engine.title} serves {arch.name} with max_model_len = {settings.max_model_len:,}, its context before "
            f"LongRoPE extends it to {arch.max_model_len:,}; --max-model-len gives a longer one"]


def _fitted(deployment: Deployment) -> list[str]:
    """Say the context limit that the engine fits to its KV cache."""
    arch, length = deployment.architecture, deployment.settings.max_model_len
    title = ENGINES[deployment.scenario.engine].title
    if arch is None or length >= arch.max_model_len:
        return [f"{title} fits max_model_len to the KV cache, which holds the model's whole context of {length:,} "
                f"tokens"]
    return [f"{title} fits max_model_len to the KV cache: {length:,} tokens, and the model has {arch.max_model_len:,}; "
            f"--max-model-len gives another limit"]


def _release(deployment: Deployment) -> list[str]:
    """Say how an engine's release changes its defaults and step times."""
    version = deployment.scenario.engine_version
    engine = ENGINES[deployment.scenario.engine]
    if version is None:
        return []
    older = [] if deployment.policy.name == engine.scheduler.older_policy else _before_replayed(engine, version)
    return [*older, *_changed(deployment, engine, version)]


def _before_replayed(engine: Engine, version: str) -> list[str]:
    """Say that a release has another scheduler than the one that is replayed."""
    if engine.scheduler.replayed_since is None or not is_before(version, engine.scheduler.replayed_since):
        return []
    return [f"{engine.title} {version} {engine.scheduler.before_replayed}"]


def _changed(deployment: Deployment, engine: Engine, version: str) -> list[str]:
    """Say which defaults and step times of a release are others than the newest one's."""
    stack = deployment.stack
    changed = [f"{default.option} is {default.before or 'off'} before {default.since}"
               for default in engine.defaults_before(version)]
    if changed:
        return [f"{engine.title} {version}: options left at their defaults follow the release: {', '.join(changed)}"]
    if windows := release_of_windows(deployment):
        return windows
    if stack is None or (older := stack.older_release) is None:
        last = engine.defaults.since[-1].since if engine.defaults.since else engine.kernels.newest_since
        return [f"engine_version = {version} changes nothing for this model: the planner models differences of "
                f"{engine.title} releases before {last}"]
    more = [f"{1e3 * older.num_layers * older.layer_s:.1f} ms longer in {older.num_layers} layers"]
    more += [f"{1e6 * older.num_layers * older.token_s:.1f} µs longer for each token"] if older.token_s else []
    launch = "" if older.launch_share == 1 else (f", and the launch of a step with prompts outside CUDA graphs takes "
                                                 f"{share_text(older.launch_share)} of the time")
    return [f"{engine.title} {version}: steps take {' and '.join(more)} than with {older.newest} or later{launch}"]


def _first_use(deployment: Deployment) -> list[str]:
    """Say which runs the first use of a cold replica was measured on."""
    scenario = deployment.scenario
    if not scenario.cold or scenario.first_use_s is not None or deployment.gpu is None:
        return []
    assert deployment.architecture is not None
    measured = first_use_of(scenario.engine, scenario.engine_version, deployment.gpu.name,
                            weight_format(deployment.architecture, scenario.quantization))
    return [f"a cold replica's first step takes longer by {measured}; --first-use-s sets another value"]


def _calibration(deployment: Deployment) -> list[str]:
    """Say which calibration the step times use, if any."""
    path = deployment.scenario.calibration
    if path is None or deployment.stack is None:
        return []
    source = read_table(Path(path), "source")
    fitted = f", fitted to {fitted_to(source)}" if "measured" in source else ""
    named = {"gpu": deployment.stack.gpu.name, "model": deployment.stack.arch.profile_name}
    others = [name for kind, name in named.items() if kind in source and name not in source[kind]]
    if others:
        fitted += f", none of them on {' or with '.join(others)}: its constants may not fit this deployment"
    doubted = [f"{path}: before the fit, {doubt}" for doubt in source.get("doubts", ())]
    return [f"step times use the calibration {path}{fitted}", *doubted]


def _load(deployment: Deployment, trace: Trace) -> list[str]:
    """Return the notes of the trace's reader and of the load's options."""
    scenario = deployment.scenario
    lines = [*trace.account.notes, *_clock(trace), *session_notes(scenario, trace)]
    lines += [] if deployment.pools else idle_options(scenario)
    if scenario.num_warmups:
        lines.append(f"the {scenario.num_warmups:,} warm-up requests are not replayed: they end before the others "
                     f"start, and leave no state that a replay models")
    return lines


def _clock(trace: Trace) -> list[str]:
    """Say that the log's clock is so coarse that requests of a second or a minute arrive together."""
    arrival_s = trace.requests["arrival_s"].to_numpy()
    tick_s = tick_of(arrival_s)
    return [] if tick_s < COARSE_S else [
        f"arrivals have a clock resolution of {tick_s:g} s: {share_text(share_together(arrival_s))} of "
        f"the requests arrive with the one before, so queues and TTFT are longer than with a finer clock. Take "
        f"a log with finer times if there is one"]


def idle_options(scenario: Scenario) -> list[str]:
    """Return a note for each option without effect because another option is off.

    >>> idle_options(Scenario(speculative_method="mtp", speculative_acceptance="0.8"))
    ['speculative_method = mtp, speculative_acceptance = 0.8: no effect without --num-speculative-tokens']
    """
    asked, lines = given_options(scenario), []
    for switch, names in SWITCHES.items():
        idle = [f"{name} = {asked[name]}" for name in names if name in asked]
        if idle and switch not in asked:
            lines.append(f"{', '.join(idle)}: no effect without --{switch.replace('_', '-')}")
    is_alone = scenario.data_parallel_size == 1 and scenario.fleet is None and scenario.autoscale is None
    if is_alone and scenario.router not in (None, SERVICE_ROUTER):
        lines.append(f"router = {scenario.router}: no effect with one replica")
    return lines


def fitted_to(source: Mapping[str, Any]) -> str:
    """Return how many runs or steps of which file a calibration was fitted to, by its `source`.

    >>> fitted_to({"num_runs": 12, "measured": "table.csv"})
    '12 runs of table.csv'
    >>> fitted_to({"num_runs": 1, "num_blocks": 20, "measured": "bench.json"})
    '1 run in 20 blocks of time of bench.json'
    """
    kind = "step" if source.get("num_steps") else "run"
    blocks = f" in {source['num_blocks']:,} blocks of time" if source.get("num_blocks") else ""
    return f"{count_text(source[f'num_{kind}s'], kind)}{blocks} of {source['measured']}"
