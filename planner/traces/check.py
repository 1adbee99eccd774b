"""The rules that every row of any format keeps: presence, number, bounds, and ids that fit the prompt."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import TraceError
from planner.files.finite import is_numeral
from planner.schema import MAX_TOKENS, REQUIRED_TRACE_COLUMNS, TRACE_COLUMNS, Column
from planner.traces.lines import BadRow, BlockRows
from planner.traces.number_forms import GROUPED, REMEDY, SEPARATED, plain_numbers
from planner.traces.reader import ENDED, FIRST_TOKEN, LESS, PART, SENT, THOUGHTS, Reader
from planner.traces.units import in_our_units, numbers, stated_unit

_INSTANTS = tuple(
    Column(name=name, dtype="float", unit="s", meaning=meaning)
    for name, meaning in ((SENT, "when it was sent"), (FIRST_TOKEN, "when its first token came"), (ENDED, "its end")))
_COUNT = Column(name="num_requests", dtype="int", unit="1", meaning="Requests that a row stands for", minimum=0)
_COLUMNS = (*TRACE_COLUMNS, *_INSTANTS, _COUNT)
_TIMES = ("arrival_s", *(column.name for column in _INSTANTS))
_OF_OTHER_FORM = ("is not a number", "is not a date and time", "is not a whole number")
_OF_DAY = re.compile(r"^\d{1,3}:\d\d(:\d\d)?([.,]\d+)?$")
_OLDER = re.compile(r"^\d{1,2}/\d{1,2}/\d{4}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checked:
    """The good rows of one block, typed, and the faults of the others.

    Parameters
    ----------
    table : columns with a value somewhere in the block, `request_id` always, `line`, and `sent_at_s` if the file
        has the sending of requests as well as their due times.
    own_ids : the file names its requests; otherwise `request_id` is the row's number, an integer.
    id_lengths : prefix ids of each row; None if the block has none.
    ids : the flat list of prefix ids, as in the file; None if the block has none.
    block_tokens : tokens that one id stands for; None if the block has none.
    dropped : bad rows by reason; a row counts under its first reason.
    first_fault : the bad row with the smallest line number.
    forms : how columns write their numbers, if they use separators, by our column.
    """

    table: pl.DataFrame
    own_ids: bool
    id_lengths: NDArray[np.int64] | None
    ids: pl.Series | None
    block_tokens: int | None
    dropped: Counter[str]
    first_fault: BadRow | None
    forms: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowRule:
    """The fault of rows for which `broken` holds: the reason to count it under, and the required value."""

    broken: pl.Expr
    reason: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Problem:
    """Rows of a block that break one rule, in order, and the message for one of them."""

    rows: NDArray[np.int64]
    reason: str
    text: Callable[[int], str]
    remedy: Callable[[int], str | None] | None = None


def check_rows(source: str, rows: BlockRows, reader: Reader) -> Checked:
    """Apply all rules to a block of rows.

    Raises
    ------
    TraceError : the rows do not agree in the number of tokens that an id stands for, or do not say it.
    """
    rows = _without_arrivals(rows, reader)
    table, forms = rows.table, dict[str, str]()
    rows, cells, problems = _cells(rows, table, reader)
    if any(problem.reason.endswith(_OF_OTHER_FORM) for problem in problems):
        table, forms = plain_numbers(table)
        rows, cells, problems = _cells(rows, table, reader)
    lists, block_tokens = _id_lists(rows.table), None
    if lists is not None:
        block_tokens = reader.block_tokens or _block_tokens(source, rows)
        problems += _list_problems(lists, cells["input_tokens"][1], block_tokens, reader)
    bad, dropped, first_fault = _judge(rows, problems)
    keep = pl.Series(~bad)
    kept_lists = None if lists is None else lists.filter(keep)
    return Checked(
        table=_table({name: value for name, (_, value) in cells.items()}, rows, keep),
        own_ids="request_id" in cells and cells["request_id"][1].null_count() < len(bad),
        id_lengths=None if kept_lists is None else kept_lists.list.len().fill_null(0).cast(pl.Int64).to_numpy(),
        ids=None if kept_lists is None else kept_lists.filter(kept_lists.list.len() > 0).explode(),
        block_tokens=block_tokens,
        dropped=dropped,
        first_fault=first_fault,
        forms=forms,
    )


def _cells(rows: BlockRows, table: pl.DataFrame, reader: Reader) -> tuple[
        BlockRows, dict[str, tuple[pl.Series, pl.Series]], list[_Problem]]:
    """Return rows with a table's cells, each column's text and values, and their faults."""
    for name, prefix in (("input_tokens", PART), ("output_tokens", THOUGHTS)):
        table = _with_parts(_with_parts(table, name, prefix, 1), name, LESS + name, -1)
    rows = replace(rows, table=table)
    values = in_our_units(rows.table, reader)
    cells = {
        column.name: _typed(column, _text(rows.table, values, column.name), values[column.name])
        for column in _COLUMNS
        if column.name in values.columns
    }
    return rows, cells, [problem for name, (text, value) in cells.items()
                         for problem in _problems(name, text, value, reader)]


def _with_parts(table: pl.DataFrame, tokens: str, prefix: str, sign: int) -> pl.DataFrame:
    """Add to each count the parts that the file counts apart, or take them off; a part that is no number takes the
    count's place.
    """
    count = table[tokens] if tokens in table.columns else None
    for name in table.columns:
        if name.startswith(prefix) and count is not None:
            part = table[name]
            amount = numbers(part)
            both = numbers(count) + sign * amount.fill_null(0)
            is_wrong = amount.is_null() & part.is_not_null() & (part.cast(pl.String) != "")
            added = both.cast(pl.String).str.replace(r"\.0$", "")
            count = pl.Series(tokens, added.zip_with(both.is_not_null(), count.cast(pl.String)))
            count = part.cast(pl.String).zip_with(is_wrong, count).alias(tokens)
    return table if count is None else table.with_columns(count)


def _without_arrivals(rows: BlockRows, reader: Reader) -> BlockRows:
    """Leave out arrivals that a format need not have, if no row of a block has one; carry them along sessions."""
    table = rows.table
    if reader.arrivals == "recorded" or "arrival_s" not in table.columns:
        return rows
    if reader.carries_arrivals and "session_id" in table.columns:
        carried = pl.col("arrival_s").forward_fill().over("session_id")
        table = table.with_columns(pl.when(pl.col("session_id").is_not_null()).then(carried).otherwise("arrival_s"))
        rows = replace(rows, table=table)
    empty = table["arrival_s"].null_count() == table.height
    return replace(rows, table=table.drop("arrival_s")) if empty else rows


def _text(raw: pl.DataFrame, values: pl.DataFrame, name: str) -> pl.Series:
    """Return a column's cells as in the file; one that follows from others has its values as text."""
    return raw[name] if name in raw.columns else values[name].cast(pl.String)


