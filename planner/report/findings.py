"""The report of an answer: of a comparison, a capacity, a fleet, a sweep, or a check of targets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from planner.errors import PlannerError
from planner.report import content
from planner.report import plan_tables as plans
from planner.report import summary_tables as tables
from planner.report.content import Listing, Row, Table
from planner.report.figures.answer_figures import attainment_over_rate, fleet_costs, target_margins
from planner.report.figures.fleet_figures import fleet_load
from planner.report.figures.style import clean, labels
from planner.report.figures.summary_figures import latency_levels, mean_phases
from planner.report.figures.sweep_figures import front_scatter, parallel_axes
from planner.report.report_source import SavedAnswer
from planner.report.sweep_tables import sweep_headline
from planner.results.saved import SavedResult

MOST_ROWS = 200  # of a list; the answer has the others
FLEET_COLUMNS = ("gpu", "tensor_parallel_size", "decode_gpu", "decode_tensor_parallel_size", "quantization",
                 "num_replicas", "num_gpus", "cost_usd_per_hour",
                 "cost_usd_per_million_output_tokens", "power_kw", "attainment", "p99_ttft_ms", "p99_tpot_ms",
                 "headroom", "limiting_metric", "schedule_reason", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a report says of an answer, in the order of reading; no text is escaped.

    Parameters
    ----------
    title, lead : what it is of.
    names : of the columns of its tables, one for each scenario.
    headline : the numbers that one looks at first.
    words : what they mean, a sentence each.
    figures : by name.
    listings : what is behind it, a row each.
    tables : scenarios side by side, and their settings.
    """

    title: str
    lead: str
    names: Sequence[str]
    headline: Table
    words: Sequence[str]
    figures: Mapping[str, Any]
    listings: Sequence[Listing] = ()
    tables: Mapping[str, Sequence[Table]] = field(default_factory=dict)


def findings(answer: SavedAnswer) -> Findings:
    """Return what a report says of an answer.

    Raises
    ------
    PlannerError : the answer lacks something, or has it in another form than its command writes.
    """
    make = {"comparison": _comparison, "capacity": _capacity, "fleet": _fleet, "sweep": _sweep, "check": _check}
    try:
        return make[answer.kind](answer)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, pl.exceptions.PolarsError) as error:
        raise PlannerError(f"{answer.name}: looks like the answer of a {answer.kind}, but was changed or is damaged "
                           f"({error!r}); write it again") from error


def _comparison(answer: SavedAnswer) -> Findings:
    """Of summaries alone: their requests and steps are in the folders of `--save`."""
    summaries = answer.values["summaries"]
    empty = pl.DataFrame()
    results = [SavedResult(name=str(each.get("name", answer.name)), summary=each, requests=empty, steps=empty)
               for each in summaries]
    names = labels(results)
    explained = [(name, each["explanation"]) for name, each in zip(names, summaries, strict=True)
                 if (each.get("explanation") or {}).get("phases")]
    figures = {"latency": latency_levels(summaries, names)}
    if explained:
        figures["phases"] = mean_phases([each for _, each in explained], [name for name, _ in explained])
    title = f"{len(results)} scenarios compared" if len(results) > 1 else content.report_title(results)
    return Findings(
        title=title, lead="; ".join(content.describe(result) for result in results[:1]), names=names,
        headline=content.headline(results), words=_reasons(explained, len(results)), figures=figures,
        tables={"Compared with the first": content.comparison(results),
                "What was replayed": content.settings(results)})


def _reasons(explained: Sequence[tuple[str, Mapping[str, Any]]], num_results: int) -> list[str]:
    found: list[str] = []
    for name, each in explained:
        lead = f"{name}: " if num_results > 1 else ""
        found.append(lead + each["sentence"])
        found += [lead + each["advice"]["sentence"]] if each.get("advice") else []
        found += [f"{name} against the first: {each['difference']['sentence']}"] if each.get("difference") else []
    return found


def _capacity(answer: SavedAnswer) -> Findings:
    found = answer.values
    confidence = found["confidence"] or {}
    rows = [("capacity", found["capacity_rps"], "requests/s"),
            ("capacity of a GPU", found["capacity_rps_per_gpu"], "requests/s"),
            ("times the trace's rate", found["rate_scale"], ""),
            ("missed at", found["bracket"]["upper_rps"], "requests/s"),
            ("limited by", found["limiting_metric"], ""),
            ("objectives", found["slo"]["text"], ""),
            ("required attainment", found["attainment"], "%"),
            ("attainment at capacity", found["attainment_at_capacity"], "%"),
            ("scaling of the rate", found["scaling"], ""), ("router", found["router"], ""),
            *((f"{share} % confident", confidence.get(key), "requests/s")
              for key, share in (("p10", 90), ("p50", 50), ("p90", 10)))]
    deployment = found["deployment"]
    return Findings(
        title=f"Capacity of {deployment.get('num_gpus')} × {deployment.get('gpu') or 'GPU'}",
        lead=f"{found['workload']['num_requests']:,} requests of {found['workload']['source']} on "
             f"{deployment.get('model') or 'an unnamed model'}, at rates by {found['workload']['scaling']}",
        names=("",), headline=_numbers("Capacity", rows),
        figures={"attainment": attainment_over_rate(found)} if found["probes"] else {},
        words=[*plans.capacity_words(found), *found["notes"]],
        listings=[*_rests_on(found, "capacity_rps"),
                  _listing("Rates that were tried", ("rate_rps", "attainment", "limiting_metric", "is_met"),
                           found["probes"])],
        tables={"What was replayed": _settings(found, "slo", "workload", "deployment")})


