"""The small records of the loop: KV blocks and where they are found, queue entries, batches in flight, transfers."""

import numpy as np

RING = np.dtype([("count", "i8"), ("head", "i8")], align=True)
BLOCK = np.dtype(
    [
        ("next", "i4"),
        ("previous", "i4"),
        ("users", "i4"),
        ("content", "i4"),
        ("twin_next", "i4"),
        ("twin_previous", "i4"),
    ],
    align=True,
)
ENTRY = np.dtype([("first", "i4"), ("last", "i4")], align=True)  # blocks that hold one content, in order of entry
SLOT = np.dtype([("block", "i4"), ("content", "i4")], align=True)  # a request's block table and its blocks' contents
INT_HEAP = np.dtype([("key", "i8"), ("request", "i8")], align=True)
FLOAT_HEAP = np.dtype([("key", "f8"), ("request", "i8")], align=True)
FLIGHT = np.dtype([("finish_s", "f8"), ("start_s", "f8"), ("stage_free_s", "f8")], align=True)

# One row a LoRA adapter; `used` orders those that are not in use by when they last were.
ADAPTER = np.dtype([("num_requests", "i8"), ("used", "i8"), ("is_on_gpu", "i1"), ("is_on_host", "i1")], align=True)

# Where a request is prefilled by one engine and decoded by another; one empty row otherwise.
PULL = np.dtype(
    [
        ("sendable_s", "f8"),  # when the sender has put its KV on the link
        ("transfer_s", "f8"),  # what it takes on the receiver's
        ("latency_s", "f8"),  # besides, without keeping links busy
        ("loaded_s", "f8"),  # when it is there
        ("tokens", "i8"),  # whose KV comes from elsewhere
        ("is_held", "i8"),  # its blocks stay when it is through, until somebody has taken its KV
    ],
    align=True,
)
