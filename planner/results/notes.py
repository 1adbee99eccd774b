"""Notes with a result: where a rule stood in for something that the trace or the options left open."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.deployment.deploy import Deployment, pools_of
from planner.engines import ENGINES
from planner.results.session_notes import session_notes
from planner.settings.scenario import Scenario, given_options
from planner.steptime.engine_constants import read_table
from planner.steptime.roofline import priors
from planner.traces import Trace

SWITCHES = {  # options that do nothing while this one is off
    "num_speculative_tokens": ("speculative_method", "speculative_model", "speculative_acceptance"),
    "max_loras": ("max_cpu_loras", "max_lora_rank", "lora_disk_bandwidth"),
    "kv_remote_size": ("kv_remote_bandwidth", "kv_remote_latency"),
    "prefill_replicas": ("kv_transfer_bandwidth", "kv_transfer_latency", "kv_transfer", "local_prefill_below"),
    "batch_wait_timeout_iters": ("batch_wait_max_tokens_ratio",),
    "batch_wait_max_tokens_ratio": ("batch_wait_timeout_iters",),
}


def notes(deployment: Deployment, trace: Trace, *, num_followers: int = 0, is_full: bool = False,
          num_truncated: int = 0) -> list[str]:
    """Return one sentence for each thing that was filled in or left aside.

    Parameters
    ----------
    num_followers : requests that were sent when those before them had left [1].
    is_full : whether an engine had as many requests at once as the planner's default of `max_num_seqs` lets in.
    num_truncated : requests whose output was cut at the longest context or at their own limit [1].
    """
    found = []
    for pool in pools_of(deployment, 1):
        own = [*pool.notes, *_engines(pool.deployment, trace)]
        found += [f"{pool.name}: {note}" for note in own] if deployment.pools else own
    if num_followers:
        found.append(f"{num_followers:,} requests are sent when those before them have finished; "
                     f"--no-wait-for-parents sends all as recorded")
    if num_truncated:
        found.append(f"{num_truncated:,} outputs were cut at max_model_len, or at their max_output_tokens")
    return [*dict.fromkeys(found), *_load(deployment, trace), *(_seats(deployment) if is_full else ())]


def _seats(deployment: Deployment) -> list[str]:
    """Say that the planner's default limited a replay, where vLLM's own would not have."""
    scenario, gpu, seats = deployment.scenario, deployment.gpu, deployment.settings.max_num_seqs
    serve_defaults = ENGINES[scenario.engine].serve_defaults
    if serve_defaults is None or deployment.pools or gpu is None:
        return []
    own = serve_defaults(gpu.name, gpu.hbm_capacity_bytes, scenario.engine_version)["max_num_seqs"]
    return [f"every seat was taken at some time: max_num_seqs = {seats:,} is the planner's default, and `vllm serve` "
            f"has {own:,} on {gpu.name}; --max-num-seqs sets what your engine has, or --from-command"]


def _engines(deployment: Deployment, trace: Trace) -> list[str]:
    """Say what was filled in or left aside of one engine's settings and its step times."""
    architecture = deployment.architecture
    columns, policy, settings = trace.requests.columns, deployment.policy, deployment.settings
    found = []
    if policy.name == "edf" and "deadline_s" not in columns:
        found.append("edf: the trace has no deadline_s, so every deadline is as far as the others: order of arrival")
    if policy.name == "sjf" and not {"predicted_output_tokens", "max_output_tokens"} & set(columns):
        found.append("sjf: the trace has no predicted_output_tokens, so jobs are compared by their prompts alone")
    if policy.name == "priority" and "priority" not in columns:
        found.append("priority: the trace has no priority, so all are equal: order of arrival")
    if policy.reserve == "model-len":
        slots = settings.num_gpu_blocks // -(-settings.max_model_len // settings.block_size)
        found.append(f"{policy.name} reserves {settings.max_model_len:,} tokens of KV a request, so {slots:,} fit at "
                     f"once; --max-model-len lowers that")
    if policy.promises != "nothing" and "max_output_tokens" not in columns:
        found.append(f"{policy.name} keeps KV for the output that requests may still emit; the trace has no "
                     f"max_output_tokens, so each may fill the context of {settings.max_model_len:,} tokens; "
                     f"--max-model-len lowers that")
    is_whole = policy.cut == "none" or not settings.enable_chunked_prefill
    if is_whole and policy.budget == "step" and 0 < settings.max_num_batched_tokens < settings.max_model_len:
        found.append(f"prompts run whole, so those above max_num_batched_tokens = {settings.max_num_batched_tokens:,} "
                     f"are rejected; engines ask for at least max_model_len there")
    if settings.enable_prefix_caching and trace.prefix is not None and "cached_tokens" in columns:
        found.append("prefix hits follow from hash_ids; the trace's cached_tokens are left aside")
    if not settings.enable_prefix_caching and trace.prefix is not None:
        found.append("prefix caching is off, though the trace has hash_ids")
    memory, is_linear = deployment.memory, architecture is not None and architecture.num_linear_layers > 0
    engine = ENGINES[deployment.scenario.engine]
    if engine.state_memory_ratio is not None and is_linear and memory is not None:
        per_seq = engine.states_per_sequence(deployment.scenario.enable_prefix_caching, settings.async_scheduling)
        prefixes = f"with room for {per_seq} each since its radix cache keeps those of prefixes, "
        found.append(f"{engine.name} keeps the recurrent states of {memory.max_num_seqs:,} sequences beside the KV "
                     f"cache, {prefixes if per_seq > 1 else ''}{memory.state_bytes / 2**30:.1f} GiB, and "
                     f"runs no more; --max-num-seqs changes that, and where memory ends it, --gpu-memory-utilization "
                     f"or more GPUs"
                     + (", or --no-enable-prefix-caching" if per_seq > 1 else ""))
    is_apart = deployment.scenario.data_parallel_size > 1 and not deployment.scenario.data_parallel_attention
    if is_apart and architecture is not None and architecture.num_experts:
        found.append("data_parallel_size counts replicas of their own; vLLM's ranks of a mixture of experts step "
                     "together, as --data-parallel-attention replays them")
    if deployment.stack is not None and (unmeasured := priors(deployment.stack)):
        found.append(f"step times rest on priors, medians over other GPUs, for {', '.join(unmeasured)}: nobody has "
                     f"measured their kernels on {deployment.stack.gpu.name}")
    if deployment.stack is not None and not deployment.stack.gpu.hbm_energy_j_per_byte:
        found.append(f"energy_kwh rests on priors, medians over H100 and B200: nobody has published what "
                     f"{deployment.stack.gpu.name} draws while it serves")
    if deployment.stack is not None and (gpu := deployment.stack.gpu).kernels_of != gpu.name:
        found.append(f"step times rest on the kernels of {gpu.kernels_of}, whose chip {gpu.name} has: they are taken "
                     f"to reach the same shares of its peaks")
    if (draft := deployment.draft) is not None:
        found.append(f"speculative decoding: {draft.num_tokens} tokens drafted a step by {draft.method}, of which "
                     f"{draft.mean_acceptance_length - 1:.2f} are accepted on average"
                     + ("" if deployment.stack else "; a step time that is a line has no draft in it"))
    if "adapter" in columns and not settings.max_loras:
        found.append("the adapters that requests name are left out; --max-loras replays them")
    return found + _context(deployment) + _release(deployment) + _calibration(deployment)


