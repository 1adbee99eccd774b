"""Requests of pooling models: each has one result in place of output tokens."""

from dataclasses import replace

import polars as pl

from planner.catalog.catalog_files import load_model
from planner.errors import UsageError
from planner.settings.objectives import Objectives
from planner.settings.scenario import Scenario
from planner.traces.lines import BlockRows
from planner.traces.table import Trace

NONE = "no outputs: traffic for embedding models or rerankers. --column output_tokens=COLUMN names the outputs of " \
       "other traffic"
OUTPUTS = ("max_output_tokens", "predicted_output_tokens")


def generates(scenario: Scenario) -> bool:
    """Tell whether the requests of a scenario generate tokens: its model, if it has one, is no pooling model."""
    return scenario.pooling is None and (scenario.model is None or load_model(scenario.model).pooling is None)


def check_objectives(objectives: Objectives | None, scenario: Scenario) -> None:
    """Raise UsageError if an objective limits the time of output tokens that a model does not generate."""
    limits = [] if objectives is None else [name for name in objectives.limits_s if name.endswith("tpot")]
    if limits and not generates(scenario):
        raise UsageError(f"--slo {limits[0]}: {scenario.model} generates no tokens, and has no time per output token; "
                         f"limit e2el, as in p99_e2el:200")


def with_results(rows: BlockRows) -> BlockRows:
    """Return rows with one result for each request that a row stands for."""
    count = pl.col("num_requests") if "num_requests" in rows.table.columns else pl.lit("1")
    return replace(rows, table=rows.table.with_columns(count.cast(pl.String).alias("output_tokens")))


def without_outputs(trace: Trace) -> Trace:
    """Return a trace whose requests have 0 output tokens, as its description shows them, with a note."""
    account = replace(trace.account, output_tokens_p50=0.0, output_tokens_p99=0.0, notes=(*trace.account.notes, NONE))
    zero = pl.lit(0, dtype=trace.requests["output_tokens"].dtype)
    return replace(trace, account=account, requests=trace.requests.with_columns(output_tokens=zero))


def pooled(trace: Trace) -> Trace:
    """Return a trace whose requests have one result each: the replay counts it as the only output token."""
    table = trace.requests
    one = pl.lit(1, dtype=table["output_tokens"].dtype)
    kept = table.drop([name for name in OUTPUTS if name in table.columns])
    return replace(trace, requests=kept.with_columns(output_tokens=one, max_output_tokens=one))
