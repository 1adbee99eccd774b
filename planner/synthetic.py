"""Generated traces: a small TOML spec and a seed give the same requests every time; the bundled samples are such."""

import dataclasses
import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from planner.catalog import data_dir
from planner.errors import CatalogError, UnknownNameError, UsageError
from planner.trace.prefix import PrefixIds, intern_ids
from planner.trace.table import Trace, account_of

GENERATOR = 1  # goes into each trace's hash: raise it with every change that alters what a spec gives
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_T = TypeVar("_T")


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
        _positive("weights", *self.weights)
        _positive("medians_tokens", *self.medians_tokens)
        _positive("sigmas", *self.sigmas)
        _positive("maximum_tokens", self.maximum_tokens)


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
                _positive(field.name, getattr(self, field.name))
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
            if field.name not in ("system_tokens", "document_tokens"):
                _positive(field.name, getattr(self, field.name))
        if self.document_frac > 1:
            raise UsageError(f"document_frac = {self.document_frac}; must be <= 1")
        if self.mean_turns < 1:
            raise UsageError(f"mean_turns = {self.mean_turns}; must be >= 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a generated trace is drawn from.

    Parameters
    ----------
    name : name of the trace.
    meaning, imitates : one line about it, and the published statistics that its parameters were chosen to resemble.
    seed : of the PCG64 generator.
    duration_s : arrivals fall in [0, duration_s) [s].
    arrivals : of requests, or of conversations where there are `sessions` (the rate is of requests either way).
    input_tokens : prompts, or what the user adds in a turn where there are `sessions`.
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
        _positive("duration_s", self.duration_s)
        _positive("maximum_input_tokens", self.maximum_input_tokens)
        if not isinstance(self.seed, int) or self.seed < 0:
            raise UsageError(f"seed = {self.seed!r}; must be a whole number >= 0")


def _positive(name: str, *values: float) -> None:
    for value in values:
        if not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise UsageError(f"{name} = {value!r}; must be a number, finite and > 0")


def sample_names() -> list[str]:
    """Names of the bundled samples, sorted."""
    return sorted(path.stem for path in data_dir("workloads").glob("*.toml"))


def load_sample(name: str) -> Trace:
    """Generate a bundled sample.

    Raises
    ------
    UnknownNameError : there is no such sample.
    """
    if name not in sample_names():
        raise UnknownNameError("sample trace", name, sample_names())
    return generate(read_spec(data_dir("workloads") / f"{name}.toml"), seed=None)


def read_spec(path: Path) -> Spec:
    """Read a spec from TOML; its keys are the fields of `Spec`, its name is the file's.

    Raises
    ------
    CatalogError : the file is missing, is not TOML, or a key or value in it is wrong.
    """
    try:
        text = path.read_bytes()
        table = tomllib.loads(text.decode())
        parts: dict[str, Any] = {"name": path.stem, "sha256": hashlib.sha256(text).hexdigest(), "sessions": None}
        return _spec({**parts, **table})
    except OSError as error:
        raise CatalogError(f"workload {path}: {error.strerror}; give the path of a readable TOML file") from None
    except (ValueError, TypeError, UsageError) as error:
        raise CatalogError(f"workload {path}: {error}") from None


def _spec(table: dict[str, Any]) -> Spec:
    for key in ("input_tokens", "output_tokens"):
        table[key] = _lengths(table.get(key), key)
    table["arrivals"] = _fill(Arrivals, table.get("arrivals"), "arrivals")
    sessions = table["sessions"]
    if sessions is not None:
        for key in ("system_tokens", "document_tokens"):
            sessions = {**sessions, key: _lengths(sessions.get(key), f"sessions.{key}")}
        table["sessions"] = _fill(Sessions, sessions, "sessions")
    return _fill(Spec, table, "the spec")


def _lengths(table: Any, where: str) -> Lengths:
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in dict(table or {}).items()}
    return _fill(Lengths, lists, where)


