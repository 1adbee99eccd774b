"""Jobs that replay a scenario for a page: its numbers, then the reason and one figure, its report, its requests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from planner.deployment.shaped_load import shape_load
from planner.errors import UsageError
from planner.loop.state.engine_settings import Recording
from planner.planning.study import Study, without_load
from planner.replays.attempts import STATUS
from planner.replays.reasons import REASON
from planner.report.content import describe
from planner.report.figures import FIGURES, OVER_TIME
from planner.report.figures.bins import Span, within
from planner.report.page import to_html
from planner.results.causes import difference, explain
from planner.results.saved import SavedResult
from planner.results.summary_answer import Summary
from planner.run import Outcome, replay
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.window_and_rate import limit

MOST_STEPS = 1_500_000  # that are recorded for the figures of a job, of all its replays together
MOST_SHARES = 50_000_000  # requests × replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayQuestion:
    """A replay that a page asks for."""

    trace: Trace
    study: Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The numbers of one replay.

    Parameters
    ----------
    caption : the trace and its deployment in words.
    summary : as the command line's.
    unserved : requests that were not completed, by status and reason, with their number.
    """

    caption: str
    summary: Summary
    unserved: tuple[tuple[str, str | None, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Reasons of replays, and one figure of them.

    Parameters
    ----------
    reasons : a sentence for each replay.
    differences : from the first replay, a sentence for each; None for the first itself.
    parts : a sentence for each replay whose figures over time and reason leave out requests; None if they have all.
    figure : all replays on the same axes.
    """

    reasons: tuple[str, ...]
    differences: tuple[str | None, ...]
    parts: tuple[str | None, ...]
    figure: Any


def numbers(asked: ReplayQuestion) -> Numbers:
    """Replay without a record of steps.

    Raises
    ------
    PlannerError : as `run.replay`.
    """
    check_load(asked.trace, asked.study.scenario)
    outcome = replay(asked.trace, asked.study.scenario, slo=asked.study.objectives)
    result = SavedResult(name=asked.study.name, summary=outcome.summary)
    return Numbers(caption=describe(result), summary=outcome.summary, unserved=_unserved(outcome))


def picture(asked: Sequence[ReplayQuestion], figure: str, span: Span | None = None,
            known: Sequence[Numbers] = ()) -> Picture:
    """Replay with a record of steps, explain, and draw one figure.

    Parameters
    ----------
    figure : a name of `FIGURES`.
    span : the time that the figure shows, by arrival if it shows requests; None for all of it.
    known : numbers of the replays, which save one replay each; none if they are not known.

    Raises
    ------
    PlannerError : as `run.replay`.
    """
    recorded = [_recorded(each, MOST_STEPS // len(asked), known[place] if known else None)
                for place, each in enumerate(asked)]
    results = [each.result for each in recorded]
    whys = [explain(result.requests, result.steps, result.summary.num_replicas, result.summary.policy["name"])
            for result in results]
    changes = [None, *(difference(why, whys[0]) for why in whys[1:])]
    drawn = (FIGURES[figure](results, span=span) if figure in OVER_TIME else
             FIGURES[figure]([within(result, span) for result in results]))
    return Picture(reasons=tuple(why["sentence"] for why in whys),
                   differences=tuple(None if change is None else change["sentence"] for change in changes),
                   parts=tuple(each.part for each in recorded), figure=drawn)


def report(asked: Sequence[ReplayQuestion]) -> str:
    """Return the report of replays as HTML; a part of their figures is told among their notes."""
    recorded = [_recorded(each, MOST_STEPS // len(asked)) for each in asked]
    return to_html([replace(each.result, summary=each.result.summary.noted((), [each.part])) for each in recorded])


def requests(asked: ReplayQuestion) -> pl.DataFrame:
    """Return the table of a replay's requests."""
    return _recorded(asked, MOST_STEPS).result.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """A replay with its steps, and the requests that its steps leave out, as in `Picture`."""

    result: SavedResult
    part: str | None


def _recorded(asked: ReplayQuestion, most_steps: int, known: Numbers | None = None) -> _Recorded:
    """Return a replay with its steps, or with the steps of its first requests if it has too many.

    The summary is a plain replay's, as the command line's: sums over recorded steps differ in their last digits.

    Parameters
    ----------
    known : the plain replay's numbers; None to replay for them.
    """
    trace, study = asked.trace, asked.study
    check_load(trace, study.scenario)
    whole = known or replay(trace, study.scenario, slo=study.objectives)
    num_steps = whole.summary.figures.engine.num_steps
    if num_steps <= most_steps:
        served = stepped = replay(trace, study.scenario, recording=Recording(steps=True))
        part = None
    else:
        shaped = shape_load(study.scenario, trace)
        count = max(1, shaped.num_requests * most_steps // num_steps)
        served = whole if isinstance(whole, Outcome) else replay(trace, study.scenario, slo=study.objectives)
        stepped = replay(limit(shaped, count), as_shaped(study.scenario), recording=Recording(steps=True))
        part = (f"The figures over time and the reason are of the first {count:,} of {shaped.num_requests:,} requests: "
                f"the replay has {num_steps:,} steps, and at most {most_steps:,} are recorded here. The numbers are of "
                f"all requests.")
    result = SavedResult(name=study.name, summary=whole.summary, requests=served.requests, steps=stepped.steps)
    return _Recorded(result=result, part=part)


def _unserved(outcome: Outcome) -> tuple[tuple[str, str | None, int], ...]:
    """Return how many requests were not completed, by status and reason, the most first."""
    states, counts = np.unique(outcome.result.records.requests.state, return_counts=True)
    rejected = outcome.summary.figures.rejected_by_reason or {}  # includes requests whose state does not tell why
    unserved = [(STATUS.get(int(state), "unfinished"), REASON.get(int(state)), int(count))
                for state, count in zip(states, counts, strict=True)
                if STATUS.get(int(state)) not in ("completed", "rejected")]
    unserved += [("rejected", reason, count) for reason, count in rejected.items()]
    return tuple(sorted(unserved, key=lambda each: -each[2]))


def check_load(trace: Trace, scenario: Scenario) -> None:
    """Raise UsageError if requests times replicas exceed the limit of a page."""
    count = trace.num_requests if scenario.limit is None else min(trace.num_requests, scenario.limit)
    if count * scenario.data_parallel_size > MOST_SHARES:
        raise UsageError(f"{count:,} requests on {scenario.data_parallel_size:,} replicas: a page takes "
                         f"at most {MOST_SHARES // scenario.data_parallel_size:,}; set limit or duration, or use the "
                         f"command line")


def as_shaped(scenario: Scenario) -> Scenario:
    """Return a scenario for a load that is shaped already; a client's limits stay."""
    return replace(without_load(scenario), max_concurrency=scenario.max_concurrency,
                   max_sessions=scenario.max_sessions)
