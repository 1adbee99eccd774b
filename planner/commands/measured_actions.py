"""The actions on measurements: choose them, compare predictions with them, and fit constants to them."""

from pathlib import Path

from planner.commands.actions import publish_answer
from planner.commands.outputs import check_outputs
from planner.errors import UsageError
from planner.files.writing import why_no_folder
from planner.measured.accuracy import accuracy, parse_max_error, predict_file
from planner.measured.calibration.calibrate import calibrate as fit_to
from planner.measured.calibration.calibrate import write_calibration
from planner.measured.validate import metrics_of, predictions_table
from planner.planning.measure import SCRIPT, read_campaign, write_campaign
from planner.planning.measure import measure as choose
from planner.replays.result_tables import check_table_path, write_table
from planner.settings.format_spec import Reading
from planner.settings.scenario import Scenario


def measure(scenario: Scenario, minutes: float, num_runs: int, folder: Path, overwrite: bool, jobs: int,
            json: Path | None) -> None:
    """Choose the benchmarks that teach the most about a deployment, print them and write them as a script."""
    if (folder / SCRIPT).exists() and not overwrite:
        raise UsageError(f"--output {folder}: has a {SCRIPT}; give another folder, or --overwrite")
    if (reason := why_no_folder(folder)) is not None:
        raise UsageError(f"--output {folder}: cannot be written: {reason}; give another folder")
    check_outputs({"--json": json})
    answer, deployed = choose(scenario, minutes=minutes, num_runs=num_runs, folder=folder, jobs=jobs)
    write_campaign(answer, deployed, folder)
    publish_answer(answer, json)


def validate(measured: Path, scenario: Scenario, max_error: str | None, predictions: Path | None, client: str | None,
             reading: Reading, jobs: int, json: Path | None) -> bool:
    """Predict measured values, and print and write the errors; return False if an error is past `max_error`."""
    check_outputs({"--json": json, "--predictions": predictions}, measured)
    if predictions is not None:
        check_table_path(predictions)
    path, deployed = read_campaign(measured, scenario)
    predicted = predict_file(path, deployed, client=client, jobs=jobs, format=reading.spec)
    limits = parse_max_error(max_error, metrics_of(predicted.predictions)) if max_error is not None else {}
    result = accuracy(predicted, level=deployed.interval, limits=limits)
    if predictions is not None:
        write_table(predictions_table(predicted.predictions), predictions)
    publish_answer(result, json)
    return result.met


def calibrate(measured: Path, scenario: Scenario, output: Path | None, fit: str | None, folds: int, client: str | None,
              reading: Reading, jobs: int, json: Path | None) -> None:
    """Fit an engine's constants to measurements, and print and write them."""
    check_outputs({"--json": json, "--output": output}, measured)
    names = None if fit is None else fit.replace(",", " ").split()
    path, deployed = read_campaign(measured, scenario)
    result = fit_to(path, deployed, names=names, folds=folds, jobs=jobs, client=client, format=reading.spec)
    if output is not None:
        write_calibration(result, output)
    publish_answer(result, json)
