"""The load of lanes: coding-agent sessions that are live at once, each turn's prompt the one before it and more."""

import functools
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import UsageError
from planner.traces import Trace
from planner.traces.synthesis.conversations import block_ids
from planner.traces.table import account_of

# InferenceX's recorded Claude-Code sessions (agentic runs of DeepSeek-R1): the mean prompt of 41 first turns, and the
# standard deviation of the logarithm of the new tokens of 597 later turns.
FIRST_PROMPT_TOKENS = 26_700
ADDED_SPREAD = 1.35
BLOCK_TOKENS = 64
NUM_DRAWS = 64  # at most, until the first prompt of one is within a factor of 2 of the intended one


class Lanes(NamedTuple):
    """Live sessions and the means of their turns.

    Parameters
    ----------
    lanes, turns : sessions live at once, and turns that each lane sends after its opening [1].
    prompt, output : mean lengths [tokens].
    hit_rate : share of prompt tokens that an endless cache has [1].
    spread : standard deviation of the logarithm of outputs [1].
    pause_s : between an answer and the next turn [s].
    """

    lanes: int
    turns: int
    prompt: float
    output: float
    hit_rate: float
    spread: float
    pause_s: float


def load_of_lanes(name: str, lanes: Lanes) -> Trace:
    """Return the turns of all lanes, the opening of each lane first, then its next turn …

    A lane begins inside a session: its opening only puts that prompt into the cache. A prompt has the prompt before
    it, the answer, and new text. The number of turns of a session follows from the mean prompt and FIRST_PROMPT_TOKENS.
    Then the lane starts anew.

    Raises
    ------
    UsageError : no sessions have the means, for example if the hit rate leaves no room for answers in prompts.
    """
    new = (1 - lanes.hit_rate) * lanes.prompt
    first = min(FIRST_PROMPT_TOKENS, lanes.prompt / 2)
    turns = max(round((2 * lanes.prompt - first) / max(new, 1.0)), 1)
    possible: list[tuple[Any, Any, Any]] = []
    for seed in range(NUM_DRAWS):
        if (draw := _drawn(lanes, turns, new, seed)) is not None:
            possible.append(draw)
            if first / 2 <= draw[0].min() <= 2 * first:
                break
    if not possible:
        raise UsageError(f"hit rate = {lanes.hit_rate:.4g}: {new:,.0f} of {lanes.prompt:,.0f} tokens of a prompt are "
                         f"new, and no growing sessions with answers of {lanes.output:,.0f} tokens have these means; "
                         f"correct the row's lengths or its theoretical_hit_rate")
    return _trace(name, lanes, *min(possible, key=lambda draw: abs(float(draw[0].min()) - first)))


def _drawn(lanes: Lanes, turns: int, new: float, seed: int) -> tuple[Any, Any, Any] | None:
    """Return prompts, outputs and numbers of sessions [turn, lane]; None if no prompts have the means.

    Prompts are linear in the length of the first and in the mean of new text, which the two means determine.
    """
    rng = np.random.default_rng(seed)
    shape = (lanes.turns + 1, lanes.lanes)
    place = rng.permutation(lanes.lanes) * turns // lanes.lanes + np.arange(shape[0])[:, None]
    outputs = np.ones(shape)
    outputs[1:] = np.maximum(np.rint(lanes.output * _spread(lanes.turns * lanes.lanes, lanes.spread, rng)), 1).reshape(
        lanes.turns, lanes.lanes)
    texts = _spread(shape[0] * shape[1], ADDED_SPREAD, rng).reshape(shape)
    is_first = place % turns == 0
    texts[is_first] = 0.0
    answers = np.where(is_first, 0.0, np.concatenate((np.zeros((1, shape[1])), outputs[:-1])))
    texts[0], answers[0] = place[0] % turns, place[0] % turns * lanes.output  # all that came before the opening
    before, added = _within(answers, is_first), _within(texts, is_first)
    equations = np.array([[1.0, added[1:].mean()], [is_first[1:].mean(), texts[1:].mean()]])
    means = np.array([lanes.prompt - before[1:].mean(), new - answers[1:].mean()])
    first, text = np.linalg.lstsq(equations, means, rcond=None)[0]
    if first < 1 or text < 0 or not np.allclose(equations @ (first, text), means, atol=1.0):
        return None
    return np.rint(first + text * added + before).astype(np.int64), outputs.astype(np.int64), place // turns


def _spread(count: int, spread: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the quantiles of a log-normal distribution with mean 1, in random order [count]."""
    values = np.exp(spread * _quantiles(count))
    return np.asarray(rng.permutation(values / values.mean()))


@functools.cache
def _quantiles(count: int) -> NDArray[np.float64]:
    """Return quantiles of the normal distribution in the middles of equal shares [count]."""
    return np.array([NormalDist().inv_cdf((k + 0.5) / count) for k in range(count)])


def _within(values: Any, is_first: Any) -> Any:
    """Return the sum of the values of a session up to each turn [turn, lane]."""
    total = np.cumsum(values, axis=0)
    return total - np.maximum.accumulate(np.where(is_first, total, 0.0), axis=0)


def _trace(name: str, lanes: Lanes, prompts: Any, outputs: Any, sessions: Any) -> Trace:
    """Return a trace of prompts and outputs [turn, lane]: each turn waits for its lane's turn before it."""
    turn, lane = (grid.ravel() for grid in np.indices(prompts.shape))
    table = pl.DataFrame({
        "arrival_s": np.zeros(prompts.size), "input_tokens": prompts.ravel(), "output_tokens": outputs.ravel(),
        "max_output_tokens": outputs.ravel(),
        "request_id": np.arange(prompts.size, dtype=np.uint32), "session_id": lane.astype(str),
        "think_time_s": np.where(turn > 0, lanes.pause_s, np.nan)}).with_columns(pl.col("think_time_s").fill_nan(None))
    session = sessions.ravel() * lanes.lanes + lane
    prefix = block_ids(prompts.ravel(), np.stack((session, session, session)), np.zeros((2, prompts.size), np.int64),
                       BLOCK_TOKENS)
    account = account_of(table, source=name, format="lanes", rows_read=table.height, dropped={}, ignored_columns=())
    return Trace(requests=table, prefix=prefix, source=name, format="lanes", sha256="", account=account)


def counted_window(records: Any, num_lanes: int) -> tuple[NDArray[np.bool_], float]:
    """Return which requests of a replay of `load_of_lanes` count, and how long this time is [s].

    It begins when all openings are answered, and ends when the first lane has no more turns.
    """
    begin_s, end_s = float(records.finished_s[:num_lanes].max()), float(records.finished_s[-num_lanes:].min())
    return (records.arrival_s >= begin_s) & (records.arrival_s < end_s), end_s - begin_s
