"""Jobs that pages run in another process: plain functions, with the figures that they return."""

import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import polars as pl

from planner.deployment.deploy import shape_load
from planner.errors import UsageError
from planner.files.table_file import columns_of
from planner.loop.state.engine_settings import Recording
from planner.measured.accuracy import predict_file
from planner.measured.runs import is_table
from planner.measured.validate import errors, metrics_of, predictions_table
from planner.measured.validate_answer import ErrorSummary
from planner.planning.grid import Sweep
from planner.planning.study import Study, without_load
from planner.planning.sweeping import Grid
from planner.replays.attempts import STATUS
from planner.replays.reasons import REASON
from planner.report.content import Table, comparison, describe
from planner.report.figures import all_figures
from planner.report.figures.accuracy_figures import predicted_over_measured
from planner.report.figures.schedule_figures import schedule_timeline
from planner.report.figures.trace_figures import workload_figures
from planner.report.page import to_html
from planner.results.causes import difference, explain
from planner.results.saved import SavedResult
from planner.run import Outcome, replay
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.reading import BadRows
from planner.traces.shaping.description import describe as describe_traffic
from planner.traces.shaping.window_and_rate import limit
from planner.ui.uploads import as_file

MOST_STEPS = 2_000_000  # that are recorded for the figures of a job, of all its replays together
MOST_SHARES = 50_000_000  # requests × replicas
MOST_CSV_ROWS = 200_000
PART = 4  # configurations of a sweep for each process, between two words of how many are done


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A replay that a page asks for."""

    trace: Trace
    study: Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a page shows of one replay.

    Parameters
    ----------
    name : of the study.
    caption : what was replayed on what.
    summary : as the command line's.
    unserved : requests that were not completed, by status and reason, with their number.
    reason : why it came out so, a sentence.
    difference : from the first replay, a sentence; None of the first itself.
    part : what figures over time and the reason leave out, a sentence; None where they have all.
    """

    name: str
    caption: str
    summary: dict[str, Any]
    unserved: tuple[tuple[str, str | None, int], ...]
    reason: str
    difference: str | None
    part: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """What a page shows of one replay or several: each, their figures, and the tables that compare them."""

    shown: tuple[Shown, ...]
    figures: dict[str, Any]
    tables: tuple[Table, ...]


def read_upload(name: str, content: bytes, most_rows: int, on_bad_rows: BadRows) -> Trace:
    """Read uploaded bytes as a trace that is called by the upload's name.

    Raises
    ------
    UsageError : it has too many requests.
    PlannerError : it cannot be read.
    """
    with as_file(name, content) as path:
        read = read_trace(str(path), limit=most_rows + 1, on_bad_rows=on_bad_rows)
    notes = tuple(note.replace(str(path), name) for note in read.account.notes)
    trace = replace(read, source=name, account=replace(read.account, source=name, notes=notes))
    if trace.num_requests > most_rows:
        raise UsageError(f"{name}: has more than {most_rows:,} requests; use the command line for it")
    return trace


