"""Summaries as text tables for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from planner.catalog.pooling import RATES
from planner.files.counts import count_text, share_text
from planner.replays.attempts import COUNTED
from planner.report.cells import cell_text, launch_line, number_text
from planner.report.text import Grid, Text
from planner.report.verdict_line import first_words
from planner.report.verdicts import NO_TENANT, objective_lines
from planner.results.glossary import SUMMARY
from planner.results.limits import QUEUE_LIMITS, STEP_BOUNDS
from planner.results.phases import PHASES
from planner.results.saturation import saturation_sentence
from planner.results.summary_answer import Figures, Summary
from planner.settings.judged import ATTAINMENT

ROWS = (
    ("Requests", ("completed", "failed", "rejected", "unfinished", "duration", "saturated",
                  "offered_request_rate", "served_request_rate")),
    ("Attempts", ("num_attempts", "num_retries", "max_attempts", *COUNTED.values(), "num_wasted_output_tokens",
                  "wasted_work", "router_max_queued")),
    ("Throughput", ("request_throughput", "output_throughput", "total_token_throughput", "request_goodput",
                    "slo_attainment")),
    ("Time to first token [ms]", ("mean_ttft_ms", "median_ttft_ms", "p90_ttft_ms", "p99_ttft_ms")),
    ("Time per output token [ms]", ("mean_tpot_ms", "median_tpot_ms", "p90_tpot_ms", "p99_tpot_ms")),
    ("Inter-token latency [ms]", ("mean_itl_ms", "median_itl_ms", "p99_itl_ms")),
    ("End to end [ms]", ("mean_e2el_ms", "median_e2el_ms", "p99_e2el_ms")),
    ("Queueing [ms]", ("mean_queue_ms", "p99_queue_ms")),
    ("Engine", ("num_steps", "mean_acceptance_length", "num_preemptions", "prefix_cache_hit_rate", "num_adapter_loads",
                "kv_cache_usage_mean", "kv_cache_usage_peak", "num_gpu_blocks", "max_running", "max_waiting",
                "gpu_busy_fraction", "mfu", "mbu", "replica_imbalance", "rank_wait_fraction",
                "bottleneck")),
    ("Autoscaler", ("replicas_mean", "replicas_peak", "num_scale_ups", "num_scale_downs")),
    ("Cache tiers", ("gpu_hit_rate", "cpu_hit_rate", "remote_hit_rate", "cpu_read_bytes", "cpu_written_bytes",
                     "remote_read_bytes", "remote_written_bytes", "mean_load_ms", "p99_load_ms")),
    ("Cost", ("gpu_hours", "cost_usd", "cost_usd_per_million_output_tokens", "cost_usd_per_million_input_tokens",
              "cost_usd_per_thousand_results", "cost_usd_per_session",
              "energy_kwh")),
)
IN_A_LINE = ("saturated", "offered_request_rate", "served_request_rate")  # of one replay
POOL_ROWS = ("role", "accepts", "policy", "num_replicas", "replicas_mean", "tensor_parallel_size", "weight",
             "num_requests", "mean_ttft_ms", "mean_tpot_ms", "cpu_hit_rate", "remote_hit_rate", "kv_cache_usage_peak",
             "gpu_busy_fraction", "gpu_hours", "cost_usd")
SHOWN_SHARE = 0.0005  # of time; smaller shares are not shown
SHOWN_EVENTS = 12  # of an autoscaler; the JSON has all
SCALE_COLUMNS = ("at [s]", "before", "after", "metric", "value", "target", "wanted", "limited by")
SHOWN_TENANTS = 12  # the tenants with the most requests; the JSON has all
TENANT_COLUMNS = {"num_requests": "requests", "completed": "completed", "rejected": "rejected",
                  "slo_attainment": "attainment", "mean_ttft_ms": "TTFT mean", "p99_ttft_ms": "TTFT p99",
                  "mean_tpot_ms": "TPOT mean", "p99_tpot_ms": "TPOT p99", "output_throughput": "tokens/s"}
UNITS = {key: SUMMARY[key].unit for key in ("duration", "offered_request_rate", "served_request_rate",  # are shown
                                            "request_throughput", "output_throughput", "total_token_throughput",
                                            "request_goodput")}


def summary_table(summary: Summary) -> Text:
    """Return one summary without the values that do not exist for the input."""
    figures, values = summary.figures, summary.values_by_key
    verdict = saturation_sentence(figures.saturation)
    rows: list[tuple[str, ...] | str] = []
    for title, keys in ROWS:
        shown = [(key, values[key]) for key in keys if values.get(key) is not None and key not in IN_A_LINE]
        if title == "Requests":
            shown[3:3] = [(f"  {name}", count) for name, count in (figures.rejected_by_reason or {}).items()]
        rows += [title] if shown else []
        rows += [(key, _value(figures, key, value), f"{_unit(summary, key):<12}{_bounds(summary, key)}".rstrip())
                 for key, value in shown]
    return Text([
        _headline(summary), *first_words(summary), *_memory_line(summary), *([verdict] if verdict else []),
        Grid(heads=("", "", ""), rows=rows, left=(0, -1), indent=2), *_pool_lines(summary.pools or ()),
        *_scale_lines(figures), *_tenant_lines(figures.tenants or {}), *objective_lines(summary),
        f"replayed {count_text(summary.workload['num_requests'], 'request')} at "
        f"{summary.simulated_requests_per_s:,.0f} requests/s of loop time, {summary.wall_s:.2f} s in all"])


def _value(figures: Figures, key: str, value: Any) -> str:
    """Return a number of the summary; the share within the objectives is set apart from the required one."""
    required = next((one.limit for one in figures.objectives if one.name == ATTAINMENT), None)
    return share_text(value, required) if key == "slo_attainment" else number_text(value, key)


def _unit(summary: Summary, key: str) -> str:
    """Return the unit of a number; a pooling model's requests are embeddings or pairs."""
    unit = UNITS.get(key, "")
    return RATES.get(summary.deployment.get("pooling"), unit) if unit == "requests/s" else unit


