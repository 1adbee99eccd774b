"""The page of capacity: the highest rate or the most users within the objectives, how sure, and attainment."""

from dataclasses import replace
from typing import Any

import streamlit as st

from planner.deployment.deploy import shape_load
from planner.errors import UsageError
from planner.files.keys import asdict
from planner.planning.bracket import UNKNOWNS
from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.capacity_of import capacity_of
from planner.planning.search_options import Search
from planner.planning.study import Study, command_line, without_rate
from planner.planning.users_answer import UsersAnswer
from planner.report.figures.answer_figures import attainment_over_load
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
from planner.ui.replay_tasks import check_load
from planner.ui.words import plain, without_paths

NAME = "capacity"
KEYS = ("of", "think_time", "scaling", "replicates")  # in the address
MOST_REPLICATES = 100


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    if study.objectives is None:
        raise UsageError("slo: a capacity needs objectives; give them in the sidebar, as in 'ttft:500 tpot:50'")
    study = replace(study, scenario=without_rate(study.scenario))
    columns = st.columns(4)
    of, think_time = users_of(columns[0], columns[1])
    scaling = scaling_of(columns[2])
    counts = number(0, MOST_REPLICATES, is_whole=True, may_be_empty=False)
    usual = Search().replicates
    replicates = columns[3].number_input("bootstrap replicates", 0, MOST_REPLICATES, usual,
                                         **in_link("replicates", usual, counts))
    form = {**objectives_of(study), "of": of, "think_time": think_time,
            "scaling": scaling if of == "requests" else None, "replicates": replicates}
    question = question_of(trace, study, form)
    if st.button("Find the capacity", type="primary", key="capacity_find"):
        check_load(trace, study.scenario)
        search(NAME, question, _command(study, form), capacity_of, trace, study.scenario, study.objectives,
               Search(of=of, think_time=think_time, scaling=scaling, replicates=int(replicates)))
    found = answer(NAME, question, "Searching for the largest load within the objectives")
    if found is not None:
        _draw(found)
        is_rate = isinstance(found.value, CapacityAnswer)
        if is_rate and found.question.key == question.key and found.value.feasible:
            show(arrivals(shape_load(study.scenario, trace), capacity_rps=found.value.capacity_rps, theme=theme()),
                 key="capacity-load")
            st.caption("The capacity is a mean rate of this traffic, with its bursts.")
    elif not is_asked(NAME):
        st.info("Find the highest rate of this traffic that the sidebar's deployment serves within the objectives.")


def users_of(place: Any, beside: Any) -> tuple[str, float | None]:
    """Ask what the capacity counts, and how long users pause if it counts them.

    Parameters
    ----------
    place, beside : containers of Streamlit's.
    """
    kinds = list(UNKNOWNS)
    of: str = place.selectbox("of", kinds, **in_link("of", kinds[0], one_of(kinds)),
                              help="What the capacity counts: requests/s, users (requests in flight), or sessions.")
    pauses = number(0.0, None, is_whole=False, may_be_empty=True)
    pause_s = beside.number_input("think time [s]", 0.0, None, None, disabled=of == kinds[0],
                                  help="Pause of a user between an answer and the next request; empty for the trace's.",
                                  **in_link("think_time", None, pauses))
    return of, None if of == kinds[0] else pause_s


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
    capacity: CapacityAnswer | UsersAnswer = answer.value
    words = capacity_words(capacity)
    if not capacity.feasible:
        st.warning(plain("\n\n".join(words)), icon=":material/block:")
    else:
        number_text, beside = _headline(capacity)
        st.metric("capacity", number_text, beside, delta_color="off", delta_arrow="off")
        for line in words:
            st.caption(plain(line))
    for note in capacity.notes:
        st.caption(without_paths(note))
    if capacity.probes:
        show(attainment_over_load(capacity, theme=theme()), key="capacity-attainment")
        st.dataframe([asdict(probe) for probe in capacity.probes], hide_index=True, alt="loads that were tried")
    answer_downloads("capacity", capacity, answer.about)


def _headline(found: CapacityAnswer | UsersAnswer) -> tuple[str, str]:
    """Return the capacity, and what stands beside it."""
    if isinstance(found, UsersAnswer):
        return f"{found.capacity:,} {UNKNOWNS[found.of].unit}", f"{found.request_throughput or 0.0:.4g} requests/s"
    return f"{found.capacity_rps:.4g} requests/s", f"{found.rate_scale:.3g} times the trace's rate"


def _command(study: Study, form: dict[str, Any]) -> str:
    """Return the command that finds the same."""
    return command_line(portable(study), "capacity", form)
