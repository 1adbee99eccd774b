"""Chips below the title of each page: every setting that differs from a new page's, with a click that sets it back."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from planner.report.difference_words import setting_words
from planner.ui.all_settings import TENANTS
from planner.ui.calibration_form import calibration_source, drop_calibration
from planner.ui.kept_settings import changed
from planner.ui.option_fields import OPTION_SETTINGS
from planner.ui.targets_form import AS_TEXT, TARGET_SETTINGS, text_words
from planner.ui.words import plain


def chips() -> None:
    """Draw the chips; the log has none, since it stands in the sidebar and in each answer."""
    drawn: list[tuple[str, str, Callable[[], None]]] = []
    for option, value in changed(OPTION_SETTINGS):
        drawn.append((option, setting_words(option, value), partial(_reset_option, option)))
    if [*changed(TARGET_SETTINGS)]:
        drawn.append(("targets", f"targets {text_words()}", _reset_targets))
    if st.session_state["price"]:
        drawn.append(("price", "own prices", _reset_prices))
    if st.session_state.get(TENANTS) is not None:
        drawn.append(("tenants", "tenants file", _drop_tenants))
    if (source := calibration_source()) is not None:
        drawn.append(("calibration", f"constants fitted to {source}", drop_calibration))
    if not drawn:
        return
    with st.container(horizontal=True, gap="small", key="chips"):
        for key, text, reset in drawn:
            st.button(f"{plain(text)} ✕", key=f"chip_{key}", on_click=reset)
        if len(drawn) > 1:
            st.button("reset all", key="chip_all", type="tertiary", on_click=_reset_all,
                      args=([reset for _, _, reset in drawn],))


def _reset_option(option: str) -> None:
    st.session_state[option] = OPTION_SETTINGS[option].first


def _reset_targets() -> None:
    st.session_state[AS_TEXT] = False
    for name, setting in TARGET_SETTINGS.items():
        st.session_state[name] = setting.first


def _reset_prices() -> None:
    st.session_state["price"] = ""


def _drop_tenants() -> None:
    st.session_state.pop(TENANTS, None)


def _reset_all(resets: list[Callable[[], None]]) -> None:
    for reset in resets:
        reset()