def _pool_lines(pools: Sequence[Mapping[str, Any]]) -> list[Grid]:
    """Return the numbers of a fleet's pools side by side."""
    if not pools:
        return []
    rows = {key: [_cell(key, pool[key], None) for pool in pools] for key in POOL_ROWS
            if any(pool[key] is not None for pool in pools)}
    gpus = [f"{pool['num_gpus']} × {pool['gpu'] or 'GPU'}" for pool in pools]
    return _columns([pool["name"] for pool in pools], {"Pools": {"gpus": gpus, **rows}})


def comparison_table(summaries: Mapping[str, Mapping[str, Any]], shown: Sequence[str] | None = None) -> Text:
    """Return summaries side by side; each number after the first with its difference to the first in per cent.

    Parameters
    ----------
    shown : keys of the rows; None for all that exist.
    """
    names = list(summaries)
    found = {}
    for title, keys in ROWS:
        rows = [key for key in keys if any(s.get(key) is not None for s in summaries.values())
                and (shown is None or key in shown)]
        firsts = {key: summaries[names[0]].get(key) for key in rows}
        found[title] = {key: [_cell(key, summaries[name].get(key), firsts[key] if name != names[0] else None)
                              for name in names] for key in rows}
    return Text(_columns(names, found))


def _columns(names: Sequence[str], tables: Mapping[str, Mapping[str, Sequence[str]]]) -> list[Grid]:
    """Return a grid with a column for each name, by title and label; a table without rows is left out."""
    rows: list[Sequence[str] | str] = []
    for title, cells in tables.items():
        rows += [title] if cells else []
        rows += [(label, *row) for label, row in cells.items()]
    return [Grid(heads=("", *names), rows=rows, indent=2)]


def scale_cells(event: Mapping[str, Any]) -> list[Any]:
    """Return one scale event under `SCALE_COLUMNS`."""
    value, target = event["value"], event["target"]
    metric = f"{event['pool']}: {event['metric']}" if event.get("pool") else event["metric"]
    return [round(event["at_s"], 3), event["before"], event["after"], metric,
            "–" if value is None else f"{value:.4g}", "–" if target is None else f"{target:.4g}", event["wanted"],
            event["limited_by"] or "–"]


def _tenant_lines(tenants: Mapping[str, Mapping[str, Any]]) -> list[str | Grid]:
    """Return a row for each of the tenants with the most requests; times are in milliseconds."""
    if not tenants:
        return []
    keys = [key for key in TENANT_COLUMNS if any(figures[key] is not None for figures in tenants.values())]
    shown = list(tenants.items())[:SHOWN_TENANTS]
    rows = [[name or NO_TENANT, *(cell_text(figures[key], key) for key in keys)] for name, figures in shown]
    others = len(tenants) - len(shown)
    grid = Grid(heads=("", *(TENANT_COLUMNS[key] for key in keys)), rows=rows, indent=2)
    return ["Tenants [ms]", grid, *([f"  … {others:,} more tenants; --json has all"] if others else [])]


