"""The trace commands of the command line: describe, synth, convert."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from planner.commands.options import shows_progress, takes_scenario
from planner.settings.format_spec import spec_of
from planner.settings.scenario import Scenario

trace = typer.Typer(no_args_is_help=True, help="Look at, draw and convert traces.")

LOAD = ("start_at", "duration", "limit", "rate_scale", "request_rate", "max_concurrency", "num_prompts", "num_warmups",
        "random_input_len", "random_output_len", "random_range_ratio", "seed")

SourceArgument = Annotated[str, typer.Argument(metavar="TRACE", help="Trace file, - for stdin, or a bundled sample.")]
FormatOption = Annotated[str | None, typer.Option("--format", help="Trace format; docs/formats.md has them. "
                                                  "[detected]")]
ColumnOption = Annotated[list[str] | None, typer.Option(help="A column of ours by the file's name and unit, as in "
                                                        "'arrival_s=ts:ms' or 'input_tokens=usage.prompt'; several.")]
WhereOption = Annotated[list[str] | None, typer.Option(help="Rows that count, by a column of the file, as in "
                                                       "'model=llama-70b'; several.")]
BadRowsOption = Annotated[Literal["error", "drop"], typer.Option(help="Stop at a bad row, or drop and count it.")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the result as JSON; - for stdout.")]
ToOption = Annotated[str | None, typer.Option(help="Format to write: csv, jsonl, parquet, mooncake, timed-trace, "
                                              "aiperf, vidur, blis. [the output's ending]")]


@trace.command()
@shows_progress
def describe(
    source: SourceArgument,
    cache_tokens: Annotated[float | None, typer.Option(help="Hit rate of a prefix cache of so many tokens.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with figures.")] = None,
    format: FormatOption = None,
    column: ColumnOption = None,
    where: WhereOption = None,
    on_bad_rows: BadRowsOption = "error",
    json: JsonOption = None,
) -> None:
    """Describe a trace: rates, burstiness, lengths, shape, prefix sharing, sessions, tenants, and what is odd.

    Example: planner trace describe long-context --cache-tokens 400000 --html long-context.html
    """
    from planner.commands import trace_actions

    trace_actions.describe(source, cache_tokens, html, spec_of(format, column, where), on_bad_rows, json)


@trace.command()
@shows_progress
@takes_scenario(without=LOAD)
def synth(
    source: Annotated[str, typer.Argument(metavar="MODEL | TRACE", help="A workload's TOML or a bundled sample to draw "
                                          "from; with --fit, a trace to fit one to.")],
    scenario: Scenario,
    fit: Annotated[bool, typer.Option("--fit", help="Fit a model to the trace, and say how close what it draws is; "
                                      "with --model and --gpu, in predictions too.")] = False,
    arrivals: Annotated[str, typer.Option(help="With --fit: poisson, gamma, weibull, mmpp, series, or auto: the one of "
                                          "fewest numbers that is as bursty.")] = "auto",
    save: Annotated[Path | None, typer.Option(help="Write the model, changed as asked, as TOML.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o",
                                                help="Draw a trace and write it; - for stdout.")] = None,
    to: ToOption = None,
    seed: Annotated[int | None, typer.Option(help="Of the draw; the same seed gives the same trace. [model's]")] = None,
    draws: Annotated[int, typer.Option(min=1, help="With --fit: traces that closeness is the median of.")] = 3,
    grow: Annotated[float | None, typer.Option(help="So many times as many users, on the same clock, as capacity and "
                                               "size --scaling thin; replay --rate-scale compresses time.")] = None,
    request_rate: Annotated[float | None, typer.Option(help="As many users as make this mean rate [1/s].")] = None,
    duration: Annotated[float | None, typer.Option(help="Length of what is drawn [s]; it begins again where the "
                                                   "record ends.")] = None,
    mix: Annotated[str | None, typer.Option(help="Rates of tenants times factors, as in 'search=2,batch=0.5'.")] = None,
    scale_input: Annotated[float | None, typer.Option(help="Prompts so many times as long.")] = None,
    scale_output: Annotated[float | None, typer.Option(help="Outputs so many times as long.")] = None,
    add_tenant: Annotated[list[str] | None, typer.Option(help="Another model's traffic besides: NAME=MODEL@RATE; "
                                                         "several.")] = None,
    flash: Annotated[list[str] | None, typer.Option(help="A flash crowd: at=SECONDS,lasts=SECONDS,times=FACTOR; "
                                                    "several.")] = None,
    slo: Annotated[str | None, typer.Option(help="With --fit: objectives, for goodput and capacity.")] = None,
    attainment: Annotated[float, typer.Option(help="Share of requests that must meet --slo.")] = 0.99,
    format: FormatOption = None,
    column: ColumnOption = None,
    where: WhereOption = None,
    on_bad_rows: BadRowsOption = "error",
    json: JsonOption = None,
) -> None:
    """Fit a workload model to a trace, or draw a trace from one, changed as asked.

    Example: planner trace synth chat --grow 2 --flash at=600,lasts=120,times=5 --output crowd.csv
    """
    from planner.commands import trace_actions

    options = {"fit": fit, "arrivals": arrivals, "save": save, "output": output, "to": to, "seed": seed, "draws": draws}
    changes = {"grow": grow, "request_rate": request_rate, "duration": duration, "mix": mix,
               "scale_input": scale_input, "scale_output": scale_output, "add_tenant": add_tenant, "flash": flash}
    trace_actions.synth(source, options, scenario, changes, slo, attainment, spec_of(format, column, where),
                         on_bad_rows, json)


@trace.command()
@shows_progress
def convert(
    source: SourceArgument,
    output: Annotated[Path, typer.Argument(metavar="OUT", help="File to write; - for stdout.")],
    to: ToOption = None,
    anonymize: Annotated[bool, typer.Option("--anonymize", help="Keep timing, lengths and sharing, and nothing else; "
                                            "names become salted hashes.")] = False,
    salt: Annotated[str | None, typer.Option(help="Of the hashes; files with one salt agree. [a random one]")] = None,
    lossy: Annotated[bool, typer.Option("--lossy", help="Write though prefix ids or the order of turns are "
                                        "lost.")] = False,
    format: FormatOption = None,
    column: ColumnOption = None,
    where: WhereOption = None,
    on_bad_rows: BadRowsOption = "error",
    json: JsonOption = None,
) -> None:
    """Write a trace in another format, or without anything that names somebody.

    Example: planner trace convert long-context shared.jsonl --anonymize
    """
    from planner.commands import trace_actions

    trace_actions.convert(source, output, to, anonymize, salt, lossy, spec_of(format, column, where), on_bad_rows,
                           json)
