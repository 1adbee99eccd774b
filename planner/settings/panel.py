"""How an option of a scenario is declared: in its panel, with its default, help, words, unit, engines and range."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ATOM, SGLANG, TEI = ("atom",), ("sglang",), ("tei",)  # engines that have an option
TRTLLM, VLLM = ("trtllm",), ("vllm",)
NONE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Label:
    """An option in words.

    Parameters
    ----------
    words : with a small first letter, unless it is a name.
    unit : of the value; "" for none.
    engines : that have the option; none for all.
    """

    words: str
    unit: str = ""
    engines: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The words with their unit, as a field has them.

        >>> Label("skip the first part of the log", "s").title
        'Skip the first part of the log [s]'
        """
        return f"{self.words[0].upper()}{self.words[1:]}" + (f" [{self.unit}]" if self._has_unit else "")

    def value_text(self, value: Any) -> str:
        """Return the words with a value.

        >>> Label("chunk size", "tokens").value_text(8192), Label("chunked prefill").value_text(False)
        ('chunk size 8,192 tokens', 'chunked prefill off')
        """
        if isinstance(value, bool):
            return f"{self.words} {'on' if value else 'off'}"
        text = f"{value:,g}" if isinstance(value, float) and abs(value) < 1e6 else (
            f"{value:,}" if isinstance(value, int | float) else str(value))
        return f"{self.words} {text}" + (f" {self.unit}" if self._has_unit else "")

    @property
    def _has_unit(self) -> bool:
        """Whether there is a unit that the words do not have already."""
        return self.unit != "" and self.unit not in self.words.replace(",", "").split()


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers that an option can have.

    Parameters
    ----------
    least, most : bounds in the range; None without one.
    above, below : bounds outside the range; None without one.
    is_finite : whether infinity is outside the range.
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    is_finite: bool = False

    def __contains__(self, value: float) -> bool:
        return ((self.least is None or value >= self.least) and (self.most is None or value <= self.most)
                and (self.above is None or value > self.above) and (self.below is None or value < self.below)
                and (not self.is_finite or math.isfinite(value)))

    def __str__(self) -> str:
        """The range in words.

        >>> str(Range(least=0, below=1)), str(Range(above=0, is_finite=True))
        ('at least 0 and below 1', 'above 0 and finite')
        """
        bounds = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        words = [f"{word} {bound:,g}" for word, bound in bounds.items() if bound is not None]
        return " and ".join([*words, *(["finite"] if self.is_finite else [])])


def in_panel(panel: str) -> Callable[..., Any]:
    """Return a function that declares an option of a panel."""
    def option(default: Any, meaning: str, *, label: str, unit: str = "", engines: tuple[str, ...] = (),
               no_limit: bool = False, needs: Mapping[str, str] = NONE, excludes: Mapping[str, str] = NONE,
               **bounds: Any) -> Any:
        """Declare an option.

        Parameters
        ----------
        default, meaning : its default and its help.
        label, unit, engines : its words in forms (`Label`).
        no_limit : whether the scheduler takes 0 for no limit.
        needs, excludes : options without which, and with which, it cannot be set, each with the reason.
        bounds : of the numbers that it can have (`Range`). None, for an option without a value, is in every range.
        """
        return field(default=default, metadata={
            "panel": panel, "help": meaning, "label": Label(label, unit, engines), "no_limit": no_limit,
            "needs": needs, "excludes": excludes,
            "range": Range(**bounds) if bounds else None})

    return option