def _fill(cls: type[_T], table: Mapping[str, Any] | None, where: str) -> _T:
    """Make a dataclass of a table that has exactly its fields."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in table or {}:
        if key not in names:
            raise UnknownNameError(f"key in {where}", key, names)
    missing = [name for name in names if name not in (table or {})]
    if missing:
        raise UsageError(f"{where} lacks {', '.join(missing)}")
    return cls(**(table or {}))


def generate(spec: Spec, *, seed: int | None) -> Trace:
    """Draw a trace.

    Parameters
    ----------
    spec : what to draw from.
    seed : instead of the spec's own; None for that.

    Returns
    -------
    Trace
        the same for the same spec and seed. Its `sha256` is over the spec's text, the generator's version and the
        seed. With sessions it has `session_id` and prefix ids; arrivals are open-loop, without `parent_id`.
    """
    seed = spec.seed if seed is None else seed
    rng = Generator(PCG64(seed))
    requests, prefix = _independent(spec, rng) if spec.sessions is None else _conversations(spec, spec.sessions, rng)
    if not requests.height:
        raise UsageError(f"workload {spec.name}: no request in {spec.duration_s:g} s; raise the duration or the rate")
    mark = hashlib.sha256(f"{spec.sha256} generator {GENERATOR} seed {seed}".encode()).hexdigest()
    account = account_of(
        requests, source=spec.name, format="synthetic", rows_read=requests.height, dropped={}, ignored_columns=()
    )
    return Trace(
        requests=requests, prefix=prefix, source=spec.name, format="synthetic", sha256=mark, account=account
    )


def _independent(spec: Spec, rng: Generator) -> tuple[pl.DataFrame, None]:
    arrival_s = _arrivals(spec.arrivals, spec.arrivals.rate_per_s, spec.duration_s, rng)
    input_tokens = np.minimum(_draw(spec.input_tokens, len(arrival_s), rng), spec.maximum_input_tokens)
    return _table(arrival_s, input_tokens, _draw(spec.output_tokens, len(arrival_s), rng), {}), None


def _table(arrival_s: Floats, input_tokens: Ints, output_tokens: Ints, more: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Build the request table, rounded to microseconds as a log would be; rows are sorted already."""
    return pl.DataFrame({
        "arrival_s": arrival_s.round(6),
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "request_id": pl.Series(np.arange(len(arrival_s))).cast(pl.String),
        **more,
    })


def _arrivals(arrivals: Arrivals, rate_per_s: float, duration_s: float, rng: Generator) -> Floats:
    """Draw sorted arrivals: gaps of mean 1 on an operational clock, which then runs at the current rate.

    The operational clock is the integral of wave x state, scaled to end at `rate_per_s` x `duration_s`, so that the
    mean rate does not depend on which states the seed happens to give.
    """
    grid_s = np.linspace(0.0, duration_s, max(int(duration_s * 4), 64) + 1)
    wave = 1.0 + arrivals.wave_frac * np.sin(2.0 * np.pi * (grid_s[:-1] / arrivals.wave_period_s + rng.random()))
    speed = wave * np.where(_in_burst(arrivals, duration_s, grid_s[:-1], rng), arrivals.burst_factor, 1.0)
    clock = np.concatenate(([0.0], np.cumsum(speed)))
    clock *= rate_per_s * duration_s / clock[-1]
    shape, expected = arrivals.gap_shape, rate_per_s * duration_s
    num_gaps = int(expected + 12.0 * np.sqrt(expected / shape) + 64)
    ticks = np.cumsum(rng.gamma(shape, 1.0 / shape, num_gaps))
    arrival_s: Floats = np.interp(ticks[ticks < clock[-1]], clock, grid_s)
    return arrival_s


def _in_burst(arrivals: Arrivals, duration_s: float, at_s: Floats, rng: Generator) -> NDArray[np.bool_]:
    """Whether each instant falls in a burst: states alternate, calm first."""
    mean_s = arrivals.calm_mean_s + arrivals.burst_mean_s
    num_cycles = int(duration_s / mean_s + 12.0 * np.sqrt(duration_s / mean_s) + 64)
    lengths_s = rng.exponential((arrivals.calm_mean_s, arrivals.burst_mean_s), (num_cycles, 2))
    changes_s = np.cumsum(lengths_s.ravel())
    odd: NDArray[np.bool_] = np.searchsorted(changes_s, at_s, side="right") % 2 == 1
    return odd


def _draw(lengths: Lengths, num: int, rng: Generator) -> Ints:
    """Draw token counts between 1 and the maximum."""
    edges = np.cumsum(lengths.weights) / np.sum(lengths.weights)
    part = np.minimum(np.searchsorted(edges, rng.random(num), side="right"), len(edges) - 1)
    spread = np.array(lengths.sigmas)[part] * rng.standard_normal(num)
    tokens = np.rint(np.array(lengths.medians_tokens)[part] * np.exp(spread))
    within: Ints = np.clip(tokens, 1, lengths.maximum_tokens).astype(np.int64)
    return within


