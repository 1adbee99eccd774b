"""The first page: the cheapest fleet for the traffic within two targets, its price a month, and the other options."""

from dataclasses import replace
from typing import Any

import streamlit as st

from planner.errors import UsageError
from planner.planning.search_options import RANKS, Choices
from planner.planning.size_answer import Fleet, SizeAnswer
from planner.planning.sizing import size
from planner.planning.study import Study, command_line, times_rate
from planner.settings.objectives import parse_objectives
from planner.traces import Trace
from planner.ui.downloads import answer_downloads
from planner.ui.kept_answers import Answer, answer, is_asked, question_of, search
from planner.ui.link import in_link, number, one_of
from planner.ui.own_profiles import names, portable, profile_of
from planner.ui.words import plain, without_paths

NAME = "plan"
USUAL_GPUS = ("h100-sxm", "h200-sxm", "b200-sxm", "l40s")  # that most clouds rent
KEYS = ("plan_ttft", "plan_tpot", "plan_growth", "plan_headroom", "plan_gpus")  # in the address
MOST_MS, MOST_GROWTH, MOST_HEADROOM = 600_000.0, 100.0, 400.0
MOST_OPTIONS = 10
NO_LIMIT = "no limit"


def page(trace: Trace, study: Study) -> None:
    """Draw the page."""
    if study.scenario.is_closed_loop:
        raise UsageError("max_concurrency, max_sessions: this page plans for a rate of requests; leave them out, or "
                         "use the page Sizing")
    form = _asked()
    question = question_of(trace, study, form)
    if st.button("Find the cheapest fleet", type="primary", key="plan_find") and _is_whole(form):
        _search(trace, study, form, question)
    found = answer(NAME, question, "Replaying fleets")
    if found is not None:
        _draw(found, form)
    elif not is_asked(NAME):
        st.info("How many GPUs does this traffic need, and what do they cost? Set the targets, then press the button. "
                "The sidebar has the log and the model.")


def _asked() -> dict[str, Any]:
    """Ask for the targets, the room to grow, and the GPUs."""
    columns = iter(st.columns(4))
    ttft = _number(next(columns), "p99 time to first token [ms]", "plan_ttft", (0.1, MOST_MS, 1000.0, 100.0),
                   "99 of 100 requests get their first token within this time.")
    tpot = _number(next(columns), "p99 time per output token [ms]", "plan_tpot", (0.1, MOST_MS, 50.0, 5.0),
                   "99 of 100 requests need at most this time per token after the first.")
    growth = _number(next(columns), "growth ×", "plan_growth", (0.01, MOST_GROWTH, 1.0, 0.5),
                     "Plan for so many times the traffic of the log.")
    headroom = _number(next(columns), "headroom [%]", "plan_headroom", (0.0, MOST_HEADROOM, 20.0, 5.0),
                       "More traffic on top that the fleet must still serve within the targets.")
    known = names("gpu")
    usual = [gpu for gpu in USUAL_GPUS if gpu in known]
    gpus = st.multiselect("GPUs to compare", known, usual, **in_link("plan_gpus", usual, one_of(known)))
    return {"p99 TTFT": ttft, "p99 TPOT": tpot, "growth": growth, "headroom": headroom, "GPUs": gpus}


def _number(place: Any, label: str, key: str, limits: tuple[float, float, float, float], text: str) -> float:
    """Ask for a number; `limits` are the least, the most, the first value and the step."""
    least, most, first, step = limits
    values = number(least, most, is_whole=False, may_be_empty=False)
    return float(place.number_input(label, least, most, first, step, format="%g", help=text,
                                    **in_link(key, first, values)))


def _slo(form: dict[str, Any]) -> str:
    return f"p99_ttft:{form['p99 TTFT']:g} p99_tpot:{form['p99 TPOT']:g}"


def _is_whole(form: dict[str, Any]) -> bool:
    """Tell whether the form has all that is needed; say what it lacks."""
    if not form["GPUs"]:
        st.warning("Choose at least one GPU.")
        return False
    return True


def _search(trace: Trace, study: Study, form: dict[str, Any], question: Any) -> None:
    scenario = _grown(study, form).scenario
    if not scenario.data_parallel_attention:
        scenario = replace(scenario, data_parallel_size=1)
    choices = Choices(gpus=[str(profile_of("gpu", gpu)) for gpu in form["GPUs"]], ranks=RANKS,
                      quantizations=[scenario.quantization], compare_assumptions=False)
    search(NAME, question, _command(study, form), size, trace, scenario,
           parse_objectives(_slo(form)), choices)


