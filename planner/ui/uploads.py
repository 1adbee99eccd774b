"""Uploaded bytes as a file of their own, for as long as they are read, and no larger than a page takes."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.errors import PlannerError, UsageError
from planner.traces.source import GZIP, ZSTD, decompressed

MOST_BYTES = 512 * 2**20  # of an upload, once it is decompressed
PIECE_BYTES = 2**10  # decompressed at once: a compressed byte may stand for thirty thousand


@contextmanager
def as_file(name: str, content: bytes) -> Iterator[Path]:
    """Give uploaded bytes a path, which is gone afterwards; an error that names it names the upload instead.

    Raises
    ------
    UsageError : they are too many, once they are decompressed.
    TraceError : they cannot be decompressed.
    """
    check_size(name, content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (Path(name).name or "upload")
        path.write_bytes(content)
        try:
            yield path
        except PlannerError as error:
            error.args = (str(error).replace(str(path), name),)
            raise


def check_size(name: str, content: bytes) -> None:
    """Refuse an upload of more than `MOST_BYTES`; compressed bytes are counted as they come, and not kept.

    Raises
    ------
    UsageError : there are more.
    TraceError : they cannot be decompressed.
    """
    total = len(content)
    if content.startswith((GZIP, ZSTD)):
        pieces = (content[start : start + PIECE_BYTES] for start in range(0, len(content), PIECE_BYTES))
        total = 0
        for part in decompressed(name, pieces):
            total += len(part)
            if total > MOST_BYTES:
                break
    if total > MOST_BYTES:
        raise UsageError(f"{name}: has more than {MOST_BYTES // 2**20:,} MiB after decompression; shorten it, or use "
                         f"the command line")
