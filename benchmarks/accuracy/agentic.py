"""Agentic runs, which no fit uses: users that replay recorded sessions against one server, turn by turn."""

import numpy as np
import polars as pl

from benchmarks.accuracy.data import MEASURED
from benchmarks.accuracy.section import ERROR_COLUMNS, Section, Verdict, ape, error_row, four_digits, outcomes
from planner.measured.agentic import OF_SERVER, WARM
from planner.measured.run_table import read_measured
from planner.measured.validate import predict_all, predictions_table
from planner.report.content import Listing

HIT_POINTS, TPOT_LIMIT, WARM_LIMIT = 0.03, 0.12, 0.25  # of the median error
STATISTICS = (WARM, "median_ttft_ms", "mean_tpot_ms", "median_tpot_ms", "mean_e2el_ms", "mean_running",
              "kv_cache_usage_mean", OF_SERVER)
STALLED_MS = 600e3  # half of the warm turns waited longer for their first token: the server did not answer


def agentic() -> Section:
    """Return the section on agentic runs."""
    table = predictions_table(predict_all(read_measured(MEASURED / "agentic_runs.csv")))
    good = table.filter(pl.col("status") == "ok")
    going = good.filter(pl.col(f"measured_{WARM}").fill_null(0.0) < STALLED_MS)
    points = (going[f"predicted_{OF_SERVER}"] - going[f"measured_{OF_SERVER}"]).abs().drop_nulls()
    verdicts = [
        Verdict(name="prefix hit rate: median error, points", value=float(np.median(points)), limit=HIT_POINTS),
        *(Verdict(name=f"{name}: median APE", limit=limit,
                  value=float(np.median(ape(going[f"predicted_{name}"], going[f"measured_{name}"]))))
          for name, limit in (("mean_tpot_ms", TPOT_LIMIT), (WARM, WARM_LIMIT)))]
    shown = ("mean_tpot_ms", WARM, OF_SERVER, "mean_running")
    rows = [[row["id"], *(row[f"{kind}_{name}"] for name in shown for kind in ("measured", "predicted"))]
            for row in good.sort("id").iter_rows(named=True)]
    return Section(
        title="Agents",
        lead="InferenceX's replays of recorded Claude-Code sessions against DeepSeek-R1 in FP4 on eight B200 under "
             "vLLM 0.19.1, with 1 to 256 users and KV offload on and off. Each turn waits for the turn before it, and "
             "pauses as long as it did.",
        verdicts=verdicts,
        tables=[Listing(title="statistics", columns=["statistic", *ERROR_COLUMNS],
                        rows=[[name, *error_row(going[f"predicted_{name}"], going[f"measured_{name}"])]
                              for name in STATISTICS]),
                Listing(title="by run", columns=["run", *(f"{name}, {kind}" for name in shown
                                                          for kind in ("measured", "predicted"))],
                        rows=four_digits(rows)),
                Listing(title="runs", columns=["runs", "status"], rows=outcomes(table.with_columns(
                    pl.col("status").str.replace(r"^run \S+: ", ""))))],
        notes=[f"In {good.height - going.height} of the runs the server stopped answering for more than ten minutes. "
               "The errors leave these runs out; the table by run has them.",
               "One to eight users that the server did not stop for are predicted within 8 % in mean TPOT. With 32 and "
               "more, steps with prompts behind long contexts are a quarter to a third too fast.",
               "The runs with offload moved no KV to the host by their own counters, so they do not show its benefit."])
