"""A hand-written workload: lengths, arrivals and conversations by a few parameters."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from planner.errors import UsageError
from planner.schema import MAX_TOKENS
from planner.traces.synthesis.fields import fill, not_too_many, positive, whole

WIDEST_SIGMA = 20.0  # e to its sixth multiple still is a number


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A mixture of lognormal token counts, cut at a maximum.

    Parameters
    ----------
    weights : share of each part; the sum need not be 1 [1].
    medians_tokens : median of each part [tokens].
    sigmas : standard deviation of each part's logarithm [1].
    maximum_tokens : longer draws become this long, as a limit on context or output makes them [tokens].
    """

    weights: tuple[float, ...]
    medians_tokens: tuple[float, ...]
    sigmas: tuple[float, ...]
    maximum_tokens: int

    def __post_init__(self) -> None:
        if not len(self.weights) == len(self.medians_tokens) == len(self.sigmas) >= 1:
            raise UsageError("weights, medians_tokens and sigmas must be lists of one length, 1 or more")
        positive("weights", *self.weights)
        positive("medians_tokens", *self.medians_tokens)
        positive("sigmas", *self.sigmas)
        whole("maximum_tokens", self.maximum_tokens)
        if max(self.medians_tokens) > MAX_TOKENS or max(self.sigmas) > WIDEST_SIGMA:
            raise UsageError(f"medians_tokens must be <= {MAX_TOKENS}, and sigmas <= {WIDEST_SIGMA:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Clumped gaps on a clock that runs faster in bursts and with a slow wave.

    Parameters
    ----------
    rate_per_s : mean rate over the whole duration [1/s].
    wave_frac, wave_period_s : height of the slow wave over its mean, below 1 [1], and its period [s].
    burst_factor : rate in a burst over the rate in calm; 1 for none [1].
    burst_mean_s, calm_mean_s : mean lengths of the two states, exponential [s].
    gap_shape : shape of the Gamma-distributed gaps; 1 is Poisson, less is more clumped [1].
    """

    rate_per_s: float
    wave_frac: float
    wave_period_s: float
    burst_factor: float
    burst_mean_s: float
    calm_mean_s: float
    gap_shape: float

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name != "wave_frac":
                positive(field.name, getattr(self, field.name))
        if not 0 <= self.wave_frac < 1:
            raise UsageError(f"wave_frac = {self.wave_frac}; must be >= 0 and < 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Conversations over a tree of shared prefixes: a system prompt, mostly a document, then turns that grow.

    Parameters
    ----------
    block_tokens : tokens that one prefix id stands for [tokens].
    num_systems, num_documents : how many there are; a document belongs to one system prompt.
    system_tokens, document_tokens : their lengths.
    popularity : exponent of the Zipf law by which they are chosen [1].
    document_frac : share of conversations about a document [1].
    mean_turns : mean of the geometric number of turns.
    output_tokens_per_s : speed at which the recorded system answered, which delays the next turn [tokens/s].
    think_median_s, think_sigma : lognormal pause before the next turn [s], [1].
    """

    block_tokens: int
    num_systems: int
    num_documents: int
    system_tokens: Lengths
    document_tokens: Lengths
    popularity: float
    document_frac: float
    mean_turns: float
    output_tokens_per_s: float
    think_median_s: float
    think_sigma: float

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name in ("block_tokens", "num_systems", "num_documents"):
                whole(field.name, getattr(self, field.name))
            elif field.name not in ("system_tokens", "document_tokens"):
                positive(field.name, getattr(self, field.name))
        if self.document_frac > 1:
            raise UsageError(f"document_frac = {self.document_frac}; must be <= 1")
        if self.think_sigma > WIDEST_SIGMA or self.popularity > WIDEST_SIGMA:
            raise UsageError(f"think_sigma = {self.think_sigma}, popularity = {self.popularity}; must be <= "
                             f"{WIDEST_SIGMA:g}")
        if self.mean_turns < 1:
            raise UsageError(f"mean_turns = {self.mean_turns}; must be >= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The laws of a generated trace.

    Parameters
    ----------
    name : name of the trace.
    meaning, imitates : one line about it, and the published statistics that its parameters were chosen to resemble.
    seed : of the PCG64 generator.
    duration_s : arrivals fall in [0, duration_s) [s].
    arrivals : of requests, or of conversations if there are `sessions` (the rate counts requests either way).
    input_tokens : prompts, or the user's new tokens in a turn if there are `sessions`.
    output_tokens : answers.
    maximum_input_tokens : conversations end before a prompt grows beyond this [tokens].
    sessions : None for requests that share nothing.
    sha256 : of the spec's text.
    """

    name: str
    meaning: str
    imitates: str
    seed: int
    duration_s: float
    arrivals: Arrivals
    input_tokens: Lengths
    output_tokens: Lengths
    maximum_input_tokens: int
    sessions: Sessions | None
    sha256: str

    def __post_init__(self) -> None:
        positive("duration_s", self.duration_s)
        not_too_many(self.arrivals.rate_per_s, self.duration_s)
        whole("maximum_input_tokens", self.maximum_input_tokens)
        if not isinstance(self.seed, int) or self.seed < 0:
            raise UsageError(f"seed = {self.seed!r}; must be a whole number >= 0")


def spec_of(table: dict[str, Any]) -> Spec:
    """Make a spec of the tables of its TOML.

    Raises
    ------
    UnknownNameError, UsageError : a key is unknown or missing, or its value out of range.
    """
    for key in ("input_tokens", "output_tokens"):
        table[key] = fill(Lengths, table.get(key), key)
    table["arrivals"] = fill(Arrivals, table.get("arrivals"), "arrivals")
    sessions = table["sessions"]
    if sessions is not None:
        for key in ("system_tokens", "document_tokens"):
            sessions = {**sessions, key: fill(Lengths, sessions.get(key), f"sessions.{key}")}
        table["sessions"] = fill(Sessions, sessions, "sessions")
    return fill(Spec, table, "the spec")
