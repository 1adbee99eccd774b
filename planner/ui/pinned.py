"""Scenarios that a session has pinned: Replay draws the first behind its own result, Compare shows all side by side."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from planner.errors import UsageError
from planner.report.difference_words import scenario_names
from planner.ui.kept_replays import study_key
from planner.ui.own_profiles import portable
from planner.ui.replay_tasks import Asked

MOST = 4
MOST_BYTES = 256 * 2**20  # of the traces of pinned scenarios
PINS = "pins"  # in the session's state


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A pinned scenario, with the key of its result."""

    asked: Asked
    key: str


def pins() -> list[Pin]:
    """Return the pinned scenarios, in the order in which they were pinned."""
    found: list[Pin] = st.session_state.setdefault(PINS, [])
    return found


def pin_of(asked: Asked) -> Pin | None:
    """Return the pin of a scenario; None if it is not pinned."""
    key = study_key(asked.trace, asked.study)
    return next((each for each in pins() if each.key == key), None)


def can_pin(asked: Asked) -> bool:
    """Tell whether there is room for a scenario that is not pinned yet."""
    return len(pins()) < MOST and pin_of(asked) is None


def pin(asked: Asked) -> None:
    """Pin a scenario.

    Raises
    ------
    UsageError : the traces of all pinned scenarios take too much memory.
    """
    if not can_pin(asked):
        return
    traces = {each.trace.sha256: each.trace for each in (*(each.asked for each in pins()), asked)}
    if sum(trace.requests.estimated_size() for trace in traces.values()) > MOST_BYTES:
        raise UsageError(f"the traces of the pinned scenarios take more than {MOST_BYTES // 2**20} MiB; remove some, "
                         f"or use planner compare")
    pins().append(Pin(asked=asked, key=study_key(asked.trace, asked.study)))


def unpin(key: str) -> None:
    """Remove a pinned scenario."""
    pins()[:] = [each for each in pins() if each.key != key]


def named(asked: Sequence[Asked], given: Sequence[str | None] = ()) -> list[Asked]:
    """Return scenarios with the names that were given, else with names made of the settings that differ."""
    names: list[Any] = scenario_names([portable(each.study) for each in asked])
    return [replace(each, study=replace(each.study, name=own or name))
            for each, own, name in zip(asked, given or [None] * len(asked), names, strict=True)]
