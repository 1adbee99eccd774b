"""The command line: parse, one library call, print."""

import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.commands.db_cli import db as db_app
from planner.commands.options import shows_progress, takes_scenario
from planner.commands.short_help import FULL_HELP
from planner.commands.trace_cli import BadRowsOption, ColumnOption, FormatOption, JsonOption, WhereOption
from planner.commands.trace_cli import trace as trace_app
from planner.errors import OutputError, PlannerError
from planner.settings.format_spec import spec_of
from planner.settings.rate_scaling import RECOMMENDED
from planner.settings.scenario import Scenario, names_in

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich",
                  help="Trace-driven capacity planning and what-if analysis for LLM serving.")

RECORDED_LOAD = ("start_at", "duration", "limit", "rate_scale", "request_rate", "num_prompts", "num_warmups")
RANKS = ("data_parallel_size", "data_parallel_attention")  # which a server's log may be of
UNMEASURED = (*RECORDED_LOAD, *(name for name in names_in("Fleet") if name not in RANKS), *names_in("Overload"),
              *names_in("Cache tiers"), "wait_for_parents")

TraceArgument = Annotated[str, typer.Argument(metavar="TRACE", help="Trace file, - for stdin, or a bundled sample: "
                                              "chat, code, long-context, fitted-chat …; or random: what a benchmark "
                                              "client sends.")]
SLO_HELP = "Objectives in ms: of each request, 'ttft:500 tpot:50', or of a statistic over all, 'p99_ttft:1000'."
SloOption = Annotated[str | None, typer.Option(help=SLO_HELP)]
CapacitySloOption = Annotated[str, typer.Option("--slo", help=SLO_HELP)]
AttainmentOption = Annotated[float, typer.Option(help="Share of requests that must meet their own objectives.")]
MeasuredArgument = Annotated[Path, typer.Argument(metavar="MEASURED", help="Table of measured runs, a result of vllm "
                                                  "bench serve or of SGLang's bench_serving, scrapes of /metrics, "
                                                  "requests in any trace format, steps, or the server's own log.")]
ClientOption = Annotated[str | None, typer.Option(help="Who sent the requests: vllm, sglang, inferencex, internal. "
                                                  "Of a table, rows of others are left out.")]
ScalingOption = Annotated[str, typer.Option(help="How the traffic gets another rate: thin leaves users out or adds "
                                            "copies (fewer or more users of the same kind, as planner trace synth "
                                            "--grow draws them), compress shortens the time between requests (the same "
                                            "users in a hurry, as planner replay --rate-scale does), resample draws "
                                            "requests and gaps anew, poisson draws arrivals.")]
CompareOption = Annotated[bool, typer.Option(help="Give the answer by other ways of scaling and with other routers "
                                             "too, without a bootstrap.")]
JobsOption = Annotated[int, typer.Option(help="Processes; -1 for one a core.")]


def main() -> None:
    """Run the command line; one of our errors becomes one line on stderr and its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without × and ≤ shows ? for them
    try:
        _run()
    except PlannerError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run() -> None:
    """Run a command, and see that what it printed got out."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries once more when it exits
        if not isinstance(error, BrokenPipeError):  # a reader that has seen enough, as head does, is no error
            raise OutputError(f"cannot write to stdout: {error.strerror}") from error


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from planner.versions import own_version

        print(f"planner {own_version()}")
        raise typer.Exit


@app.callback()
def every_command(version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True,
                                                        help="Print the planner's version.")] = False) -> None:
    """Take what stands before a command's name."""


