"""Rows that stand for many requests: sums over a number of requests, or lengths with a count, taken apart."""

import dataclasses
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import TraceError
from planner.files.counts import count_text, does_text
from planner.schema import MAX_TOKENS
from planner.traces.likely import REQUEST_NAMES, counts_texts, likeness
from planner.traces.reader import OF_REQUESTS, Head, Reader

Meaning = Literal["sums", "lengths"]

MOST_REQUESTS = 10_000_000
LONG_PROMPT = 20_000  # tokens of the median row, from which regular times are a sign of sums
LONGEST_PROMPT = 2**20  # tokens; a row with more is a sum, if its names do not say otherwise
SHARED = ("input_tokens", "output_tokens", "cached_tokens", "image_tokens")  # by the requests of a sum
KEPT = (*SHARED, "arrival_s", "tenant", "priority", "adapter", "line")  # of a row that is taken apart
SEED = 0
_ONE = "--column num_requests=1 reads every row as one request"


def with_counts(head: Head, reader: Reader) -> Reader:
    """Return a reader that reads the number of requests of a row, if a column of the file looks like one."""
    like = likeness(head, "num_requests")
    single = {"hash_ids"} if like is not None and counts_texts(like.path) else {"request_id", "hash_ids"}
    if reader.counts == "no" or "num_requests" in reader.columns or single & {
            name for name, path in reader.columns.items() if head.has(path)}:
        return reader
    if like is None or (like.rank >= len(REQUEST_NAMES) and "arrival_s" in reader.columns and reader.name != "columns"):
        return reader
    return dataclasses.replace(reader, columns={**reader.columns, "num_requests": like.path})


def apart(source: str, place: str, table: pl.DataFrame, reader: Reader, head: Head) -> tuple[pl.DataFrame, list[str]]:
    """Return one row for each request that a table's rows stand for, and notes on them.

    Parameters
    ----------
    table : checked rows with arrivals in seconds; `num_requests` if the file has it, `e2e_s` of sums is their window.

    Raises
    ------
    TraceError : the rows are sums without a number of requests, or the number does not fit the sums.
    """
    if "num_requests" not in table.columns:
        return table, []
    counts, label = table["num_requests"], reader.columns["num_requests"]
    if (counts == 1).all():
        return table.drop("num_requests"), []
    wrong = (counts.is_null() | ((counts == 0) & (table["input_tokens"] + table["output_tokens"] > 0))).arg_true()
    if len(wrong):
        row = int(wrong[0])
        raise TraceError(f"trace {source} {place} {table['line'][row]}: {label} = {counts[row] or 'empty'} beside "
                         f"{table['input_tokens'][row]:,} input tokens; must be at least 1 (correct the row; {_ONE})")
    table, total_notes = _without_total(table, label)
    counts = table["num_requests"]
    total = int(counts.sum())
    if not 1 <= total <= MOST_REQUESTS:
        raise TraceError(f"trace {source}: {label} adds up to {total:,} requests; must be 1 to {MOST_REQUESTS:,} (keep "
                         f"part of the rows with --where; {_ONE})")
    meaning = _meaning(source, table, reader, head)
    window_s = table["e2e_s"] if "e2e_s" in table.columns else None
    table = table.select(name for name in (*KEPT, "num_requests") if name in table.columns).filter(counts > 0)
    if meaning == "sums":
        _check_means(source, place, table, reader)
    windows_s = _windows(table, None if window_s is None else window_s.filter(counts > 0), reader)
    requests = _repeated(table, meaning, windows_s)
    num_empty = len(counts) - table.height
    empty = [f"left out: {count_text(num_empty, 'row')} with {label} = 0"] if num_empty else []
    return requests, [_note(label, table.height, requests.height, meaning, windows_s), *empty, *total_notes]


def _without_total(table: pl.DataFrame, label: str) -> tuple[pl.DataFrame, list[str]]:
    """Leave out the row that is the sum of all others, as bills have it at their ends."""
    names = ["num_requests", "input_tokens", "output_tokens"]
    sums = table.select(pl.col(names).sum())
    is_total = pl.all_horizontal([2 * pl.col(name) == int(sums[name][0]) for name in names])
    kept = table.filter(~is_total)
    if table.height < 3 or kept.height != table.height - 1:
        return table, []
    return kept, [f"the row whose {label} and tokens are the sum of the other rows is left out as their total"]


