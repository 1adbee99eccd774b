"""Uploaded bytes as a file of their own, for as long as they are read."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.errors import PlannerError


@contextmanager
def as_file(name: str, content: bytes) -> Iterator[Path]:
    """Give uploaded bytes a path, which is gone afterwards; an error that names it names the upload instead."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (Path(name).name or "upload")
        path.write_bytes(content)
        try:
            yield path
        except PlannerError as error:
            error.args = (str(error).replace(str(path), name),)
            raise
