"""The content of a report, before it is HTML or Markdown: its title and its tables, in reading order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.catalog.gpu_label import gpu_label
from planner.files.counts import count_text, share_text
from planner.report import summary_tables as tables
from planner.report.figures.style import clean, labels
from planner.report.verdict_line import verdict_line
from planner.report.verdicts import NO_TENANT, tenants_missed_in
from planner.results.causes import difference, explain
from planner.results.saturation import saturation_sentence
from planner.results.saved import SavedResult
from planner.results.summary import HEADLINES
from planner.results.summary_answer import Summary
from planner.settings.judged import ATTAINMENT
from planner.settings.statistic import is_share

MISSING = "–"

METRICS = {"ttft": "time to first token", "tpot": "time per output token", "e2el": "end to end",
           "deadline": "the trace's deadlines"}
TENANT_ROWS = (("num_requests", "requests", ""), ("slo_attainment", "requests within all objectives", "%"),
               ("p99_ttft_ms", "TTFT, p99", "ms"), ("p99_tpot_ms", "TPOT, p99", "ms"))
SEPARATE = ("deployment", "policy", "workload", "versions", "slo", "trace_sha256", "slo_attainment_by_metric",
            "objectives", "tenants", "explanation", "autoscale", "pools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a table.

    Parameters
    ----------
    label : name of the values; plain text, not escaped.
    values : one a result, as the summary has them.
    unit : "%" for fractions to be shown in per cent, "bytes", or text to follow the number.
    """

    label: str
    values: tuple[Any, ...]
    unit: str = ""

    @property
    def differs(self) -> bool:
        """Whether the results do not all have the same value."""
        return any(value != self.values[0] for value in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a title, one column a result.

    Parameters
    ----------
    title : heading.
    rows : at least one.
    compares : whether numbers are followed by their difference to the first.
    marks : whether rows in which the results differ are marked.
    """

    title: str
    rows: tuple[Line, ...]
    compares: bool = False
    marks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Rows of values under the names of columns, none of it escaped."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def is_words(self, place: int) -> bool:
        """Tell whether a column is read from the left: one of its values begins with a letter."""
        return any(isinstance(row[place], str) and row[place][:1].isalpha() for row in self.rows)


def report_title(results: Sequence[SavedResult]) -> str:
    """Return the title of a report, not escaped."""
    if len(results) > 1:
        return f"{len(results)} replays compared"
    return f"Replay of {_source(results[0])}"


def describe(result: SavedResult) -> str:
    """Return one line on the deployment and the replayed requests, not escaped."""
    deployment, workload, policy = result.summary.deployment, result.summary.workload, result.summary.policy
    model = deployment.get("model") or "an unnamed model"
    most = "" if result.summary.figures.scaling is None else "up to "
    gpus = f"{most}{deployment.get('num_gpus') or 1} × {gpu_label(str(deployment.get('gpu') or 'GPU'))}"
    number = count_text(workload["num_requests"], "request")
    return clean(f"{number} of {_source(result)} on {model}, {gpus}, policy {policy.get('name')}")


def headline(results: Sequence[SavedResult]) -> Table:
    """Return the numbers that one looks at first."""
    values = _values(results)
    rows = [Line(label=label, values=values(key), unit=unit) for key, label, unit in HEADLINES]
    return Table(title="Headline numbers", rows=_existing(rows), compares=len(results) > 1)


def reasons(results: Sequence[SavedResult]) -> list[str]:
    """Return in words how time was spent, the limits, the first change if it was asked for, and how results differ."""
    sentences: list[str] = []
    first: dict[str, Any] | None = None
    for name, result in zip(labels(results), results, strict=True):
        lead = f"{name}: " if len(results) > 1 else ""
        summary = result.summary
        why = explain(result.requests, result.steps, summary.num_replicas, summary.policy["name"])
        sentences.append(lead + verdict_line(summary).sentence)
        missed = tenants_missed_in(summary.figures)
        sentences += [f"{lead}objectives missed: {missed}"] if missed else []
        saturated = saturation_sentence(summary.figures.saturation)
        sentences += [lead + saturated] if saturated else []
        sentences.append(lead + why["sentence"])
        advice = (summary.explanation or {}).get("advice")
        sentences += [lead + advice["sentence"]] if advice and why["phases"] else []
        change = None if first is None else difference(why, first)
        sentences += [f"{name} against the first: {change['sentence']}"] if change else []
        first = first or why
    return sentences


def comparison(results: Sequence[SavedResult]) -> list[Table]:
    """Return the results side by side, with the difference to the first; nothing for one result."""
    if len(results) < 2:
        return []
    values = _values(results)
    groups = [Table(title=title, rows=_existing(_row(key, values(key)) for key in keys), compares=True)
              for title, keys in tables.ROWS]
    return [group for group in groups if group.rows]


def settings(results: Sequence[SavedResult]) -> list[Table]:
    """Return the objectives, the resolved deployment, its memory, the policy, the workload and their origins."""
    summaries = [result.summary for result in results]
    deployments = [summary.deployment for summary in summaries]
    memories = [deployment.get("memory") or {} for deployment in deployments]
    others = [{key: value for key, value in deployment.items() if key != "memory"} for deployment in deployments]
    origins = [{"trace_sha256": summary.trace_sha256, **summary.versions} for summary in summaries]
    tables: dict[str, Sequence[Mapping[str, Any]]] = {
        "Memory of one GPU": memories,
        "Deployment": others,
        "Pools": [{pool["name"]: {key: value for key, value in pool.items() if key != "name"}
                   for pool in summary.pools or ()} for summary in summaries],
        "Policy and limits": [summary.policy for summary in summaries],
        "Workload": [_workload(summary) for summary in summaries],
        "Versions and trace": origins,
    }
    listed = [Table(title=title, rows=_rows(parts), marks=len(results) > 1) for title, parts in tables.items()]
    return [table for table in [_objectives(summaries), _tenants(summaries), *listed] if table.rows]


def full_summary(results: Sequence[SavedResult]) -> Table:
    """Return every number of the summary."""
    parts = [{key: value for key, value in result.summary.values_by_key.items() if key not in SEPARATE}
             for result in results]
    return Table(title="Full summary", rows=_rows(parts))


def table_of(title: str, values: Mapping[str, Any]) -> Table:
    """Return values as a table of one column, nested keys with a dot."""
    return Table(title=title, rows=_rows([values]))


def value_text(value: Any, unit: str = "") -> str:
    """Return a value as it is shown, not escaped; `MISSING` if it does not exist.

    >>> value_text(12345.678, "ms"), value_text(0.27898, "%"), value_text(59740633241.6, "bytes"), value_text(None)
    ('12,345.7 ms', '27.9 %', '59.74 GB', '–')
    """
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return clean(value) or MISSING
    if unit == "%":
        return share_text(value)
    if unit == "bytes":
        return _bytes(value)
    return f"{_number(value)} {unit}".rstrip().replace(" /s", "/s")


def difference_text(value: Any, first: Any) -> str:
    """Return how far a number is from the first, in per cent or from ten on as a multiple; nothing without meaning.

    >>> difference_text(110, 100), difference_text(0, 100), difference_text(99.99, 100), difference_text(1200, 100)
    ('+10.0 %', '-100.0 %', '+0.0 %', '× 12.0')
    >>> difference_text(1, 0), difference_text(None, 2.0)
    ('', '')
    """
    if not first or any(isinstance(x, bool) or not isinstance(x, int | float) for x in (value, first)):
        return ""
    ratio = value / first
    if ratio >= 10:
        return f"× {ratio:,.1f}"
    return f"{round(100 * (ratio - 1), 1) + 0.0:+.1f} %"  # adding 0.0 makes -0.0 positive


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.1f}"
    return f"{value:,.3f}" if abs(value) >= 1 else f"{value:.4g}"


def _bytes(value: float) -> str:
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= size:
            return f"{value / size:,.2f} {unit}"
    return f"{value:,.0f} B"


def _source(result: SavedResult) -> str:
    """Return the trace's file name."""
    source = str(result.summary.workload.get("source") or labels([result])[0])
    return clean(source.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1])


