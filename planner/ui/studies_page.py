"""The page of saved studies: all of them, one with its answer, two side by side, and their file to take away."""

from collections.abc import Sequence
from urllib.parse import parse_qs, urlencode

import streamlit as st

from planner.files.nested import parse_json
from planner.planning.study import Study
from planner.report.compare_rows import compared_rows
from planner.report.difference_words import OF_A_STUDY, setting_label
from planner.report.report_source import Comparison, SavedAnswer, answer_of
from planner.report.shown import text_of
from planner.report.summary_tables import summary_table
from planner.settings.scenario import LABELS
from planner.traces import Trace
from planner.ui.brush import TIME_SETTINGS
from planner.ui.compare_page import cell, line
from planner.ui.history import before_and_after
from planner.ui.hosting import is_read_only, store, user
from planner.ui.pinned import PIN
from planner.ui.sidebar import SETTINGS
from planner.ui.study_files import opened, study_link
from planner.ui.study_store import SavedStudy, StudyStore
from planner.ui.words import plain, with_labels, without_paths

TOLD = "studies_told"  # in the session's state: the numbers of studies of an import
OFF = "This server keeps no studies. Start it with `planner ui --studies studies.sqlite` to save and share them."


def page(trace: Trace | None, study: Study) -> None:
    """Draw the page."""
    studies = store()
    if studies is None:
        st.info(OFF)
        return
    rows = studies.studies()
    if not rows:
        st.info("No study is saved yet. Each page with an answer has a button, Save as a study.")
    chosen = _choice(rows) if rows else []
    _actions(studies, rows, chosen)
    whole = [saved for row in chosen[:2] if (saved := studies.study(row.id)) is not None]
    if len(chosen) == 1 and whole:
        _show(whole[0])
    elif len(chosen) == len(whole) == 2:
        _compare(*whole)


def draw_opened() -> None:
    """Draw the study that the session was opened with, its saved answer folded away; nothing without one."""
    study = opened()
    if study is not None:
        with st.expander(plain(f"Study {study.name}, {_origin(study)}: {study.headline}"), icon=":material/bookmark:"):
            st.caption("The saved answer. The page below shows the settings of its address, answered now.")
            _answer(study)


