"""The content of every report: of replays, a comparison, a capacity, a fleet, a sweep, or a check of targets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from planner.files.counts import count_text
from planner.files.keys import asdict
from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.check_answer import CheckAnswer
from planner.planning.missed import Missed
from planner.planning.size_answer import Fleet, SizeAnswer, SizedTraffic, UnableFleet
from planner.planning.sweep_answer import SweepAnswer
from planner.report import content
from planner.report.capacity_sentence import limit_words
from planner.report.content import Line, Listing, Table
from planner.report.figures import all_figures
from planner.report.figures.answer_figures import capacity_figure, fleet_costs, fleet_load, target_margins, tornado
from planner.report.figures.latency_figures import latency_levels, mean_phases
from planner.report.figures.style import clean, labels
from planner.report.figures.sweep_figures import front_scatter, parallel_axes
from planner.report.gate_tables import gate_row
from planner.report.offer_tables import YEAR_COLUMNS
from planner.report.report_source import SavedAnswer, Source, damaged
from planner.report.shown import text_of
from planner.report.summary_tables import SCALE_COLUMNS, scale_cells
from planner.results.saved import SavedResult

MOST_ROWS = 200  # of a list; the answer has the others
FLEET_COLUMNS = ("gpu", "tensor_parallel_size", "decode_gpu", "decode_tensor_parallel_size", "quantization",
                 "num_replicas", "num_gpus", "cost_usd_per_hour",
                 "cost_usd_per_million_output_tokens", "power_kw", "attainment", "headroom", "step_error",
                 "covers_error", "limiting_metric", "schedule_reason", "reason")
FLEET_TIMES = FLEET_COLUMNS.index("headroom")  # place of the statistics

THRESHOLD_COLUMNS = ("threshold_tokens", "replicas", "num_gpus", "cost_usd_per_hour", "reason")
OFFER_COLUMNS = ("option", "tensor_parallel_size", "quantization", "cost_usd_per_hour", "cost_usd_per_month",
                 "cost_usd_per_year", "cost_usd_per_million_output_tokens", "power_kw", "power_usd_per_month",
                 "total_usd_per_month", "co2_kg_per_month", "headroom", "attainment")


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The content of a report, in the order of reading; no text is escaped.

    Parameters
    ----------
    title : heading.
    leads : the replay or the question, a sentence for each name.
    names : of the columns of its tables, one for each scenario; one empty name for an answer.
    headline : the numbers that one looks at first.
    words : their meanings, a sentence each.
    compared : scenarios side by side.
    figures : by name.
    listings : the evidence, a row each.
    tables : settings by heading.
    summary : every number of the summaries; None without summaries.
    """

    title: str
    leads: Sequence[str]
    names: Sequence[str]
    headline: Table
    words: Sequence[str]
    figures: Mapping[str, Any]
    compared: Sequence[Table] = ()
    listings: Sequence[Listing] = ()
    tables: Mapping[str, Sequence[Table]] = field(default_factory=dict)
    summary: Table | None = None


def findings(source: Source) -> Findings:
    """Return the content of the report of saved replays, or of an answer.

    Raises
    ------
    PlannerError : the answer lacks something, or has it in another form than its command writes.
    """
    if not isinstance(source, SavedAnswer):
        return _replays(source, content.report_title(source), content.reasons(source), all_figures(source))
    try:
        return _findings(source)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, pl.exceptions.PolarsError) as error:
        raise damaged(source.name, source.kind, repr(error)) from error


def _replays(results: Sequence[SavedResult], title: str, words: Sequence[str],
             figures: Mapping[str, Any]) -> Findings:
    return Findings(
        title=title, leads=[content.describe(result) for result in results], names=labels(results),
        headline=content.headline(results), words=words, compared=content.comparison(results), figures=figures,
        listings=_scale_listings(results), tables={"What was replayed": content.settings(results)},
        summary=content.full_summary(results))


def _findings(saved: SavedAnswer) -> Findings:
    answer = saved.answer
    if isinstance(answer, CapacityAnswer):
        return _capacity(answer)
    if isinstance(answer, SizeAnswer):
        return _fleet(answer)
    if isinstance(answer, SweepAnswer):
        return _sweep(answer, saved.table)
    return _check(answer) if isinstance(answer, CheckAnswer) else _comparison(answer.results)


