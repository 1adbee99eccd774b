"""Commands for traces: describe, synth, convert, from-prometheus."""

from pathlib import Path
from typing import Annotated

import typer

from planner.commands.options import shows_progress, takes, takes_scenario
from planner.errors import UsageError
from planner.settings.format_spec import Reading
from planner.settings.load_options import CLOSED_LOOP, SEARCHED
from planner.settings.scenario import Scenario

trace = typer.Typer(no_args_is_help=True, help="Describe, generate and convert traces, or read them from metrics.")

LOAD = ("start_at", "duration", "limit", "rate_scale", "request_rate", *SEARCHED, *CLOSED_LOOP, "num_prompts",
        "num_warmups",
        "random_input_len", "random_output_len", "random_range_ratio", "seed")

SourceArgument = Annotated[str, typer.Argument(metavar="TRACE", help="Trace file, - for stdin, or a bundled sample.")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the result as JSON. -: stdout.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the result of another command. Without it, "
                                               "only a result of the same command is replaced.")]
LengthsOption = Annotated[Path | None, typer.Option(help="Scrape of /metrics. Lengths drawn from its histograms are "
                                                    "added to the arrivals of an access log or of vLLM's log.")]
ToOption = Annotated[str | None, typer.Option(help="Format to write: csv, jsonl, parquet, mooncake, timed-trace, "
                                              r"aiperf, vidur, blis. \[from the file extension]")]


@trace.command()
@shows_progress
@takes(Reading)
def describe(
    source: SourceArgument,
    cache_tokens: Annotated[float | None, typer.Option(help="Size of a prefix cache in tokens. The output then "
                                                       "includes the hit rate of this cache.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page with figures.")] = None,
    lengths: LengthsOption = None,
    *,
    reading: Reading,
    json: JsonOption = None,
) -> None:
    """What is in this trace: rates, burstiness, lengths, shape, prefix sharing, sessions, tenants, anomalies?

    Example: planner trace describe long-context --cache-tokens 400000 --html long-context.html
    """
    from planner.commands import trace_actions

    trace_actions.describe(source, cache_tokens, html, lengths, reading, json)


@trace.command()
@shows_progress
@takes_scenario(without=LOAD)
@takes(Reading)
def synth(
    source: Annotated[str, typer.Argument(metavar="MODEL | TRACE", help="Workload model: a TOML file or bundled "
                                          "sample. With --fit: a trace.")],
    scenario: Scenario,
    fit: Annotated[bool, typer.Option("--fit", help="Fit a workload model to the trace, and compare traces drawn from "
                                      "the model with the original trace. With --model and --gpu, also compare "
                                      "predictions.")] = False,
    arrivals: Annotated[str, typer.Option(help="With --fit: arrival process (poisson, gamma, weibull, mmpp or "
                                          "series). auto: the simplest process that is as bursty as the "
                                          "trace.")] = "auto",
    save: Annotated[Path | None, typer.Option(help="TOML file for the model, with all changes applied.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o",
                                                help="Draw a trace and write it. -: stdout.")] = None,
    to: ToOption = None,
    seed: Annotated[int | None, typer.Option(help=r"Seed: the same seed gives the same trace. \[the model's]")] = None,
    draws: Annotated[int, typer.Option(min=1, help="With --fit: number of traces to draw. The reported closeness is "
                                       "the median over these traces.")] = 3,
    grow: Annotated[float | None, typer.Option(help="Factor on the number of users. Time is not compressed. Similar: "
                                               "--scaling thin of capacity and size. Different: --rate-scale of "
                                               "replay, which compresses time.")] = None,
    request_rate: Annotated[float | None, typer.Option(help="Mean request rate in requests/s. The number of users "
                                                       "changes, and time is not compressed.")] = None,
    duration: Annotated[float | None, typer.Option(help=r"Length of the drawn trace \[s]. If it is longer than the "
                                                   "model's own duration, the model's rates and lengths "
                                                   "repeat.")] = None,
    mix: Annotated[str | None, typer.Option(help="Factors on tenants' rates, as in 'search=2,batch=0.5'.")] = None,
    scale_input: Annotated[float | None, typer.Option(help="Factor on prompt lengths.")] = None,
    scale_output: Annotated[float | None, typer.Option(help="Factor on output lengths.")] = None,
    add_tenant: Annotated[list[str] | None, typer.Option(help="Add another model's traffic as a tenant: NAME=MODEL or "
                                                         "NAME=MODEL@RATE, with RATE in requests/s. "
                                                         "Repeatable.")] = None,
    flash: Annotated[list[str] | None, typer.Option(help="Add a flash crowd: at=SECONDS,lasts=SECONDS,times=FACTOR. "
                                                    "Repeatable.")] = None,
    slo: Annotated[str | None, typer.Option(help="With --fit: objectives for goodput and capacity.")] = None,
    attainment: Annotated[float, typer.Option(help="Share of requests that must meet --slo.")] = 0.99,
    *,
    reading: Reading,
    json: JsonOption = None,
) -> None:
    """What would this traffic look like with more users, another mix or longer prompts?

    Fits a workload model to a trace, or draws a trace from a model, with changes.

    Example: planner trace synth chat --grow 2 --flash at=600,lasts=120,times=5 --output crowd.csv
    """
    from planner.commands import trace_actions

    options = {"fit": fit, "arrivals": arrivals, "save": save, "output": output, "to": to, "seed": seed, "draws": draws}
    changes = {"grow": grow, "request_rate": request_rate, "duration": duration, "mix": mix,
               "scale_input": scale_input, "scale_output": scale_output, "add_tenant": add_tenant, "flash": flash}
    trace_actions.synth(source, options, scenario, changes, slo, attainment, reading, json)