def _workload(summary: Summary) -> dict[str, Any]:
    """Return the workload with the dropped rows as a number and by reason."""
    workload = dict(summary.workload)
    dropped = workload.pop("dropped", None) or {}
    return {**workload, "rows_dropped": sum(dropped.values()), **{f"dropped: {why}": n for why, n in dropped.items()}}


def _objectives(summaries: Sequence[Summary]) -> Table:
    rows = []
    for metric, name in METRICS.items():
        limits = [(summary.slo or {}).get(metric) for summary in summaries]
        shares = [(summary.figures.slo_attainment_by_metric or {}).get(metric) for summary in summaries]
        limits_ms = tuple(None if limit is None else 1e3 * limit for limit in limits)
        rows += [Line(label=f"{name}, at most", values=limits_ms, unit="ms"),
                 Line(label=f"{name}, requests within", values=tuple(shares), unit="%")]
    rows.append(Line(label="all objectives, requests within", unit="%",
                     values=tuple(summary.figures.slo_attainment for summary in summaries)))
    return Table(title="Objectives", rows=_existing([*rows, *_verdicts(summaries)]))


def _verdicts(summaries: Sequence[Summary]) -> list[Line]:
    """Return the share of requests that was asked for, and each statistic with its limit, in the results' order."""
    judged = [{each.name: each for each in summary.figures.objectives} for summary in summaries]
    names = dict.fromkeys(name for found in judged for name, each in found.items()
                          if each.unit == "ms" or name == ATTAINMENT)
    rows = []
    for name in names:
        found = [each.get(name) for each in judged]
        label = name if name == ATTAINMENT else name.replace("_", " ")
        unit = "%" if name == ATTAINMENT else "ms"
        rows += [Line(label=f"{label}, {'at least' if name == ATTAINMENT else 'at most'}", unit=unit,
                      values=tuple(None if each is None else each.limit for each in found)),
                 Line(label=label, unit=unit, values=tuple(None if each is None else each.value for each in found)),
                 Line(label=f"{label}, met", values=tuple(None if each is None else "yes" if each.is_met else "no"
                                                          for each in found))]
    return rows