def replays(asked: Sequence[Asked], theme: Any) -> Replays:
    """Replay what is asked for, and draw it on the same axes.

    Raises
    ------
    PlannerError : as `run.replay`.
    """
    recorded = [_recorded(each, MOST_STEPS // len(asked)) for each in asked]
    results = [each.result for each in recorded]
    whys = [explain(result.requests, result.steps, _replicas(result)) for result in results]
    shown = [_shown(each, why, whys[0] if place else None)
             for place, (each, why) in enumerate(zip(recorded, whys, strict=True))]
    return Replays(shown=tuple(shown), figures=all_figures(results, theme=theme), tables=tuple(comparison(results)))


def report(asked: Sequence[Asked]) -> str:
    """Return the report of replays as HTML; a part of their figures is told among their notes."""
    recorded = [_recorded(each, MOST_STEPS // len(asked)) for each in asked]
    notes = [[*each.result.summary["notes"], *([] if each.part is None else [each.part])] for each in recorded]
    return to_html([replace(each.result, summary=each.result.summary | {"notes": told})
                    for each, told in zip(recorded, notes, strict=True)])


def requests(asked: Asked) -> pl.DataFrame:
    """Return the table of a replay's requests."""
    return _recorded(asked, MOST_STEPS).result.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """A replay with its steps, what its steps leave out, and its requests that were not completed; as in `Shown`."""

    result: SavedResult
    part: str | None
    unserved: tuple[tuple[str, str | None, int], ...]


def _recorded(asked: Asked, most_steps: int) -> _Recorded:
    """Return a replay with its steps, or with those of its first requests where it has too many.

    The summary is a plain replay's, as the command line's: sums over recorded steps differ in their last digits.
    """
    trace, study = asked.trace, asked.study
    check_load(trace, study.scenario)
    whole = replay(trace, study.scenario, slo=study.objectives)
    num_steps = int(whole.summary["num_steps"])
    if num_steps <= most_steps:
        served = stepped = replay(trace, study.scenario, recording=Recording(steps=True))
        part = None
    else:
        shaped = shape_load(study.scenario, trace)
        count = max(1, shaped.num_requests * most_steps // num_steps)
        served = whole
        stepped = replay(limit(shaped, count), _as_shaped(study.scenario), recording=Recording(steps=True))
        part = (f"The figures over time and the reason are of the first {count:,} of {shaped.num_requests:,} requests: "
                f"the replay has {num_steps:,} steps, and at most {most_steps:,} are recorded here. The numbers are of "
                f"all requests.")
    result = SavedResult(name=study.name, summary=whole.summary, requests=served.requests, steps=stepped.steps)
    return _Recorded(result=result, part=part, unserved=_unserved(whole))


def _shown(recorded: _Recorded, why: dict[str, Any], first: dict[str, Any] | None) -> Shown:
    result, change = recorded.result, None if first is None else difference(why, first)
    return Shown(name=result.name, caption=describe(result), summary=result.summary, unserved=recorded.unserved,
                 reason=why["sentence"], difference=None if change is None else change["sentence"], part=recorded.part)


def _replicas(result: SavedResult) -> float:
    return float(result.summary["deployment"]["num_replicas"])


def _unserved(outcome: Outcome) -> tuple[tuple[str, str | None, int], ...]:
    """Return how many requests were not completed, by status and reason, the most first."""
    states, counts = np.unique(outcome.result.records.requests.state, return_counts=True)
    rejected = outcome.summary["rejected_by_reason"]  # among them those whose state does not tell why
    unserved = [(STATUS.get(int(state), "unfinished"), REASON.get(int(state)), int(count))
                for state, count in zip(states, counts, strict=True)
                if STATUS.get(int(state)) not in ("completed", "rejected")]
    unserved += [("rejected", reason, count) for reason, count in rejected.items()]
    return tuple(sorted(unserved, key=lambda each: -each[2]))


def check_load(trace: Trace, scenario: Scenario) -> None:
    """Raise UsageError where a trace and the replicas together are too many for a page."""
    count = trace.num_requests if scenario.limit is None else min(trace.num_requests, scenario.limit)
    if count * scenario.data_parallel_size > MOST_SHARES:
        raise UsageError(f"{count:,} requests on {scenario.data_parallel_size:,} replicas: a page takes "
                         f"at most {MOST_SHARES // scenario.data_parallel_size:,}; set limit or duration, or use the "
                         f"command line")


def _as_shaped(scenario: Scenario) -> Scenario:
    """Return a scenario for a load that is shaped already; a client's limits stay."""
    return replace(without_load(scenario), max_concurrency=scenario.max_concurrency,
                   max_sessions=scenario.max_sessions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Some requests of a replay, with the rows of steps and of the schedule that are about them, and their figure."""

    requests: pl.DataFrame
    steps: pl.DataFrame
    schedule: pl.DataFrame
    figure: Any


def window(asked: Asked, first: int, count: int, theme: Any) -> Window:
    """Replay with the schedule, up to the end of some requests: later arrivals cannot change them.

    Parameters
    ----------
    first, count : the requests, in order of arrival.

    Raises
    ------
    UsageError : too many steps come before them.
    PlannerError : as `run.replay`.
    """
    trace, study = asked.trace, asked.study
    check_load(trace, study.scenario)
    whole = replay(trace, study.scenario, slo=None)
    chosen = whole.requests.slice(first, count)
    if chosen.is_empty():
        raise UsageError(f"from request {first:,}: there are {whole.requests.height:,}")
    until_s: Any = chosen["finished_at_s"].max()
    shaped = shape_load(study.scenario, trace)
    num_before = shaped.num_requests if until_s is None else int((shaped.requests["arrival_s"] <= until_s).sum())
    num_steps = int(whole.summary["num_steps"]) * num_before // shaped.num_requests
    if num_steps > MOST_STEPS:
        raise UsageError(f"from request {first:,}: about {num_steps:,} steps pass before these requests end, and at "
                         f"most {MOST_STEPS:,} are recorded here; set start_at (Load) to begin closer to them")
    result = replay(limit(shaped, num_before), _as_shaped(study.scenario), slo=None,
                    recording=Recording(steps=True, schedule=True)).result
    schedule = result.schedule_table().join(chosen.select("request_id"), on="request_id", how="semi")
    of_step = [name for name in ("step", "replica") if name in schedule.columns]
    steps = result.steps_table().join(schedule.select(of_step), on=of_step, how="semi")
    return Window(requests=chosen, steps=steps, schedule=schedule,
                  figure=schedule_timeline(chosen, steps, schedule, theme=theme))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a page shows of a trace as it is replayed."""

    num_requests: int
    description: dict[str, Any]
    figures: dict[str, Any]
    head: pl.DataFrame


def traffic(trace: Trace, scenario: Scenario, theme: Any) -> Traffic:
    """Describe a trace as it is replayed, and draw it."""
    shaped = shape_load(scenario, trace)
    description = describe_traffic(shaped)
    return Traffic(num_requests=shaped.num_requests, description=description,
                   figures=workload_figures(shaped, description, theme=theme), head=shaped.requests.head(200))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a page shows of measurements beside their predictions."""

    notes: tuple[str, ...]
    overall: Mapping[str, ErrorSummary | None]
    table: pl.DataFrame
    figures: dict[str, Any]


def measured(name: str, content: bytes, scenario: Scenario, theme: Any) -> Measured:
    """Predict what was measured.

    Raises
    ------
    PlannerError : the file cannot be read, or a prediction cannot be made.
    """
    with as_file(name, content) as path:
        taken = Scenario() if is_table(columns_of(path)) else without_load(scenario)
        predicted = predict_file(path, taken, client=None, jobs=-1)
        notes = tuple(note.replace(str(path), name) for note in predicted.notes)
    table, metrics = predictions_table(predicted.predictions), metrics_of(predicted.predictions)
    return Measured(notes=notes, overall=errors(predicted.predictions).by_metric, table=table,
                    figures={metric: predicted_over_measured(table, metric, theme=theme) for metric in metrics})


def sweep(plan: Sweep, trace: Trace, part: int) -> Generator[tuple[int, int, pl.DataFrame | None], None, pl.DataFrame]:
    """Replay a grid part after part, and tell after each how far it is.

    Parameters
    ----------
    part : configurations for each process, between two tellings.

    Yields
    ------
    tuple
        Configurations that are done, of how many, and the table so far; None while none could be replayed.

    Returns
    -------
    polars.DataFrame
        As `sweeping.sweep`.
    """
    with tempfile.TemporaryDirectory() as folder:
        grid = Grid(plan, Path(folder) / "sweep.parquet", jobs=-1, trace=trace)
        total, size = len(grid.points), part * joblib.effective_n_jobs(-1)
        for first in range(0, total, size):
            grid.replay(range(first, min(first + size, total)))
            yield min(first + size, total), total, _so_far(grid)
        return grid.write()


def _so_far(grid: Grid) -> pl.DataFrame | None:
    try:
        return grid.write()
    except UsageError:  # none of these can be replayed; later ones may
        return None
