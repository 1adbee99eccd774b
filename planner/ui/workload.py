"""The page of the workload: what was read, what the traffic is like, and what is odd about it."""

from typing import Any

import streamlit as st

from planner.deployment.deploy import shape_load
from planner.figures.workload import workload_figures
from planner.planning.study import Study
from planner.report.traffic_tables import description_table
from planner.trace import Trace
from planner.traffic.description import describe
from planner.ui.downloads import harmless
from planner.ui.results import plain, show, study_key, theme


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Workload")
    st.caption(plain(str(trace.account)))
    shaped = shape_load(study.scenario, trace)
    account = trace.account
    with st.container(horizontal=True):
        for label, value in (
                ("rows read", f"{account.rows_read:,}"), ("rows kept", f"{account.rows_kept:,}"),
                ("requests replayed", f"{shaped.num_requests:,}"),
                ("prompt, p50", f"{account.input_tokens_p50:,.0f} tokens"),
                ("output, p50", f"{account.output_tokens_p50:,.0f} tokens")):
            st.metric(label, value, width="content")
    for reason, count in account.dropped.items():
        st.warning(f"{count:,} rows dropped: {plain(reason)}")
    description = _described(shaped, study_key(trace, study))
    for odd in description["anomalies"]:
        st.warning(plain(odd["text"]))
    for name, figure in workload_figures(shaped, description, theme=theme()).items():
        show(figure, key=name)
    with st.expander("In numbers: rates, lengths, sharing, sessions, tenants"):
        st.code(description_table(description), language=None)
    st.subheader("First requests")
    st.dataframe(harmless(shaped.requests.head(200)), hide_index=True)


def _described(trace: Trace, key: str) -> dict[str, Any]:
    """Return what is said of a trace, found once for as long as the sidebar is the same."""
    kept = st.session_state.get("description")
    if kept is None or kept[0] != key:
        with st.spinner("Describing the traffic …"):
            kept = st.session_state["description"] = key, describe(trace)
    found: dict[str, Any] = kept[1]
    return found
