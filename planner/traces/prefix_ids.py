"""Prefix ids: the ragged lists of content ids that say which prompts share their beginnings."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

SPREAD = 4  # of integers over their number, up to which a table of all between them is smaller than a sort


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrefixIds:
    """Ids of the prompt's blocks of every request, as compressed sparse rows.

    Equal ids in equal positions mean equal content up to the end of that block.

    Parameters
    ----------
    values : small whole numbers from 0 on; read from a file, in order of first appearance [total].
    offsets : request i owns ``values[offsets[i]:offsets[i + 1]]`` [num_requests + 1].
    block_tokens : tokens that one id stands for; the last id of a prompt may be partly filled [tokens].
    """

    values: NDArray[np.int64]
    offsets: NDArray[np.int64]
    block_tokens: int


def intern_ids(ids: Sequence[pl.Series], lengths: NDArray[np.int64], block_tokens: int) -> PrefixIds:
    """Number ids densely by first appearance, so that later code can index arrays with them.

    Parameters
    ----------
    ids : pieces of the flat list of ids, in row order; integers or strings. If a piece holds strings, 7 and "7"
        are the same id.
    lengths : ids of each request [num_requests].
    block_tokens : tokens that one id stands for [tokens].
    """
    dtypes = {piece.dtype for piece in ids}
    if len(dtypes) > 1:
        ids = [piece.cast(pl.String) for piece in ids]
    flat = pl.concat(ids) if ids else pl.Series([], dtype=pl.Int64)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return PrefixIds(values=_dense(flat), offsets=offsets, block_tokens=block_tokens)


def _dense(flat: pl.Series) -> NDArray[np.int64]:
    """Number values by first appearance: through a table of all values between them if they lie close, or ranks."""
    if not len(flat):
        return np.empty(0, np.int64)
    places = _close(flat) if flat.dtype == pl.Int64 else None
    if places is None:
        places = flat.rank("dense").to_numpy().astype(np.int64) - 1
    first_at = np.full(int(places.max()) + 1, len(places), dtype=np.int64)
    first_at[places[::-1]] = np.arange(len(places) - 1, -1, -1)  # the last to be written is the first in the file
    is_first = np.zeros(len(places) + 1, dtype=np.int64)  # the last place stands for values that no request has
    is_first[first_at] = 1
    number = np.cumsum(is_first)[first_at] - 1
    dense: NDArray[np.int64] = number[places]
    return dense


def _close(flat: pl.Series) -> NDArray[np.int64] | None:
    """Return how far integers lie above the smallest; None if that is far beyond their number."""
    values = flat.to_numpy()
    low, high = int(values.min()), int(values.max())
    return values - low if high - low < SPREAD * len(values) else None


def within_groups(prefix: PrefixIds, groups: pl.Series) -> PrefixIds:
    """Tell ids of different groups of requests apart: equal ids mean equal content only within a group.

    Parameters
    ----------
    groups : name of each request's group; requests without one form one group [num_requests].
    """
    codes = groups.rank("dense").fill_null(0).to_numpy().astype(np.int64)
    num_ids = int(prefix.values.max(initial=0)) + 1
    values = np.repeat(codes, np.diff(prefix.offsets)) * num_ids + prefix.values
    return PrefixIds(values=_dense(pl.Series(values)), offsets=prefix.offsets, block_tokens=prefix.block_tokens)


def take_rows(prefix: PrefixIds, rows: NDArray[np.int64]) -> PrefixIds:
    """Reorder or select requests: row i of the result is row ``rows[i]`` of `prefix`."""
    lengths = np.diff(prefix.offsets)[rows]
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    values = prefix.values[np.repeat(prefix.offsets[:-1][rows], lengths) + within]
    return PrefixIds(values=values, offsets=offsets, block_tokens=prefix.block_tokens)


def slice_rows(prefix: PrefixIds, first: int, count: int) -> PrefixIds:
    """Keep `count` requests from number `first` on; ids keep their numbers."""
    offsets = prefix.offsets[first : first + count + 1]
    values = prefix.values[offsets[0] : offsets[-1]]
    return PrefixIds(values=values, offsets=offsets - offsets[0], block_tokens=prefix.block_tokens)
