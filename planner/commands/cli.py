"""The command line: each command parses its options, calls the library once and prints the result."""

import copy
import gc
import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.commands.assistant_cli import launch, mcp, schema
from planner.commands.db_cli import db as db_app
from planner.commands.options import keeps_answers, shows_progress, takes, takes_scenario
from planner.commands.plan_cli import SloOption, TraceArgument, capacity, probe, rollouts, share, size
from planner.commands.serve_cli import serve
from planner.commands.termination import stops_on_sigterm
from planner.commands.trace_cli import JsonOption, OverwriteOption
from planner.commands.trace_cli import trace as trace_app
from planner.commands.watch_cli import watch
from planner.errors import OutputError, PlannerError
from planner.settings.format_spec import OF_TABLES, Reading
from planner.settings.load_options import MEASURING, OF_SESSIONS, SEARCHED
from planner.settings.scenario import Scenario, names_in

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich",
                  context_settings={"help_option_names": ["--help", "--help-all"]},  # if without HELP_OPTIONS
                  help="Capacity planning and what-if analysis for LLM serving, from request traces.")

RECORDED_LOAD = ("start_at", "duration", "limit", "rate_scale", "request_rate", "num_prompts", "num_warmups",
                 *SEARCHED, *OF_SESSIONS, *MEASURING)
RANKS = ("data_parallel_size", "data_parallel_attention")  # which a server's log may be of
UNMEASURED = (*RECORDED_LOAD, *(name for name in names_in("Fleet") if name not in RANKS), *names_in("Overload"),
              *names_in("Cache tiers"), "wait_for_parents")

MeasuredArgument = Annotated[Path, typer.Argument(metavar="MEASURED", help="Measurements: a table of runs, a result "
                                                  "of `vllm bench serve` or SGLang's bench_serving, scrapes of "
                                                  "/metrics, requests in any trace format, a table of steps, the "
                                                  "server's log, or the folder of `planner measure`.")]
ClientOption = Annotated[str | None, typer.Option(help="Benchmark client that sent the requests: vllm, sglang, "
                                                  "inferencex or internal. Table rows with another client are "
                                                  "ignored.")]
JobsOption = Annotated[int, typer.Option(help="Number of processes. -1: one per core.")]


def main() -> None:
    """Run the command line. A PlannerError becomes one line on stderr, and its exit code."""
    gc.disable()  # until the modules of the command are imported, at the top of `actions`
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without × and ≤ shows ? for them
    try:
        with stops_on_sigterm():
            _run()
    except PlannerError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    finally:
        gc.enable()


def _run() -> None:
    """Run a command and flush stdout; raise OutputError if stdout cannot be written."""
    try:
        try:
            _app_of(sys.argv[1:2])(prog_name="planner")  # also under python -m
        finally:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries once more when it exits
        if not isinstance(error, BrokenPipeError):  # a reader that has seen enough, as head does, is no error
            raise OutputError(f"cannot write to stdout: {error.strerror}") from error


def _app_of(named: list[str]) -> typer.Typer:
    """Return the command line with the named command or group alone, as all others take a fifth of a second to make.

    If none is named, it has all.
    """
    commands = [each for each in app.registered_commands if each.callback and [each.callback.__name__] == named]
    groups = [group for group in app.registered_groups if [group.name] == named]
    if not commands and not groups:
        return app
    lone = copy.copy(app)
    lone.registered_commands, lone.registered_groups = commands, groups
    return lone


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from planner.versions import own_version

        print(f"planner {own_version()}")
        raise typer.Exit


@app.callback()
def every_command(version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True,
                                                        help="Print the planner's version.")] = False) -> None:
    """Accept options before the name of a command."""


