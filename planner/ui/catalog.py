"""The page of the catalog: GPUs and models, with where their numbers come from."""

import streamlit as st

from planner.catalog import gpu_names, model_names
from planner.profiles import show_profile
from planner.study import Study
from planner.trace import Trace


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Catalog")
    for label, names, chosen in (("GPU", gpu_names(), study.scenario.gpu),
                                 ("model", model_names(), study.scenario.model)):
        name = st.selectbox(label, names, index=names.index(str(chosen)), key=f"catalog_{label}")
        st.code(show_profile(name, study.scenario)[1], language=None)
