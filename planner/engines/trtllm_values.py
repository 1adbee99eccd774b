"""Values of TensorRT-LLM's files that are tables: draft lengths by batch size, and places for experts."""

import json
from typing import Any

from planner.errors import UsageError

MOST_REQUESTS = 1 << 20  # of a batch


def draft_schedule(flag: str, value: Any) -> str:
    """Return draft lengths by the largest batch that has each as ranges; no tokens are drafted for larger ones.

    Source: `draft_len_schedule` of DecodingBaseConfig in llmapi/llm_args.py.

    >>> draft_schedule("--speculative-config.draft-len-schedule", {4: 3, 16: 1})
    '[[1,4,3],[5,16,1],[17,1048576,0]]'

    Raises
    ------
    UsageError : it is no table of whole numbers.
    """
    if not isinstance(value, dict) or not value or not all(
            type(number) is int and number >= 0 for pair in value.items() for number in pair):
        raise UsageError(f"--from-command: {flag} {value}: must be a table of batch sizes and draft lengths, as in "
                         "{4: 3, 16: 1}")
    sizes = sorted(value)
    first = [1, *(size + 1 for size in sizes)]
    rows = [[start, size, value[size]] for start, size in zip(first, sizes, strict=False)]
    if value[sizes[-1]]:
        rows.append([first[-1], MOST_REQUESTS, 0])
    return json.dumps(rows, separators=(",", ":"))


def as_draft_schedule(ranges: str) -> str | None:
    """Return ranges of draft lengths as the engine's table; None if a later batch has drafts without an end."""
    rows = json.loads(ranges)
    return None if rows[-1][2] else "{" + ", ".join(f"{last}: {tokens}" for _, last, tokens in rows[:-1]) + "}"


def expert_slots(flag: str, value: Any) -> int:
    """Return the places of experts and their copies, of `moe_config.load_balancer`.

    Raises
    ------
    UsageError : it names a file, or no number of places.
    """
    slots = value.get("num_slots") if isinstance(value, dict) else None
    if type(slots) is not int:
        raise UsageError(f"--from-command: {flag} {value}: must be a table with num_slots; if it names a file, put the "
                         "file's keys in its place")
    return slots
