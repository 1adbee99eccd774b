"""Saved studies in one SQLite file beside the server: one writer at a time, any number of readers."""

import base64
import binascii
import json
import re
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from planner.errors import PlannerError, UsageError
from planner.files.keys import Key, asdict, fromdict
from planner.files.nested import parse_json
from planner.versions import own_version

FORM = 1  # of the tables, as `user_version`
WAIT_S = 30.0  # for another writer
MOST_NAME, MOST_BYTES = 60, 64 * 2**20  # characters of a name, bytes of the uploaded files of one study
FILE_KINDS = ("log", "gpu", "model", "tenants", "calibration")  # of uploaded files
IDENTITY, PAGE = re.compile(r"[\w-]{6,40}"), re.compile(r"[a-z-]{1,40}")
TABLES = """
CREATE TABLE studies (id TEXT PRIMARY KEY, name TEXT NOT NULL, user TEXT NOT NULL, saved_at TEXT NOT NULL,
  version TEXT NOT NULL, page TEXT NOT NULL, address TEXT NOT NULL, headline TEXT NOT NULL,
  answer TEXT NOT NULL) STRICT;
CREATE TABLE files (study TEXT NOT NULL REFERENCES studies ON DELETE CASCADE, kind TEXT NOT NULL, name TEXT NOT NULL,
  content BLOB NOT NULL, PRIMARY KEY (study, kind, name)) STRICT;
"""
COLUMNS = ("id", "name", "user", "saved_at", "version", "page", "address", "headline", "answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFile:
    """An uploaded file that a study depends on."""

    kind: Annotated[str, Key("", "log, gpu, model, tenants or calibration")]
    name: Annotated[str, Key("", "Name of the upload")]
    content: Annotated[str, Key("", "Content, in base 64")]

    @classmethod
    def of(cls, kind: str, name: str, content: bytes) -> "StudyFile":
        """Return a file with this content."""
        return cls(kind=kind, name=name, content=base64.b64encode(content).decode())

    @property
    def data(self) -> bytes:
        """The content."""
        return base64.b64decode(self.content, validate=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStudy:
    """A saved study."""

    id: Annotated[str, Key("", "Identity, as in its link")]
    name: Annotated[str, Key("", "Name that the user gave")]
    user: Annotated[str, Key("", "User who saved it. Empty on a server without sign-in")]
    saved_at: Annotated[str, Key("", "Date, in UTC")]
    version: Annotated[str, Key("", "Version of the planner")]
    page: Annotated[str, Key("", "Page of the dashboard")]
    address: Annotated[str, Key("", "Scenario and the page's settings, as its address has them")]
    headline: Annotated[str, Key("", "Answer in a sentence")]
    answer: Annotated[str, Key("", "Answer, as the JSON of its command")]
    files: Annotated[tuple[StudyFile, ...], Key("", "Uploaded files that the scenario depends on")] = ()


def new_study(*, name: str, user: str, page: str, address: str, headline: str, answer: str,
              files: Sequence[StudyFile]) -> SavedStudy:
    """Return a study of this moment and this version.

    Raises
    ------
    UsageError : it has no name, or its files are too large.
    """
    return _checked(SavedStudy(id=secrets.token_urlsafe(9), name=name.strip(), user=user, page=page, address=address,
                               saved_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", version=own_version(),
                               headline=headline, answer=answer, files=tuple(files)))


def _checked(study: SavedStudy) -> SavedStudy:
    """Return a study; raises UsageError if a part of it is not as the dashboard writes it."""
    if not study.name or len(study.name) > MOST_NAME or not study.name.isprintable():
        raise UsageError(f"name = {study.name!r}: must have 1 to {MOST_NAME} printable characters")
    if not IDENTITY.fullmatch(study.id) or not PAGE.fullmatch(study.page):
        raise UsageError(f"study {study.name!r}: id = {study.id!r} or page = {study.page!r} is not one of a dashboard")
    if wrong := [file.kind for file in study.files if file.kind not in FILE_KINDS]:
        raise UsageError(f"study {study.name!r}: kind = {wrong[0]!r}: must be one of {', '.join(FILE_KINDS)}")
    try:
        num_bytes = sum(len(file.data) for file in study.files)
    except binascii.Error as error:
        raise UsageError(f"study {study.name!r}: the content of a file is no base 64: {error}") from error
    if num_bytes > MOST_BYTES:
        raise UsageError(f"study {study.name!r}: its uploaded files have {num_bytes / 2**20:,.0f} MiB, the limit is "
                         f"{MOST_BYTES // 2**20} MiB; upload the log compressed (.zst)")
    return study


class StudyStore:
    """The studies of a server.

    Each call opens the file anew, so threads and processes may share it. Writers wait for each other up to `WAIT_S`.

    Parameters
    ----------
    path : of the SQLite file; made if there is none.

    Raises
    ------
    PlannerError : the file is damaged, is no file of studies, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._opened() as database:
            if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("its pages are damaged")
        with self._opened(writes=True) as database:
            (form,) = database.execute("PRAGMA user_version").fetchone()
            has_tables = database.execute("SELECT count(*) FROM sqlite_schema").fetchone() != (0,)
            if form == 0 and not has_tables:
                for statement in filter(str.strip, TABLES.split(";")):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {FORM}")
            elif form != FORM:
                raise sqlite3.DatabaseError("it was written by a newer planner" if form > FORM else
                                            "it is the database of another program")
        with self._opened() as database:
            database.execute("PRAGMA journal_mode = WAL")

    @contextmanager
    def _opened(self, *, writes: bool = False) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction; an error of SQLite becomes one that names the file."""
        try:
            with closing(sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None)) as database:
                database.execute("PRAGMA foreign_keys = ON")
                if not writes:
                    yield database
                    return
                database.execute("BEGIN IMMEDIATE")
                try:
                    yield database
                    database.execute("COMMIT")
                finally:
                    if database.in_transaction:
                        database.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise PlannerError(f"{self._path}: the studies cannot be read or written: {error}; restore a copy, or give "
                               f"another file with --studies") from error

    def save(self, *studies: SavedStudy) -> int:
        """Add studies that the store does not have yet; return their number."""
        with self._opened(writes=True) as database:
            added = [study for study in studies if database.execute(
                f"INSERT INTO studies VALUES ({', '.join('?' * len(COLUMNS))}) ON CONFLICT DO NOTHING",
                [getattr(study, column) for column in COLUMNS]).rowcount]
            database.executemany("INSERT INTO files VALUES (?, ?, ?, ?)", (
                (study.id, file.kind, file.name, file.data) for study in added for file in study.files))
        return len(added)

    def studies(self) -> list[SavedStudy]:
        """Return all studies, the latest first, without answers; of their files the kinds and names alone."""
        with self._opened() as database:
            rows = database.execute(f"SELECT {', '.join(COLUMNS[:-1])} FROM studies ORDER BY saved_at DESC, rowid DESC")
            studies = [_read(row, "") for row in rows]
            files: dict[str, list[StudyFile]] = {}
            for identity, kind, name in database.execute("SELECT study, kind, name FROM files"):
                files.setdefault(identity, []).append(StudyFile(kind=kind, name=name, content=""))
        return [replace(study, files=tuple(files.get(study.id, ()))) for study in studies]

    def study(self, identity: str) -> SavedStudy | None:
        """Return a study with its answer and its files; None if there is none."""
        with self._opened() as database:
            row = database.execute(f"SELECT {', '.join(COLUMNS)} FROM studies WHERE id = ?", [identity]).fetchone()
            files = database.execute("SELECT kind, name, content FROM files WHERE study = ?", [identity]).fetchall()
        return None if row is None else replace(_read(row), files=tuple(StudyFile.of(*file) for file in files))

    def delete(self, identities: Sequence[str], user: str) -> None:
        """Delete studies, with their files; for a user with a name only that user's and studies without a user."""
        with self._opened(writes=True) as database:
            database.executemany("DELETE FROM studies WHERE id = ? AND (? = '' OR user IN ('', ?))",
                                 [[identity, user, user] for identity in identities])

    def exported(self, identities: Sequence[str]) -> bytes:
        """Return studies as JSON lines, their files included."""
        studies = filter(None, map(self.study, identities))
        return "".join(json.dumps(asdict(study)) + "\n" for study in studies).encode()

    def take(self, name: str, content: bytes) -> tuple[int, int]:
        """Add the studies of an exported file; return how many are new, and how many the file has.

        Raises
        ------
        UsageError : a line is no study. Nothing is added then.
        """
        studies = []
        for place, line in enumerate(content.splitlines(), start=1):
            try:
                studies.append(_checked(fromdict(SavedStudy, parse_json(line))))
            except (ValueError, UsageError) as error:
                raise UsageError(f"{name} line {place}: {error}; give a file that the page Studies exported") from error
        return self.save(*studies), len(studies)


def _read(row: Sequence[str], *others: str) -> SavedStudy:
    """Return a study of a row."""
    return SavedStudy(**dict(zip(COLUMNS, (*row, *others), strict=True)), files=())
