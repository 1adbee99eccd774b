"""The page of a watched plan: an upload, and the server's file while it grows."""

import json
from pathlib import Path
from typing import Any

import pytest
from pages import linked, said, uploader

from planner.files.keys import asdict
from planner.planning.watch_answer import Drift, Quantity, Replan, WatchAnswer
from planner.ui import hosting

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def interval(hour: int, measured: float, **values: Any) -> WatchAnswer:
    quantity = Quantity(name="mean_tpot_ms", unit="ms", planned=20.0, predicted=22.0, measured=measured, high=30.0,
                        cause="server")
    return WatchAnswer(**{"start": f"2026-11-29T{hour:02}:00:00Z", "end": f"2026-11-29T{hour + 1:02}:00:00Z",
                          "num_requests": 1234.0, "holds": True, "quantities": (quantity,), "differences": (),
                          "drifts": (), **values})


DRIFTED = interval(2, 40.0, holds=False, drifts=(Drift(
    cause="server", name="mean_tpot_ms", direction=1, since="2026-11-29T00:00:00Z", sentence="mean_tpot_ms is 40 ms"),),
    replan=Replan(planned_replicas=3, num_replicas=4, rate_rps=2.0, sentence="re-plan now: 4 replicas instead of 3"))


def lines(*intervals: WatchAnswer) -> bytes:
    return "".join(json.dumps(asdict(each)) + "\n" for each in intervals).encode()


def test_an_upload_shows_predicted_beside_measured_and_the_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hosting.WATCH, raising=False)
    page = linked("watch")
    assert "planner watch plan.json" in page.code[0].value
    uploader(page, "Lines of planner watch").upload("watch.jsonl", lines(interval(0, 21.0), interval(1, 41.0), DRIFTED))
    page.run()
    assert not page.exception
    error = page.error[0].value.replace("\\", "")
    assert "server drift since 2026-11-29T00:00:00Z: mean_tpot_ms is 40 ms" in error
    assert "re-plan now: 4 replicas instead of 3" in error
    row = page.dataframe[0].value.iloc[0]
    assert (row["plan"], row["at this traffic"], row["measured"], row["limits"]) == ("20", "22", "40", "to 30 !")
    assert len(page.get("plotly_chart")) == 1
    assert page.code[0].value.count("\n") == 2


def test_the_servers_file_is_shown_while_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "watch.jsonl"
    monkeypatch.setenv(hosting.WATCH, str(path))
    page = linked("watch")
    assert "watch\\.jsonl\\: cannot be read" in page.info[0].value
    assert str(tmp_path) not in said(page)
    path.write_bytes(lines(interval(0, 21.0)) + lines(DRIFTED)[:99])  # a line that is being written
    page.run()
    assert page.success[0].value.startswith("No confirmed drift")
    path.write_bytes(lines(interval(0, 21.0), DRIFTED))
    page.run()
    assert "re\\-plan now" in page.error[0].value


@pytest.mark.parametrize(("content", "words"), [
    (b"{}\n", "watch.jsonl line 1: start: is missing"), (b"\xff\n", "watch.jsonl line 1: "),
    (lines(interval(0, 21.0)) + b"[1]\n", "watch.jsonl line 2: WatchAnswer: must be an object")])
def test_a_file_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch, content: bytes, words: str) -> None:
    monkeypatch.delenv(hosting.WATCH, raising=False)
    page = linked("watch")
    uploader(page, "Lines of planner watch").upload("watch.jsonl", content)
    page.run()
    assert not page.exception
    assert words in page.error[0].value
    assert "planner watch --json-lines" in page.error[0].value
