"""Batches of rollouts: samples of prompts in groups, cut at a limit, and continued from one step to the next.

With a length budget, a sample stops at the budget and continues in the next step. The weights have changed by then, so
its prompt and its tokens are computed again. Whether a sample goes on depends on its length alone, so the
samples of any step follow from the rows of the trace: no step has to be simulated to reach the steady state.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.planning.search_options import Rollouts
from planner.traces import Trace
from planner.traces.prefix_ids import PrefixIds

Ints = NDArray[np.int64]

BLOCK_TOKENS = 16  # that one prefix id of a prompt stands for, if the trace has no ids [tokens]
KEPT = ("arrival_s", "input_tokens", "output_tokens", "request_id", "adapter", "image_tokens", "num_images")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """The samples that generators compute in one step, and the samples that the trainer gets after it.

    Parameters
    ----------
    load : the samples under way, all there at 0 s.
    num_trained : samples of the groups that end in this step [1].
    trained_tokens : of their prompts and outputs [tokens].
    output_tokens : that they have [tokens].
    num_updates : weight updates between the first token of each group that ends and the end of this step,
        shape [num groups].
    """

    load: Trace
    num_trained: int
    trained_tokens: int
    output_tokens: int
    num_updates: Ints


class Batches:
    """The batches that a trace's rows make, one after the other; after the last row the first one follows.

    Parameters
    ----------
    trace : its rows are samples. A group of `group_size` rows has one prompt, the prompt of its first row.
    asked : size of a batch, limit and budget of lengths, and the staleness that a sample may have.

    Raises
    ------
    UsageError : the trace has fewer rows than a group.
    """

    def __init__(self, trace: Trace, asked: Rollouts) -> None:
        self.num_groups = trace.num_requests // asked.group_size
        if self.num_groups == 0:
            raise UsageError(f"--group-size {asked.group_size}: {trace.source} has {trace.num_requests:,} rows, and a "
                             f"group takes as many; lower it")
        self._asked = asked
        used = trace.take(np.arange(self.num_groups * asked.group_size))
        lengths = used.requests["output_tokens"].to_numpy().astype(np.int64)
        most = lengths.max() if asked.max_length is None else asked.max_length
        self.lengths = np.minimum(lengths, most).reshape(self.num_groups, asked.group_size)
        self.num_cut = int((lengths > most).sum())
        self._prompts = _with_ids(used.take(np.arange(0, used.num_requests, asked.group_size)))
        budget = int(self.lengths.max()) if asked.length_budget is None else asked.length_budget
        self._budget = budget
        self._continued = np.minimum(-(-self.lengths // budget) - 1, _most_continued(asked))

    @property
    def whole(self) -> Trace:
        """All samples of the trace, for the limits of a deployment."""
        groups = np.arange(self.num_groups)
        return self._load(np.repeat(groups, self._asked.group_size), np.zeros(self.lengths.size, np.int64),
                          self.lengths.ravel())

    def alone(self, longest: int = 1) -> Trace:
        """Return the longest samples, each in a row of its own, as a load."""
        rows = np.sort(np.argsort(-self.lengths.ravel(), kind="stable")[:longest])
        return self._load(rows // self._asked.group_size, np.zeros(longest, np.int64), self.lengths.ravel()[rows])

    def batch(self, step: int) -> Batch:
        """Return the batch of a step; step 0 has samples of earlier steps too, as any other."""
        parts: list[tuple[Ints, Ints, Ints]] = []
        num_updates: list[Ints] = []
        trained = outputs = 0
        prompt_tokens = self._prompts.requests["input_tokens"].to_numpy()
        for age in range(int(self._continued.max()) + 1):
            groups = (np.arange(self._asked.prompts) + (step - age) * self._asked.prompts) % self.num_groups
            lengths, last = self.lengths[groups], self._continued[groups]
            left = lengths - age * self._budget
            generated = np.where(last == age, left, np.minimum(left, self._budget))
            is_under_way = last >= age
            rows = np.broadcast_to(groups[:, None], lengths.shape)[is_under_way]
            parts.append((rows, np.full(len(rows), age * self._budget), generated[is_under_way]))
            ended = last.max(axis=1) == age
            num_updates.append(np.full(int(ended.sum()), age))
            outputs += int(lengths[ended].sum())
            trained += int(lengths[ended].sum() + self._asked.group_size * prompt_tokens[groups[ended]].sum())
        groups, known, generated = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        ages = np.concatenate(num_updates)
        return Batch(load=self._load(groups, known, generated), num_trained=len(ages) * self._asked.group_size,
                     trained_tokens=trained, output_tokens=outputs, num_updates=ages)

    def _load(self, groups: Ints, known: Ints, generated: Ints) -> Trace:
        """Return samples as requests: the prompt of each one's group, the tokens that it has, and those to come."""
        drawn = self._prompts.take(groups)
        inputs = drawn.requests["input_tokens"].to_numpy().astype(np.int64) + known
        return replace(drawn, requests=drawn.requests.with_columns(
            arrival_s=pl.lit(0.0), input_tokens=pl.Series(inputs), output_tokens=pl.Series(generated),
            request_id=pl.Series(np.arange(len(inputs))).cast(pl.UInt32)))


def _most_continued(asked: Rollouts) -> int:
    """Return the steps after its first one in which a sample may go on: it ends in the last of them."""
    if asked.max_staleness is None:
        return np.iinfo(np.int64).max
    return asked.max_staleness - asked.lag


def _with_ids(prompts: Trace) -> Trace:
    """Return prompts with ids of the blocks that samples of a prompt share: those before its last token.

    Without ids of the trace each prompt has its own. Tokens without an id are a sample's own, as its output is. Columns
    of conversations are left out.
    """
    table = prompts.requests.select(name for name in KEPT if name in prompts.requests.columns)
    before = table["input_tokens"].to_numpy().astype(np.int64) - 1
    if prompts.prefix is None:
        lengths = before // BLOCK_TOKENS
        prefix = PrefixIds(values=np.arange(lengths.sum()), offsets=_offsets(lengths), block_tokens=BLOCK_TOKENS)
    else:
        known = np.diff(prompts.prefix.offsets)
        lengths = np.minimum(before // prompts.prefix.block_tokens, known)
        place = np.arange(known.sum()) - np.repeat(prompts.prefix.offsets[:-1], known)
        prefix = replace(prompts.prefix, values=prompts.prefix.values[place < np.repeat(lengths, known)],
                         offsets=_offsets(lengths))
    return replace(prompts, requests=table, prefix=prefix, arrivals="recorded")


def _offsets(lengths: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
