"""The dashboard's entry: the sidebar that all pages share, and the pages."""

from functools import partial

import streamlit as st

from planner.errors import PlannerError
from planner.ui import accuracy, capacity, catalog, compare, explore, replay, schedule, sizing, workload
from planner.ui.sidebar import sidebar

PAGES = (  # title, page, address, icon
    ("Workload", workload.page, "workload", ":material/timeline:"),
    ("Replay", replay.page, "replay", ":material/play_circle:"),
    ("Schedule", schedule.page, "schedule", ":material/view_timeline:"),
    ("Compare", compare.page, "compare", ":material/compare_arrows:"),
    ("Capacity", capacity.page, "capacity", ":material/speed:"),
    ("Sizing", sizing.page, "sizing", ":material/dns:"),
    ("Explore", explore.page, "explore", ":material/explore:"),
    ("Accuracy", accuracy.page, "accuracy", ":material/target:"),
    ("Catalog", catalog.page, "catalog", ":material/library_books:"),
)


def main() -> None:
    """Draw the page that was asked for; one of our errors is shown in its place."""
    st.set_page_config(page_title="planner", page_icon=":material/monitoring:", layout="wide")
    pages = [st.Page(partial(_show, page), title=title, url_path=address, icon=icon, default=address == "replay")
             for title, page, address, icon in PAGES]
    st.navigation(pages).run()


def _show(page: object) -> None:
    try:
        study = sidebar()
        if study is None:
            st.info("Upload a trace in the sidebar: requests with arrival times and token counts, as CSV or JSONL.")
            return
        page(*study)  # type: ignore[operator]
    except PlannerError as error:
        st.error(str(error), icon=":material/error:")


if __name__ == "__main__":
    main()
