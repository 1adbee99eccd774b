"""The first page: the cheapest fleet for the log's traffic within the targets, its price a month, and other options."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import streamlit as st

from planner.catalog.catalog_files import user_dir
from planner.catalog.gpu_label import gpu_label
from planner.errors import UsageError
from planner.planning.search_options import RANKS, Choices
from planner.planning.size_answer import Fleet, SizeAnswer
from planner.planning.sizing import size
from planner.planning.study import Study, command_line, times_rate
from planner.report.cells import replay_lines
from planner.report.figures.plan_figures import load_against_capacity, money_against_headroom
from planner.report.report_source import load_answer
from planner.report.shown import text_of
from planner.results.saved import to_json
from planner.traces import Trace
from planner.ui.fleet_answer import (
    best_of_each_gpu,
    card,
    headline,
    most_traffic,
    options_table,
    published_error,
)
from planner.ui.fleet_form import given_prices, gpus_form, prices_form, prices_text
from planner.ui.kept_answers import KeptAnswer, Question, answer, is_asked, keep, question_of_fleets, search
from planner.ui.kept_replays import kept, show, study_key
from planner.ui.kept_settings import changed
from planner.ui.link import in_link, number
from planner.ui.own_profiles import portable, profile_of
from planner.ui.sidebar import LOG_SETTINGS, SETTINGS
from planner.ui.study_files import save_form
from planner.ui.targets_form import targets_words
from planner.ui.words import plain, sentence, without_paths

NAME, LOG = "plan", "plan_log"  # in the session's state
KEYS = ("headroom",)  # in the address
USUAL_HEADROOM, MOST_HEADROOM = 20.0, 400.0  # per cent
SAMPLE = Path(__file__).with_name("sample_plan.json")  # the answer for the first log; `make sample-plan`
PROMPT = ("Choose the model or paste your launch command, and check the targets. Then upload your log: the search "
          "starts by itself.")


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    if study.scenario.is_closed_loop:
        raise UsageError("max_concurrency, max_sessions: this page plans for a rate of requests; leave them out, or "
                         "use the page Sizing")
    if study.objectives is None:
        raise UsageError("A plan needs targets; give them in the sidebar.")
    is_first = LOG not in st.session_state
    is_new = _is_new(trace)
    form, headroom, place = _asked()
    question = question_of_fleets(trace, study, {"targets": targets_words(study.objectives), **form,
                                                 "GPUs": [gpu_label(gpu) for gpu in form["GPUs"]]})
    is_pressed = place.button("Find the cheapest fleet", type="primary", key="plan_find", width="stretch")
    about = {"command": _command(study, form, headroom), "trace": trace, "study": study, "headroom": headroom}
    if (is_new and form["GPUs"]) or (is_pressed and _is_whole(form)):
        _search(trace, study, form, headroom, question, about)
    elif is_first and 100 * headroom == USUAL_HEADROOM and not [*changed(SETTINGS)] and not user_dir().exists():
        keep(NAME, question, {**about, "is_released": True}, load_answer(SAMPLE).answer)
    found = answer(NAME, question, "Replaying fleets", so_far=_draw_so_far)
    if found is not None:
        _draw(found)
        if found.question.key == question.key and found.cut is None:
            save_form("plan", text_of(found.value).words[0], found.value)
    elif not is_asked(NAME):
        st.info(f"How many GPUs does this traffic need, and what do they cost? {PROMPT} Or press the button to see the "
                f"answer for this sample.")


def _is_new(trace: Trace) -> bool:
    """Tell whether a log or a sample was chosen since the page was last drawn; its search then starts by itself."""
    before = st.session_state.get(LOG)
    st.session_state[LOG] = trace.sha256
    return trace.sha256 != before and (before is not None or trace.source != LOG_SETTINGS["trace"].first)


def _asked() -> tuple[dict[str, Any], float, Any]:
    """Ask for GPUs, prices and headroom; return them in words, the headroom [1], and a place for the button."""
    left, right = st.columns([4, 1])
    gpus = gpus_form(left)
    values = number(0.0, MOST_HEADROOM, is_whole=False, may_be_empty=False)
    headroom = right.number_input("Headroom [%]", 0.0, MOST_HEADROOM, USUAL_HEADROOM, 5.0, format="%g",
                                  help="More traffic that the fleet must still serve within the targets.",
                                  **in_link("headroom", USUAL_HEADROOM, values))
    place, beside = st.columns([1, 3])
    with beside:
        prices_form(gpus)
    form = {"GPUs": gpus, "headroom": f"{headroom:g} %", "prices": prices_text(given_prices()) or None}
    return form, headroom / 100, place


def _is_whole(form: dict[str, Any]) -> bool:
    """Tell whether the form has all that is needed; name a missing value."""
    if not form["GPUs"]:
        st.warning("Choose at least one GPU.")
        return False
    return True


def _search(trace: Trace, study: Study, form: dict[str, Any], headroom: float, question: Question,
            about: dict[str, Any]) -> None:
    scenario = times_rate(study.scenario, 1 + headroom)
    if not scenario.data_parallel_attention:
        scenario = replace(scenario, data_parallel_size=1, prefill_replicas=0)
    choices = Choices(gpus=[str(profile_of("gpu", gpu)) for gpu in form["GPUs"]], ranks=RANKS, prices=given_prices(),
                      quantizations=[scenario.quantization], compare_assumptions=False, prune_layouts=True)
    search(NAME, question, about, size, trace, scenario, study.objectives, choices)


def _draw_so_far(found: SizeAnswer, about: dict[str, Any]) -> None:
    headline(found, about["headroom"], about["trace"], about["study"].scenario)


def _draw(answer: KeptAnswer) -> None:
    found: SizeAnswer = answer.value
    trace, study, headroom = (answer.about[name] for name in ("trace", "study", "headroom"))
    if answer.cut is not None:
        st.warning(answer.cut)
        _draw_so_far(found, answer.about)
        return
    if "is_released" in answer.about:
        st.info(f"This answer for the bundled sample was found when the planner was released. {PROMPT}")
    best = found.cheapest
    if best is None:
        st.warning(plain("No fleet of these GPUs keeps the targets: " + "; ".join(
            each.sentence for each in found.missed)), icon=":material/block:")
    else:
        card(found, best, headroom, published_error(trace, study.scenario, best), trace.source)
    options = best_of_each_gpu(found)
    st.subheader("Options, the cheapest first", anchor=False)
    options_table(options, headroom)
    if best is not None:
        _figures(found, best, [fleet for fleet in options if isinstance(fleet, Fleet)], answer)
    for note in found.notes:
        st.caption(sentence(without_paths(note)))
    with st.expander("Command and data"):
        check = replay_lines(None if best is None else best.replay_command)
        st.code("\n".join([answer.about["command"], *check]), language=None, wrap_lines=True)
        st.download_button("Answer, JSON", to_json(found), "plan.json", "application/json", on_click="ignore")


def _figures(found: SizeAnswer, best: Fleet, options: list[Fleet], answer: KeptAnswer) -> None:
    """Draw the load beside the fleet's capacity, and the capacity of each option by price."""
    trace, study, headroom = (answer.about[name] for name in ("trace", "study", "headroom"))
    left, right = st.columns(2)
    capacity = None if best.headroom is None or found.request_rate is None else found.request_rate * (1 + best.headroom)
    with left:
        show(kept(load_against_capacity, trace, study.scenario, capacity, said="Drawing the load …",
                  key=f"{study_key(trace, study)} {capacity}"), key="plan-load")
    fleets = [(f"{fleet.num_gpus:,} × {gpu_label(fleet.kind.gpu)}", fleet.cost_usd_per_month, factor)
              for fleet in options if (factor := most_traffic(fleet, headroom)) is not None]
    if fleets:
        with right:
            show(money_against_headroom(fleets, 1 + headroom), key="plan-money")


def _command(study: Study, form: dict[str, Any], headroom: float) -> str:
    """Return the command that finds the same."""
    study = replace(portable(study), scenario=times_rate(portable(study).scenario, 1 + headroom))
    return command_line(study, "size", {
        **({} if study.scenario.data_parallel_attention else {"data_parallel_size": None}), "prefill_replicas": None,
        "tensor_parallel_size": None, "gpu": ",".join(form["GPUs"]), "price": form["prices"],
        "prune_layouts": True})
