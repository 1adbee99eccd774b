"""Results of a sweep on disk: rows of an earlier output, and rows in the journal beside it."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from planner.errors import PlannerError
from planner.files.nested import parse_json
from planner.files.table_file import DAMAGE
from planner.files.writing import append_text

OWN = "summary_"  # before a number of the summary that has an option's name, if that option is an axis
OF_THE_PLAN = ("is_pareto", "misses")  # columns that depend on the other rows or on the limits
PART = 1000  # rows of the journal that are in memory as dictionaries at once


class SweepStore:
    """Results by key. Memory has their keys and places; the rows of the journal stay on disk until a table is made.

    Parameters
    ----------
    output : Parquet file of an earlier run, if there is one. The journal is `OUTPUT.journal`.

    Raises
    ------
    PlannerError : the output is not a table of a sweep.
    """

    def __init__(self, output: Path) -> None:
        self._journal = output.with_name(f"{output.name}.journal")
        self._settled, keys = _earlier(output)
        self._row = {key: row for row, key in enumerate(keys)}  # in the settled table
        self._offset: dict[str, int] = {}  # in the journal [bytes]
        self._size = 0
        if self._journal.exists():
            self._read_journal()

    def __len__(self) -> int:
        return len(self._row.keys() | self._offset.keys())

    def __contains__(self, key: str) -> bool:
        return key in self._offset or key in self._row

    def __getitem__(self, key: str) -> dict[str, Any]:
        """Return the result of a key: `status`, and the numbers if it is done."""
        if key in self._offset:
            with self._journal.open("rb") as file:
                file.seek(self._offset[key])
                return dict(json.loads(file.readline())["row"])
        row = self._settled.row(self._row[key], named=True)
        return row if row["status"] == "done" else {"status": row["status"]}

    def add(self, key: str, row: Mapping[str, Any]) -> None:
        """Keep a result in the journal.

        Raises
        ------
        OutputError : it cannot be written.
        """
        line = json.dumps({"key": key, "row": row}) + "\n"
        append_text(self._journal, line)
        self._offset[key] = self._size
        self._size += len(line.encode())

    def table(self, keys: Sequence[str]) -> pl.DataFrame:
        """Return the results of keys, in their order: `status`, and all numbers that any has."""
        parts = []
        for start in range(0, len(keys), PART):
            rows = [self[key] for key in keys[start : start + PART]]
            names = dict.fromkeys(name for row in rows for name in row)
            parts.append(pl.DataFrame({name: [row.get(name) for row in rows] for name in names}, strict=False))
        return pl.concat(parts, how="diagonal_relaxed", rechunk=True)

    def settle(self, keys: Sequence[str], table: pl.DataFrame) -> None:
        """Take a table of keys, which has been written, for all results, and remove the journal."""
        self._settled, self._row = table, {key: row for row, key in enumerate(keys)}
        self._offset, self._size = {}, 0
        self._journal.unlink(missing_ok=True)

    def _read_journal(self) -> None:
        """Find the places of all rows; a line that was cut off is left out, and its row is done again."""
        line = b"\n"
        with self._journal.open("rb") as file:
            for line in file:
                with contextlib.suppress(ValueError):
                    self._offset[parse_json(line.decode())["key"]] = self._size
                self._size += len(line)
        if not line.endswith(b"\n"):
            append_text(self._journal, "\n")
            self._size += 1


def _earlier(output: Path) -> tuple[pl.DataFrame, list[str]]:
    """Return the results and the keys of an earlier output; none if there is no file."""
    if not output.exists():
        return pl.DataFrame(), []
    try:
        table = pl.read_parquet(output)
        names = table.columns[table.columns.index("status") :]
        own = [name for name in names if name not in OF_THE_PLAN]
        return table.select(pl.col(name).alias(name.removeprefix(OWN)) for name in own), table["key"].to_list()
    except (KeyError, ValueError, *DAMAGE) as error:
        raise PlannerError(f"{output}: is not a table of planner sweep: {error}; move it away") from error
