"""Explains a replay: time by phase and the binding limit, in numbers and one sentence, alone or against another.

All is computed from the tables of requests and steps, as they are written.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from planner.files.counts import share_text
from planner.results.conservation import little, work
from planner.results.limits import limits
from planner.results.phases import PHASES, phases
from planner.results.short_times import time_text

BINDING = {  # by limit: its words
    "max_num_seqs": "max_num_seqs was reached",
    "token_budget": "max_num_batched_tokens was reached",
    "kv_cache": "KV blocks ran out",
    "max_loras": "max_loras was reached",
    "policy": "the policy left them out",
    "compute": "compute (FLOP/s)",
    "memory_bandwidth": "HBM bandwidth",
    "communication": "GPU-to-GPU communication",
    "host": "host work (CPU)",
    "other_ranks": "waiting for slower ranks",
}

LIMITS = {  # by binding limit: its noun
    **BINDING, "max_num_seqs": "max_num_seqs", "token_budget": "max_num_batched_tokens", "kv_cache": "the KV cache",
    "max_loras": "max_loras", "policy": "the policy", "arrivals": "arrivals",
}


def explain(requests: pl.DataFrame, steps: pl.DataFrame, num_replicas: float = 1, policy: str = "") -> dict[str, Any]:
    """Explain one replay.

    Parameters
    ----------
    requests, steps : as `ReplayResult.requests_table` and `steps_table`.
    num_replicas : engines that shared the load, in the mean [1].
    policy : its name, for the sentence if its plan limits the steps.

    Returns
    -------
    dict
        `phases`, as `phases.phases`; `limits`, as `limits.limits`; `little` and `work`, as in `conservation`; and
        `sentence`.
    """
    explanation: dict[str, Any] = {
        "phases": phases(requests), "limits": limits(requests, steps, num_replicas),
        "little": little(requests, steps), "work": work(requests, steps)}
    most_running = int(steps["num_running"].max() or 0)  # type: ignore[arg-type]
    return explanation | {"sentence": _sentence(explanation, policy, most_running)}


def difference(explanation: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how the mean time of a request differs from the first replay's, by phase; None if one has none.

    Returns
    -------
    dict
        `mean_ms`, by phase, which add up to `e2el_ms`; and `sentence`.
    """
    if explanation["phases"] is None or first["phases"] is None:
        return None
    mine, other = (side["phases"]["all"]["mean_ms"] for side in (explanation, first))
    by_phase = {name: mine[name] - other[name] for name in PHASES}
    total = sum(by_phase.values())
    differences = {"mean_ms": by_phase, "e2el_ms": total}
    largest = sorted((name for name in PHASES if abs(by_phase[name]) >= 0.1), key=lambda name: -abs(by_phase[name]))
    parts = ", ".join(f"{_more(by_phase[name])} in {PHASES[name]}" for name in largest[:4])
    before, after = first["limits"]["binding"], explanation["limits"]["binding"]
    shift = (f"; the limit is {LIMITS[after]} (was {LIMITS[before]})" if before != after else
             f"; the limit is still {LIMITS[after]}")
    taken = f"a request takes {_more(total)} on average" if parts else "a request takes as long on average"
    return differences | {"sentence": f"{taken}{': ' + parts if parts else ''}{shift}"}


def _more(change_ms: float) -> str:
    return f"{time_text(abs(change_ms))} {'more' if change_ms > 0 else 'less'}"


def _sentence(parts: Mapping[str, Any], policy: str, most_running: int) -> str:
    if parts["phases"] is None:
        return "no request was completed"
    share = parts["phases"]["all"]["share"]
    most = sorted((name for name in PHASES if share[name] >= 0.01), key=lambda name: -share[name])[:3]
    spent = ", ".join(f"{share_text(share[name])} {PHASES[name]}" for name in most)
    mean_ms = sum(parts["phases"]["all"]["mean_ms"].values())
    binding = _binding(parts["limits"], policy, most_running)
    return f"a request takes {time_text(mean_ms)} on average ({spent}); {binding}"


def _binding(parts: Mapping[str, Any], policy: str, most_running: int) -> str:
    name, busy = parts["binding"], parts["busy_share"]
    if name == "arrivals":
        return f"no limit was reached: the engine is busy {share_text(busy)} of the time"
    if name in parts["steps"]:
        return f"{_step_bound(parts)}, and queues are short"
    waited = share_text(parts["queue"][name]["share"])
    cause = BINDING[name] if name != "policy" else (
        f"the plan of policy {policy} left them out" if policy else BINDING[name]) + f", at most {most_running:,} ran"
    said = f"requests spent {waited} of their time in the queue because {cause}"
    if parts["is_in_bursts"]:
        return (f"{said}, in bursts: in {share_text(parts['waiting_share'])} of the time, when they arrive "
                f"{parts['burst']:.1f} times as fast as on average")
    return said


def _step_bound(parts: Mapping[str, Any]) -> str:
    """Name the bound of the steps; if most of the time has another bound than the totals, say both with shares."""
    name, summed, shares = parts["binding"], parts["bottleneck"], parts["steps"]
    longest = max(shares, key=lambda bound: shares[bound]["share"])
    said = f"{BINDING[longest]} limits {share_text(shares[longest]['share'])} of the busy time"
    if longest == summed:
        return said
    roofs = {roof: share_text(row["share"]) for roof, row in parts["roofs"].items()}
    totals = (f"all HBM traffic at its peak rate takes {roofs['memory_bandwidth']} of the busy time, all arithmetic "
              f"{roofs['compute']}")
    if name != summed:
        return f"{said}; bottleneck = {summed} compares only two totals: {totals}"
    return f"{BINDING[name]} is the nearer limit in total: {totals}; step by step, {said}"
