"""The page of sizing: the cheapest fleet for the traffic, beside the others."""

import streamlit as st

from planner.catalog import gpu_names
from planner.figures.answers import fleet_costs
from planner.objectives import parse_objectives
from planner.sizing import RANKS, Choices, size
from planner.study import Study
from planner.tables import sizing_table
from planner.trace import Trace
from planner.ui.results import answered, keep, show, theme

FOUND = "found_sizing"
SHOWN = ("gpu", "tensor_parallel_size", "quantization", "num_replicas", "num_gpus", "cost_usd_per_hour",
         "cost_usd_per_million_output_tokens", "power_kw", "attainment", "headroom", "limiting_metric", "reason")


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Sizing")
    with st.form("sizing"):
        columns = st.columns(4)
        slo = columns[0].text_input("objectives", value=st.session_state.get("slo", "ttft:500 tpot:50"))
        attainment = columns[1].number_input("attainment", 0.01, 1.0, 0.99, 0.01)
        spare = columns[2].number_input("spare replicas", 0, 100, 0, help="Replicas that may fail.")
        ranks = columns[3].multiselect("tensor_parallel_size", RANKS, RANKS)
        gpus = st.multiselect("GPUs", gpu_names(), [study.scenario.gpu])
        asked = st.form_submit_button("Find the fleet", type="primary", disabled=False)
    if asked:
        with st.spinner("Replaying fleets …"):
            choices = Choices(gpus=gpus, quantizations=[study.scenario.quantization], ranks=ranks, prices={},
                              num_spare=int(spare))
            keep(FOUND, trace, study, size(trace, study.scenario, parse_objectives(slo, attainment), choices))
    found = answered(FOUND, trace, study)
    if found is None:
        st.info("Find the fewest replicas of each kind of GPU that serve this traffic at the sidebar's rate.")
        return
    st.success(sizing_table(found).splitlines()[0])
    st.code(found["command"], language="bash")
    show(fleet_costs(found, theme=theme()), key="fleets")
    st.dataframe([{key: fleet.get(key) for key in SHOWN} for fleet in found["alternatives"]], hide_index=True)
