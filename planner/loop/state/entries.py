"""The small records of the loop: KV blocks and their index, queue entries, batches in flight, tiers."""

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
NODE = np.dtype(  # of a radix tree: a run of pages
    [
        ("touched", "i8"),  # by the tree's clock
        ("first_slot", "i8"),  # of its pages in the block table of a request that had them
        ("parent", "i4"),
        ("start", "i4"),  # pages before it, from the root on
        ("length", "i4"),  # pages
        ("locks", "i4"),  # requests that stand on it or below
        ("num_children", "i4"),
        ("next", "i4"),  # touched after it; of a free node, the next free one
        ("previous", "i4"),
    ],
    align=True,
)
STAND = np.dtype(  # a request's place in the tree
    [("node", "i4"), ("num_pages", "i4"), ("num_kept", "i4")],  # pages to there, and tokens computed when it was put in
    align=True,
)
SLOT = np.dtype([("block", "i4"), ("content", "i4")], align=True)  # a request's block table and its blocks' contents
INT_HEAP = np.dtype([("key", "i8"), ("request", "i8")], align=True)
FLOAT_HEAP = np.dtype([("key", "f8"), ("request", "i8")], align=True)
FLIGHT = np.dtype([("finish_s", "f8"), ("start_s", "f8"), ("stage_free_s", "f8")], align=True)

# One row a LoRA adapter; `used` orders adapters without requests by their last use.
ADAPTER = np.dtype([("num_requests", "i8"), ("used", "i8"), ("is_on_gpu", "i1"), ("is_on_host", "i1")], align=True)

# Of a request that one engine prefills and another decodes; one empty row otherwise.
PULL = np.dtype(
    [
        ("sendable_s", "f8"),  # when the sender has put its KV on the link
        ("transfer_s", "f8"),  # its time on the receiver's link
        ("latency_s", "f8"),  # more time, in which links are free
        ("received_s", "f8"),  # when the receiver's link is through with it
        ("loaded_s", "f8"),  # when it is there
        ("tokens", "i8"),  # whose KV comes from elsewhere
        ("is_held", "i8"),  # its blocks stay when it is through, until the receiver has taken its KV
    ],
    align=True,
)

# KV tiers below the GPU; one empty row of each otherwise.
TIER = np.dtype(
    [
        ("capacity", "i8"),  # units of room, blocks if all are alike; 0 without such a tier
        ("used", "i8"),
        ("oldest", "i8"),  # ends of the list of blocks in the order of their last use
        ("newest", "i8"),
        ("free", "i8"),  # list of places without a block
    ],
    align=True,
)
TIER_BLOCK = np.dtype(
    [
        ("ready_s", "f8"),  # when it has been written
        ("content", "i4"),
        ("units", "i4"),  # of the tier's room that it takes
        ("next", "i4"),  # the one used next after it
        ("previous", "i4"),
    ],
    align=True,
)
PLACE = np.dtype([("block", "i4")], align=True)  # of one content in a tier, or NONE
LINK = np.dtype(
    [
        ("s_per_block", "f8"),
        ("latency_s", "f8"),
        ("read_free_s", "f8"),  # when the last transfer each way ends
        ("write_free_s", "f8"),
        ("num_read_blocks", "i8"),
        ("num_written_blocks", "i8"),
        ("num_hit_tokens", "i8"),  # of prompts when they are first admitted
    ],
    align=True,
)
FILLED = np.dtype(  # of a KV block of the GPU
    [
        ("ready_s", "f8"),  # when its KV has come from a tier
        ("next", "i4"),  # in the list of blocks to be written when the step ends
        ("is_listed", "i1"),
    ],
    align=True,
)
FETCH = np.dtype(  # a request's hits and loads of tiers
    [
        ("begun_s", "f8"),  # of the last load
        ("waited_s", "f8"),  # for all loads
        ("cpu_tokens", "i4"),  # hits when it was first admitted
        ("remote_tokens", "i4"),
    ],
    align=True,
)
