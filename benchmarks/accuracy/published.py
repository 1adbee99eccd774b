"""Closed-loop runs that others publish one by one, and that no table or fit here has."""

from pathlib import Path

import numpy as np

from benchmarks.accuracy.section import Section, Verdict, ape, grouped, measured_and_predicted, run_by_run, scatter
from planner.measured import METRICS, read_measured
from planner.validate import Prediction, predict_all

RUNS = Path(__file__).with_name("published_runs.csv")  # `source` is the ticket that states a run's means


def published() -> Section:
    """Return the section on them."""
    predictions = predict_all(read_measured(RUNS))
    values = {metric[:4].upper(): measured_and_predicted(predictions, metric) for metric in METRICS}
    return Section(
        title="Runs published elsewhere",
        lead=f"{len(predictions)} runs of DeepSeek-R1 under SGLang, whose means InferenceX's tickets state. No table "
             "and no fit here has one of them, nor any run on H200, nor one of SGLang 0.5.12, of May 2026.",
        verdicts=[Verdict(name=f"{name} median APE", limit=None, value=float(np.median(ape(predicted, measured))))
                  for name, (measured, predicted) in values.items()],
        figures={"published": scatter(values, "Runs published elsewhere", "a point is a run", "ms")},
        tables=[grouped("By GPU and version", "kind", predictions, _kind),
                run_by_run("Runs, measured → predicted [ms]", predictions)],
        notes=["The runs of 0.5.7 open cold: the first tenth of their requests waits some 2 s."])


def _kind(prediction: Prediction) -> str:
    gpu, version, *_ = prediction.measurement.id.split("-")
    return f"{gpu}, SGLang {version}"
