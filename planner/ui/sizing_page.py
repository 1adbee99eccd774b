"""The page of sizing: the cheapest fleet for the traffic, beside the others, and the load of a day against it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import streamlit as st

from planner.catalog.gpu_label import gpu_label
from planner.errors import UsageError
from planner.files.keys import asdict
from planner.planning.search_options import RANKS, Choices
from planner.planning.size_answer import SizeAnswer
from planner.planning.sizing import size
from planner.planning.study import Study, command_line, without_rate
from planner.report.column_words import column_words
from planner.report.figures.answer_figures import fleet_costs, fleet_load, tornado
from planner.report.findings import OFFER_COLUMNS
from planner.report.shown import text_of
from planner.report.split_tables import split_words
from planner.settings.rate_scaling import MEANINGS
from planner.traces import Trace
from planner.traces.shaping.rate_series import RateSeries, read_rate_series
from planner.ui.capacity_page import objectives_of, scaling_of
from planner.ui.downloads import answer_downloads
from planner.ui.fleet_answer import best_of_each_gpu, card, headline, options_table, published_error
from planner.ui.fleet_form import given_prices, gpus_form, prices_form, prices_text
from planner.ui.kept_answers import KeptAnswer, answer, is_asked, question_of_fleets, search
from planner.ui.kept_replays import show
from planner.ui.link import ANY, SWITCH, in_link, number, one_of
from planner.ui.own_profiles import portable, profile_of
from planner.ui.pools_form import FILE, Pools, draw_pools, pools_form, words_of
from planner.ui.pools_form import KEYS as POOL_KEYS
from planner.ui.study_files import save_form
from planner.ui.table_words import worded
from planner.ui.targets_form import targets_words
from planner.ui.uploads import as_file
from planner.ui.words import plain, sentence, with_labels, without_paths

NAME = "sizing"
NO_SCHEDULE, BY_PERIOD, BY_SERIES = SCHEDULES = "none", "parts of the trace", "a file of rates"
KEYS = ("schedule", "spare", "ranks", "period", "layouts", "sensitivity", "growth", "change_cost",
        *POOL_KEYS)  # in the address
MOST_SPARE = 100
IN_THE_CARD = ("launch: ", "doubt: ")  # how sentences begin that the card has
WHOLE = ("cost_usd_per_month", "cost_usd_per_year", "power_usd_per_month", "total_usd_per_month", "co2_kg_per_month")
FORMATS = {
    **{name: st.column_config.NumberColumn(column_words(name), format="percent") for name in (
        "headroom", "step_error")},
    "attainment": st.column_config.NumberColumn("requests within their limits", format="percent"),
    **{name: st.column_config.NumberColumn(column_words(name), format="%.2f") for name in (
        "cost_usd_per_hour", "cost_usd_per_million_output_tokens", "power_kw")},
    **{name: st.column_config.NumberColumn(column_words(name), format="localized") for name in WHOLE}}


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    if study.objectives is None:
        raise UsageError("A fleet needs targets; give them in the sidebar.")
    form, series, pools = _asked()
    question = question_of_fleets(trace, study, {
        "targets": targets_words(study.objectives), **form, "GPUs": [gpu_label(gpu) for gpu in form["GPUs"]],
        "scaling": None, "another rate by": MEANINGS[form["scaling"]],
        "rates": None if series is None else series.source.rpartition("/")[2]})
    if st.button("Find the fleet", type="primary", key="sizing_find") and _is_whole(form, series):
        _search(trace, study, form, series, pools, question)
    found = answer(NAME, question, "Replaying fleets", so_far=_draw_so_far)
    if found is not None:
        _draw(found)
        if found.question.key == question.key and found.cut is None:
            save_form("sizing", text_of(found.value).words[0], found.value)
    elif not is_asked(NAME):
        st.info("Find the fewest replicas of each kind of GPU that serve this traffic at the sidebar's rate.")


def _asked() -> tuple[dict[str, Any], RateSeries | None, Pools | None]:
    """Ask for the parts of fleets and for the load."""
    pools = pools_form()
    gpus = gpus_form(st) if pools is None else list(dict.fromkeys(pools.gpus))
    prices_form(gpus)
    kind = st.radio("Replicas over the day, by", SCHEDULES, horizontal=True,
                    **in_link("schedule", NO_SCHEDULE, one_of(SCHEDULES)),
                    help="If the load changes over the day: a number of replicas for each part of the time.")
    *places, right, last = st.columns(3 if pools is None else 2)
    sizes = list(map(str, RANKS))
    ranks = places[0].multiselect("GPUs per replica (tensor parallelism)", RANKS, RANKS, **in_link(
        "ranks", list(RANKS), one_of(sizes))) if pools is None else list(RANKS)
    usual = Choices().num_spare
    spare = right.number_input("Spare replicas", 0, MOST_SPARE, usual, help="Extra replicas against failures.",
                               **in_link("spare", usual, number(0, MOST_SPARE, is_whole=True, may_be_empty=False)))
    period = st.number_input("Length of a part [s]", 1.0, None, 600.0, 60.0, **in_link(
        "period", 600.0, number(1, None, is_whole=False, may_be_empty=False))) if kind == BY_PERIOD else None
    every = st.checkbox("Try all layouts", value=False, **in_link("layouts", False, SWITCH),
                        help="Also size layouts that cannot cost less than a fleet of the same GPU.")
    sensitivity = st.checkbox("Sensitivity of the choice", value=False, **in_link("sensitivity", False, SWITCH),
                              help="Also size the cheapest fleets with changed assumptions.")
    growth = st.text_input("Growth of the rate", "", placeholder="10%/month", **in_link("growth", "", ANY),
                           help="As in 10%/month or 2x/year: when the cheapest fleet must grow, over 12 months.")
    change_cost = st.number_input("Cost of a change of kind [USD]", 0.0, None, 0.0, 100.0, **in_link(
        "change_cost", 0.0, number(0, None, is_whole=False, may_be_empty=False)), help="Cost of a change to another "
        "kind of replica from one month to the next.") if growth.strip() else 0.0
    file = st.file_uploader("Rates over time", type=["csv", "gz", "zst"], key="rate_series",
                            help="CSV with start_s and rate_rps: the start of each window and its requests per "
                                 "second.") if kind == BY_SERIES else None
    form = {"GPUs": gpus, "GPUs per replica": ranks, "spare replicas": int(spare), "scaling": scaling_of(last),
            "length of a part [s]": period, "replicas over the day": kind, "all layouts": every,
            "sensitivity": sensitivity, "growth": growth.strip() or None, "change cost [USD]": change_cost or None,
            "prices": prices_text(given_prices()) or None, **words_of(pools)}
    return form, None if file is None else _series(file.name, file.getvalue()), pools


def _is_whole(form: dict[str, Any], series: RateSeries | None) -> bool:
    """Tell whether the form has all that is needed; name a missing value."""
    if form["replicas over the day"] == BY_SERIES and series is None:
        st.warning("Upload the rates over time: a CSV with start_s and rate_rps.")
        return False
    if not form["GPUs"] or not form["GPUs per replica"]:
        st.warning("Choose at least one GPU and one number of GPUs per replica.")
        return False
    return True


def _search(trace: Trace, study: Study, form: dict[str, Any], series: RateSeries | None,
            pools: Pools | None, question: Any) -> None:
    if series is not None:  # the file has the rates
        study = replace(study, scenario=without_rate(study.scenario))
    scenario = study.scenario if pools is None else replace(study.scenario, fleet=pools.kept())
    choices = Choices(gpus=[str(profile_of("gpu", gpu)) for gpu in form["GPUs"]], ranks=form["GPUs per replica"],
                      prune_layouts=not form["all layouts"], quantizations=[study.scenario.quantization],
                      prices=given_prices(), num_spare=form["spare replicas"], period_s=form["length of a part [s]"],
                      series=series, scaling=form["scaling"], sensitivity=form["sensitivity"], growth=form["growth"],
                      change_cost=form["change cost [USD]"] or 0.0,
                      thresholds=() if pools is None else pools.thresholds)
    about = {"command": _command(study, form, series, pools), "trace": trace, "scenario": study.scenario,
             "pools": None if pools is None else pools.toml}
    search(NAME, question, about, size, trace, scenario, study.objectives, choices)


def _draw_so_far(found: SizeAnswer, about: dict[str, Any]) -> None:
    headline(found, 0.0, about["trace"], about["scenario"])


def _draw(answer: KeptAnswer) -> None:
    found: SizeAnswer = answer.value
    if answer.cut is not None:
        st.warning(answer.cut)
        _draw_so_far(found, answer.about)
        return
    best = found.cheapest
    first, *words = text_of(found).words[len(split_words(found)):]
    if best is not None:
        card(found, best, 0.0, published_error(answer.about["trace"], answer.about["scenario"], best),
             answer.about["trace"].source)
    else:
        st.warning(plain(first), icon=":material/block:")
    draw_pools(found, answer.about["pools"])
    words = _said_of(("missed", "on a schedule", "peak", "no schedule"), words)
    if best is not None and best.schedule is not None:
        show(fleet_load(found), key="fleet-load")
    _alternatives(found)
    words = _said_of(("sensitivity",), words)
    if found.sensitivity is not None:
        show(tornado(found.sensitivity), key="fleet-sensitivity")
    words = _said_of(("growth",), words)
    if found.growth is not None:
        months = [asdict(month) for month in found.growth.months]
        st.dataframe(months, hide_index=True, alt="months", column_config=worded(months[0]) | {
            "rate_rps": st.column_config.NumberColumn("rate [requests/s]", format="%.3g"),
            "cost_usd_per_month": st.column_config.NumberColumn("cost [USD a month]", format="localized")})
    if found.options:
        st.subheader("On each price term", anchor=False)
        st.dataframe([_offer(offer) for offer in map(asdict, found.options)], hide_index=True, alt="offers",
                     column_config=FORMATS | worded([key for key in OFFER_COLUMNS if key not in FORMATS]))
    with st.expander("What the answer rests on"):
        _said_of(("",), [line for line in words if not line.startswith(IN_THE_CARD)])
        for note in found.notes:
            st.caption(sentence(with_labels(without_paths(note))))
    answer_downloads("fleet", found, answer.about["command"])


def _offer(offer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an offer as a row; sums of a month and of a year have no cents."""
    return {key: with_labels(str(offer[key])) if key == "option" else
            round(offer[key]) if key in WHOLE and offer.get(key) is not None else offer.get(key)
            for key in OFFER_COLUMNS}


