"""Options of the scheduler: its limits and rules."""

from dataclasses import dataclass
from typing import Any, Literal

from planner.engines import defaults_text
from planner.settings.panel import in_panel

option = in_panel("Scheduling")


def engines_option(name: str, meaning: str) -> Any:
    """Declare an option whose default is the engine's."""
    return option(None, f"{meaning} {defaults_text(name)}")


@dataclass(frozen=True, kw_only=True)
class SchedulingOptions:
    """Limits and rules of the scheduler."""

    policy: str | None = engines_option("policy", "Scheduling policy: a name, or my_policy.py:name.")
    max_num_seqs: int | None = engines_option(
        "max_num_seqs", "Maximum number of running sequences (SGLang: --max-running-requests; TensorRT-LLM: "
        "max_batch_size). 0: no limit.")
    max_num_batched_tokens: int | None = engines_option(
        "max_num_batched_tokens", "Maximum number of tokens in a step (SGLang: --chunked-prefill-size, by default from "
        "GPU memory; TensorRT-LLM: max_num_tokens). 0: no limit.")
    max_prefill_tokens: int | None = engines_option(
        "max_prefill_tokens", "Maximum number of prompt tokens in a step. A prompt that must run whole may exceed it. "
        "0: no limit.")
    long_prefill_token_threshold: int = option(
        0, "Maximum number of prompt tokens of one request in a step (vLLM). 0: no limit.")
    enable_chunked_prefill: bool | None = engines_option("enable_chunked_prefill", "Cut long prompts into chunks.")
    enable_prefix_caching: bool | None = option(
        None, "Prefix caching: reuse the KV of shared prefixes (SGLang: radix cache; TensorRT-LLM: "
        "enable_block_reuse). [on if the trace has prefixes or cached tokens]")
    watermark: float = option(0.0, "Share of KV blocks that must stay free when a request is admitted.")
    preemption: Literal["recompute", "swap"] = option(
        "recompute", "KV of a preempted request: compute it again (recompute), or keep it in host memory "
        "(swap).")
    victim: Literal["newest", "lowest-priority", "fewest-generated"] | None = option(
        None, "Running request that is preempted when KV blocks run out. [the policy's rule]")
    admission: Literal["head-of-line", "first-fit"] = option(
        "head-of-line", "Waiting request that does not fit: it blocks all requests behind it "
        "(head-of-line), or is passed over (first-fit).")
    max_decode_only_steps: int | None = option(
        None, "Decode-only steps in a row, after which the first waiting request is admitted. Decodes "
        "are preempted if it needs their place. [no limit]")
    max_wait_s: float | None = option(
        None, "Waiting time after which the first waiting request is admitted [s]. Decodes are preempted "
        "if it needs their place. [no limit]")
    scheduler_reserve_full_isl: bool = option(
        True, "Admit a request only if its whole prompt fits in the KV cache, not only its first chunk.")
    async_scheduling: bool | None = engines_option(
        "async_scheduling", "Schedule a step while the step before it runs (SGLang, TensorRT-LLM: overlap scheduler).")
    schedule_conservativeness: float = option(
        1.0, "SGLang: factor on the share of future output that admission keeps KV blocks free for.")
    scheduler_recv_interval: int = option(
        1, "SGLang: number of decode steps after which a busy engine looks for new requests.")
    batch_wait_timeout_iters: int = option(
        0, "TensorRT-LLM: maximum number of steps in a row in which prompts wait while decodes run. 0: "
        "prompts never wait. Needs --batch-wait-max-tokens-ratio.")
    batch_wait_max_tokens_ratio: float = option(
        0.0, "TensorRT-LLM: prompts wait until the step reaches this share of --max-num-batched-tokens. "
        "0: prompts never wait. Needs --batch-wait-timeout-iters.")
    stream_interval: int = option(
        1, "Tokens per streamed group. The first token is sent at once. ITL counts gaps between groups.")
    max_queued_requests: int = option(
        0, "Maximum number of waiting requests in an engine. Further requests are rejected. 0: no limit.")
    priority_ageing: float = option(0.0, "Priority points that a request gains per second of waiting.")
