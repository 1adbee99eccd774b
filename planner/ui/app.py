"""The dashboard's entry: the settings that all pages share, drawn before the page so that they stay, and the pages."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import streamlit as st

from planner.errors import PlannerError
from planner.planning.study import Study
from planner.traces import Trace
from planner.ui import accuracy_page as accuracy
from planner.ui import capacity_page as capacity
from planner.ui import catalog_page as catalog
from planner.ui import compare_page as compare
from planner.ui import explore_page as explore
from planner.ui import hosting, kept_settings, link, sidebar
from planner.ui import plan_page as plan
from planner.ui import replay_page as replay
from planner.ui import schedule_page as schedule
from planner.ui import sizing_page as sizing
from planner.ui import studies_page as studies
from planner.ui import watch_page as watch
from planner.ui import workload_page as workload
from planner.ui.brush import TIME_SETTINGS
from planner.ui.chips import chips
from planner.ui.pinned import PIN_SETTINGS
from planner.ui.pools_form import POOL_SETTINGS
from planner.ui.study_files import STUDY_SETTINGS, open_linked
from planner.ui.words import plain, without_paths
from planner.ui.work import workers

PAGES = (  # title, page, address, icon
    ("Plan", plan.page, "plan", ":material/savings:"),
    ("Workload", workload.page, "workload", ":material/timeline:"),
    ("Replay", replay.page, "replay", ":material/play_circle:"),
    ("Schedule", schedule.page, "schedule", ":material/view_timeline:"),
    ("Compare", compare.page, "compare", ":material/compare_arrows:"),
    ("Capacity", capacity.page, "capacity", ":material/speed:"),
    ("Sizing", sizing.page, "sizing", ":material/dns:"),
    ("Explore", explore.page, "explore", ":material/explore:"),
    ("Accuracy", accuracy.page, "accuracy", ":material/target:"),
    ("Catalog", catalog.page, "catalog", ":material/library_books:"),
    ("Watch", watch.page, "watch", ":material/monitor_heart:"),
    ("Studies", studies.page, "studies", ":material/bookmarks:"),
)
WITHOUT_LOG = (catalog.page, watch.page, studies.page)
SETTINGS = {**sidebar.SETTINGS, **PIN_SETTINGS, **TIME_SETTINGS,
            **capacity.CAPACITY_SETTINGS, **explore.EXPLORE_SETTINGS,
            **POOL_SETTINGS, **STUDY_SETTINGS}  # of all pages
KEYS = (*SETTINGS, *plan.KEYS, *schedule.KEYS, *capacity.KEYS, *sizing.KEYS,
        *explore.KEYS)  # in the address
FIRST = PAGES[0][0]  # has the log and the launch command on the page
ICON = Path(__file__).with_name("icon.png")
STYLE = (".stMainBlockContainer { padding-top: 4.25rem; h1 { font-size: 2rem; padding: 0 0 .75rem } "
         "h3 { font-size: 1.4rem } } "  # the numbers begin near the top
         "[class*=st-key-missed_] [data-testid=stProgressBarTrack] > div { background-color: #D55E00 }")
BROKEN = "This page ended with an internal error; the server's log has details."

Page = Callable[[Trace, Study], None]
T = TypeVar("T")


def main() -> None:
    """Draw the sidebar, and the page that was asked for; an error is one sentence in its place."""
    st.set_page_config(page_title="planner", page_icon=ICON, layout="wide")
    st.html(f"<style>{STYLE}</style>")
    if not hosting.is_admitted():
        return
    workers().warm()
    said: list[sidebar.SidebarValues | str] = []
    first, pages = plan.page, []
    for title, page, address, icon in PAGES:
        shown = partial(_draw_said, page, said)
        pages.append(st.Page(shown, title=title, url_path="root" if page is first else address, icon=icon,
                             default=page is first,
                             visibility="hidden" if page is studies.page and hosting.store() is None else "visible"))
        if page is first:  # Streamlit has it at the root alone; it is found by its name too
            pages.append(st.Page(shown, title=title, url_path=address, visibility="hidden"))
    shown_page = st.navigation(pages)
    said.append(ask(shown_page.title))
    shown_page.run()


def ask(title: str) -> sidebar.SidebarValues | str:
    """Draw the title of a page and the settings of all pages; return the values asked for, or an error."""
    open_linked()
    link.begin_run(KEYS)
    kept_settings.keep(SETTINGS)
    st.title(title, anchor=False)
    chips()
    return _told(partial(sidebar.sidebar, has_log=title != FIRST))


def _told(drawn: Callable[..., T], *args: Any) -> T | str:
    """Draw a part of the page; return its value, or its error as a sentence without the server's paths."""
    try:
        return drawn(*args)
    except PlannerError as error:
        return without_paths(str(error))
    except Exception:  # no page shows a traceback, which names the server's files
        logging.getLogger(__name__).exception("a page broke off")
        return BROKEN


def draw(page: Page, asked: sidebar.SidebarValues | str) -> None:
    """Draw a page, or in its place why it cannot be drawn."""
    wrong = link.wrong()
    if wrong:
        _wrong(wrong)
    if page is not studies.page and (error := _told(studies.draw_opened)):
        st.error(error, icon=":material/error:")
    if isinstance(asked, str):
        st.error(asked, icon=":material/error:")
    elif wrong and page not in WITHOUT_LOG:
        return
    elif asked.trace is None and page not in WITHOUT_LOG:
        place = "above" if page is plan.page else "in the sidebar"
        st.info(f"Upload a trace {place}: requests with arrival times and token counts, as CSV or JSONL.")
    elif error := _told(page, asked.trace, asked.study):
        st.error(error, icon=":material/error:")


def _draw_said(page: Page, said: list[sidebar.SidebarValues | str]) -> None:
    """Draw a page for the settings, once they are drawn."""
    draw(page, said[0])


def _wrong(said: list[str]) -> None:
    """List the errors in the address, and offer to go on without the wrong values."""
    st.error("This link has values that cannot be shown:\n\n" + "\n".join(f"- {plain(each)}" for each in said),
             icon=":material/link_off:")
    st.button("Continue with the sidebar's values", on_click=link.accept_all)


if __name__ == "__main__":
    main()
