"""Random small cases that reach every rule: little memory, ties, shared prompts, cancellations, every setting."""

from dataclasses import dataclass
from typing import Any

from helpers import play, trace_of
from hypothesis import strategies as some

from planner.loop.state.engine_settings import Recording
from planner.replays.result_tables import ReplayResult
from planner.traces import Trace

MAX_MODEL_LEN = 60


@dataclass(frozen=True, kw_only=True)
class Case:
    """A trace's columns and a scenario's options."""

    rows: list[tuple[float, int, int]]
    columns: dict[str, Any]
    options: dict[str, Any]

    def trace(self) -> Trace:
        return trace_of(self.rows, **self.columns)

    def play(self, policy: str, recording: Recording) -> ReplayResult:
        return play(self.trace(), recording=recording, policy=policy, **self.options)


@some.composite
def cases(draw: Any, *, with_more: bool = False) -> Case:
    """Draw a case. Prompts may be too long for the model, and for the memory.

    `with_more` draws tiers on the host, limits of the queue and the division of the budget among prompts too.
    """
    n = draw(some.integers(1, 10))
    tick_s = draw(some.sampled_from((0.01, 0.1)))
    arrivals = sorted(draw(some.lists(some.integers(0, 12), min_size=n, max_size=n)))
    rows = [
        (tick * tick_s, draw(some.integers(1, 40)), draw(some.integers(1, 20))) for tick in arrivals
    ]
    found, chosen = draw(columns(n)), draw(options())
    if with_more:
        chosen["context_chunking_policy"] = draw(some.sampled_from(("FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS")))
        chosen["max_num_queued_reqs"] = draw(some.sampled_from((0, 0, 0, 1, 3)))
        chosen["max_num_queued_tokens"] = draw(some.sampled_from((0, 0, 0, 20, 60)))
    if with_more and draw(some.booleans()):
        found = {name: each for name, each in found.items() if name != "cached_tokens"} | draw(shared_prompts(n))
        chosen |= draw(tiers(chosen["block_size"]))
    return Case(rows=rows, columns=found, options=chosen)


@some.composite
def columns(draw: Any, n: int) -> dict[str, Any]:
    """Draw the optional columns, each there or not."""
    def column(values: Any) -> Any:
        return some.none() | some.lists(values, min_size=n, max_size=n)

    found = {
        "priority": draw(column(some.sampled_from((0.0, 1.0, 2.0)))),
        "deadline_s": draw(column(some.sampled_from((0.1, 0.5, 2.0)))),
        "predicted_output_tokens": draw(column(some.integers(1, 20))),
        "max_output_tokens": draw(column(some.integers(1, 25))),
        "cancel_after_s": draw(column(some.sampled_from((0.0, 0.05, 0.3, 9.0)))),
    }
    sharing = draw(some.sampled_from(("none", "hash_ids", "cached_tokens")))
    if sharing == "hash_ids":
        found |= draw(shared_prompts(n))
    elif sharing == "cached_tokens":
        found["cached_tokens"] = draw(column(some.integers(0, 40)))
    return {name: values for name, values in found.items() if values is not None}


@some.composite
def shared_prompts(draw: Any, n: int) -> dict[str, Any]:
    """Draw the columns of prompts that share their beginnings."""
    return {"hash_block_tokens": draw(some.sampled_from((4, 8, 16))),
            "hash_ids": [draw(some.sampled_from((PATH_A, PATH_B, PATH_C))) for _ in range(n)]}


# Three prompts' ids: two share their first block, two more.
PATH_A = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
PATH_B = (0, 1, 2, 13, 14, 15, 16, 17, 18, 19)
PATH_C = (0, 21, 22, 23, 24, 25, 26, 27, 28, 29)


