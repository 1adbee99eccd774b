"""Options of the scenario that a button of a page sets in the sidebar."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from planner.ui.option_fields import widget_value


def set_options(options: Mapping[str, Any]) -> None:
    """Set the sidebar's widgets to values of options; only for `on_click` and `on_select`, before they are drawn."""
    for option, value in options.items():
        st.session_state[option] = widget_value(option, value)
