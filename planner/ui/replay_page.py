"""The page of one replay: its verdict, three cards with their limits, the reason, changes that help, and downloads."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from planner.errors import PlannerError
from planner.files.counts import share_text
from planner.planning.study import Study, command_line, study_toml
from planner.report.target_cards import Card, cards
from planner.report.verdict_line import VerdictKind, verdict_line
from planner.results.saturation import NO, saturation_sentence
from planner.results.saved import to_json
from planner.results.short_times import time_text
from planner.results.summary_answer import Summary
from planner.traces import Trace
from planner.ui.applied import set_options
from planner.ui.brush import brushed, draw_brush, show_brushed
from planner.ui.change_tasks import Change, Changes, find_changes
from planner.ui.downloads import table_csv
from planner.ui.figure_choice import shown_figure
from planner.ui.history import draw_history, keep_try
from planner.ui.kept_answers import answer, question_of, search
from planner.ui.kept_replays import pictured, replayed
from planner.ui.own_profiles import portable
from planner.ui.pinned import Pin, can_pin, named, pin, pin_of, pins, unpin
from planner.ui.replay_tasks import Numbers, ReplayQuestion, report, requests
from planner.ui.study_files import save_form
from planner.ui.tasks import MOST_CSV_ROWS
from planner.ui.verdict_image import verdict_png
from planner.ui.waiting import waited_for
from planner.ui.words import plain, sentence, with_labels, without_paths

REASONS = {  # why a request was not completed, by the table of requests
    "too_long": "prompt longer than max_model_len", "kv_cache": "larger than the KV cache",
    "token_budget": "prompt above max_num_batched_tokens, not split",
    "client": "the user hung up", "timeout": "the client's time-out ended it", "queue_full": "the queue was full",
    "quota": "over the tenant's quota", "no_replica": "no replica was available",
    "replica_failed": "its replica failed",
}


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    own = ReplayQuestion(trace=trace, study=study)
    found = replayed(own)
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.caption(plain(found.caption))
    first = _pin_button(right, own)
    before = None if first is None else replayed(first.asked)
    draw_verdict(found)
    _unserved(found)
    draw_cards(found.summary, None if before is None else before.summary)
    keep_try(own, found)
    what_to_change(trace, study)
    _why(own, found, first)
    draw_history()
    downloads(own, found)
    save_form("replay", verdict_line(found.summary).sentence, found.summary)


def _pin_button(place: Any, own: ReplayQuestion) -> Pin | None:
    """Draw the button that pins; return the first pin if it is another scenario."""
    own_pin = pin_of(own)
    if own_pin is not None:
        place.button("Unpin", width="stretch", on_click=unpin, args=(own_pin.key,), key="unpin")
    elif place.button("Pin to compare", width="stretch", disabled=not can_pin(own), key="replay_pin",
                      help="Keeps this scenario. Change a setting to see both here, or open Compare."):
        pin(own)
        st.rerun()
    return next((each for each in pins() if own_pin is None or each.key != own_pin.key), None)


def _unserved(found: Numbers) -> None:
    """Write why requests were not completed, if a summary's words do not tell."""
    told = [f"{count:,} {status.replace('_', ' ')} ({REASONS[reason]})" for status, reason, count in found.unserved
            if status != "rejected" and reason is not None]
    if told:
        st.caption(plain("Not completed: " + "; ".join(told)))
    if found.unserved:
        st.caption("Latencies and the reason exclude requests that were not completed.")


def _why(own: ReplayQuestion, found: Numbers, first: Pin | None) -> None:
    """Draw the reason, the difference to the first pinned scenario, and the chosen figure."""
    words = st.container()
    figure = shown_figure([found.summary])
    draw_brush()
    scenarios = [own] if first is None else named([first.asked, own])
    try:
        picture = pictured(scenarios, figure, brushed())
    except PlannerError as error:  # the numbers stay
        st.error(without_paths(str(error)), icon=":material/error:")
        return
    words.info(plain(sentence(with_labels(picture.reasons[-1]))), icon=":material/lightbulb:")
    difference, part = picture.differences[-1], picture.parts[-1]
    if difference is not None:
        words.markdown(f"**{plain(scenarios[1].study.name)} against {plain(scenarios[0].study.name)}**: "
                       f"{plain(with_labels(difference))}")
    if part is not None:
        words.caption(plain(part))
    show_brushed(picture.figure, figure, key=f"replay-{figure}")
    saturation = found.summary.figures.saturation
    notes = [*([saturation_sentence(saturation)] if saturation.saturated == NO else []), *found.summary.notes]
    if notes:
        with st.expander(f"Notes ({len(notes):,})"):
            for note in notes:
                st.caption(plain(sentence(with_labels(without_paths(note)))))


