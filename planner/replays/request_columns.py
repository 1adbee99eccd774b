"""A replay's requests: laid out in the loop's memory as their time comes, kept as columns once they have left."""

import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.loop.state import engine_state as st
from planner.loop.state.engine_settings import EngineSettings
from planner.policies.policy import CONTEXT_KEPT_FREE, Policy
from planner.traces import Trace

CHUNK = 1 << 16  # requests that are laid out, and whose memory is given back, together

MOST_OUTPUT = 1 << 30  # of a request that nothing limits

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """The outcome of each request, by the columns of `state.REQUEST`, shape [num_requests] each.

    Parameters
    ----------
    arrival_s, reached_s, first_scheduled_s, first_token_s, finished_s : instants; NaN without one [s].
    preempted_s, stalled_s : times [s].
    input_tokens, num_output_tokens, num_cached_tokens, num_recomputed_tokens : lengths and counts [tokens].
    num_preemptions : counts [1].
    state : how each ended.
    """

    arrival_s: Floats
    reached_s: Floats
    first_scheduled_s: Floats
    first_token_s: Floats
    finished_s: Floats
    preempted_s: Floats
    stalled_s: Floats
    input_tokens: Ints
    num_output_tokens: Ints
    num_cached_tokens: Ints
    num_recomputed_tokens: Ints
    num_preemptions: Ints
    state: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.state)

    def __getitem__(self, rows: Any) -> "Requests":
        """Return some of the requests, by a slice, a mask or row numbers."""
        return Requests(**{name: getattr(self, name)[rows] for name in COLUMNS})

    def listed(self, names: Sequence[str]) -> list[Any]:
        """Return columns by name; the output that a request under way will have, its `output_tokens`, has come."""
        return [getattr(self, AT_END.get(name, name)) for name in names]

    def put(self, rows: Any, requests: Any) -> None:
        """Take over requests, columns or records, into columns that are 0 there: zeros take no memory."""
        for name in COLUMNS:
            values = np.ascontiguousarray(getattr(requests, name))  # a column of records is slow to read twice
            if values.any():
                getattr(self, name)[rows] = values


AT_END = {"output_tokens": "num_output_tokens"}
COLUMNS = tuple(field.name for field in fields(Requests))


def no_requests(count: int) -> Requests:
    """Return columns that requests can be put in."""
    return Requests(**{name: np.zeros(count, st.REQUEST[name]) for name in COLUMNS})


