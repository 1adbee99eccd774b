"""The settings of a launch so far: options, and flags that set none, by their effect on a prediction."""

from dataclasses import dataclass, field
from typing import Any

from planner.engines import ENGINES
from planner.engines.dialect import Dialect
from planner.errors import UsageError

REMEDY = ('give the commands of both roles to a fleet\'s file: from_command of a [[pool]] with role = "prefill", and '
          'of another with role = "decode"')


@dataclass(slots=True)
class Taken:
    """The settings of a launch.

    Parameters
    ----------
    engine : that it launches.
    role : of the engine in a fleet: prefill, decode, or both.
    found : options of `Scenario` by name, and values that are settled with others later.
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


def take_role(taken: Taken, flag: str, role: str | None) -> None:
    """Check a role that a flag gives an engine against the pool that it is in; None is no role.

    Raises
    ------
    UsageError : the engine is to serve requests whole, or has the other role.
    """
    if role is None or taken.role == role:
        return
    if taken.role == "both":
        raise UsageError(f"--from-command: {flag} makes the engine a part of a deployment with separate prefill and "
                         f"decode, and one engine for both is predicted; {REMEDY}")
    raise UsageError(f"--from-command: {flag} makes the engine one for {role}, and its pool has role = "
                     f"{taken.role!r}; give the command to the other pool")