@app.command(context_settings=FULL_HELP)
@shows_progress
@takes_scenario()
def replay(
    trace: TraceArgument,
    scenario: Scenario,
    slo: SloOption = None,
    attainment: Annotated[
        float | None, typer.Option(help="Share of requests that must meet --slo; exit code 1 if fewer do.")
    ] = None,
    format: FormatOption = None,
    column: ColumnOption = None,
    where: WhereOption = None,
    on_bad_rows: BadRowsOption = "error",
    json: JsonOption = None,
    requests: Annotated[Path | None, typer.Option(help="Write one row a request (.parquet or .csv).")] = None,
    steps: Annotated[Path | None, typer.Option(help="Write one row a step (.parquet or .csv).")] = None,
    schedule: Annotated[Path | None, typer.Option(help="Write one row per scheduled request and step.")] = None,
    preemptions: Annotated[Path | None, typer.Option(help="Write one row per preemption.")] = None,
    attempts: Annotated[Path | None, typer.Option(help="Write one row an attempt, where clients try again.")] = None,
    scale_events: Annotated[Path | None, typer.Option(help="Write one row per change of an autoscaled fleet.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the whole result to a folder, for planner report.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say where time goes, what binds, and what to change "
                                          "first.")] = False,
) -> None:
    """Replay one trace on one deployment under one policy.

    Example: planner replay chat --model llama-3.1-8b --gpu h100-sxm --slo "ttft:500 tpot:50"
    """
    from planner.commands import actions

    tables = {"attempts": attempts, "requests": requests, "steps": steps, "schedule": schedule,
              "preemptions": preemptions, "scale_events": scale_events}
    met = actions.replay(trace, scenario, slo, attainment, spec_of(format, column, where), on_bad_rows, json, tables,
                          save, explain)
    raise typer.Exit(0 if met else 1)


@app.command(context_settings=FULL_HELP)
@shows_progress
@takes_scenario(lists=True)
def compare(
    sources: Annotated[list[str], typer.Argument(metavar="TRACE | FILE.toml …", help="A trace, or a TOML for each "
                                                 "what-if: trace, slo, replicas, and options by name.")],
    choices: dict[str, list[Any]],
    axis: Annotated[list[str] | None, typer.Option(help="An option that varies, as in 'async_scheduling=true,false'; "
                                                   "several.")] = None,
    slo: SloOption = None,
    format: FormatOption = None,
    column: ColumnOption = None,
    where: WhereOption = None,
    on_bad_rows: BadRowsOption = "error",
    explain: Annotated[bool | None, typer.Option(help=r"Say why they differ. \[for files]")] = None,
    json: JsonOption = None,
    save: Annotated[Path | None, typer.Option(help="Write each result to a folder in this one, for planner "
                                              "report.")] = None,
) -> None:
    """Replay several what-ifs, side by side, with the difference to the first, and why.

    With one trace, options take lists, and every combination is a what-if: --policy fcfs,sjf --max-num-seqs 64,128.

    Example: planner compare chat --policy fcfs,decode-first,sjf --model llama-3.1-8b --gpu h100-sxm --rate-scale 6
    """
    from planner.commands import actions

    actions.compare(sources, choices, axis or [], slo, spec_of(format, column, where), on_bad_rows, explain, json, save)


@app.command(context_settings=FULL_HELP)
@shows_progress
@takes_scenario(without=("autoscale", "rate_scale", "request_rate", "max_concurrency", "num_prompts", "num_warmups"))
def capacity(
    trace: TraceArgument,
    scenario: Scenario,
    slo: CapacitySloOption,
    attainment: AttainmentOption = 0.99,
    scaling: ScalingOption = RECOMMENDED,
    horizon: Annotated[str, typer.Option(help="double the trace's length as long as that changes the answer, or keep "
                                         "to the trace.")] = "double",
    by_tenant: Annotated[bool, typer.Option(help="Hold every tenant to the objectives by itself.")] = False,
    replicates: Annotated[int, typer.Option(help="Of the bootstrap that the confidence comes from; 0 for none.")] = 20,
    compare_assumptions: CompareOption = True,
    format: FormatOption = None,
    column: ColumnOption = None,
    where: WhereOption = None,
    on_bad_rows: BadRowsOption = "error",
    jobs: JobsOption = -1,
    json: JsonOption = None,
) -> None:
    """Find the highest request rate that one deployment serves within its objectives; exit code 1 if none does.

    Example: planner capacity chat --model llama-3.1-8b --gpu h100-sxm --slo "ttft:500 tpot:50" --attainment 0.99
    """
    from planner.commands import actions

    options = {"scaling": scaling, "horizon": horizon, "by_tenant": by_tenant, "replicates": replicates,
               "compares": compare_assumptions, "jobs": jobs}
    met = actions.capacity(trace, scenario, slo, attainment, options, spec_of(format, column, where), on_bad_rows, json)
    raise typer.Exit(0 if met else 1)


@app.command(context_settings=FULL_HELP)
@shows_progress
@takes_scenario(without=("tensor_parallel_size", "fleet", "autoscale", "prefill_replicas", "max_concurrency",
                         "num_prompts", "num_warmups"))