def _fleet(answer: SavedAnswer) -> Findings:
    found = answer.values
    kind = f"{found['tensor_parallel_size']} × {found['gpu']}" if found["feasible"] else None
    rows = [("replicas", found["num_replicas"], ""), ("GPUs", found["num_gpus"], ""),
            ("of each replica", kind, ""),
            ("an hour", found["cost_usd_per_hour"], "USD"), ("a month", found["cost_usd_per_month"], "USD"),
            ("per million output tokens", found["cost_usd_per_million_output_tokens"], "USD"),
            ("objectives", found["slo"]["text"], ""), ("required attainment", found["slo"]["attainment"], "%"),
            ("attainment", found["attainment"], "%"), ("p99 TTFT", found["p99_ttft_ms"], "ms"),
            ("p99 TPOT", found["p99_tpot_ms"], "ms"), ("rate", found["request_rate"], "requests/s"),
            ("scaling of the rate", found["scaling"], ""), ("router", found["router"], ""),
            ("headroom of the rate", found["headroom"], "%"), ("spare replicas", found["num_spare"], "")]
    scheduled = found["schedule"] is not None
    columns = [name for name in FLEET_COLUMNS if not name.startswith("decode_")
               or any(fleet.get(name) is not None for fleet in found["alternatives"])]
    figures = {"fleets": fleet_costs(found)} if found["feasible"] else {}
    return Findings(
        title="The cheapest fleet" if found["feasible"] else "No fleet meets the objectives", names=("",),
        headline=_numbers("Fleet", rows), words=[*plans.sizing_words(found), *found["notes"]],
        lead=f"{found['workload']['num_requests']:,} requests of {found['workload']['source']} at "
             f"{found['workload']['rate_rps']:,.4g} requests/s",
        figures=figures | ({"load": fleet_load(found)} if scheduled else {}),
        listings=[*_rests_on(found, "num_gpus"), _listing("Fleets", columns, found["alternatives"]),
                  *([_listing("Schedule", list(found["schedule"]["parts"][0]), found["schedule"]["parts"])]
                    if scheduled else [])],
        tables={"What was replayed": _settings(found, "slo", "workload")})


def _rests_on(found: Mapping[str, Any], key: str) -> list[Listing]:
    """Return what is missed where nothing keeps the objectives, and the answer by other routers and ways of scaling."""
    missed = [_listing("Objectives that are missed", ("objective", "limit_ms", "best_ms", "missed_by", "required"),
                       found["missed"])] if found["missed"] else []
    return [*missed, *(_listing(f"By {what}", (what, key, "more_than_replicas"), found[f"{what}s"])
                       for what in ("router", "scaling") if len(found[f"{what}s"]) > 1)]


def _sweep(answer: SavedAnswer) -> Findings:
    found = answer.values
    axes, metrics = list(found["axes"]), list(found["pareto"])
    table = _front_alone(found["front"]) if answer.table is None else answer.table
    note = ["the figures show only the front: the sweep's .parquet is not beside the JSON"] \
        if answer.table is None else []
    rows = [("configurations", found["num_configurations"], ""), ("on the front", len(found["front"]), ""),
            *((f"not replayed: {status}", count, "") for status, count in found["status"].items() if status != "done")]
    return Findings(
        title="A grid of what-ifs", lead=f"{', '.join(axes)} varied; the front is over {', '.join(metrics)}",
        names=("",), headline=_numbers("Sweep", rows), words=[sweep_headline(found), *note],
        figures={"front": front_scatter(table, axes, metrics), "parallel": parallel_axes(table, axes, metrics)},
        listings=[_listing("The front", [*axes, *metrics, "bottleneck"], found["front"])],
        tables={"Axes": [Table(title="Values", rows=tuple(Row(label=axis, values=(", ".join(map(str, values)),))
                                                          for axis, values in found["axes"].items()))]})


def _front_alone(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the front's rows as a table, without what text cannot be encoded."""
    cleaned = [{key: clean(value) if isinstance(value, str) else value for key, value in row.items()} for row in rows]
    return pl.DataFrame(cleaned, infer_schema_length=None)


def _check(answer: SavedAnswer) -> Findings:
    found = answer.values
    verdicts = [row["verdict"] for row in found["checks"]]
    rows = [(verdict, verdicts.count(verdict), "") for verdict in dict.fromkeys(verdicts)]
    listed = [tables.gate_row(row) for row in found["checks"]]
    return Findings(
        title=f"Capacity targets: {'met' if found['met'] else 'missed'}", lead=str(found["targets"]), names=("",),
        headline=_numbers("Targets", rows), words=[tables.gate_headline(found), *found.get("notes", ())],
        figures={"margins": target_margins(found["checks"])},
        listings=[Listing(title="Verdicts", columns=("scenario", "metric", "target", "predicted", "margin", "verdict"),
                          rows=listed)])


def _numbers(title: str, rows: Sequence[tuple[str, Any, str]]) -> Table:
    return Table(title=title, rows=tuple(Row(label=label, values=(value,), unit=unit) for label, value, unit in rows
                                         if value is not None))


def _listing(title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Listing:
    """Return rows by the columns that any of them has; what is beyond `MOST_ROWS` is said in the title."""
    known = [column for column in columns if any(row.get(column) is not None for row in rows)]
    short = f", the first {MOST_ROWS:,} of {len(rows):,}" if len(rows) > MOST_ROWS else ""
    return Listing(title=title + short, columns=known,
                   rows=[[row.get(column) for column in known] for row in rows[:MOST_ROWS]])


def _settings(found: Mapping[str, Any], *keys: str) -> list[Table]:
    tables_of = [content.table_of(key.capitalize(), found[key]) for key in keys if found.get(key)]
    return [*tables_of, content.table_of("Trace", {"trace_sha256": found.get("trace_sha256")})]
