"""Benchmarks that test a predicted capacity: their loads, their commands and their expected numbers.

A capacity rests on three things: how long a request takes alone, how fast prompts are computed, and how steps lengthen
with the requests in flight. One closed loop tests each, with the lengths of the trace's mean request.
"""

import shlex
from dataclasses import dataclass, replace

from planner.deployment.shaped_load import shape_load
from planner.deployment.starting import startable
from planner.engines import ENGINES
from planner.errors import UsageError
from planner.launch.checkpoint_format import served_name
from planner.launch.write_command import launch_command
from planner.planning.capacity import capacity
from planner.planning.probe_answer import Benchmark, ProbeAnswer
from planner.planning.search_options import Search
from planner.planning.study import Study, command_line, without_load
from planner.results.uncertainty import SUMMARY_KEYS
from planner.run import replay
from planner.settings.objectives import Objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace
from planner.traces.shaping.client_load import client_load

ROUNDS = 10  # prompts of a benchmark for each request in flight, as vLLM's recipes have
LEVEL = 0.8  # of intervals, unless --interval says otherwise
SAVING = ("--save-result", "--append-result", "--result-filename")  # a file
ALONE, PROMPTS, CAPACITY = "alone", "prompts", "capacity"
TESTS = {
    ALONE: "the time of a step and of the way to the engine: weights' format, memory bandwidth, host",
    PROMPTS: "the rate at which prompts are computed: arithmetic, kernels, token budget",
    CAPACITY: "the capacity itself: steps, batches and KV cache with as many requests in flight",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of one benchmark: requests in flight and prompts [1], prompt and output length [tokens]."""

    name: str = ""
    in_flight: int
    num_prompts: int
    input_tokens: int
    output_tokens: int


def probe(trace: Trace, scenario: Scenario, objectives: Objectives, results: str) -> ProbeAnswer:
    """Find a deployment's capacity, and the benchmarks that test it.

    Parameters
    ----------
    trace, scenario, objectives : as of `capacity.capacity`; the scenario's `interval` is the level of intervals.
    results : name of the file that the benchmarks append to.

    Raises
    ------
    UsageError : no rate meets the objectives, the model or the GPU is not given; as `capacity.capacity`.
    PlannerError : as a replay.
    """
    if scenario.model is None or scenario.gpu is None:
        raise UsageError("--model and --gpu must be given: a benchmark runs against a server with a model")
    level, plain = scenario.interval or LEVEL, replace(scenario, interval=None)
    started = startable(plain, shape_load(plain, trace))
    plain = started.scenario
    found = capacity(trace, plain, objectives, Search(replicates=0, compare_assumptions=False, seed=scenario.seed or 0))
    if not found.feasible:
        raise UsageError("no rate meets the objectives, so there is no capacity to test; `planner capacity` says which "
                         "objective is missed")
    at_capacity = replay(trace, replace(plain, request_rate=found.capacity)).summary
    in_flight = found.capacity * (at_capacity.figures.e2el.mean or 0.0) / 1e3
    lengths = trace.requests.select("input_tokens", "output_tokens").mean().row(0)
    mean_input, mean_output = (max(round(length), 1) for length in lengths)
    most = max(round(in_flight), 2)
    loads = (Load(name=name, in_flight=count, num_prompts=ROUNDS * count, input_tokens=mean_input, output_tokens=output)
             for name, count, output in ((ALONE, 1, max(mean_output, 2)), (PROMPTS, most, 1),
                                         (CAPACITY, most, max(mean_output, 2))))
    launch, lacking = launch_command(plain)
    study = Study(name="", trace=results, format=None, scenario=without_load(plain), objectives=None, notes=())
    notes = [f"lengths are those of the mean request of {trace.source}: {mean_input:,} and {mean_output:,} tokens; "
             f"lengths that vary make the capacity itself lower than these runs show"]
    notes += filter(None, [started.lowered])
    if lacking:
        notes.append(f"the launch command lacks {', '.join(lacking)}")
    return ProbeAnswer(
        capacity_rps=found.capacity, in_flight=in_flight, level=level, launch=launch,
        benchmarks=tuple(_benchmark(load, plain, level, results) for load in loads),
        verdict=command_line(study, "validate", {"interval": level}), notes=tuple(notes))


def sent_load(scenario: Scenario, load: Load) -> Scenario:
    """Return a scenario with a benchmark's closed loop."""
    return replace(scenario, max_concurrency=load.in_flight, num_prompts=load.num_prompts,
                   random_input_len=load.input_tokens, random_output_len=load.output_tokens)


def _benchmark(load: Load, scenario: Scenario, level: float, results: str) -> Benchmark:
    """Return one benchmark with the prediction of a replay of it."""
    sent = replace(sent_load(without_load(scenario), load), interval=level)
    summary = replay(client_load(sent), sent).summary
    values = summary.values_by_key
    names = [name for name in SUMMARY_KEYS if values[name] is not None]
    return Benchmark(
        name=load.name, tests=TESTS[load.name], max_concurrency=load.in_flight, num_prompts=load.num_prompts,
        random_input_len=load.input_tokens, random_output_len=load.output_tokens,
        command=benchmark_command(load, scenario, results), expected={name: float(values[name]) for name in names},
        intervals={name: getattr(summary.intervals, name) for name in names})


def benchmark_command(load: Load, scenario: Scenario, results: str) -> str:
    """Return the command of vLLM's client, which speaks to any server with OpenAI's interface."""
    backend = ENGINES[scenario.engine].package.bench_backend
    return shlex.join(["vllm", "bench", "serve", *(["--backend", backend] if backend else []),
                       "--model", served_name(scenario.model), "--dataset-name", "random",
                       "--random-input-len", str(load.input_tokens), "--random-output-len", str(load.output_tokens),
                       "--ignore-eos", "--temperature", "0",
                       "--max-concurrency", str(load.in_flight), "--num-prompts", str(load.num_prompts),
                       *SAVING, results])
