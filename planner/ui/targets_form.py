"""Targets of all pages: a number for each metric and how many requests must keep it, or the same as text."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from planner.errors import PlannerError
from planner.planning.search_options import DEFAULT_ATTAINMENT
from planner.settings.objectives import Objectives, given_objectives
from planner.settings.slo import METRICS
from planner.settings.statistic import LABELS
from planner.ui.kept_settings import Setting, bound, last
from planner.ui.link import ANY, number

FIRST = "ttft:500 tpot:50"  # of a new page
EACH = "each of a share"
KINDS = ("p50", "p90", "p95", "p99", EACH)
SHORT = {"ttft": "TTFT", "tpot": "TPOT", "e2el": "End to end"}
AS_TEXT, KIND = "targets_as_text", "targets_kind"  # in the session's state
HELP = ("Targets in ms, for each request (ttft:500 tpot:50 e2el:5000) or for a statistic over all requests "
        "(p99_ttft:1000, mean_tpot:40).")
TARGET_SETTINGS = {
    "slo": Setting(first=FIRST, values=lambda: ANY, read=last),
    "attainment": Setting(first=DEFAULT_ATTAINMENT, read=lambda texts: float(texts[-1]),
                          values=lambda: number(0.01, 1.0, is_whole=False, may_be_empty=False))}


def targets_form() -> None:
    """Draw the fields; they set `slo` and `attainment` in the session's state."""
    limits = _limits(st.session_state["slo"])
    if limits is None or st.session_state.get(AS_TEXT, False):
        kind = EACH
        st.text_input("Targets", placeholder="no targets", help=HELP, **bound("slo"))
    else:
        kind = limits[0]
        _fields(*limits)
    if kind == EACH:
        st.number_input("Share of requests within their limits", min_value=0.01, max_value=1.0, step=0.01,
                        help="For limits of each request: so many of the requests must keep all of them. 1 is all.",
                        **bound("attainment"))
    st.toggle("Targets as text", key=AS_TEXT, persist_state="session", disabled=limits is None,
              help=HELP if limits is not None else "These targets can only be shown as text.")


def given_targets(settings: Mapping[str, Any] | None = None) -> Objectives | None:
    """Return the targets; None without any.

    Parameters
    ----------
    settings : with `slo` and `attainment`; None for the session's.

    Raises
    ------
    UsageError, UnknownNameError : the text is wrong.
    """
    own: Any = st.session_state if settings is None else settings
    asked = given_objectives(own["slo"])
    return asked if asked is None or not asked.slo.limits_s else given_objectives(own["slo"], own["attainment"])


def targets_words(objectives: Objectives | None) -> str:
    """Return targets in words.

    >>> from planner.settings.objectives import parse_objectives
    >>> targets_words(parse_objectives("ttft:500 tpot:50", 0.99))
    'TTFT 500 ms, TPOT 50 ms for 99 % of the requests'
    >>> targets_words(parse_objectives("p99_ttft:1000"))
    'p99 TTFT 1,000 ms'
    """
    if objectives is None:
        return "no targets"
    each = ", ".join(f"{LABELS[name]} {1e3 * limit_s:,g} ms" for name, limit_s in objectives.slo.limits_s.items())
    if each and objectives.attainment is not None:
        each += f" for {100 * objectives.attainment:g} % of the requests"
    return "; ".join(filter(None, [each, ", ".join(f"{statistic.label} {1e3 * limit_s:,g} ms" for statistic, limit_s
                                                   in objectives.statistics.items())]))


def text_words() -> str:
    """Return the session's targets in words, or their text if it is wrong."""
    try:
        return targets_words(given_targets())
    except PlannerError:
        return str(st.session_state["slo"])


def _fields(kind: str, limits_ms: dict[str, float]) -> None:
    """Draw a number for each metric, and which requests it is for."""
    share = f"each of {100 * st.session_state['attainment']:g} % of the requests"
    st.session_state[KIND] = kind
    st.selectbox("Targets [ms] for", KINDS, key=KIND, on_change=_compose,
                 format_func=lambda kind: share if kind == EACH else f"{kind} of all requests",
                 help="A percentile limits that latency over all requests. A share limits each request: so many of "
                      "them must keep all limits at once.")
    for place, metric in zip(st.columns(len(METRICS)), METRICS, strict=True):
        st.session_state[_key(metric)] = limits_ms.get(metric)
        place.number_input(SHORT[metric], min_value=0.001, value=None, placeholder="none", format="%g",
                           key=_key(metric), on_change=_compose)


def _compose() -> None:
    """Set the text of the targets to the fields'."""
    kind = st.session_state[KIND]
    before = "" if kind == EACH else f"{kind}_"
    values = {metric: st.session_state[_key(metric)] for metric in METRICS}
    st.session_state["slo"] = " ".join(f"{before}{metric}:{value:g}" for metric, value in values.items()
                                       if value is not None)


def _limits(text: str | None) -> tuple[str, dict[str, float]] | None:
    """Return targets as the fields have them: their kind and the limits by metric [ms]; None if no field has them.

    >>> _limits("p99_ttft:1000 p99_e2el:9000")
    ('p99', {'ttft': 1000.0, 'e2el': 9000.0})
    >>> _limits("p99_ttft:1000 tpot:50") is None
    True
    """
    try:
        asked = given_objectives(text)
    except PlannerError:
        return None
    if asked is None:
        return st.session_state.get(KIND, EACH), {}
    kinds = {EACH for _ in asked.slo.limits_s} | {statistic.name.partition("_")[0] for statistic in asked.statistics}
    if len(kinds) > 1 or not kinds <= set(KINDS):
        return None
    limits = {name: 1e3 * limit_s for name, limit_s in asked.slo.limits_s.items()}
    limits |= {statistic.metric: 1e3 * limit_s for statistic, limit_s in asked.statistics.items()}
    return kinds.pop(), limits


def _key(metric: str) -> str:
    return f"targets_{metric}"