def _note(label: str, num_rows: int, num_requests: int, meaning: Meaning, windows_s: NDArray[np.float64] | None) -> str:
    what = (f"{does_text(num_rows, 'row', 'stand')} for {count_text(num_requests, 'request')}, by column {label}: ")
    what += ("token counts are read as sums, and each request has the mean length of its row, so lengths have no "
             "spread within a row" if meaning == "sums" else "each request has the lengths of its row")
    other = "lengths" if meaning == "sums" else "sums"
    spread = ("; they arrive at once, and the API server takes its time for each" if counts_texts(label) else
              "" if windows_s is None else
              f"; arrivals are drawn at random over each row's {np.median(windows_s):g} s")
    return f"{what}{spread} (--column num_requests={label}:{other} reads {other}; {_ONE})"


def _repeated(table: pl.DataFrame, meaning: Meaning, windows_s: NDArray[np.float64] | None) -> pl.DataFrame:
    counts = table["num_requests"].to_numpy().astype(np.int64)
    row = np.repeat(np.arange(len(counts)), counts)
    requests = table[row].drop("num_requests")
    if meaning == "sums":
        place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        for name in set(SHARED) & set(table.columns):
            sums = table[name].fill_null(0).to_numpy().astype(np.int64)
            tokens = (sums // counts)[row] + (place < (sums % counts)[row])
            requests = requests.with_columns(pl.Series(name, tokens))
    if windows_s is not None:
        drawn = np.random.default_rng(SEED).random(len(row)) * windows_s[row]
        requests = requests.with_columns(arrival_s=pl.Series(table["arrival_s"].to_numpy()[row] + drawn))
    return requests.with_columns(request_id=pl.int_range(len(row), dtype=pl.UInt32))


def _windows(table: pl.DataFrame, window_s: pl.Series | None, reader: Reader) -> NDArray[np.float64] | None:
    """Return how long the requests of each row arrive; None if rows have no times, or are requests of many texts."""
    if "arrival_s" not in reader.columns or counts_texts(reader.columns["num_requests"]):
        return None
    if window_s is not None and window_s.null_count() == 0 and (window_s > 0).all():
        return window_s.to_numpy()
    starts = np.unique(table["arrival_s"].to_numpy())
    gap_s = float(np.median(np.diff(starts))) if len(starts) > 1 else 86_400.0 if _is_of_days(reader) else 3600.0
    return np.full(table.height, gap_s)


def _is_of_days(reader: Reader) -> bool:
    return any(word in reader.columns.get("arrival_s", "").lower() for word in ("date", "day"))


def _meaning(source: str, table: pl.DataFrame, reader: Reader, head: Head) -> Meaning:
    """Return the meaning of token counts beside a count, by the values if only one is possible, else by names."""
    if reader.counts in ("sums", "lengths"):
        return reader.counts
    rows = table.filter(pl.col("num_requests") > 0)
    can_be_sums = bool((rows["input_tokens"] >= rows["num_requests"]).all()
                       and ((rows["output_tokens"] >= rows["num_requests"]) | (rows["output_tokens"] == 0)).all())
    can_be_lengths = bool((rows["input_tokens"] <= LONGEST_PROMPT).all())
    likely = [likeness(head, name) for name in ("input_tokens", "output_tokens")]
    named = {like.of for like in likely if like is not None and like.of}
    label = reader.columns["num_requests"]
    if named == {"mean"} or (can_be_lengths and not can_be_sums and "sum" not in named):
        return "lengths"
    if not can_be_sums and not can_be_lengths and "sum" not in named:
        raise TraceError(f"trace {source}: column {label} does not fit the tokens: as sums, a request has less than 1 "
                         f"token; as lengths, a prompt has more than {LONGEST_PROMPT:,} (name another column, as in "
                         f"--column num_requests=COLUMN; {_ONE})")
    if not can_be_lengths or named == {"sum"} or "arrival_s" in reader.columns or _counts_requests(head, label):
        return "sums"
    used = {*reader.columns.values()}
    if all(path in used for path in head.paths):  # lengths and counts alone
        return "lengths"
    raise TraceError(f"trace {source}: rows stand for many requests, by column {label}, and token counts may be sums "
                     f"over them or lengths of each; give --column num_requests={label}:sums, or "
                     f"--column num_requests={label}:lengths ({_ONE})")


def _counts_requests(head: Head, label: str) -> bool:
    like = likeness(head, "num_requests")
    return like is not None and like.path == label and like.rank < len(REQUEST_NAMES)


def _check_means(source: str, place: str, table: pl.DataFrame, reader: Reader) -> None:
    for name in ("input_tokens", "output_tokens"):
        means = table[name] / table["num_requests"]
        wrong = ((means < 1) | (means > MAX_TOKENS)).arg_true()
        if len(wrong):
            row = int(wrong[0])
            raise TraceError(
                f"trace {source} {place} {table['line'][row]}: {reader.columns[name]} = {table[name][row]:,} over "
                f"{table['num_requests'][row]:,} requests is a mean of {means[row]:.3g} tokens; must be 1 to "
                f"{MAX_TOKENS} (keep rows of text generation with --where; --column "
                f"num_requests={reader.columns['num_requests']}:lengths if token counts are of each request)")


def refuse_sums(source: str, table: pl.DataFrame, reader: Reader, zero_at_s: float | None, head: Head) -> list[str]:
    """Return notes on rows that may be sums, and raise a TraceError if they are, and no column has their number.

    Rows of a day or of equal windows are sums, as are long prompts at whole minutes, and prompts longer than any
    model reads.

    Parameters
    ----------
    table : checked rows with arrivals in seconds.
    zero_at_s : instant of 0 s, from 1970; None if the file has no dates [s].
    """
    if reader.counts == "no" or "num_requests" in reader.columns or reader.name.split(",")[0] not in OF_REQUESTS or (
            reader.columns.get("arrival_s") == "arrival_s"):
        return []
    proof = _proof_of_sums(table, head, zero_at_s)
    sign = "" if zero_at_s is None else _regular(table["arrival_s"].unique().sort(), zero_at_s)
    long = float(np.median(table["input_tokens"].to_numpy())) >= LONG_PROMPT
    if proof or (sign and long):
        raise TraceError(f"trace {source}: rows are sums over many requests ({proof or sign}), and no column has the "
                         f"number of requests; name it, as in --column num_requests=requests, or give a log of single "
                         f"requests ({_ONE})")
    return [f"{sign}: every row is read as one request; if rows are sums, name their number of requests, as in "
            f"--column num_requests=requests"] if sign else []


def _proof_of_sums(table: pl.DataFrame, head: Head, zero_at_s: float | None) -> str:
    if np.median(table["input_tokens"].to_numpy()) > LONGEST_PROMPT:
        return f"half of the prompts have more than {LONGEST_PROMPT:,} tokens"
    likely = (likeness(head, "input_tokens"), likeness(head, "output_tokens"))
    if any(like is not None and like.of for like in likely):
        return f"by the names {' and '.join(like.path for like in likely if like is not None)}"
    if zero_at_s is None:
        return ""
    is_window = "e2e_s" in table.columns and table["e2e_s"].n_unique() == 1 and _is_whole(table["e2e_s"], 60)
    if is_window and (table.height > 1 or table["e2e_s"][0] >= 3600):
        return f"each lasts {table['e2e_s'][0]:g} s"
    starts = table["arrival_s"].unique()
    return "their times are days" if len(starts) > 1 and _is_whole(starts + zero_at_s, 86_400) else ""


def _regular(starts: pl.Series, zero_at_s: float) -> str:
    """Return how far apart times are that all stand at full minutes or hours; empty for other times."""
    gaps = starts.diff().drop_nulls()
    is_hourly = len(starts) > 1 and _is_whole(starts + zero_at_s, 3600)
    if is_hourly or (len(starts) > 2 and _is_whole(starts + zero_at_s, 60) and gaps.n_unique() == 1):
        return f"their times are {float(np.median(gaps.to_numpy())):g} s apart"
    return ""


def _is_whole(seconds: pl.Series, of: int) -> bool:
    return bool((seconds > 0).any()) and bool((seconds % of == 0).all())

