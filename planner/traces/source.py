"""A trace's bytes: opened, hashed, decompressed and cut into blocks of whole lines."""

import difflib
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from planner.errors import TraceError

RAW_BYTES = 2**18  # small, since a compressed byte may stand for a thousand
BLOCK_BYTES = 2**25  # the text held at once; a longer line is held whole
GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
_UTF8_SIGN = re.compile(rb"[\xc2-\xf4][\x80-\xbf]")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
NOT_TEXT = {
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a Parquet file",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "UTF-16 text (iconv -f UTF-16 -t UTF-8 recodes it)"),
}


class Digest(Protocol):
    """The methods of a ``hashlib`` object that hashing needs."""

    def update(self, data: bytes, /) -> None: ...


def raw_blocks(source: str, digest: Digest, samples: Callable[[], list[str]]) -> Iterator[bytes]:
    """Yield a file's bytes as stored, or stdin's for "-", and hash them on the way.

    Raises
    ------
    TraceError : no such file, or it cannot be read; names of bundled samples (`samples`) are offered.
    """
    if source == "-":
        yield from _blocks(sys.stdin.buffer, digest)
        return
    try:
        with Path(source).open("rb") as file:
            yield from _blocks(file, digest)
    except FileNotFoundError:
        raise TraceError(f"trace {source}: no such file; {_offer(source, samples())}") from None
    except OSError as error:
        raise TraceError(f"trace {source}: {error.strerror}; give the path of a readable file") from None


def _blocks(file: BinaryIO, digest: Digest) -> Iterator[bytes]:
    while block := file.read(RAW_BYTES):
        digest.update(block)
        yield block


def _offer(source: str, samples: list[str]) -> str:
    if source in samples:
        return ("the bundled sample of this name has no columns to map and no format; leave out --format, --column, "
                "--where")
    close = difflib.get_close_matches(source.lower(), samples, n=1, cutoff=0.5)
    return f"did you mean the sample {close[0]!r}?" if close else f"bundled samples: {', '.join(samples)}"


def decompressed(source: str, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Undo gzip or Zstandard, known by their first bytes; anything else passes as it is.

    Raises
    ------
    TraceError : the compressed data is damaged or ends early, or the bytes have a binary format.
    """
    first = next(blocks, b"")
    for magic, what in NOT_TEXT.items():
        if first.startswith(magic):
            raise TraceError(f"trace {source}: is {what}; must be UTF-8 CSV or JSONL, plain, .gz or .zst")
    if first.startswith(GZIP):
        yield from _inflate(source, first, blocks, _gzip)
    elif first.startswith(ZSTD):
        yield from _inflate(source, first, blocks, _zstd)
    else:
        yield first
        yield from blocks


def _gzip() -> tuple[Any, type[Exception]]:
    return zlib.decompressobj(wbits=31), zlib.error


def _zstd() -> tuple[Any, type[Exception]]:
    import zstandard  # only if a file needs it: importing planner.traces stays cheap

    return zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj(), zstandard.ZstdError


def _inflate(
    source: str, block: bytes, blocks: Iterator[bytes], new: Callable[[], tuple[Any, type[Exception]]]
) -> Iterator[bytes]:
    """Decompress members or frames that follow one another; zero padding between them is allowed."""
    member, damage = new()
    started = False
    while block or (block := next(blocks, b"")):
        if not started:
            block = block.lstrip(b"\0")
        try:
            text = member.decompress(block)
        except damage as error:
            raise TraceError(f"trace {source}: compressed data is damaged ({error}); copy the file again") from None
        yield text
        started = started or bool(block)
        block = member.unused_data
        if member.eof:
            started, (member, damage) = False, new()
        else:
            block = b""
    if started:
        raise TraceError(f"trace {source}: compressed data ends early; the file is truncated, copy it again")


def line_blocks(chunks: Iterator[bytes], block_bytes: int) -> Iterator[bytes]:
    """Join and cut a stream into blocks of about `block_bytes` that hold whole lines, each ended by a line feed.

    A byte-order mark is removed. A line feed inside a quoted CSV field does not end a line.
    """
    held: list[bytes] = []
    size, enough = 0, block_bytes
    quoted: bool | None = None
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size < enough:
            continue
        text = b"".join(held)
        if quoted is None:
            text = text.removeprefix(b"\xef\xbb\xbf")
            quoted = not text.lstrip().startswith(b"{")
        end = _cut(text, quoted)
        if end:
            yield text[:end]
        held, size = [text[end:]], len(text) - end
        enough = block_bytes if end else 2 * size  # a line that goes on and on is not joined again for each chunk
    text = b"".join(held)
    if quoted is None:
        text = text.removeprefix(b"\xef\xbb\xbf")
    if text:
        yield text if text.endswith(b"\n") else text + b"\n"


def as_utf8(blocks: Iterator[bytes], notes: list[str]) -> Iterator[bytes]:
    """Recode Windows-1252 to UTF-8, with a note; blocks that may be another encoding pass as they are."""
    has_utf8 = False
    for block in blocks:
        if not block.isascii():
            is_utf8 = _UTF8_SIGN.search(block) is not None
            if not (has_utf8 or is_utf8 or _CONTROL.search(block)):
                with suppress(UnicodeDecodeError):
                    block = block.decode("cp1252").encode()
                    notes[:] = ["the text is read as Windows-1252, because it is not UTF-8"]
            has_utf8 = has_utf8 or is_utf8
        yield block


def _cut(text: bytes, quoted: bool) -> int:
    """Length of the longest beginning of `text` that holds whole lines; 0 without one."""
    end = text.rfind(b"\n") + 1
    if quoted and text.count(b'"', 0, end) % 2:
        opened_at = text.rfind(b'"', 0, end)
        whole = text.rfind(b"\n", 0, opened_at) + 1
        return whole or end
    return end


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbers and texts of the lines of a file that is no trace: plain, .gz or .zst.

    Raises
    ------
    TraceError : it cannot be read.
    """
    number = 0
    try:
        with path.open("rb") as file:
            chunks = decompressed(str(path), iter(lambda: file.read(RAW_BYTES), b""))
            for block in line_blocks(chunks, RAW_BYTES):
                for line in block.decode("utf-8", errors="replace").removesuffix("\n").split("\n"):
                    number += 1
                    yield number, line
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
