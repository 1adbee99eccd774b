"""Autoscaled fleets by hand: when replicas come, serve, drain and end, and what they are paid for."""

from pathlib import Path

import numpy as np
from helpers import play

from planner.results import ReplayResult

SECONDS = {"step_time": "linear:1,0"}  # every step takes a second
PLAIN = """
minimum = {minimum}
maximum = {maximum}
interval_s = {interval}
startup = {{ warmup_s = {startup} }}
up = {{ {up} }}
down = {{ stabilization_window_s = 0{down} }}
[[metric]]
{metric}
"""


def write(folder: Path, *, minimum: int = 1, maximum: int = 2, interval: float = 2.0, startup: float = 3.0,
          up: str = "", down: str = "", metric: str = 'name = "concurrency"\ntarget = 2') -> str:
    """Write an autoscaler's file and return its path."""
    path = folder / "autoscale.toml"
    path.write_text(PLAIN.format(minimum=minimum, maximum=maximum, interval=interval, startup=startup, up=up, down=down,
                                 metric=metric))
    return str(path)


def spans(result: ReplayResult) -> list[tuple[float, ...]]:
    assert result.scaling is not None
    return [tuple(None if value != value else value for value in span) for span in result.scaling.spans]


def test_a_replica_starts_serves_and_drains(tmp_path: Path) -> None:
    """One replica, a second a step, two seats.

    The three requests at 0 take ten steps each; the evaluation at 2 sees three outstanding, ⌈3 / 2⌉ = 2 replicas are
    asked for, and the second one serves from 5 on. It is sent the request of 6, the only one of its load, until 16. At
    10 the first two of replica 0 have left by 10 and the third begins, so at 12 two are outstanding, one replica is
    enough: the second drains from then on, is sent nothing of what comes at 13, and ends with its request at 16.
    """
    path = write(tmp_path)
    result = play([(0.0, 10, 10), (0.0, 10, 10), (0.0, 10, 10), (6.0, 10, 10), (13.0, 10, 10)], **SECONDS,
                  max_num_seqs=2, autoscale=path, router="least-outstanding-requests")
    assert result.replica is not None
    assert result.replica.tolist() == [0, 0, 0, 1, 0]
    assert np.asarray(result.records.requests.finished_s).tolist() == [10.0, 10.0, 20.0, 16.0, 23.0]
    assert spans(result) == [(0, 0.0, 0.0, None, 23.0), (1, 2.0, 5.0, 12.0, 16.0)]
    assert result.scaling is not None
    assert result.scaling.paid_s == 23.0 + 14.0
    assert [tuple(event) for event in result.scaling.events] == [
        (2.0, 1, 2, "concurrency", 3.0, 2.0, 2, ""), (12.0, 2, 1, "concurrency", 1.0, 2.0, 1, "")]
