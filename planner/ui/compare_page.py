"""The page of comparisons: pinned scenarios beside the sidebar's, as a table, with reasons and one figure at a time."""

from collections.abc import Sequence

import streamlit as st

from planner.planning.study import Study
from planner.report.compare_rows import Cell, compared_rows
from planner.report.content import Table, comparison, difference_text, value_text
from planner.report.difference_words import differing_settings, setting_label, setting_text
from planner.report.verdict_line import verdict_line
from planner.results.saved import SavedResult, to_json
from planner.traces import Trace
from planner.ui.brush import brushed, draw_brush, show_brushed
from planner.ui.figure_choice import shown_figure
from planner.ui.kept_replays import pictured, replayed
from planner.ui.own_profiles import portable
from planner.ui.page_link import copy_link
from planner.ui.pinned import MOST, can_pin, named, pin, pin_of, pins, rename, unpin, usual_names
from planner.ui.replay_tasks import Numbers, Picture, ReplayQuestion, report
from planner.ui.settings_text import MOST_NAME
from planner.ui.waiting import waited_for
from planner.ui.words import plain, sentence, with_labels


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    own = ReplayQuestion(trace=trace, study=study)
    with st.container(horizontal=True, gap="small"):
        is_pinned = st.button("Pin this scenario", key="compare_pin", disabled=not can_pin(own),
                              help=f"Keeps the sidebar's scenario, up to {MOST}. Replay has the same button.")
        if pins():
            copy_link(trace.source)
    if is_pinned:
        replayed(own)  # a scenario that cannot be replayed says why, and is not pinned
        pin(own)
        st.rerun()
    if not pins():
        st.info("Pin a scenario here or on Replay. Then change a setting: the pinned and the new one stand side by "
                "side.")
        return
    shown = [each.asked for each in pins()] + ([] if pin_of(own) else [own])
    _names(usual_names(shown))
    scenarios = named(shown)
    found = [replayed(each) for each in scenarios]
    _warn_of_traces(scenarios)
    _table(scenarios, found)
    if len(scenarios) > 1:
        words = st.container()
        figure = shown_figure([each.summary for each in found])
        draw_brush()
        picture = pictured(scenarios, figure, brushed())
        with words:
            _reasons(scenarios, picture)
        show_brushed(picture.figure, figure, key=f"compare-{figure}")
        _all_numbers(scenarios, found)
    _downloads(scenarios, found)


def _names(usual: Sequence[str]) -> None:
    """Ask for the names of the pinned scenarios, and offer to remove them.

    Parameters
    ----------
    usual : names of all scenarios that are shown, the pinned ones first.
    """
    for pinned, name in zip(pins(), usual, strict=False):
        left, right = st.columns([5, 1], vertical_alignment="bottom")
        key = f"name_{pinned.key}"
        left.text_input(f"name of {name}", pinned.name, placeholder=name, key=key, max_chars=MOST_NAME,
                        label_visibility="collapsed", on_change=_rename, args=(pinned.key, key))
        right.button("Remove", key=f"remove_{pinned.key}", width="stretch", on_click=unpin, args=(pinned.key,))


def _rename(pinned: str, field: str) -> None:
    rename(pinned, st.session_state[field])


def _warn_of_traces(scenarios: Sequence[ReplayQuestion]) -> None:
    """Say that the scenarios replay different traces."""
    sources = dict.fromkeys(each.trace.source for each in scenarios)
    if len({each.trace.sha256 for each in scenarios}) > 1:
        st.warning(plain(f"These scenarios replay different traffic ({', '.join(sources)}). The differences come from "
                         f"the traffic and from the settings."), icon=":material/warning:")


def _table(scenarios: Sequence[ReplayQuestion], found: Sequence[Numbers]) -> None:
    """Draw the settings that differ, the verdicts and the numbers, a column for each scenario."""
    settings = differing_settings([portable(each.study) for each in scenarios])
    lines = ["| | " + " | ".join(f"**{plain(each.study.name)}**" for each in scenarios) + " |",
             "|:--|" + "--:|" * len(scenarios)]
    lines += [line(setting_label(option), [plain(with_labels(setting_text(value))) for value in values])
              for option, values in settings.items()]
    lines.append(line("verdict", [plain(verdict_line(each.summary).kind.value) for each in found]))
    lines += [line(label, [cell(number) for number in numbers])
              for label, numbers in compared_rows([each.summary.values_by_key for each in found]).items()]
    with st.container(key="compared"):
        st.html("<style>.st-key-compared th, .st-key-compared td { overflow-wrap: anywhere; }</style>")  # on a phone
        st.markdown("\n".join(lines))
    st.caption("Bold: the best. In brackets: the difference from the first column.")


def line(label: str, cells: Sequence[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {plain(label)} | {' | '.join(cells)} |"


def cell(number: Cell) -> str:
    """Return a number of a scenario with its difference from the first, in Markdown."""
    text = f"**{plain(number.text)}**" if number.is_best else plain(number.text)
    if not number.difference:
        return text
    color = {None: "gray", True: "green", False: "red"}[number.is_better]
    return f"{text} :{color}[({plain(number.difference)})]"


def _reasons(scenarios: Sequence[ReplayQuestion], picture: Picture) -> None:
    """Write the reason of each scenario, and its difference from the first."""
    first = plain(scenarios[0].study.name)
    for scenario, difference in zip(scenarios, picture.differences, strict=True):
        if difference is not None:
            st.markdown(f"**{plain(scenario.study.name)}** against **{first}**: {plain(with_labels(difference))}")
    with st.expander("Where the time goes, scenario by scenario"):
        for scenario, reason, part in zip(scenarios, picture.reasons, picture.parts, strict=True):
            st.markdown(f"**{plain(scenario.study.name)}**: {plain(sentence(with_labels(reason)))}")
            if part is not None:
                st.caption(plain(part))


def _all_numbers(scenarios: Sequence[ReplayQuestion], found: Sequence[Numbers]) -> None:
    """Draw the tables of a comparison's report."""
    with st.expander("All numbers"):
        for table in comparison(_results(scenarios, found)):
            st.markdown(f"**{plain(table.title)}**")
            st.dataframe(_rows(table, [each.study.name for each in scenarios]), hide_index=True, alt=table.title,
                         column_config={each.study.name: st.column_config.TextColumn(alignment="right")
                                        for each in scenarios})


def _rows(table: Table, names: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a table, numbers with their difference from the first."""
    return [{"": row.label, **{
        name: f"{value_text(value, row.unit)}  {difference_text(value, row.values[0]) if place else ''}".rstrip()
        for place, (name, value) in enumerate(zip(names, row.values, strict=True))}} for row in table.rows]


def _results(scenarios: Sequence[ReplayQuestion], found: Sequence[Numbers]) -> list[SavedResult]:
    return [SavedResult(name=asked.study.name, summary=each.summary)
            for asked, each in zip(scenarios, found, strict=True)]


def _downloads(scenarios: Sequence[ReplayQuestion], found: Sequence[Numbers]) -> None:
    """Offer the summaries, as compare writes them, and the report of all."""
    st.subheader("Downloads", anchor=False)
    summaries = to_json([{"name": asked.study.name, **each.summary.values_by_key}
                         for asked, each in zip(scenarios, found, strict=True)])
    left, right = st.columns(2)
    left.download_button("Summaries, JSON", summaries, "comparison.json", "application/json", width="stretch",
                         on_click="ignore")
    right.download_button("Report, HTML", lambda: waited_for(report, scenarios), "comparison.html", "text/html",
                          width="stretch", on_click="ignore")