def _said_of(beginnings: tuple[str, ...], words: list[str]) -> list[str]:
    """Write the sentences that begin with one of these; return the others."""
    for line in words:
        if line.startswith(beginnings):
            st.caption(plain(sentence(with_labels(line))))
    return [line for line in words if not line.startswith(beginnings)]


def _alternatives(found: SizeAnswer) -> None:
    """Draw the fleets: the best layout of each GPU, or all of them behind a switch."""
    st.subheader("Fleets, the cheapest first", anchor=False)
    fleets = best_of_each_gpu(found)
    count = len(found.alternatives)
    if count > len(fleets) and st.toggle(f"All {count:,} layouts that were tried", key="all_fleets"):
        fleets = list(found.alternatives)
    options_table(fleets, 0.0)
    if found.cheapest is not None:
        show(fleet_costs(replace(found, alternatives=tuple(fleets))), key="fleets")


def _series(name: str, content: bytes) -> RateSeries:
    with as_file(name, content) as path:
        return read_rate_series(path)


def _command(study: Study, form: dict[str, Any], series: RateSeries | None, pools: Pools | None) -> str:
    """Return the command that finds the same."""
    kinds: dict[str, Any] = {"gpu": ",".join(form["GPUs"]),
                             "tensor_parallel_size": ",".join(map(str, form["GPUs per replica"]))}
    if pools is not None:
        kinds = {"gpu": None, "tensor_parallel_size": None, "fleet": FILE, "thresholds": form["thresholds"]}
    return command_line(portable(study), "size", {
        **({} if study.scenario.data_parallel_attention else {"data_parallel_size": None}),
        "prefill_replicas": None, **kinds, **objectives_of(study),
        "spare": form["spare replicas"] or None, "scaling": form["scaling"], "period": form["length of a part [s]"],
        "sensitivity": form["sensitivity"] or None, "growth": form["growth"],
        "change_cost": form["change cost [USD]"], "price": form["prices"],
        "prune_layouts": None if form["all layouts"] else True,
        "rate_series": None if series is None else series.source.rpartition("/")[2]})
