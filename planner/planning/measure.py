"""A campaign of benchmarks on a user's node: the loads at which the prediction of a deployment is least sure.

A load teaches if its times depend on constants that are not known well, and on other constants than the loads before
it. The next run is the one after which the variance of all candidates' predictions is least, by the fit's own prior
and weights: the I-optimal design of linear regression (A. Atkinson et al., Optimum Experimental Designs, with SAS,
2007, chapter 10), one run after another.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.deployment.shaped_load import shape_load
from planner.deployment.starting import startable
from planner.errors import CapacityError, UsageError
from planner.files.writing import write_text
from planner.launch.write_command import launch_command
from planner.measured.calibration.calibrate import starting_constants
from planner.measured.calibration.constant_fit import ERROR_SCALE, LOOSE
from planner.measured.calibration.identify import sensitivities
from planner.measured.calibration.observations import Runs, prepare
from planner.measured.run_table import METRICS, Measurement
from planner.measured.statistics import MAKESPAN
from planner.measured.validate import replay_measured
from planner.planning.measure_answer import CampaignRun, MeasureAnswer
from planner.planning.probe import SAVING, Load, benchmark_command, sent_load
from planner.planning.study import Study, read_study, study_toml, without_load
from planner.progress import stage
from planner.settings.scenario import Scenario, given_options, parse_scenario
from planner.steptime.engine_constants import bounds
from planner.traces.shaping.client_load import NAME, client_load

Floats = NDArray[np.float64]

INPUTS, OUTPUTS, IN_FLIGHT = (128, 1024, 8192), (16, 256), (1, 4, 16, 64, 256)  # of the candidate loads
ROUNDS, FEWEST_PROMPTS = 4, 8  # prompts for each request in flight, and at least
CLIENT_START_S = 20.0  # of a benchmark client: its imports, its tokenizer, a first request
RESULTS, DEPLOYMENT, SCRIPT = "results.json", "deployment.toml", "measure.sh"


def measure(scenario: Scenario, *, minutes: float, num_runs: int, folder: Path,
            jobs: int = -1) -> tuple[MeasureAnswer, Scenario]:
    """Choose the runs of a campaign; return them, and the deployment with which the engine starts.

    Parameters
    ----------
    scenario : the deployment, without a load.
    minutes : limit of the runs' predicted time [min].
    num_runs : runs at most.
    folder : the script and its results go there.
    jobs : processes; -1 for as many as there are cores.

    Raises
    ------
    UsageError : the model or the GPU is not given, a number is out of range, or no candidate fits in the time.
    PlannerError : as a replay.
    """
    if scenario.model is None or scenario.gpu is None:
        raise UsageError("--model and --gpu must be given: a benchmark runs against a server with a model")
    if not minutes > 0:
        raise UsageError(f"--minutes {minutes:g}; must be above 0")
    if num_runs < 1:
        raise UsageError(f"--runs {num_runs}; must be at least 1")
    plain = without_load(scenario)
    usual = sent_load(plain, _candidate(1, 1024, 256))
    started = startable(plain, shape_load(usual, client_load(usual)))
    with stage("predicting the candidate loads"):
        loads, candidates, seconds = _candidates(started.scenario)
        constants = starting_constants(scenario, scenario.engine)
        with candidates.evaluator(jobs) as evaluate:
            slopes = sensitivities(candidates, constants, list(bounds()), evaluate)
    chosen = choose_runs(slopes.reshape(len(loads), -1, len(bounds())), seconds, limit_s=60 * minutes,
                         num_runs=num_runs)
    if not chosen:
        raise UsageError(f"--minutes {minutes:g}; the shortest run takes {min(seconds) / 60:.1f} min")
    launch, lacking = launch_command(started.scenario)
    runs = tuple(CampaignRun(
        max_concurrency=loads[k].in_flight, num_prompts=loads[k].num_prompts, random_input_len=loads[k].input_tokens,
        random_output_len=loads[k].output_tokens, duration_s=seconds[k], uncertainty_left=left,
        command=benchmark_command(loads[k], started.scenario, RESULTS)) for k, left in chosen.items())
    notes = [started.lowered, f"the launch command lacks {', '.join(lacking)}" if lacking else None]
    answer = MeasureAnswer(
        duration_s=sum(run.duration_s for run in runs), limit_s=60 * minutes, runs=runs, num_candidates=len(loads),
        launch=launch, calibrate=f"planner calibrate {folder} --output {folder / 'my.toml'}",
        notes=tuple(filter(None, notes)))
    return answer, started.scenario


def choose_runs(slopes: Floats, seconds: Sequence[float], *, limit_s: float, num_runs: int) -> Mapping[int, float]:
    """Return the candidates to run, in order, each with the share of the standard deviation that is left after it.

    Parameters
    ----------
    slopes : of `sensitivities`, shape [num candidates, metrics, constants].
    seconds : time of each candidate [s].
    limit_s : of all together [s].
    num_runs : runs at most.
    """
    sigmas = np.array([LOOSE.sigma(name) for name in bounds()])
    information = np.diag(LOOSE.weight / sigmas**2)  # known before a run
    gained = np.einsum("rmi,rmj->rij", slopes, slopes) / ERROR_SCALE**2
    before = _variance(slopes, information)
    chosen: dict[int, float] = {}
    while len(chosen) < num_runs:
        left_s = limit_s - sum(seconds[k] for k in chosen)
        options = {k: _variance(slopes, information + gained[k]) for k in range(len(slopes))
                   if k not in chosen and seconds[k] <= left_s}
        if not options:
            break
        best = min(options, key=lambda k: options[k])
        information = information + gained[best]
        chosen[best] = float(np.sqrt(options[best] / before))
    return chosen


def write_campaign(answer: MeasureAnswer, scenario: Scenario, folder: Path) -> None:
    """Write the script, and the deployment that `read_campaign` reads with its results."""
    folder.mkdir(parents=True, exist_ok=True)
    study = Study(name="", trace=NAME, format=None, scenario=without_load(scenario), objectives=None)
    write_text(folder / DEPLOYMENT, study_toml(study))
    warm_up = answer.runs[0].command.split(f" {SAVING[0]}")[0]
    lines = ["#!/usr/bin/env bash",
             "# Benchmarks that teach the most about this deployment. The server must run on port 8000:",
             *(f"# {line}" for line in answer.launch.splitlines()),
             "set -euo pipefail", 'cd "$(dirname "$0")"',
             "curl --fail --silent --show-error --retry 60 --retry-delay 10 --retry-all-errors --output /dev/null "
             "http://127.0.0.1:8000/health",
             f"run() {{ [ \"$SECONDS\" -lt {answer.limit_s:.0f} ] || {{ echo 'the time is over'; exit; }}; \"$@\"; }}",
             "# Kernels are built at their first use: this result is not kept.", f"run {warm_up}"]
    lines += [line for k, run in enumerate(answer.runs, 1)
              for line in (f"# {k} of {len(answer.runs)}, about {run.duration_s:.0f} s", f"run {run.command}")]
    write_text(folder / SCRIPT, "\n".join([*lines, "# Then, where planner is installed:",
                                           f"# {answer.calibrate}"]) + "\n")


def read_campaign(path: Path, scenario: Scenario) -> tuple[Path, Scenario]:
    """Return the file of measurements and their deployment: of a campaign's folder, or as they are given.

    Parameters
    ----------
    path : a file, or the folder of a campaign.
    scenario : its options go before the folder's.

    Raises
    ------
    PlannerError : the folder has no deployment or no results.
    """
    if not path.is_dir():
        return path, scenario
    deployment = read_study(path / DEPLOYMENT).scenario
    if not (path / RESULTS).exists():
        raise UsageError(f"{path / RESULTS}: does not exist; run {path / SCRIPT} beside the server first")
    return path / RESULTS, parse_scenario({**given_options(deployment), **given_options(scenario)})


def _candidate(in_flight: int, input_tokens: int, output_tokens: int) -> Load:
    return Load(in_flight=in_flight, num_prompts=max(ROUNDS * in_flight, FEWEST_PROMPTS), input_tokens=input_tokens,
                output_tokens=output_tokens)


def _candidates(scenario: Scenario) -> tuple[list[Load], Runs, list[float]]:
    """Return the loads that the deployment can serve, their runs, and the predicted time of each [s]."""
    grid = [_candidate(*numbers) for numbers in (
        (in_flight, inputs, outputs) for inputs in INPUTS for outputs in OUTPUTS for in_flight in IN_FLIGHT)]
    runs = [Measurement(id=str(k), groups={}, measured=dict.fromkeys((*METRICS, MAKESPAN), 1.0), scenario=sent,
                        load=client_load(sent)) for k, sent in enumerate(sent_load(scenario, load) for load in grid)]
    served = {pair[0].id: (pair, predicted) for pair in prepare(runs)
              if (predicted := replay_measured(*pair)).status == "ok"}
    if not served:
        raise CapacityError("the deployment serves none of the candidate loads; `planner replay` says why")
    return ([grid[int(name)] for name in served], Runs(prepared=[pair for pair, _ in served.values()]),
            [predicted.predicted[MAKESPAN] + CLIENT_START_S for _, predicted in served.values()])


def _variance(slopes: Floats, information: Floats) -> float:
    """Return the mean variance of the candidates' log times, weighted as a fit weighs them."""
    covariance = np.linalg.inv(information)
    total: float = np.einsum("rmi,ij,rmj->", slopes, covariance, slopes)
    return total / len(slopes)
