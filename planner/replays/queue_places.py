"""Places of requests in the queue and in the order of victims, by a policy's sort keys."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import PolicyError
from planner.loop.state import engine_state as st
from planner.loop.state.engine_settings import EngineSettings
from planner.policies.functions import failing_place, said, users_code, where
from planner.policies.policy import KEY_COLUMNS, Columns, Key, Policy
from planner.replays.request_columns import limits_of_requests, optional
from planner.traces import Trace

_LEAST_URGENT = 2.0**62  # of a request without priority


def queue_order(policy: Policy, settings: EngineSettings) -> int:
    """Return how SGLang orders waiting requests; without a radix tree there is no prefix to go by."""
    if policy.promises != "share" or policy.admit_key is not None:
        return st.BY_ARRIVAL
    if settings.enable_priority_scheduling or settings.schedule_policy == "lof":
        return st.BY_RANK
    return st.BY_PREFIX if settings.schedule_policy == "lpm" else st.BY_ARRIVAL


def _ranked(trace: Trace, policy: Policy, settings: EngineSettings) -> Any:
    """Return places by priority, with lof then by largest output limit; equals share one.

    A request without a priority is less urgent than all others (`_set_or_validate_priority` in scheduler.py).
    """
    ranks = st.records(trace.requests.height, st.RANKS)
    if settings.enable_priority_scheduling:
        sign = 1.0 if settings.schedule_low_priority_values_first else -1.0
        ranks.urgency = np.nan_to_num(sign * optional(trace.requests, "priority", math.nan), nan=_LEAST_URGENT)
    limits = limits_of_requests(policy, settings).of(trace.requests)[2]
    second = -limits if settings.schedule_policy == "lof" else np.zeros(len(limits))
    ranks.admit = _dense_ranks(np.asarray(ranks.urgency), second)
    return ranks


def rank_records(trace: Trace, policy: Policy, settings: EngineSettings) -> Any:
    """Return the places that sort keys give each request, or one record if no key is asked for.

    Raises
    ------
    PolicyError : a key fails, or is not a number for each request.
    """
    order = queue_order(policy, settings)
    if order == st.BY_RANK:
        return _ranked(trace, policy, settings)
    if order == st.BY_PREFIX:
        return st.records(trace.requests.height, st.RANKS)
    is_guarded = settings.max_wait_s is not None or settings.max_decode_only_steps is not None
    names_victim = policy.victim_key is not None or settings.victim in ("lowest-priority", "fewest-generated")
    if policy.admit_key is None and not names_victim and not is_guarded:
        return st.records(1, st.RANKS)
    columns = policy_columns(trace, settings)
    ranks = st.records(trace.requests.height, st.RANKS)
    ids = trace.requests["request_id"].to_numpy()
    if policy.admit_key is not None:
        ranks.admit = _ranks(_key(policy, "admit_key", policy.admit_key, columns, ids), columns["arrival_s"], ids)
    victims = columns["priority"]
    if policy.victim_key is not None:
        victims = _key(policy, "victim_key", policy.victim_key, columns, ids)
    least = settings.victim == "fewest-generated"  # it compares the key alone
    ranks.victim = _dense_ranks(victims, np.zeros(len(victims)) if least else columns["arrival_s"])
    return ranks


def policy_columns(trace: Trace, settings: EngineSettings) -> Columns:
    """Return the columns that sort keys may use, shape [num_requests] each; defaults fill a trace's gaps."""
    longest = float(settings.max_model_len)
    largest = optional(trace.requests, "max_output_tokens", longest)
    predicted = optional(trace.requests, "predicted_output_tokens", math.nan)
    return {
        "arrival_s": trace.requests["arrival_s"].to_numpy(),
        "input_tokens": trace.requests["input_tokens"].to_numpy().astype(np.float64),
        "output_tokens": trace.requests["output_tokens"].to_numpy().astype(np.float64),
        "max_output_tokens": largest,
        "predicted_output_tokens": np.where(np.isnan(predicted), largest, predicted),
        "priority": optional(trace.requests, "priority", 0.0),
        "deadline_s": optional(trace.requests, "deadline_s", math.inf),
        "priority_ageing_per_s": np.full(trace.requests.height, settings.priority_ageing),
    }


def _key(policy: Policy, field: str, function: Key, columns: Columns, ids: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sort keys of a policy, shape [num_requests]."""
    owner = f"policy {policy.name!r}"
    try:
        with users_code():
            keys = function(columns)
    except Exception as error:  # a user may have written it
        cause = said(error)
        if isinstance(error, KeyError) and error.args[0] not in columns:
            cause = f"there is no column {error.args[0]!r}"
        raise PolicyError(f"{owner}: {failing_place(function, error)}: {field} failed: {cause}; it may read the "
                          f"columns {', '.join(KEY_COLUMNS)}") from error
    at = f"{owner}: {where(function)}: {field}"
    try:
        key = np.asarray(keys, np.float64)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{at} returned a {type(keys).__name__}; must return an array of numbers, one for each "
                          f"request") from error
    if key.shape != ids.shape:
        raise PolicyError(f"{at} returned an array of shape {key.shape}; must be {ids.shape}, a number for each "
                          f"request")
    if np.isnan(key).any():
        raise PolicyError(f"{at} is NaN for request {ids[np.isnan(key).argmax()]}; must be a number for each request")
    return key


def _ranks(key: NDArray[np.float64], arrival_s: NDArray[np.float64], ids: NDArray[Any]) -> NDArray[np.int64]:
    """Return each request's place by key, then arrival, then its id compared as text, as vLLM breaks ties."""
    ranks = _dense_ranks(key, arrival_s)
    if len(ranks) and ranks.max() < len(ranks) - 1:  # some are equal; texts of ids are slow to sort
        ranks[np.lexsort((ids.astype(str), ranks))] = np.arange(len(ranks))
    return ranks


def _dense_ranks(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return each request's place by a first key, then by a second one; equals share one."""
    order = np.lexsort((second, first))
    before, after = order[:-1], order[1:]
    ranks = np.zeros(len(first), np.int64)
    ranks[after] = np.cumsum((first[before] != first[after]) | (second[before] != second[after]))
    return ranks
