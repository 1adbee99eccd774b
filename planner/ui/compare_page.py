"""The page of comparisons: up to four scenarios on the same axes, and why they differ from the first."""

from dataclasses import replace

import streamlit as st

from planner.errors import UsageError
from planner.planning.study import Study
from planner.report.content import value_text
from planner.results.saved import to_json
from planner.traces import Trace
from planner.ui.kept_replays import replayed, show
from planner.ui.replay_page import verdicts
from planner.ui.tasks import Asked, Replays, report
from planner.ui.waiting import waited_for
from planner.ui.words import plain

MOST = 4
MOST_BYTES = 256 * 2**20  # of the traces that are kept to compare
KEPT = "compared"


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    kept: dict[str, Asked] = st.session_state.setdefault(KEPT, {})
    left, middle, right = st.columns([3, 1, 1], vertical_alignment="bottom")
    place = len(kept) + 1
    name = left.text_input("name of the sidebar's scenario", value=f"scenario {place}", key=f"compare_name_{place}")
    if middle.button("Add it", disabled=len(kept) >= MOST, width="stretch", key="compare_add"):
        added = Asked(trace=trace, study=replace(study, name=name))
        replayed([added])  # a scenario that cannot be replayed says why, and is not added
        _check_bytes([*kept.values(), added])
        kept[name] = added
        st.rerun()
    if right.button("Clear", disabled=not kept, width="stretch", key="compare_clear"):
        kept.clear()
        st.rerun()
    if not kept:
        st.info("Set a scenario in the sidebar and add it. Change a setting and add again: up to four side by side.")
        return
    replays = replayed(list(kept.values()))
    _reasons(replays)
    columns = st.columns(2)
    for place, (key, figure) in enumerate(replays.figures.items()):
        with columns[place % 2]:
            show(figure, key=f"compare-{key}")
    for table in replays.tables:
        st.subheader(table.title)
        st.dataframe([{"": row.label, **{shown.name: value_text(value, row.unit) for shown, value in
                                         zip(replays.shown, row.values, strict=True)}} for row in table.rows],
                     hide_index=True, alt=table.title)
    _downloads(replays, list(kept.values()))


def _check_bytes(asked: list[Asked]) -> None:
    """Raise UsageError where the traces of scenarios take too much memory to be kept."""
    sizes = {id(each.trace): each.trace.requests.estimated_size() for each in asked}
    if sum(sizes.values()) > MOST_BYTES:
        raise UsageError(f"the traces of these scenarios take more than {MOST_BYTES // 2**20} MiB; clear some, or use "
                         f"planner compare")


def _downloads(found: Replays, asked: list[Asked]) -> None:
    """Offer the summaries, as compare writes them, and the report of all."""
    st.subheader("Take it with you")
    summaries = to_json([{"name": shown.name, **shown.summary} for shown in found.shown])
    left, right = st.columns(2)
    left.download_button("Summaries, JSON", summaries, "comparison.json", "application/json", width="stretch",
                         on_click="ignore")
    right.download_button("Report, HTML", lambda: waited_for(report, asked), "comparison.html", "text/html",
                          width="stretch", on_click="ignore")


def _reasons(found: Replays) -> None:
    """Write what came of each scenario, why, and how it differs from the first."""
    for shown in found.shown:
        st.markdown(f"**{plain(shown.name)}**: {plain(shown.reason)}")
        for note in (shown.caption, shown.part):
            if note is not None:
                st.caption(plain(note))
        verdicts(shown)
    first = found.shown[0]
    for shown in found.shown[1:]:
        if shown.difference is not None:
            st.markdown(f"**{plain(shown.name)} against {plain(first.name)}**: {plain(shown.difference)}")