def _conversations(spec: Spec, sessions: Sessions, rng: Generator) -> tuple[pl.DataFrame, PrefixIds]:
    """Draw conversations and flatten them into requests, one a turn, in order of arrival."""
    starts_s = _arrivals(spec.arrivals, spec.arrivals.rate_per_s / sessions.mean_turns, spec.duration_s, rng)
    turns = rng.geometric(1.0 / sessions.mean_turns, len(starts_s)).astype(np.int64)
    session = np.repeat(np.arange(len(turns)), turns)
    first = np.repeat(np.cumsum(turns) - turns, turns)
    system, document, system_tokens, shared_tokens = _prefixes(sessions, len(turns), rng)
    asked = _draw(spec.input_tokens, len(session), rng)
    answered = _draw(spec.output_tokens, len(session), rng)
    pause_s = sessions.think_median_s * np.exp(sessions.think_sigma * rng.standard_normal(len(session)))
    input_tokens = shared_tokens[session] + _before(asked, first) + asked + _before(answered, first)
    arrival_s = starts_s[session] + _before(answered / sessions.output_tokens_per_s + pause_s, first)
    kept = np.flatnonzero((arrival_s < spec.duration_s) & (input_tokens <= spec.maximum_input_tokens))
    order = kept[np.argsort(arrival_s[kept], kind="stable")]
    session, input_tokens = session[order], input_tokens[order]
    owners = np.stack((system[session], document[session], session))
    ends = np.stack((system_tokens[session], shared_tokens[session])) // sessions.block_tokens
    prefix = _block_ids(input_tokens, owners, ends, sessions.block_tokens)
    names = pl.Series(session).cast(pl.String)
    return _table(arrival_s[order], input_tokens, answered[order], {"session_id": names}), prefix


def _before(values: Any, first: Ints) -> Any:
    """Sum of a session's values before each row; `first` is the row of the session's first turn."""
    total = np.concatenate(([0], np.cumsum(values)))[:-1]
    return total - total[first]


def _prefixes(sessions: Sessions, num: int, rng: Generator) -> tuple[Ints, Ints, Ints, Ints]:
    """Choose each conversation's system prompt and document (-1: none): who they are, and where each ends [tokens]."""
    system_tokens = _draw(sessions.system_tokens, sessions.num_systems, rng)
    document_tokens = _draw(sessions.document_tokens, sessions.num_documents, rng)
    owner = _zipf(sessions.num_systems, sessions.popularity, sessions.num_documents, rng)
    document = _zipf(sessions.num_documents, sessions.popularity, num, rng)
    alone = rng.random(num) >= sessions.document_frac
    system = np.where(alone, _zipf(sessions.num_systems, sessions.popularity, num, rng), owner[document])
    shared_tokens = system_tokens[system] + np.where(alone, 0, document_tokens[document])
    return system, np.where(alone, -1, document), system_tokens[system], shared_tokens


def _zipf(num_choices: int, exponent: float, num: int, rng: Generator) -> Ints:
    edges = np.cumsum(np.arange(1, num_choices + 1) ** -exponent)
    chosen: Ints = np.searchsorted(edges / edges[-1], rng.random(num), side="right").astype(np.int64)
    within: Ints = np.minimum(chosen, num_choices - 1)
    return within


def _block_ids(input_tokens: Ints, owners: Ints, ends: Ints, block_tokens: int) -> PrefixIds:
    """Name every block of every prompt by who owns its content: the system prompt, the document or the conversation.

    A block that the prompt fills only in part has content that no other prompt has at that place, so its name is the
    row's own; the next turn, which fills it, names it anew.

    Parameters
    ----------
    owners : system, document and session of each request [3, num_requests].
    ends : whole blocks up to the end of the system prompt, and of the document [2, num_requests].
    """
    lengths = -(-input_tokens // block_tokens)
    row = np.repeat(np.arange(len(lengths)), lengths)
    block = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    kind = np.select([block >= (input_tokens // block_tokens)[row], block < ends[0][row], block < ends[1][row]],
                     [3, 0, 1], 2)
    owner = np.concatenate((owners, np.arange(len(lengths))[None]))[kind, row]
    name = (owner * 4 + kind) * (lengths.max(initial=0) + 1) + block
    return intern_ids([pl.Series(name)], lengths, block_tokens)
