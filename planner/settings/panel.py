"""How an option of a scenario is declared: in its panel, with a default and its help."""

from collections.abc import Callable
from dataclasses import field
from typing import Any


def in_panel(panel: str) -> Callable[[Any, str], Any]:
    """Return a function that declares an option of a panel, from its default and its help."""
    def option(default: Any, meaning: str) -> Any:
        return field(default=default, metadata={"panel": panel, "help": meaning})

    return option