def downloads(own: ReplayQuestion, found: Numbers) -> None:
    """Offer the result's files and its picture, and the command line and the file that do the same."""
    summary = found.summary
    st.subheader("Downloads and command", anchor=False)
    study = portable(own.study)
    st.code(command_line(study), language=None, wrap_lines=True)
    columns = st.columns(5)
    columns[0].download_button("Summary, JSON", to_json(summary), "summary.json", "application/json",
                               width="stretch", on_click="ignore")
    count = summary.workload["num_requests"]
    columns[1].download_button("Requests, CSV", lambda: table_csv(waited_for(requests, own)), "requests.csv",
                               "text/csv", width="stretch", on_click="ignore", disabled=count > MOST_CSV_ROWS,
                               help=f"Up to {MOST_CSV_ROWS:,} requests; for more, add --requests requests.csv to the "
                                    f"command above.")
    columns[2].download_button("Scenario, TOML", study_toml(study), "scenario.toml", "application/toml",
                               width="stretch", on_click="ignore")
    columns[4].download_button("Picture, PNG", lambda: verdict_png(
        "Replay", verdict_line(summary).sentence, cards(summary), found.caption), "verdict.png", "image/png",
        width="stretch", on_click="ignore", help="The verdict and its cards, to paste into a chat or a slide.")
    columns[3].download_button("Report, HTML", lambda: waited_for(report, [own]), "report.html", "text/html",
                               width="stretch", on_click="ignore")


NAME = "changes"


def what_to_change(trace: Trace, study: Study) -> None:
    """Draw a button that looks for changes, and the changes with their buttons."""
    asked = ReplayQuestion(trace=trace, study=study)
    question = question_of(trace, study, {})
    if st.button("Find what to change", key="changes_find", icon=":material/build:",
                 help="Replays the scenario with one setting changed at a time, and sizes the fleet if it misses its "
                      "targets."):
        search(NAME, question, None, find_changes, asked)
    found = answer(NAME, question, "Replaying changed settings", keeps_stale=False)
    if found is None:
        return
    changes: Changes = found.value
    for place, change in enumerate(changes.changes):
        _draw(place, change, asked)
    for note in changes.notes:
        st.caption(plain(note))


def _draw(place: int, change: Change, asked: ReplayQuestion) -> None:
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.markdown(f"**{plain(change.title)}**: {plain(change.effect)}")
    right.button("Apply", key=f"change_{place}", width="stretch", on_click=_apply, args=(change, asked),
                 help="Sets it in the sidebar, and pins the present result to compare with.")


def _apply(change: Change, asked: ReplayQuestion) -> None:
    pin(asked)
    set_options(change.options)


BOXES = {VerdictKind.KEPT: (st.success, ":material/check_circle:"), VerdictKind.MISSED: (st.error, ":material/cancel:"),
         VerdictKind.OVERLOADED: (st.error, ":material/trending_up:"),
         VerdictKind.UNSERVED: (st.warning, ":material/block:"),
         VerdictKind.NO_TARGETS: (st.info, ":material/info:")}
QUIET = (("p99_e2el_ms", "end to end p99", "ms"), ("mean_queue_ms", "mean queue", "ms"),
         ("kv_cache_usage_peak", "KV cache peak", "%"), ("gpu_busy_fraction", "GPU busy", "%"),
         ("cost_usd_per_million_output_tokens", "USD per million output tokens", "USD"),
         ("cost_usd_per_thousand_results", "USD per 1,000 embeddings or pairs", "USD"))


def draw_verdict(numbers: Numbers) -> None:
    """Draw the verdict as one coloured line."""
    verdict = verdict_line(numbers.summary)
    box, icon = BOXES[verdict.kind]
    box(plain(verdict.sentence), icon=icon)


def draw_cards(summary: Summary, pinned: Summary | None) -> None:
    """Draw the cards, each with the pinned result's number if there is one; then the other numbers."""
    shown = cards(summary)
    before = [] if pinned is None else cards(pinned)
    for place, (column, card) in enumerate(zip(st.columns(len(shown)), shown, strict=True)):
        same = next((each for each in before if each.title == card.title), None)
        key = f"{'missed' if card.is_met is False else 'card'}_{place}"  # the page's style colours a missed limit's bar
        with column.container(border=True, key=key, height="stretch"):
            _draw_card(card, same)
    st.caption(plain(" · ".join(quiet_numbers(summary.values_by_key))))
    saturation = summary.figures.saturation
    if saturation.saturated != NO:
        st.caption(plain(sentence(saturation_sentence(saturation))))


def _draw_card(card: Card, before: Card | None) -> None:
    beside = card.beside if before is None else f"{card.beside}; pinned {before.value}"
    st.metric(card.title, card.value, beside, delta_color="off", delta_arrow="off")
    if card.used is not None:
        st.progress(min(1.0, max(0.0, card.used)))
    if card.limit:
        icon = {None: "", True: ":material/check: ", False: ":material/close: "}[card.is_met]
        st.caption(f"{icon}{plain(card.limit)}")


def quiet_numbers(summary: Mapping[str, Any]) -> list[str]:
    """Return the numbers of less weight as texts."""
    return [f"{summary[key]:,.2f} {name}" if unit == "USD" else f"{name} {_short(summary[key], unit)}"
            for key, name, unit in QUIET if summary.get(key) is not None]


def _short(value: float, unit: str) -> str:
    return time_text(value) if unit == "ms" else share_text(value)
