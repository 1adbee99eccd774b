"""Scenarios that a session has pinned: Replay draws the first behind its own result, Compare shows all side by side.

The address has their settings as `pin`, so a link opens with the same scenarios.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

from planner.errors import UsageError
from planner.report.difference_words import scenario_names
from planner.ui.kept_replays import study_key
from planner.ui.kept_settings import Setting
from planner.ui.own_profiles import portable
from planner.ui.replay_tasks import ReplayQuestion
from planner.ui.settings_text import name_of, scenarios, settings_of, settings_text, with_name
from planner.ui.sidebar import asked_of

MOST = 4
MOST_BYTES = 256 * 2**20  # of the traces of pinned scenarios
PIN = "pin"  # in the session's state and in the address: the settings of each, as text
PINS = "pins"  # in the session's state
PIN_SETTINGS = {PIN: Setting(first=[], values=scenarios, read=list)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A pinned scenario.

    Parameters
    ----------
    asked : the scenario.
    key : of its result.
    text : its settings and its own name, as the address has them.
    """

    asked: ReplayQuestion
    key: str
    text: str

    @property
    def name(self) -> str:
        """The name that the user gave; empty for one made of the settings that differ."""
        return name_of(self.text)


def pins() -> list[Pin]:
    """Return the pinned scenarios, in the order in which they were pinned; at first the link's scenarios.

    Raises
    ------
    UsageError : the link has too many, or one replays a file that is not uploaded yet.
    """
    if PINS not in st.session_state:
        texts = st.session_state[PIN]
        if len(texts) > MOST:
            raise UsageError(f"pin: the link has {len(texts)} pinned scenarios; a page compares up to {MOST}. Remove "
                             f"some from the address")
        st.session_state[PINS] = [_linked(text) for text in texts]
    found: list[Pin] = st.session_state[PINS]
    return found


def pin_of(asked: ReplayQuestion) -> Pin | None:
    """Return the pin of a scenario; None if it is not pinned."""
    key = study_key(asked.trace, asked.study)
    return next((each for each in pins() if each.key == key), None)


def can_pin(asked: ReplayQuestion) -> bool:
    """Tell whether there is room for a scenario that is not pinned yet."""
    return len(pins()) < MOST and pin_of(asked) is None


def pin(asked: ReplayQuestion) -> None:
    """Pin the sidebar's scenario.

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
    _keep([*pins(), Pin(asked=asked, key=study_key(asked.trace, asked.study), text=settings_text())])


def unpin(key: str) -> None:
    """Remove a pinned scenario."""
    _keep([each for each in pins() if each.key != key])


def rename(key: str, name: str) -> None:
    """Give a pinned scenario a name, which its link has too; an empty one leaves it to the settings that differ."""
    _keep([replace(each, text=with_name(each.text, name.strip())) if each.key == key else each for each in pins()])


def usual_names(asked: Sequence[ReplayQuestion]) -> list[str]:
    """Return names of scenarios, made of the settings that differ."""
    return scenario_names([portable(each.study) for each in asked])


def named(asked: Sequence[ReplayQuestion]) -> list[ReplayQuestion]:
    """Return scenarios with the names of their pins, else with names made of the settings that differ."""
    given = [None if (own := pin_of(each)) is None else own.name for each in asked]
    return [replace(each, study=replace(each.study, name=own or usual))
            for each, own, usual in zip(asked, given, usual_names(asked), strict=True)]


def _keep(found: list[Pin]) -> None:
    """Keep pinned scenarios, and their settings for the address."""
    st.session_state[PINS] = found
    st.session_state[PIN] = [each.text for each in found]


def _linked(text: str) -> Pin:
    """Return the pinned scenario of a link."""
    said = asked_of(settings_of(text))
    if said.trace is None:
        raise UsageError("pin: a pinned scenario of this link replays your file; upload it")
    asked = ReplayQuestion(trace=said.trace, study=said.study)
    return Pin(asked=asked, key=study_key(asked.trace, asked.study), text=text)
