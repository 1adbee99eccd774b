"""An engine's own log: what lines of statistics (vLLM, SGLang) and of iterations (TensorRT-LLM) say of decodes."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from planner.errors import TraceError
from planner.traces.source import text_lines

TABLES = (".csv", ".json", ".jsonl", ".parquet", ".prom")  # of files that hold no log
FEWER = 0.05  # of the requests, that may have left between two lines

VLLM = re.compile(r"(?:(Engine \d+): )?Avg prompt throughput: (\d+(?:\.\d+)?) tokens/s, Avg generation throughput: "
                  r"(\d+(?:\.\d+)?) tokens/s, Running: (\d+) reqs,.* GPU KV cache usage: (\d+(?:\.\d+)?)%")
VLLM_ACCEPTED = re.compile(r"Mean acceptance length: (\d+(?:\.\d+)?)")
SGLANG = re.compile(r"\[[-\d: .,]*([A-Z][A-Z\d ]*)?\] (Decode|Prefill) batch\b")
SGLANG_RUNNING = re.compile(r"#running-req: (\d+)")
SGLANG_CONTEXT = re.compile(r"#(?:full )?token: (\d+)")
SGLANG_ACCEPTED = re.compile(r"accept len: (\d+(?:\.\d+)?)")
SGLANG_SPEED = re.compile(r"gen throughput \(token/s\): (\d+(?:\.\d+)?)")
TRTLLM = re.compile(r"\biter = (\d+), .*host_step_time = ")
TRTLLM_RANK = re.compile(r"\bglobal_rank = (\d+)")
TRTLLM_SCHEDULED = re.compile(r"num_scheduled_requests\s*[:=] (\d+)")
TRTLLM_STEP = re.compile(r"prev_device_step_time = (\d+(?:\.\d+)?)ms")
TRTLLM_PROMPTS = re.compile(r"'num_ctx_tokens': (\d+)")
TRTLLM_CACHED = re.compile(r"'?cached_kv_(?:tokens|len)'?\s*[:=] (\d+)")
TRTLLM_SHARE = re.compile(r"kv_cache_util = (\d+(?:\.\d+)?)")
KV_TOKENS = (re.compile(r"GPU KV cache size: ([\d,]+) tokens"),
             re.compile(r"max tokens in paged KV cache \(([\d,]+)\)"))

WITH_PROMPTS, CHANGED, NOTHING = "with prompts", "whose requests changed", "without requests"
NO_CONTEXT, TOGETHER = "whose lines say no context", "of several engines together"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Decodes alone, of one rank.

    Parameters
    ----------
    line : of the log, that tells of them [1].
    num_decodes : sequences that run [1].
    context_tokens : theirs together, or None [tokens].
    kv_share : of the KV cache that they hold, where the context is not told [1].
    tokens_per_decode : that a sequence emits in a step, drafts that were accepted among them; None without drafts [1].
    step_s : mean duration of a step [s].
    """

    line: int
    num_decodes: float
    context_tokens: float | None
    kv_share: float | None = None
    tokens_per_decode: float | None = None
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLog:
    """What a log tells.

    Parameters
    ----------
    engine : whose it is.
    windows : of decodes alone.
    left_out : how many more windows there are, by what is against them.
    kv_tokens : KV cache that the log states; None where it states none [tokens].
    """

    engine: str
    windows: tuple[Window, ...]
    left_out: Mapping[str, int]
    kv_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One line of statistics, of what a rank did since the one before; as `Window`."""

    line: int
    num_decodes: int
    context_tokens: float | None = None
    kv_share: float | None = None
    tokens_per_decode: float | None = None
    tokens_per_s: float
    has_prompts: bool


Found = Iterator[Window | str]
Lines = Iterator[tuple[int, str]]


def engine_of_log(path: Path) -> str | None:
    """Return the engine whose log a file is, by its first line of statistics; None where it has none."""
    if not path.is_file() or path.suffix in TABLES:
        return None
    try:
        return next((engine for _, line in text_lines(path) if (engine := _engine(line)) is not None), None)
    except TraceError:
        return None  # whoever reads the file says what is wrong with it


def read_server_log(path: Path) -> ServerLog:
    """Read what a log tells of decodes.

    vLLM writes a line every ten seconds (`VLLM_LOG_STATS_INTERVAL`), SGLang one every forty decodes
    (`--decode-log-interval`) and one for each prefill, TensorRT-LLM one for each iteration with `print_iter_log`.
    Between two lines the mean duration of a step is sequences · tokens that each emits / tokens a second, if nothing
    but decodes ran and no more than FEWER of the sequences ended.

    Source: vLLM's `LoggingStatLogger`, SGLang's `log_decode_stats`, TensorRT-LLM's `PyExecutor._profiler`, whose
    `prev_device_step_time` is of the iteration before.

    Raises
    ------
    TraceError : the file cannot be read, or is no such log.
    """
    engine = engine_of_log(path)
    if engine is None:
        raise TraceError(f"{path}: has no line of an engine's statistics; must be the log of vLLM, of SGLang or, with "
                         f"print_iter_log, of TensorRT-LLM")
    stated: list[str] = []
    found = list(READERS[engine](_noting(text_lines(path), stated)))
    return ServerLog(engine=engine, windows=tuple(each for each in found if isinstance(each, Window)),
                     left_out=Counter(each for each in found if isinstance(each, str)),
                     kv_tokens=int(stated[-1].replace(",", "")) if stated else None)


def _noting(lines: Lines, stated: list[str]) -> Lines:
    """Yield lines, and note what they state of the KV cache."""
    for number, line in lines:
        stated += [match[1] for pattern in KV_TOKENS if (match := pattern.search(line))]
        yield number, line


def _engine(line: str) -> str | None:
    if "Avg generation throughput" in line and VLLM.search(line):
        return "vllm"
    if " batch" in line and SGLANG.search(line):
        return "sglang"
    return "trtllm" if "host_step_time" in line and TRTLLM.search(line) else None


def _vllm(lines: Lines) -> Found:
    looks: dict[str, list[Look]] = {}
    rank = ""
    for number, line in lines:
        if "Engines Aggregated" in line:
            yield TOGETHER
        elif match := VLLM.search(line):
            rank = match[1] or ""
            looks.setdefault(rank, []).append(Look(
                line=number, num_decodes=int(match[4]), kv_share=float(match[5]) / 100, tokens_per_s=float(match[3]),
                has_prompts=float(match[2]) > 0 or "Preemptions:" in line))
        elif looks and (match := VLLM_ACCEPTED.search(line)):  # of the line before
            looks[rank][-1] = replace(looks[rank][-1], tokens_per_decode=float(match[1]))
    for each in looks.values():
        yield from _between(each)


def _sglang(lines: Lines) -> Found:
    looks: dict[str, list[Look]] = {}
    prefilled: set[str] = set()
    for number, line in lines:
        match = SGLANG.search(line)
        if match is None:
            continue
        rank = match[1] or ""
        running, context, speed = (p.search(line) for p in (SGLANG_RUNNING, SGLANG_CONTEXT, SGLANG_SPEED))
        if match[2] == "Prefill" or running is None or context is None or speed is None:
            prefilled.add(rank)
            continue
        accepted = SGLANG_ACCEPTED.search(line)
        looks.setdefault(rank, []).append(Look(
            line=number, num_decodes=int(running[1]), context_tokens=float(context[1]), tokens_per_s=float(speed[1]),
            tokens_per_decode=float(accepted[1]) if accepted else None, has_prompts=rank in prefilled))
        prefilled.discard(rank)
    for each in looks.values():
        yield from _between(each)


def _between(looks: list[Look]) -> Found:
    """Yield what ran between each line of a rank and the next, or what is against it."""
    for before, now in pairwise(looks):
        most = max(before.num_decodes, now.num_decodes)
        if now.has_prompts:
            yield WITH_PROMPTS
        elif most == 0 or now.tokens_per_s <= 0:
            yield NOTHING
        elif abs(now.num_decodes - before.num_decodes) > FEWER * most:
            yield CHANGED
        else:
            running = (before.num_decodes + now.num_decodes) / 2
            yield Window(line=now.line, num_decodes=running, tokens_per_decode=now.tokens_per_decode,
                         step_s=running * (now.tokens_per_decode or 1.0) / now.tokens_per_s,
                         context_tokens=_mean(before.context_tokens, now.context_tokens),
                         kv_share=_mean(before.kv_share, now.kv_share))


def _mean(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else (one + other) / 2


def _trtllm(lines: Lines) -> Found:
    before: dict[str, tuple[int, int, str]] = {}
    for number, line in lines:
        match = TRTLLM.search(line)
        if match is None:
            continue
        ranked, step = TRTLLM_RANK.search(line), TRTLLM_STEP.search(line)
        rank = ranked[1] if ranked else "0"
        last = before.get(rank)
        before[rank] = (number, int(match[1]), line)
        if last is not None and step is not None and int(match[1]) == last[1] + 1:
            yield _iteration(last[0], last[2], float(step[1]) / 1e3)


def _iteration(number: int, line: str, step_s: float) -> Window | str:
    """Return what an iteration held, or what is against it."""
    scheduled, prompts = TRTLLM_SCHEDULED.search(line), TRTLLM_PROMPTS.search(line)
    cached, share = TRTLLM_CACHED.search(line), TRTLLM_SHARE.search(line)
    if scheduled is None or int(scheduled[1]) == 0 or step_s <= 0:
        return NOTHING
    if prompts is None or int(prompts[1]) > 0:
        return WITH_PROMPTS
    if cached is None and share is None:
        return NO_CONTEXT
    return Window(line=number, num_decodes=int(scheduled[1]), step_s=step_s,
                  context_tokens=float(cached[1]) if cached else None, kv_share=float(share[1]) if share else None)


READERS: Mapping[str, Callable[[Lines], Found]] = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}
