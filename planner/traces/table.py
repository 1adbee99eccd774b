"""A trace in memory: the request table, its prefix ids, its source and how reading it went."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.traces.prefix_ids import PrefixIds, take_rows

Arrivals = Literal["recorded", "absent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAccount:
    """The account of a file's rows; ``str()`` gives it in one line.

    Parameters
    ----------
    source : the trace as the user named it.
    format : name of the reader.
    rows_read, rows_kept : data rows in the file, and rows in the table.
    dropped : rows dropped, by reason.
    num_bad : rows of them that only --on-bad-rows drop leaves out.
    ignored_columns : columns of the file that the planner does not use.
    first_arrival_s, last_arrival_s : span of the kept rows [s].
    input_tokens_p50, input_tokens_p99, output_tokens_p50, output_tokens_p99 : percentiles, linear between order
        statistics [tokens].
    notes : facts that a user of the trace should know, a sentence each.
    """

    source: str
    format: str
    rows_read: int
    rows_kept: int
    dropped: Mapping[str, int]
    ignored_columns: tuple[str, ...]
    first_arrival_s: float
    last_arrival_s: float
    input_tokens_p50: float
    input_tokens_p99: float
    output_tokens_p50: float
    output_tokens_p99: float
    notes: tuple[str, ...] = ()
    num_bad: int = 0

    @property
    def span_s(self) -> float:
        """Time from the first kept arrival to the last [s]."""
        return self.last_arrival_s - self.first_arrival_s

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items())
        dropped = f"dropped {sum(self.dropped.values())}" + (f" ({reasons})" if reasons else "")
        rate = f", {(self.rows_kept - 1) / self.span_s:.4g} requests/s" if self.span_s > 0 else ""
        ignored = f"; ignored columns: {', '.join(self.ignored_columns)}" if self.ignored_columns else ""
        outputs = (f"output p50 {self.output_tokens_p50:.6g}, p99 {self.output_tokens_p99:.6g} tokens"
                   if self.output_tokens_p99 else "no outputs")
        return (
            f"trace {self.source} ({self.format}): read {self.rows_read} row{'s' * (self.rows_read != 1)}, "
            f"kept {self.rows_kept}, {dropped}; span {self.span_s:.6g} s{rate}; "
            f"input p50 {self.input_tokens_p50:.6g}, p99 {self.input_tokens_p99:.6g} tokens; "
            f"{outputs}{ignored}"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Requests in order of arrival.

    Parameters
    ----------
    requests : the columns of ``schema.TRACE_COLUMNS`` for which the file has values, sorted by `arrival_s`; equal
        arrivals keep the file's order. `request_id` is always there: text, or if the file has none the number of the
        row in the file, an integer.
    prefix : prefix ids, rows aligned with `requests`; None means that sharing is unknown, not that there is none.
    source : the trace as the user named it.
    format : name of the reader.
    sha256 : of the file's bytes as stored (compressed, if they are).
    account : the account of the file's rows.
    arrivals : "absent" if the file does not say when requests were sent; all are at 0 s then.
    spec : format or map of columns that the user gave to read it; None if it was detected.
    zero_at_s : instant of 0 s, from 1970 in UTC, if the file has dates and arrivals keep their distances [s].
    deployed : rows of the file by the model, GPU and engine that its columns name.
    """

    requests: pl.DataFrame
    prefix: PrefixIds | None
    source: str
    format: str
    sha256: str
    account: ReadAccount
    arrivals: Arrivals = "recorded"
    spec: str | None = None
    zero_at_s: float | None = None
    deployed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def num_requests(self) -> int:
        """Requests in the table."""
        return self.requests.height

    @property
    def request_id(self) -> pl.Series:
        """The name of each request, as text."""
        return self.requests["request_id"].cast(pl.String)

    def take(self, rows: NDArray[np.int64]) -> "Trace":
        """Return a trace of some rows, in the order given, with their prefix ids."""
        return replace(self, requests=self.requests[rows],
                       prefix=None if self.prefix is None else take_rows(self.prefix, rows))

    def part(self, first: int, count: int) -> "Trace":
        """Return a trace of the rows from one on, with their prefix ids; the table is not copied."""
        return replace(self, requests=self.requests.slice(first, count), prefix=None if self.prefix is None else
                       take_rows(self.prefix, np.arange(first, first + count)))


def account_of(
    requests: pl.DataFrame,
    *,
    source: str,
    format: str,
    rows_read: int,
    dropped: Mapping[str, int],
    ignored_columns: tuple[str, ...],
    notes: tuple[str, ...] = (),
    num_bad: int = 0,
) -> ReadAccount:
    """Account for a table that is sorted by arrival and holds one row or more."""
    arrival_s = requests["arrival_s"]
    half, tail = [
        requests.select(pl.col("input_tokens", "output_tokens").quantile(q, interpolation="linear")).row(0)
        for q in (0.5, 0.99)
    ]
    return ReadAccount(
        source=source, format=format, rows_read=rows_read, rows_kept=requests.height, dropped=dict(dropped),
        ignored_columns=ignored_columns, first_arrival_s=arrival_s[0], last_arrival_s=arrival_s[-1],
        input_tokens_p50=half[0], input_tokens_p99=tail[0], output_tokens_p50=half[1], output_tokens_p99=tail[1],
        notes=notes, num_bad=num_bad,
    )
