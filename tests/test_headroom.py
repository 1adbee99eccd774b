"""The headroom of the cheapest fleet: as much as `capacity` finds for the same fleet."""

from dataclasses import replace

import numpy as np
import pytest

from planner.planning.capacity import capacity
from planner.planning.search_options import Choices, Search
from planner.planning.size_answer import Fleet
from planner.planning.sizing import size
from planner.report.cells import headroom_text
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace, read_trace
from planner.traces.shaping.window_and_rate import limit

OBJECTIVES = parse_objectives("ttft:500 tpot:30", 0.99)
ONE = Scenario(model="llama-3.1-8b", gpu="h100-sxm", router="random")


def log(number: int) -> Trace:
    """Return some hundred requests of a bundled workload, from a place of its own."""
    rng = np.random.default_rng(number)
    chat = read_trace("chat")
    first = int(rng.integers(0, chat.num_requests - 1000))
    return limit(chat.take(np.arange(first, chat.num_requests)), int(rng.integers(300, 1000)))


@pytest.mark.parametrize("number", range(4))
def test_the_headroom_is_the_capacity_of_the_fleet(number: int) -> None:
    trace, rate = log(number), (12.0, 25.0, 40.0, 70.0)[number]
    scaling = ("thin", "compress", "poisson", "thin")[number]
    found = size(trace, replace(ONE, request_rate=rate), OBJECTIVES,
                 Choices(ranks=(1,), scaling=scaling, quick=True, jobs=1))
    assert found.cheapest is not None
    fleet = replace(ONE, data_parallel_size=found.cheapest.num_replicas)
    largest = capacity(trace, fleet, OBJECTIVES, Search(scaling=scaling, quick=True, jobs=1)).capacity
    assert found.cheapest.headroom == max(largest / rate - 1, 0)
    assert headroom_text(found.cheapest.headroom) == headroom_text(max(largest / rate - 1, 0))


def test_the_headroom_of_users_is_their_capacity() -> None:
    trace = limit(read_trace("chat"), 300)
    found = size(trace, replace(ONE, max_concurrency=100), OBJECTIVES, Choices(ranks=(1,), quick=True, jobs=1))
    assert found.cheapest is not None
    fleet = replace(ONE, data_parallel_size=found.cheapest.num_replicas)
    largest = capacity(trace, fleet, OBJECTIVES, Search(of="concurrency", quick=True, jobs=1)).capacity
    assert found.cheapest.headroom == largest / 100 - 1
    assert found.cheapest.headroom > 0


def test_the_headroom_of_every_row_is_as_near_to_its_capacity_as_it_says() -> None:
    trace, rate = limit(read_trace("chat"), 2000), 12.0
    found = size(trace, replace(ONE, request_rate=rate), OBJECTIVES,
                 Choices(gpus=("h100-sxm", "h200"), ranks=(1, 4), quick=True, jobs=1))
    fleets = [fleet for fleet in found.alternatives if isinstance(fleet, Fleet)]
    assert {fleet.headroom_precision for fleet in fleets} == {0.005, 0.02, 0.1}
    for fleet in fleets:
        own = replace(ONE, gpu=fleet.kind.gpu, tensor_parallel_size=fleet.kind.tensor_parallel_size,
                      data_parallel_size=fleet.num_replicas)
        largest = capacity(trace, own, OBJECTIVES, Search(quick=True, jobs=1)).capacity
        assert fleet.headroom is not None
        assert (1 + fleet.headroom) * rate == pytest.approx(largest, rel=fleet.headroom_precision + 0.01)


@pytest.mark.parametrize(("load", "of", "given"), [(0.5, "requests", replace(ONE, request_rate=0.5)),
                                                   (2, "concurrency", replace(ONE, max_concurrency=2))])
def test_a_dearer_fleet_is_not_tried_above_ten_times_the_load(load: float, of: str, given: Scenario) -> None:
    trace = limit(read_trace("chat"), 500)
    found = size(trace, given, OBJECTIVES, Choices(ranks=(1, 4), quick=True, jobs=1))
    dearer = found.alternatives[1]
    assert isinstance(dearer, Fleet)
    assert (dearer.headroom, headroom_text(dearer.headroom)) == (9.0, "> 10 ×")
    own = replace(ONE, tensor_parallel_size=4)
    largest = capacity(trace, own, OBJECTIVES, Search(of=of, quick=True, jobs=1)).capacity
    assert largest > 10 * load
