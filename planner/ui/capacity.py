"""The page of capacity: the highest rate within the objectives, how sure, and attainment over the rate."""

import streamlit as st

from planner.figures.answers import attainment_over_rate
from planner.highest_rate import Search
from planner.highest_rate import capacity as find_capacity
from planner.objectives import parse_objectives
from planner.study import Study, without_rate
from planner.tables import capacity_table
from planner.trace import Trace
from planner.traffic import SCALINGS
from planner.ui.results import answered, keep, show, theme

FOUND = "found_capacity"


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Capacity")
    with st.form("capacity"):
        columns = st.columns(4)
        slo = columns[0].text_input("objectives", value=st.session_state.get("slo", "ttft:500 tpot:50"),
                                    help="Of each request, 'ttft:500 tpot:50', or of percentiles, 'p99_ttft:500'.")
        attainment = columns[1].number_input("attainment", 0.01, 1.0, 0.99, 0.01)
        scaling = columns[2].selectbox("scaling", list(SCALINGS))
        replicates = columns[3].number_input("bootstrap replicates", 0, 100, 10)
        asked = st.form_submit_button("Find the capacity", type="primary")
    if asked:
        with st.spinner("Looking for the highest rate that holds …"):
            search = Search(scaling=scaling, replicates=int(replicates))
            keep(FOUND, trace, study, find_capacity(trace, without_rate(study.scenario),
                                                    parse_objectives(slo, attainment), search))
    found = answered(FOUND, trace, study)
    if found is None:
        st.info("Find the highest rate of this traffic that the sidebar's deployment serves within the objectives.")
        return
    text = capacity_table(found)
    st.metric("capacity", f"{found['capacity_rps']:.4g} requests/s",
              f"{found['rate_scale']:.3g} times the trace's rate", delta_color="off", delta_arrow="off")
    for note in (*text.splitlines()[:2], *found["notes"]):
        st.caption(note)
    show(attainment_over_rate(found, theme=theme()), key="attainment")
    st.dataframe(found["probes"], hide_index=True)