@some.composite
def tiers(draw: Any, block_size: int) -> dict[str, Any]:
    """Draw a tier on the host, from which KV comes back within some steps."""
    block_gib = 131072 * block_size / 2**30  # of this model
    return {
        "model": "llama-3.1-8b", "gpu": "h100-sxm", "num_cpu_blocks": None,  # swapped KV is in the tier
        "enable_prefix_caching": True,
        "kv_offloading_size": block_gib * draw(some.sampled_from((4, 100))),
        "kv_offloading_bandwidth": block_gib * 2**30 / 1e9 / draw(some.sampled_from((0.001, 0.03, 0.2))),
        "kv_write_policy": draw(some.sampled_from(("write_through", "write_through_selective", "write_back"))),
    }


@some.composite
def options(draw: Any) -> dict[str, Any]:
    """Draw a scenario's options."""
    block_size = draw(some.sampled_from((1, 2, 4, 8, 16, 32)))
    depth = draw(some.sampled_from((1, 1, 1, 2, 3)))
    return {
        "step_time": draw(some.sampled_from(("linear:0.01,0.001", "linear:0.02,0", "linear:0.01,0.0005,0.0001"))),
        "block_size": block_size,
        "num_gpu_blocks": draw(some.integers(1, max(2, 200 // block_size))),
        "max_model_len": MAX_MODEL_LEN,
        "max_num_seqs": draw(some.sampled_from((0, 1, 2, 3, 5))),
        "max_num_active_seqs": draw(some.sampled_from((0, 0, 2))),
        "max_num_batched_tokens": draw(some.sampled_from((0, 1, 5, 16, 64))),
        "max_num_scheduled_tokens": draw(some.sampled_from((0, 0, 4))),
        "max_prefill_tokens": draw(some.sampled_from((0, 0, 7, 30))),
        "schedule_conservativeness": draw(some.sampled_from((1.0, 0.0, 0.3, 2.0))),
        "schedule_policy": draw(some.sampled_from(("fcfs", "fcfs", "lof"))),
        "enable_mixed_chunk": draw(some.booleans()),
        "enable_priority_scheduling": draw(some.booleans()),
        "schedule_low_priority_values_first": draw(some.booleans()),
        "priority_scheduling_preemption_threshold": draw(some.sampled_from((10, 0, 1))),
        "prefill_decode_interval": draw(some.sampled_from((0, 0, 1, 3))),
        "scheduler_delay_factor": draw(some.sampled_from((0.0, 0.0, 0.5, 2.0))),
        "batch_wait_timeout_iters": draw(some.sampled_from((0, 0, 1, 5))),
        "batch_wait_max_tokens_ratio": draw(some.sampled_from((0.0, 0.5, 1.0))),
        "scheduler_recv_interval": draw(some.sampled_from((1, 1, 1, 3))),
        "stream_interval": draw(some.sampled_from((1, 1, 2, 5))),
        "long_prefill_token_threshold": draw(some.sampled_from((0, 0, 3, 10))),
        "long_prefill_token_threshold_adaptive": draw(some.booleans()),
        "prefill_schedule_interval": draw(some.sampled_from((1, 1, 3))),
        "enable_chunked_prefill": draw(some.booleans()),
        "enable_prefix_caching": draw(some.booleans()),
        "watermark": draw(some.sampled_from((0.0, 0.0, 0.01, 0.1))),
        "preemption": draw(some.sampled_from(("recompute", "swap"))),
        "num_cpu_blocks": draw(some.sampled_from((1, 4, 1000))),
        "victim": draw(some.sampled_from((None, "newest", "lowest-priority", "fewest-generated"))),
        "admission": draw(some.sampled_from(("head-of-line", "first-fit"))),
        "max_decode_only_steps": draw(some.sampled_from((None, None, 1, 4))),
        "max_wait_s": draw(some.sampled_from((None, None, 0.0, 0.1))),
        "scheduler_reserve_full_isl": draw(some.booleans()),
        "async_scheduling": draw(some.booleans()),
        "pipeline_parallel_size": depth,
        "priority_ageing": draw(some.sampled_from((0.0, 5.0))),
        "max_concurrency": draw(some.sampled_from((None, None, 1, 3))),
    }