class RequestMemory:
    """The loop's records of the requests of a trace; only requests under way take memory.

    Record i is request i all the time. Chunks of them are laid out before the loop reaches their first; once all of a
    chunk have left, their outcome goes into columns and the chunk's memory back to the operating system, if that can
    take it. The loop may still name such a request, in an outdated entry of a heap: its record reads as one
    that has left, or as zeros, which are a request's that has not arrived; both are swept.

    Parameters
    ----------
    trace : requests in order of arrival.
    limits : of prompts and outputs, of each route of requests.
    route : of each request, shape [num_requests]; None with one route.
    """

    def __init__(self, trace: Trace, limits: Sequence["Limits"], route: NDArray[np.int64] | None = None) -> None:
        self._table, self._limits, self._route = trace.requests, limits, route
        self._pages, self.records = _reserve(trace.num_requests)
        self._plain = self.records.view(np.ndarray)  # its columns are found faster
        self._num_laid_out = 0
        self._open: dict[int, int] = {}  # chunks that hold records, by their first; the first known not to have left
        self._columns = no_requests(trace.num_requests)

    def lay_out(self, engine: Any) -> bool:
        """Lay out the requests that may arrive next; False if the loop did not stop for that.

        The loop hands over requests that arrived before its clock. It stops when its clock reaches the arrival of the
        last request that is laid out, so all requests that it reads are laid out.
        """
        if self._num_laid_out and engine.now_s < engine.laid_out_until_s:
            return False
        self._release(len(self.records) if engine.next_request == st.NONE else int(engine.next_request))
        engine.laid_out_until_s = -math.inf
        while engine.laid_out_until_s <= engine.now_s:
            engine.laid_out_until_s = self._lay_out_chunk()
        return True

    def lay_out_all(self) -> None:
        """Lay out every request, for engines that do not reach them in the trace's order."""
        while self._num_laid_out < len(self.records):
            self._lay_out_chunk()

    def parts(self, start: int, stop: int, names: Sequence[str]) -> Iterator[list[Any]]:
        """Yield columns of requests that were laid out, of a chunk at a time; `names` are as of `Requests.listed`."""
        for first in range(start // CHUNK * CHUNK, stop, CHUNK):
            rows = slice(max(first, start), min(first + CHUNK, stop))
            columns = [self._plain[name] for name in names] if first in self._open else self._columns.listed(names)
            yield [column[rows] for column in columns]

    def columns(self) -> Requests:
        """Return the outcome of the requests; their records are freed."""
        for first in list(self._open):
            self._keep(first)
        return self._columns

    def _lay_out_chunk(self) -> float:
        """Fill in the next records; return the arrival of the last, from when on the loop needs more, or inf."""
        first, n = self._num_laid_out, len(self.records)
        last = min(first + CHUNK, n)
        table, records = self._table.slice(first, last - first), self._plain[first:last]
        records["arrival_s"] = table["arrival_s"].to_numpy()
        for r, limits in enumerate(self._limits):
            rows: Any = slice(None) if self._route is None else np.flatnonzero(self._route[first:last] == r)
            self._limit(records, table if self._route is None else table[rows], rows, limits)
        records["num_cached_tokens"] = -1
        records["next"] = np.arange(first + 1, last + 1)  # the next to come
        records["flight"] = st.NONE
        for name in ("first_scheduled_s", "first_token_s", "finished_s", "last_token_s"):
            records[name] = math.nan
        self._open[first], self._num_laid_out = first, last
        if last == n:
            records["next"][-1:] = st.NONE
            return math.inf
        return float(records["arrival_s"][-1])

    @staticmethod
    def _limit(records: Any, table: pl.DataFrame, rows: Any, limits: "Limits") -> None:
        """Fill in how long the requests of some rows are, within their limits; a prompt may be refused by its length.
        """
        inputs, outputs, most = limits.of(table)
        lengths = {"input_tokens": inputs, "output_tokens": outputs, "max_output_tokens": most}
        for name, values in lengths.items():
            records[name][rows] = values
        records["state"][rows] = np.where(inputs >= limits.max_prompt, st.REJECTED, st.NOT_ARRIVED)

    def _release(self, num_arrived: int) -> None:
        """Keep the chunks of which all have arrived and left."""
        for first in list(self._left_chunks(num_arrived)):
            self._keep(first)

    def _left_chunks(self, num_arrived: int) -> Iterator[int]:
        for first, known in self._open.items():
            if first + CHUNK > num_arrived:
                return
            if self.records[known].state < st.COMPLETED:
                continue
            here = np.flatnonzero(self.records.state[known:first + CHUNK] < st.COMPLETED)
            if len(here):
                self._open[first] = known + int(here[0])
            else:
                yield first

    def _keep(self, first: int) -> None:
        """Copy a chunk's columns, and give its memory back."""
        rows = slice(first, min(first + CHUNK, len(self.records)))
        self._columns.put(rows, self.records[rows])
        del self._open[first]
        if self._pages is not None:
            size = st.REQUEST.itemsize
            self._pages.madvise(mmap.MADV_DONTNEED, rows.start * size, (rows.stop - rows.start) * size)


def _reserve(count: int) -> tuple[mmap.mmap | None, Any]:
    """Return records that take no memory before they are used, and their pages if these can be given back."""
    if count <= CHUNK or not hasattr(mmap, "MADV_DONTNEED"):
        return None, st.records(count, st.REQUEST)
    pages = mmap.mmap(-1, count * st.REQUEST.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return pages, np.frombuffer(pages, st.REQUEST).view(np.recarray)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long prompts and outputs may be.

    Parameters
    ----------
    max_model_len : the longest context [tokens].
    ends_late : whether a prompt may fill the context, and its output go beyond it, as in ATOM.
    pool_tokens, page_tokens : of the KV cache, if these limit requests too, as in SGLang [tokens]; 0 else.
    """

    max_model_len: int
    pool_tokens: int = 0
    page_tokens: int = 1
    ends_late: bool = False

    @property
    def max_prompt(self) -> int:
        """Return the shortest prompt that is refused: `max_req_input_len` in sglang/srt/managers [tokens]."""
        if self.pool_tokens == 0:
            return self.max_model_len + int(self.ends_late)
        return min(self.max_model_len, self.pool_tokens) - CONTEXT_KEPT_FREE

    def of(self, table: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64], Any]:
        """Return prompts, outputs as far as engine and client allow them, and how far that is [tokens].

        Parameters
        ----------
        table : rows of a trace's requests.
        """
        asked = optional(table, "max_output_tokens", math.inf) if "max_output_tokens" in table.columns else None
        inputs = table["input_tokens"].to_numpy().astype(np.int64)
        return inputs, *self.outputs(inputs, table["output_tokens"].to_numpy(), asked)

    def outputs(self, inputs: NDArray[np.int64], outputs: NDArray[np.int64], asked: Floats | None) -> tuple[Any, Any]:
        """Return outputs as far as engine and client allow them, and how far that is [tokens].

        SGLang's output leaves a page of the pool free, and two tokens of the context (`init_req_max_new_tokens`).

        Parameters
        ----------
        asked : the client's limits; None without any [tokens].
        """
        most = np.full(len(inputs), MOST_OUTPUT) if self.ends_late else self.max_model_len - inputs
        if self.pool_tokens:
            paged = -(-inputs // self.page_tokens) * self.page_tokens
            most = np.minimum(min(self.max_model_len, self.pool_tokens) - 2 - inputs,
                              self.pool_tokens - paged - self.page_tokens - 1)
        limits: Any = np.maximum(most, 0)
        if asked is not None:
            limits = np.minimum(asked, limits).astype(np.int64)
        outputs = np.minimum(outputs, limits)
        return np.maximum(outputs, 1) if self.pool_tokens else outputs, limits


def limits_of_requests(policy: Policy, settings: EngineSettings) -> Limits:
    """Return how long requests may be at an engine."""
    if policy.promises != "share":  # a prompt may fill the context if no token comes after it
        return Limits(settings.max_model_len + policy.fills_context, ends_late=policy.placeholders)
    return Limits(settings.max_model_len, settings.num_gpu_blocks * settings.block_size, settings.block_size)


def strictest(limits: Sequence[Limits]) -> Limits:
    """Return the limits of requests that go to any of several engines with one context."""
    return min(limits, key=lambda limit: (limit.max_prompt, limit.pool_tokens))


def optional(table: pl.DataFrame, name: str, default: float) -> Floats:
    """Return a column that a trace may lack, or lack in places."""
    if name not in table.columns:
        return np.full(table.height, default)
    column = table[name].cast(float)
    values: Floats = column.to_numpy().astype(np.float64)
    return np.where(column.is_null().to_numpy(), default, values) if column.null_count() else values
