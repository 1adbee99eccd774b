"""The deployment that a file of measurements names, against the sidebar's: another deployment is refused."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import PlannerError, UsageError
from planner.launch.launch_file import NamedFile, read_file
from planner.launch.logged_arguments import Logged
from planner.measured.benchmarks import read_objects
from planner.measured.serverlog import engine_of_log
from planner.measured.validate import Prediction, log_error, metrics_of
from planner.report.difference_words import setting_words
from planner.settings.scenario import Scenario
from planner.ui.named import in_catalog
from planner.ui.own_profiles import name_of

FAR, FAR_QUEUED = 10.0, 100.0  # median error as a factor; from here on the deployments differ
QUEUED = ("ttft", "e2el")  # metrics with the queue, whose length is uncertain near the capacity
SIZES = ("tensor_parallel_size", "tp_size")  # names of one option, by engine
MODELS = ("model_id", "model_path", "model", "model_tag")
REMEDY = "Set the measurement's model, GPU and settings in the sidebar"


def check_deployment(path: Path, scenario: Scenario) -> None:
    """Raise UsageError if measurements name another model, weight format or layout than the sidebar's.

    Parameters
    ----------
    path : a benchmark's result, or a server's log.
    """
    differing = []
    for option, theirs in _named(path).items():
        ours = getattr(scenario, option)
        if option == "model":
            ours = None if ours is None else in_catalog(name_of(ours))["model"]
        if option == "quantization" and ours is None:  # the file's checkpoint has another format than the catalog's
            ours = "the format of the catalog's checkpoint"
        if ours is not None and ours != theirs:
            differing.append(f"{setting_words(option, theirs)} (the sidebar has {ours})")
    if differing:
        raise UsageError(f"{path}: is of another deployment: {', '.join(differing)}. {REMEDY}")


def check_errors(path: Path, predictions: Sequence[Prediction]) -> None:
    """Raise UsageError if predictions are so far off that the measured deployment must be another one."""
    for metric in metrics_of(predictions):
        errors = np.array([log_error(each, metric) for each in predictions])
        errors = errors[np.isfinite(errors)]
        limit = FAR_QUEUED if any(name in metric for name in QUEUED) else FAR
        if len(errors) and abs(np.median(errors)) >= math.log(limit):
            raise UsageError(f"{path}: is of another deployment, or has another unit: {metric} is predicted at "
                             f"{math.exp(np.median(errors)):.3g} times the measured value, in the median. {REMEDY}, or "
                             f"check that times are in the unit of their column")


def _named(path: Path) -> dict[str, Any]:
    """Return the options that a file names, if the catalog knows their values."""
    said = _arguments(path)
    found: dict[str, Any] = {}
    model = next((said[name] for name in MODELS if isinstance(said.get(name), str)), None)
    if model is not None:  # a model that the catalog lacks is not compared
        found |= {option: value for option, value in in_catalog(model).items() if value is not None}
    size = next((said[name] for name in SIZES if name in said), None)
    if isinstance(size, int) or str(size).isdecimal():
        found["tensor_parallel_size"] = int(str(size))
    return found


def _arguments(path: Path) -> Mapping[str, Any]:
    """Return a file's values about its server, by name."""
    if path.suffix in (".json", ".jsonl"):
        first: Mapping[str, Any] = next(iter(read_objects(path)), {})
        server = first.get("server_info")
        return {**(server if isinstance(server, Mapping) else {}), **first}
    if engine_of_log(path) is None:
        return {}
    try:
        launch = read_file(NamedFile(path))
    except PlannerError:  # a log without its beginning
        return {}
    return launch.arguments if isinstance(launch, Logged) else {}
