"""The answers of `validate` and `calibrate` as text: errors by group, limits on them, and fitted constants."""

import itertools
from collections.abc import Sequence

from planner.files.counts import change_text, count_text, share_text
from planner.files.keys import asdict
from planner.measured.calibration.calibrate_answer import CalibrateAnswer
from planner.measured.validate_answer import Errors, MeasuredRow, StalledRow, ValidateAnswer
from planner.report.cells import number_text
from planner.report.text import Grid, Text
from planner.results.notes import fitted_to

SHOWN_GROUPS = ("gpu", "engine", "model", "client")  # of errors; the JSON has all
SHOWN_ROWS = 10  # without a prediction, or with a stall


def accuracy_table(result: ValidateAnswer) -> Text:
    """Return errors by group, then the rows without a prediction, and the limits."""
    metrics = [name for name, errors in result.overall.by_metric.items() if errors is not None]
    rows = _error_rows("all", result.overall, metrics)
    shown = [row for row in result.groups if row.group in SHOWN_GROUPS]
    for row in shown:
        if row.value == "" or sum(other.group == row.group for other in shown) > 1:
            name = "" if row.group == "client" else f"{row.group} "  # a kind of step stands in for it
            rows += _error_rows(f"{name}{row.value}".strip(), row.errors, metrics)
    heads = ["metric", "measured", "predicted"]
    heads += [] if result.interval is None else [f"{share_text(result.interval.level)} interval"]
    measured = [part for each in result.rows or () for part in (each.id, Grid(heads=heads, indent=2, left=(0, 3), rows=[
        (name, number_text(value), number_text(each.predicted.get(name, "–")), *[_interval(each, name)] * (
            len(heads) - 3)) for name, value in each.measured.items()]))]
    return Text([Grid(heads=("", "metric", "n", "mape", "median", "bias", "predicted"), rows=rows, left=(0, 1)),
                 *measured, *_stall_lines(result.stalls), *_unpredicted_lines(result), *_limit_lines(result)])


def _interval(row: MeasuredRow, metric: str) -> str:
    """Return the interval of a row's metric, with a word if the measured value is outside it."""
    if metric not in row.intervals:
        return ""
    low, high = map(number_text, row.intervals[metric])
    return f"{low} to {high}{': measured outside' if metric in row.outside else ''}"


def _stall_lines(stalls: Sequence[StalledRow]) -> list[str | Grid]:
    """Return a table of the runs in which one wave of requests waited."""
    if not stalls:
        return []
    lengths = sorted(row.stall_s for row in stalls)
    span = f"{lengths[0]:.1f} s" if len(stalls) == 1 else f"{lengths[0]:.1f} to {lengths[-1]:.1f} s"
    more = len(stalls) - SHOWN_ROWS
    rows = [(row.id, f"one stall of {row.stall_s:.1f} s", f"{row.num_waiting:,} of {row.num_requests:,}",
             number_text(row.mean_ttft_ms), "–" if row.steady_ttft_ms is None else number_text(row.steady_ttft_ms))
            for row in stalls[:SHOWN_ROWS]]
    return [f"{count_text(len(stalls), 'run')} with one stall of {span}: one wave of requests waited, as when kernels "
            "are built or loaded at first use; predictions have it with --cold alone",
            Grid(heads=("", "", "requests that waited", "mean TTFT [ms]", "without it [ms]"), rows=rows, left=(0, 1),
                 indent=2),
            *([f"  … and {more} more; --json has all"] if more > 0 else [])]


def _unpredicted_lines(result: ValidateAnswer) -> list[str]:
    without = result.unpredicted
    if not without:
        return []
    more = len(without) - SHOWN_ROWS
    return [f"{len(without)} row{'s' * (len(without) != 1)} could not be predicted:",
            *(f"  {row.id}: {row.status}" for row in without[:SHOWN_ROWS]),
            *([f"  … and {more} more; --predictions or --json has all"] if more > 0 else [])]


def _limit_lines(result: ValidateAnswer) -> list[str]:
    """Return the share of values within the intervals, and whether each limit is met."""
    lines: list[str] = []
    if result.interval is not None:
        lines += [f"{share_text(result.interval.level)} interval holds {share_text(share)} of {metric}"
                  for metric, share in result.interval.coverage.items()]
        lines += [f"no held-out errors for {engine}" for engine in result.interval.without]
    outside = [f"{row.id} {metric}" for row in result.rows or () for metric in row.outside]
    if outside:
        lines.append(f"refuted: {len(outside)} measured value{'s' * (len(outside) != 1)} outside the interval: "
                     f"{', '.join(outside)}")
    for metric, check in result.max_error.items():
        found = "none" if check.mape is None else share_text(check.mape)
        lines.append(f"{metric}: mape {found}, at most {share_text(check.limit)}: {'met' if check.met else 'missed'}")
    if result.unpredicted and result.max_error:
        lines.append("--max-error holds for all rows, so rows without a prediction miss it: correct or remove them")
    return lines


def _error_rows(name: str, row: Errors, metrics: Sequence[str]) -> list[tuple[str, ...]]:
    known = {metric: errors for metric in metrics if (errors := row.by_metric.get(metric)) is not None}
    names = itertools.chain([name], itertools.repeat(""))
    return [(next(names), metric, f"{errors.n:,}", share_text(errors.mape), share_text(errors.median_ape),
             change_text(errors.bias), share_text(row.coverage)) for metric, errors in known.items()] or [
        (name, "none", "0", "", "", "", share_text(row.coverage))]


def calibration_table(result: CalibrateAnswer) -> Text:
    """Return fitted constants with their intervals, why others were left, and the errors before and after."""
    constants = [(name, f"{each.start:.4g}", f"{each.value:.4g}", f"{each.low:.4g} to {each.high:.4g}")
                 for name, each in result.fitted.items()]
    stages = (("before", result.before), ("after, in sample", result.after),
              (f"after, {result.folds} folds left out", result.held_out))
    errors = [(f"{title} {metric}", f"{found.n:,}", share_text(found.mape), share_text(found.median_ape),
               change_text(found.bias))
              for title, by_metric in stages for metric, found in by_metric.items() if found is not None]
    kept: list[str | Grid] = ["kept at their start values:", Grid(
        heads=("", ""), rows=list(result.left.items()), left=(0, 1), indent=2)]
    return Text([
        f"{result.engine}: {count_text(len(result.fitted), 'constant')} fitted to "
        f"{count_text(result.num_values, 'value')} of {fitted_to(asdict(result.source))}, "
        f"{result.source.num_left_out:,} left out",
        *(f"  {count:,} {reason}" for reason, count in result.left_out.items()),
        *([Grid(heads=("constant", "start", "fitted", "80 % interval"), rows=constants, left=(0, -1))] if constants
          else []),
        *(kept if result.left else []),
        Grid(heads=("error", "n", "mape", "median", "bias"), rows=errors),
        *([] if any(result.held_out.values()) else [
            "  no part could be left out: too few measurements for the constants"])])
