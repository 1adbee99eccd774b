"""A calibration on the page Accuracy: constants fitted to the upload, their errors, and a button to use them."""

import hashlib
from dataclasses import replace
from pathlib import Path

import streamlit as st

from planner.engines import ENGINES
from planner.files.counts import share_text
from planner.measured.validate_answer import ErrorSummary
from planner.planning.fingerprint import scenario_sha256
from planner.planning.study import without_load
from planner.report.figures.accuracy_figures import metric_name
from planner.settings.scenario import Scenario
from planner.ui.fit_tasks import Fitted, fitted
from planner.ui.kept_answers import KeptAnswer, Question, answer, search
from planner.ui.own_profiles import kept_file
from planner.ui.words import plain, without_paths

NAME = "calibration"
FILE = "calibration.toml"
CALIBRATION = "calibration_used"  # in the session's state: the path of the constants in use, with their source


def calibration_file() -> str | None:
    """Return the path of the constants that the session uses; None for the bundled ones."""
    used: tuple[str, str] | None = st.session_state.get(CALIBRATION)
    return None if used is None else used[0]


def calibration_source() -> str | None:
    """Return the name of the file that the constants in use were fitted to; None for the bundled ones."""
    used: tuple[str, str] | None = st.session_state.get(CALIBRATION)
    return None if used is None else used[1]


def drop_calibration() -> None:
    """Use the bundled constants again."""
    st.session_state.pop(CALIBRATION, None)


def calibration_form(name: str, content: bytes, scenario: Scenario) -> None:
    """Draw a button that fits the engine's constants to measurements, and the fit.

    Parameters
    ----------
    name, content : of the upload.
    scenario : the deployment of measurements that name none.
    """
    deployment = replace(without_load(scenario), calibration=None)
    key = f"{scenario_sha256(deployment)} {hashlib.sha256(content).hexdigest()}"
    question = Question(words={"measurements": name}, key=key)
    if st.button("Fit the constants to these measurements", key="calibration_find", icon=":material/build:",
                 help="Fits the engine's constants that these runs can tell apart, as planner calibrate does."):
        search(NAME, question, name, fitted, name, content, deployment)
    found = answer(NAME, question, "Fitting", keeps_stale=False)
    if found is not None:
        _draw(found)


def _draw(found: KeptAnswer) -> None:
    fit: Fitted = found.value
    result = fit.answer
    parts = (("before", result.before), ("after", result.after), ("left out of the fit", result.held_out))
    st.markdown(plain(f"{len(result.fitted):,} constants of {ENGINES[result.engine].title} are fitted: "
                      f"{'; '.join(_errors(metric, [by[metric] for _, by in parts]) for metric in result.before)}."))
    if result.fitted:
        st.dataframe([{"constant": constant, "bundled": each.start, "fitted": each.value, "from": each.low,
                       "to": each.high} for constant, each in result.fitted.items()], hide_index=True,
                     alt="fitted constants",
                     column_config={column: st.column_config.NumberColumn(format="%.4g", help=help)
                                    for column, help in (("bundled", None), ("fitted", None),
                                                         ("from", "lower end of the 80 % interval"),
                                                         ("to", "upper end of the 80 % interval"))})
    for note in (*result.notes, *(f"{count:,} left out: {reason}" for reason, count in result.left_out.items())):
        st.caption(plain(without_paths(note)))
    with st.container(horizontal=True, gap="small"):
        is_used = calibration_source() == found.about and _is_kept(fit.toml)
        st.button("In use on all pages" if is_used else "Use on all pages", key="calibration_use", type="primary",
                  disabled=is_used, on_click=use, args=(found.about, fit.toml))
        st.download_button("Constants, TOML", fit.toml, FILE, "application/toml", on_click="ignore")


def _errors(metric: str, stages: list[ErrorSummary | None]) -> str:
    """Return a metric's mean errors at the stages of a fit, in words."""
    before, after, held_out = ("–" if each is None else share_text(each.mape) for each in stages)
    return (f"{metric_name(metric)[0]} is {before} off on average before the fit, {after} after it and {held_out} on "
            f"runs left out of it")


def use(name: str, toml: str) -> None:
    """Use constants on all pages of the session."""
    st.session_state[CALIBRATION] = (kept_file(FILE, toml.encode()), name)


def _is_kept(toml: str) -> bool:
    path = calibration_file()
    return path is not None and Path(path).read_text(encoding="utf-8") == toml
