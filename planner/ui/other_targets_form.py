"""Other targets for a capacity: percentile, limit and share, answered from the loads that the search has tried."""

import streamlit as st

from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.other_targets import kept_up_to, tried_loads
from planner.report.capacity_sentence import limit_words
from planner.report.figures.answer_figures import load_axis
from planner.report.figures.limit_figures import limited_statistics
from planner.settings.statistic import TOLD, Statistic, parse_statistic
from planner.ui.words import plain


def other_targets(found: CapacityAnswer) -> None:
    """Ask for other targets and write between which tried loads they stop being kept; nothing without such loads."""
    tried, limits = tried_loads(found), limited_statistics(found)
    if not tried:
        return
    st.markdown("**Other targets, without a new search**")
    chosen: dict[str, float] = {}
    for place, (name, limit) in enumerate(limits.items()):
        statistic = parse_statistic(name)
        assert statistic is not None, name
        names = list(dict.fromkeys([name, *(Statistic(metric=statistic.metric, percentile=each).name
                                            for each in (None, *TOLD))]))
        left, right = st.columns(2)
        other = left.selectbox(f"statistic {place + 1}", names, format_func=limit_words, key=f"other_statistic_{name}")
        chosen[other] = right.number_input(f"limit {place + 1} [ms]", 0.001, None, limit, format="%g",
                                           key=f"other_limit_{name}")
    attainment = found.attainment
    if attainment is not None:
        attainment = st.number_input(f"share of requests within their own limits ({found.slo.text})", 0.01, 1.0,
                                     attainment, 0.01, key="other_attainment")
    low, high = kept_up_to(tried, chosen, attainment)
    unit = load_axis(found)[2]
    if low is None:
        text = f"These targets are missed at {high:,.4g}{unit}, the lowest load that was tried."
    elif high is None:
        text = f"These targets are kept up to {low:,.4g}{unit}, the highest load that was tried."
    else:
        text = f"These targets are kept up to {low:,.4g}{unit}, and missed at {high:,.4g}{unit}."
    st.info(plain(f"{text} Search again for a closer number."), icon=":material/straighten:")
