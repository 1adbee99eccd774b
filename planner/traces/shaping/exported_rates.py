"""Rates as dashboards and Prometheus export them, and the requests a minute of servers' logs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from planner.errors import TraceError
from planner.files.finite import number_in
from planner.files.nested import parse_json
from planner.files.table_file import read_table_file
from planner.traces.likely import NAMES
from planner.traces.server_texts import per_minute, read_server_text
from planner.traces.source import text_lines
from planner.traces.units import instants_s

STARTS = ("start_s", "window_start_s", "time_s", "timestamp")
RATES = ("rate_rps", "rate", "request_rate", "total_rate_req_s")
_PER = ((3600.0, re.compile(r"(/|per[ _]?)h(our|r)?\b|\brph\b|_rph$", re.IGNORECASE)),
        (60.0, re.compile(r"(/|per[ _]?)m(in(ute)?)?\b|\brpm\b|_rpm$|_per_min", re.IGNORECASE)))
_JSON = re.compile(rb"\s*(\{|\[\s*[\[{])")  # and not the date in brackets that begins a line of SGLang's log
_CELL = re.compile(r"^\s*([-+\d.,eE]+)\s*([A-Za-z/].*)?$")


class RateTable(NamedTuple):
    """A table of windows' starts and rates, and how it was read.

    Parameters
    ----------
    table : `start` [s] and `rate` [1/s], in the file's order; null without one.
    names : of both in the file.
    notes : sentences for the user.
    """

    table: pl.DataFrame
    names: tuple[str, str]
    notes: tuple[str, ...] = ()


def exported_rates(path: Path) -> RateTable:
    """Read rates from a CSV, a Parquet or Prometheus's JSON.

    `PATH#NAME` chooses a column, or series by a label as in `PATH#model_name=llama`; several series are added up.
    `PATH#NAME/min` and `/h` say the unit of a rate that is not a second's.

    Raises
    ------
    TraceError : the file cannot be read, or has no time or no rate.
    """
    path, choice, per_s = _chosen(path)
    try:
        with path.open("rb") as file:
            is_json = path.suffix not in (".parquet", ".gz", ".zst") and _JSON.match(file.read(64)) is not None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read as a rate series: {error}") from error
    read = _of_query if is_json else _of_log if path.suffix not in (".csv", ".parquet", ".gz", ".zst") else _of_table
    rates = read(path, choice)
    if per_s is not None:
        rates = rates._replace(table=rates.table.with_columns(pl.col("rate") / per_s),
                               notes=tuple(note for note in rates.notes if "counts as requests a second" not in note))
    return rates


def _of_log(path: Path, choice: str) -> RateTable:
    """Return the requests a minute of a server's log; another text is read as a table."""
    text = read_server_text([line for _, line in text_lines(path)])
    if text is None:
        return _of_table(path, choice)
    name, _, mean = choice.partition("=")
    if text.tokens_per_s and name == "prompt_tokens" and number_in(mean) >= 1:
        looks = pl.Series([look[0] for look in text.tokens_per_s])
        rates = pl.DataFrame({"start": instants_s(looks),
                              "rate": [look[1] / number_in(mean) for look in text.tokens_per_s]})
        return RateTable(rates, ("time", "prompt tokens/s"), (
            f"{path}: rates are the prompt tokens/s of interval lines, with {mean} tokens a prompt",))
    if not text.requests:
        raise TraceError(f"{path}: has no lines with times of requests; must be an access log, vLLM's log with its "
                         f"received requests, or SGLang's log; {path}#prompt_tokens=700 makes rates of vLLM's interval "
                         f"lines with prompts of 700 tokens on average")
    rates = pl.DataFrame(list(per_minute(text)), schema={"start": pl.Float64, "rate": pl.Float64}, orient="row")
    return RateTable(rates, ("time", "requests"), (*text.notes, f"{path}: requests are counted in each minute"))