def _comparison(results: Sequence[SavedResult]) -> Findings:
    """Of summaries alone: their requests and steps are in the folders of `--save`."""
    names, explanations = labels(results), [result.summary.explanation or {} for result in results]
    explained = [(name, each) for name, each in zip(names, explanations, strict=True) if each.get("phases")]
    figures = {"latency": latency_levels([result.summary.figures for result in results], names)}
    if explained:
        figures["phases"] = mean_phases([each for _, each in explained], [name for name, _ in explained])
    title = f"{len(results)} scenarios compared" if len(results) > 1 else content.report_title(results)
    return _replays(results, title, _reasons(explained, len(results)), figures)


def _reasons(explained: Sequence[tuple[str, Mapping[str, Any]]], num_results: int) -> list[str]:
    sentences: list[str] = []
    for name, each in explained:
        lead = f"{name}: " if num_results > 1 else ""
        sentences.append(lead + each["sentence"])
        sentences += [lead + each["advice"]["sentence"]] if each.get("advice") else []
        sentences += [f"{name} against the first: {each['difference']['sentence']}"] if each.get("difference") else []
    return sentences


def _capacity(found: CapacityAnswer) -> Findings:
    sure, unit, deployment, load = found.confidence, found.unknown.unit, found.deployment, found.workload
    rows = [("capacity", found.capacity, unit),
            ("capacity of a GPU", found.capacity_per_gpu, unit),
            ("times the trace's rate", found.rate_scale or None, ""),
            (f"missed {'with' if found.unknown.is_whole else 'at'}", found.bracket.upper, unit),
            ("requests at capacity", found.request_throughput, "/s"),
            ("median think time", found.think_time_s, "s"),
            ("limited by", found.limiting_metric, ""),
            ("objectives", found.slo.text, ""),
            ("required attainment", found.attainment, "%"),
            ("attainment at capacity", found.attainment_at_capacity, "%"),
            ("scaling of the rate", found.scaling or None, ""), ("router", found.router, ""),
            ("90 % confident", None if sure is None else sure.p10, unit),
            ("50 % confident", None if sure is None else sure.p50, unit),
            ("10 % confident", None if sure is None else sure.p90, unit)]
    values = asdict(found)
    return Findings(
        title=f"Capacity of {deployment.get('num_gpus')} × {deployment.get('gpu') or 'GPU'}"
              f"{'' if found.is_rate else f', in {unit}'}",
        leads=[f"{count_text(load.num_requests, 'request')} of {load.source} on "
               f"{deployment.get('model') or 'an unnamed model'}, "
               f"{f'at rates by {load.scaling}' if found.is_rate else 'in a closed loop'}"],
        names=("",), headline=_numbers("Capacity", rows),
        figures={"attainment": capacity_figure(found)} if found.probes else {},
        words=[*text_of(found).words, *found.notes],
        listings=[*_missed(found.missed),
                  *_rests_on("capacity_rps" if found.is_rate else "users", values["routers"],
                             values.get("scalings", ())),
                  _listing(f"{'Rates' if found.is_rate else 'Numbers'} that were tried",
                           ("users", "rate_rps", "attainment", "limiting_metric", "is_met"), values["probes"])],
        tables={"What was replayed": _settings(found.trace_sha256, slo=asdict(found.slo), workload=values["workload"],
                                               deployment=deployment)})