@app.command()
@shows_progress
@takes_scenario()
@takes(Reading)
def replay(
    trace: TraceArgument,
    scenario: Scenario,
    slo: SloOption = None,
    attainment: Annotated[
        float | None, typer.Option(help="Share of requests that must meet --slo. Exit code 1 if fewer do.")
    ] = None,
    *,
    reading: Reading,
    json: JsonOption = None,
    requests: Annotated[Path | None, typer.Option(help="Write one row per request (.parquet or .csv).")] = None,
    steps: Annotated[Path | None, typer.Option(help="Write one row per step (.parquet or .csv).")] = None,
    schedule: Annotated[Path | None, typer.Option(help="Write one row for each request of each step (.parquet or "
                                                  ".csv).")] = None,
    preemptions: Annotated[Path | None, typer.Option(help="Write one row per preemption (.parquet or .csv).")] = None,
    attempts: Annotated[Path | None, typer.Option(help="Write one row per attempt, retries included (.parquet or "
                                                  ".csv).")] = None,
    scale_events: Annotated[Path | None, typer.Option(help="Write one row per autoscaling event (.parquet "
                                                      "or .csv).")] = None,
    timeline: Annotated[Path | None, typer.Option(help="Write steps, requests and KV cache use over time as a Chrome "
                                                  "trace (.json or .json.gz). Open it in ui.perfetto.dev.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the whole result to a folder for planner report.")] = None,
    overwrite: OverwriteOption = False,
    explain: Annotated[bool, typer.Option("--explain", help="Explain the result: time per phase, the binding limits, "
                                          "and the setting to change first.")] = False,
    ignore_start_refusal: Annotated[bool, typer.Option(
        "--ignore-start-refusal", help="Exit code 0 also if the engine would not start with this deployment.")] = False,
) -> None:
    """How does this deployment serve this trace: latency, throughput, goodput, cost?

    Example: planner replay chat --model llama-3.1-8b --gpu h100-sxm --slo "ttft:500 tpot:50"
    """
    from planner.commands import actions

    tables = {"attempts": attempts, "requests": requests, "steps": steps, "schedule": schedule,
              "preemptions": preemptions, "scale_events": scale_events}
    met = actions.replay(trace, scenario, slo, attainment, reading, json, tables, timeline, save, explain,
                         ignore_start_refusal, overwrite)
    raise typer.Exit(0 if met else 1)


