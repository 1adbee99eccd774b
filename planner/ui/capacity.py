"""The page of capacity: the highest rate within the objectives, how sure, and attainment over the rate."""

from dataclasses import replace
from typing import Any

import streamlit as st

from planner.deployment.deploy import shape_load
from planner.figures.answers import attainment_over_rate
from planner.figures.traffic import arrivals
from planner.planning.highest_rate import Search
from planner.planning.highest_rate import capacity as find_capacity
from planner.planning.study import Study, command_line, without_rate
from planner.report.plans import capacity_words
from planner.settings.objectives import parse_objectives
from planner.trace import Trace
from planner.traffic.rescaling import SCALINGS
from planner.ui.downloads import answer_downloads
from planner.ui.own_profiles import portable
from planner.ui.results import answered, keep, plain, show, theme

FOUND = "found_capacity"


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Capacity")
    asked = _asked()
    if asked is not None:
        with st.spinner("Looking for the highest rate that holds …"):
            search = Search(scaling=asked["scaling"], replicates=asked["replicates"])
            found = find_capacity(trace, without_rate(study.scenario),
                                  parse_objectives(asked["slo"], asked["attainment"]), search)
        keep(FOUND, trace, study, (found, _command(study, asked)))
    kept = answered(FOUND, trace, study)
    if kept is None:
        st.info("Find the highest rate of this traffic that the sidebar's deployment serves within the objectives.")
        return
    found, command = kept
    st.metric("capacity", f"{found['capacity_rps']:.4g} requests/s",
              f"{found['rate_scale']:.3g} times the trace's rate", delta_color="off", delta_arrow="off")
    for note in (*capacity_words(found), *found["notes"]):
        st.caption(plain(note))
    if found["probes"]:
        show(attainment_over_rate(found, theme=theme()), key="attainment")
    show(arrivals(shape_load(without_rate(study.scenario), trace), capacity_rps=found["capacity_rps"], theme=theme()),
         key="capacity-load")
    st.caption("The capacity is a mean rate of this traffic: the deployment bears the bursts that come with it.")
    st.dataframe(found["probes"], hide_index=True, alt="rates that were tried")
    answer_downloads("capacity", found, command)


def _asked() -> dict[str, Any] | None:
    """Ask how to look; None until that is sent."""
    with st.form("capacity"):
        columns = st.columns(4)
        slo = columns[0].text_input("objectives", value=st.session_state.get("slo", "ttft:500 tpot:50"),
                                    help="Of each request, 'ttft:500 tpot:50', or of percentiles, 'p99_ttft:500'.")
        attainment = columns[1].number_input("attainment", 0.01, 1.0, 0.99, 0.01)
        scaling = columns[2].selectbox("scaling", list(SCALINGS))
        replicates = columns[3].number_input("bootstrap replicates", 0, 100, 10)
        if st.form_submit_button("Find the capacity", type="primary"):
            return {"slo": slo, "attainment": attainment, "scaling": scaling, "replicates": int(replicates)}
    return None


def _command(study: Study, asked: dict[str, Any]) -> str:
    """Return the command that finds the same."""
    own = portable(study)
    return command_line(replace(own, scenario=without_rate(own.scenario)), "capacity", asked)
