"""The page of the workload: what was read, and what the traffic is like."""

import streamlit as st

from planner.deployment import shape_load
from planner.figures.traffic import arrivals, lengths
from planner.study import Study
from planner.trace import Trace
from planner.ui.downloads import harmless
from planner.ui.results import plain, show, theme


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
    show(arrivals(shaped, theme=theme()), key="arrivals")
    show(lengths(shaped, theme=theme()), key="lengths")
    st.subheader("First requests")
    st.dataframe(harmless(shaped.requests.head(200)), hide_index=True)
