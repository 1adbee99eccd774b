"""The job that looks for changes of a scenario: single settings that help, and the replicas that keep the targets."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.catalog.gpu_label import gpu_label
from planner.files.counts import change_text, share_text
from planner.planning.advice import LEAST_GAIN, LOSSY, advise, helpful_changes
from planner.planning.fewest import fewest_replicas
from planner.planning.missed import UnreachableError
from planner.report.capacity_sentence import limit_words
from planner.report.difference_words import setting_label, setting_text
from planner.report.verdict_line import VerdictKind, verdict_line
from planner.results.short_times import time_text
from planner.run import Outcome, replay
from planner.settings.objectives import Objectives
from planner.ui.replay_tasks import ReplayQuestion, check_load

MOST = 3  # changes that are shown
MOST_SAME_GPUS = 2
MOST_REPLICAS = 64
PRECISION = 0.05  # share by which the number of replicas may be too high


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a scenario.

    Parameters
    ----------
    options : to set.
    title : the change in words.
    effect : its effect in words.
    """

    options: Mapping[str, Any]
    title: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes that help, the best first without more GPUs, then with more.

    Parameters
    ----------
    changes : at most `MOST`.
    notes : reasons why there are no more, a sentence each.
    """

    changes: tuple[Change, ...]
    notes: tuple[str, ...]


def find_changes(asked: ReplayQuestion) -> Changes:
    """Replay a scenario with one setting changed at a time, and size the fleet if the targets are missed.

    Raises
    ------
    PlannerError : as `run.replay` of the scenario itself.
    """
    trace, scenario, slo = asked.trace, asked.study.scenario, asked.study.objectives
    check_load(trace, scenario)
    outcome = replay(trace, scenario, slo=slo)
    summary = outcome.summary
    advice = advise(trace, scenario, outcome.result.deployment, summary, slo=slo)
    helpful = helpful_changes(advice["metric"], advice["value"], advice["changes"])
    best = [row for place, row in enumerate(helpful)
            if row["setting"] not in {earlier["setting"] for earlier in helpful[:place]}]
    num_gpus = summary.deployment["num_gpus"]
    same = sorted((row for row in best if row["num_gpus"] <= num_gpus), key=lambda row: row["setting"] in LOSSY)
    found = [_setting(row, advice) for row in same[:MOST_SAME_GPUS]]
    notes = [] if best else [f"No change of a single setting helps by {share_text(LEAST_GAIN)} or more."]
    enough, note = None, ""
    if slo is not None and verdict_line(summary).kind is not VerdictKind.KEPT:
        enough, note = _replicas(asked, outcome, slo)
    more = [enough] if enough is not None else [_setting(row, advice) for row in best if row["num_gpus"] > num_gpus]
    return Changes(changes=(*found, *more[:MOST - len(found)]),
                   notes=tuple(note for note in (*notes, note) if note and (enough is None or not best)))


def _setting(row: Mapping[str, Any], advice: Mapping[str, Any]) -> Change:
    """Return a change of one setting."""
    lossy = "; it changes the model's outputs" if row["setting"] in LOSSY else ""
    before, after = (setting_text(row[key]) for key in ("before", "after"))
    return Change(options={row["setting"]: row["after"]}, title=f"{setting_label(row['setting'])}: {before} → {after}",
                  effect=_effect(row, advice) + lossy)


def _effect(row: Mapping[str, Any], advice: Mapping[str, Any]) -> str:
    metric, before, after = advice["metric"], advice["value"], row["value"]
    gpus = f", on {row['num_gpus']:,} GPUs" if row["setting"].endswith("_parallel_size") else ""
    if metric == "slo_attainment":
        return f"{share_text(before)} → {share_text(after)} of the requests within their targets{gpus}"
    change = change_text(after / before - 1)
    return f"{limit_words(metric)} {time_text(before)} → {time_text(after)} ({change}){gpus}"


def _replicas(asked: ReplayQuestion, outcome: Outcome, slo: Objectives) -> tuple[Change | None, str]:
    """Return the fewest replicas that keep the targets, or why there are none."""
    scenario, result = asked.study.scenario, outcome.result
    if (scenario.is_closed_loop or result.deployment.pools or scenario.prefill_replicas or scenario.recycle_sessions
            or scenario.data_parallel_attention or scenario.autoscale is not None
            or outcome.summary.would_not_start is not None):
        return None, ""
    saturation = outcome.summary.figures.saturation
    offered, served = saturation.offered_request_rate, saturation.served_request_rate
    guess = math.ceil(scenario.data_parallel_size * offered / served) if offered and served else 1
    try:
        count, _, _ = fewest_replicas(result.trace, result.deployment, slo, min(guess, MOST_REPLICAS),
                                         bound=MOST_REPLICAS, precision=PRECISION)
    except UnreachableError:
        return None, f"{MOST_REPLICAS} replicas do not keep the targets either."
    size = scenario.tensor_parallel_size * scenario.pipeline_parallel_size
    each = "" if size == 1 else f"{size} "
    fleet = replay(asked.trace, replace(scenario, data_parallel_size=count), slo=slo)
    gpu = "GPU" if scenario.gpu is None else gpu_label(scenario.gpu)
    return Change(options={"data_parallel_size": count}, title=f"{count:,} × {each}{gpu}",
                  effect=verdict_line(fleet.summary).sentence), ""
