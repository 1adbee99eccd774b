"""The contents of live requests' KV blocks: numbers for pieces of text, given as requests arrive and taken back.

A replay numbers all contents of a trace before it begins (`planner.replays.block_ids`). Here a piece of a prompt gets
a number when it is first seen: equal pieces after equal text have the same number. Generated tokens follow from the
whole prompt, as in a replay. Block tables lie one behind another in one half of the memory. When it is full, the rows
that are still in use move to the other half, and the numbers that no block and no row holds are free again.
"""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.loop.state import engine_state as st
from planner.loop.state.entries import ENTRY, SLOT

PIECE_TOKENS = 16  # of text that is compared as a whole, if a KV block is not larger
_STEP = 1 << 16  # contents that are made ready together

Numbers = NDArray[np.int64]
Keys = tuple[bytes, ...]


def keys_of(tokens: Sequence[int] | bytes, size: int) -> Keys:
    """Return a key for each piece of a prompt, which stands for all text up to its end.

    Parameters
    ----------
    tokens : ids of tokens, or text whose bytes stand for them.
    size : ids, or bytes, of a piece.
    """
    raw = tokens if isinstance(tokens, bytes) else np.asarray(tokens, np.int64).tobytes()
    width = size * (1 if isinstance(tokens, bytes) else 8)
    keys, before = [], b""
    for begin in range(0, len(raw), width):
        before = hashlib.blake2b(before + raw[begin:begin + width], digest_size=16).digest()
        keys.append(before)
    return tuple(keys)