def _grown(study: Study, form: dict[str, Any]) -> Study:
    """Return the study with its rate times the growth and the headroom."""
    factor = form["growth"] * (1 + form["headroom"] / 100)
    return replace(study, scenario=times_rate(study.scenario, factor))


def _draw(answer: Answer, form: dict[str, Any]) -> None:
    found: SizeAnswer = answer.value
    best = found.cheapest
    if best is None:
        st.warning(plain("No fleet of these GPUs keeps the targets: " + "; ".join(
            each.sentence for each in found.missed)), icon=":material/block:")
    else:
        _headline(best, found, answer)
    rows = _options(found, form)
    if rows:
        st.subheader("Options", anchor=False)
        st.dataframe(rows, hide_index=True, alt="options")
    for note in found.notes:
        st.caption(without_paths(note))
    answer_downloads("plan", found, answer.about)


def _headline(best: Fleet, found: SizeAnswer, answer: Answer) -> None:
    """Write the answer in one line, then how it stands to each target, and its launch command."""
    st.header(plain(f"{fleet_name(best)} — {best.cost_usd_per_month:,.0f} USD a month"), anchor=False)
    words = answer.question.words
    ttft, tpot, more, year = st.columns(4)
    ttft.metric("p99 time to first token", _ms(best.p99_ttft_ms), f"limit {float(words['p99 TTFT']):,g} ms",
                delta_color="off", delta_arrow="off")
    tpot.metric("p99 time per output token", _ms(best.p99_tpot_ms), f"limit {float(words['p99 TPOT']):,g} ms",
                delta_color="off", delta_arrow="off")
    more.metric("bears more traffic", NO_LIMIT if best.headroom is None else f"+{best.headroom:.0%}",
                "on top of growth and headroom", delta_color="off", delta_arrow="off")
    year.metric("a year", f"{best.cost_usd_per_year:,.0f} USD",
                f"{best.price_usd_per_gpu_hour:.2f} USD per GPU and hour", delta_color="off", delta_arrow="off")
    less = "" if best.num_replicas == 1 else f" One replica less misses {best.limiting_metric}."
    st.caption(plain(f"For {found.request_rate:,.3g} requests per second: the log's rate, growth and headroom.{less}"))
    st.code(best.command, language=None, wrap_lines=True)


def _options(found: SizeAnswer, form: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the best layout of each GPU, the cheapest first, at most ten."""
    rows: dict[str, dict[str, Any]] = {}
    for fleet in found.alternatives:
        if isinstance(fleet, Fleet) and fleet.kind.gpu not in rows:
            rows[fleet.kind.gpu] = {
                "fleet": fleet_name(fleet), "USD a month": round(fleet.cost_usd_per_month),
                "USD a year": round(fleet.cost_usd_per_year),
                "p99 TTFT ÷ limit": _share(fleet.p99_ttft_ms, form["p99 TTFT"]),
                "p99 TPOT ÷ limit": _share(fleet.p99_tpot_ms, form["p99 TPOT"]),
                "bears more": NO_LIMIT if fleet.headroom is None else f"+{fleet.headroom:.0%}",
                "one less misses": "–" if fleet.num_replicas == 1 else fleet.limiting_metric}
    return list(rows.values())[:MOST_OPTIONS]


def fleet_name(fleet: Fleet) -> str:
    """Return a fleet in words: "3 × l40s", or with several GPUs a replica "2 × 4 h100-sxm".

    >>> from types import SimpleNamespace as Any
    >>> fleet_name(Any(num_replicas=2, num_gpus=8, kind=Any(gpu="h100-sxm")))
    '2 × 4 h100-sxm'
    """
    size = fleet.num_gpus // fleet.num_replicas
    return f"{fleet.num_replicas:,} × {fleet.kind.gpu}" if size == 1 else (
        f"{fleet.num_replicas:,} × {size} {fleet.kind.gpu}")


def _share(value: float | None, limit: float) -> float | None:
    return None if value is None else round(value / limit, 2)


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms"


def _command(study: Study, form: dict[str, Any]) -> str:
    """Return the command that finds the same."""
    grown = _grown(portable(study), form)
    return command_line(replace(grown, objectives=None), "size", {
        **({} if study.scenario.data_parallel_attention else {"data_parallel_size": None}), "prefill_replicas": None,
        "tensor_parallel_size": None, "gpu": ",".join(form["GPUs"]), "slo": _slo(form)})
