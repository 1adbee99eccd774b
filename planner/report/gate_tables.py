"""The answer of `check` as text: a verdict on each limit, and how many are met."""

from planner.files.counts import change_text, share_text
from planner.planning.check_answer import CheckAnswer, TargetVerdict
from planner.report.cells import cell_text, number_text
from planner.report.text import Grid, Text
from planner.settings.statistic import is_share

HEADS = ("scenario", "metric", "target", "predicted", "margin", "verdict")


def gate_table(result: CheckAnswer) -> Text:
    """Return the gate's verdicts, a row each, then the number of each kind."""
    return Text([Grid(heads=HEADS, rows=[gate_row(row) for row in result.checks], left=range(len(HEADS))),
                 gate_headline(result)])


def gate_headline(result: CheckAnswer) -> str:
    """Return in one sentence how many targets are met, and how many are not."""
    verdicts = [row.verdict for row in result.checks]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    return f"{len(verdicts)} target{'s' if len(verdicts) > 1 else ''}: {counts}"


def _room(share: float) -> str:
    """Return a share of a limit that is left, or by which it is missed.

    >>> _room(0.25), _room(-0.07), _room(-241.7)
    ('+25.0 %', '-7.0 %', '243 × the limit')
    """
    return change_text(share) if share > -9 else f"{change_text(-share)} the limit"


def gate_row(row: TargetVerdict) -> tuple[str, str, str, str, str, str]:
    """Return a verdict's scenario, metric, target, prediction, margin and verdict with its reason, as text."""
    limit, margin, predicted = row.limit, row.margin, cell_text(row.predicted, row.metric)
    if row.kind == "max_regression":
        before = "the baseline" if row.baseline is None else number_text(row.baseline, row.metric)
        target = f"≤ {share_text(limit)} worse than {before}"
        room = "–" if margin is None else _room(margin)
    else:
        target = f"{'≥' if row.kind == 'min' else '≤'} {share_text(limit) if is_share(row.metric) else f'{limit:,g}'}"
        room = "–" if margin is None else number_text(float(margin), row.metric)
        if not is_share(row.metric):
            room += f" ({_room(margin / abs(limit))})" if limit and margin is not None else ""
        elif row.predicted is not None:
            predicted = share_text(float(row.predicted), limit)
    verdict = row.verdict + (f": {row.reason}" if row.reason else "")
    return row.scenario, row.metric, target, predicted, room, verdict
