"""The link to a page with all of its settings, to copy."""

from urllib.parse import urlencode

import streamlit as st

from planner.traces.synthesis import sample_names
from planner.ui.all_settings import tenants_file
from planner.ui.calibration_form import calibration_file
from planner.ui.words import plain


def page_link() -> str:
    """Return the address of the page with its settings."""
    texts = {name: st.query_params.get_all(name) for name in st.query_params}
    return f"{st.context.url}?{urlencode(texts, doseq=True)}" if texts else str(st.context.url)


def copy_link(log: str) -> None:
    """Draw a button that shows the link, and the files that the link does not contain.

    Parameters
    ----------
    log : name of the log.
    """
    with st.popover("Copy link", icon=":material/link:"):
        st.code(page_link(), language=None, wrap_lines=True)
        files = [name for name, is_own in ((log, log not in sample_names()),
                                           ("the file of tenants", tenants_file() is not None),
                                           ("the fitted constants", calibration_file() is not None)) if is_own]
        if files:
            st.caption(plain(f"The link does not contain {' and '.join(files)}; send it along."))
