"""The processes of a search: they tell how far it is, and end soon after it."""

import os
import pickle
import time
from collections.abc import Callable
from dataclasses import replace

import joblib
import psutil
import pytest

from planner.planning.search_options import Choices
from planner.planning.size_answer import SizeAnswer
from planner.planning.sizing import size
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.ui import work, worker
from planner.ui.work import Job

pytest.importorskip("streamlit")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def held(is_so: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s and not is_so():
        time.sleep(0.02)
    return is_so()


def told_by(job: Job) -> tuple[list[str], list[SizeAnswer]]:
    """Return the stages that a job tells until it is over, and its answers: so far, and whole."""
    found, contents = [""], list[bytes]()
    while not job.state.is_over.wait(0.02):
        if job.state.stage != found[-1]:
            found.append(job.state.stage)
        if job.state.content is not None and not job.state.is_whole and job.state.content not in contents:
            contents.append(job.state.content)
    assert job.state.error is None
    assert job.state.content is not None
    return found, [pickle.loads(content) for content in (*contents, job.state.content)]


def test_a_search_tells_its_stage_with_its_parts_and_the_cheapest_fleet_before_its_headroom() -> None:
    choices = Choices(gpus=["h100-sxm", "l40s"], ranks=(1, 2), quantizations=[None], compare_assumptions=False)
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=4000)
    told, (first, whole) = told_by(work.start(size, read_trace("chat"), scenario, parse_objectives(
        "ttft:500 tpot:50", 0.99), choices))
    assert any(text.startswith("sizing fleets: ") and text.endswith(" of 4") for text in told), told
    assert first.cheapest is not None
    assert whole.cheapest is not None
    assert whole.cheapest.headroom is not None
    assert first.cheapest == replace(whole.cheapest, headroom=None,
                                     headroom_precision=first.cheapest.headroom_precision)
    assert [fleet.kind for fleet in first.alternatives] == [fleet.kind for fleet in whole.alternatives]


def test_processes_of_a_search_end_once_they_have_had_no_work_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "IDLE_S", 1)
    with worker.short_lived():
        started = set(joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(8)))
    assert os.getpid() not in started
    assert held(lambda: not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
                                for pid in started))
