"""Text of lines and tables: a table knows its columns, so a narrow terminal gets it in parts below each other."""

import itertools
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

COMMAND = re.compile(r"(^|: )(launch|to check)[^:]*: |(^|: )planner ")  # a line that is copied stays whole
GAP = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of text.

    Parameters
    ----------
    heads : of the columns; all empty for none.
    rows : cells. A row with fewer cells than columns ends in a sentence; a text alone is a title between rows.
    left : columns that are read from the left; -1 is the last.
    indent : spaces before each row.
    notes : lines below the rows.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str] | str]
    left: Sequence[int] = (0,)
    indent: int = 0
    notes: Sequence[str] = ()

    def lines(self, width: int | None = None) -> list[str]:
        """Return a line for each row, or parts of the columns below each other if a row is wider than `width`."""
        return [*self._table(width), *(part for note in self.notes for part in wrapped(note, width))]

    def _table(self, width: int | None) -> list[str]:
        regular = [row for row in self._rows() if self._is_regular(row)]
        sizes = [max((len(row[place]) for row in regular), default=0) for place in range(len(self.heads))]
        every = range(len(self.heads))
        lines = [" " * self.indent + self._line(row, every, sizes) if not isinstance(row, str) else row
                 for row in self._rows()]
        if width is None or all(len(line) <= width for line in lines):
            return lines
        if all(len(line) <= width for row, line in zip(self._rows(), lines, strict=True) if self._is_regular(row)):
            return [part for line in lines for part in wrapped(line, width)]  # only sentences are too long
        return self._folded(sizes, width)

    def _rows(self) -> list[Sequence[str] | str]:
        return [*([self.heads] if any(self.heads) else []), *self.rows]

    def _is_regular(self, row: Sequence[str] | str) -> bool:
        return not isinstance(row, str) and len(row) == len(self.heads)

    def _line(self, row: Sequence[str], places: Sequence[int], sizes: Sequence[int]) -> str:
        """Return the cells of some columns as a line; a sentence at the row's end is not aligned."""
        left = {place % len(self.heads) for place in self.left}
        ends = len(row) - 1 if len(row) < len(self.heads) else len(row)
        cells = [row[k].ljust(sizes[k]) if k in left else row[k].rjust(sizes[k]) for k in places if k < ends]
        return GAP.join([*cells, *row[ends:]]).rstrip()

    def _folded(self, sizes: Sequence[int], width: int) -> list[str]:
        """Return parts of the columns, each with the columns that tell rows apart, or with numbers."""
        keys, count = self._num_keys(sizes, width // 2), len(str(len(self.rows)))
        room = width - sum(size + len(GAP) for size in sizes[:keys]) - (0 if keys else count + len(GAP))
        lines: list[str] = []
        for part in _filled(range(keys, len(self.heads)), sizes, room):
            is_last = part[-1] == len(self.heads) - 1
            lines += [""] * bool(lines)
            names = itertools.chain("#" * any(self.heads), map(str, itertools.count(1)))
            for row in self._rows():
                if isinstance(row, str):
                    lines += wrapped(row, width)
                    continue
                number = "" if keys else f"{next(names):>{count}}{GAP}"
                if self._is_regular(row):
                    lines.append(number + self._line(row, [*range(keys), *part], sizes))
                elif is_last:
                    lines += wrapped(number + GAP.join(cell for cell in row if cell), width)
        return lines

    def _num_keys(self, sizes: Sequence[int], most: int) -> int:
        """Return how many first columns tell rows apart; none if these need more than `most` characters."""
        rows = [row for row in self._rows() if self._is_regular(row)]
        for k in range(1, len(self.heads)):
            if len({tuple(row[:k]) for row in rows}) == len(rows):
                return k if sum(size + len(GAP) for size in sizes[:k]) <= most else 0
        return 0


@dataclass(frozen=True, slots=True)
class Text:
    """Lines and tables in order."""

    parts: Sequence[str | Grid]

    def lines(self, width: int | None = None) -> list[str]:
        """Return lines of at most `width` characters; commands and long words stay whole."""
        return [line for part in self.parts for line in (
            part.lines(width) if isinstance(part, Grid) else wrapped(part, width))]

    @property
    def words(self) -> list[str]:
        """The lines that are in no table."""
        return [part for part in self.parts if isinstance(part, str)]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def wrapped(text: str, width: int | None) -> list[str]:
    """Return lines, and a sentence that is too wide on several; a command stays on one."""
    if width is None or "\n" in text:
        return [part for line in text.split("\n") for part in (wrapped(line, width) if width else [line])]
    if len(text) <= width or COMMAND.search(text):
        return [text]
    indent = " " * (len(text) - len(text.lstrip()) + len(GAP))
    lines = textwrap.wrap(text.replace(" %", "\N{NO-BREAK SPACE}%"), width, subsequent_indent=indent,
                          break_long_words=False, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}%", " %") for line in lines]


def _filled(places: Sequence[int], sizes: Sequence[int], room: int) -> Iterator[list[int]]:
    """Yield as many columns at a time as there is room for."""
    part: list[int] = []
    for place in places:
        if part and sum(sizes[k] + len(GAP) for k in [*part, place]) - len(GAP) > room:
            yield part
            part = []
        part.append(place)
    yield part
