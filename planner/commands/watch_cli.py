"""The command that watches a plan: measured values beside predictions, and drift."""

from pathlib import Path
from typing import Annotated

import typer

from planner.commands.options import shows_progress


@shows_progress
def watch(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Saved plan: the --json of size, capacity or replay, or "
                                         "a folder of replay --save.")],
    url: Annotated[str | None, typer.Option(help="Address of a Prometheus server, address of a server's own /metrics, "
                                            "or file with scrapes and their times.")] = None,
    interval: Annotated[float, typer.Option(help=r"Length of an interval \[s].")] = 60.0,
    for_s: Annotated[float | None, typer.Option("--for", help=r"Time after which the watch ends \[s]. Default: it does "
                                                "not end.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Judge --confirm intervals and end: the last ones in Prometheus, "
                                       "the next ones of a server's own /metrics.")] = False,
    start: Annotated[str | None, typer.Option(help="Begin of recorded time in Prometheus: a date, seconds since 1970, "
                                              "or a time before the end, as in -24h.")] = None,
    end: Annotated[str, typer.Option(help="End of recorded time: a date, seconds since 1970, or a time before "
                                     "now.")] = "now",
    tolerance: Annotated[float, typer.Option(min=0.0, help="Share by which rate, mean lengths and tokens without "
                                             "prefix hits may differ from the plan's.")] = 0.15,
    server_tolerance: Annotated[float | None, typer.Option(
        min=0.0, help=r"Share by which mean TTFT and TPOT may exceed a replay at the measured traffic. \[the published "
        "error of the prediction]")] = None,
    confirm: Annotated[int, typer.Option(min=1, help="Intervals in a row with the same deviation that are "
                                         "drift.")] = 3,
    model_name: Annotated[str | None, typer.Option(help="Name of the model in the metrics, if they have "
                                                   "several.")] = None,
    match: Annotated[str, typer.Option(help="Matchers of labels, as in 'namespace=\"prod\",job=\"vllm\"'.")] = "",
    header: Annotated[list[str] | None, typer.Option(help="Header of each query, as in 'X-Scope-OrgID: team'. "
                                                     "Repeatable. $PROMETHEUS_TOKEN is sent as a bearer "
                                                     "token.")] = None,
    json_lines: Annotated[Path | None, typer.Option(help="Write a line of JSON for each interval. -: stdout.")] = None,
    metrics_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Serve the watch's own metrics on this "
                                                     "port of localhost, for Prometheus.")] = None,
    write: Annotated[list[str] | None, typer.Option(help="Write a file: rules (alerts for Prometheus) or dashboard "
                                                    "(for Grafana). With a path if wanted: rules=watch.yml. "
                                                    "Repeatable. Without --url nothing is watched.")] = None,
) -> None:
    """Does my plan still hold? Compares a server's metrics with the plan, and tells traffic, server and plan drift.

    Exit code 1 if drift was confirmed. A file, and a range with --start, are judged at once; else a server is watched
    while it runs.

    Example: planner watch plan.json --url http://localhost:9090 --start -24h --interval 900
    """
    from planner.commands import watch_actions

    place = {"start": start, "end": end, "headers": tuple(header or ()), "match": match}
    rules = {"tolerance": tolerance, "server_tolerance": server_tolerance, "confirm": confirm}
    length = {"interval_s": interval, "for_s": for_s, "once": once}
    raise typer.Exit(0 if watch_actions.watch(plan, url, length, place, model_name, rules, json_lines, metrics_port,
                                              write or ()) else 1)