@app.command()
@shows_progress
@takes_scenario(lists=True)
@takes(Reading)
def compare(
    sources: Annotated[list[str], typer.Argument(metavar="TRACE | FILE.toml …", help="One trace, or one TOML file per "
                                                 "what-if. A file has a trace and may have slo, replicas, and any "
                                                 "option by name.")],
    choices: dict[str, list[Any]],
    launched: dict[str, Any],
    axis: Annotated[list[str] | None, typer.Option(help="Values of an option, as in 'async_scheduling=true,false'. "
                                                   "Repeatable.")] = None,
    slo: SloOption = None,
    *,
    reading: Reading,
    explain: Annotated[bool | None, typer.Option(help=r"Explain the differences between the results. \[on for TOML "
                                                 "files]")] = None,
    every: Annotated[bool, typer.Option("--all", help="Print all figures. Without it: the five that differ "
                                        "most.")] = False,
    json: JsonOption = None,
    save: Annotated[Path | None, typer.Option(help="Write each result to a subfolder of this folder, for planner "
                                              "report.")] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Which of several deployments or policies is better, by how much, and why?

    With one trace, options take lists. Each combination is a what-if: --policy fcfs,sjf --max-num-seqs 64,128.

    Example: planner compare chat --policy fcfs,decode-first,sjf --model llama-3.1-8b --gpu h100-sxm --rate-scale 6
    """
    from planner.commands import actions

    is_served = actions.compare(sources, choices, launched, axis or [], slo, reading, explain, every, json, save,
                                overwrite)
    raise typer.Exit(0 if is_served else 1)


for question in (capacity, probe, size, share, rollouts, watch, serve):
    app.command()(question)


@app.command()
@shows_progress
@takes_scenario()
@takes(Reading, OF_TABLES)
def sweep(
    source: Annotated[str, typer.Argument(metavar="SWEEP.toml | TRACE", help="TOML file with a trace, fixed options "
                                          "and axes; or a trace, with the options below.")],
    scenario: Scenario,
    axis: Annotated[list[str] | None, typer.Option(help="Values of an option, as in 'max_num_seqs=64,128'. "
                                                   "Repeatable.")] = None,
    pareto: Annotated[str | None, typer.Option(help="Pareto front: two to four metrics, separated by commas.")] = None,
    constraint: Annotated[list[str] | None, typer.Option(help="Limit on a metric, as in 'p99_ttft_ms<=500'. "
                                                         "Repeatable.")] = None,
    slo: SloOption = None,
    attainment: Annotated[float | None, typer.Option(help="Share of requests that must meet --slo.")] = None,
    *,
    reading: Reading,
    output: Annotated[Path, typer.Option("--output", "-o", help="Parquet file for the results. Configurations that "
                                         "are already in the file are not replayed again.")] = Path("sweep.parquet"),
    optimize: Annotated[bool, typer.Option("--optimize", help="Find the Pareto front, and the best configuration in "
                                           "the front's first metric, with fewer replays. Exit code 1 if no "
                                           "configuration meets the limits.")] = False,
    backend: Annotated[str, typer.Option(help="Where replays run: `processes` on this machine, or a running cluster "
                                         "(`dask` or `ray`).")] = "processes",
    address: Annotated[str | None, typer.Option(help="Address of the cluster's scheduler.")] = None,
    jobs: JobsOption = -1,
    json: JsonOption = None,
) -> None:
    """Which combination of these options is best, and what is the trade-off between them?

    Replays the grid and marks the Pareto front. A sweep that was stopped continues from its output file.

    Example: planner sweep chat --model llama-3.1-8b --gpu h100-sxm --axis max_num_seqs=64,128 --slo "ttft:500"
    """
    from planner.commands import actions

    asked = {"axes": axis, "front": pareto, "constraints": constraint, "slo": slo, "attainment": attainment,
             "format": reading.spec}
    met = actions.sweep(source, scenario, asked, output, optimize, backend, address, jobs, json)
    raise typer.Exit(0 if met else 1)


@app.command()
@shows_progress
@keeps_answers
def check(
    targets: Annotated[Path, typer.Argument(metavar="TARGETS", help="TOML file with scenarios and their targets.")],
    baseline: Annotated[Path | None, typer.Option(help="JSON baseline that max_regression compares with.")] = None,
    update_baseline: Annotated[bool, typer.Option("--update-baseline", help="Write new values to --baseline.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write the verdicts as JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the verdicts as Markdown. If $GITHUB_STEP_SUMMARY is "
                                                  "set, they are appended there too.")] = None,
    json: JsonOption = None,
) -> None:
    """Are all capacity targets met? Exit code 1 if a target is missed.

    Example: planner check targets.toml --baseline baseline.json --junit planner.xml
    """
    from planner.commands import actions

    raise typer.Exit(0 if actions.check(targets, baseline, update_baseline, junit, markdown, json) else 1)


@app.command()
@shows_progress
@takes_scenario(without=UNMEASURED)
@takes(Reading, OF_TABLES)
def validate(
    measured: MeasuredArgument,
    scenario: Scenario,
    max_error: Annotated[
        str | None, typer.Option(help="Largest MAPE in per cent, as in 'tpot:10 ttft:25'. Exit code 1 if an error is "
                                      "larger, or a row has no prediction.")
    ] = None,
    predictions: Annotated[Path | None, typer.Option(help="Write the predictions, one row per measurement (.parquet "
                                                     "or .csv).")] = None,
    client: ClientOption = None,
    *,
    reading: Reading,
    jobs: JobsOption = -1,
    json: JsonOption = None,
) -> None:
    """How far are predictions from measurements?

    A table of runs names the deployment of each row. For other measurements, the options describe the deployment.
    With --interval and at most 8 rows, the exit code is 1 if a measured value is outside its interval.

    Example: planner validate bench.json --model llama-3.1-8b --gpu h100-sxm --max-error "tpot:10 ttft:25"
    """
    from planner.commands import measured_actions

    met = measured_actions.validate(measured, scenario, max_error, predictions, client, reading, jobs, json)
    raise typer.Exit(0 if met else 1)


@app.command()
@shows_progress
@takes_scenario(without=(*UNMEASURED, "interval", "max_concurrency", "random_input_len", "random_output_len",
                         "random_range_ratio"))
def measure(
    scenario: Scenario,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write: the script measure.sh, and the "
                                         "deployment that calibrate and validate read.")] = Path("measured"),
    minutes: Annotated[float, typer.Option(help=r"Predicted time of all runs at most \[min].")] = 20.0,
    runs: Annotated[int, typer.Option(help="Number of runs at most.")] = 12,
    overwrite: OverwriteOption = False,
    *,
    jobs: JobsOption = -1,
    json: JsonOption = None,
) -> None:
    """Which benchmarks on my own node teach the most about this deployment? Writes them as a script.

    Run the script beside the server. `planner calibrate` on the folder turns the results into constants.

    Example: planner measure --model llama-3.1-8b --gpu h100-sxm --minutes 10
    """
    from planner.commands import measured_actions

    measured_actions.measure(scenario, minutes, runs, output, overwrite, jobs, json)


@app.command()
@shows_progress
@takes_scenario(without=(*UNMEASURED, "interval"))
@takes(Reading, OF_TABLES)
def calibrate(
    measured: MeasuredArgument,
    scenario: Scenario,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="TOML file to write, "
                                                "for --calibration.")] = None,
    fit: Annotated[
        str | None, typer.Option(help=r"Constants to fit, separated by commas: 'host_s,layer_s'. \[all constants that "
                                 "the runs determine]")
    ] = None,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation for the held-out error.")] = 5,
    client: ClientOption = None,
    *,
    reading: Reading,
    jobs: JobsOption = -1,
    json: JsonOption = None,
) -> None:
    """Which step-time constants fit my own measurements?

    Example: planner calibrate runs.csv --output my.toml && planner validate runs.csv --calibration my.toml
    """
    from planner.commands import measured_actions

    measured_actions.calibrate(measured, scenario, output, fit, folds, client, reading, jobs, json)


@app.command()
@shows_progress
def report(
    results: Annotated[list[Path], typer.Argument(
        help="Results: folders written by --save (replay, compare), one file written by --json (compare, capacity, "
             "size, sweep, check), or the .parquet file of a sweep.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("report.html"),
    llmd: Annotated[Path | None, typer.Option(help="Also write one result as an llm-d Benchmark Report (.yaml or "
                                              ".json).")] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """How do I show a result to others? Writes a self-contained HTML report, and a Markdown summary beside it.

    Example: planner replay chat --model llama-3.1-8b --gpu h100-sxm --save out/chat && planner report out/chat
    """
    from planner.commands import actions

    actions.report(results, output, llmd, overwrite)


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="Port of the dashboard.")] = 8501,
    address: Annotated[str, typer.Option(help="Address of the dashboard. 0.0.0.0: other machines can "
                                         "reach it.")] = "localhost",
    studies: Annotated[Path | None, typer.Option(help="SQLite file for saved studies, on a local disk; made if it is "
                                                 "missing. Without it, nothing is saved.")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Studies can be opened and exported only.")] = False,
    sign_in: Annotated[Path | None, typer.Option(help="Sign-in by OpenID Connect: a TOML file with Streamlit's table "
                                                 r"\[auth] (redirect_uri, cookie_secret, client_id, client_secret, "
                                                 "server_metadata_url).")] = None,
    user_header: Annotated[str | None, typer.Option(help="Header with the user's name that a proxy with sign-in sets, "
                                                    "such as X-Forwarded-Email. It is trusted: only the proxy may "
                                                    "reach the dashboard.")] = None,
    watch: Annotated[Path | None, typer.Option(help="File that planner watch --json-lines writes, for the page "
                                               "Watch.")] = None,
) -> None:
    """How do I use the planner in a browser? Starts the dashboard.

    Example: planner ui --port 8600
    """
    from planner.commands import actions

    actions.ui(port, address, studies, read_only, sign_in, user_header, watch)


for question in (launch, schema, mcp):
    app.command()(question)

app.add_typer(trace_app, name="trace")
app.add_typer(db_app, name="db")


if __name__ == "__main__":
    main()
