"""A study in a session: saved from a page with the uploaded files that it depends on, and opened by its link."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import streamlit as st
from streamlit.runtime.state.session_state_proxy import get_session_state

from planner.results.saved import to_json
from planner.ui import all_settings, calibration_form
from planner.ui.hosting import is_read_only, store, user
from planner.ui.kept_settings import KEPT, Setting, last
from planner.ui.link import Values
from planner.ui.own_profiles import FOLDERS, add, kept_file, own_names
from planner.ui.sidebar import LOG_FILE, UPLOAD
from planner.ui.study_store import MOST_NAME, SavedStudy, StudyFile, new_study
from planner.ui.words import plain

STUDY = "study"  # in the session's state and in the address: the identity of the opened study
OPENED = "opened_study"  # in the session's state
STUDY_SETTINGS = {STUDY: Setting(first="", read=last, values=lambda: Values(
    _is_known, "", why=lambda text: f"this server has no study {text!r}; it may have been deleted"))}


@dataclass(frozen=True, slots=True)
class _Log:
    """A log with the names that Streamlit's uploads have."""

    name: str
    content: bytes
    file_id: str

    def getvalue(self) -> bytes:
        return self.content


def save_form(page: str, headline: str, answer: Any) -> None:
    """Draw a field that saves the page's settings and its answer; nothing on a server that saves no studies.

    Parameters
    ----------
    page : its address.
    headline : the answer in a sentence.
    answer : as its command writes it.
    """
    studies = store()
    if studies is None or is_read_only():
        return
    with st.popover("Save as a study", icon=":material/bookmark_add:"), st.form("study_form", border=False):
        name = st.text_input("Name of the study", key="study_name", max_chars=MOST_NAME)
        if files := [f"{file.name} ({file.kind})" for file in _files()]:
            st.caption(plain(f"Everybody who opens the study gets {', '.join(files)} too."))
        is_asked = st.form_submit_button("Save", type="primary")
    if is_asked:
        study = new_study(name=name, user=user(), page=page, headline=headline, answer=to_json(answer),
                          address=_address(), files=tuple(_files()))
        studies.save(study)
        st.success(plain(f"{study.name} is saved. Its link:"))
        st.code(f"{str(st.context.url).rpartition('/')[0]}/{study_link(study)}", language=None, wrap_lines=True)


def study_link(study: SavedStudy) -> str:
    """Return the link that opens a study, from a page of the dashboard."""
    return f"{study.page}?{urlencode({STUDY: study.id})}"


def open_linked() -> None:
    """Take the settings and the files of the study that the session's first address names.

    Settings in the address come before the study's.
    """
    studies, identity = store(), st.query_params.get(STUDY)
    if KEPT in st.session_state or studies is None or not identity or (study := studies.study(identity)) is None:
        return
    if [*st.query_params] == [STUDY]:
        for name, texts in parse_qs(study.address, keep_blank_values=True).items():
            st.query_params[name] = texts
        with get_session_state().query_params() as address:
            address.set_initial_query_params_from_current()  # fields of the page take them as from a link
    for file in study.files:
        _restore(file)
    st.session_state[OPENED] = replace(study, files=())


def opened() -> SavedStudy | None:
    """Return the study that the session was opened with; None without one."""
    study: SavedStudy | None = st.session_state.get(OPENED)
    return study


def _is_known(identity: str) -> bool:
    return not identity or (opened() is not None and opened().id == identity)  # type: ignore[union-attr]


def _address() -> str:
    return urlencode({name: st.query_params.get_all(name) for name in st.query_params if name != STUDY}, doseq=True)


def _files() -> Iterator[StudyFile]:
    """Yield the uploaded files of the session that its scenario may depend on."""
    log = st.session_state.get(LOG_FILE)
    if st.session_state["trace"] == UPLOAD and log is not None:
        yield StudyFile.of("log", log.name, log.getvalue())
    for kind in FOLDERS:
        for name, path in own_names(kind).items():
            yield StudyFile.of(kind, name, path.read_bytes())
    if tenants := all_settings.tenants_file():
        yield StudyFile.of("tenants", "tenants.toml", Path(tenants).read_bytes())
    if constants := calibration_form.calibration_file():
        yield StudyFile.of("calibration", str(calibration_form.calibration_source()), Path(constants).read_bytes())


def _restore(file: StudyFile) -> None:
    """Give the session an uploaded file of a study, through the same checks as an upload."""
    if file.kind == "log":
        st.session_state[LOG_FILE] = _Log(file.name, file.data, f"study {hash(file.content)}")
    elif file.kind in FOLDERS:
        add(file.kind, file.name, file.data)
    elif file.kind == "tenants":
        st.session_state[all_settings.TENANTS] = kept_file("tenants.toml", file.data)
    else:
        calibration_form.use(file.name, file.data.decode())
