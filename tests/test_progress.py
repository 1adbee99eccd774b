"""Progress: what stages say, and how a terminal and a log show them."""

import io
import time
from typing import Any

import numpy as np
import pytest
from command_line import planner
from joblib.externals.loky import get_reusable_executor, process_executor
from watching import Recorded

from planner.commands.display import Bars, DisplayThread, Lines, RunningStage, progress_shown
from planner.planning.bracket import find_bracket
from planner.progress import Stage, in_parallel, later, shown_by, stage
from planner.settings.objectives import Verdict


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_log_has_how_far_each_stage_is_and_how_long_it_takes() -> None:
    log = io.StringIO()
    outer, inner = Stage(what="trying rates", total=12, done=3), Stage(what="replaying", total=None, done=lambda: 7.0)
    begun_at_s = time.monotonic() - 30
    Lines(log).paint([RunningStage(stage=each, begun_at_s=begun_at_s) for each in (outer, inner)])
    assert log.getvalue() == ("trying rates: 3 of 12, 30 s so far, about 90 s left; replaying: 7, 30 s so far\n")


def test_the_time_left_falls_until_the_next_unit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three was through after 20 s: 40 s were left then, 10 s are left 30 s later, and none is known later."""
    counting, clock = Stage(what="sizing", total=3), [120.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    counting.move(1)
    shown, said = RunningStage(stage=counting, begun_at_s=100.0), []
    for clock[0] in (120.0, 150.0, 190.0):
        said.append(shown.times)
    assert said == ["20 s so far, about 40 s left", "50 s so far, about 10 s left", "90 s so far"]


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_short_work_shows_nothing(stream: io.StringIO) -> None:
    with progress_shown(quiet=False, stream=stream), stage("adding", 3) as adding:
        adding.move(3)
    assert stream.getvalue() == ""


KEPT: list[bytearray] = []


def grown(number: int) -> int:
    """Grow beyond what joblib lets a process grow, which ends it after the call."""
    process_executor._MAX_MEMORY_LEAK_SIZE, process_executor._MEMORY_LEAK_CHECK_DELAY = 1, 0.0
    KEPT.append(bytearray(b"x" * 10**7))
    return number


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_calls_are_made_though_processes_stop_between_them() -> None:
    """Where warnings are errors, as in these tests, joblib's on it would leave the rest of the calls unmade."""
    calls = [later(grown)(number) for number in range(12)]
    assert in_parallel("growing", calls, len(calls), 2, in_processes=True) == list(range(12))
    get_reusable_executor().shutdown()  # its processes go on with these limits


def test_a_terminal_is_left_as_it_was() -> None:
    screen = Terminal()
    with shown_by(DisplayThread(Bars(screen), 0.0, 0.01)), stage("adding", 3):
        deadline_s = time.monotonic() + 60
        while "adding" not in screen.getvalue() and time.monotonic() < deadline_s:
            time.sleep(0.01)
    shown = screen.getvalue()
    assert "0/3" in shown
    assert "\x1b[2K" in shown.rsplit("0/3", 1)[1]  # the line of the bar is cleared after its last drawing


def test_a_stage_that_fails_is_taken_away() -> None:
    log = io.StringIO()
    watch = DisplayThread(Lines(log), 0.0, 0.01)
    with shown_by(watch):
        with pytest.raises(ZeroDivisionError), stage("dividing"):
            raise ZeroDivisionError
        with stage("adding"):
            time.sleep(0.05)
    assert "dividing" not in log.getvalue().splitlines()[-1]


def test_nobody_has_to_listen() -> None:
    with stage("adding", 3) as adding:
        adding.move(1)
    assert (adding.done, adding.total) == (1, 3)


@pytest.mark.parametrize("command", ["replay", "compare", "capacity", "size", "sweep", "check", "validate", "calibrate",
                                     "report", "trace describe", "trace convert", "trace synth",
                                     "trace from-prometheus"])
def test_every_command_can_be_quiet(command: str) -> None:
    assert "--quiet" in planner(*command.split(), "--help").stdout


def is_writeable(array: Any) -> bool:
    return bool(array.flags.writeable)


def test_large_arrays_come_to_other_processes_as_the_loop_takes_them() -> None:
    assert in_parallel("looking", [later(is_writeable)(np.zeros(1 << 18))] * 2, 2, 2, in_processes=True) == [True, True]


def test_a_search_never_counts_more_loads_than_it_announces() -> None:
    """Where what is reached is near what must be, loads are tried densely, and the number of loads grows."""
    counts: list[tuple[float, float | None]] = []
    record = Recorded()

    def verdict(load: float) -> Verdict:
        trying = record.begun[0]  # later ones are the loads that are tried at once
        assert not callable(trying.done)
        counts.append((trying.done, trying.total))
        return Verdict(is_met=load < 10.0, attainment=1.0, limiting_metric="ttft", strain=(load / 10.0) ** 0.1)

    with shown_by(record):
        bracket = find_bracket(verdict, 3.0)
    known = [(done, total) for done, total in counts if total is not None]
    assert len(bracket.probes) == len(counts) > 40
    assert all(done < total for done, total in known)
