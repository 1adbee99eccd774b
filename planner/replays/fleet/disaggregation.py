"""Prefill and decode on different replicas: each request twice in one trace, and its two halves as one again."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.catalog.kv_cache import kv_bytes_per_token_per_gpu, state_bytes_per_seq
from planner.deployment.deploy import Deployment
from planner.loop.state import engine_state as st
from planner.loop.state import entries
from planner.model.precision import kv_bytes_per_element
from planner.replays.request_columns import Requests
from planner.traces import PrefixIds, Trace

LATER = ("finished_s", "state")  # of a request's decode: else of its prefill
ADDED = ("num_output_tokens", "preempted_s", "stalled_s", "num_preemptions", "num_recomputed_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """How KV goes from one replica to another.

    Parameters
    ----------
    s_per_token : on a replica's link [s].
    s_per_request : the same of the part of a request's KV that does not grow with its length [s].
    latency_s : more time of a transfer [s].
    layer_share : least part of a transfer that is left when the prompt is through: 1 if it begins then [1].
    local_prefill_below : prompts of fewer tokens are prefilled at their decode replica [tokens].
    """

    s_per_token: float
    s_per_request: float
    latency_s: float
    layer_share: float
    local_prefill_below: int


def transfer_of(deployment: Deployment) -> Transfer:
    """Return how a deployment's replicas pass KV on.

    A token's KV is that of all layers and heads: 4,096 tokens of an 80-layer, 8-KV-head, 128-dim model in 16 bit are
    1.25 GiB, 25 ms over 50 GiB/s. States of linear layers go along. A step time that is a line knows no model, and so
    only the latency.
    """
    scenario, arch = deployment.scenario, deployment.architecture
    token_bytes, state_bytes, layers = 0.0, 0, 1
    if arch is not None:
        element_bytes = kv_bytes_per_element(deployment.resolved.kv_cache_dtype, arch, scenario.engine)
        token_bytes = kv_bytes_per_token_per_gpu(arch, element_bytes, 1, 1)
        state_bytes = state_bytes_per_seq(arch, element_bytes, 1, 1)
        layers = arch.num_attention_layers
    link_bytes_per_s = scenario.kv_transfer_bandwidth * 1e9
    return Transfer(s_per_token=token_bytes / link_bytes_per_s, s_per_request=state_bytes / link_bytes_per_s,
                    latency_s=scenario.kv_transfer_latency,
                    layer_share=1 / layers if scenario.kv_transfer == "layerwise" else 1.0,
                    local_prefill_below=scenario.local_prefill_below)


def halved(trace: Trace, transfer: Transfer) -> tuple[Trace, Any]:
    """Return a trace in which request i is prefilled as i and decoded as num_requests + i, and the KV each brings.

    The prefill samples the first token; the decode begins with the prompt and that token, all but the last of which it
    brings. Requests of one token, and short prompts that are prefilled at their decode replica, have no second half.

    Returns
    -------
    trace, pulls
        Twice the requests, and entries.PULL for each.
    """
    n, table = trace.num_requests, trace.requests
    is_split = ((table["output_tokens"] > 1) & (table["input_tokens"] >= transfer.local_prefill_below)).to_numpy()
    pulls: Any = st.records(2 * n, entries.PULL)
    pulls.is_held[:n] = is_split
    pulls.tokens[n:] = np.where(is_split, table["input_tokens"].to_numpy(), 0)
    split = pl.Series(is_split)
    limits = [name for name in ("max_output_tokens", "predicted_output_tokens") if name in table.columns]
    first = table.with_columns(pl.when(split).then(1).otherwise(pl.col("output_tokens")).cast(
        table.schema["output_tokens"]).alias("output_tokens"))
    second = table.with_columns(
        pl.col("input_tokens") + 1, *((pl.col(name) - 1).clip(1) for name in ("output_tokens", *limits)),
        pl.concat_str(pl.col("request_id").cast(pl.String), pl.lit(" decode")).alias("request_id"),
        *(pl.lit(None, table.schema[name]).alias(name) for name in ("cached_tokens",) if name in table.columns))
    both = pl.concat([first.with_columns(pl.col("request_id").cast(pl.String)), second])
    return dataclasses.replace(trace, requests=both, prefix=_without_prefixes(trace.prefix, n)), pulls


def _without_prefixes(prefix: PrefixIds | None, count: int) -> PrefixIds | None:
    """Return prefix ids with `count` more requests that have none."""
    if prefix is None:
        return None
    return dataclasses.replace(prefix, offsets=np.append(prefix.offsets, np.full(count, prefix.offsets[-1])))


def joined(requests: Requests, phases: Any, pulls: Any,
           replica: NDArray[np.int32]) -> tuple[Requests, Any, dict[str, Any]]:
    """Return the requests and phases of whole requests, and their own columns: see `ReplayResult.handover`.

    A client has its answer from the replica that decodes: at the end of the first step there, or, if the engine
    sends the first token on, at its beginning (`Scheduler.sends_token_on`). Source: proxies of vLLM's NixlConnector
    (`max_tokens` of the prefill is 1, its answer is dropped, and vLLM samples the token anew), Dynamo's handlers for a
    decode worker.

    Parameters
    ----------
    requests, phases, pulls : of halves, shape [2 · num_requests]; of phases one row if steps are not recorded.
    replica : of halves.
    """
    n = len(requests) // 2
    first, second = requests[:n], requests[n:]
    was_decoded = (pulls.tokens[n:] > 0) & (first.state == st.COMPLETED)
    both: dict[str, Any] = {}
    for name in LATER:
        both[name] = np.where(was_decoded, getattr(second, name), getattr(first, name))
    answered_s = np.where(was_decoded, second.first_token_s, first.first_token_s)
    for name in ADDED:
        both[name] = getattr(first, name) + np.where(was_decoded, getattr(second, name), 0)
    handover_s = np.where(was_decoded, pulls.loaded_s[n:] - requests.finished_s[:n], 0.0)
    never = was_decoded & np.isnan(second.first_scheduled_s)
    more = {"decode_replica": np.where(was_decoded, replica[n:], replica[:n]),
            "prefilled_at_s": np.asarray(first.first_token_s), "handover_s": np.where(never, np.nan, handover_s)}
    whole = phases
    if len(phases) > 1:
        whole = phases[:n].copy()
        for name in ("decode_s", "interference_s", "transfer_s"):
            whole[name] = np.where(was_decoded, phases[n:][name], whole[name])
        alone_s = phases[n:].prefill_s - (pulls.loaded_s[n:] - second.first_scheduled_s)  # the step of its first token
        whole.decode_s += np.where(was_decoded, np.nan_to_num(alone_s), 0.0)
    return dataclasses.replace(first, first_token_s=answered_s, **both), whole, more


def num_handed_over(requests: Requests, pulls: Any) -> int:
    """Return how many requests were decoded elsewhere."""
    n = len(requests) // 2
    return int(np.count_nonzero((pulls.tokens[n:] > 0) & ~np.isnan(requests.first_token_s[n:])))
