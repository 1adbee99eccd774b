"""How much a question replays: a count that no machine changes, so a slower search is seen without a clock."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from helpers import shorten_loads

from planner.planning.capacity import capacity
from planner.planning.search_options import Choices, Search
from planner.planning.sizing import size
from planner.replays.fleet import replicas
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.shaping.window_and_rate import limit

OBJECTIVES = parse_objectives("ttft:500 tpot:50", 0.99)
ONE = Scenario(model="llama-3.1-8b", gpu="h100-sxm")
GPUS = ("h100-sxm", "l40s")
MOST = 16_000  # requests that a replay may have here, in place of MOST_REQUESTS
REPLAYS = {  # replays and their requests, in thousands
    "capacity": (69, 291),
    "capacity, quick": (19, 133),
    "users": (59, 738),
    "size": (72, 190),
}


def _asked(trace: Trace) -> dict[str, Callable[[], Any]]:
    return {
        "capacity": lambda: capacity(trace, ONE, OBJECTIVES, Search(jobs=2)),
        "capacity, quick": lambda: capacity(trace, ONE, OBJECTIVES, Search(jobs=2, quick=True)),
        "users": lambda: capacity(trace, ONE, OBJECTIVES, Search(of="concurrency", jobs=2, quick=True)),
        "size": lambda: size(trace, Scenario(model="llama-3.1-8b"), OBJECTIVES, Choices(gpus=GPUS, jobs=2)),
    }


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the requests of each replay, wherever one is asked for."""
    lengths: list[int] = []
    real = replicas.serve
    shorten_loads(monkeypatch, MOST)

    def serve(trace: Trace, *arguments: Any, **options: Any) -> Any:
        lengths.append(trace.num_requests)
        return real(trace, *arguments, **options)

    for name, module in list(sys.modules.items()):
        if name.startswith("planner.") and getattr(module, "serve", None) is real:
            monkeypatch.setattr(module, "serve", serve)
    return lengths


@pytest.mark.parametrize("question", REPLAYS)
def test_a_question_replays_as_much_as_it_did(question: str, replayed: list[int]) -> None:
    _asked(limit(read_trace("chat"), 1000))[question]()
    assert (len(replayed), round(sum(replayed) / 1000)) == REPLAYS[question]
