"""The page of accuracy: the project's own published errors, and predictions against measurements that are uploaded."""

import hashlib

import streamlit as st

from planner.measured.published import Published, read_published
from planner.planning.fingerprint import scenario_sha256
from planner.planning.study import Study
from planner.report.figures.accuracy_figures import published_errors
from planner.traces import Trace
from planner.ui.accuracy_tasks import Measured, measured
from planner.ui.calibration_form import calibration_form
from planner.ui.downloads import harmless
from planner.ui.kept_replays import kept, show, theme
from planner.ui.words import plain, without_paths

MOST_MIB = 50


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.subheader("Your own measurements")
    st.caption("A table of measured runs names the deployment of each row. A result of vllm bench serve, requests, "
               "steps or a server's log belong to the deployment in the sidebar.")
    file = st.file_uploader("measurements", key="measured", max_upload_size=MOST_MIB,
                            help=f"At most {MOST_MIB} MiB; CSV, JSON, JSONL or a log, plain, .gz or .zst.")
    if file is None:
        st.info("Upload your measurements to see the error of the predictions.")
    else:
        _measured(study, file.name, file.getvalue())
        calibration_form(file.name, file.getvalue(), study.scenario)
    st.subheader("Published runs")
    st.caption("Errors of predictions against published measurements, with the bundled constants and with constants "
               "fitted without these runs; reports/accuracy.html has every table.")
    sections = read_published()
    _published(sections[st.selectbox("measurements of", list(sections), key="published")])


def _measured(study: Study, name: str, content: bytes) -> None:
    """Draw how far predictions are from uploaded measurements."""
    key = f"{scenario_sha256(study.scenario)} {name} {hashlib.sha256(content).hexdigest()}"
    found: Measured = kept(measured, name, content, study.scenario, theme(), key=key, said="Replaying each run …")
    for note in found.notes:
        st.caption(plain(without_paths(note)))
    if found.num_runs > 1:
        for metric, errors in found.overall.items():
            if errors is not None:
                st.markdown(plain(f"{metric}: {errors.median_ape:.1%} off in the median of {errors.n:,} runs, "
                                  f"{errors.mape:.1%} on average; predictions are {abs(errors.bias):.1%} too "
                                  f"{'high' if errors.bias > 0 else 'low'}.".replace("%", " %")))
    st.dataframe(harmless(found.table), hide_index=True, alt="measured and predicted", column_config={
        "measured": st.column_config.NumberColumn(format="%.4g"),
        "predicted": st.column_config.NumberColumn(format="%.4g"),
        "error": st.column_config.NumberColumn(format="percent", help="predicted ÷ measured − 1")})
    names = list(found.figures)
    chosen: str = names[0] if len(names) == 1 else st.radio("figure", names, key="accuracy_figure", horizontal=True,
                                                            label_visibility="collapsed")
    show(found.figures[chosen], key=f"accuracy-{chosen}")


def _published(rows: list[Published]) -> None:
    """Draw the published figures of a section against their targets."""
    show(published_errors(rows, theme=theme()), key="published-errors")
    st.dataframe([{"figure": row.name, "value": row.value, "target": row.limit, "met": row.is_met,
                   "others": row.peers} for row in rows], hide_index=True, alt="published figures", column_config={
                       name: st.column_config.NumberColumn(format="percent") for name in ("value", "target")})
