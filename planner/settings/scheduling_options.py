"""Options of the scheduler: its limits and rules."""

from dataclasses import dataclass
from typing import Any, Literal

from planner.engines import defaults_text
from planner.settings.panel import ATOM, SGLANG, TEI, TRTLLM, VLLM, in_panel

option = in_panel("Scheduling")


def engines_option(name: str, meaning: str, **more: Any) -> Any:
    """Declare an option whose default is the engine's."""
    return option(None, f"{meaning} {defaults_text(name)}", **more)


@dataclass(frozen=True, kw_only=True)
class SchedulingOptions:
    """Limits and rules of the scheduler."""

    policy: str | None = engines_option("policy", "Scheduling policy: a name, or my_policy.py:name.",
        label="scheduling policy")
    max_num_seqs: int | None = engines_option(
        "max_num_seqs", "Maximum number of running sequences (SGLang: --max-running-requests; TensorRT-LLM: "
        "max_batch_size). 0: no limit.", label="running sequences, at most", unit="sequences", least=0, no_limit=True)
    max_num_active_seqs: int = option(
        0, "Maximum number of running sequences (vLLM), if lower than --max-num-seqs. --max-num-seqs then only sizes "
           "the engine's buffers. 0: --max-num-seqs.",
        label="running sequences, lower limit of the scheduler", unit="sequences", engines=VLLM, least=0)
    max_num_batched_tokens: int | None = engines_option(
        "max_num_batched_tokens", "Maximum number of tokens in a step (SGLang: --chunked-prefill-size, by default from "
        "GPU memory; TensorRT-LLM: max_num_tokens). 0: no limit.", label="chunk size", unit="tokens",
        least=0, no_limit=True)
    performance_mode: Literal["balanced", "throughput"] = option(
        "balanced", "vLLM: `throughput` doubles the default --max-num-seqs and --max-num-batched-tokens.",
        label="performance mode", engines=VLLM)
    usage_context: Literal["openai_api_server", "llm_class", "engine_context"] = option(
        "openai_api_server", "vLLM: how the engine is started, which sets the default --max-num-seqs and "
        "--max-num-batched-tokens. `openai_api_server`: by vllm serve. `llm_class`: by LLM(...) in Python. "
        "`engine_context`: by AsyncEngineArgs or EngineArgs in Python.", label="start of the engine", engines=VLLM)
    max_prefill_tokens: int | None = engines_option(
        "max_prefill_tokens", "Maximum number of prompt tokens in a step. A prompt that cannot be cut may exceed this "
                              "limit. 0: no limit.", label="prompt tokens per step, at most", unit="tokens",
        least=0, no_limit=True)
    max_num_scheduled_tokens: int = option(
        0, "Maximum number of tokens in a step (vLLM), if lower than --max-num-batched-tokens. "
           "--max-num-batched-tokens then only sizes the engine's buffers. 0: --max-num-batched-tokens.",
        label="tokens per step, lower limit of the scheduler", unit="tokens", engines=VLLM, least=0)
    long_prefill_token_threshold: int = option(
        0, "Maximum number of prompt tokens of one request in a step, if the engine also has other requests (vLLM), "
           "or in any case (ATOM). 0: no limit.", label="tokens per step of a long prompt, at most", unit="tokens",
        engines=(*VLLM, *ATOM), least=0)
    long_prefill_token_threshold_adaptive: bool = option(
        False, "Raise --long-prefill-token-threshold to --max-num-batched-tokens divided by the number of running and "
               "waiting requests, if this is larger (vLLM).", label="adaptive limit for long prompts", engines=VLLM)
    prefill_schedule_interval: int = option(
        1, "While decodes run, at least N - 1 steps without prompts follow each step with prompts (vLLM). Prompts do "
           "not wait if requests remained in the queue after the last step with prompts.",
        label="interval of steps with prompts", unit="steps", engines=VLLM, least=0)
    enable_chunked_prefill: bool | None = engines_option("enable_chunked_prefill", "Cut long prompts into chunks.",
        label="chunked prefill")
    enable_prefix_caching: bool | None = option(
        None, "Prefix caching: reuse the KV of shared prefixes (SGLang: radix cache; TensorRT-LLM: "
        "enable_block_reuse). [on if the trace has prefixes or cached tokens]", label="prefix caching")
    context_chunking_policy: Literal["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"] = option(
        "FIRST_COME_FIRST_SERVED", "TensorRT-LLM: division of a step's tokens among prompts. FIRST_COME_FIRST_SERVED: "
                                   "each prompt in turn gets as many tokens as it can use. EQUAL_PROGRESS: each "
                                   "prompt in turn gets one KV block.",
        label="division of tokens among prompts", engines=TRTLLM)
    watermark: float = option(0.0, "Share of KV blocks that must stay free when a request is admitted.",
        label="KV blocks kept free at admission", unit="share", least=0, below=1)
    preemption: Literal["recompute", "swap"] = option(
        "recompute", "KV of a preempted request: compute it again (recompute), or keep it in host memory "
        "(swap).", label="preemption")
    victim: Literal["newest", "lowest-priority", "fewest-generated"] | None = option(
        None, "Running request that is preempted when KV blocks run out. [the policy's rule]",
        label="preempted request")
    admission: Literal["head-of-line", "first-fit"] = option(
        "head-of-line", "If a waiting request does not fit: it blocks all requests behind it (head-of-line), or the "
                        "scheduler skips it (first-fit).", label="admission if a request does not fit")
    max_decode_only_steps: int | None = option(
        None, "Maximum number of decode-only steps in a row. After them the first waiting request is admitted, and "
              "decodes are preempted if it needs their seats or KV blocks. [no limit]",
        label="decode-only steps in a row, at most", unit="steps", least=1)
    max_wait_s: float | None = option(
        None, "Maximum waiting time of the first waiting request [s]. After this time it is admitted, and decodes are "
              "preempted if it needs their seats or KV blocks. [no limit]",
        label="wait of the first request, at most", unit="s", least=0)
    scheduler_reserve_full_isl: bool = option(
        True, "Admit a request only if its whole prompt fits in the KV cache, not only its first chunk.",
        label="reserve the whole prompt at admission")
    async_scheduling: bool | None = engines_option(
        "async_scheduling", "Schedule a step while the step before it runs (SGLang, TensorRT-LLM: overlap scheduler).",
        label="asynchronous scheduling")
    schedule_conservativeness: float = option(
        1.0, "SGLang: factor on the share of the running requests' remaining output for which admission keeps KV "
             "blocks free. A higher factor means fewer running requests and fewer preemptions.",
        label="schedule conservativeness", engines=SGLANG, least=0)
    schedule_policy: Literal["fcfs", "lpm", "lof"] = option(
        "fcfs", "SGLang: order of waiting requests. By arrival (fcfs), longest cached prefix first (lpm), or largest "
        "output limit first (lof).", label="order of waiting requests", engines=SGLANG)
    enable_mixed_chunk: bool = option(
        False, "SGLang: a step with prompts also runs all decodes, if KV blocks for the decodes are free.",
        label="decodes beside prompts in a step", engines=SGLANG)
    enable_priority_scheduling: bool = option(
        False, "SGLang: waiting requests are ordered by priority, the largest first. If all seats are taken, a "
               "waiting request preempts running requests of lower priority.",
        label="priority scheduling", engines=SGLANG)
    schedule_low_priority_values_first: bool = option(
        False, "SGLang: the smallest priority is the most urgent. Needs --enable-priority-scheduling.",
        label="small priorities first", engines=SGLANG)
    priority_scheduling_preemption_threshold: int = option(
        10, "SGLang: a running request is preempted for a waiting request only if their priorities differ by more "
            "than this value. Needs --enable-priority-scheduling.",
        label="priority difference for preemption", engines=SGLANG, least=0)
    prefill_decode_interval: int = option(
        0, "SGLang: number of decode steps between two steps with prompts. 0: prompts never wait for decodes.",
        label="decode steps between prompts", unit="steps", engines=SGLANG, least=0)
    scheduler_delay_factor: float = option(
        0.0, "ATOM: while requests run, new prompts wait for this multiple of the latency of the last step with "
             "prompts. 0: prompts never wait.", label="delay of prompts, in steps with prompts", engines=ATOM, least=0)
    scheduler_recv_interval: int = option(
        1, "SGLang: while requests run, the engine looks for new requests every N decode steps.",
        label="decode steps between looks for requests", unit="steps", engines=SGLANG, least=1)
    batch_wait_timeout_iters: int = option(
        0, "TensorRT-LLM: maximum number of steps in a row in which prompts wait while decodes run. 0: "
        "prompts never wait. Needs --batch-wait-max-tokens-ratio.",
        label="wait of prompts for a batch, at most", unit="steps", engines=TRTLLM, least=0)
    batch_wait_max_tokens_ratio: float = option(
        0.0, "TensorRT-LLM: prompts wait until the tokens of the step reach this share of --max-num-batched-tokens. "
             "0: prompts never wait. Needs --batch-wait-timeout-iters.",
        label="tokens that end the wait for a batch", unit="share", engines=TRTLLM, least=0)
    stream_interval: int = option(
        1, "Number of tokens per streamed chunk. The first token is sent at once. ITL is the gap between chunks.",
        label="tokens per streamed chunk", unit="tokens", least=1)
    max_queued_requests: int = option(
        0, "Maximum number of waiting requests in an engine (SGLang). Further requests are rejected. 0: no limit.",
        label="waiting requests, at most", unit="requests", engines=SGLANG, least=0, no_limit=True)
    max_num_queued_reqs: int | None = engines_option(
        "max_num_queued_reqs", "Maximum number of waiting and running requests in an engine (vLLM; TEI: "
        "--max-concurrent-requests). Further requests are rejected. 0: no limit.",
        label="waiting and running requests, at most", unit="requests", engines=(*VLLM, *TEI), least=0, no_limit=True)
    max_num_queued_tokens: int = option(
        0, "Maximum number of prompt tokens over all requests of an engine that have no first token yet (vLLM). "
           "Further requests are rejected. 0: no limit.",
        label="waiting prompt tokens, at most", unit="tokens", engines=VLLM, least=0, no_limit=True)
    priority_ageing: float = option(0.0, "Increase in a request's urgency per second since its arrival, in units of "
                                         "priority [1/s].", label="priority ageing", unit="1/s", least=0)
