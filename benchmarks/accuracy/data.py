"""The measured data, and replays of loads that a table describes."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from planner.deployment.deploy import Deployment
from planner.loop.state.engine_settings import Recording
from planner.replays.driver import ReplayRecords, run
from planner.traces import PrefixIds, Trace
from planner.traces.table import account_of

ROOT = Path(__file__).resolve().parent.parent.parent
SHARED = Path(os.environ.get("PLANNER_SHARED") or ROOT.parent / "shared")
MEASURED = SHARED / "measured"
BLOCK = 16  # tokens of a KV block, as in vLLM


def load_of(source: str, arrival_s: Any, input_tokens: Any, output_tokens: Any,
            prefix: PrefixIds | None = None) -> Trace:
    """Return requests as a trace in order of arrival; equal arrivals keep their order. Prefix ids are in that order."""
    table = pl.DataFrame({
        "arrival_s": np.asarray(arrival_s, float), "input_tokens": np.asarray(input_tokens, np.int64),
        "output_tokens": np.asarray(output_tokens, np.int64), "max_output_tokens": np.asarray(output_tokens, np.int64),
    }).with_row_index("request_id").with_columns(pl.col("request_id").cast(pl.String))
    table = table.sort("arrival_s", maintain_order=True)
    account = account_of(table, source=source, format=source, rows_read=table.height, dropped={}, ignored_columns=())
    return Trace(requests=table, prefix=prefix, source=source, format=source, sha256="", account=account)


def without(deployment: Deployment, terms: Sequence[str]) -> Deployment:
    """Return a deployment after setting terms of its step time to nothing."""
    for name in terms:
        setattr(deployment.step_time.terms, name, 0.0)
    return deployment


def replay(deployment: Deployment, load: Trace, *, steps: bool = False) -> ReplayRecords:
    """Replay a load on a deployment."""
    return run(load, deployment.policy, deployment.settings, deployment.step_time, Recording(steps=steps))


def times(records: ReplayRecords) -> dict[str, Any]:
    """Return TTFT, TPOT and end-to-end time of each request [s]; TPOT is NaN for one token."""
    r = records.requests
    more = np.where(r.num_output_tokens > 1, r.num_output_tokens - 1, np.nan)
    return {"ttft_s": r.first_token_s - r.arrival_s, "tpot_s": (r.finished_s - r.first_token_s) / more,
            "e2e_s": r.finished_s - r.arrival_s}
