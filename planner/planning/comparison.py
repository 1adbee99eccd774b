"""Studies side by side: each replayed, explained, and set against the first."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.errors import PlannerError, UsageError
from planner.loop.state.engine_settings import Recording
from planner.planning.advice import advise
from planner.planning.study import Study, command_line
from planner.progress import counted
from planner.results.causes import difference, explain
from planner.results.saved import save_result
from planner.results.summary_answer import Summary
from planner.run import Outcome, replay
from planner.settings.objectives import Objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.client_load import OPTIONS


def compare_studies(studies: Sequence[Study], read: Callable[[Study], Trace], *, explain: bool,
                    save: Path | None) -> dict[str, Summary]:
    """Replay studies.

    Parameters
    ----------
    read : returns a study's trace.
    explain : whether each summary gets its `explanation`, with its `difference` to the first.
    save : folder that gets one with each result; None for none.

    Returns
    -------
    dict
        Summaries by name.

    Raises
    ------
    UsageError : two studies have the same name.
    PlannerError : a study cannot be replayed; its message begins with the study's name.
    OutputError : a result cannot be written.
    """
    summaries: dict[str, Summary] = {}
    traces: dict[Any, Trace] = {}
    first = None
    for study in counted("replaying what-ifs", studies):
        if study.name in summaries:
            raise UsageError(f"{study.name!r}: two what-ifs have this name; give each its own name")
        try:
            trace = _trace(study, read, traces)
            outcome = replay(trace, study.scenario, slo=study.objectives,
                             recording=Recording(steps=explain or save is not None))
        except PlannerError as error:
            error.args = (f"{study.name}: {error}",)
            raise
        summary = replace(outcome.summary.noted(study.notes), replay_command=command_line(study))
        if explain:
            explanation = explain_outcome(trace, study.scenario, outcome, slo=study.objectives)
            explanation["difference"] = None if first is None else difference(explanation, first)
            first = first or explanation
            summary = replace(summary, explanation=explanation)
        note = None if save is None else save_result(outcome.result, summary, save / study.name)
        summaries[study.name] = summary.noted((), [note])
    return summaries


def explain_outcome(trace: Trace, scenario: Scenario, outcome: Outcome, *,
                    slo: Objectives | None) -> dict[str, Any]:
    """Return a replay's explanation, with the first setting to change as `advice`.

    Parameters
    ----------
    trace, scenario : as given to `run.replay`.
    outcome : of that, with its steps recorded.
    slo : objectives as given to `run.replay`, or None.
    """
    result = outcome.result
    explanation = explain(result.requests_table(), result.steps_table(), outcome.summary.num_replicas,
                          outcome.summary.policy["name"])
    advice = advise(trace, scenario, result.deployment, outcome.summary, slo=slo)
    return explanation | {"advice": advice}


def _trace(study: Study, read: Callable[[Study], Trace], known: dict[Any, Trace]) -> Trace:
    """Read a study's trace, once for all that have the same; the random load is one by its options."""
    key = study.trace, study.format, *(getattr(study.scenario, name) for name in OPTIONS)
    if key not in known:
        known[key] = read(study)
    return known[key]
