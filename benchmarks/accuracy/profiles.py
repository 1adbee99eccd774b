"""The step-time model's terms beside measured kernels of the same card: which term is off, before any replay."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from benchmarks.accuracy.data import SHARED
from benchmarks.fit_engines import PRIORS
from planner.deployment.deploy import Deployment, with_constants
from planner.loop.state.count_table import node_counts
from planner.report.content import Listing
from planner.steptime.engine_constants import constants_of

FOLDERS = {"rtx-4090": "RTX4090", "rtx-pro-6000": "RTXPRO6000"}
NUM_LAYERS = 32
COUNTS = (1, 16, 64, 128, 256, 512, 2048)
DECODES = ((1, 1024), (16, 1024), (64, 1024), (128, 1024), (64, 4096))
NORMS_PER_LAYER = 2


def kernel_tables(gpu: str, deployment: Deployment, bundled: Mapping[str, float]) -> list[Listing]:
    """Return Llama-3.1-8B's kernel times on a card: measured, and as the model has them [ms]."""
    folder = SHARED / "kernels" / "consumer" / FOLDERS[gpu] / "meta-llama" / "Llama-3.1-8B" / "bf16" / "tp1"
    curves = {label: with_constants(deployment, constants_of(constants)).step_time.curve
              for label, constants in (("bundled", bundled), ("priors", PRIORS))}
    return [_dense(gpu, pl.read_csv(folder / "dense.csv"), curves),
            _decode(gpu, pl.read_csv(folder / "attention.csv"), curves)]


def _dense(gpu: str, table: pl.DataFrame, curves: Mapping[str, Any]) -> Listing:
    rows = []
    for count in COUNTS:
        us = dict(table.filter(pl.col("tokens") == count).select("layer", "time_us").iter_rows())
        gemms = sum(value for name, value in us.items() if name.endswith("_proj"))
        small = us["act_fn"] + NORMS_PER_LAYER * us["layernorm"] + us["rotary_emb"]
        rows.append([count, *_cells(gemms, curves, "linear_s", count), *_cells(small, curves, "activations_s", count)])
    labels = ("measured", *curves)
    return Listing(title=f"{gpu}: dense GEMMs and small kernels of a step of so many tokens [ms]", rows=rows,
                   columns=("tokens", *(f"GEMMs {label}" for label in labels), *(f"small {label}" for label in labels)))


def _cells(us: float, curves: Mapping[str, Any], name: str, count: int) -> list[str]:
    found = (float(np.interp(count, node_counts(), curve[name])) for curve in curves.values())
    return [f"{NUM_LAYERS * us / 1e3:.2f}", *(f"{1e3 * value:.2f}" for value in found)]


def _decode(gpu: str, table: pl.DataFrame, curves: Mapping[str, Any]) -> Listing:
    rows = []
    for count, context in DECODES:
        us = table.filter((pl.col("prefill_chunk") == 0) & (pl.col("n_decode") == count)
                          & (pl.col("kv_decode") == context))["time_us"][0]
        found = [np.interp(count, node_counts(), c.decode_s)
                 + np.interp(count, node_counts(), c.decode_s_per_context_token) * count * context
                 for c in curves.values()]
        rows.append([count, context, f"{NUM_LAYERS * us / 1e3:.2f}", *(f"{1e3 * value:.2f}" for value in found)])
    return Listing(title=f"{gpu}: decode attention of a step [ms]", columns=("decodes", "context", "measured", *curves),
                   rows=rows)
