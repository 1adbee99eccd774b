"""The action of trace from-prometheus: a server's traffic, a drawn trace, and the assumptions that metrics need."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.commands.trace_actions import check_trace_outputs, place_of, print_notes, publish_beside
from planner.errors import UsageError
from planner.files.keys import asdict
from planner.files.writing import write_text
from planner.measured.counted_traffic import CountedTraffic
from planner.measured.drawn_traffic import model_of_traffic, variants
from planner.measured.scraped import QUANTILES, Histogram
from planner.measured.traffic_answer import TrafficAnswer
from planner.measured.traffic_files import rates_csv, read_traffic
from planner.progress import counted, stage
from planner.report.traffic_tables import traffic_table
from planner.settings.scenario import Scenario
from planner.traces.synthesis import Model


def from_prometheus(source: str, place: Mapping[str, Any], model_name: str | None, lengths: Path | None,
                    request_rate: float | None, assumed: Mapping[str, Any], outputs: Mapping[str, Path | None],
                    to: str | None, scenario: Scenario, slo: str | None, attainment: float) -> None:
    """Print a server's traffic, and write its rates, a model of it and a trace drawn from that."""
    from planner.traces.export import convert as convert_trace
    from planner.traces.synthesis.generate import generate
    from planner.traces.synthesis.traffic_model import to_toml

    output, save, rates, json = (outputs[f"--{name}"] for name in ("output", "save", "rates", "json"))
    check_trace_outputs(source, outputs, to)
    if (slo is None) != (scenario == Scenario()):
        raise UsageError("capacities need --slo and a deployment (--model, --gpu); give both, or neither")
    with stage(f"reading {source}"):
        traffic = read_traffic(source, place, model_name=model_name, lengths=lengths, request_rate=request_rate)
    print_notes(traffic.notes)
    if rates is not None:
        write_text(rates, rates_csv(traffic))
    result = _answer_of(traffic)
    if traffic.lengths or output is not None or save is not None or slo is not None:
        model = model_of_traffic(traffic, **assumed)
        if save is not None:
            write_text(save, to_toml(model))
        if output is not None:
            with stage(f"drawing {output}"):
                trace = generate(model, seed=None)
                account = convert_trace(trace, place_of(output), to=to)
            print(trace.account, account, sep="\n", file=sys.stderr)
            print_notes(account.warnings)
            result = replace(result, drawn=str(trace.account))
        if slo is not None:
            capacities = _capacities(traffic, model, assumed, scenario, slo, attainment)
            result = replace(result, capacities=capacities)
    publish_beside(output, asdict(result), traffic_table(result), json)


def _capacities(traffic: CountedTraffic, model: Model, assumed: Mapping[str, Any], scenario: Scenario, slo: str,
                attainment: float) -> dict[str, float]:
    """Return the capacity for the drawn trace, and for traces with other assumptions and the same metrics [1/s]."""
    from planner.planning.closeness import replayed_capacity
    from planner.settings.objectives import parse_objectives
    from planner.traces.synthesis.generate import generate

    objectives = parse_objectives(slo, attainment)
    models = [("as drawn", model), *variants(traffic, **assumed)]
    return {words: replayed_capacity(generate(one, seed=None), scenario, objectives)
            for words, one in counted("trying assumptions", models)}


def _answer_of(traffic: CountedTraffic) -> TrafficAnswer:
    """Return the answer of a traffic, without a drawn trace and without capacities."""
    hits, queries = (0.0, 0.0) if traffic.cached is None else traffic.cached.sum(axis=0)
    rates, means = traffic.requests / traffic.window_s, {side: part.mean for side, part in traffic.lengths.items()}
    return TrafficAnswer(
        source=traffic.source, metrics=traffic.engine or None, model_name=traffic.model or None,
        start_s=float(traffic.edges_s[0]), duration_s=float(traffic.window_s.sum()), num_windows=len(rates),
        window_s=float(np.median(traffic.window_s)), scrape_interval_s=traffic.scrape_interval_s,
        num_requests=float(traffic.requests.sum()),
        request_rate=float(traffic.requests.sum() / traffic.window_s.sum()), peak_request_rate=float(rates.max()),
        mean_input_tokens=means.get("input"), mean_output_tokens=means.get("output"),
        has_histograms={side: bool(len(lengths.edges)) for side, lengths in traffic.lengths.items()},
        counts_ends=traffic.counts_ends, cached_share=float(hits / queries) if queries > 0 else None,
        latencies={what: _latency(histogram) for what, histogram in traffic.latencies.items()},
        gauges={what: {"mean": mean, "max": largest} for what, (mean, largest) in traffic.gauges.items()},
        notes=tuple(traffic.notes))


def _latency(histogram: Histogram) -> dict[str, Any]:
    """Return the mean and quantiles of a latency, each quantile with the edges of its bucket [ms]."""
    quantiles = {f"p{round(100 * share)}_ms": 1e3 * histogram.quantile(share) for share in QUANTILES}
    bounds = {f"p{round(100 * share)}_bucket_ms": [1e3 * edge if edge < float("inf") else None
                                                   for edge in histogram.bucket(share)] for share in QUANTILES}
    return {"mean_ms": 1e3 * histogram.mean, **quantiles, **bounds}
