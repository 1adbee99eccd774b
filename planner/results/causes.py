"""Explains a replay: time by phase and the binding limit, in numbers and one sentence, alone or against another.

All is computed from the tables of requests and steps, as they are written.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from planner.results.conservation import little, work
from planner.results.limits import QUEUE_LIMITS, limits
from planner.results.phases import PHASES, phases

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


def explain(requests: pl.DataFrame, steps: pl.DataFrame, num_replicas: float = 1) -> dict[str, Any]:
    """Explain one replay.

    Parameters
    ----------
    requests, steps : as `ReplayResult.requests_table` and `steps_table`.
    num_replicas : engines that shared the load, in the mean [1].

    Returns
    -------
    dict
        `phases`, as `phases.phases`; `limits`, as `limits.limits`; `little` and `work`, as in `conservation`; and
        `sentence`.
    """
    explanation: dict[str, Any] = {
        "phases": phases(requests), "limits": limits(requests, steps, num_replicas),
        "little": little(requests, steps), "work": work(requests, steps)}
    return explanation | {"sentence": _sentence(explanation)}


def difference(explanation: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how the mean time of a request differs from the first replay's, by phase; None where one has none.

    Returns
    -------
    dict
        `mean_ms`, by phase, which add up to `e2el_ms`; and `sentence`.
    """
    if explanation["phases"] is None or first["phases"] is None:
        return None
    own, other = (each["phases"]["all"]["mean_ms"] for each in (explanation, first))
    by_phase = {name: own[name] - other[name] for name in PHASES}
    total = sum(by_phase.values())
    differences = {"mean_ms": by_phase, "e2el_ms": total}
    largest = sorted((name for name in PHASES if abs(by_phase[name]) >= 0.1), key=lambda name: -abs(by_phase[name]))
    parts = ", ".join(f"{PHASES[name]} {by_phase[name]:+,.1f} ms" for name in largest[:4])
    before, after = first["limits"]["binding"], explanation["limits"]["binding"]
    shift = f"; the limit is {after} (was {before})" if before != after else f"; the limit is still {after}"
    return differences | {"sentence": f"mean time of a request {total:+,.1f} ms"
                                f"{': ' + parts if parts else ''}{shift}"}


def _sentence(found: Mapping[str, Any]) -> str:
    if found["phases"] is None:
        return "no request was completed"
    share = found["phases"]["all"]["share"]
    most = sorted((name for name in PHASES if share[name] >= 0.01), key=lambda name: -share[name])[:3]
    spent = ", ".join(f"{share[name]:.0%} {PHASES[name]}" for name in most)
    mean_ms = sum(found["phases"]["all"]["mean_ms"].values())
    return f"a request takes {mean_ms:,.1f} ms on average ({spent}); {_binding(found['limits'])}"


def _binding(found: Mapping[str, Any]) -> str:
    name, busy = found["binding"], found["busy_share"]
    if name == "arrivals":
        return f"no limit was reached: the engine is busy {busy:.0%} of the time"
    if name in found["steps"]:
        return f"{BINDING[name]} limits {found['steps'][name]['share']:.0%} of the busy time, and queues are short"
    worst = max(QUEUE_LIMITS, key=lambda each: found["queue"][each]["share"])
    said = f"requests spent {found['queue'][worst]['share']:.0%} of their time in the queue because {BINDING[worst]}"
    if name == "arrival_bursts":
        return (f"{said}, in bursts: in {found['waiting_share']:.0%} of the time, when they arrive "
                f"{found['burst']:.1f} times as fast as on average")
    return said
