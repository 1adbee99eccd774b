"""The load of an agentic run: its turns with the tokens that the server counted, and the times that count."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from planner.errors import TraceError
from planner.traces import Trace
from planner.traces.reading import trace_of
from planner.traces.times import fill_times

BLOCK_TOKENS = 64  # of known_blocks_64 and new_blocks_64
SHORTEST_TPOT_S = 1e-4  # an answer whose tokens came faster was held up on its way, and its times are not the server's
INTERVAL_S = 10.0  # of the sampler, which runs in the clients' process
PULLED_BACK = 0.9  # a turn that knows less than this of the prompt before it begins a shortened conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """How a client's counts become the tokens that the server counted.

    Parameters
    ----------
    first : the server's tokens for each that the client counted, of a conversation's first prompt [1].
    added : the same of a later turn's new tokens: the answer before it, or new text if that is longer [1].
    reading : time that the API server takes to read a token, against the random text of the engines' fits [1].
    """

    first: float = 1.0
    added: float = 1.0
    reading: float = 1.0
    keeps_answers: bool = False


# kv-cache-tester's trace_replay_tester.py (github.com/callanjfox/kv-cache-tester, docs/trace_replay_tester.md): it
# counts with Qwen2.5-Coder's tokeniser, writes down the trace's `input_tokens`, and keeps each answer in the
# conversation, so that a prompt holds the prompt before it, the answer without its reasoning, and new text if the
# answer is shorter than the trace's step. By the counters of DeepSeek-R1's servers with one and two users a first
# prompt has 1.05 tokens for each that is counted, and later turns add 0.70 to 0.79. Its text is code: the `tokenizers`
# library (0.23, Qwen's vocabulary of 151,643 entries) takes 0.79 to 0.89 µs a token of Python code and English, and
# 1.20 and 1.24 of random tokens in prompts of 1,000 and 8,000, as the fits have them.
REPLAY_TESTER = Counting(first=1.05, added=0.75, reading=0.7, keeps_answers=True)


def counting_of(client: str, requests: pl.DataFrame, samples: pl.DataFrame) -> Counting:
    """Return how a run's client counts.

    The tokens that turns add are solved from the server's count of prompt tokens if they add at least half of the first
    prompts, and all requests were answered until then.

    Parameters
    ----------
    client : command of the client.
    requests, samples : of the run, as `planner.measured.agentic` reads them.
    """
    if "trace_replay_tester" not in client:
        return Counting()
    until_s = heard_until_s(samples)
    counts = samples.filter((pl.col("time_s") <= until_s) & (pl.col("prompt_tokens_total") > 0))
    sent = requests.filter(pl.col("start_s") <= until_s)
    if not counts.height or _answered(sent).height < sent.height:
        return REPLAY_TESTER
    last_s, total = counts.sort("time_s").select("time_s", "prompt_tokens_total").row(-1)
    computed = requests.filter(pl.col("start_s") + pl.col("ttft_s") <= last_s)
    first, added = (_total(computed, replace(REPLAY_TESTER, first=f, added=a)) for f, a in ((1.0, 0.0), (0.0, 1.0)))
    if added <= first / 2:
        return REPLAY_TESTER
    return replace(REPLAY_TESTER, added=(total - REPLAY_TESTER.first * first) / added)


def heard_until_s(samples: pl.DataFrame) -> float:
    """Return until when a run's clients kept up [s]: its samples end or skip an interval; inf without samples.

    The sampler runs beside the clients. If it is silent, answers end together when it goes on: their times are the
    clients', not the server's.
    """
    times_s = np.sort(samples["time_s"].to_numpy())
    if not len(times_s):
        return math.inf
    silent = np.nonzero(np.diff(times_s) > 2 * INTERVAL_S)[0]
    return float(times_s[silent[0]] if len(silent) else times_s[-1]) + INTERVAL_S


def load_of(run: str, requests: pl.DataFrame, counting: Counting, until_s: float) -> Trace:
    """Return the requests of a run's users, with the times that they measured.

    A turn waits for the turn before it of the same user and session that was answered, and pauses as long as it did.
    Requests without an answer, or sent after `until_s`, are left out; requests answered after it keep no times.
    """
    if not requests.height:
        raise TraceError("the file of requests has no request of this run; no load can be replayed")
    rows = _answered(requests).filter(pl.col("start_s") <= until_s)
    objects = [turn for session in _sessions(rows) for turn in _turns(session, counting, until_s)]
    if not objects:
        raise TraceError(f"none of the {requests.height} requests of this run was answered; no load can be replayed")
    trace = trace_of(f"run {run}", objects, format="jsonl")
    return replace(trace, requests=fill_times(trace.requests))


def _answered(requests: pl.DataFrame) -> pl.DataFrame:
    return requests.filter((pl.col("success").str.to_lowercase() == "true") & (pl.col("output_tokens") > 0))


def _sessions(requests: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield each user's turns of a session, in the order sent."""
    for _, session in requests.group_by("user", "session_id", maintain_order=True):
        yield session.sort("start_s")


