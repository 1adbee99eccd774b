"""The page of accuracy: predictions against measurements that are uploaded."""

import streamlit as st

from planner.accuracy import accuracy, predict_file
from planner.figures.answers import predicted_over_measured
from planner.runs import is_table
from planner.scenario import Scenario
from planner.study import Study, without_load
from planner.table_file import columns_of
from planner.trace import Trace
from planner.ui.results import show, theme
from planner.ui.uploads import as_file
from planner.validate import metrics_of, predictions_table


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Accuracy")
    st.caption("A table of measured runs names each row's deployment; a result of vllm bench serve, requests or steps "
               "were measured on the one in the sidebar. The published errors are in reports/accuracy.md.")
    file = st.file_uploader("measurements", key="measured")
    if file is None:
        st.info("Upload what you have measured, and see how far predictions are from it.")
        return
    with as_file(file.name, file.getvalue()) as path, st.spinner("Replaying each run …"):
        scenario = Scenario() if is_table(columns_of(path)) else without_load(study.scenario)
        found = predict_file(path, scenario, client=None, jobs=-1)
    result, table = accuracy(found, level=None, limits={}), predictions_table(found)
    metrics = metrics_of(found)
    with st.container(horizontal=True):
        for metric in metrics:
            errors = result["overall"].get(metric)
            if errors is not None:
                st.metric(f"{metric}, mean error", f"{errors['mape']:.1%}", f"median {errors['median_ape']:.1%}",
                          delta_color="off", delta_arrow="off", width="content")
    for metric in metrics:
        show(predicted_over_measured(table, metric, theme=theme()), key=f"accuracy-{metric}")
    st.dataframe(table, hide_index=True)
