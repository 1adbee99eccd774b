"""Summaries as text tables for the terminal."""

from collections.abc import Mapping
from typing import Any

ROWS = (
    ("Requests", ("completed", "failed", "rejected", "unfinished", "duration")),
    ("Throughput", ("request_throughput", "output_throughput", "total_token_throughput", "request_goodput",
                    "slo_attainment")),
    ("Time to first token [ms]", ("mean_ttft_ms", "median_ttft_ms", "p90_ttft_ms", "p99_ttft_ms")),
    ("Time per output token [ms]", ("mean_tpot_ms", "median_tpot_ms", "p90_tpot_ms", "p99_tpot_ms")),
    ("Inter-token latency [ms]", ("mean_itl_ms", "median_itl_ms", "p99_itl_ms")),
    ("End to end [ms]", ("mean_e2el_ms", "median_e2el_ms", "p99_e2el_ms")),
    ("Queueing [ms]", ("mean_queue_ms", "p99_queue_ms")),
    ("Engine", ("num_steps", "num_preemptions", "prefix_cache_hit_rate", "kv_cache_usage_mean", "kv_cache_usage_peak",
                "num_gpu_blocks", "max_running", "max_waiting", "gpu_busy_fraction", "mfu", "mbu", "bottleneck")),
    ("Cost", ("gpu_hours", "cost_usd", "cost_usd_per_million_output_tokens", "energy_kwh")),
)
UNITS = {
    "duration": "s",
    "request_throughput": "requests/s",
    "output_throughput": "tokens/s",
    "total_token_throughput": "tokens/s",
    "request_goodput": "requests/s",
}


def summary_table(summary: Mapping[str, Any]) -> str:
    """Return one summary as aligned text; what does not exist for the input is left out."""
    lines = [_headline(summary), *_memory_line(summary)]
    for title, keys in ROWS:
        shown = [(key, summary[key]) for key in keys if summary.get(key) is not None]
        if shown:
            lines += [title, *(f"  {key:<36}{_text(value):>16} {UNITS.get(key, '')}".rstrip() for key, value in shown)]
    speed = summary["simulated_requests_per_s"]
    lines.append(f"replayed {summary['workload']['num_requests']:,} requests at {speed:,.0f} requests/s of loop time, "
                 f"{summary['wall_s']:.2f} s in all")
    return "\n".join(lines)


def comparison_table(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return summaries side by side; each number after the first with its difference to the first in per cent."""
    names = list(summaries)
    width = max(20, *(len(name) + 2 for name in names))
    lines = [" " * 38 + "".join(f"{name:>{width}}" for name in names)]
    for title, keys in ROWS:
        rows = [key for key in keys if any(s.get(key) is not None for s in summaries.values())]
        if rows:
            lines.append(title)
        for key in rows:
            first = summaries[names[0]].get(key)
            cells = [_cell(summaries[name].get(key), first if name != names[0] else None) for name in names]
            lines.append(f"  {key:<36}" + "".join(f"{cell:>{width}}" for cell in cells))
    return "\n".join(lines)


def _headline(summary: Mapping[str, Any]) -> str:
    deployment, policy = summary["deployment"], summary["policy"]
    parts = [deployment["model"] or "model not named", f"on {deployment['num_gpus']} × {deployment['gpu'] or 'GPU'}",
             f"policy {policy['name']}"]
    return ", ".join(parts)


def _memory_line(summary: Mapping[str, Any]) -> list[str]:
    """Return how the KV cache follows from the memory of a GPU, where the memory model was asked."""
    memory = summary["deployment"]["memory"]
    if memory is None:
        return []
    gib = {name: memory[f"{name}_bytes"] / 2**30 for name in ("usable", "weight", "activation", "communication",
                                                              "runtime", "kv")}
    taken = " − ".join(f"{gib[name]:.2f} {name}" for name in ("weight", "activation", "communication", "runtime")
                       if gib[name] > 0)
    return [f"KV cache {gib['kv']:.2f} GiB = {gib['usable']:.2f} usable − {taken}; "
            f"{memory['num_gpu_blocks']:,} blocks at {memory['kv_bytes_per_token']:,.0f} B a token"]


def _cell(value: Any, first: Any) -> str:
    text = "–" if value is None else _text(value)
    if isinstance(value, str) or value is None or not isinstance(first, int | float) or not first:
        return text
    return f"{text} ({100 * (value / first - 1):+.0f} %)"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