def _tenants(summaries: Sequence[Summary]) -> Table:
    """Return the figures of the tenants with the most requests."""
    tenants = [summary.figures.tenants or {} for summary in summaries]
    names = list(dict.fromkeys(name for found in tenants for name in found))[:tables.SHOWN_TENANTS]
    rows = [Line(label=clean(f"{name or NO_TENANT}: {label}"), unit=unit,
                 values=tuple((found.get(name) or {}).get(key) for found in tenants))
            for name in names for key, label, unit in TENANT_ROWS]
    return Table(title="Tenants", rows=_existing(rows))


def _values(results: Sequence[SavedResult]) -> Callable[[str], tuple[Any, ...]]:
    """Return a function from a key of the summary to its values."""
    by_key = [result.summary.values_by_key for result in results]
    return lambda key: tuple(values.get(key) for values in by_key)


def _existing(rows: Any) -> tuple[Line, ...]:
    return tuple(row for row in rows if any(value is not None for value in row.values))


def _rows(parts: Sequence[Mapping[str, Any]]) -> tuple[Line, ...]:
    """Return a row per key that any of the parts has, nested keys with a dot."""
    flat = [_flat(part) for part in parts]
    keys = dict.fromkeys(key for part in flat for key in part)
    return tuple(_row(key, tuple(part.get(key) for part in flat)) for key in keys)


def _row(key: str, values: tuple[Any, ...]) -> Line:
    unit = "bytes" if key.endswith("_bytes") or "_bytes_per_" in key else "%" if is_share(key) else tables.UNITS.get(
        key, "")
    return Line(label=clean(key), values=values, unit=unit)


def _flat(part: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in part.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
