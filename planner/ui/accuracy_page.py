"""The page of accuracy: the project's own published errors, and predictions against measurements that are uploaded."""

import hashlib
from collections.abc import Mapping

import polars as pl
import streamlit as st

from planner.files.counts import share_text
from planner.measured.published import Published, read_published
from planner.planning.fingerprint import scenario_sha256
from planner.planning.study import Study
from planner.report.figures.accuracy_figures import metric_name, published_errors
from planner.traces import Trace
from planner.ui.accuracy_tasks import Measured, measured
from planner.ui.calibration_form import calibration_form
from planner.ui.downloads import harmless
from planner.ui.kept_replays import kept, show
from planner.ui.table_words import rounded, worded
from planner.ui.words import plain, without_paths

MOST_MIB = 50


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.subheader("Your own measurements", anchor=False)
    st.caption("A table of measured runs names the deployment of each row. A result of vllm bench serve, requests, "
               "steps or a server's log belong to the deployment in the sidebar.")
    file = st.file_uploader("Measurements", key="measured", max_upload_size=MOST_MIB,
                            help=f"At most {MOST_MIB} MiB; CSV, JSON, JSONL or a log, plain, .gz or .zst.")
    if file is None:
        st.info("Upload your measurements to see the error of the predictions.")
    else:
        _measured(study, file.name, file.getvalue())
        calibration_form(file.name, file.getvalue(), study.scenario)
    st.subheader("Published runs", anchor=False)
    sections = read_published()
    st.markdown(plain(_first_sentence(sections)))
    st.caption("Errors of predictions against published measurements, with the bundled constants and with constants "
               "fitted without these runs. An error is |predicted ÷ measured − 1|. reports/accuracy.html has every "
               "table.")
    _published(sections[st.selectbox("Measurements of", list(sections), key="published")])


def _first_sentence(sections: Mapping[str, list[Published]]) -> str:
    """Return the errors on runs of GPUs that no fit has seen, medians and means; empty if the report has none."""
    found = {row.name: row.value for rows in sections.values() for row in rows if row.value is not None}
    errors = [f"{metric} is {100 * found[median]:.0f} % off in the median and {100 * found[mean]:.0f} % in the mean"
              for metric in ("TPOT", "TTFT")
              if {median := f"GPU held out, {metric} median APE", mean := f"GPU held out, {metric} MAPE"} <= {*found}]
    return f"On published runs of a GPU that was left out of the fit, {' and '.join(errors)}." if errors else ""


def _measured(study: Study, name: str, content: bytes) -> None:
    """Draw how far predictions are from uploaded measurements."""
    key = f"{scenario_sha256(study.scenario)} {name} {hashlib.sha256(content).hexdigest()}"
    found: Measured = kept(measured, name, content, study.scenario, key=key, said="Replaying each run …")
    for note in found.notes:
        st.caption(plain(without_paths(note)))
    if found.num_runs > 1:
        for metric, errors in found.overall.items():
            if errors is not None:
                st.markdown(plain(f"{metric_name(metric)[0]}: {share_text(errors.median_ape)} off in the median of "
                                  f"{errors.n:,} runs, {share_text(errors.mape)} on average; predictions are "
                                  f"{share_text(abs(errors.bias))} too "
                                  f"{'high' if errors.bias > 0 else 'low'}."))
    metrics = {metric: "".join(metric_name(metric)) for metric in found.table["metric"].unique()}
    table = harmless(found.table).with_columns(pl.col("metric").replace(metrics), pl.col("error") * 100)
    st.dataframe(rounded(table), hide_index=True, alt="measured and predicted", column_config={
        **worded(table.columns),
        "error": st.column_config.NumberColumn("error", format="%+.1f %%", help="predicted ÷ measured − 1")})
    names = list(found.figures)
    chosen: str = names[0] if len(names) == 1 else st.radio(
        "figure", names, key="accuracy_figure", horizontal=True, label_visibility="collapsed",
        format_func=lambda name: metric_name(name)[0])
    show(found.figures[chosen], key=f"accuracy-{chosen}")


def _published(rows: list[Published]) -> None:
    """Draw the published figures of a section against their targets."""
    show(published_errors(rows), key="published-errors")
    with st.expander("In numbers"):
        st.dataframe([{"quantity": row.words, "value": row.value and 100 * row.value,
                       "target": row.limit and 100 * row.limit, "met": row.is_met, "other tools": row.peers}
                      for row in rows], hide_index=True, alt="published figures", column_config={
                          name: st.column_config.NumberColumn(format="%.1f %%") for name in ("value", "target")})
