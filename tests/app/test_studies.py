"""Saved studies in the dashboard: saved from a page, opened by a link, compared, shared, and kept apart from uploads."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM, REASON, opened, settle, shoot
from pages import linked, press, said, uploaded
from pages import opened as opened_page

from benchmarks.dashboard_server import served
from planner.planning.capacity_answer import CapacityAnswer
from planner.report.report_source import answer_of
from planner.ui import hosting
from planner.ui.study_store import StudyStore

pytest.importorskip("streamlit")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason=REASON)
SECRET = b"arrival_s,input_tokens,output_tokens\n" + b"".join(b"%d,777,20\n" % k for k in range(40))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyStore:
    """The studies of pages that run in this process."""
    path = tmp_path / "studies.sqlite"
    monkeypatch.setenv(hosting.STUDIES, str(path))
    return StudyStore(path)


def saved(page: Any, name: str) -> Any:
    next(field for field in page.text_input if field.key == "study_name").set_value(name)
    press(page, "Save")
    assert not page.exception
    return page


def test_a_study_opens_with_its_settings_and_states_its_saved_answer(store: StudyStore) -> None:
    page = saved(opened_page("replay", gpu="l40s", rate_scale=3.0, max_num_seqs=32), "Three times the load")
    shown = {metric.label: metric.value for metric in page.metric}
    (row,) = store.studies()
    assert (row.name, row.page, row.user) == ("Three times the load", "replay", "")
    page = linked("replay", study=row.id)
    assert not page.exception
    assert page.session_state["max_num_seqs"] == 32
    assert {metric.label: metric.value for metric in page.metric} == shown
    heading = page.expander[0]
    assert "Three times the load" in heading.label
    assert "max_num_seqs" in heading.code[0].value or "32" in heading.code[0].value
    whole = store.study(row.id)
    assert whole is not None
    assert json.loads(whole.answer)["policy"]["max_num_seqs"] == 32


def test_settings_of_the_address_come_before_the_studys(store: StudyStore) -> None:
    """A link of an opened study whose settings were changed since."""
    saved(opened_page("replay", gpu="l40s", rate_scale=3.0), "base")
    (row,) = store.studies()
    page = linked("replay", study=row.id, limit="200", gpu="a100-sxm")
    assert (page.session_state["gpu"], page.session_state["rate_scale"]) == ("a100-sxm", 1.0)


def test_a_capacity_is_saved_as_its_command_writes_it(store: StudyStore) -> None:
    from pages import answered

    page = press(opened_page("capacity", replicates=0), "Find the capacity")
    page = saved(answered(page, "capacity"), "capacity")
    (row,) = store.studies()
    whole = store.study(row.id)
    assert whole is not None
    answer = answer_of(json.loads(whole.answer), "a").answer
    assert isinstance(answer, CapacityAnswer)
    assert f"{answer.capacity:.3g}"[:3] in row.headline.replace(",", "")
    page.number_input(key="tensor_parallel_size").set_value(2).run()
    assert "Save" not in [button.label for button in page.button]  # the answer is for other settings


def test_an_upload_is_seen_by_others_only_in_a_study(store: StudyStore) -> None:
    page = uploaded("workload", "secret.csv", SECRET)
    assert "secret.csv" in said(page)
    for stranger in (linked("workload", trace="your file"), linked("studies")):
        assert "secret" not in said(stranger)
        assert "777" not in said(stranger)
    page = uploaded("replay", "secret.csv", SECRET)
    assert "Everybody who opens the study gets secret\\.csv" in said(page)
    saved(page, "shared")
    (row,) = store.studies()
    other = linked("replay", study=row.id)
    assert {metric.label: metric.value for metric in other.metric}["Served"] == "all 40"
    assert "secret" not in said(linked("workload", trace="your file"))


def test_own_profiles_come_with_a_study(store: StudyStore) -> None:
    from pages import uploader

    root = Path(__file__).resolve().parents[2]
    toml = (root / "hardware_db" / "gpus" / "l40s.toml").read_text().replace('"l40s"', '"my-gpu"', 1)
    page = opened_page("catalog")
    uploader(page, "GPU, TOML").upload("my-gpu.toml", toml.encode())
    press(page, "Check and add the GPU")
    assert "my-gpu" in said(page).replace("\\", "")


def test_a_study_that_is_gone_is_said(store: StudyStore) -> None:
    page = linked("replay", study="gone-gone")
    assert "this server has no study 'gone\\-gone'; it may have been deleted" in page.error[0].value.replace("\\'", "'")


def test_a_server_without_a_file_saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hosting.STUDIES, raising=False)
    page = opened_page("replay")
    assert "Save" not in [button.label for button in page.button]
    assert "planner ui --studies" in linked("studies").info[0].value


def test_a_read_only_server_opens_and_exports_only(store: StudyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(opened_page("replay"), "kept")
    monkeypatch.setenv(hosting.READ_ONLY, "1")
    (row,) = store.studies()
    page = linked("replay", study=row.id)
    assert not page.exception
    assert "kept" in page.expander[0].label
    assert "Save" not in [button.label for button in page.button]
    page = linked("studies")
    assert [button.label for button in page.get("download_button")] == ["Export 1 study"]
    assert not {"Add the studies", "Yes, delete 0 studies"} & {button.label for button in page.button}
