"""A reader: a trace format's name, the head by which it is known, and how its columns become ours."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

from planner.files.finite import is_number
from planner.files.nested import parse_json
from planner.settings.format_spec import INSTANTS

Layout = Literal["csv", "jsonl", "document", "table"]
TEXTS: tuple[Layout, ...] = ("csv", "table")
OBJECTS: tuple[Layout, ...] = ("jsonl", "document")
FLAT_OBJECTS: tuple[Layout, ...] = (*OBJECTS, "table")
ANY: tuple[Layout, ...] = (*TEXTS, *OBJECTS)
LAYOUT_NAMES = {"csv": "CSV", "jsonl": "JSONL", "document": "a JSON document", "table": "a table"}

# Formats whose columns the planner does not fix, so that a row may stand for many requests.
OF_REQUESTS = ("csv", "jsonl", "columns", "lengths")
STATISTICS = ("percentile", "percentiles", "quantile", "quantiles", "statistic", "statistics", "stat", "metric",
              "share", "fraction", "probability", "prob", "percent", "pct", "proportion")
MOST_KEYS = 12  # of an unknown file that an error names
SENT, FIRST_TOKEN, ENDED = INSTANTS  # beside the arrival, on its clock
MODEL = "model"
DEPLOYED = (MODEL, "gpu", "engine")  # that served a row; counted for notes and checks
PART = "part of the prompt "  # before the number of a column that is added to input_tokens
THOUGHTS = "thoughts"  # a column that is added to output_tokens
LESS = "less "  # before the name of a length whose column is a total: the column that is taken from the total
DEEPEST = 5  # keys below each other, that `Head.paths` looks through


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning of a file, from which its format is known.

    Parameters
    ----------
    layout : "csv"; "jsonl" if each line is an object; "document" if all of it is one JSON value; "table" if
        it is Parquet or comes from a database.
    columns : names in the header, or keys of the first hundred objects.
    objects : these objects, or a table's first rows; empty if the layout is "csv".
    line : number of the line that holds the header or the first object, from 1.
    separator : between the cells of CSV.
    """

    layout: Layout
    columns: tuple[str, ...]
    objects: tuple[Mapping[str, Any], ...] = ()
    line: int = 1
    separator: str = ","

    @property
    def first(self) -> Mapping[str, Any]:
        """The first object; empty without one."""
        return self.objects[0] if self.objects else {}

    @property
    def paths(self) -> tuple[str, ...]:
        """The columns, and for nested objects the paths of all values in them."""
        paths: dict[str, None] = dict.fromkeys(self.columns if not self.objects else ())
        for row in self.objects:
            paths.update(dict.fromkeys(_paths(row)))
        return tuple(paths)

    def has(self, path: str) -> bool:
        """Tell whether the file has a column: by its name, or as keys with dots between."""
        if path in self.columns:
            return True
        if self.layout in OBJECTS:
            return any(value_at(row, path) is not None for row in self.objects)
        return any(path[:at] in self.columns for at, sign in enumerate(path) if sign == ".")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Skip:
    """Rows that are no served requests by the format's own word: left out and counted, for any `on_bad_rows`.

    Parameters
    ----------
    reason : to count them under.
    where : true for such a row, over its cells as strings under our column names.
    """

    reason: str
    where: pl.Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One trace format.

    Parameters
    ----------
    name : the name that ``--format`` takes.
    meaning : one line for the help text.
    layouts : how files of the format are laid out.
    columns : our column -> the file's column, for each column of the format; in JSON, keys with dots between. Names
        that are none of ours serve `skips`, and the instants SENT, FIRST_TOKEN and ENDED.
    time : the unit and the zero of its times, in words.
    tokens : the program that counted its tokens, in words.
    matches : whether a file with this head is in this format.
    also : other names that versions of the format have for a column, tried in turn.
    units : the file's column -> its unit: "s", "ms", "us", "ns", or "date" for a wall clock's text; durations and
        instants that are not named here are in seconds.
    clock : "trace": arrivals count from the trace's start, and stay as they are; "other": they count from the
        earliest row; "either": from the earliest if they are later than any trace lasts, as seconds since 1970 are.
    arrivals : "recorded" in every row; "optional": in every row or in none; "absent".
    carries_arrivals : a row without an arrival has that of the row before it in its session.
    rows : the requests of one JSON value of the file (a line's, or the document's) as flat mappings; None if the
        value, or each element of a list, is one request. It gets the folder of the file, for files beside it.
    single : the file's values have clocks of their own, so that one of them alone is a trace.
    skips : rows that are left out.
    block_tokens : tokens that one of the row's `hash_ids` stands for, if the format fixes it; None: the file
        says so in `hash_block_tokens`, or has no ids.
    id_blocks : "all": the ids must cover the prompt exactly; "full": all blocks but a partial last one; "any": a
        prompt may go on beyond its ids, unshared.
    id_scope : "file": equal ids mean equal content; "session": only within a session.
    has_outputs : whether requests generate tokens; if not, no column of them is read, and each has one result.
    fills_times : measured times that follow from others are filled in; the planner's own files stay as they are.
    counts : meaning of a row with `num_requests`: "sums" over its requests, or "lengths" of each; "auto": found from
        the names and values; "no": every row is one request.
    unsure_time : the column of arrivals, if only its name says so: it must hold dates, or count from 1970.
    finish : function of the whole table, sorted by arrival.
    notes : facts that a user of any such file should know.
    head_notes : facts about one file, from its head.
    """

    name: str
    meaning: str
    layouts: tuple[Layout, ...]
    columns: Mapping[str, str]
    time: str
    tokens: str
    matches: Callable[[Head], bool]
    also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    clock: Literal["trace", "other", "either"] = "trace"
    arrivals: Literal["recorded", "optional", "absent"] = "recorded"
    carries_arrivals: bool = False
    rows: Callable[[Any, Path], Iterator[Mapping[str, Any]]] | None = None
    single: bool = False
    skips: tuple[Skip, ...] = ()
    block_tokens: int | None = None
    id_blocks: Literal["all", "full", "any"] = "any"
    id_scope: Literal["file", "session"] = "file"
    has_outputs: bool = True
    fills_times: bool = True
    counts: Literal["auto", "sums", "lengths", "no"] = "auto"
    unsure_time: str = ""
    finish: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    notes: tuple[str, ...] = ()
    head_notes: Callable[[Head], Iterator[str]] = lambda head: iter(())


def has_statistics(head: Head) -> bool:
    """Tell whether a file's rows are statistics or shares, by a column's name."""
    return any(name.strip().lower() in STATISTICS for name in head.columns)


def has_columns(*names: str) -> Callable[[Head], bool]:
    """Return a test for files that have all these columns."""
    return lambda head: all(head.has(name) for name in names)


def _paths(record: Mapping[str, Any], depth: int = DEEPEST) -> Iterator[str]:
    for key, value in record.items():
        if isinstance(value, Mapping) and value and depth > 1:
            yield from (f"{key}.{path}" for path in _paths(value, depth - 1))
        else:
            yield str(key)


def value_at(record: Any, path: str) -> Any:
    """Return the value of an object under a name, or under keys with dots between; None without one.

    Keys may have dots in them, at every level. An object may be inside a string, as databases export them, or be a list
    of keys and values, as attributes of spans are.

    >>> value_at({"attributes": {"gen_ai.usage": {"input_tokens": {"value": 5}}}},
    ...          "attributes.gen_ai.usage.input_tokens.value")
    5
    >>> value_at({"tags": [{"key": "llm.tokens", "value": 7}]}, "tags.llm.tokens")
    7
    """
    if isinstance(record, str) and record.startswith("{"):
        record = _parsed(record)
    if isinstance(record, list):
        record = {str(pair.get("key")): pair.get("value") for pair in record if isinstance(pair, Mapping)}
    if not isinstance(record, Mapping):
        return None
    if path in record:
        return record[path]
    splits = ((path[:at], path[at + 1:]) for at, sign in enumerate(path) if sign == "." and path[:at] in record)
    return next((value for key, rest in splits if (value := value_at(record[key], rest)) is not None), None)


def first_at(record: Any, paths: Iterable[str]) -> Any:
    """Return the value of an object under the first of several paths that has one; None if none has."""
    return next((value for path in paths if (value := value_at(record, path)) is not None), None)


def total(*values: Any) -> Any:
    """Add up JSON values; the first that is no number is returned as it is, so that the check names it.

    >>> total(1, 0.5), total(1, "x"), total(None, 1)
    (1.5, 'x', None)
    """
    for value in values:
        if not is_number(value):
            return value
    return sum(values)


def between(begin: Any, end: Any) -> Any:
    """Subtract one JSON value from another; None if one of them is no number.

    >>> between(0.5, 2), between(None, 2)
    (1.5, None)
    """
    return end - begin if is_number(begin) and is_number(end) else None


def _parsed(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return None