def _typed(column: Column, text: pl.Series, value: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Parse a column that the reader left as strings; cells that hold nothing but blanks are empty."""
    if column.dtype == "str":
        text = _none_where(text, text == "")
        return text, text
    if not value.dtype.is_temporal():
        value = numbers(value)
    if value.null_count() > text.null_count():
        text = text.str.strip_chars()
        text = _none_where(text, text == "")
    return text, value


def _none_where(text: pl.Series, empty: pl.Series) -> pl.Series:
    return text.set(empty, None) if empty.any() else text


def _problems(name: str, text: pl.Series, value: pl.Series, reader: Reader) -> Iterator[_Problem]:
    """Find the cells of a column that break its rules, the first rule to apply first."""
    rules = list(_rules(name, value.dtype, stands_for_many=reader.counts != "no" and "num_requests" in reader.columns,
                        may_be_date=name in _TIMES and reader.clock == "either" and stated_unit(reader, name) is None))
    cells = pl.DataFrame({"text": text, "value": value})
    broken = cells.select(rule.broken.fill_null(False).alias(str(i)) for i, rule in enumerate(rules))
    total, rest = (ENDED, "e2e_s") if name == "arrival_s" and name not in reader.columns else (name, LESS + name)
    label = reader.columns.get(total, name)
    label += f" - {reader.columns[rest]}" if rest in reader.columns and label != name else ""
    ours = f"{name} " if label != name else ""
    for rule, mask in zip(rules, broken, strict=True):
        if mask.any():
            good = (value.is_not_null() & ~mask & (name in _TIMES)).arg_true()
            is_other_form = rule.reason.endswith(_OF_OTHER_FORM)
            expected = rule.expected
            if is_other_form and not good.is_empty():
                example = str(text[int(good[0])])
                expected = (f"in the unit of {example}: the times of a file must have one unit"
                            if is_numeral(example) and is_numeral(str(text[int(mask.arg_true()[0])])) else
                            f"{'a number' if is_numeral(example) else 'a date and time'}, like {example}: the times of "
                            f"a file must have one form")
            yield _Problem(
                rows=mask.arg_true().to_numpy().astype(np.int64),
                reason=rule.reason,
                text=partial(_cell_text, text, label, f"{ours}must be {expected}"),
                remedy=partial(_remedy, text) if is_other_form else None,
            )


def _remedy(text: pl.Series, row: int) -> str | None:
    """Return the remedy for a cell that is no number: None if it is no number of another form either."""
    cell = "" if text[row] is None else str(text[row])
    if _OLDER.match(cell):
        return "day and month cannot be told apart; write dates as 2026-11-30"
    if _OF_DAY.match(cell):
        return "a time of day lacks its date; write 2026-11-30 10:00:00, or seconds as a number"
    is_separated = SEPARATED.match(cell.strip()) and (not is_numeral(cell) or GROUPED.match(cell.strip()))
    return REMEDY if is_separated else None


def _cell_text(text: pl.Series, label: str, wanted: str, row: int) -> str:
    cell = text[row]
    if cell is None:
        return f"{label} is empty; {wanted}"
    cell = str(cell)
    return f"{label} = {cell if len(cell) <= 60 else cell[:57] + '...'}; {wanted}"


def _rules(name: str, dtype: pl.DataType, *, stands_for_many: bool,
           may_be_date: bool) -> Iterator[_RowRule]:
    """List the possible faults of a column's cells, by its declaration in the schema.

    Parameters
    ----------
    stands_for_many : a row may be a sum over many requests, which has no bounds.
    may_be_date : a number stands for a time that may also be a date.
    """
    column = next(column for column in _COLUMNS if column.name == name)
    text, value = pl.col("text"), pl.col("value")
    if name in REQUIRED_TRACE_COLUMNS:
        yield _RowRule(broken=text.is_null(), reason=f"{name} is missing", expected="given")
    if column.dtype == "str":
        return
    what = "a number" if dtype.is_numeric() else "a date and time"
    yield _RowRule(broken=value.is_null() & text.is_not_null(), reason=f"{name} is not {what}",
                   expected=f"{what} or a date and time" if may_be_date and dtype.is_numeric() else what)
    if not dtype.is_numeric():
        return
    yield _RowRule(broken=~value.is_finite(), reason=f"{name} is not finite", expected="finite")
    if stands_for_many and column.unit == "tokens":
        column = replace(column, minimum=0, maximum=None)
    if column.minimum is not None:
        low = f"{column.minimum:.0f}"
        yield _RowRule(broken=value < column.minimum, reason=f"{name} < {low}", expected=f">= {low}")
    if column.maximum is not None:
        high = f"{column.maximum:.0f}"
        yield _RowRule(broken=value > column.maximum, reason=f"{name} > {high}", expected=f"<= {high}" + (
            ", or all times count from 1970 in one unit" if may_be_date else ""))
    if column.dtype == "int":
        whole = "a whole number"
        yield _RowRule(broken=value != value.floor(), reason=f"{name} is not {whole}", expected=whole)


def _id_lists(table: pl.DataFrame) -> pl.Series | None:
    if "hash_ids" not in table.columns or table["hash_ids"].null_count() == table.height:
        return None
    return table["hash_ids"]


def _block_tokens(source: str, rows: BlockRows) -> int:
    """Read the one value of `hash_block_tokens` in a block."""
    def error(row: int, what: str) -> TraceError:
        return TraceError(f"trace {source} {rows.place} {rows.lines[row]}: {what}")

    text = (rows.table["hash_block_tokens"] if "hash_block_tokens" in rows.table.columns
            else pl.Series([None] * rows.table.height, dtype=pl.String))
    value = numbers(text)

    filled = text.is_not_null().arg_true()
    if filled.is_empty():
        raise error(
            int(rows.table["hash_ids"].is_not_null().arg_true()[0]),
            "hash_ids without hash_block_tokens; must say how many tokens one id stands for (add the key to every row)",
        )
    first = int(filled[0])
    tokens = value[first]
    if tokens is None or not 1 <= tokens <= MAX_TOKENS or tokens != int(tokens):
        raise error(first, f"hash_block_tokens = {text[first]}; must be a whole number >= 1")
    others = (text.is_not_null() & value.ne_missing(tokens)).arg_true()
    if not others.is_empty():
        row = int(others[0])
        raise error(
            row,
            f"hash_block_tokens = {text[row]}, but {text[first]} on {rows.place} {rows.lines[first]}; "
            "must be one value in the file (split the file)",
        )
    return int(tokens)


def _list_problems(
    lists: pl.Series, input_tokens: pl.Series, block_tokens: int, reader: Reader
) -> Iterator[_Problem]:
    """Find the rows whose ids do not fit the prompt, or hold a null."""
    num_ids = lists.list.len()
    if reader.id_blocks != "any":  # elsewhere, ids beyond the prompt are cut off with it
        blocks = input_tokens / block_tokens
        num_blocks = blocks.ceil() if reader.id_blocks == "all" else blocks.floor()
        yield _Problem(
            rows=(num_ids != num_blocks).fill_null(False).arg_true().to_numpy().astype(np.int64),
            reason="hash_ids do not fit the prompt",
            text=lambda row: (
                f"hash_ids has {num_ids[row]} ids; must have {num_blocks[row]:.0f} for {input_tokens[row]:.0f} "
                f"input tokens in blocks of {block_tokens}"
            ),
        )
    if lists.explode().null_count() > lists.null_count() + (num_ids == 0).sum():
        null = lists.list.eval(pl.element().is_null()).list.any().fill_null(False)
        yield _Problem(
            rows=null.arg_true().to_numpy().astype(np.int64),
            reason="hash_ids holds null",
            text=lambda row: "hash_ids holds null; must hold integers or strings",
        )


def _judge(rows: BlockRows, problems: list[_Problem]) -> tuple[NDArray[np.bool_], Counter[str], BadRow | None]:
    """Mark the bad rows, count each under its first reason, and describe the first of them."""
    bad = np.zeros(rows.table.height, dtype=np.bool_)
    dropped = Counter(fault.reason for fault in rows.faults)
    firsts = list(rows.faults[:1])
    for problem in problems:
        new = problem.rows[~bad[problem.rows]]
        if len(new):
            bad[new] = True
            dropped[problem.reason] += len(new)
            row = int(new[0])
            firsts.append(BadRow(line=int(rows.lines[row]), reason=problem.reason, text=problem.text(row),
                                 remedy=None if problem.remedy is None else problem.remedy(row)))
    return bad, dropped, min(firsts, key=lambda fault: fault.line, default=None)


def _table(values: Mapping[str, pl.Series], rows: BlockRows, keep: pl.Series) -> pl.DataFrame:
    """Put the good rows' columns together, with their lines, and number the requests that have no id."""
    ids = pl.Series(rows.numbers).cast(pl.UInt32)
    names = values.get("request_id")
    if names is not None and names.null_count() < names.len():
        ids = names.zip_with(names.is_not_null(), ids.cast(pl.String))
    kept = {name: value for name, value in values.items() if name not in (FIRST_TOKEN, ENDED)}
    columns = {name: value for name, value in kept.items() if value.null_count() < value.len()}
    columns |= {"request_id": ids, "line": pl.Series(rows.lines).cast(pl.UInt32)}
    table = pl.DataFrame(columns)
    table = table if keep.all() else table.filter(keep)
    whole = [column.name for column in _COLUMNS if column.dtype == "int" and column.name in columns]
    return table.with_columns(pl.col(whole).cast(pl.Int64))
