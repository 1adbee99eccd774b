"""How many tokens are drafted by the size of the batch: vLLM's table of ranges."""

import json

from planner.errors import UsageError

OPTION = "--num-speculative-tokens-per-batch-size"
FORM = "[[first, last, tokens], ...], as in [[1,64,3],[65,128,1],[129,512,0]]"
MOST_REQUESTS = 1 << 20  # of a batch


def draft_lengths(table: str | None, num_speculative_tokens: int) -> tuple[int, ...]:
    """Return how many tokens are drafted after a step of n requests, shape [most + 1]; empty without a table.

    A gap between two ranges has the value of the range before it, as has a batch beyond the last range, whose first
    batch size is `most`. Source: vllm/v1/spec_decode/dynamic/utils.py (`build_dynamic_sd_schedule_lookup`).

    >>> draft_lengths("[[1,2,3],[4,8,1]]", 3)
    (3, 3, 3, 3, 1)

    Raises
    ------
    UsageError : the table has another form, does not begin at 1, its ranges overlap or are not in order, or it drafts
        more than `num_speculative_tokens`, or a negative number.
    """
    if table is None:
        return ()
    rows = _rows(table)
    before = 0
    for first, last, tokens in rows:
        if first <= before or last < first or last > MOST_REQUESTS:
            raise UsageError(f"{OPTION} {table}: the range [{first}, {last}] after {before} overlaps, runs backwards "
                             f"or ends above {MOST_REQUESTS:,}; give ranges in order, each from its first batch size "
                             f"to its last")
        if before == 0 and first != 1:
            raise UsageError(f"{OPTION} {table}: begins at {first}; must begin at a batch of 1")
        if tokens < 0 or 0 < num_speculative_tokens < tokens:  # without drafts the table has no effect
            raise UsageError(f"{OPTION} {table}: drafts {tokens} tokens; must be from 0 to --num-speculative-tokens, "
                             f"which is {num_speculative_tokens}")
        before = last
    lengths = [rows[0][2]] * (rows[-1][0] + 1)
    for first, _, tokens in rows:
        lengths[first:] = [tokens] * (len(lengths) - first)
    return tuple(lengths)


def _rows(table: str) -> list[tuple[int, int, int]]:
    """Return the ranges of a table as they stand."""
    try:
        rows = json.loads(table)
    except ValueError:
        raise UsageError(f"{OPTION} {table}: is no JSON; give {FORM}") from None
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{OPTION} {table}: has no ranges; give {FORM}")
    for row in rows:
        if not (isinstance(row, list) and len(row) == 3 and all(type(value) is int for value in row)):
            raise UsageError(f"{OPTION} {table}: {json.dumps(row)} is no range of whole numbers; give {FORM}")
    return [tuple(row) for row in rows]
