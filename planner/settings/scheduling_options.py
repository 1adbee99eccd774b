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
    max_num_active_seqs: int = option(
        0, "Maximum number of running sequences, if lower than --max-num-seqs, which then only sizes the engine's "
        "buffers (vLLM). 0: --max-num-seqs.")
    max_num_batched_tokens: int | None = engines_option(
        "max_num_batched_tokens", "Maximum number of tokens in a step (SGLang: --chunked-prefill-size, by default from "
        "GPU memory; TensorRT-LLM: max_num_tokens). 0: no limit.")
    max_prefill_tokens: int | None = engines_option(
        "max_prefill_tokens", "Maximum number of prompt tokens in a step. A prompt that must run whole may exceed it. "
        "0: no limit.")
    max_num_scheduled_tokens: int = option(
        0, "Maximum number of tokens in a step, if lower than --max-num-batched-tokens, which then only sizes the "
        "engine's buffers (vLLM). 0: --max-num-batched-tokens.")
    long_prefill_token_threshold: int = option(
        0, "Maximum number of prompt tokens of one request in a step, if others are there (vLLM). 0: no limit.")
    long_prefill_token_threshold_adaptive: bool = option(
        False, "Raise --long-prefill-token-threshold to an equal share of --max-num-batched-tokens for each running or "
        "waiting request (vLLM).")
    prefill_schedule_interval: int = option(
        1, "Minimum number of steps from one step with prompts to the next while decodes run (vLLM). Prompts do not "
        "wait if the last step with prompts left requests in the queue.")
    enable_chunked_prefill: bool | None = engines_option("enable_chunked_prefill", "Cut long prompts into chunks.")
    enable_prefix_caching: bool | None = option(
        None, "Prefix caching: reuse the KV of shared prefixes (SGLang: radix cache; TensorRT-LLM: "
        "enable_block_reuse). [on if the trace has prefixes or cached tokens]")
    context_chunking_policy: Literal["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"] = option(
        "FIRST_COME_FIRST_SERVED", "TensorRT-LLM: prompts that share a step's tokens: the first ones as many as they "
        "can use, or one KV block each in turn.")
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
    schedule_policy: Literal["fcfs", "lpm", "lof"] = option(
        "fcfs", "SGLang: order of waiting requests. By arrival (fcfs), longest cached prefix first (lpm), or largest "
        "output limit first (lof).")
    enable_mixed_chunk: bool = option(
        False, "SGLang: a step of prompts takes all decodes along, if their KV blocks are free.")
    enable_priority_scheduling: bool = option(
        False, "SGLang: waiting requests are ordered by priority, the largest first. If all seats are taken, a request "
        "displaces running ones of lower priority.")
    schedule_low_priority_values_first: bool = option(
        False, "SGLang: the smallest priority is the most urgent. Needs --enable-priority-scheduling.")
    priority_scheduling_preemption_threshold: int = option(
        10, "SGLang: a running request is displaced only if the priorities differ by more than this. Needs "
        "--enable-priority-scheduling.")
    prefill_decode_interval: int = option(
        0, "SGLang: number of decode steps between two steps with prompts. 0: prompts never wait for decodes.")
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
        0, "Maximum number of waiting requests in an engine (SGLang). Further requests are rejected. 0: no limit.")
    max_num_queued_reqs: int = option(
        0, "Maximum number of waiting and running requests in an engine (vLLM). Further requests are rejected. 0: no "
        "limit.")
    max_num_queued_tokens: int = option(
        0, "Maximum number of prompt tokens of requests in an engine without a first token (vLLM). Further requests "
        "are rejected. 0: no limit.")
    priority_ageing: float = option(0.0, "Priority points that a request gains per second of waiting.")
