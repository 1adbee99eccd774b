"""An engine's own log: what lines of statistics (vLLM, SGLang) and of iterations (TensorRT-LLM) say of decodes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.engines import ENGINES
from planner.engines.log_lines import Lines, Window
from planner.errors import TraceError
from planner.traces.source import text_lines

TABLES = (".csv", ".json", ".jsonl", ".parquet", ".prom")  # of files that hold no log


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

    Each engine's reader says which lines it has (`engines`).

    Raises
    ------
    TraceError : the file cannot be read, or is no such log.
    """
    engine = engine_of_log(path)
    if engine is None:
        raise TraceError(f"{path}: has no line of an engine's statistics; must be the log of vLLM, of SGLang or, with "
                         f"print_iter_log, of TensorRT-LLM")
    stated: list[str] = []
    found = list(ENGINES[engine].log.read(_noting(text_lines(path), stated)))
    return ServerLog(engine=engine, windows=tuple(each for each in found if isinstance(each, Window)),
                     left_out=Counter(each for each in found if isinstance(each, str)),
                     kv_tokens=int(stated[-1].replace(",", "")) if stated else None)


def _noting(lines: Lines, stated: list[str]) -> Lines:
    """Yield lines, and note what they state of the KV cache."""
    for number, line in lines:
        stated += [match[1] for engine in ENGINES.values()
                   if engine.log.kv_tokens is not None and (match := engine.log.kv_tokens.search(line))]
        yield number, line


def _engine(line: str) -> str | None:
    return next((name for name, engine in ENGINES.items() if engine.log.mark in line and engine.log.line.search(line)),
                None)
