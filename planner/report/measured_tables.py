"""The answers of `validate` and `calibrate` as text: errors by group, limits on them, and fitted constants."""

from collections.abc import Sequence

from planner.files.counts import count_text, share_text
from planner.files.keys import asdict
from planner.measured.calibration.calibrate_answer import CalibrateAnswer
from planner.measured.validate_answer import Errors, ErrorSummary, MeasuredRow, ValidateAnswer
from planner.report.cells import number_text
from planner.results.notes import fitted_to

SHOWN_GROUPS = ("gpu", "engine", "model", "client")  # of errors; the JSON has all
LABEL = 44  # characters of a name
SHOWN_ROWS = 10  # without a prediction


def accuracy_table(result: ValidateAnswer) -> str:
    """Return errors by group as aligned text, then the rows without a prediction, and the limits."""
    metrics = [name for name, errors in result.overall.by_metric.items() if errors is not None]
    lines = [f"{'':<44}{'metric':<16}{'n':>7}{'mape':>9}{'median':>9}{'bias':>9}{'predicted':>11}",
             *_error_lines("all", result.overall, metrics)]
    shown = [row for row in result.groups if row.group in SHOWN_GROUPS]
    for row in shown:
        if row.value == "" or sum(other.group == row.group for other in shown) > 1:
            name = "" if row.group == "client" else f"{row.group} "  # a kind of step stands in for it
            lines += _error_lines(f"{name}{row.value}".strip(), row.errors, metrics)
    for each in result.rows or ():
        head = f"    {result.interval.level:.0%} interval" if result.interval is not None else ""
        is_long = len(each.id) > LABEL - 2
        lines += [each.id] * is_long
        lines += [f"{'' if is_long else each.id:<{LABEL}}{'metric':<16}{'measured':>14}{'predicted':>14}{head}"]
        lines += [f"{'':<44}{name:<16}{number_text(value):>14}{number_text(each.predicted.get(name, '–')):>14}"
                  f"{_interval(each, name)}" for name, value in each.measured.items()]
    return "\n".join([*lines, *_unpredicted_lines(result), *_limit_lines(result)])


def _interval(row: MeasuredRow, metric: str) -> str:
    """Return the interval of a row's metric, with a word if the measured value is outside it."""
    if metric not in row.intervals:
        return ""
    low, high = map(number_text, row.intervals[metric])
    return f"    {low} to {high}{': measured outside' if metric in row.outside else ''}"


def _unpredicted_lines(result: ValidateAnswer) -> list[str]:
    without = result.unpredicted
    if not without:
        return []
    more = len(without) - SHOWN_ROWS
    return [f"{len(without)} row{'s' * (len(without) != 1)} could not be predicted:",
            *(f"  {row.id}: {row.status}" for row in without[:SHOWN_ROWS]),
            *([f"  … and {more} more; --predictions or --json has all"] if more > 0 else [])]


def _limit_lines(result: ValidateAnswer) -> list[str]:
    """Return what intervals hold, and whether each limit is met."""
    lines: list[str] = []
    if result.interval is not None:
        lines += [f"{result.interval.level:.0%} interval holds {share_text(share)} of {metric}"
                  for metric, share in result.interval.coverage.items()]
        lines += [f"no held-out errors for {engine}" for engine in result.interval.without]
    outside = [f"{row.id} {metric}" for row in result.rows or () for metric in row.outside]
    if outside:
        lines.append(f"refuted: {len(outside)} measured value{'s' * (len(outside) != 1)} outside the interval: "
                     f"{', '.join(outside)}")
    for metric, check in result.max_error.items():
        found = "none" if check.mape is None else f"{check.mape:.1%}"
        lines.append(f"{metric}: mape {found}, at most {check.limit:.1%}: {'met' if check.met else 'missed'}")
    if result.unpredicted and result.max_error:
        lines.append("--max-error holds for all rows, so rows without a prediction miss it: correct or remove them")
    return lines


def _error_lines(name: str, row: Errors, metrics: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for metric in metrics:
        found = row.by_metric.get(metric)
        if found is None:
            continue
        label = name if not lines else ""
        lines.append(f"{label:<44}{metric:<16}{found.n:>7,} {found.mape:>8.1%} {found.median_ape:>8.1%} "
                     f"{found.bias:>+8.1%}{share_text(row.coverage):>11}")
    return lines or [f"{name:<44}{'none':<16}{0:>7}{'':>27}{share_text(row.coverage):>11}"]


def calibration_table(result: CalibrateAnswer) -> str:
    """Return fitted constants with their intervals, why others were left, and the errors before and after."""
    fitted = f"{count_text(len(result.fitted), 'constant')} fitted to {count_text(result.num_values, 'value')}"
    source = result.source
    lines = [f"{result.engine}: {fitted} of {fitted_to(asdict(source))}, {source.num_left_out:,} left out",
             *(f"  {count:,} {reason}" for reason, count in result.left_out.items()),
             f"{'constant':<30}{'start':>12}{'fitted':>12}    80 % interval"]
    lines += [f"{name:<30}{each.start:>12.4g}{each.value:>12.4g}    {each.low:.4g} to {each.high:.4g}"
              for name, each in result.fitted.items()]
    if result.left:
        lines.append("kept at their start values:")
        lines += [f"  {name:<31}{reason}" for name, reason in result.left.items()]
    lines.append(f"{'error':<30}{'n':>7}{'mape':>9}{'median':>9}{'bias':>9}")
    for title, by_metric in (("before", result.before), ("after, in sample", result.after),
                             (f"after, {result.folds} folds left out", result.held_out)):
        lines += [_stage_line(f"{title} {metric}", found) for metric, found in by_metric.items() if found is not None]
    if not any(result.held_out.values()):
        lines.append("  no part could be left out: too few measurements for the constants")
    return "\n".join(lines)


def _stage_line(name: str, found: ErrorSummary) -> str:
    return f"  {name:<28}{found.n:>7,}{found.mape:>9.1%}{found.median_ape:>9.1%}{found.bias:>+9.1%}"
