"""The page of capacity: the highest rate within the objectives, how sure, and attainment over the rate."""

from dataclasses import replace
from typing import Any

import streamlit as st

from planner.deployment.deploy import shape_load
from planner.errors import UsageError
from planner.files.keys import asdict
from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.highest_rate import capacity as find_capacity
from planner.planning.search_options import Search
from planner.planning.study import Study, command_line, without_rate
from planner.report.figures.answer_figures import attainment_over_rate
from planner.report.figures.rate_figures import arrivals
from planner.report.plan_tables import capacity_words
from planner.settings.objectives import objectives_text
from planner.settings.rate_scaling import MEANINGS, RECOMMENDED
from planner.traces import Trace
from planner.ui.downloads import answer_downloads
from planner.ui.kept_answers import Answer, answer, is_asked, question_of, search
from planner.ui.kept_replays import show, theme
from planner.ui.link import in_link, number, one_of
from planner.ui.own_profiles import portable
from planner.ui.tasks import check_load
from planner.ui.words import plain, without_paths

NAME = "capacity"
KEYS = ("scaling", "replicates")  # in the address
MOST_REPLICATES = 100


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    if study.objectives is None:
        raise UsageError("slo: a capacity needs objectives; give them in the sidebar, as in 'ttft:500 tpot:50'")
    study = replace(study, scenario=without_rate(study.scenario))
    columns = st.columns(2)
    scaling = scaling_of(columns[0])
    counts = number(0, MOST_REPLICATES, is_whole=True, may_be_empty=False)
    usual = Search().replicates
    replicates = columns[1].number_input("bootstrap replicates", 0, MOST_REPLICATES, usual,
                                         **in_link("replicates", usual, counts))
    form = {**objectives_of(study), "scaling": scaling, "replicates": replicates}
    question = question_of(trace, study, form)
    if st.button("Find the capacity", type="primary", key="capacity_find"):
        check_load(trace, study.scenario)
        search(NAME, question, _command(study, form), find_capacity, trace, study.scenario, study.objectives,
               Search(scaling=scaling, replicates=int(replicates)))
    found = answer(NAME, question, "Searching for the highest rate within the objectives")
    if found is not None:
        _draw(found)
        if found.question.key == question.key and found.value.feasible:
            show(arrivals(shape_load(study.scenario, trace), capacity_rps=found.value.capacity_rps, theme=theme()),
                 key="capacity-load")
            st.caption("The capacity is a mean rate of this traffic, with its bursts.")
    elif not is_asked(NAME):
        st.info("Find the highest rate of this traffic that the sidebar's deployment serves within the objectives.")


def scaling_of(place: Any) -> str:
    """Ask how the traffic gets another rate, on each page that needs one.

    Parameters
    ----------
    place : a container of Streamlit's.
    """
    ways = [RECOMMENDED, *(way for way in MEANINGS if way != RECOMMENDED)]
    scaling: str = place.selectbox("scaling", ways, **in_link("scaling", RECOMMENDED, one_of(ways)),
                                   help="Ways to change the traffic's rate: " + "; ".join(
                                     f"{way}, {meaning}" for way, meaning in MEANINGS.items()) + ".")
    return scaling


def objectives_of(study: Study) -> dict[str, Any]:
    """Return the objectives of a study, as the command line takes them."""
    assert study.objectives is not None
    return {"slo": objectives_text(study.objectives), "attainment": study.objectives.attainment}


def _draw(answer: Answer) -> None:
    capacity: CapacityAnswer = answer.value
    words = capacity_words(capacity)
    if not capacity.feasible:
        st.warning(plain("\n\n".join(words)), icon=":material/block:")
    else:
        st.metric("capacity", f"{capacity.capacity_rps:.4g} requests/s",
                  f"{capacity.rate_scale:.3g} times the trace's rate", delta_color="off", delta_arrow="off")
        for line in words:
            st.caption(plain(line))
    for note in capacity.notes:
        st.caption(without_paths(note))
    if capacity.probes:
        show(attainment_over_rate(capacity, theme=theme()), key="capacity-attainment")
        st.dataframe([asdict(probe) for probe in capacity.probes], hide_index=True, alt="rates that were tried")
    answer_downloads("capacity", capacity, answer.about)


def _command(study: Study, form: dict[str, Any]) -> str:
    """Return the command that finds the same."""
    return command_line(portable(study), "capacity", form)
