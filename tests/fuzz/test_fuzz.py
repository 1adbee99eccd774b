"""Malformed inputs: what broke a reader once, and some more; see campaign.py for many more."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from campaign import changed, problem
from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import TARGETS

from planner.traces import FORMATS

PATIENCE_S = 300  # with a loop that is compiled on a busy machine
CORPUS = Path(__file__).with_name("corpus")
BY_FOLDER = {name.replace(" ", "-"): target for name, target in TARGETS.items()}


@pytest.mark.parametrize("path", sorted(CORPUS.rglob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_broke_once(path: Path, tmp_path: Path) -> None:
    assert problem(BY_FOLDER[path.parent.name], path.read_bytes(), tmp_path, PATIENCE_S) is None


@pytest.mark.parametrize("name", TARGETS)
def test_what_the_campaign_changes_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"input{TARGETS[name].suffix}"
    path.write_bytes(TARGETS[name].seed)
    TARGETS[name].read(path)


@pytest.mark.parametrize("nested", ["[" * 9999, "{a=" * 9999, '{"a":' * 9999])
@pytest.mark.parametrize("name", TARGETS)
def test_what_is_nested_too_deep_is_refused(name: str, nested: str, tmp_path: Path) -> None:
    for data in (f"{nested}", f"x = {nested}", f"x: {nested}"):
        assert problem(TARGETS[name], data.encode(), tmp_path, PATIENCE_S) is None


@settings(max_examples=200)
@given(name=st.sampled_from(sorted(TARGETS)), seed=st.integers(0, 2**32), through_cli=st.integers(0, 30))
def test_changed_inputs_are_read_or_refused(name: str, seed: int, through_cli: int,
                                            tmp_path_factory: pytest.TempPathFactory) -> None:
    data = changed(TARGETS[name], random.Random(seed))
    folder = tmp_path_factory.getbasetemp()
    assert problem(TARGETS[name], data, folder, PATIENCE_S, through_cli=through_cli == 0) is None


@settings(max_examples=60)
@given(name=st.sampled_from(sorted(TARGETS)), data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(name: str, data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert problem(TARGETS[name], data, tmp_path_factory.getbasetemp(), PATIENCE_S) is None


def test_every_format_is_fuzzed() -> None:
    assert {name.removeprefix("trace ").split()[0] for name in TARGETS if name.startswith("trace ")} >= set(FORMATS)


def test_the_campaign_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("campaign.py")), "--count", "60", "--found", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "60 inputs for" in done.stdout
    assert "0 kinds of failures" in done.stdout
