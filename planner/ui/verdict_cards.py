"""The verdict on a replay, its three cards with their limits, and its other numbers in one line."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from planner.files.counts import share_text
from planner.report.target_cards import Card, cards
from planner.report.verdict_line import Kind, verdict_line
from planner.results.saturation import NO, saturation_sentence
from planner.results.short_times import time_text
from planner.ui.replay_tasks import Numbers
from planner.ui.words import plain, sentence

BOXES = {Kind.KEPT: (st.success, ":material/check_circle:"), Kind.MISSED: (st.error, ":material/cancel:"),
         Kind.OVERLOADED: (st.error, ":material/trending_up:"), Kind.UNSERVED: (st.warning, ":material/block:"),
         Kind.NO_TARGETS: (st.info, ":material/info:")}
QUIET = (("p99_e2el_ms", "end to end p99", "ms"), ("mean_queue_ms", "mean queue", "ms"),
         ("kv_cache_usage_peak", "KV cache peak", "%"), ("gpu_busy_fraction", "GPU busy", "%"),
         ("cost_usd_per_million_output_tokens", "USD per million output tokens", "USD"),
         ("cost_usd_per_thousand_results", "USD per 1,000 embeddings or pairs", "USD"))


def draw_verdict(numbers: Numbers) -> None:
    """Draw the verdict as one coloured line."""
    verdict = verdict_line(numbers.summary)
    box, icon = BOXES[verdict.kind]
    box(plain(verdict.sentence), icon=icon)


def draw_cards(summary: Mapping[str, Any], pinned: Mapping[str, Any] | None) -> None:
    """Draw the cards, each with the pinned result's number if there is one; then the other numbers."""
    shown = cards(summary)
    before = [] if pinned is None else cards(pinned)
    for place, (column, card) in enumerate(zip(st.columns(len(shown)), shown, strict=True)):
        same = next((each for each in before if each.title == card.title), None)
        key = f"{'missed' if card.is_met is False else 'card'}_{place}"  # the page's style colours a missed limit's bar
        with column.container(border=True, key=key, height="stretch"):
            _draw(card, same)
    st.caption(plain(" · ".join(quiet_numbers(summary))))
    if summary["saturated"] != NO:
        st.caption(plain(sentence(saturation_sentence(summary))))


def _draw(card: Card, before: Card | None) -> None:
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
