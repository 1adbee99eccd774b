"""Numbers and commands as tables of text have them."""

from collections.abc import Sequence
from typing import Any

from planner.files.counts import share_text
from planner.planning.search_options import MOST_LOAD
from planner.settings.statistic import is_share


def number_text(value: Any, key: str = "") -> str:
    """Return a value as a cell, a share in per cent if the summary's key says that it is one.

    >>> number_text(1234), number_text(1.5), number_text("fcfs"), number_text(0.5, "mfu")
    ('1,234', '1.500', 'fcfs', '50 %')
    """
    if isinstance(value, float) and is_share(key):
        return share_text(value)
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def cell_text(value: Any, key: str = "") -> str:
    """Return a value as `number_text` does; a dash if there is none."""
    return "–" if value is None else number_text(value, key)


def headroom_text(share: float | None) -> str:
    """Return the growth of the load that a fleet bears.

    >>> headroom_text(0.351), headroom_text(111.4), headroom_text(None)
    ('35.1 %', '> 10 ×', 'no end')
    """
    if share is None:
        return "no end"
    return share_text(share) if share < MOST_LOAD - 1 else f"> {MOST_LOAD:g} ×"


def launch_line(command: str, lacking: Sequence[str], of: str = "") -> str:
    """Return the command that launches an answer, or a part of it, and the options that it lacks."""
    without = f"  (lacks {', '.join(lacking)})" if lacking else ""
    return f"launch{of}: {command}{without}"


def replay_lines(command: str | None, words: str = "to check") -> list[str]:
    """Return a line with the command that replays an answer, for a check; nothing without a command."""
    return [] if command is None else [f"{words}: {command}"]