def _fleet(found: SizeAnswer) -> Findings:
    figures = {}
    if found.cheapest is not None:
        figures = {"fleets": fleet_costs(found)}
        if found.cheapest.schedule is not None:
            figures["load"] = fleet_load(found)
    if found.sensitivity is not None:
        figures["sensitivity"] = tornado(found.sensitivity)
    parts = () if found.cheapest is None or found.cheapest.schedule is None else found.cheapest.schedule.parts
    times = [name for fleet in found.alternatives[:1] for name in _times(fleet)]
    columns = [name for name in (*FLEET_COLUMNS[:FLEET_TIMES], *times, *FLEET_COLUMNS[FLEET_TIMES:])
               if not name.startswith("decode_") or any(
                   fleet.kind.decode_gpu is not None for fleet in found.alternatives)]
    return Findings(
        title="The cheapest fleet" if found.feasible else "No fleet meets the objectives", names=("",),
        headline=_numbers("Fleet", _fleet_numbers(found)), words=[*text_of(found).words, *found.notes],
        leads=[f"{count_text(found.workload.num_requests, 'request')} of {found.workload.source} "
               f"{_amount(found.workload)}"],
        figures=figures,
        listings=[*_missed(found.missed), *_rests_on("num_gpus", found.routers, found.scalings),
                  _listing("Fleets", columns, [asdict(fleet) | _times(fleet) for fleet in found.alternatives]),
                  _listing("Options", OFFER_COLUMNS, found.options),
                  *([_listing("Thresholds between two pools", THRESHOLD_COLUMNS, found.split.thresholds)]
                    if found.split else []),
                  *([_listing("Growth", list(asdict(found.growth.months[0])), found.growth.months)]
                    if found.growth else []),
                  *([_listing("Share of a year", YEAR_COLUMNS, found.cheapest.survival.year)]
                    if found.cheapest and found.cheapest.survival else []),
                  *([_listing("Spot", list(asdict(found.spot.best)), found.spot.mixes)] if found.spot else []),
                  *([_listing("Schedule", list(asdict(parts[0])), parts)] if parts else [])],
        tables={"What was replayed": _settings(found.trace_sha256, slo=asdict(found.slo),
                                               workload=asdict(found.workload))})


def _amount(load: SizedTraffic) -> str:
    users = count_text(load.users or 0, "user")
    return f"at {load.rate_rps:,.4g} requests/s" if load.rate_rps is not None else f"of {users}"


def _fleet_numbers(found: SizeAnswer) -> list[tuple[str, Any, str]]:
    """Return the numbers of the cheapest fleet; without one, the objectives and the load."""
    best = found.cheapest
    of_fleet: list[tuple[str, Any, str]] = [] if best is None else [
        ("replicas", best.num_replicas, ""), ("GPUs", best.num_gpus, ""),
        ("of each replica", f"{best.kind.tensor_parallel_size} × {best.kind.gpu}", ""),
        ("an hour", best.cost_usd_per_hour, "USD"), ("a month", best.cost_usd_per_month, "USD"),
        ("a year", best.cost_usd_per_year, "USD"),
        (best.unit_words, best.unit_cost, "USD")]
    reached: list[tuple[str, Any, str]] = [] if best is None else [
        ("attainment", best.attainment, "%"), *((limit_words(name.removesuffix("_ms")), value, "ms")
                                                for name, value in _times(best).items())]
    split = found.split
    of_split: list[tuple[str, Any, str]] = [] if split is None or split.fleet is None else [
        ("threshold between two pools", split.fleet.threshold_tokens, "tokens"),
        ("an hour of two pools", split.fleet.cost_usd_per_hour, "USD"),
        ("saving of two pools", split.saving, "%")]
    return [*of_split, *of_fleet, ("objectives", found.slo.text, ""),
            ("required attainment", found.slo.attainment, "%"), *reached,
            ("rate", found.request_rate, "requests/s"), ("users", found.workload.users, ""),
            ("scaling of the rate", found.scaling, ""),
            ("router", found.router, ""), ("headroom of the rate", None if best is None else best.headroom, "%"),
            ("spare replicas", found.num_spare, "")]


def _times(fleet: Fleet | UnableFleet) -> dict[str, Any]:
    """Return by key the statistics of the objectives, and p99 of TTFT and TPOT [ms]; empty if no fleet is able."""
    if isinstance(fleet, UnableFleet):
        return {}
    asked = {f"{each.objective}_ms": each.value_ms for each in fleet.reached if each.required is None}
    return asked | {"p99_ttft_ms": fleet.p99_ttft_ms, "p99_tpot_ms": fleet.p99_tpot_ms}


def _missed(missed: Sequence[Missed]) -> list[Listing]:
    """Return the missed objectives as a listing; nothing if none is missed."""
    return [_listing("Objectives that are missed", ("objective", "limit_ms", "best_ms", "missed_by", "required"),
                     missed)] if missed else []