def size(
    trace: TraceArgument,
    scenario: Scenario,
    slo: CapacitySloOption,
    attainment: AttainmentOption = 0.99,
    tensor_parallel_size: Annotated[
        str | None, typer.Option(help="Sizes to try, with commas between. [1,2,4,8, as far as a node goes]")
    ] = None,
    price: Annotated[str | None, typer.Option(help="USD per GPU-hour, as in 'h100-sxm=2.5'. [the catalog's]")] = None,
    spare: Annotated[int, typer.Option(help="Replicas that may fail: as many more than the load needs.")] = 0,
    period: Annotated[
        float | None, typer.Option(help="Seconds of the parts of a schedule with its own number of replicas each.")
    ] = None,
    disaggregate: Annotated[bool, typer.Option("--disaggregate", help="Try fleets, too, in which some replicas prefill "
                                               "and the others decode.")] = False,
    decode_gpu: Annotated[str | None, typer.Option(help="GPUs of those that decode, a list. [--gpu, the same as those "
                                                   "that prefill]")] = None,
    decode_tensor_parallel_size: Annotated[str | None, typer.Option(help="Their sizes, likewise.")] = None,
    rate_series: Annotated[
        Path | None, typer.Option(help="CSV of rates over time (start_s, rate_rps) that the trace's traffic takes on.")
    ] = None,
    scaling: ScalingOption = RECOMMENDED,
    compare_assumptions: CompareOption = True,
    format: FormatOption = None,
    column: ColumnOption = None,
    where: WhereOption = None,
    on_bad_rows: BadRowsOption = "error",
    jobs: JobsOption = -1,
    json: JsonOption = None,
) -> None:
    """Find the cheapest fleet, and the one of fewest GPUs, that serves a trace within its objectives.

    --gpu and --quantization take lists. Requests go to the replicas by --router, at random where none is given, as
    through a Kubernetes Service. --request-rate, --rate-scale and --rate-series change the rate by --scaling. Exit code
    1 if no fleet keeps the objectives.

    Example: planner size chat --request-rate 60 --model llama-3.1-8b --slo "ttft:500 tpot:50" --gpu h100-sxm,l40s
    """
    from planner.commands import actions

    options = {"num_spare": spare, "period_s": period, "splits": disaggregate, "decode_gpus": decode_gpu,
               "decode_ranks": decode_tensor_parallel_size, "scaling": scaling, "compares": compare_assumptions,
               "jobs": jobs}
    met = actions.size(trace, scenario, slo, attainment, tensor_parallel_size, price, rate_series, options,
                       spec_of(format, column, where), on_bad_rows, json)
    raise typer.Exit(0 if met else 1)


@app.command(context_settings=FULL_HELP)
@shows_progress
@takes_scenario()
def sweep(
    source: Annotated[str, typer.Argument(metavar="SWEEP.toml | TRACE", help="TOML with a trace, fixed options, and "
                                          "axes; or a trace, with the options below.")],
    scenario: Scenario,
    axis: Annotated[list[str] | None, typer.Option(help="An option that varies, as in 'max_num_seqs=64,128'; "
                                                   "several.")] = None,
    pareto: Annotated[str | None, typer.Option(help="Two to four metrics of the front, with commas between.")] = None,
    constraint: Annotated[list[str] | None, typer.Option(help="A limit, as in 'p99_ttft_ms<=500'; several.")] = None,
    slo: SloOption = None,
    attainment: Annotated[float | None, typer.Option(help="Share of requests that must meet --slo.")] = None,
    format: FormatOption = None,
    column: ColumnOption = None,
    where: WhereOption = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Parquet file; what it has is not replayed "
                                                                "again.")] = Path("sweep.parquet"),
    optimize: Annotated[bool, typer.Option("--optimize", help="Look for the front, and the best in its first metric, "
                                           "by far fewer replays; exit code 1 if none keeps the limits.")] = False,
    backend: Annotated[str, typer.Option(help="processes, or an existing cluster: dask, ray.")] = "processes",
    address: Annotated[str | None, typer.Option(help="Of the cluster's scheduler.")] = None,
    jobs: JobsOption = -1,
    json: JsonOption = None,
) -> None:
    """Replay a grid of what-ifs, and mark those that no other beats.

    A sweep that was stopped goes on where it was.

    Example: planner sweep chat --model llama-3.1-8b --gpu h100-sxm --axis max_num_seqs=64,128 --slo "ttft:500"
    """
    from planner.commands import actions

    asked = {"axes": axis, "front": pareto, "constraints": constraint, "slo": slo, "attainment": attainment,
             "format": spec_of(format, column, where)}
    met = actions.sweep(source, scenario, asked, output, optimize, backend, address, jobs, json)
    raise typer.Exit(0 if met else 1)


