"""The processes of a search: they tell how far it is, and end soon after it."""

import os
import time
from collections.abc import Callable

import joblib
import psutil
import pytest

from planner.planning.search_options import Choices
from planner.planning.sizing import size
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.ui import processes, work
from planner.ui.work import Job

pytest.importorskip("streamlit")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def held(is_so: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s and not is_so():
        time.sleep(0.02)
    return is_so()


def stages(job: Job) -> list[str]:
    """Return what a job tells until it is over."""
    found = [""]
    while not job.state.is_over.wait(0.02):
        if job.state.stage != found[-1]:
            found.append(job.state.stage)
    assert job.state.error is None
    return found


def test_a_search_tells_its_stage_with_its_parts() -> None:
    choices = Choices(gpus=["h100-sxm", "l40s"], ranks=(1, 2), quantizations=[None], compare_assumptions=False)
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=4000)
    told = stages(work.start(size, read_trace("chat"), scenario, parse_objectives("ttft:500 tpot:50", 0.99), choices))
    assert any(text.startswith("sizing fleets: ") and text.endswith(" of 4") for text in told), told


def test_processes_of_a_search_end_once_they_have_had_no_work_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "IDLE_S", 1)
    with processes.short_lived():
        started = set(joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(8)))
    assert os.getpid() not in started
    assert held(lambda: not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
                                for pid in started))
