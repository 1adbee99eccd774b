"""Two pools divided by the prompt length as text: threshold, replicas, saving, and all thresholds of the search."""

from planner.files.counts import figure_text, share_text
from planner.planning.size_answer import Fleet, SizeAnswer, SplitFleet
from planner.report.capacity_sentence import limit_words
from planner.report.text import Grid


def split_words(result: SizeAnswer) -> list[str]:
    """Return two pools in sentences: threshold, replicas, cost and the saving against one pool; [] without them."""
    if result.split is None:
        return []
    fleet, single = result.split.fleet, result.split.single_cost_usd_per_hour
    if fleet is None:
        return ["two pools: no threshold meets the objectives"]
    pools = " + ".join(f"{pool.num_replicas} × {pool.tensor_parallel_size} {pool.gpu} ({pool.accepts})"
                       for pool in fleet.pools)
    return [f"two pools: threshold {fleet.threshold_tokens:,} tokens, {pools}, {fleet.num_gpus} GPUs, "
            f"{fleet.cost_usd_per_hour:.2f} USD/h, {fleet.cost_usd_per_month:,.0f} USD/month; "
            f"{_against_one(fleet, single)}",
            f"two pools: predicted {share_text(fleet.attainment)} of the requests, {predicted_words(fleet)}",
            *(f"{lead}{pool.name}: {text}" for pool in fleet.pools
              for lead, text in (("launch of pool ", pool.command), ("pool ", pool.lowered)) if text is not None)]


def _against_one(fleet: SplitFleet, single: float | None) -> str:
    """Return the saving of two pools in words."""
    if single is None:
        return "no single pool meets the objectives"
    change = share_text(abs(1 - fleet.cost_usd_per_hour / single)) if single > 0 else "–"
    if fleet.cost_usd_per_hour < single:
        return f"saves {change} of the best single pool's {single:.2f} USD/h"
    if fleet.cost_usd_per_hour > single:
        return f"no saving: the best single pool costs {single:.2f} USD/h, and two pools {change} more"
    return f"no saving: the best single pool costs as much, {single:.2f} USD/h"


def split_rows(result: SizeAnswer) -> list[Grid]:
    """Return the thresholds that were tried as rows; [] without two pools."""
    if result.split is None:
        return []
    rows = [(f"{row.threshold_tokens:,}", row.replicas or "–", *(
        [row.reason or ""] if row.cost_usd_per_hour is None else [f"{row.num_gpus:,}", f"{row.cost_usd_per_hour:.2f}"]))
        for row in result.split.thresholds]
    return [Grid(heads=("threshold", "replicas", "GPUs", "USD/h"), rows=rows, left=())]


def predicted_words(fleet: Fleet | SplitFleet) -> str:
    """Return the statistics of the objectives with their limits, then p99 of TTFT and TPOT if they exist."""
    p99s = {"p99_ttft": fleet.p99_ttft_ms, "p99_tpot": fleet.p99_tpot_ms}
    asked = {one.objective: f"{limit_words(one.objective)} {ms_text(one.value_ms)} of {one.limit_ms:,.6g} ms"
             for one in fleet.reached if one.required is None}
    others = [f"{limit_words(name)} {ms_text(value)}" for name, value in p99s.items()
              if name not in asked and value is not None]
    return ", ".join([*asked.values(), *others])


def ms_text(value: float | None) -> str:
    """Return a time in milliseconds as text, a dash without one."""
    return "–" if value is None else f"{figure_text(value)} ms"
