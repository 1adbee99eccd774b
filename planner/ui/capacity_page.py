"""The page of capacity: the highest rate or the most users within the objectives, how sure, and other targets."""

from dataclasses import replace
from typing import Any

import polars as pl
import streamlit as st

from planner.deployment.shaped_load import shape_load
from planner.errors import UsageError
from planner.files.keys import asdict
from planner.planning.bracket import UNKNOWNS
from planner.planning.capacity import capacity as find_capacity
from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.other_targets import kept_up_to, tried_loads
from planner.planning.search_options import Search
from planner.planning.study import Study, command_line, without_rate
from planner.report.capacity_sentence import capacity_sentence, confidence_sentence, limit_words
from planner.report.figures.answer_figures import capacity_figure, limited_statistics, load_axis
from planner.report.figures.rate_figures import arrivals
from planner.report.shown import text_of
from planner.settings.objectives import objectives_text
from planner.settings.rate_scaling import MEANINGS, RECOMMENDED
from planner.settings.statistic import TOLD, Statistic, parse_statistic
from planner.traces import Trace
from planner.ui.downloads import answer_downloads
from planner.ui.kept_answers import KeptAnswer, answer, is_asked, question_of, search
from planner.ui.kept_replays import show
from planner.ui.kept_settings import Setting, bound, last
from planner.ui.link import in_link, number, one_of
from planner.ui.own_profiles import portable
from planner.ui.replay_tasks import check_load
from planner.ui.study_files import save_form
from planner.ui.table_words import rounded, worded
from planner.ui.targets_form import targets_words
from planner.ui.words import plain, without_paths

NAME = "capacity"
KEYS = ("think_time", "replicates")  # in the address
MOST_REPLICATES = 100
COUNTED = {"requests": "requests per second", "concurrency": "users: requests in flight", "sessions": "open sessions"}
SCALINGS = [RECOMMENDED, *(way for way in MEANINGS if way != RECOMMENDED)]
CAPACITY_SETTINGS = {
    "of": Setting(first="requests", values=lambda: one_of(COUNTED), read=last),
    "scaling": Setting(first=RECOMMENDED, values=lambda: one_of(SCALINGS), read=last)}


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    if study.objectives is None:
        raise UsageError("A capacity needs targets; give them in the sidebar.")
    study = replace(study, scenario=without_rate(study.scenario))
    form = _asked(study)
    question = question_of(trace, study, _words(study, form))
    if st.button("Find the capacity", type="primary", key="capacity_find"):
        check_load(trace, study.scenario)
        search(NAME, question, _command(study, form), find_capacity, trace, study.scenario, study.objectives,
               Search(of=form["of"], think_time=form["think_time"], scaling=form["scaling"] or RECOMMENDED,
                      replicates=form["replicates"]))
    found = answer(NAME, question, "Searching for the largest load within the targets")
    if found is not None:
        is_current = found.question.key == question.key
        _draw(found, trace, study, is_current=is_current)
        if is_current:
            save_form("capacity", text_of(found.value).words[0], found.value)
    elif not is_asked(NAME):
        st.info("Find the highest rate of this traffic that the sidebar's deployment serves within the targets.")


def _asked(study: Study) -> dict[str, Any]:
    """Ask for the unit of the capacity, and, folded away, for the method of the search."""
    left, right = st.columns(2)
    of, think_time = users_of(left, right)
    with st.expander("More: method and confidence"):
        left, right = st.columns(2)
        scaling = scaling_of(left)
        counts = number(0, MOST_REPLICATES, is_whole=True, may_be_empty=False)
        usual = Search().replicates
        replicates = right.number_input("Windows for the confidence", 0, MOST_REPLICATES, usual,
                                        **in_link("replicates", usual, counts),
                                        help="Searches on other windows of the traffic, for the confidence. 0: none.")
    return {**objectives_of(study), "of": of, "think_time": think_time,
            "scaling": scaling if of == "requests" else None, "replicates": int(replicates)}


def _words(study: Study, form: dict[str, Any]) -> dict[str, Any]:
    """Return the form's values by their names in words."""
    scaling = form["scaling"]
    return {"targets": targets_words(study.objectives), "capacity in": COUNTED[form["of"]],
            "think time [s]": form["think_time"], "another rate by": None if scaling is None else MEANINGS[scaling],
            "windows for the confidence": form["replicates"]}


def users_of(place: Any, beside: Any) -> tuple[str, float | None]:
    """Ask for the unit of the capacity, and how long users pause if it counts them.

    Parameters
    ----------
    place, beside : containers of Streamlit's.
    """
    kinds = list(UNKNOWNS)
    of: str = place.selectbox("Capacity in", kinds, format_func=COUNTED.__getitem__, **bound("of"))
    pauses = number(0.0, None, is_whole=False, may_be_empty=True)
    pause_s = beside.number_input("Think time [s]", 0.0, None, None, disabled=of == kinds[0],
                                  help="Pause of a user between an answer and the next request; empty for the trace's.",
                                  **in_link("think_time", None, pauses))
    return of, None if of == kinds[0] else pause_s


def scaling_of(place: Any) -> str:
    """Ask how the traffic gets another rate, on each page that needs one.

    Parameters
    ----------
    place : a container of Streamlit's.
    """
    scaling: str = place.selectbox("Another rate by", SCALINGS, format_func=MEANINGS.__getitem__, **bound("scaling"),
                                   help="How the log's traffic gets another rate.")
    return scaling


def objectives_of(study: Study) -> dict[str, Any]:
    """Return the objectives of a study, as the command line takes them."""
    assert study.objectives is not None
    return {"slo": objectives_text(study.objectives), "attainment": study.objectives.attainment}


def _draw(answer: KeptAnswer, trace: Trace, study: Study, *, is_current: bool) -> None:
    """Draw an answer: its sentence, how sure it is, its figure, other targets, and the rest folded away."""
    capacity: CapacityAnswer = answer.value
    words = text_of(capacity).words
    if capacity.feasible:
        st.subheader(plain(capacity_sentence(capacity)), anchor=False)
        st.caption(plain(confidence_sentence(capacity)))
    else:
        st.warning(plain("\n\n".join(words)), icon=":material/block:")
    for note in (*filter(None, [capacity.lowered]), *capacity.notes):
        st.caption(plain(without_paths(note)))
    if capacity.probes:
        show(capacity_figure(capacity), key="capacity-attainment")
        other_targets(capacity)
        with st.expander("Details and loads that were tried"):
            for line in words if capacity.feasible else ():
                st.caption(plain(line))
            rows = pl.DataFrame([_row(probe, capacity.of) for probe in capacity.probes], infer_schema_length=None)
            st.dataframe(rounded(rows), hide_index=True, alt="loads that were tried",
                         column_config=worded(rows.columns))
    if is_current and capacity.is_rate and capacity.feasible:
        with st.expander("Today's traffic beside the capacity"):
            show(arrivals(shape_load(study.scenario, trace), capacity_rps=capacity.capacity),
                 key="capacity-load")
            st.caption("The capacity is a mean rate of this traffic, with its bursts.")
    answer_downloads("capacity", capacity, answer.about)


def _row(probe: Any, of: str) -> dict[str, Any]:
    """Return a load that was tried as a row, its statistics as columns."""
    values = asdict(probe, of)
    return {**{name: value for name, value in values.items() if name != "statistics_ms"},
            **{f"{name}_ms": value for name, value in (values["statistics_ms"] or {}).items()}}


def _command(study: Study, form: dict[str, Any]) -> str:
    """Return the command that finds the same."""
    return command_line(portable(study), "capacity", form)


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
