"""The page of comparisons: up to four scenarios on the same axes, and why they differ from the first."""

from dataclasses import replace

import streamlit as st

from planner.explanation.causes import difference, explain
from planner.figures import all_figures
from planner.metrics.saved import SavedResult, to_json
from planner.planning.study import Study
from planner.report import to_html
from planner.report.content import comparison, value_text
from planner.trace import Trace
from planner.ui.results import plain, replayed, show, theme

MOST = 4
KEPT = "compared"


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Compare")
    kept: dict[str, SavedResult] = st.session_state.setdefault(KEPT, {})
    left, middle, right = st.columns([3, 1, 1], vertical_alignment="bottom")
    place = len(kept) + 1
    name = left.text_input("name of the sidebar's scenario", value=f"scenario {place}", key=f"compare_name_{place}")
    if middle.button("Add it", disabled=len(kept) >= MOST, width="stretch", key="compare_add"):
        kept[name] = replace(replayed(trace, study), name=name)
        st.rerun()
    if right.button("Clear", disabled=not kept, width="stretch", key="compare_clear"):
        kept.clear()
        st.rerun()
    if not kept:
        st.info("Set a scenario in the sidebar and add it; change a setting and add that: up to four side by side.")
        return
    results = list(kept.values())
    _reasons(results)
    columns = st.columns(2)
    for place, (key, figure) in enumerate(all_figures(results, theme=theme()).items()):
        with columns[place % 2]:
            show(figure, key=f"compare-{key}")
    for table in comparison(results):
        st.subheader(table.title)
        st.dataframe([{"": row.label, **{result.name: value_text(value, row.unit) for result, value in
                                         zip(results, row.values, strict=True)}} for row in table.rows],
                     hide_index=True, alt=table.title)
    _downloads(results)


def _downloads(results: list[SavedResult]) -> None:
    """Offer the summaries, as compare writes them, and the report of all."""
    st.subheader("Take it with you")
    summaries = to_json([{"name": result.name, **result.summary} for result in results])
    left, right = st.columns(2)
    left.download_button("Summaries, JSON", summaries, "comparison.json", "application/json", width="stretch",
                         on_click="ignore")
    right.download_button("Report, HTML", lambda: to_html(results), "comparison.html", "text/html", width="stretch",
                          on_click="ignore")


def _reasons(results: list[SavedResult]) -> None:
    """Say where each one's time goes, and how it differs from the first."""
    explanations = [explain(each.requests, each.steps, each.summary["deployment"]["num_replicas"]) for each in results]
    for result, found in zip(results, explanations, strict=True):
        change = None if found is explanations[0] else difference(found, explanations[0])
        st.markdown(f"**{plain(result.name)}**: {plain(found['sentence'])}")
        if change is not None:
            st.markdown(f"against {plain(results[0].name)}: {plain(change['sentence'])}")
