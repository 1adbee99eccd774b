"""All settings in a dialog: searched by their words, with the value in force if none is given."""

from typing import Any

import streamlit as st

from planner.deployment.deploy import resolve
from planner.engines import ENGINES, default_text
from planner.errors import PlannerError
from planner.results.resolved import value_sources
from planner.settings.scenario import LABELS, Scenario
from planner.traces import Trace
from planner.ui.option_fields import FIELDS, ON_SIGHT, UPLOADED, option_field
from planner.ui.own_profiles import kept_file

TENANTS = "tenants_path"  # in the session's state: the file of tenants, kept for the session
BY_ENGINE = {"engine": "the engine's", "derived": "derived"}  # words for the origin of a value


@st.dialog("All settings", width="large", on_dismiss="rerun")  # type: ignore[untyped-decorator]
def open_settings(trace: Trace | None, scenario: Scenario) -> None:
    """Draw the dialog; the page runs again when it is closed.

    Parameters
    ----------
    trace, scenario : for which the values in force are shown.
    """
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    words = left.text_input("Search", key="settings_search", placeholder="chunk, KV cache, max_num_seqs …").lower()
    if right.button("Done", type="primary", width="stretch", key="settings_done"):
        st.rerun()
    values = values_in_force(trace, scenario)
    panels: dict[str, list[str]] = {}
    for option in (*FIELDS, *UPLOADED):
        if option not in ON_SIGHT and _is_found(option, words):
            panels.setdefault(_metadata(option)["panel"], []).append(option)
    for panel, options in panels.items():
        st.subheader(panel, anchor=False)
        for first in range(0, len(options), 2):
            for place, option in zip(st.columns(2), options[first:first + 2], strict=False):
                if option in UPLOADED:
                    _tenants(place)
                else:
                    option_field(option, place, in_force=values.get(option))
    if not panels:
        st.info("No setting has these words.")


def tenants_file() -> str | None:
    """Return the path of the session's copy of the file of tenants; None without one."""
    path: str | None = st.session_state.get(TENANTS)
    return path


def values_in_force(trace: Trace | None, scenario: Scenario) -> dict[str, str]:
    """Return the values of options that are not given, as the deployment has them, with their origins.

    It is empty if the deployment is wrong; the page says why.
    """
    if trace is None:
        return {}
    try:
        deployment = resolve(scenario, trace)
    except PlannerError:
        return {}
    sources = {} if deployment.pools else value_sources(deployment)
    found = {option: f"{_shown(value)} ({BY_ENGINE[sources[option]]})" for option in FIELDS
             if getattr(scenario, option) is None and sources.get(option) in BY_ENGINE
             and (value := getattr(deployment.settings, option, None)) is not None}
    if scenario.gpu_memory_utilization is None:
        found["gpu_memory_utilization"] = default_text(ENGINES[scenario.engine], "gpu_memory_utilization")
    found["policy"] = f"{deployment.policy.name} (the engine's)"
    if deployment.architecture is not None:
        found["quantization"] = f"{deployment.architecture.quantization or 'bf16'} (the checkpoint's)"
    return found


def _is_found(option: str, words: str) -> bool:
    """Tell whether the chosen engine has an option, and whether the option has all words of the search."""
    label, engine = LABELS[option], st.session_state["engine"]
    if label.engines and engine not in label.engines and option not in ENGINES[engine].dialect.options:
        return False
    text = f"{option} {label.words} {label.unit} {_metadata(option)['panel']} {_metadata(option)['help']}".lower()
    return all(word in text for word in words.split())


def _metadata(option: str) -> Any:
    return Scenario.__dataclass_fields__[option].metadata


def _tenants(place: Any) -> None:
    """Ask for the file of tenants, and keep a copy for the session."""
    place.file_uploader("Tenants: quotas and shares", key="tenants", type=["toml"], max_upload_size=1,
                        help=_metadata("tenants")["help"], on_change=_keep_tenants)


def _keep_tenants() -> None:
    file = st.session_state["tenants"]
    st.session_state[TENANTS] = None if file is None else kept_file("tenants.toml", file.getvalue())


def _shown(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else (
        f"{value:,}" if isinstance(value, int) else f"{value:,g}" if isinstance(value, float) else str(value))