def _rests_on(key: str, routers: Sequence[Any], scalings: Sequence[Any]) -> list[Listing]:
    """Return the answer, which is in `key`, by other routers and ways of scaling."""
    return [_listing(f"By {what}", (what, key, "more_than_replicas"), rows)
            for what, rows in (("router", routers), ("scaling", scalings)) if len(rows) > 1]


def _sweep(found: SweepAnswer, table: pl.DataFrame | None) -> Findings:
    axes, metrics = list(found.axes), list(found.pareto)
    shown = _front_alone(found.front) if table is None else table
    note = ["the figures show only the front: the sweep's .parquet is not beside the JSON"] if table is None else []
    rows = [("configurations", found.num_configurations, ""), ("on the front", len(found.front), ""),
            *((f"not replayed: {status}", count, "") for status, count in found.status.items() if status != "done")]
    return Findings(
        title="A grid of what-ifs", leads=[f"{', '.join(axes)} varied; the front is over {', '.join(metrics)}"],
        names=("",), headline=_numbers("Sweep", rows), words=[*text_of(found).words, *note],
        figures={"front": front_scatter(shown, axes, metrics), "parallel": parallel_axes(shown, axes, metrics)},
        listings=[_listing("The front", [*axes, *metrics, "bottleneck"], found.front)],
        tables={"Axes": [Table(title="Values", rows=tuple(Line(label=axis, values=(", ".join(map(str, values)),))
                                                          for axis, values in found.axes.items()))]})


def _front_alone(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the front's rows as a table, without characters that cannot be encoded."""
    cleaned = [{key: clean(value) if isinstance(value, str) else value for key, value in row.items()} for row in rows]
    return pl.DataFrame(cleaned, infer_schema_length=None)


def _check(found: CheckAnswer) -> Findings:
    verdicts = [row.verdict for row in found.checks]
    rows = [(verdict, verdicts.count(verdict), "") for verdict in dict.fromkeys(verdicts)]
    return Findings(
        title=f"Capacity targets: {'met' if found.met else 'missed'}", leads=[found.targets], names=("",),
        headline=_numbers("Targets", rows), words=[*text_of(found).words, *found.notes],
        figures={"margins": target_margins(found.checks)},
        listings=[Listing(title="Verdicts", columns=("scenario", "metric", "target", "predicted", "margin", "verdict"),
                          rows=[gate_row(row) for row in found.checks])])


def _numbers(title: str, rows: Sequence[tuple[str, Any, str]]) -> Table:
    return Table(title=title, rows=tuple(Line(label=label, values=(value,), unit=unit) for label, value, unit in rows
                                         if value is not None))


def _listing(title: str, columns: Sequence[str], items: Sequence[Any]) -> Listing:
    """Return rows by the columns that any of them has; the title tells if there are more than `MOST_ROWS`."""
    rows = [item if isinstance(item, Mapping) else asdict(item) for item in items]
    known = [column for column in columns if any(row.get(column) is not None for row in rows)]
    short = f", the first {MOST_ROWS:,} of {len(rows):,}" if len(rows) > MOST_ROWS else ""
    return Listing(title=title + short, columns=known,
                   rows=[[row.get(column) for column in known] for row in rows[:MOST_ROWS]])


def _settings(trace_sha256: str, **parts: Mapping[str, Any]) -> list[Table]:
    return [*(content.table_of(name.capitalize(), part) for name, part in parts.items()),
            content.table_of("Trace", {"trace_sha256": trace_sha256})]


def _scale_listings(results: Sequence[SavedResult]) -> list[Listing]:
    """Return the scale events of each autoscaled result."""
    listings = []
    for name, result in zip(labels(results), results, strict=True):
        scaling = result.summary.figures.scaling
        if scaling is None or not scaling.spans:
            continue
        events = scaling.autoscale["events"]
        shown = f", the first {MOST_ROWS:,} of {len(events):,}" if len(events) > MOST_ROWS else ""
        of = f" of {name}" if len(results) > 1 else ""
        listings.append(Listing(title=f"Scale events{of}{shown}", columns=SCALE_COLUMNS,
                                rows=[scale_cells(event) for event in events[:MOST_ROWS]]))
    return listings