@trace.command()
@shows_progress
@takes(Reading)
def convert(
    source: SourceArgument,
    out: Annotated[Path | None, typer.Argument(metavar="[OUT]", help="File to write. -: stdout.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write, in place of OUT. -: "
                                                "stdout.")] = None,
    to: ToOption = None,
    anonymize: Annotated[bool, typer.Option("--anonymize", help="Keep only timing, lengths and prefix sharing. Names "
                                            "become salted hashes.")] = False,
    salt: Annotated[str | None, typer.Option(help="Salt of the hashes. The same salt gives the same "
                                             r"hashes. \[random]")] = None,
    lossy: Annotated[bool, typer.Option("--lossy", help="Write even if prefix ids or the order of turns are "
                                        "lost.")] = False,
    lengths: LengthsOption = None,
    *,
    reading: Reading,
    json: JsonOption = None,
) -> None:
    """How do I get this trace in another format, or without names and texts?

    Example: planner trace convert long-context shared.jsonl --anonymize
    """
    from planner.commands import trace_actions

    path = out or output
    if path is None or (out is not None and output is not None):
        raise UsageError("trace convert: give the file to write once, as OUT or with --output")
    trace_actions.convert(source, path, to, anonymize, salt, lossy, lengths, reading, json)


@trace.command("from-prometheus")
@shows_progress
@takes_scenario(without=LOAD)
def from_prometheus(
    source: Annotated[str, typer.Argument(metavar="ADDRESS | FILE", help="Address of a Prometheus server, or a file: "
                                          "scrapes of /metrics, the JSON of query_range, or rates as Grafana exports "
                                          "them.")],
    scenario: Scenario,
    start: Annotated[str | None, typer.Option(help="Begin of the range: a date, seconds since 1970, or a time before "
                                              "the end, as in -24h.")] = None,
    end: Annotated[str, typer.Option(help="End of the range: a date, seconds since 1970, or a time before "
                                     "now.")] = "now",
    step: Annotated[str | None, typer.Option(help=r"Length of a window, as in 30s. \[from 15s for 6 hours to 10m for "
                                             "a week, and at least the interval of scrapes]")] = None,
    model_name: Annotated[str | None, typer.Option(help="Name of the model in the metrics, if they have "
                                                   "several.")] = None,
    match: Annotated[str, typer.Option(help="Matchers of labels, as in 'namespace=\"prod\",job=\"vllm\"'.")] = "",
    header: Annotated[list[str] | None, typer.Option(help="Header of each query, as in 'X-Scope-OrgID: team'. "
                                                     "Repeatable. $PROMETHEUS_TOKEN is sent as a bearer "
                                                     "token.")] = None,
    lengths: Annotated[Path | None, typer.Option(help="Scrape of /metrics with histograms of lengths, for a source "
                                                 "with rates alone.")] = None,
    request_rate: Annotated[float | None, typer.Option(help="Mean request rate in requests/s, for a scrape without "
                                                       "times.")] = None,
    length_correlation: Annotated[float, typer.Option(help="Correlation of prompt and output lengths, -1 to 1. "
                                                      "Histograms do not have it.")] = 0.0,
    gap_cv: Annotated[float, typer.Option(help="Variation of the gaps between arrivals in a window. 0: even. 1: "
                                          "Poisson. More: bursts.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed: the same seed gives the same trace.")] = 0,
    rates: Annotated[Path | None, typer.Option(help="Write rate, mean lengths and prefix hits of each window as CSV, "
                                               "for size --rate-series.")] = None,
    save: Annotated[Path | None, typer.Option(help="TOML file for the workload model, for trace synth.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Draw a trace and write it. -: stdout.")] = None,
    to: ToOption = None,
    slo: Annotated[str | None, typer.Option(help="Objectives. With --model and --gpu, the output has the capacity for "
                                            "each assumption that the metrics leave open.")] = None,
    attainment: Annotated[float, typer.Option(help="Share of requests that must meet --slo.")] = 0.99,
    json: JsonOption = None,
) -> None:
    """Which traffic do my servers have, by their metrics in Prometheus?

    Reads rates, lengths, prefix hits and latencies of vLLM, SGLang, TensorRT-LLM or Dynamo, and draws a trace.

    Example: planner trace from-prometheus http://localhost:9090 --start -24h --output trace.jsonl
    """
    from planner.commands import prometheus_actions

    place = {"start": start, "end": end, "step": step, "headers": header or (), "match": match}
    outputs = {"--rates": rates, "--save": save, "--output": output, "--json": json}
    assumed = {"gap_cv": gap_cv, "correlation": length_correlation, "seed": seed}
    prometheus_actions.from_prometheus(source, place, model_name, lengths, request_rate, assumed, outputs, to, scenario,
                                       slo, attainment)
