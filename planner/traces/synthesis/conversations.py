"""Requests drawn from a hand-written workload: independent ones, or conversations over a tree of prefixes."""

from typing import Any

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from planner.traces.prefix_ids import PrefixIds, intern_ids
from planner.traces.synthesis.drawn_requests import request_table
from planner.traces.synthesis.spec import Arrivals, Lengths, Sessions, Spec

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def draw_spec(spec: Spec, rng: Generator) -> tuple[pl.DataFrame, PrefixIds | None]:
    """Draw a hand-written workload's requests in order of arrival, and their prefix ids if they converse."""
    return _independent(spec, rng) if spec.sessions is None else _conversations(spec, spec.sessions, rng)


def _independent(spec: Spec, rng: Generator) -> tuple[pl.DataFrame, None]:
    arrival_s = _arrivals(spec.arrivals, spec.arrivals.rate_per_s, spec.duration_s, rng)
    input_tokens = np.minimum(_draw(spec.input_tokens, len(arrival_s), rng), spec.maximum_input_tokens)
    return request_table(arrival_s, input_tokens, _draw(spec.output_tokens, len(arrival_s), rng), {}), None


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
    prefix = block_ids(input_tokens, owners, ends, sessions.block_tokens)
    names = pl.Series(session).cast(pl.String)
    return request_table(arrival_s[order], input_tokens, answered[order], {"session_id": names}), prefix


def _before(values: Any, first: Ints) -> Any:
    """Sum of a session's values before each row; `first` is the row of the session's first turn."""
    total = np.concatenate(([0], np.cumsum(values)))[:-1]
    return total - total[first]


def _prefixes(sessions: Sessions, num: int, rng: Generator) -> tuple[Ints, Ints, Ints, Ints]:
    """Choose each conversation's system prompt and document (-1: none): their numbers, and the end of each [tokens]."""
    system_tokens = _draw(sessions.system_tokens, sessions.num_systems, rng)
    document_tokens = _draw(sessions.document_tokens, sessions.num_documents, rng)
    owner = _zipf(sessions.num_systems, sessions.popularity, sessions.num_documents, rng)
    document = _zipf(sessions.num_documents, sessions.popularity, num, rng)
    alone = rng.random(num) >= sessions.document_frac
    system = np.where(alone, _zipf(sessions.num_systems, sessions.popularity, num, rng), owner[document])
    shared_tokens = system_tokens[system] + np.where(alone, 0, document_tokens[document])
    return system, np.where(alone, -1, document), system_tokens[system], shared_tokens


def _zipf(num_choices: int, exponent: float, num: int, rng: Generator) -> Ints:
    edges = np.cumsum(np.arange(1, num_choices + 1) ** -float(exponent))
    chosen: Ints = np.searchsorted(edges / edges[-1], rng.random(num), side="right").astype(np.int64)
    within: Ints = np.minimum(chosen, num_choices - 1)
    return within


def block_ids(input_tokens: Ints, owners: Ints, ends: Ints, block_tokens: int) -> PrefixIds:
    """Name every block of every prompt by the owner of its content: system prompt, document or conversation.

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