def _context(deployment: Deployment) -> list[str]:
    """Say where vLLM would not start: a request of the longest context must have room in its KV cache.

    Layers with a window or a state need less for it; of models that have some nothing is said.
    """
    arch, settings = deployment.architecture, deployment.settings
    room = settings.num_gpu_blocks * settings.block_size
    is_even = arch is not None and arch.has_even_layers
    engine = ENGINES[deployment.scenario.engine]
    if not engine.needs_whole_context or not is_even or room >= settings.max_model_len:
        return []
    return [f"{engine.title} would not start: its KV cache holds {room:,} tokens, and a context may have "
            f"{settings.max_model_len:,}; --max-model-len lowers that"]


def _release(deployment: Deployment) -> list[str]:
    """Say what an engine's release changes of its steps."""
    stack, version = deployment.stack, deployment.scenario.engine_version
    engine = ENGINES[deployment.scenario.engine]
    if version is None:
        return []
    found = [f"{default.option} is {default.before or 'off'} before {default.since}"
             for default in engine.defaults_before(version)]
    if found:
        return [f"{engine.name} {version}: where nothing is said of it, {', '.join(found)}"]
    if stack is None or not stack.num_older_layers:
        last = engine.defaults_since[-1].since if engine.defaults_since else engine.newest_since
        return [f"engine_version = {version} changes nothing for this model: the planner knows differences of "
                f"{engine.title} before {last} only"]
    layers = stack.num_older_layers
    return [f"{engine.name} {version}: steps take {1e3 * layers * stack.constants.older_layer_s:.1f} ms longer than "
            f"since {engine.newest_since}, in {layers} layers"]


def _calibration(deployment: Deployment) -> list[str]:
    """Say whose constants the step times use, where they are not the engine's own."""
    path = deployment.scenario.calibration
    if path is None or deployment.stack is None:
        return []
    source = read_table(Path(path), "source")
    fitted = f", fitted to {fitted_to(source)}" if "measured" in source else ""
    own = {"gpu": deployment.stack.gpu.name, "model": deployment.stack.arch.name}
    others = [name for kind, name in own.items() if kind in source and name not in source[kind]]
    if others:
        fitted += f", none of them on {' or with '.join(others)}: what it changes may be another's"
    doubted = [f"{path}: before the fit, {doubt}" for doubt in source.get("doubts", ())]
    return [f"step times use the calibration {path}{fitted}", *doubted]


def _load(deployment: Deployment, trace: Trace) -> list[str]:
    """Say what the trace's reader noticed, and what the load's options left aside."""
    scenario = deployment.scenario
    found = [*trace.account.notes, *session_notes(scenario, trace)]
    found += [] if deployment.pools else idle_options(scenario)
    if scenario.num_warmups:
        found.append(f"the {scenario.num_warmups:,} warm-up requests end before the others begin, and leave nothing "
                     f"behind that a replay knows: they are not replayed")
    return found


def idle_options(scenario: Scenario) -> list[str]:
    """Say which options do nothing, since another is off.

    >>> idle_options(Scenario(speculative_method="mtp", speculative_acceptance="0.8"))
    ['speculative_method = mtp, speculative_acceptance = 0.8: nothing without --num-speculative-tokens']
    """
    given, found = given_options(scenario), []
    for switch, names in SWITCHES.items():
        idle = [f"{name} = {given[name]}" for name in names if name in given]
        if idle and switch not in given:
            found.append(f"{', '.join(idle)}: nothing without --{switch.replace('_', '-')}")
    return found


def fitted_to(source: Mapping[str, Any]) -> str:
    """Return how many runs or steps of which file a calibration was fitted to, by its `source`.

    >>> fitted_to({"num_runs": 12, "measured": "bench.json"})
    '12 runs of bench.json'
    """
    kind = "steps" if "num_steps" in source else "runs"
    return f"{source[f'num_{kind}']:,} {kind} of {source['measured']}"
