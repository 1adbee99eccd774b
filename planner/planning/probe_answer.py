"""The answer of `planner probe`: benchmarks that test a capacity, and the numbers that they should give."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from planner.files.keys import Key
from planner.results.answers import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark run."""

    name: Annotated[str, Key("", "Name: alone, prompts, capacity")]
    tests: Annotated[str, Key("", "What a wrong number would refute")]
    max_concurrency: Annotated[int, Key("1", "Requests in flight")]
    num_prompts: Annotated[int, Key("1", "Requests")]
    random_input_len: Annotated[int, Key("tokens", "Prompt length")]
    random_output_len: Annotated[int, Key("tokens", "Output length")]
    command: Annotated[str, Key("", "Command that runs it against the server on this machine, port 8000")]
    expected: Annotated[Mapping[str, float], Key("ms, tokens/s", "Expected value by the name of vLLM's client. Values "
                                                 "that the run does not have are left out")]
    intervals: Annotated[Mapping[str, tuple[float, float] | None], Key(
        "ms, tokens/s", "Interval of each expected value, from the errors of runs that no fit has seen. Null if there "
        "is none")]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProbeAnswer(Answer):
    """The output of `planner probe --json`."""

    capacity_rps: Annotated[float, Key("requests/s", "Capacity that the benchmarks test")]
    in_flight: Annotated[float, Key("1", "Mean number of requests in flight at this capacity")]
    level: Annotated[float, Key("1", "Share of measurements that an interval should hold (--interval)")]
    launch: Annotated[str, Key("", "Command that starts the server. A note names the options that have no flag")]
    benchmarks: Annotated[tuple[Benchmark, ...], Key("", "Benchmark runs, in order")]
    verdict: Annotated[str, Key("", "Command that compares the results with the predictions")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]
