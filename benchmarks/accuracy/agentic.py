"""Agentic runs, which no fit uses: users that replay recorded sessions against one server, turn by turn."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from benchmarks.accuracy.data import MEASURED
from benchmarks.accuracy.section import ERROR_COLUMNS, Section, Verdict, ape, error_row, four_digits, outcomes
from planner.measured.agentic import OF_SERVER, WARM
from planner.measured.agentic_load import num_timed
from planner.measured.run_table import read_measured
from planner.measured.validate import Prediction, predict_all, predictions_table
from planner.report.content import Listing
from planner.settings.tier_options import has_host_tier

HIT_POINTS, TPOT_LIMIT, WARM_LIMIT = 0.03, 0.12, 0.25  # of the median error
STATISTICS = (WARM, "median_ttft_ms", "mean_tpot_ms", "median_tpot_ms", "mean_e2el_ms", "mean_running",
              "kv_cache_usage_mean", OF_SERVER)
KINDS = ("measured", "predicted")
SHOWN = ("mean_tpot_ms", WARM, OF_SERVER, "mean_running")
OFFLOADED = ("mean_tpot_ms", "mean_ttft_ms", "mean_e2el_ms")  # whose change by offload is shown
Pair = tuple[str, str, dict[str, tuple[float, float]]]
NEAR = 1 / 3  # of the measured change, how far the predicted may be off


def agentic() -> Section:
    """Return the section on agentic runs."""
    predictions = predict_all(read_measured(MEASURED / "agentic_runs.csv"))
    table = predictions_table(predictions)
    good = table.filter(pl.col("status") == "ok").sort("id")
    points = (good[f"predicted_{OF_SERVER}"] - good[f"measured_{OF_SERVER}"]).abs().drop_nulls()
    pairs = _pairs([each for each in predictions if each.status == "ok"])
    lanes = _lanes([each for each in predict_all(read_measured(MEASURED / "agentx_lanes.csv")) if each.status == "ok"])
    verdicts = [
        Verdict(name="prefix hit rate: median error, points", value=float(np.median(points)), limit=HIT_POINTS),
        *(Verdict(name=f"{name}: median APE", limit=limit,
                  value=float(np.nanmedian(ape(good[f"predicted_{name}"], good[f"measured_{name}"]))))
          for name, limit in (("mean_tpot_ms", TPOT_LIMIT), (WARM, WARM_LIMIT))),
        Verdict(name="offload on against off: changes with the right sign", value=_share(pairs, is_near=False),
                limit=1.0, at_least=True),
        Verdict(name="offload on against off: changes within a third of their size", value=_share(pairs, is_near=True),
                limit=1.0, at_least=True)]
    timed = {each.measurement.id: num_timed(each.measurement.load)
             for each in predictions if each.measurement.load is not None}
    rows = [[row["id"], timed[row["id"]], *(row[f"{kind}_{name}"] for name in SHOWN for kind in KINDS)]
            for row in good.iter_rows(named=True)]
    return Section(
        title="Agents",
        lead="InferenceX's replays of recorded Claude-Code sessions against DeepSeek-R1 in FP4 on eight B200 under "
             "vLLM 0.19.1, with 1 to 256 users and KV offload on and off. Each turn waits for the turn before it, and "
             "pauses as long as it did.",
        verdicts=verdicts,
        tables=[Listing(title="statistics", columns=["statistic", *ERROR_COLUMNS],
                        rows=[[name, *error_row(good[f"predicted_{name}"], good[f"measured_{name}"])]
                              for name in STATISTICS]),
                Listing(title="by run", rows=four_digits(rows),
                        columns=["run", "requests", *(f"{name}, {kind}" for name in SHOWN for kind in KINDS)]),
                Listing(title="offload on against off",
                        columns=["off", "on", *(f"{name}, {kind}" for name in OFFLOADED for kind in KINDS)],
                        rows=four_digits([[off, on, *(value for name in OFFLOADED for value in changes[name])]
                                          for off, on, changes in (*pairs, *lanes)])),
                Listing(title="runs", columns=["runs", "status"], rows=outcomes(table.with_columns(
                    pl.col("status").str.replace(r"^run \S+: ", ""))))],
        notes=["Prompts have the tokens that the server counted: the client keeps answers in its conversations and "
               "does not count them.",
               "Times count until the client's sampler first falls silent for 20 s. After it, answers end together, "
               "when the client goes on.",
               "Requests that failed are not in the load, since nobody knows for how long they were served. In "
               "tp8_users64_offloadoff_3 these are 53 of 121.",
               "Each server is fresh: its first prompt took 16 s more than the later ones. TTFT has it, TPOT has not.",
               "A pair has equal users, but other requests. By its counters vLLM asked the host's cache and found "
               "nothing in all of these runs, so the pairs show the change of traffic, not a benefit of offload.",
               "The last pairs are lanes (agentx_lanes.csv). No verdict uses them. Rows with names in -off and -on "
               "have equal kv_offload in the table, so their predicted change comes from their loads alone. The other "
               "rows have offload by the table."])


def _pairs(predictions: Sequence[Prediction]) -> list[Pair]:
    """Return the pairs of runs with equal users and GPUs, without and with offload: their names and their changes.

    A change is the statistic with offload over that without it, minus one: measured and predicted [1].
    """
    def key(found: Prediction) -> tuple[str, int]:
        scenario = found.measurement.scenario
        assert scenario is not None
        return found.measurement.id.split("_offload")[0], scenario.tensor_parallel_size

    return [_pair(off, on) for off in predictions for on in predictions
            if "_offloadoff" in off.measurement.id and "_offloadon" in on.measurement.id and key(off) == key(on)]


def _lanes(predictions: Sequence[Prediction]) -> list[Pair]:
    """Return the pairs of runs of lanes with equal model and lanes, without and with offload by their names.

    A name that says neither has offload if the table has it.
    """
    def is_on(found: Prediction) -> bool:
        name, scenario = found.measurement.id, found.measurement.scenario
        assert scenario is not None
        return name.endswith("-on") or (not name.endswith("-off") and has_host_tier(scenario))

    def key(found: Prediction) -> tuple[str, int]:
        return found.measurement.groups["model"], found.measurement.num_opening

    return [_pair(off, on) for off in predictions for on in predictions
            if not is_on(off) and is_on(on) and key(off) == key(on)]


def _pair(off: Prediction, on: Prediction) -> Pair:
    return off.measurement.id, on.measurement.id, {
        name: (on.measurement.measured[name] / off.measurement.measured[name] - 1.0,
               on.predicted[name] / off.predicted[name] - 1.0) for name in OFFLOADED}


def _share(pairs: Sequence[Pair], *, is_near: bool) -> float:
    """Return the share of changes whose prediction has the measured sign, or is near the measured size [1]."""
    measured, predicted = np.array([change for _, _, changes in pairs for change in changes.values()]).T
    right = np.abs(predicted - measured) <= NEAR * np.abs(measured) if is_near else measured * predicted > 0
    return float(right.mean())
