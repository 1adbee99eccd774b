"""Lines of an engine's log about decodes: a reader's windows, and the steps between two lines."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

FEWER = 0.05  # share of the requests that may have left between two lines
WITH_PROMPTS, CHANGED, NOTHING = "with prompts", "whose requests changed", "without requests"
NO_CONTEXT, TOGETHER = "whose lines say no context", "of several engines together"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeWindow:
    """Decodes alone, of one rank."""

    line: int  # number of the line of the log [1]
    num_decodes: float  # running sequences [1]
    context_tokens: float | None  # their context together; None if not logged [tokens]
    kv_share: float | None = None  # share of the KV cache that they hold, if the context is not logged [1]
    # Tokens that a sequence emits in a step, accepted drafts included; None without drafts [1].
    tokens_per_decode: float | None = None
    step_s: float  # mean duration of a step [s]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One line of statistics about the time since a rank's line before; as `Window`."""

    line: int
    num_decodes: int
    context_tokens: float | None = None
    kv_share: float | None = None
    tokens_per_decode: float | None = None
    tokens_per_s: float
    has_prompts: bool


Found = Iterator[DecodeWindow | str]  # windows, and the reason for each that is left out
Lines = Iterator[tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReader:
    """A reader of one engine's log; without a pattern no line is one of statistics."""

    mark: str = ""  # a text in each line of statistics
    line: re.Pattern[str] = re.compile("(?!)")  # the pattern of such a line
    # Finds the size of the KV cache in tokens; None if the log does not say it.
    kv_tokens: re.Pattern[str] | None = None
    read: Callable[[Lines], Found] = lambda _: iter(())  # yields windows of a log's lines
    names_drafts: bool = True  # whether lines say how many tokens a sequence emits in a step


def between(looks: list[Look]) -> Found:
    """Yield the decodes between each line of a rank and the next, or the reason against them.

    The mean duration of a step is sequences · tokens that each emits / tokens a second, if only decodes ran and at most
    `FEWER` of the sequences ended.
    """
    for before, now in pairwise(looks):
        most = max(before.num_decodes, now.num_decodes)
        if now.has_prompts:
            yield WITH_PROMPTS
        elif most == 0 or now.tokens_per_s <= 0:
            yield NOTHING
        elif abs(now.num_decodes - before.num_decodes) > FEWER * most:
            yield CHANGED
        else:
            running = (before.num_decodes + now.num_decodes) / 2
            yield DecodeWindow(line=now.line, num_decodes=running, tokens_per_decode=now.tokens_per_decode,
                               step_s=running * (now.tokens_per_decode or 1.0) / now.tokens_per_s,
                               context_tokens=_mean(before.context_tokens, now.context_tokens),
                               kv_share=_mean(before.kv_share, now.kv_share))


def _mean(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else (one + other) / 2
