"""The page of the workload: what was read, what the traffic is like, and what is odd about it."""

import streamlit as st

from planner.planning.study import Study
from planner.report.trace_tables import description_table
from planner.traces import Trace
from planner.ui.downloads import harmless
from planner.ui.kept_replays import kept, show, study_key
from planner.ui.kept_replays import theme as page_theme
from planner.ui.tasks import Traffic, traffic
from planner.ui.words import plain


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.caption(plain(str(trace.account)))
    for note in trace.account.notes:
        st.caption(plain(note))
    found: Traffic = kept(traffic, trace, study.scenario, page_theme(), key=study_key(trace, study),
                          said="Describing the traffic …")
    account = trace.account
    with st.container(horizontal=True):
        for label, value in (
                ("rows read", f"{account.rows_read:,}"), ("rows kept", f"{account.rows_kept:,}"),
                ("requests replayed", f"{found.num_requests:,}"),
                ("prompt, p50", f"{account.input_tokens_p50:,.0f} tokens"),
                ("output, p50", f"{account.output_tokens_p50:,.0f} tokens")):
            st.metric(label, value, width="content")
    for reason, count in account.dropped.items():
        st.warning(f"{count:,} rows dropped: {plain(reason)}")
    for odd in found.description["anomalies"]:
        st.warning(plain(odd["text"]))
    for name, figure in found.figures.items():
        show(figure, key=name)
    with st.expander("In numbers: rates, lengths, sharing, sessions, tenants"):
        st.code(description_table(found.description), language=None)
    st.subheader("First requests")
    st.dataframe(harmless(found.head), hide_index=True)
