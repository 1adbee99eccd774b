"""The job of a calibration: an engine's constants fitted to an uploaded file, with the file that a scenario takes."""

from dataclasses import dataclass, replace

from planner.files.table_file import columns_of
from planner.measured.calibration.calibrate import calibrate, write_calibration
from planner.measured.calibration.calibrate_answer import CalibrateAnswer
from planner.measured.runs import is_table
from planner.settings.scenario import Scenario
from planner.ui.accuracy_tasks import deployment_of
from planner.ui.named_deployment import check_deployment
from planner.ui.uploads import as_file

FOLDS = 5  # as `planner calibrate`


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A calibration, and its file."""

    answer: CalibrateAnswer
    toml: str


def fitted(name: str, content: bytes, scenario: Scenario) -> Fitted:
    """Fit an engine's bundled constants to measurements.

    Raises
    ------
    UsageError : the file's deployment is not the scenario's, or it has too few runs.
    PlannerError : as `calibrate`.
    """
    scenario = replace(scenario, calibration=None)
    with as_file(name, content) as path:
        is_own = is_table(columns_of(path))
        if not is_own:
            check_deployment(path, scenario)
        found = calibrate(path, deployment_of(scenario, is_table=is_own), names=None, folds=FOLDS, jobs=-1)
        output = path.with_name("fitted.toml")
        write_calibration(found, output)
        return Fitted(answer=found, toml=output.read_text(encoding="utf-8"))
