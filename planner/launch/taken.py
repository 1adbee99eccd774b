"""What a launch sets so far: options, and flags that set none, by their effect on a prediction."""

from dataclasses import dataclass, field
from typing import Any

from planner.engines import ENGINES
from planner.engines.dialect import Dialect


@dataclass(slots=True)
class Taken:
    """What a launch sets.

    Parameters
    ----------
    engine : that it launches.
    role : of the engine in a fleet: prefill, decode, or both.
    found : options of `Scenario` by name, and what is settled with others later.
    no_effect : flags that set none and have no effect on a prediction, as they were written; of variables their names.
    unmodelled : flags that would change the answer, each with its effect.
    unknown : flags that are not the engine's.
    written : values of options as the flags have them, by name.
    """

    engine: str
    role: str = "both"
    found: dict[str, Any] = field(default_factory=dict)
    no_effect: list[str] = field(default_factory=list)
    unmodelled: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.found["engine"] = self.engine

    @property
    def dialect(self) -> Dialect:
        """Return the engine's flags."""
        return ENGINES[self.engine].dialect
