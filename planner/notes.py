"""What a reader of a result should know: where the trace or the options left something to a rule."""

from planner.deployment import Deployment
from planner.trace import Trace


def notes(deployment: Deployment, trace: Trace) -> list[str]:
    """Return one sentence for each thing that was filled in or left aside."""
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
    is_whole = policy.cut == "none" or not settings.enable_chunked_prefill
    if is_whole and policy.has_token_budget and 0 < settings.max_num_batched_tokens < settings.max_model_len:
        found.append(f"prompts run whole, so those above max_num_batched_tokens = {settings.max_num_batched_tokens:,} "
                     f"are rejected; engines ask for at least max_model_len there")
    if settings.enable_prefix_caching and trace.prefix is not None and "cached_tokens" in columns:
        found.append("prefix hits follow from hash_ids; the trace's cached_tokens are left aside")
    if not settings.enable_prefix_caching and trace.prefix is not None:
        found.append("prefix caching is off, though the trace has hash_ids")
    if deployment.scenario.step_time == "roofline":
        found.append("step times rest on priors for kernel efficiency, not on a calibration")
    return found
