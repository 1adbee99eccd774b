"""Text for a terminal: tables that are too wide are folded, and sentences are broken between words."""

import itertools
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

CELL = re.compile(r"\S+(?: \S+)*")  # words with one space between
COMMAND = re.compile(r"(^|: )(launch|to check)[^:]*: |(^|: )planner ")  # a line that is copied stays whole
FAR = 20  # columns of indentation from which on a single cell is a heading of a table
GAP = "  "


def fitted(text: str, stream: TextIO) -> str:
    """Return text with lines that a terminal shows without a break; the same text if the stream is no terminal."""
    return fitted_to(text, shutil.get_terminal_size().columns) if stream.isatty() else text


def fitted_to(text: str, width: int) -> str:
    """Return text whose lines have at most `width` characters; commands and long words stay whole.

    >>> print(fitted_to("gpu        USD/h   headroom\\nh100-sxm    5.98     30.4 %", 20))
    gpu       USD/h
    h100-sxm   5.98
    <BLANKLINE>
    gpu       headroom
    h100-sxm    30.4 %
    """
    return "\n".join(line for part in _parts(text.split("\n")) for line in (
        part.fitted(width) if isinstance(part, _Table) else _wrapped(part, width)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """Lines of a table.

    Parameters
    ----------
    lines : as printed; the first has the headings.
    regular : of each line, whether its cells are in the columns; others are titles, or end in a sentence.
    """

    lines: Sequence[str]
    regular: Sequence[bool]

    def fitted(self, width: int) -> list[str]:
        """Return the table with less space between columns, or in parts below each other."""
        for lines in (self.lines, squeezed := _squeezed(self.lines)):
            if _widest(lines) <= width:
                return list(lines)
        for lines in (self.lines, squeezed):
            if _widest(self._rows(lines)) <= width:  # only sentences are too long
                return [part for line in lines for part in _wrapped(line, width)]
        return self._folded(squeezed, width)

    def _rows(self, lines: Sequence[str]) -> list[str]:
        return [line for line, is_regular in zip(lines, self.regular, strict=True) if is_regular]

    def _folded(self, lines: Sequence[str], width: int) -> list[str]:
        """Return parts of the columns below each other, each with the columns that tell rows apart, or with numbers."""
        columns = _columns(self._rows(lines))
        keys = _keys(self._rows(lines), columns, width // 2)
        numbers = len(str(len(lines)))
        taken = sum(end - start + len(GAP) for start, end in keys) if keys else numbers + len(GAP)
        folded: list[str] = []
        for part in _filled(columns[len(keys) :], width - taken):
            folded += [""] * bool(folded)
            names = itertools.chain("#", map(str, itertools.count(1)))
            for line, is_regular in zip(lines, self.regular, strict=True):
                is_title = len(_cells(line)) == 1 and not is_regular
                number = "" if keys or is_title else f"{next(names):>{numbers}}{GAP}"
                text = _cut(line, [*keys, *part]) if is_regular else re.sub(r"(?<=\S) {2,}", GAP, line)
                if is_regular or is_title or part[-1] == columns[-1]:  # sentences stand in the last part
                    folded += _wrapped(number + text, width)
        return folded


def _parts(lines: Sequence[str]) -> Iterator[_Table | str]:
    """Yield tables, and the lines between them."""
    at = 0
    while at < len(lines):
        table = _table_at(lines, at)
        yield lines[at] if table is None else table
        at += 1 if table is None else len(table.lines)


def _table_at(lines: Sequence[str], at: int) -> _Table | None:
    """Return the table whose headings are in a line; None if the next line has no cells below them."""
    head, cells = lines[at], _cells(lines[at])
    if len(cells) < 2 and (not cells or cells[0][0] < FAR):
        return None
    kinds = [True]
    for k in range(at + 1, len(lines)):
        kind = _kind(lines[k], head)
        if kind is None and (k + 1 == len(lines) or len(_cells(lines[k])) != 1 or _kind(lines[k + 1], head) is None):
            break  # neither a row nor a title between two rows
        kinds.append(kind is True)
    return _Table(lines=lines[at : at + len(kinds)], regular=kinds) if len(kinds) > 1 else None


def _kind(line: str, head: str) -> bool | None:
    """Return True for a row with all cells below headings, False for one with a sentence at its end, None for neither.
    """
    cells = _cells(line)
    below = [_is_below(line, cell, head) for cell in cells]
    if len(cells) < 2 or not all(below[:-1]):
        return None
    return below[-1]


def _is_below(line: str, cell: tuple[int, int], head: str) -> bool:
    """Tell whether a cell, or its first word, begins or ends with a heading and is below no other heading.

    To the left of all headings are the names of rows.
    """
    (start, end), headings = cell, _cells(head)
    above = [(first, last) for first, last in headings if first < end and start < last]
    if len(above) != 1:
        return end <= headings[0][0]
    first, last = above[0]
    ends = {match.end() for match in re.finditer(r"\S+", head[:last])}
    return start == first or end in ends or start + len(line[start:end].split()[0]) in ends


def _cells(line: str) -> list[tuple[int, int]]:
    return [match.span() for match in CELL.finditer(line)]


def _widest(lines: Sequence[str]) -> int:
    return max(map(len, lines))


def _squeezed(lines: Sequence[str]) -> list[str]:
    """Return lines without the spaces that all lines with several cells have beyond two."""
    wide = [line.ljust(_widest(lines)) for line in lines if len(_cells(line)) > 1]
    kept, spaces = [], -1  # indentation stays
    for place, characters in enumerate(zip(*wide, strict=True)):
        is_space = set(characters) == {" "}
        spaces = 0 if not is_space else spaces + (spaces >= 0)
        if spaces <= len(GAP):
            kept.append(place)
    return ["".join(line[place] for place in kept if place < len(line)) if len(_cells(line)) > 1 else line
            for line in lines]


def _columns(rows: Sequence[str]) -> list[tuple[int, int]]:
    """Return the begin and the end of each column; all rows have two spaces between columns."""
    wide = [row.ljust(_widest(rows)) for row in rows]
    is_space = [set(characters) == {" "} for characters in zip(*wide, strict=True)]
    text = "".join(" " if blank else "x" for blank in is_space)
    return [match.span() for match in CELL.finditer(text)]


def _keys(rows: Sequence[str], columns: Sequence[tuple[int, int]], most: int) -> Sequence[tuple[int, int]]:
    """Return the first columns that tell rows apart; no column if these need more than `most` characters."""
    for k in range(1, len(columns)):
        names = {tuple(row[start:end] for start, end in columns[:k]) for row in rows}
        if len(names) == len(rows) and columns[k - 1][1] <= most:
            return columns[:k]
    return ()


def _filled(columns: Sequence[tuple[int, int]], room: int) -> Iterator[list[tuple[int, int]]]:
    """Yield as many columns at a time as there is room for."""
    part: list[tuple[int, int]] = []
    for column in columns:
        if part and sum(end - start + len(GAP) for start, end in [*part, column]) - len(GAP) > room:
            yield part
            part = []
        part.append(column)
    yield part


def _cut(line: str, columns: Sequence[tuple[int, int]]) -> str:
    return GAP.join(line[start:end].ljust(end - start) for start, end in columns).rstrip()


def _wrapped(line: str, width: int) -> list[str]:
    """Return a sentence on several lines; a command stays on one."""
    if len(line) <= width or COMMAND.search(line):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + len(GAP))
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