def _scale_lines(figures: Figures) -> list[str | Grid]:
    """Return the first scale events as rows."""
    events = [] if figures.scaling is None else figures.scaling.autoscale["events"]
    rows = [[f"{cell:,}" if isinstance(cell, int | float) else cell for cell in scale_cells(event)]
            for event in events[:SHOWN_EVENTS]]
    more = [f"  … {len(events) - SHOWN_EVENTS:,} more; --scale-events writes all"] if len(events) > SHOWN_EVENTS else []
    return ["Scale events", Grid(heads=SCALE_COLUMNS, rows=rows, left=(), indent=2), *more] if events else []


def _headline(summary: Summary) -> str:
    deployment, policy = summary.deployment, summary.policy
    most = "" if summary.figures.scaling is None else "up to "
    gpu, count = deployment["gpu"] or "GPU", deployment["num_gpus"]
    gpus = f"{count:,} GPUs ({gpu})" if " + " in gpu else f"{count:,} × {gpu}"
    parts = [deployment["model"] or "model not named",
             f"on {most}{gpus}",
             f"policy {policy['name']}",
             *([f"router {deployment['router']}"] if deployment["num_replicas"] > 1 else [])]
    return ", ".join(parts)


def _memory_line(summary: Summary) -> list[str]:
    """Return how the KV cache follows from the memory of a GPU, if the memory model was asked."""
    memory = summary.deployment["memory"]
    if memory is None:
        return []
    taken_by = ("weight", "activation", "communication", "runtime", "state")
    gib = {name: memory[f"{name}_bytes"] / 2**30 for name in ("usable", *taken_by, "kv")}
    taken = " − ".join(f"{gib[name]:.2f} {name}" for name in taken_by if gib[name] > 0)
    if not memory["kv_bytes_per_token"]:
        return [f"no KV cache; {gib['usable']:.2f} GiB usable − {taken} leave {gib['kv']:.2f}"]
    states = f", {memory['state_blocks']} for a sequence's states" if memory["state_blocks"] else ""
    return [f"KV cache {gib['kv']:.2f} GiB = {gib['usable']:.2f} usable − {taken}; "
            f"{memory['num_gpu_blocks']:,} blocks at {memory['kv_bytes_per_token']:,.0f} B a token{states}"
            + (f" and windows of {memory['windows']['window_tokens']:,} tokens"
               if memory["windows"]["window_tokens"] else "")]


def _bounds(summary: Summary, key: str) -> str:
    """Return the interval of a number that has one."""
    bounds = getattr(summary.intervals, key, None)
    if bounds is None:
        return ""
    return f"  ({share_text(summary.deployment['interval'])}: {number_text(bounds[0])} to {number_text(bounds[1])})"


def _cell(key: str, value: Any, first: Any) -> str:
    text = cell_text(value, key)
    if isinstance(value, str) or value is None or not isinstance(first, int | float) or not first:
        return text
    return f"{text} ({round(100 * (value / first - 1)):+} %)".replace("(+0 %)", "(0 %)")


def explanation_table(explanations: Mapping[str, Mapping[str, Any]]) -> Text:
    """Return the times of phases and the limits, side by side, then each explanation in words."""
    names = [name for name, found in explanations.items() if found["phases"] is not None]
    lines: list[str | Grid] = [*_columns(names, _explanation_rows([explanations[name] for name in names]))]
    for name, found in explanations.items():
        prefix = f"{name}: " if name else ""
        lines += [prefix + found["sentence"], *([prefix + found["advice"]["sentence"]] if found["phases"] else [])]
        if (found["advice"]["first"] or {}).get("command"):
            first = found["advice"]["first"]
            lines.append(prefix + launch_line(first["command"], first["command_lacks"]))
        if found.get("difference"):
            lines.append(f"{name} against {next(iter(explanations))}: {found['difference']['sentence']}")
    return Text(lines)


def _explanation_rows(explanations: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Return the cells of an explanation's tables by title and label; a row without a value is left out."""
    phases = [(found["phases"]["all"]["mean_ms"], found["phases"]["slowest"]["mean_ms"]) for found in explanations]
    by_phase = {name: [f"{every[name]:,.1f} ({late[name]:,.1f})" for every, late in phases]
                for name in PHASES if any(late[name] for _, late in phases)}
    limits = [found["limits"] for found in explanations]
    queue, steps = ({name: [share_text(limit[kind][name]["share"]) for limit in limits] for name in known
                     if any(limit[kind][name]["share"] >= SHOWN_SHARE for limit in limits)}
                    for kind, known in (("queue", QUEUE_LIMITS), ("steps", STEP_BOUNDS)))
    return {"Mean time per request (and of the slowest 1 %) [ms]": by_phase,
            "Share of requests' time in a queue because of": queue, "Share of busy time in steps limited by": steps}
