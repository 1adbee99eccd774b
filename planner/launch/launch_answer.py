"""The answer of `planner launch`: the options that a launch command stands for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from planner.files.keys import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAnswer:
    """The output of `planner launch --json`."""

    options: Annotated[Mapping[str, Any], Key("", "Options of the scenario that the launch command sets, by name")]
    replay_command: Annotated[str, Key("", "Command that replays the sample `chat` with these options")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each: flags that are not modelled or not known")]
