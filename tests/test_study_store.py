"""Saved studies in their file: written by several processes at once, exported, read back, never silently lost."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from planner.errors import PlannerError, UsageError
from planner.ui import study_store
from planner.ui.study_store import FILE_KINDS, SavedStudy, StudyFile, StudyStore, new_study

WRITER = """
import sys
from pathlib import Path
from planner.ui.study_store import StudyFile, StudyStore, new_study

store = StudyStore(Path(sys.argv[1]))
for k in range(40):
    store.save(new_study(name=f"{sys.argv[2]} {k}", user="", page="plan", address="", headline="", answer="{}",
                         files=[StudyFile.of("log", "a.csv", b"x" * 100_000)]))
"""


def study(name: str = "a study", **values: Any) -> SavedStudy:
    return new_study(**{"name": name, "user": "", "page": "plan", "address": "rate_scale=2.0", "headline": "3 GPUs",
                        "answer": '{"a": 1}', "files": (), **values})


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """Four processes make the file together and write into it; the one that reads sees whole studies only."""
    path = tmp_path / "studies.sqlite"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, name], stderr=subprocess.PIPE, text=True)
               for name in "abcd"]
    errors = [writer.communicate(timeout=120)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4, errors
    saved = StudyStore(path).studies()
    assert sorted(each.name for each in saved) == sorted(f"{name} {k}" for name in "abcd" for k in range(40))
    assert all(len(each.files) == 1 for each in saved)


def test_a_reader_is_not_stopped_by_a_writer(tmp_path: Path) -> None:
    store = StudyStore(tmp_path / "studies.sqlite")
    store.save(study())
    with sqlite3.connect(tmp_path / "studies.sqlite", isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM studies")
        assert len(store.studies()) == 1
        writer.execute("ROLLBACK")
    writer.close()


def test_a_writer_that_waits_too_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_store, "WAIT_S", 0.05)
    store = StudyStore(tmp_path / "studies.sqlite")
    writer = sqlite3.connect(tmp_path / "studies.sqlite", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(PlannerError, match=r"studies\.sqlite: .*database is locked"):
        store.save(study())
    writer.close()
    assert store.save(study()) == 1


def test_a_failure_within_a_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    store = StudyStore(tmp_path / "studies.sqlite")
    twice = study(files=[StudyFile.of("gpu", "one", b"1"), StudyFile.of("gpu", "one", b"2")])
    with pytest.raises(PlannerError, match="UNIQUE constraint"):
        store.save(study("first"), twice)
    assert store.studies() == []


def damaged(path: Path) -> None:
    StudyStore(path).save(*(study(f"{k}", answer="x" * 5000) for k in range(50)))
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    content = bytearray(path.read_bytes())
    content[4096:12288] = b"\xff" * 8192
    path.write_bytes(content)


def others(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE mails (id)")
    database.close()


def newer(path: Path) -> None:
    StudyStore(path)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()


@pytest.mark.parametrize(("make", "words"), [
    (lambda path: path.write_text("no database at all" * 99), "file is not a database"),
    (damaged, "damaged|malformed"), (others, "another program"), (newer, "a newer planner"),
    (lambda path: path.mkdir(), "unable to open")])
def test_a_file_of_another_kind_is_named_with_its_remedy(tmp_path: Path, make: Any, words: str) -> None:
    path = tmp_path / "studies.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(PlannerError, match=rf"studies\.sqlite: .*({words}).*restore a copy") as told:
        StudyStore(path)
    assert "\n" not in str(told.value)
    assert not path.is_file() or path.read_bytes() == before


@given(name=some.text(some.characters(categories=("L", "N", "P", "Zs")), min_size=1, max_size=60).filter(
           lambda text: text.strip() and text.isprintable()),
       address=some.text(), answer=some.text(some.characters(exclude_categories=["Cs"])),
       files=some.dictionaries(some.tuples(some.sampled_from(FILE_KINDS), some.text(
           some.characters(exclude_categories=["Cs", "Cc"]), max_size=9)), some.binary(max_size=99), max_size=4))
def test_an_exported_study_is_imported_as_it_was(tmp_path_factory: pytest.TempPathFactory, name: str, address: str,
                                                 answer: str, files: dict[tuple[str, str], bytes]) -> None:
    folder = tmp_path_factory.mktemp("studies")
    one, two = StudyStore(folder / "one.sqlite"), StudyStore(folder / "two.sqlite")
    saved = study(name, address=address, answer=answer, user="ana", files=[
        StudyFile.of(*key, content) for key, content in sorted(files.items())])
    assert one.save(saved) == 1
    found = one.study(saved.id)
    assert found is not None
    assert sorted(found.files, key=str) == sorted(saved.files, key=str)
    content = one.exported([saved.id])
    assert two.take("studies.jsonl", content) == (1, 1)
    assert two.study(saved.id) == found
    assert two.take("studies.jsonl", content) == (0, 1)
    assert len(two.studies()) == 1


@pytest.mark.parametrize(("change", "words"), [
    ({"id": "../../etc"}, "id = '../../etc'"), ({"page": "javascript:alert(1)"}, "page = 'javascript:alert"),
    ({"name": ""}, "1 to 60 printable characters"), ({"name": "a\nb"}, "printable"), ({"user": 3}, "user = 3: must be"),
    ({"files": [{"kind": "log", "name": "a", "content": "%%%"}]}, "no base 64"),
    ({"files": [{"kind": "policy", "name": "a.py", "content": ""}]}, "kind = 'policy': must be one of log, gpu"),
    ({"answer": None}, "answer = None: must be text")])
def test_a_line_that_is_no_study_is_named_and_nothing_is_added(tmp_path: Path, change: dict[str, Any],
                                                               words: str) -> None:
    store = StudyStore(tmp_path / "studies.sqlite")
    good = {"id": "abcdefgh", "name": "n", "user": "", "saved_at": "2026-01-01T00:00:00Z", "version": "1",
            "page": "plan", "address": "", "headline": "", "answer": "{}", "files": []}
    content = "\n".join(map(json.dumps, (good, {**good, **change}))).encode()
    with pytest.raises(UsageError) as told:
        store.take("them.jsonl", content)
    assert str(told.value).startswith("them.jsonl line 2: ")
    assert words in str(told.value)
    assert store.studies() == []


def test_text_that_is_no_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"them\.jsonl line 1: .*exported"):
        StudyStore(tmp_path / "studies.sqlite").take("them.jsonl", b"\x00SQLite format 3")


def test_a_user_deletes_only_studies_of_their_own_and_of_nobody(tmp_path: Path) -> None:
    store = StudyStore(tmp_path / "studies.sqlite")
    studies = {name: study(name or "nobody's", user=name, files=[StudyFile.of("log", "a", b"1")])
               for name in ("ana", "bo", "")}
    store.save(*studies.values())
    identities = [each.id for each in studies.values()]
    store.delete(identities, "ana")
    assert [each.user for each in store.studies()] == ["bo"]
    with sqlite3.connect(tmp_path / "studies.sqlite") as database:
        assert database.execute("SELECT study FROM files").fetchall() == [(studies["bo"].id,)]
    database.close()
    store.delete(identities, "")  # a server without sign-in
    assert store.studies() == []


def test_uploads_of_a_study_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_store, "MOST_BYTES", 2**20)
    study(files=[StudyFile.of("log", "a.csv", b"x" * 2**20)])
    with pytest.raises(UsageError, match=r"uploaded files have 1 MiB, the limit is 1 MiB; upload the log compressed"):
        study(files=[StudyFile.of("log", "a.csv", b"x" * (2**20 + 1))])