def _chosen(path: Path) -> tuple[Path, str, float | None]:
    if path.exists() or "#" not in str(path):
        return path, "", None
    file, _, choice = str(path).partition("#")
    for per_s, ending in ((60.0, "/min"), (3600.0, "/h"), (1.0, "/s")):
        if choice.endswith(ending):
            return Path(file), choice.removesuffix(ending), per_s
    return Path(file), choice, None


def _of_table(path: Path, choice: str) -> RateTable:
    table = read_table_file(path, what="rate series")
    table = table.rename({name: name.strip() for name in table.columns})
    start = next((name for name in (*STARTS, *_likely(table.columns)) if name in table.columns), None)
    rate = next((name for name in RATES if name in table.columns), None)
    label, _, value = choice.partition("=")
    if value and label in table.columns:
        table = table.filter(pl.col(label) == value)
    elif choice and choice not in table.columns:
        raise TraceError(f"{path}: has no column {choice}; found: {', '.join(table.columns)}")
    columns = [choice] if choice and not value else [rate] if rate else [
        name for name in table.columns if name not in (start, label) and _is_numeric(table[name])]
    if start is None or not columns or not table.height:
        raise TraceError(f"{path}: has columns {', '.join(table.columns)}; a rate series needs one of "
                         f"{', '.join(STARTS)} or another time, and one of {', '.join(RATES)} or a column of numbers "
                         f"(PATH#COLUMN names it)")
    cells = [_values(path, table[name]) for name in columns]
    values, units = pl.sum_horizontal([value for value, _ in cells]), {unit for _, unit in cells if unit}
    starts = _starts(path, table[start])
    is_empty = pl.all_horizontal([value.is_null() for value, _ in cells])
    rates = pl.select(start=starts, rate=pl.when(~is_empty).then(values))
    notes = [] if len(columns) == 1 else [f"rates are the sum of {', '.join(columns)}; {path}#COLUMN chooses one"]
    if rates["start"].n_unique() < rates.height and any(table[name].dtype == pl.String and not _is_numeric(table[name])
                                                        for name in table.columns if name != start):
        rates = rates.group_by("start", maintain_order=True).agg(pl.col("rate").sum())
        notes.append("rates of rows with the same time are added up; PATH#LABEL=VALUE chooses one series")
    return _in_seconds(path, rates, (start, " + ".join(columns)), units, notes, is_known=rate is not None)


def _in_seconds(path: Path, rates: pl.DataFrame, names: tuple[str, str], units: set[str], notes: list[str], *,
                is_known: bool) -> RateTable:
    """Return rates a second by the unit in the cells or the columns' names; a note tells it."""
    text = " ".join((*units, names[1]))
    per_s = next((per_s for per_s, pattern in _PER if pattern.search(text)), 1.0)
    if not is_known:
        word = {1.0: "second", 60.0: "minute", 3600.0: "hour"}[per_s]
        notes.append(f"{path}: {names[1]} counts as requests a {word}; for another give {path}#{names[1]}/min or /h")
    return RateTable(rates.with_columns(pl.col("rate") / per_s), names, tuple(notes))


def _likely(columns: Sequence[str]) -> Iterator[str]:
    plain = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in columns}
    yield from (plain[name] for name in NAMES["arrival_s"] if name in plain)


def _starts(path: Path, text: pl.Series) -> pl.Series:
    seconds = instants_s(text)
    wrong = (seconds.is_null()).arg_true()
    if len(wrong):
        row = int(wrong[0])
        raise TraceError(f"{path}: row {row + 2}: {text.name} = {text[row]!r}: must be a number or a date and time, in "
                         f"one form in the file, with the year first if day and month can be mistaken")
    return seconds


def _is_numeric(cells: pl.Series) -> bool:
    first = next((str(cell) for cell in cells if cell not in (None, "")), "")
    return (match := _CELL.match(first)) is not None and number_in(match[1].replace(",", "")) >= 0


