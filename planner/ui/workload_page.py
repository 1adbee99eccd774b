"""The page of the workload: its oddities, its rate and peak, its lengths and reuse, and one figure at a time."""


import streamlit as st

from planner.files.counts import count_text, share_text
from planner.planning.study import Study
from planner.report.trace_tables import description_table
from planner.results.short_times import time_text
from planner.traces import Trace
from planner.traces.shaping.description_answer import Description
from planner.ui.downloads import harmless
from planner.ui.kept_replays import kept, show, study_key
from planner.ui.table_words import worded
from planner.ui.tasks import ShownTraffic, traffic
from planner.ui.words import plain

MINUTE = "60s"  # of the windows of a description
FIGURES = {"arrivals": "Arrivals", "lengths": "Lengths", "shape": "Hour of the day", "burstiness": "Burstiness",
           "hit_rate": "Prefix reuse"}


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    found: ShownTraffic = kept(traffic, trace, study.scenario, key=study_key(trace, study),
                               said="Describing the traffic …")
    account = trace.account
    st.caption(plain(f"{account.source} ({account.format}): {account.rows_kept:,} of {account.rows_read:,} rows read, "
                     f"{count_text(found.num_requests, 'request')} replayed over "
                     f"{time_text(1e3 * found.description.span_s)}"))
    for note in account.notes:
        st.caption(plain(note))
    for reason, count in account.dropped.items():
        st.warning(f"{count_text(count, 'row')} dropped: {plain(reason)}")
    for odd in found.description.anomalies:
        st.warning(plain(odd["text"]))
    with st.container(horizontal=True):
        for label, value in headlines(found.description).items():
            st.metric(label, value, width="content")
    names = [name for name in FIGURES if name in found.figures
             and (name != "shape" or found.description.shape["period"] == "day")]  # else it is as the arrivals
    chosen: str = st.radio("figure", names, key="workload_figure", format_func=FIGURES.__getitem__, horizontal=True,
                           label_visibility="collapsed")
    show(found.figures[chosen], key=chosen)
    with st.expander("In numbers: rates, lengths, sharing, sessions, tenants"):
        st.code(str(description_table(found.description)), language=None)
    st.subheader("First requests", anchor=False)
    st.dataframe(harmless(found.head), hide_index=True, alt="first requests", column_config=worded(found.head.columns))


def headlines(description: Description) -> dict[str, str]:
    """Return the numbers of a traffic that one looks at first, as text by label."""
    rate, lengths = description.rates["requests_per_s"], description.lengths
    peak, sharing = description.burstiness["peak_over_mean"].get(MINUTE), description.sharing
    return {
        **({} if rate is None else {"Mean rate": f"{rate:,.3g}/s"}),
        **({} if rate is None or peak is None else {"Peak minute": f"{rate * peak:,.3g}/s"}),
        **{f"{name}, p50 / p99 [tokens]": f"{lengths[key]['p50']:,.0f} / {lengths[key]['p99']:,.0f}"
           for name, key in (("Prompt", "input_tokens"), ("Output", "output_tokens"))},
        **({} if sharing is None else {"Prompt tokens seen before": share_text(sharing["infinite_hit_rate"])}),
    }