class Contents:
    """Block tables and the numbers of their contents, for all replicas of a fleet.

    Parameters
    ----------
    states : the replicas' memories, with their block tables laid out by `planner.replays.initial`.
    pieces : pieces of text that block tables in use may have at once.
    """

    def __init__(self, states: Sequence[st.State], pieces: int) -> None:
        settings = states[0].settings
        self._block_size, self._more = int(settings.block_size), int(settings.hashes_next_token)
        self.piece_tokens = -(-PIECE_TOKENS // self._block_size) * self._block_size
        self._per_piece = self.piece_tokens // self._block_size
        num_cached = sum(int(state.settings.num_gpu_blocks) for state in states)
        rows = pieces * self._per_piece + (num_cached if settings.caches_in_tree else 0)  # the tree's are in it
        self._half, self._begin, self._used = rows, 0, 0
        self._most_pieces = -(-(2 * rows + num_cached) // self._per_piece)
        self._first_own = self._most_pieces * self._per_piece  # contents by the row, of blocks with a lost token
        self._pieces: dict[bytes, int] = {}
        self._free: list[int] = []
        self._num_pieces = self._num_ready = 0
        self.slots = st.records(2 * rows, SLOT)
        self._has_own = bool(settings.has_placeholders)
        self.entries = [st.records(self._first_own + max(2 * rows * self._has_own, _STEP), ENTRY) for _ in states]
        for state, entries in zip(states, self.entries, strict=True):
            state.settings.first_own_content = self._first_own
            if self._has_own:
                entries.first[self._first_own:] = entries.last[self._first_own:] = st.NONE
        self.states = [state._replace(slots=self.slots, entries=entries)
                       for state, entries in zip(states, self.entries, strict=True)]

    def lay_out(self, i: int, keys: Keys, input_tokens: int, num_blocks: int, in_use: Callable[[], Numbers]) -> bool:
        """Give request `i` a block table; False if the memory is full.

        Parameters
        ----------
        keys : of its prompt's pieces.
        input_tokens : of its prompt [tokens].
        num_blocks : rows of the table.
        in_use : returns the other requests whose tables are in use.
        """
        num_pieces = len(keys) + num_blocks // self._per_piece + 1
        if self._used + num_blocks > self._half or self._num_missing(num_pieces) > 0:
            self._collect(in_use())
            if self._used + num_blocks > self._half or self._num_missing(num_pieces) > 0:
                return False
        full = min(max(input_tokens - self._more, 0) // self._block_size, num_blocks)
        prompt = self._contents(keys[:(full - 1 + self._more) // self._per_piece + 1] if full else ())
        end = keys[-1] + input_tokens.to_bytes(8, "little") if keys else b""
        generated = self._contents(tuple(end + k.to_bytes(4, "little")
                                         for k in range(-(-(num_blocks - full) // self._per_piece))))
        start = self._begin + self._used
        content = self.slots.content[start:start + num_blocks]
        content[:full] = prompt[self._more:self._more + full] if self._more else prompt[:full]
        content[full:] = generated[:num_blocks - full]
        prefix = self.states[0].prefixes[i]
        prefix.slot_start, prefix.num_slots = start, num_blocks
        self._used += num_blocks
        return True

    def _num_missing(self, wanted: int) -> int:
        return wanted - len(self._free) - (self._most_pieces - self._num_pieces)

    def _contents(self, keys: Keys) -> Numbers:
        """Return the contents of pieces, in order; unknown pieces get new numbers."""
        pieces = self._pieces
        numbers = []
        for key in keys:
            number = pieces.get(key)
            if number is None:
                number = self._free.pop() if self._free else self._next_piece()
                pieces[key] = number
            numbers.append(number)
        first = np.array(numbers, np.int64) * self._per_piece
        return first if self._per_piece == 1 else (first[:, None] + np.arange(self._per_piece)).reshape(-1)

    def _next_piece(self) -> int:
        number = self._num_pieces
        self._num_pieces += 1
        while self._num_pieces * self._per_piece > self._num_ready:
            rows = slice(self._num_ready, self._num_ready + _STEP)
            for entries in self.entries:
                entries.first[rows] = entries.last[rows] = st.NONE
            self._num_ready += _STEP
        return number

    def _collect(self, in_use: Numbers) -> None:
        """Move the rows that are in use to the other half, and free the numbers of unused contents."""
        prefixes = self.states[0].prefixes
        target = self._half - self._begin  # the other half begins at 0 or at `_half`
        starts, lengths = [np.asarray(prefixes.slot_start[in_use])], [np.asarray(prefixes.num_slots[in_use])]
        nodes = []
        if self.states[0].settings.caches_in_tree:
            for state, entries in zip(self.states, self.entries, strict=True):
                first = state.nodes.first_slot
                alive = np.flatnonzero((state.nodes.length > 0)
                                       & (entries.first[self.slots.content[first]] == np.arange(len(first))))
                nodes.append(alive)
                starts.append(np.asarray(first[alive]))
                lengths.append(np.asarray(state.nodes.length[alive]).astype(np.int64))
        start, length = np.concatenate(starts), np.concatenate(lengths)
        ends = np.cumsum(length)
        rows = np.repeat(start - ends + length, length) + np.arange(int(ends[-1]) if len(ends) else 0)
        self.slots[target:target + len(rows)] = self.slots[rows]
        moved = target + ends - length
        prefixes.slot_start[in_use] = moved[:len(in_use)]
        done = len(in_use)
        for state, alive in zip(self.states, nodes, strict=False):
            state.nodes.first_slot[alive] = moved[done:done + len(alive)]
            done += len(alive)
        if self._has_own:
            self._move_own(rows, target)
        self._begin, self._used = target, len(rows)
        self._forget(np.asarray(self.slots.content[target:target + len(rows)]))

    def _move_own(self, rows: Numbers, target: int) -> None:
        """Let the contents that a row's place numbers follow the rows; others can no longer be found."""
        first = self._first_own
        content = self.slots.content[target:target + len(rows)]
        is_own = np.flatnonzero(content >= first)
        place = np.full(2 * self._half, st.NONE, np.int64)
        place[content[is_own] - first] = target + is_own
        content[is_own] = first + target + is_own
        for state, entries in zip(self.states, self.entries, strict=True):
            held = np.flatnonzero(state.blocks.content >= first)
            old = np.asarray(state.blocks.content[held]) - first
            new = place[old]
            state.blocks.content[held] = np.where(new >= 0, first + new, st.NONE)
            kept = np.asarray(entries[first + old]).copy()
            for name in ("first", "last"):
                entries[name][first + old] = st.NONE
                entries[name][first + new[new >= 0]] = kept[name][new >= 0]

    def _forget(self, named: Numbers) -> None:
        """Take back the numbers of pieces that no block table names and no cache holds."""
        count = self._num_pieces * self._per_piece
        is_held = np.zeros(count, bool)
        is_held[named[named < count]] = True
        for entries in self.entries:
            is_held |= np.asarray(entries.first[:count]) != st.NONE
        alive = np.logical_or.reduce(is_held.reshape(-1, self._per_piece), axis=1)
        self._pieces = {key: number for key, number in self._pieces.items() if alive[number]}
        self._free = np.flatnonzero(~alive).tolist()
