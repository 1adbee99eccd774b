"""llm-d Benchmark Reports, versions 0.1 and 0.2: aggregates of a run, with its load and its stack."""

from collections.abc import Mapping, Sequence
from typing import Any

from planner.engines import engine_named
from planner.errors import TraceError
from planner.measured.reports.reported import IDENTITY, Reported, number_at, statistics_of
from planner.settings.scenario import names_in
from planner.traces.reader import first_at, value_at

TOOL = "an llm-d Benchmark Report"
# Metrics, and their aggregates' paths in versions 0.2 and 0.1.
_METRICS = {"ttft": "time_to_first_token", "tpot": "time_per_output_token", "itl": "inter_token_latency",
            "e2el": "request_latency"}
_AGGREGATE = ("results.request_performance.aggregate", "metrics")
_TO_MS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}


def is_llmd(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is such a report."""
    return "version" in document and "scenario" in document and first_at(document, _AGGREGATE) is not None


def read_llmd(where: str, document: Mapping[str, Any]) -> list[Reported]:
    """Return a report's run.

    Raises
    ------
    TraceError : a statistic is no number or its unit is unknown; prefill and decode ran apart.
    """
    aggregate = first_at(document, _AGGREGATE)
    requests, load = value_at(aggregate, "requests") or {}, value_at(document, "scenario.load.standardized") or {}
    lengths = {side: first_at(requests, (f"{side}_length",)) or load.get(f"{side}_seq_len") or {}
               for side in ("input", "output")}
    total, failed = number_at(where, requests, "total"), number_at(where, requests, "failures") or 0.0
    options, replicas, notes = _stack(where, document)
    more, own_notes = _own(document)
    achieved = first_at(aggregate, ("throughput.request_rate.mean", "throughput.requests_per_sec"))
    if value_at(load, "prefix.prefix_len") is not None:
        notes += (f"{where}: prompts shared prefixes (scenario.load.prefix), and the replay's share none; a table of "
                  f"requests with hash_ids has them",)
    concurrency, rate = load.get("concurrency"), load.get("rate_qps")
    return [Reported(
        tool=f"{TOOL} {document['version']}", client=str(load.get("tool") or "llm-d"), lengths=lengths,
        measured=_measured(where, aggregate), num_requests=None if total is None else total - failed,
        rate_per_s=next((float(value) for value in (rate, None if concurrency else achieved)
                         if isinstance(value, int | float) and 0 < value < float("inf")), None),
        concurrency=float(concurrency) if isinstance(concurrency, int | float) and concurrency < 1e9 else None,
        options=options | more, replicas=replicas, notes=(*notes, *own_notes))]


def _measured(where: str, aggregate: Any) -> dict[str, float]:
    times: dict[str, float] = {}
    for metric, name in _METRICS.items():
        table = value_at(aggregate, f"latency.{name}")
        if not isinstance(table, Mapping):
            continue
        unit = str(table.get("units", "s")).partition("/")[0]
        if unit not in _TO_MS:
            raise TraceError(f"{where}: latency.{name}.units = {table.get('units')!r}; must be one of "
                             f"{', '.join(_TO_MS)}, or one of them per token")
        times |= statistics_of(where, table, metric, _TO_MS[unit])
    return times


def _stack(where: str, document: Mapping[str, Any]) -> tuple[dict[str, Any], int, tuple[str, ...]]:
    """Return the options, the replicas and notes of the engine that a report's stack, or host and platform, names."""
    engines = [part for item in value_at(document, "scenario.stack") or ()
               if value_at(part := value_at(item, "standardized"), "kind") == "inference_engine"]
    roles = {str(engine.get("role")) for engine in engines}
    if {"prefill", "decode"} <= roles:
        raise TraceError(f"{where}: prefill and decode ran in pools of their own, and a run is compared with one "
                         f"engine; compare the deployment by planner replay --fleet with its requests")
    first = engines[0] if engines else _older(document)
    parallelism = value_at(first, "accelerator.parallelism") or {}
    engine = engine_named(str(first.get("tool")))
    options = {"model": value_at(first, "model.name"), "gpu": value_at(first, "accelerator.model"), "engine": engine,
               "tensor_parallel_size": parallelism.get("tp"), "pipeline_parallel_size": parallelism.get("pp")}
    replicas = sum(int(item.get("replicas") or 1) for item in engines) or int(first.get("replicas") or 1)
    notes = (f"{where}: {replicas} engines shared the load; one of them is replayed with its share",)
    named = {name: value for name, value in options.items() if value not in (None, "", "not named")}
    return named, replicas, notes if replicas > 1 else ()


def _older(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the engine of a report of version 0.1, in the words of the later one."""
    accelerators: Sequence[Any] = value_at(document, "scenario.host.accelerator") or ()
    engines: Sequence[Any] = value_at(document, "scenario.platform.engine") or ()
    return {"model": value_at(document, "scenario.model") or {},
            "tool": value_at(engines[0], "name") if engines else "",
            "accelerator": accelerators[0] if accelerators else {}, "replicas": max(len(accelerators), 1)}


def _own(document: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the options of a report of our own, which has all of the deployment, and a note that it was predicted."""
    if "predicted" not in (value_at(document, "run.keywords") or ()):
        return {}, ()
    stack: Sequence[Any] = value_at(document, "scenario.stack") or ({},)
    native = {**(value_at(stack[0], "native.config.deployment") or {}),
              **(value_at(stack[0], "native.config.policy") or {})}
    names = [name for panel in ("Deployment", "Scheduling", "Step time") for name in names_in(panel)
             if name not in (*IDENTITY, "calibration", "interval")]
    options = {name: native[name] for name in names if native.get(name) is not None}
    return options, ("the report was written by planner: its values are predicted, not measured",)
