"""The memory of clients and of the router's gateway: retries, requests that wait at the gateway, tenants' quotas."""

import numpy as np

# Place of a request: nowhere yet, waiting for its next attempt, held back by a quota, in the router's queue, at a
# replica, or through.
UNSENT, BACKED_OFF, DELAYED, QUEUED, SENT, GONE = range(6)

GATEWAY = np.dtype(
    [
        ("is_on", "i1"),  # clients or the gateway have rules; else nothing of this is looked at
        ("rejects_unserved", "i1"),  # a request that no replica is open for is turned away, else it waits
        ("has_tiers", "i1"),  # some replicas have KV tiers
        ("is_fair", "i1"),  # the queue is one of each tenant; else one of all
        ("request_timeout_s", "f8"),  # of an attempt
        ("ttft_timeout_s", "f8"),
        ("max_retries", "i8"),
        ("initial_backoff_s", "f8"),
        ("backoff_multiplier", "f8"),
        ("max_backoff_s", "f8"),
        ("jitter", "f8"),  # share by which a back-off is drawn longer or shorter
        ("random", "i8"),  # state of the generator
        ("num_wakes", "i8"),
        ("most_wakes", "i8"),
        ("num_attempt_rows", "i8"),
        ("most_attempt_rows", "i8"),
        ("max_dispatched", "i8"),  # requests at replicas
        ("num_dispatched", "i8"),
        ("max_queued", "i8"),  # requests in the router's queue
        ("queue_timeout_s", "f8"),
        ("num_queued", "i8"),
        ("peak_queued", "i8"),
        ("num_tenants", "i8"),
        ("last_queue", "i8"),  # whose turn it was last
        ("failing", "i8"),  # the replica that fails now, or NONE
    ],
    align=True,
)

CLIENT = np.dtype(
    [
        ("first_sent_s", "f8"),
        ("sent_s", "f8"),  # this attempt
        ("gives_up_s", "f8"),  # when its user hangs up for good
        ("wake_s", "f8"),  # when something happens to it that is at no replica
        ("num_attempts", "i4"),
        ("stage", "i4"),
        ("tenant", "i4"),
        ("next", "i4"),  # in its queue
        ("previous", "i4"),
    ],
    align=True,
)

# Of a bucket the level is as of `filled_s`; it may be below 0, and is full at `most`.
TENANT = np.dtype(
    [
        ("weight", "f8"),
        ("served", "f8"),  # weighted tokens
        ("requests_per_s", "f8"),
        ("most_requests", "f8"),
        ("requests", "f8"),
        ("tokens_per_s", "f8"),
        ("most_tokens", "f8"),
        ("tokens", "f8"),
        ("filled_s", "f8"),
        ("is_delayed", "i8"),  # requests over the quota wait; else they are turned away
        ("head", "i8"),
        ("tail", "i8"),
    ],
    align=True,
)

ATTEMPT_ROW = np.dtype(
    [
        ("sent_s", "f8"),
        ("first_scheduled_s", "f8"),
        ("first_token_s", "f8"),
        ("ended_s", "f8"),
        ("request", "i8"),
        ("number", "i4"),  # of the request's attempts, from 1
        ("replica", "i4"),  # or NONE
        ("outcome", "i4"),
        ("num_output_tokens", "i4"),
        ("decode_replica", "i8"),  # if another than `replica`; else the same
        ("num_computed_tokens", "i8"),  # by steps: of the prompt, and of output before the last token
    ],
    align=True,
)
