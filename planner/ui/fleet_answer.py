"""A fleet that was found, on the pages Plan and Sizing: its card, its error, and the table of options."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from planner.catalog.gpu_label import gpu_label
from planner.deployment.deploy import resolve
from planner.engines import ENGINES
from planner.errors import PlannerError
from planner.planning.missed import Reached
from planner.planning.search_options import MOST_LOAD
from planner.planning.size_answer import Fleet, KindNames, SizeAnswer, UnableFleet
from planner.report.page import to_html
from planner.report.report_source import SavedAnswer
from planner.report.target_cards import Card
from planner.results.uncertainty import residuals_for
from planner.settings.scenario import Scenario
from planner.settings.statistic import LABELS, parse_statistic
from planner.traces import Trace
from planner.ui.page_link import copy_link
from planner.ui.verdict_image import verdict_png
from planner.ui.words import plain, without_paths

MOST_OPTIONS = 10
SERVES, COVERS, FEWER = "serves up to", "holds if slower", "misses with one fewer"  # columns of the options


def headline(found: SizeAnswer, headroom: float, trace: Trace, scenario: Scenario) -> None:
    """Draw the fleets of an answer whose headroom is still being found."""
    assert found.cheapest is not None
    error = published_error(trace, scenario, found.cheapest)
    card(found, found.cheapest, headroom, error, trace.source, is_whole=False)
    options_table(best_of_each_gpu(found), headroom)


def card(found: SizeAnswer, best: Fleet, headroom: float, error: tuple[str, str], log: str, *,
         is_whole: bool = True) -> None:
    """Draw the answer: the fleet with its price a month, its targets, its largest load, its error and its launch.

    Parameters
    ----------
    headroom : that was asked for, on top of the traffic [1].
    error : in words, and how it is known.
    log : its name.
    is_whole : whether the fleet's headroom is known; without it there are no report and no picture.
    """
    with st.container(border=True, key="card"):
        left, right = st.columns([5, 3])
        with left:
            st.caption("Cheapest fleet that keeps the targets")
            st.header(plain(f"{fleet_name(best)} — {best.cost_usd_per_month:,.0f} USD a month"), anchor=False)
            with st.container(horizontal=True, gap="small"):
                for reached in best.reached:
                    st.badge(plain(reached_words(reached)), icon=":material/check:", color="green")
                st.badge(plain(f"serves up to {', '.join(most_served(found, best, headroom))}" if is_whole else
                               "serves up to … (replaying)"), color="blue")
                st.badge(plain(error[0]), color="gray", help=error[1])
            st.caption(plain(_summary(found, best, headroom)))
        with right:
            st.code(best.command, language=None, wrap_lines=True)
            if best.lowered is not None:
                st.caption(plain(f"{best.lowered}."))
            if best.command_lacks:
                st.caption(plain(f"The command lacks {', '.join(best.command_lacks)}."))
            with st.container(horizontal=True, gap="small"):
                copy_link(log)
                if is_whole:
                    _downloads(found, best, headroom)
    for doubt in found.doubts:
        st.warning(plain(f"{doubt[0].upper()}{doubt[1:]}."))


def _downloads(found: SizeAnswer, best: Fleet, headroom: float) -> None:
    st.download_button("Report", lambda: to_html(SavedAnswer(name="fleet", answer=found, table=None)), "fleet.html",
                       "text/html", on_click="ignore", icon=":material/download:", key="card_report")
    st.download_button("Picture", lambda: _picture(found, best, headroom), "fleet.png", "image/png",
                       on_click="ignore", icon=":material/image:", key="card_picture",
                       help="The answer as PNG, to paste into a chat or a slide.")


def _picture(found: SizeAnswer, best: Fleet, headroom: float) -> bytes:
    """Return the answer as PNG."""
    shown = [Card(title=objective_words(reached.objective), value=f"{_number(reached.value_ms or 0.0)} ms",
                  beside="" if reached.required is None else f"for {100 * reached.required:g} % of requests",
                  used=None if reached.value_ms is None else reached.value_ms / reached.limit_ms, is_met=True,
                  limit=f"limit {_number(reached.limit_ms)} ms") for reached in best.reached]
    value, beside = most_served(found, best, headroom)
    shown.append(Card(title="Serves up to", value=value, beside=beside))
    return verdict_png("Cheapest fleet that keeps the targets", f"{fleet_name(best)} — "
                       f"{best.cost_usd_per_month:,.0f} USD a month", shown, _summary(found, best, headroom))


def options_table(fleets: Sequence[Fleet | UnableFleet], headroom: float) -> None:
    """Draw fleets as rows: cost, the used share of each target's limit, their largest load, and the target that one
    replica fewer misses.

    Parameters
    ----------
    headroom : as of `card`.
    """
    able = [fleet for fleet in fleets if isinstance(fleet, Fleet)]
    rows = [_row(fleet, headroom) for fleet in able]
    rows += [{"fleet": kind_name(fleet.kind), "why none": without_paths(fleet.reason)}
             for fleet in fleets if isinstance(fleet, UnableFleet)]
    bars = {_column(reached) for fleet in able for reached in fleet.reached}
    st.dataframe(rows, hide_index=True, alt="options", column_config={
        "USD a month": st.column_config.NumberColumn(format="localized"),
        "USD a year": st.column_config.NumberColumn(format="localized"),
        SERVES: st.column_config.NumberColumn(format="%.1f ×", help="Traffic that the fleet serves within the targets, "
                                              "as a multiple of the log's at this load. Fleets other than the "
                                              f"cheapest are tried up to {MOST_LOAD:g} times the load."),
        COVERS: st.column_config.CheckboxColumn(help="Whether the fleet keeps the targets if its steps take longer "
                                                "than predicted by the error of the prediction, at 90 % confidence."),
        FEWER: st.column_config.TextColumn(help="The target that the fleet misses with one replica fewer."),
        **{name: st.column_config.ProgressColumn(format="%.0f %%", min_value=0, max_value=100) for name in bars}})


def best_of_each_gpu(found: SizeAnswer) -> list[Fleet | UnableFleet]:
    """Return the cheapest fleet of each GPU, then the GPUs without one, at most ten."""
    best: dict[str, Fleet | UnableFleet] = {}
    for fleet in found.alternatives:  # fleets that serve come first, the cheapest of them at the top
        best.setdefault(fleet.kind.gpu, fleet)
    return list(best.values())[:MOST_OPTIONS]


def fleet_name(fleet: Fleet) -> str:
    """Return a fleet in words.

    >>> from types import SimpleNamespace as Any
    >>> fleet_name(Any(num_replicas=3, num_gpus=3, kind=Any(gpu="l40s", decode_gpu=None)))
    '3 × L40S'
    >>> fleet_name(Any(num_replicas=2, num_gpus=8, kind=Any(gpu="h100-sxm", decode_gpu=None)))
    '8 × H100 SXM (2 replicas of 4)'
    """
    gpu = gpu_label(fleet.kind.gpu) + (f" + {gpu_label(fleet.kind.decode_gpu)}" if fleet.kind.decode_gpu else "")
    size = fleet.num_gpus // fleet.num_replicas
    layout = "" if size == 1 else f" ({fleet.num_replicas:,} replica{'s' * (fleet.num_replicas > 1)} of {size})"
    return f"{fleet.num_gpus:,} × {gpu}{layout}"


def kind_name(kind: KindNames) -> str:
    """Return a kind of replica in words: the GPU, with the GPUs of a replica."""
    return f"{gpu_label(kind.gpu)}" + (f", {kind.tensor_parallel_size} a replica" if kind.tensor_parallel_size > 1
                                       else "")


def reached_words(reached: Reached) -> str:
    """Return a target with the value that is reached.

    >>> reached_words(Reached(objective="p99_ttft", limit_ms=1000.0, value_ms=239.2, required=None))
    'p99 TTFT 239 ms, limit 1,000 ms'
    """
    value = "–" if reached.value_ms is None else f"{_number(reached.value_ms)} ms"
    share = "" if reached.required is None else f" for {100 * reached.required:g} % of requests"
    return f"{objective_words(reached.objective)} {value}{share}, limit {_number(reached.limit_ms)} ms"


def most_traffic(fleet: Fleet, headroom: float) -> float | None:
    """Return the most traffic that a fleet serves over the traffic without headroom [1]; None without a limit."""
    return None if fleet.headroom is None else (1 + headroom) * (1 + fleet.headroom)


def most_served(found: SizeAnswer, fleet: Fleet, headroom: float) -> tuple[str, str]:
    """Return the same in words: "14.3 requests/s" if the log has a rate, and "2.6 × the log's"."""
    factor = most_traffic(fleet, headroom)
    if factor is None:
        return "any rate", "no limit was found"
    times = f"{factor:.1f} ×" if factor < MOST_LOAD else f"more than {MOST_LOAD:g} ×"
    if found.request_rate is None:
        return f"{times} the traffic", "of the log"
    return f"{found.request_rate * (1 + (fleet.headroom or 0.0)):,.3g} requests/s", f"{times} the log's"


def published_error(trace: Trace, scenario: Scenario, best: Fleet) -> tuple[str, str]:
    """Return the error that measured runs of the engine show, in words, and how it is known.

    It comes from runs that the constants were not fitted to; on a GPU without measured kernels, from other such GPUs.
    """
    own = replace(scenario, gpu=best.kind.gpu if scenario.gpu is None or not scenario.gpu.endswith(".toml")
                  else scenario.gpu, tensor_parallel_size=best.kind.tensor_parallel_size)
    try:
        residuals = residuals_for(resolve(own, trace))
    except PlannerError as error:
        return "error not known", without_paths(str(error))
    keys = {LABELS[metric]: f"{metric}_ms" for metric in ("ttft", "tpot") if f"{metric}_ms" in residuals.log_errors}
    errors = [f"± {100 * (residuals.half_within(key) or 0.0):.0f} % {label}" for label, key in keys.items()]
    means = [f"{100 * (residuals.mean_error(key) or 0.0):.0f} %" for key in keys.values()]
    basis = residuals.basis or (f"Half of the measured {ENGINES[own.engine].title} runs that were not in the fit are "
                                f"within this error of the prediction. In brackets: the mean of their errors, which "
                                f"few runs with large errors decide.")
    return f"prediction error {', '.join(errors)} (mean {' and '.join(means)})", basis


def _summary(found: SizeAnswer, best: Fleet, headroom: float) -> str:
    """Return the load that the fleet is sized for, and its other costs."""
    room = "" if not headroom or found.request_rate is None else (
        f": the log's {found.request_rate / (1 + headroom):,.3g} and {100 * headroom:g} % headroom")
    rate = "" if found.request_rate is None else f"Sized for {found.request_rate:,.3g} requests/s{room}. "
    fewer = ("Nothing is served while the only replica is down. " if best.num_replicas == 1 else
             f"One replica fewer misses {objective_words(best.limiting_metric)}. ")
    return (f"{rate}{fewer}{best.cost_usd_per_year:,.0f} USD a year, {best.price_usd_per_gpu_hour:,.2f} USD per GPU "
            f"and hour, {best.unit_cost:,.2f} USD {best.unit_words}.")


def objective_words(name: str) -> str:
    """Return an objective's name in words.

    >>> objective_words("p99_tpot"), objective_words("ttft"), objective_words("none")
    ('p99 TPOT', 'TTFT', '–')
    """
    statistic = parse_statistic(name)
    return statistic.label if statistic is not None else LABELS.get(name, "–")


def _column(reached: Reached) -> str:
    return f"{objective_words(reached.objective)} ÷ limit"


def _row(fleet: Fleet, headroom: float) -> Mapping[str, Any]:
    return {"fleet": fleet_name(fleet), "USD a month": round(fleet.cost_usd_per_month),
            "USD a year": round(fleet.cost_usd_per_year),
            **{_column(reached): None if reached.value_ms is None else round(100 * reached.value_ms / reached.limit_ms)
               for reached in fleet.reached},
            SERVES: most_traffic(fleet, headroom), COVERS: fleet.covers_error,
            FEWER: objective_words(fleet.limiting_metric)}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"
