"""The first setting to change: settings are changed one at a time, replayed and ranked by their gain."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.deployment.deploy import Deployment
from planner.engines import ENGINES
from planner.errors import PlannerError
from planner.files.counts import share_text
from planner.launch import describe_launch
from planner.results.summary_answer import Figures, Summary
from planner.run import replay
from planner.settings.objectives import Objectives
from planner.settings.scenario import Scenario
from planner.settings.statistic import metric_key
from planner.traces import Trace

FACTORS = (0.25, 0.5, 2, 4, 8)  # that limits are changed by
LEAST_GAIN = 0.01  # of the metric: a smaller one is no advice
LOSSY = ("kv_cache_dtype",)  # settings that change the model's outputs: advised only if no other helps


def advise(trace: Trace, scenario: Scenario, deployment: Deployment, summary: Summary, *,
           slo: Objectives | None) -> dict[str, Any]:
    """Replay a scenario with one setting changed at a time, and rank the changes.

    Parameters
    ----------
    trace : as read.
    scenario, deployment : as given, and made concrete.
    summary : of its replay.
    slo : objectives; changes are ranked by the statistic that misses its limit by most, by the share of requests within
        their own limits if no statistic misses its limit, and by the mean end-to-end latency without objectives.

    Returns
    -------
    dict
        `metric` and its `value`; `changes`, the best first, each with `setting, before, after, num_gpus`, the metric's
        `value` and `gain` (positive is better, in the metric's unit), or the `reason` why it has none; `first`, the
        best that takes no more GPUs (and leaves the model's outputs alone, if one does), and `first_with_more_gpus`,
        each with the `command` that launches it, None if none gains 1 %; and `sentence`. Of a fleet whose replicas
        differ nothing is tried.
    """
    values = summary.values_by_key
    metric = _metric(summary.figures, values)
    value, num_gpus = values[metric], summary.deployment["num_gpus"]
    if deployment.pools:
        return {"metric": metric, "value": value, "changes": [], "first": None, "first_with_more_gpus": None,
                "sentence": "no settings were tried: each pool of the fleet's file has its own settings"}
    sign = 1.0 if metric == "slo_attainment" else -1.0
    advice = []
    for setting, before, after in changes(scenario, deployment):
        row: dict[str, Any] = {"setting": setting, "before": before, "after": after}
        try:
            other = replay(trace, _changed(scenario, row), slo=slo).summary
        except PlannerError as error:
            advice.append(row | {"reason": str(error)})
            continue
        if other.would_not_start is not None:
            advice.append(row | {"reason": other.would_not_start})
            continue
        reached = other[metric]
        advice.append(row | {"num_gpus": other.deployment["num_gpus"], "value": reached,
                             "gain": sign * (reached - value) if value is not None and reached is not None else None})
    advice.sort(key=lambda row: -(row.get("gain") or 0.0))
    helpful = helpful_changes(metric, value, advice)
    same_gpus = sorted((row for row in helpful if row["num_gpus"] <= num_gpus), key=lambda row: row["setting"] in LOSSY)
    first = next(iter(same_gpus), None)
    with_gpus = next((row for row in helpful if row["num_gpus"] > num_gpus), None)
    for chosen in (first, with_gpus):
        if chosen is not None:
            chosen.update(describe_launch(_changed(scenario, chosen)))
    return {"metric": metric, "value": value, "changes": advice, "first": first, "first_with_more_gpus": with_gpus,
            "sentence": _sentence(metric, value, first, with_gpus)}


def helpful_changes(metric: str, value: float | None, changes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes that gain enough to be advised, in their order; all as `advise` returns them."""
    least = LEAST_GAIN if metric == "slo_attainment" else LEAST_GAIN * (value or 0.0)
    return [row for row in changes if (row.get("gain") or 0.0) > least]


def _metric(figures: Figures, known: Mapping[str, Any]) -> str:
    """Return the key that a change should improve, of the keys that the summary knows."""
    uses = {metric_key(one.name): one.value / one.limit for one in figures.objectives
            if one.unit == "ms" and one.value is not None and one.limit is not None}
    worst = max((key for key in uses if key in known), key=lambda key: uses[key], default="mean_e2el_ms")
    if figures.slo_attainment is None or uses.get(worst, 0.0) > 1:
        return worst
    return "slo_attainment"


def changes(scenario: Scenario, deployment: Deployment) -> list[tuple[str, Any, Any]]:
    """Return which settings to try: each with its value and the one to change it to."""
    settings, gpu = deployment.settings, deployment.gpu
    seqs, budget = settings.max_num_seqs, settings.max_num_batched_tokens
    found: list[tuple[str, Any, Any]] = []
    engines_policy = ENGINES[scenario.engine].defaults.options.policy
    if scenario.policy not in (None, engines_policy):
        found.append(("policy", scenario.policy, engines_policy))
    if seqs:
        found += [("max_num_seqs", seqs, round(seqs * factor)) for factor in FACTORS if seqs * factor >= 1]
    if budget:
        found += [("max_num_batched_tokens", budget, round(budget * factor)) for factor in FACTORS
                  if budget * factor >= 1]
        if scenario.long_prefill_token_threshold == 0:
            found.append(("long_prefill_token_threshold", 0, max(budget // 4, 1)))
    if scenario.long_prefill_token_threshold:
        found.append(("long_prefill_token_threshold", scenario.long_prefill_token_threshold, 0))
    if not settings.enable_chunked_prefill:
        found.append(("enable_chunked_prefill", False, True))
    if not settings.enable_prefix_caching:
        found.append(("enable_prefix_caching", False, True))
    if not settings.async_scheduling:
        found.append(("async_scheduling", False, True))
    share = deployment.resolved.limits.gpu_memory_utilization
    if deployment.memory is not None and share < 0.95:
        found.append(("gpu_memory_utilization", share, 0.95))
    if deployment.stack is not None and scenario.kv_cache_dtype == "auto":
        found.append(("kv_cache_dtype", "auto", "fp8"))
    size, count = scenario.tensor_parallel_size, scenario.data_parallel_size
    may_double = gpu is not None and 2 * deployment.layout.num_gpus <= gpu.gpus_per_node
    if may_double and deployment.stack is not None:
        found.append(("tensor_parallel_size", size, 2 * size))
    if not scenario.is_closed_loop and scenario.autoscale is None:
        if not scenario.data_parallel_attention:
            found.append(("data_parallel_size", count, count + 1))
        elif may_double:
            found.append(("data_parallel_size", count, 2 * count))
    return found


def _changed(scenario: Scenario, row: Mapping[str, Any]) -> Scenario:
    """Return the scenario with a change made."""
    return replace(scenario, **{row["setting"]: row["after"]})


def _sentence(metric: str, value: float | None, first: Mapping[str, Any] | None,
              with_gpus: Mapping[str, Any] | None) -> str:
    if metric == "slo_attainment" and value == 1.0:
        return "all requests meet the SLO, so no setting can improve slo_attainment"
    if value is None or (first is None and with_gpus is None):
        return f"no single setting that was tried improves {metric} by {share_text(LEAST_GAIN)}"
    parts, text = [], share_text if metric == "slo_attainment" else "{:,.1f}".format
    if first is not None:
        parts.append(f"change {_change(first)} first: {metric} {text(value)} to {text(first['value'])}")
    if with_gpus is not None:
        before = "" if first is not None else f"{metric} {text(value)} "
        lead = "with more GPUs" if first is not None else "no setting on the same GPUs gains 1 %; with more GPUs"
        parts.append(f"{lead}, {_change(with_gpus)}: {before}to {text(with_gpus['value'])} "
                     f"on {with_gpus['num_gpus']:,} GPUs")
    return "; ".join(parts) + " (replayed)"


def _change(row: Mapping[str, Any]) -> str:
    before, after = (f"{value:,}" if type(value) is int else str(value) for value in (row["before"], row["after"]))
    return f"{row['setting']} from {before} to {after}{', which changes outputs,' if row['setting'] in LOSSY else ''}"
