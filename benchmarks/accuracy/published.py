"""Closed-loop runs that others publish one by one, and that no table or fit here has."""

from pathlib import Path

import numpy as np

from benchmarks.accuracy.section import PREDICTION_COLUMNS, Section, Table, Verdict, ape, prediction_errors, scatter
from planner.measured import METRICS, read_measured
from planner.validate import Prediction, predict_all

RUNS = Path(__file__).with_name("published_runs.csv")  # `source` is the ticket that states a run's means


def published() -> Section:
    """Return the section on them."""
    predictions = predict_all(read_measured(RUNS))
    kinds = sorted({_kind(p) for p in predictions})
    return Section(
        title="Runs published elsewhere",
        lead=f"{len(predictions)} runs of DeepSeek-R1 under SGLang, whose means InferenceX's tickets state. No table "
             "and no fit here has one of them, nor any run on H200, nor one of SGLang 0.5.12, of May 2026.",
        verdicts=[Verdict(name=f"{metric[:4].upper()} median APE", limit=None,
                          value=float(np.median(ape(*_values(predictions, metric))))) for metric in METRICS],
        figures={"published": scatter({metric[:4].upper(): _values(predictions, metric)[::-1] for metric in METRICS},
                                      "Runs published elsewhere", "a point is a run", "ms")},
        tables=[Table(title="By GPU and version", columns=("kind", *PREDICTION_COLUMNS),
                      rows=[[kind, *prediction_errors([p for p in predictions if _kind(p) == kind])]
                            for kind in kinds]),
                Table(title="Runs, measured → predicted [ms]", columns=("run", "TTFT", "TPOT"),
                      rows=[[p.measurement.id, *(f"{p.measurement.measured[metric]:.4g} → {p.predicted[metric]:.4g}"
                                                 for metric in METRICS)] for p in predictions])],
        notes=["The runs of 0.5.7 open cold: the first tenth of their requests waits some 2 s."])


def _kind(prediction: Prediction) -> str:
    gpu, version, *_ = prediction.measurement.id.split("-")
    return f"{gpu}, SGLang {version}"


def _values(predictions: list[Prediction], metric: str) -> tuple[list[float], list[float]]:
    """Return what was predicted, and what was measured."""
    return [p.predicted[metric] for p in predictions], [p.measurement.measured[metric] for p in predictions]
