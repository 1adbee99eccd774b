"""The benchmark client's load: random prompts of given lengths, all there at the start, a limited number in flight."""

import dataclasses
import hashlib
import math

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.settings.scenario import Scenario, given_options
from planner.traces.reading import BadRows, read_trace
from planner.traces.results import generates
from planner.traces.table import Trace, account_of

NAME = "random"
# Defaults of `vllm bench serve --dataset-name random` (vllm/benchmarks/datasets, vllm/benchmarks/serve.py).
DEFAULTS = {"num_prompts": 1000, "random_input_len": 1024, "random_output_len": 128, "random_range_ratio": 0.0}
OPTIONS = (*DEFAULTS, "num_warmups", "seed")
# Options for which the seed draws something of any trace.
ALSO_DRAW = {"num_speculative_tokens", "retry_jitter_factor", "router", "fleet", "scaling", "session_start_fraction"}

Ints = NDArray[np.int64]


def read_load(source: str, scenario: Scenario, format: str | None, on_bad_rows: BadRows) -> Trace:
    """Read a trace, a bundled sample by its name, or make the client's load for `random`.

    Raises
    ------
    TraceError, UsageError : as `trace.read_trace`; an option of the random load is given with a recorded trace.
    """
    if source == NAME:
        return client_load(scenario)
    refuse_client_options(scenario, source)
    return read_trace(source, format=format, on_bad_rows=on_bad_rows, has_outputs=generates(scenario))


def client_load(scenario: Scenario) -> Trace:
    """Return the load that a scenario's client options describe, before its rate or its concurrency is applied.

    Raises
    ------
    UsageError : an option is out of range.
    """
    if (scenario.num_warmups or 0) < 0:
        raise UsageError(f"--num-warmups {scenario.num_warmups}; must be at least 0")
    options = {name: getattr(scenario, name) for name in DEFAULTS}
    chosen = {name: DEFAULTS[name] if value is None else value for name, value in options.items()}
    return random_load(
        num_prompts=int(chosen["num_prompts"]), input_tokens=int(chosen["random_input_len"]),
        output_tokens=int(chosen["random_output_len"]), range_ratio=chosen["random_range_ratio"],
        seed=scenario.seed or 0)


def refuse_client_options(scenario: Scenario, source: str) -> None:
    """Raise UsageError if options of the random load are given with a recorded trace."""
    names = given_options(scenario).keys()
    for name in OPTIONS:
        if name in names and not (name == "seed" and names & ALSO_DRAW):
            option = f"--{name.replace('_', '-')}"
            instead = "; --limit keeps the first requests" if name == "num_prompts" else ""
            raise UsageError(f"{option} {getattr(scenario, name)}: describes the TRACE `random`, and {source} is "
                             f"recorded{instead}")


def random_lengths(tokens: int, range_ratio: float, num_prompts: int, rng: np.random.Generator) -> Ints:
    """Draw lengths as `vllm bench serve --random-range-ratio` does: uniform integers in tokens · [1 − r, 1 + r].

    Raises
    ------
    UsageError : `tokens` below 1, or a ratio outside [0, 1).
    """
    if tokens < 1:
        raise UsageError(f"a random length of {tokens} tokens; must be at least 1")
    if not 0 <= range_ratio < 1:
        raise UsageError(f"--random-range-ratio {range_ratio}; must be in [0, 1)")
    low, high = math.floor(tokens * (1 - range_ratio)), math.ceil(tokens * (1 + range_ratio))
    return rng.integers(max(low, 1), high + 1, num_prompts)


def lower_range_lengths(tokens: int, range_ratio: float, num_prompts: int, rng: np.random.RandomState) -> Ints:
    """Draw lengths as SGLang's `bench_serving` and InferenceX do: uniform integers in [r · tokens, tokens].

    >>> lower_range_lengths(100, 1.0, 3, np.random.RandomState(0)).tolist()
    [100, 100, 100]
    """
    drawn: Ints = rng.randint(max(int(tokens * range_ratio), 1), tokens + 1, num_prompts)
    return drawn


def burst(input_tokens: Ints, output_tokens: Ints, source: str) -> Trace:
    """Return requests that are all there at 0 s: the load of a client that only limits the requests in flight.

    Parameters
    ----------
    input_tokens, output_tokens : shape [num_prompts].
    source : name of the trace.
    """
    table = pl.DataFrame({
        "arrival_s": np.zeros(len(input_tokens)),
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "max_output_tokens": output_tokens,
        "request_id": np.arange(len(input_tokens), dtype=np.uint32),
    })
    account = account_of(table, source=source, format=NAME, rows_read=table.height, dropped={}, ignored_columns=())
    sha256 = hashlib.sha256(np.concatenate((input_tokens, output_tokens)).tobytes()).hexdigest()
    return Trace(requests=table, prefix=None, source=source, format=NAME, sha256=sha256, account=account)


def random_load(*, num_prompts: int, input_tokens: int, output_tokens: int, range_ratio: float, seed: int) -> Trace:
    """Return the load of `vllm bench serve --dataset-name random`, before its rate or its concurrency is applied.

    >>> load = random_load(num_prompts=3, input_tokens=100, output_tokens=10, range_ratio=0.0, seed=0)
    >>> load.requests["input_tokens"].to_list()
    [100, 100, 100]
    """
    if num_prompts < 1:
        raise UsageError(f"--num-prompts {num_prompts}; must be at least 1")
    rng = np.random.default_rng(_checked(seed))
    inputs = random_lengths(input_tokens, range_ratio, num_prompts, rng)
    outputs = random_lengths(output_tokens, range_ratio, num_prompts, rng)
    return burst(inputs, outputs, NAME)


def lower_range_load(*, num_prompts: int, input_tokens: int, output_tokens: int, range_ratio: float, seed: int,
                     source: str) -> Trace:
    """Return the load of SGLang's `bench_serving`, or with a ratio of 0.8 and seed 0 of InferenceX."""
    rng = np.random.RandomState(_checked(seed))
    inputs = lower_range_lengths(input_tokens, range_ratio, num_prompts, rng)
    return burst(inputs, lower_range_lengths(output_tokens, range_ratio, num_prompts, rng), source)


def at_client_rate(trace: Trace, rate_per_s: float, *, seed: int, burstiness: float = 1.0) -> Trace:
    """Send a client's requests at a mean rate, as `vllm bench serve --request-rate` does (get_request in serve.py).

    Gaps are gamma-distributed with shape `burstiness`, exponential at 1 (a Poisson process), and then stretched so
    that the last of n requests is sent at n / rate.

    Parameters
    ----------
    rate_per_s : inf sends all at 0 [1/s].

    Raises
    ------
    UsageError : the rate or the burstiness is not above 0.
    """
    if not rate_per_s > 0 or not 0 < burstiness < math.inf:
        raise UsageError(f"request rate = {rate_per_s}, burstiness = {burstiness}; must be above 0 (a rate of inf "
                         f"sends all at once)")
    if math.isinf(rate_per_s):
        return trace
    n = trace.num_requests
    gaps_s = np.random.RandomState(_checked(seed)).gamma(burstiness, 1.0 / (rate_per_s * burstiness), n)
    sent_at_s = np.cumsum(gaps_s)
    sent_at_s *= n / rate_per_s / sent_at_s[-1]
    return dataclasses.replace(trace, requests=trace.requests.with_columns(pl.Series("arrival_s", sent_at_s)),
                               zero_at_s=None)


def _checked(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise UsageError(f"--seed {seed}; must be in [0, 2^32)")
    return seed