def _values(path: Path, cells: pl.Series) -> tuple[pl.Series, str]:
    """Return a column's numbers without their unit, and the unit, which must be one."""
    if cells.dtype != pl.String:
        return cells.cast(pl.Float64), ""
    parts = [None if cell in (None, "") else _CELL.match(cell) for cell in cells]
    units = {match[2] or "" for match in parts if match is not None}
    wrong = next((row for row, match in enumerate(parts) if cells[row] not in (None, "") and (
        match is None or not number_in(match[1]) >= 0)), None)
    if wrong is not None:
        raise TraceError(f"{path}: row {wrong + 2}: {cells.name} = {cells[wrong]!r}: must be a number, 0 or more, "
                         f"with a decimal point")
    if len(units) > 1:
        raise TraceError(f"{path}: {cells.name} has the units {', '.join(sorted(units))}; must have one (export "
                         f"without automatic units)")
    values = [None if match is None else number_in(match[1]) for match in parts]
    return pl.Series(cells.name, values, dtype=pl.Float64), next(iter(units), "")


def _of_query(path: Path, choice: str) -> RateTable:
    try:
        answer = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: cannot be read as a rate series: {error}") from error
    data = answer.get("data", answer) if isinstance(answer, dict) else {"result": answer}
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list) or not all(isinstance(one, dict) and isinstance(one.get("values"), list)
                                               for one in result):
        raise TraceError(f"{path}: is JSON without series; a rate series must be the answer of Prometheus's "
                         f"query_range (a matrix), or a CSV")
    label, _, value = choice.partition("=")
    series = [one for one in result if not choice or str((one.get("metric") or {}).get(label)) == value]
    if not series:
        metrics = "; ".join(_named(one) for one in result[:5])
        raise TraceError(f"{path}: has no series{f' with {choice}' if choice else ''}; found: {metrics or 'none'}")
    notes = [] if len(series) == 1 else [
        f"rates are the sum of {len(series)} series ({'; '.join(map(_named, series[:3]))} …); {path}#LABEL=VALUE "
        f"chooses"]
    by_time: dict[float, float] = {}
    for one in series:
        for at_s, rate in _points(path, one):
            by_time[at_s] = by_time.get(at_s, 0.0) + rate
    if any(str((one.get("metric") or {}).get("__name__", "")).endswith(("_total", "_count")) for one in series):
        notes.append("series are counters: rates are their increases over time")
    rates = pl.DataFrame({"start": sorted(by_time), "rate": [by_time[at_s] for at_s in sorted(by_time)]},
                         schema={"start": pl.Float64, "rate": pl.Float64})
    return _in_seconds(path, rates, ("time", choice or "values"), set(), notes, is_known=False)


def _points(path: Path, series: Mapping[str, Any]) -> Iterator[tuple[float, float]]:
    """Yield a series' times and rates; a counter's rate is its increase until the next time."""
    points = []
    for point in series["values"]:
        at_s, value = (number_in(str(part)) for part in point) if isinstance(point, list) and len(point) == 2 else (
            float("nan"), float("nan"))
        if not (at_s >= 0 and value >= 0):
            raise TraceError(f"{path}: {_named(series)}: {str(point)[:40]} is not a point; must be a time and a "
                             f"number, 0 or more")
        points.append((at_s, value))
    name = str((series.get("metric") or {}).get("__name__", ""))
    if not name.endswith(("_total", "_count")):
        yield from points
        return
    for (at_s, value), (next_s, next_value) in pairwise(points):
        if next_value < value:
            raise TraceError(f"{path}: {_named(series)}: the counter falls from {value:g} to {next_value:g}, because "
                             f"the server restarted; query rate({name}[1m])")
        yield at_s, (next_value - value) / (next_s - at_s)


def _named(series: Mapping[str, Any]) -> str:
    metric = series.get("metric") or {}
    return ", ".join(f"{label}={value}" for label, value in metric.items()) or "without labels"
