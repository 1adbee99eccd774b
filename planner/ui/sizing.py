"""The page of sizing: the cheapest fleet for the traffic, beside the others, and the load of a day against it."""

from dataclasses import replace
from typing import Any

import streamlit as st

from planner.figures.answers import fleet_costs
from planner.figures.fleet import fleet_load
from planner.planning.fleets import RANKS, Choices
from planner.planning.sizing import size
from planner.planning.study import Study, command_line, without_rate
from planner.report.plans import sizing_words
from planner.settings.objectives import parse_objectives
from planner.trace import Trace
from planner.traffic.rate_series import RateSeries, read_rate_series
from planner.ui.downloads import answer_downloads
from planner.ui.own_profiles import name_of, names, portable, profile_of
from planner.ui.results import answered, keep, plain, show, theme
from planner.ui.uploads import as_file

FOUND = "found_sizing"
SHOWN = ("gpu", "tensor_parallel_size", "quantization", "num_replicas", "num_gpus", "cost_usd_per_hour",
         "cost_usd_per_million_output_tokens", "power_kw", "attainment", "headroom", "limiting_metric", "reason")
NO_SCHEDULE, BY_PERIOD, BY_SERIES = "none", "parts of the trace", "a file of rates"


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    st.title("Sizing")
    asked = _asked(study)
    if asked is not None:
        with st.spinner("Replaying fleets …"):
            keep(FOUND, trace, study, _found(trace, study, asked))
    kept = answered(FOUND, trace, study)
    if kept is None:
        st.info("Find the fewest replicas of each kind of GPU that serve this traffic at the sidebar's rate.")
        return
    found, command = kept
    words = sizing_words(found)
    (st.success if found["feasible"] else st.error)(plain(words[0]))
    for line in (*words[1:], *found["notes"]):
        if not line.startswith(("launch: ", "on a schedule", "peak ")):
            st.caption(plain(line))
    if found["feasible"]:
        st.code(found["command"], language=None, wrap_lines=True)
        show(fleet_costs(found, theme=theme()), key="fleets")
    if found["schedule"] is not None:
        show(fleet_load(found, theme=theme()), key="fleet-load")
        for line in words:
            if line.startswith(("on a schedule", "peak ")):
                st.caption(plain(line))
    st.dataframe([{key: fleet.get(key) for key in SHOWN} for fleet in found["alternatives"]], hide_index=True,
                 alt="fleets")
    answer_downloads("fleet", found, command)


def _found(trace: Trace, study: Study, asked: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the fleets, and the command that finds the same."""
    if asked["series"] is not None:  # the file has the rates
        study = replace(study, scenario=without_rate(study.scenario))
    choices = Choices(gpus=[str(profile_of("gpu", gpu)) for gpu in asked["gpus"]], ranks=asked["ranks"],
                      quantizations=[study.scenario.quantization], prices={}, num_spare=asked["spare"],
                      period_s=asked["period"], series=asked["series"])
    found = size(trace, study.scenario, parse_objectives(asked["slo"], asked["attainment"]), choices)
    return found, _command(study, asked)


def _asked(study: Study) -> dict[str, Any] | None:
    """Ask what fleets are made of and for which load; None until that is sent."""
    kind = st.radio("a schedule of replicas over time, by", [NO_SCHEDULE, BY_PERIOD, BY_SERIES], horizontal=True,
                    help="The trace's own load, part by part; or rates of a day or a week, which its traffic takes on.")
    with st.form("sizing"):
        columns = st.columns(3)
        slo = columns[0].text_input("objectives", value=st.session_state.get("slo", "ttft:500 tpot:50"))
        attainment = columns[1].number_input("attainment", 0.01, 1.0, 0.99, 0.01)
        spare = columns[2].number_input("spare replicas", 0, 100, 0, help="Replicas that may fail.")
        left, right = st.columns([2, 1])
        gpus = left.multiselect("GPUs", names("gpu"), [name_of(str(study.scenario.gpu))])
        ranks = right.multiselect("tensor_parallel_size", RANKS, RANKS)
        period = st.number_input("length of a part [s]", 1.0, None, 600.0, 60.0) if kind == BY_PERIOD else None
        file = st.file_uploader("rates over time", type=["csv", "gz", "zst"], key="rate_series",
                                help="CSV with start_s and rate_rps: when each window begins, and its requests a "
                                     "second.") if kind == BY_SERIES else None
        if not st.form_submit_button("Find the fleet", type="primary"):
            return None
    if kind == BY_SERIES and file is None:
        st.warning("Upload the rates over time: a CSV with start_s and rate_rps.")
        return None
    series = None if file is None else _series(file.name, file.getvalue())
    return {"slo": slo, "attainment": attainment, "spare": int(spare), "ranks": ranks, "gpus": gpus, "period": period,
            "series": series}


def _series(name: str, content: bytes) -> RateSeries:
    with as_file(name, content) as path:
        return read_rate_series(path)


def _command(study: Study, asked: dict[str, Any]) -> str:
    """Return the command that finds the same."""
    series: RateSeries | None = asked["series"]
    return command_line(portable(study), "size", {
        **({} if study.scenario.data_parallel_attention else {"data_parallel_size": None}),
        "prefill_replicas": None, "gpu": ",".join(asked["gpus"]),
        "tensor_parallel_size": ",".join(map(str, asked["ranks"])), "slo": asked["slo"],
        "attainment": asked["attainment"], "spare": asked["spare"] or None, "period": asked["period"],
        "rate_series": None if series is None else series.source.rpartition("/")[2]})
