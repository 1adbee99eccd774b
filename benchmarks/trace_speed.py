"""Speed of the trace readers: rows a second of each, against Polars' bare scan of the same file.

The bare scan reads the same columns without checking, sorting or converting anything. Files that are small are repeated
until a run takes long enough to time; each figure is the best of several runs. Needs the recorded traces in
$PLANNER_SHARED or ../shared; writes reports/trace_speed.md.
"""

import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from planner.traces import read_trace

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("PLANNER_SHARED") or ROOT.parent / "shared")
ROWS = 200_000  # at least, of a repeated file
REPEATS = 3
WHOLE = 2_000_000  # rows of the synthetic native files


def main() -> None:
    """Time all readers, print the figures and write them."""
    lines = ["| file | format | rows | rows/s | of the bare scan | MB/s |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as name:
        for path, scan in (*_native(Path(name)), *_recorded(Path(name))):
            lines.append(_row(path, scan))
            print(lines[-1], flush=True)
    text = (f"# Speed of the trace readers\n\n{(__doc__ or '').strip()}\n\n" + "\n".join(lines)
            + "\n\nNested JSON is parsed by Python, flat JSON and CSV by Polars; the bare scan of nested JSON is "
              "Python's own parser alone.\n")
    (ROOT / "reports" / "trace_speed.md").write_text(text, encoding="utf-8")


def _row(path: Path, scan: Callable[[Path], int]) -> str:
    trace = read_trace(str(path), on_bad_rows="drop")
    rows = trace.account.rows_read
    ours_s, bare_s = _best_s(lambda: read_trace(str(path), on_bad_rows="drop")), _best_s(lambda: scan(path))
    return (f"| {path.name} | {trace.format} | {rows:,} | {rows / ours_s:,.0f} | {bare_s / ours_s:.0%} | "
            f"{path.stat().st_size / ours_s / 1e6:,.0f} |")


def _best_s(call: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def _native(folder: Path) -> Iterator[tuple[Path, Callable[[Path], int]]]:
    """Yield synthetic traces in the planner's own columns, as CSV, JSONL and Parquet."""
    rng = np.random.default_rng(0)
    table = pl.DataFrame({
        "arrival_s": np.cumsum(rng.exponential(0.01, WHOLE)), "input_tokens": rng.integers(1, 8000, WHOLE),
        "output_tokens": rng.integers(1, 800, WHOLE)})
    for suffix, write in (("csv", table.write_csv), ("jsonl", table.write_ndjson), ("parquet", table.write_parquet)):
        path = folder / f"native.{suffix}"
        write(path)
        yield path, _SCANS[suffix]


def _recorded(folder: Path) -> Iterator[tuple[Path, Callable[[Path], int]]]:
    """Yield recorded traces, uncompressed, and repeated where they are small and rows have no names of their own."""
    for name, repeat in (("azure_llm_2023_conv.csv", True), ("burstgpt_1_first400.csv", True),
                         ("mooncake_conversation_trace.jsonl.gz", True), ("apex_llama_lmsys_05.jsonl", False),
                         ("ragpulse_0_trace.jsonl.gz", False), ("weka_claude_code_traces_small.jsonl.gz", False)):
        source = SHARED / "traces" / name
        if not source.exists():
            print(f"{name} is not at hand; PLANNER_SHARED names the folder above traces/")
            continue
        text = gzip.decompress(source.read_bytes()) if name.endswith(".gz") else source.read_bytes()
        path = folder / name.removesuffix(".gz")
        path.write_bytes(_repeated(text, path.suffix) if repeat else text)
        yield path, _SCANS["nested" if "weka" in name or "ragpulse" in name else path.suffix.removeprefix(".")]


def _repeated(text: bytes, suffix: str) -> bytes:
    header, body = text.split(b"\n", 1) if suffix == ".csv" else (b"", text)
    body = body if body.endswith(b"\n") else body + b"\n"
    return (header + b"\n" if header else b"") + body * -(-ROWS // body.count(b"\n"))


def _nested(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip() and json.loads(line) is not None)


_SCANS: dict[str, Callable[[Path], int]] = {
    "csv": lambda path: pl.read_csv(path).height,
    "jsonl": lambda path: pl.read_ndjson(path).height,
    "parquet": lambda path: pl.read_parquet(path).height,
    "nested": _nested,
}


if __name__ == "__main__":
    main()
