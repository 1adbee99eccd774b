"""Commands that answer planning questions: the capacity, benchmarks that test it, and the size of a fleet."""

from pathlib import Path
from typing import Annotated

import typer

from planner.commands.options import keeps_answers, shows_progress, takes, takes_scenario
from planner.commands.trace_cli import JsonOption
from planner.errors import UsageError
from planner.planning.search_options import DEFAULT_ATTAINMENT, SHARED, Choices, Rollouts, Search
from planner.settings.format_spec import Reading
from planner.settings.load_options import CLOSED_LOOP, MEASURING, SEARCHED
from planner.settings.scenario import Scenario

TraceArgument = Annotated[str, typer.Argument(metavar="TRACE", help="Trace: a file, - (stdin), a bundled sample "
                                              "(chat, code, long-context, fitted-chat …), or `random` (the load of "
                                              "`vllm bench serve --dataset-name random`).")]
SLO_HELP = "Objectives in ms: limits for each request ('ttft:500 tpot:50') or for a statistic ('p99_ttft:1000')."


def _not_blank(slo: str | None) -> str | None:
    """Return objectives as they are; blank ones, as of an unset variable, are an error."""
    if slo is not None and not slo.strip():
        raise UsageError(f"--slo {slo!r}: no objective given; leave it out, or give one as in 'ttft:500 tpot:50'")
    return slo


SloOption = Annotated[str | None, typer.Option(help=SLO_HELP, callback=_not_blank)]
CapacitySloOption = Annotated[str, typer.Option("--slo", help=SLO_HELP)]
AttainmentOption = Annotated[float, typer.Option(help="Share of requests that must meet their objectives.")]


@shows_progress
@keeps_answers
@takes_scenario(without=("autoscale", "rate_scale", "request_rate", *SEARCHED, *CLOSED_LOOP, "num_prompts",
                         "num_warmups"))
@takes(Search)
@takes(Reading)
def capacity(
    trace: TraceArgument,
    scenario: Scenario,
    slo: CapacitySloOption,
    attainment: AttainmentOption = DEFAULT_ATTAINMENT,
    *,
    search: Search,
    reading: Reading,
    json: JsonOption = None,
) -> None:
    """How many requests per second, or users (--of), does one deployment serve within the SLO?

    Exit code 1 if no load meets the SLO.

    Example: planner capacity chat --model llama-3.1-8b --gpu h100-sxm --slo "ttft:500 tpot:50" --attainment 0.99
    """
    from planner.commands import actions

    met = actions.capacity(trace, scenario, slo, attainment, search, reading, json)
    raise typer.Exit(0 if met else 1)


@shows_progress
@keeps_answers
@takes_scenario(without=("autoscale", "fleet", "rate_scale", "request_rate", *SEARCHED, *CLOSED_LOOP, "num_prompts",
                         "num_warmups"))
@takes(Reading)
def probe(
    trace: TraceArgument,
    scenario: Scenario,
    slo: CapacitySloOption,
    attainment: AttainmentOption = DEFAULT_ATTAINMENT,
    *,
    results: Annotated[str, typer.Option(help="File that the benchmarks append their results to.")] = "probe.json",
    script: Annotated[Path | None, typer.Option(help="Write the benchmarks' commands to this shell script.")] = None,
    reading: Reading,
    json: JsonOption = None,
) -> None:
    """Name three benchmarks that test this deployment's capacity, and the numbers that they should give.

    `planner validate` on their results gives the verdict. --interval is the level of the intervals (0.8).

    Example: planner probe chat --model llama-3.1-8b --gpu h100-sxm --slo "ttft:500 tpot:50"
    """
    from planner.commands import actions

    actions.probe(trace, scenario, slo, attainment, results, script, reading, json)


@shows_progress
@keeps_answers
@takes(Choices, SHARED)
@takes(Reading)
def share(
    cluster: Annotated[Path, typer.Argument(metavar="CLUSTER.toml", help="TOML file with two parts: gpus has the "
                                            "number of each GPU, and deployment.NAME the trace, slo and model of each "
                                            "deployment.")],
    minimize: Annotated[str, typer.Option(help="gpus: the fewest GPUs, then the lowest cost. cost: the lowest cost, "
                                          "then the fewest GPUs.")] = "gpus",
    *,
    choices: Choices,
    reading: Reading,
    json: JsonOption = None,
) -> None:
    """How do deployments of several models share the GPUs of one cluster?

    Each deployment gets replicas of one kind, within its SLO. If the GPUs do not suffice, the answer is the largest
    share of every load that they serve, and the GPUs to add. Exit code 1 in this case. --format, --column, --where and
    --on-bad-rows hold for all traces. A table may have keys of its own.

    Example: planner share cluster.toml --minimize cost
    """
    from planner.commands import actions

    raise typer.Exit(0 if actions.share(cluster, choices, minimize, reading, json) else 1)


@shows_progress
@keeps_answers
@takes_scenario(without=("tensor_parallel_size", "prefill_replicas", "session_start_fraction",
                         *SEARCHED, *MEASURING, "num_prompts", "num_warmups"))
@takes(Choices)
@takes(Reading)
def size(
    trace: TraceArgument,
    scenario: Scenario,
    slo: CapacitySloOption,
    attainment: AttainmentOption = DEFAULT_ATTAINMENT,
    *,
    choices: Choices,
    reading: Reading,
    json: JsonOption = None,
    write: Annotated[str | None, typer.Option(
        help="Write the cheapest fleet as a deployment file: k8s, compose, dynamo, dgdr, kserve, helm, llm-d; or, with "
             "the rules of --autoscale, keda or hpa. With a path if wanted: k8s=llm.yaml.")] = None,
) -> None:
    """How many GPUs serve this traffic within the SLO, and which fleet is the cheapest?

    --gpu and --quantization take lists. The default router is random, like a Kubernetes Service. --request-rate,
    --rate-scale and --rate-series change the rate by the method of --scaling. --max-concurrency and --max-sessions
    give a number of users in place of a rate. --fleet takes two pools whose conditions leave a threshold of the prompt
    length open, and finds it. Exit code 1 if no fleet meets the SLO.

    Example: planner size chat --request-rate 60 --model llama-3.1-8b --slo "ttft:500 tpot:50" --gpu h100-sxm,l40s
    """
    from planner.commands import actions

    met = actions.size(trace, scenario, slo, attainment, choices, reading, json, write)
    raise typer.Exit(0 if met else 1)


@shows_progress
@keeps_answers
@takes_scenario(without=("autoscale", "fleet", "prefill_replicas", "rate_scale", "request_rate", "interval",
                         *SEARCHED, *CLOSED_LOOP))
@takes(Rollouts)
@takes(Choices, ("prices",))
@takes(Reading)
def rollouts(
    trace: TraceArgument,
    scenario: Scenario,
    *,
    rollouts: Rollouts,
    choices: Choices,
    reading: Reading,
    json: JsonOption = None,
) -> None:
    """How many generators keep the trainer of reinforcement learning busy, and how much time do stragglers take?

    Each row of the trace is a sample, with its prompt and output length. Exit code 1 if no number of generators keeps
    the trainer busy.

    Example: planner rollouts rollouts --model qwen3-8b --gpu h100-sxm --prompts 64 --trainer-time 300
    """
    from planner.commands import actions

    raise typer.Exit(0 if actions.rollouts(trace, scenario, rollouts, choices, reading, json) else 1)
