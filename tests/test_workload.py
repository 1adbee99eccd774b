"""Reshaping traces: windows, limits and rates, and the errors of each."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UsageError
from planner.traces import Trace, read_trace
from planner.traces.shaping import window_and_rate as workload

LINE = (
    '{"arrival_s": %r, "input_tokens": 8, "output_tokens": 1, "cancel_after_s": 3, "deadline_s": 2, '
    '"hash_ids": %s, "hash_block_tokens": 4}'
)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Five requests at 10, 11, 13, 13 and 20 s."""
    path = tmp_path_factory.mktemp("trace") / "five.jsonl"
    rows = [(10.0, [1]), (11.0, [1, 2]), (13.0, []), (13.0, [3]), (20.0, [1, 3])]
    path.write_text("\n".join(LINE % row for row in rows))
    return read_trace(str(path))


def ids(trace: Trace) -> list[list[int]]:
    assert trace.prefix is not None
    return [part.tolist() for part in np.split(trace.prefix.values, trace.prefix.offsets[1:-1])]


def test_slice_time_is_half_open_and_counts_from_its_start(trace: Trace) -> None:
    part = workload.slice_time(trace, 11.0, 9.0)
    assert part.requests["arrival_s"].to_list() == [0.0, 2.0, 2.0]
    assert part.requests["request_id"].to_list() == [1, 2, 3]
    assert ids(part) == [[0, 1], [], [2]]
    assert ids(workload.slice_time(trace, 12.0, math.inf)) == [[], [2], [0, 2]]
    assert part.sha256 == trace.sha256


def test_limit_keeps_the_first_by_arrival(trace: Trace) -> None:
    assert workload.limit(trace, 2).requests["arrival_s"].to_list() == [10.0, 11.0]
    assert ids(workload.limit(trace, 2)) == [[0], [0, 1]]
    assert workload.limit(trace, 99).requests.equals(trace.requests)


def test_scale_rate_compresses_arrivals_only(trace: Trace) -> None:
    fast = workload.scale_rate(trace, 2.0)
    assert fast.requests["arrival_s"].to_list() == [5.0, 5.5, 6.5, 6.5, 10.0]
    assert fast.requests.drop("arrival_s").equals(trace.requests.drop("arrival_s"))


@given(rate_per_s=st.floats(1e-6, 1e6))
def test_at_request_rate_sets_the_mean_rate_over_the_gaps(trace: Trace, rate_per_s: float) -> None:
    arrival_s = workload.at_request_rate(trace, rate_per_s).requests["arrival_s"].to_numpy()
    assert 4 / (arrival_s[-1] - arrival_s[0]) == pytest.approx(rate_per_s, rel=1e-6)
    gaps = np.diff(arrival_s)
    assert gaps / gaps.sum() == pytest.approx([0.1, 0.2, 0.0, 0.7], abs=1e-6)


def test_infinite_rate_sends_all_at_once(trace: Trace) -> None:
    assert workload.at_request_rate(trace, math.inf).requests["arrival_s"].to_list() == [0.0] * 5


def test_window_then_limit_then_rate(trace: Trace) -> None:
    part = workload.at_request_rate(workload.limit(workload.slice_time(trace, 10.0, 5.0), 3), 4.0)
    assert part.requests["arrival_s"].to_list() == pytest.approx([0.0, 1 / 6, 0.5])


BAD = {
    "start": (lambda t: workload.slice_time(t, -1.0, 5.0), "start_at_s = -1.0; must be finite and >= 0"),
    "start-nan": (lambda t: workload.slice_time(t, math.nan, 5.0), "start_at_s = nan; must be finite and >= 0"),
    "duration": (lambda t: workload.slice_time(t, 0.0, 0.0), "duration_s = 0.0; must be > 0"),
    "nothing": (lambda t: workload.slice_time(t, 14.0, 6.0), "no request arrives in [14, 20) s of"),
    "beyond": (lambda t: workload.slice_time(t, 30.0, math.inf), "its arrivals span 10 to 20 s"),
    "limit": (lambda t: workload.limit(t, 0), "limit = 0; must be >= 1"),
    "scale": (lambda t: workload.scale_rate(t, 0.0), "rate scale = 0.0; must be finite and > 0"),
    "scale-inf": (lambda t: workload.scale_rate(t, math.inf), "rate scale = inf; must be finite and > 0"),
    "stretched": (lambda t: workload.scale_rate(t, 1e-9), "last arrival to 2e+10 s; must be <= 1000000000 s"),
    "rate": (lambda t: workload.at_request_rate(t, -2.0), "request rate = -2.0; must be > 0"),
    "rate-nan": (lambda t: workload.at_request_rate(t, math.nan), "request rate = nan; must be > 0"),
    "burst": (lambda t: workload.at_request_rate(workload.slice_time(t, 13.0, 1.0), 2.0), "all 2 requests of"),
}


@pytest.mark.parametrize(("reshape", "message"), BAD.values(), ids=BAD.keys())
def test_bad_arguments_say_value_and_remedy(trace: Trace, reshape: Callable[[Trace], object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        reshape(trace)
    assert message in str(error.value)
    assert error.value.exit_code == 2