def _choice(rows: Sequence[SavedStudy]) -> list[SavedStudy]:
    """Draw all studies; return the chosen ones."""
    st.caption("Choose one study to see its answer, or two to compare them. A link opens its page.")
    table = [{"name": row.name, "answer": row.headline, "page": row.page, "user": row.user, "saved": row.saved_at,
              "planner": row.version, "files": ", ".join(file.name for file in row.files), "link": study_link(row)}
             for row in rows]
    event = st.dataframe(table, hide_index=True, key=f"studies_{rows[0].id}_{len(rows)}", on_select="rerun",
                         selection_mode="multi-row", alt="saved studies", column_order=[
                             name for name in table[0] if any(row[name] for row in table)],
                         column_config={"link": st.column_config.LinkColumn(display_text="open"),
                                        "saved": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm")})
    return [rows[place] for place in event.selection.rows]


def _actions(studies: StudyStore, rows: Sequence[SavedStudy], chosen: Sequence[SavedStudy]) -> None:
    """Draw the buttons that export, import and delete studies."""
    with st.container(horizontal=True, gap="small"):
        of = [row.id for row in chosen or rows]
        st.download_button(f"Export {_studies(len(of))}", lambda: studies.exported(of),
                           "studies.jsonl", "application/jsonl", on_click="ignore", disabled=not of,
                           help="One file with settings, answers and uploaded logs. The page imports it again.")
        if is_read_only():
            return
        with st.popover("Import", icon=":material/upload:"):
            file = st.file_uploader("Exported studies", type=["jsonl"], key="studies_file")
            if st.button("Add the studies", disabled=file is None, key="studies_import") and file is not None:
                added, total = studies.take(file.name, file.getvalue())
                st.session_state[TOLD] = f"{_studies(added)} added; {_studies(total - added)} known before."
                st.rerun()
        name = user()
        others = [row.name for row in chosen if name and row.user not in ("", name)]
        with st.popover("Delete", icon=":material/delete:", disabled=not chosen or bool(others),
                        help=f"{others[0]} is another user's study" if others else None):
            st.write(plain(f"Delete {', '.join(row.name for row in chosen)}? This cannot be undone."))
            st.button(f"Yes, delete {_studies(len(chosen))}", key="studies_delete",
                      type="primary", on_click=studies.delete, args=([row.id for row in chosen], name))
    if told := st.session_state.pop(TOLD, None):
        st.success(told)


def _show(study: SavedStudy) -> None:
    """Draw a study: its settings and its answer."""
    st.subheader(plain(study.name), anchor=False)
    settings = [f"{_label(name)} {with_labels(', '.join(texts))}" for name, texts in _settings(study).items()]
    st.caption(plain(f"Saved: {_origin(study)}. Settings: {', '.join(settings) or 'as on a new page'}."))
    st.link_button("Open", study_link(study), icon=":material/open_in_new:")
    _answer(study)


def _answer(study: SavedStudy) -> None:
    answer = _saved_answer(study).answer
    text = summary_table(answer.results[0].summary) if isinstance(answer, Comparison) else text_of(answer)
    st.code(without_paths(str(text)), language=None)
    st.download_button("Answer, JSON", study.answer, "answer.json", "application/json", on_click="ignore",
                       key=f"answer_{study.id}")


def _compare(first: SavedStudy, second: SavedStudy) -> None:
    """Draw the settings of two studies that differ, then their answers side by side."""
    st.subheader(plain(f"{second.name} against {first.name}"), anchor=False)
    settings = [_settings(study) for study in (first, second)]
    lines = [f"| | {' | '.join(f'**{plain(study.name)}**' for study in (first, second))} |", "|:--|--:|--:|",
             line("saved", [plain(_origin(study)) for study in (first, second)])]
    lines += [line(_label(name), [plain(with_labels(", ".join(texts.get(name, ["default"])))) for texts in settings])
              for name in dict.fromkeys([*settings[0], *settings[1]]) if settings[0].get(name) != settings[1].get(name)]
    answers = [_saved_answer(study).answer for study in (first, second)]
    summaries = [answer.results[0].summary.values_by_key for answer in answers if isinstance(answer, Comparison)]
    if len(summaries) == 2:
        lines += [line(label, [cell(number) for number in numbers])
                  for label, numbers in compared_rows(summaries).items()]
    st.markdown("\n".join(lines))
    if not first.files and not second.files:
        addresses = [urlencode({name: texts for name, texts in values.items() if name in SETTINGS}, doseq=True)
                     for values in settings]
        st.link_button("Replay both on Compare", before_and_after(*addresses), icon=":material/compare_arrows:")
    for study, place in zip((first, second), st.columns(2), strict=True):
        with place:
            st.markdown(f"**{plain(study.name)}**: {plain(study.headline)}")
            _answer(study)


def _studies(count: int) -> str:
    return f"{count:,} {'study' if count == 1 else 'studies'}"


def _saved_answer(study: SavedStudy) -> SavedAnswer:
    return answer_of(parse_json(study.answer), study.name)


def _origin(study: SavedStudy) -> str:
    by = f" by {study.user}" if study.user else ""
    return f"{study.saved_at[:10]}{by}, planner {study.version}"


def _settings(study: SavedStudy) -> dict[str, list[str]]:
    """Return the settings that differ from a new page, as texts by name."""
    return {name: texts for name, texts in parse_qs(study.address, keep_blank_values=True).items()
            if name not in (PIN, *TIME_SETTINGS)}


def _label(name: str) -> str:
    return setting_label(name) if name in OF_A_STUDY or name in LABELS else name.replace("_", " ")
