"""The page of one replay: its verdict and headlines against a pinned one, why, its figures, and downloads."""

from typing import Any

import streamlit as st

from planner.planning.study import Study, command_line, study_toml
from planner.report.content import value_text
from planner.results.saturation import NO, saturation_sentence
from planner.results.saved import to_json
from planner.results.summary import HEADLINES
from planner.settings.judged import judged_of, sentences
from planner.traces import Trace
from planner.ui.downloads import table_csv
from planner.ui.kept_replays import replayed, show
from planner.ui.own_profiles import portable
from planner.ui.tasks import MOST_CSV_ROWS, Asked, Shown, report, requests
from planner.ui.waiting import waited_for
from planner.ui.words import plain, without_paths

PINNED = "pinned"
REASONS = {  # why a request was not completed, by the table of requests
    "too_long": "prompt longer than max_model_len", "kv_cache": "larger than the KV cache",
    "token_budget": "prompt above max_num_batched_tokens, not split",
    "client": "the user hung up", "timeout": "the client's time-out ended it", "queue_full": "the queue was full",
    "quota": "over the tenant's quota", "no_replica": "no replica was available",
    "replica_failed": "its replica failed",
}


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    own = Asked(trace=trace, study=study)
    pinned: Asked | None = st.session_state.get(PINNED)
    replays = replayed([own] if pinned is None else [own, pinned])
    shown, before = replays.shown[0], replays.shown[1] if pinned is not None else None
    left, right = st.columns([4, 1], vertical_alignment="center")
    left.caption(plain(shown.caption))
    if right.button("Unpin" if pinned else "Pin as baseline", width="stretch"):
        st.session_state[PINNED] = None if pinned else own
        st.rerun()
    if before is not None:
        st.caption(plain(f"Pinned: {before.caption}"))
    verdicts(shown)
    headlines(shown.summary, None if before is None else before.summary)
    st.info(plain(shown.reason), icon=":material/lightbulb:")
    for note in (*([] if shown.part is None else [shown.part]), *shown.summary["notes"]):
        st.caption(without_paths(note))
    columns = st.columns(2)
    for place, (name, figure) in enumerate(replays.figures.items()):
        with columns[place % 2]:
            show(figure, key=f"replay-{name}")
    downloads(own, shown.summary)


def verdicts(shown: Shown) -> None:
    """Draw which requests were not served, whether the deployment keeps up, and whether the objectives are met."""
    if shown.unserved:
        total = shown.summary["workload"]["num_requests"]
        count = sum(each for _, _, each in shown.unserved)
        parts = "; ".join(f"{each:,} {status.replace('_', ' ')}{_because(reason)}"
                          for status, reason, each in shown.unserved)
        st.warning(f"{count:,} of {total:,} requests ({count / total:.1%}) were not completed: {parts}. Latencies and "
                   f"the reason below exclude them.", icon=":material/block:")
    if shown.summary["saturated"] == NO:
        st.caption(plain(saturation_sentence(shown.summary)))
    else:
        st.warning(plain(saturation_sentence(shown.summary)), icon=":material/trending_up:")
    for sentence, is_met in sentences(judged_of(shown.summary)):
        (st.success if is_met else st.warning)(plain(f"{'met' if is_met else 'missed'}: {sentence}"),
                                               icon=":material/check:" if is_met else ":material/close:")


def _because(reason: str | None) -> str:
    return "" if reason is None else f" ({REASONS[reason]})"


def headlines(summary: dict[str, Any], pinned: dict[str, Any] | None) -> None:
    """Draw the headline numbers, with the pinned ones below them."""
    with st.container(horizontal=True):
        for key, label, unit in HEADLINES:
            value = summary[key]
            if value is not None:
                st.metric(label, value_text(value, unit), _delta(value, pinned, key, unit), delta_color="off",
                          delta_arrow="off", width="content")


def _delta(value: Any, pinned: dict[str, Any] | None, key: str, unit: str) -> str | None:
    before = None if pinned is None else pinned[key]
    if before is None or isinstance(value, str):
        return None
    return f"{value_text(before, unit)} pinned"


def downloads(own: Asked, summary: dict[str, Any]) -> None:
    """Offer the result's files, and the command line and the file that do the same."""
    st.subheader("Take it with you")
    study = portable(own.study)
    st.code(command_line(study), language=None, wrap_lines=True)
    columns = st.columns(4)
    columns[0].download_button("Summary, JSON", to_json(summary), "summary.json", "application/json",
                               width="stretch", on_click="ignore")
    count = summary["workload"]["num_requests"]
    columns[1].download_button("Requests, CSV", lambda: table_csv(waited_for(requests, own)), "requests.csv",
                               "text/csv", width="stretch", on_click="ignore", disabled=count > MOST_CSV_ROWS,
                               help=f"Up to {MOST_CSV_ROWS:,} requests; for more, add --requests requests.csv to the "
                                    f"command above.")
    columns[2].download_button("Scenario, TOML", study_toml(study), "scenario.toml", "application/toml",
                               width="stretch", on_click="ignore")
    columns[3].download_button("Report, HTML", lambda: waited_for(report, [own]), "report.html", "text/html",
                               width="stretch", on_click="ignore")