def _prompts(session: pl.DataFrame, counting: Counting) -> Iterator[tuple[Mapping[str, Any], float, float]]:
    """Yield each turn's row, the tokens of its prompt that the session had before [1], and all of its prompt [1].

    Both are linear in `first` and `added`.
    """
    prompt, before = 0.0, None
    for row in session.iter_rows(named=True):
        num_input, known = row["input_tokens"], min(BLOCK_TOKENS * row["known_blocks_64"], row["input_tokens"])
        if before is None or not counting.keeps_answers:
            kept, prompt = counting.first * known, counting.first * num_input
        elif known < PULLED_BACK * before["input_tokens"] - BLOCK_TOKENS:
            kept = prompt * known / before["input_tokens"]
            prompt = kept + counting.added * (num_input - known)
        else:
            kept = prompt
            prompt += counting.added * max(before["output_tokens"], num_input - before["input_tokens"])
        yield row, kept, prompt
        before = row


def _total(requests: pl.DataFrame, counting: Counting) -> float:
    return sum(prompt for session in _sessions(requests) for _, _, prompt in _prompts(session, counting))


def _turns(session: pl.DataFrame, counting: Counting, until_s: float) -> Iterator[dict[str, Any]]:
    """Yield the turns of one user's session as rows of a trace, with the ids of the blocks of their prompts."""
    ids: list[str] = []
    parent, ended_s = None, 0.0
    for row, kept, prompt in _prompts(session, counting):
        name = f"{row['user']}/{row['session_id']}/{row['turn']}"
        num_input, num_output = round(prompt), row["output_tokens"]
        ids = ids[:int(kept) // BLOCK_TOKENS]
        ids += [f"{name}:{k}" for k in range(len(ids), math.ceil(num_input / BLOCK_TOKENS))]
        end_s = row["start_s"] + row["e2e_s"]
        counts = end_s <= until_s and row["e2e_s"] - row["ttft_s"] >= SHORTEST_TPOT_S * max(num_output - 1, 0)
        yield {"request_id": name, "session_id": f"{row['user']}/{row['session_id']}", "arrival_s": row["start_s"],
               "input_tokens": num_input, "output_tokens": num_output, "parent_id": parent,
               "think_time_s": None if parent is None else max(row["start_s"] - ended_s, 0.0),
               "ttft_s": row["ttft_s"] if counts else None, "e2e_s": row["e2e_s"] if counts else None,
               "hash_ids": list(ids), "hash_block_tokens": BLOCK_TOKENS}
        parent, ended_s = name, end_s


def num_timed(load: Trace) -> int:
    """Return how many requests of a load have measured times [1]."""
    return int(load.requests["e2e_s"].count()) if "e2e_s" in load.requests.columns else 0


def is_warm(load: Trace) -> NDArray[np.bool_]:
    """Tell which requests of a load have a turn of their session before them."""
    if "parent_id" not in load.requests.columns:
        return np.zeros(load.num_requests, bool)
    return load.requests["parent_id"].is_not_null().to_numpy()
