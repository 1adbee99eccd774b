"""A format's spec: its name, the file's names and units of columns, and which rows count, in one text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from planner.errors import UnknownNameError, UsageError
from planner.schema import TRACE_COLUMNS
from planner.settings.declared_options import declare

NAME = "columns"
INSTANTS = ("sent_at_s", "first_token_at_s", "ended_at_s")  # from which measured times follow
MAPPED = (*(column.name for column in TRACE_COLUMNS), *INSTANTS, "hash_ids", "hash_block_tokens",
          "num_requests")


def spec_of(format: str | None, columns: Sequence[str] | None, where: Sequence[str] | None) -> str | None:
    """Put a format, a map of columns and conditions together in one text, as `parse_format` takes it.

    >>> spec_of(None, ["input_tokens=prompt_tokens"], ["model=llama"])
    'columns,input_tokens=prompt_tokens,where model=llama'
    """
    items = [*(columns or ()), *(f"where {test}" for test in where or ())]
    for item in items:
        if "=" not in item or "," in item:
            raise UsageError(f"--column {item!r}: must be OURS=THEIRS or OURS=THEIRS:UNIT without commas, as in "
                             f"--column arrival_s=ts:ms; --where is THEIRS=VALUE")
    return ",".join([format or NAME, *items]) if items else format


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a file of requests is read: its format, columns and rows."""

    format: str | None = declare(None, "Trace format; docs/formats.md lists them. [detected]")
    column: list[str] | None = declare(None, "Column map, OURS=THEIRS or OURS=THEIRS:UNIT, as in 'arrival_s=ts:ms' or "
                                             "'input_tokens=usage.prompt'. Repeatable.")
    where: list[str] | None = declare(None, "Keep only rows with this value in a column of the file: "
                                            "'model=llama-70b'. Repeatable.")
    on_bad_rows: Literal["error", "drop"] = declare("error", "Stop at a bad row, or drop and count it.")

    @property
    def spec(self) -> str | None:
        """The format, the map of columns and the conditions in one text."""
        return spec_of(self.format, self.column, self.where)


def over(spec: str | None, default: str | None) -> str | None:
    """Return a spec with the parts that only a default spec has: its format, columns and conditions.

    >>> over("columns,where model=a", "columns,arrival_s=ts:ms")
    'columns,arrival_s=ts:ms,where model=a'
    """
    if spec is None or default is None:
        return spec or default
    (name, columns, where), (other, more_columns, more_where) = parse_format(spec), parse_format(default)
    items = [f"{ours}={theirs}" for ours, theirs in {**more_columns, **columns}.items()]
    return ",".join([other if name == NAME else name, *items,
                     *(f"where {path}={value}" for path, value in {**more_where, **where}.items())])


OF_TABLES = ("format", "column", "where")  # options of files whose bad rows are errors


def parse_format(spec: str) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
    """Return the name of a format, and the columns and conditions on rows in its spec.

    A spec is ``NAME``, or ``NAME,OURS=THEIRS:UNIT,…,where THEIRS=VALUE,…``.

    Raises
    ------
    UsageError : an item is neither; UnknownNameError if it names none of our columns.
    """
    name, *items = spec.split(",")
    columns: dict[str, str] = {}
    where: dict[str, str] = {}
    for item in items:
        left, equals, right = (part.strip() for part in item.strip().partition("="))
        if not equals or not right:
            raise UsageError(f"format {spec!r}: {item!r} must be OURS=THEIRS, OURS=THEIRS:UNIT or where THEIRS=VALUE")
        if left.startswith("where "):
            where[left.removeprefix("where ").strip()] = right
        elif left not in MAPPED:
            raise UnknownNameError("trace column", left, MAPPED)
        else:
            columns[left] = right
    return name.strip(), columns, where