@app.command()
@shows_progress
def check(
    targets: Annotated[Path, typer.Argument(metavar="TARGETS", help="TOML with scenarios, and targets for each.")],
    baseline: Annotated[Path | None, typer.Option(help="JSON that max_regression is against.")] = None,
    update_baseline: Annotated[bool, typer.Option("--update-baseline", help="Write --baseline anew.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write the verdicts as JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write them as Markdown. [$GITHUB_STEP_SUMMARY too]")] = None,
    json: JsonOption = None,
) -> None:
    """Judge capacity targets: exit code 1 if one is missed.

    Example: planner check targets.toml --baseline baseline.json --junit planner.xml
    """
    from planner.commands import actions

    raise typer.Exit(0 if actions.check(targets, baseline, update_baseline, junit, markdown, json) else 1)


@app.command(context_settings=FULL_HELP)
@shows_progress
@takes_scenario(without=UNMEASURED)
def validate(
    measured: MeasuredArgument,
    scenario: Scenario,
    max_error: Annotated[
        str | None, typer.Option(help="Largest MAPE in per cent, as in 'tpot:10 ttft:25'; exit code 1 past it, "
                                      "or if a row has no prediction.")
    ] = None,
    predictions: Annotated[Path | None, typer.Option(help="Write one row a measured row (.parquet or .csv).")] = None,
    client: ClientOption = None,
    format: FormatOption = None,
    column: ColumnOption = None,
    where: WhereOption = None,
    jobs: JobsOption = -1,
    json: JsonOption = None,
) -> None:
    """Report predictions against measurements.

    A table of runs names each row's deployment; of anything else, the options say what it was measured on.

    Example: planner validate bench.json --model llama-3.1-8b --gpu h100-sxm --max-error "tpot:10 ttft:25"
    """
    from planner.commands import actions

    met = actions.validate(measured, scenario, max_error, predictions, client, spec_of(format, column, where), jobs,
                            json)
    raise typer.Exit(0 if met else 1)


@app.command(context_settings=FULL_HELP)
@shows_progress
@takes_scenario(without=(*UNMEASURED, "interval"))
def calibrate(
    measured: MeasuredArgument,
    scenario: Scenario,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the TOML for --calibration.")] = None,
    fit: Annotated[
        str | None, typer.Option(help="Constants to fit, with commas between. [those that the runs can tell apart]")
    ] = None,
    folds: Annotated[int, typer.Option(help="Parts that are left out in turn, for the held-out error.")] = 5,
    client: ClientOption = None,
    format: FormatOption = None,
    column: ColumnOption = None,
    where: WhereOption = None,
    jobs: JobsOption = -1,
    json: JsonOption = None,
) -> None:
    """Fit the engine's step-time constants to your own measurements.

    Example: planner calibrate runs.csv --output my.toml && planner validate runs.csv --calibration my.toml
    """
    from planner.commands import actions

    actions.calibrate(measured, scenario, output, fit, folds, client, spec_of(format, column, where), jobs, json)


@app.command()
@shows_progress
def report(
    results: Annotated[list[Path], typer.Argument(
        help="Folders of replay or compare --save; or one --json of compare, capacity, size, sweep or check, or a "
             "sweep's .parquet.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("report.html"),
    llmd: Annotated[Path | None, typer.Option(help="Write one result as an llm-d Benchmark Report too (.yaml or "
                                              ".json).")] = None,
) -> None:
    """Write a self-contained HTML report of replays or of an answer, with a Markdown summary beside it.

    Example: planner replay chat --model llama-3.1-8b --gpu h100-sxm --save out/chat && planner report out/chat
    """
    from planner.commands import actions

    actions.report(results, output, llmd)


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="Of the page's address.")] = 8501,
    address: Annotated[str, typer.Option(help="To listen at; other machines reach it with 0.0.0.0.")] = "localhost",
) -> None:
    """Open the dashboard.

    Example: planner ui --port 8600
    """
    from planner.commands import actions

    actions.ui(port, address)


app.add_typer(trace_app, name="trace")
app.add_typer(db_app, name="db")


if __name__ == "__main__":
    main()
