"""Numbers and commands as tables of text have them."""

from collections.abc import Sequence
from typing import Any

MOST_TIMES = 10  # the load, from which on nobody asks how much more a fleet bears


def number_text(value: Any) -> str:
    """Return a value as a cell.

    >>> number_text(1234), number_text(1.5), number_text("fcfs")
    ('1,234', '1.500', 'fcfs')
    """
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def cell_text(value: Any) -> str:
    """Return the same, a dash where there is no value."""
    return "–" if value is None else number_text(value)


def headroom_text(share: float | None) -> str:
    """Return the growth of the load that a fleet bears.

    >>> headroom_text(0.351), headroom_text(111.4), headroom_text(None)
    ('35.1%', '> 10 ×', 'no end')
    """
    if share is None:
        return "no end"
    return f"{share:.1%}" if share < MOST_TIMES - 1 else f"> {MOST_TIMES} ×"


def launch_line(command: str, lacking: Sequence[str]) -> str:
    """Return the command that launches what was found, and what it lacks."""
    without = f"  (lacks {', '.join(lacking)})" if lacking else ""
    return f"launch: {command}{without}"


def replay_lines(command: str | None, words: str = "to check") -> list[str]:
    """Return the command that replays an answer, for a user who checks it; nothing if there is none."""
    return [] if command is None else [f"{words}: {command}"]
