"""Text for a terminal: no line is wider than the terminal."""

import shutil
from typing import TextIO

from planner.report.text import Text


def fitted(text: Text, stream: TextIO) -> str:
    """Return text with lines that a terminal shows without a break; without a change if the stream is no terminal."""
    width = shutil.get_terminal_size().columns if stream.isatty() else None
    return "\n".join(text.lines(width))
