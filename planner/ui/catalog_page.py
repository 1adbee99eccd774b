"""The page of the catalog: GPUs and models, with the sources of their numbers, and one's own for the session."""

from typing import Any

import streamlit as st

from planner.catalog.gpu_label import gpu_label
from planner.errors import PlannerError
from planner.planning.study import Study
from planner.report.column_words import column_words, quantity_text
from planner.report.profile_tables import show_profile
from planner.traces import Trace
from planner.ui.own_profiles import MOST_BYTES, add, name_of, names, own_names, profile_of

LABELS = {"gpu": "GPU", "model": "Model"}
ASKED = {"gpu": ("GPU, TOML", "toml", "Each number with its unit, source and date, as in the files of planner db."),
         "model": ("Model, config.json", "json", "As it comes with the weights on Hugging Face.")}


def page(trace: Trace | None, study: Study) -> None:
    """Draw the page."""
    for kind, label in LABELS.items():
        st.subheader(f"{label}s", anchor=False)
        known, chosen = names(kind), name_of(str(getattr(study.scenario, kind)))
        name = st.selectbox(label, known, index=known.index(chosen) if chosen in known else 0, key=f"catalog_{kind}",
                            format_func=gpu_label if kind == "gpu" else str)
        value, text = show_profile(str(profile_of(kind, name)), study.scenario)
        _sources(kind, value)
        with st.expander(f"All of {gpu_label(name)}"):
            st.code(str(text), language=None)
    st.subheader("Add your own", anchor=False)
    st.caption("A profile is checked and stays with this session: nothing is written on the server. Choose it in the "
               "sidebar; planner db add-gpu and add-model keep the file for good.")
    left, right = st.columns(2)
    with left:
        _own("gpu")
    with right:
        _own("model")


def _sources(kind: str, value: dict[str, Any]) -> None:
    """Draw the sources of a profile's numbers."""
    if kind == "gpu":
        st.dataframe([{"quantity": _quantity(number), "value": quantity_text(each["value"], each["unit"]),
                       "source": each["source"], "date": each["date"], "note": each["note"]}
                      for number, each in value["values"].items()], hide_index=True, alt="numbers of the GPU",
                     column_config={"value": st.column_config.TextColumn(alignment="right")})
        return
    about = value["profile"]
    st.caption(f"Source: {about.get('source', 'the file itself')}, {about.get('date', 'without a date')}")
    if about.get("note"):
        st.caption(str(about["note"]))


def _quantity(number: str) -> str:
    """Return the name of a GPU's number in words, without its unit."""
    return column_words(number.replace("flops_per_s.", "dense_arithmetic_")).partition(" [")[0]


def _own(kind: str) -> None:
    """Ask for a profile, check it and keep it; list the session's profiles, to download."""
    what, ending, help_text = ASKED[kind]
    with st.form(f"own_{kind}", clear_on_submit=False):
        name = st.text_input("Name", "my-model", key="own_name") if kind == "model" else ""
        file = st.file_uploader(what, type=[ending], key=f"own_{kind}_file", max_upload_size=1, help=help_text)
        text = st.text_area("or its text", key=f"own_{kind}_text", height=120, max_chars=MOST_BYTES)
        asked = st.form_submit_button(f"Check and add the {'GPU' if kind == 'gpu' else kind}")
    if asked:
        try:
            added = add(kind, name, file.getvalue() if file is not None else text.encode())
            st.toast(f"{added} is in the sidebar now")
            st.session_state[f"own_{kind}_added"] = added
            st.rerun()
        except PlannerError as error:
            st.error(str(error), icon=":material/error:")
    if added := st.session_state.get(f"own_{kind}_added"):
        st.success(f"{added}: checked and added; it is in the sidebar.")
    for own, path in own_names(kind).items():
        st.download_button(f"{own}, {path.suffix[1:].upper()}", path.read_bytes(), path.name, key=f"own_{kind}_{own}",
                           on_click="ignore")
