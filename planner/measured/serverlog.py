"""An engine's own log: its lines of statistics (vLLM, SGLang) and of iterations (TensorRT-LLM) about decodes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.engines import ENGINES
from planner.engines.log_lines import DecodeWindow, Lines
from planner.errors import TraceError
from planner.traces.source import text_lines

TABLES = (".csv", ".json", ".jsonl", ".parquet", ".prom")  # of files that hold no log


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLog:
    """The content of a log.

    Parameters
    ----------
    engine : the log's engine.
    windows : of decodes alone.
    left_out : number of the other windows, by the reason against them.
    kv_tokens : KV cache that the log states; None without one [tokens].
    """

    engine: str
    windows: tuple[DecodeWindow, ...]
    left_out: Mapping[str, int]
    kv_tokens: int | None


def engine_of_log(path: Path) -> str | None:
    """Return the engine whose log a file is, by its first line of statistics; None without one."""
    if not path.is_file() or path.suffix in TABLES:
        return None
    try:
        return next((engine for _, line in text_lines(path) if (engine := _engine(line)) is not None), None)
    except TraceError:
        return None  # the reader of the file reports its errors


def read_server_log(path: Path) -> ServerLog:
    """Read the windows of decodes in a log.

    Each engine's reader chooses its lines (`engines`).

    Raises
    ------
    TraceError : the file cannot be read, or is no such log.
    """
    engine = engine_of_log(path)
    if engine is None:
        raise TraceError(f"{path}: has no line of an engine's statistics; must be the log of vLLM, of SGLang or, with "
                         f"print_iter_log, of TensorRT-LLM")
    stated: list[str] = []
    parts = list(ENGINES[engine].log.read(_noting(text_lines(path), stated)))
    return ServerLog(engine=engine, windows=tuple(part for part in parts if isinstance(part, DecodeWindow)),
                     left_out=Counter(part for part in parts if isinstance(part, str)),
                     kv_tokens=int(stated[-1].replace(",", "")) if stated else None)


def _noting(lines: Lines, stated: list[str]) -> Lines:
    """Yield lines, and note the size of the KV cache that they state."""
    for number, line in lines:
        stated += [match[1] for engine in ENGINES.values()
                   if engine.log.kv_tokens is not None and (match := engine.log.kv_tokens.search(line))]
        yield number, line


def _engine(line: str) -> str | None:
    return next((name for name, engine in ENGINES.items() if engine.log.mark in line and engine.log.line.search(line)),
                None)
