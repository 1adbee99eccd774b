"""Dialogues among recorded prompts: which prompt goes on where an earlier one left off, told by lengths and order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SHORTEST = 8  # tokens of a question; below, lengths say no more
UNLIKELY = 256  # tokens of a question that a user's first prompt is as unlikely as, or an answer longer than recorded


def continued(prompt_tokens: Any, output_tokens: Any) -> NDArray[np.int64]:
    """Return the prompt that each one continues, -1 where it is a dialogue's first, shape [num_prompts].

    A turn repeats the turn before and its answer, and asks a short question. All users send their first prompt, then
    take turns in this order, and leave when they are through; so later turns continue prompts in the order of these.
    Of all such assignments the one with the shortest questions is returned, by the sum of their logs.

    Parameters
    ----------
    prompt_tokens, output_tokens : of all prompts in the order in which they were sent, shape [num_prompts].

    Raises
    ------
    ValueError : the two are not of the same length, or not one-dimensional.

    >>> continued([100, 300, 160, 355, 240], [50, 40, 70, 10, 9]).tolist()
    [-1, -1, 0, 1, 2]
    """
    prompts, outputs = (np.asarray(tokens, np.int64) for tokens in (prompt_tokens, output_tokens))
    if prompts.ndim != 1 or prompts.shape != outputs.shape:
        raise ValueError(f"shapes {prompts.shape} and {outputs.shape}; must be one-dimensional and the same")
    num = len(prompts)
    best = np.concatenate([[0.0], np.full(num, np.inf)])  # best[q]: the least cost if prompt q - 1 was continued last
    steps = []  # steps[j][q]: which one was before that, if prompt j continues prompt q - 1
    for j, prompt in enumerate(prompts):
        repeated = prompts[:j] + outputs[:j]
        question = np.where(repeated < prompt, np.maximum(prompt - repeated, SHORTEST), UNLIKELY)
        least = np.minimum.accumulate(best)
        steps.append(np.maximum.accumulate(np.where(best == least, np.arange(num + 1), 0)))
        after = np.full(num + 1, np.inf)
        after[0] = best[0] + np.log(UNLIKELY)  # so far all are first prompts
        after[1 : j + 1] = least[:j] + np.where(prompts[:j] < prompt, np.log(question), np.inf)
        best = after
    found, last = np.full(num, -1), int(np.argmin(best))
    for j in range(num - 1, -1, -1):
        found[j] = last - 1
        last = int(steps[j][last - 1]) if last else 0
    return found


def block_ids(prompt_tokens: Any, before: Any, block_tokens: int) -> list[NDArray[np.int64]]:
    """Return an integer for each KV block of each prompt; blocks that lie in the continued prompt are that one's.

    Parameters
    ----------
    before : `continued`.
    block_tokens : tokens of a block.

    >>> [ids.tolist() for ids in block_ids([40, 70], [-1, 0], 16)]
    [[0, 1, 2], [0, 1, 5, 6, 7]]
    """
    counts = [-(-int(tokens) // block_tokens) for tokens in prompt_tokens]
    starts = np.concatenate([[0], np.cumsum(counts)])
    found: list[NDArray[np.int64]] = []
    for own, (start, count) in enumerate(zip(starts, counts, strict=False)):
        ids = np.arange(start, start + count)
        if before[own] >= 0:
            shared = int(prompt_tokens[before[own]]) // block_tokens
            ids[:shared] = found[before[own]][:shared]
        found.append(ids)
    return found
