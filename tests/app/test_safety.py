"""Hostile uploads do no harm: bombs, formulas, markup, huge numbers; and sessions do not see each other's data."""

import csv
import gzip
import inspect
import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from pages import opened, press, uploaded

from planner.commands import cli
from planner.errors import PlannerError, TraceError, UsageError
from planner.planning.study import Study
from planner.settings.scenario import Scenario
from planner.traces.source import decompressed
from planner.ui import sidebar as sidebar_module
from planner.ui import uploads
from planner.ui.downloads import harmless, table_csv
from planner.ui.replay_tasks import ReplayQuestion, report, requests
from planner.ui.uploads import as_file, check_size

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

HEAD = "arrival_s,input_tokens,output_tokens,request_id\n"
HOSTILE = ['=cmd|"/C calc"!A0', "+1+1", "-2+3", "@SUM(A1)", "<img src=x onerror=alert(1)>", "<script>alert(2)</script>",
           "**bold** [l](javascript:alert(3))", "\u202eabc"]


def hostile_trace() -> bytes:
    text = io.StringIO()
    rows = csv.writer(text)
    for k, name in enumerate(HOSTILE):
        rows.writerow([k, 50 + k, 5 + k, name])
    return (HEAD + text.getvalue()).encode()


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_a_bomb_stops_at_the_limit(monkeypatch: pytest.MonkeyPatch, pack: Any) -> None:
    monkeypatch.setattr(uploads, "MOST_BYTES", 2**20)
    bomb = pack(b"\0" * 2**24)
    assert len(bomb) < 2**16
    with pytest.raises(UsageError, match=r"bomb.csv: has more than 1 MiB after decompression"):
        check_size("bomb.csv", bomb)


def test_a_bomb_is_refused_by_the_page() -> None:
    bomb = gzip.compress(b"\0" * 2**24) * (1 + uploads.MOST_BYTES // 2**24)
    page = uploaded("workload", "bomb.csv.gz", bomb)
    assert not page.exception
    assert "bomb.csv.gz: has more than 512 MiB after decompression" in page.error[0].value


def test_a_bomb_is_never_held_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting stops soon after the limit: what is decompressed for it is a fraction of what the bomb holds."""
    seen: list[int] = []

    def counted(name: str, pieces: Any) -> Any:
        for part in decompressed(name, pieces):
            seen.append(len(part))
            yield part

    monkeypatch.setattr(uploads, "decompressed", counted)
    monkeypatch.setattr(uploads, "MOST_BYTES", 2**20)
    with pytest.raises(UsageError):
        check_size("bomb", gzip.compress(b"\0" * 2**26))
    assert sum(seen) < 2**22


def test_damaged_and_foreign_bytes_are_said() -> None:
    with pytest.raises(TraceError, match="is truncated"):
        check_size("cut.gz", gzip.compress(b"x" * 10_000)[:-4])
    for content, said in ((b"PK\x03\x04rest", "a zip archive"), (b"PAR1rest", "cannot be read as Parquet"), (b"", "")):
        page = uploaded("workload", "x.csv", content)
        assert not page.exception
        assert said in page.error[0].value


def test_an_upload_names_no_path_of_the_server() -> None:
    paths = []

    def fail() -> None:
        with as_file("../../etc/x.csv", b"x") as path:
            paths.append(path)
            raise TraceError(f"{path}: no")

    with pytest.raises(PlannerError, match=r"^\.\./\.\./etc/x\.csv: no"):
        fail()
    assert paths[0].name == "x.csv"
    assert not paths[0].parent.exists()


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidebar_module, "MOST_ROWS", 5)
    page = uploaded("workload", "t.csv", hostile_trace())
    assert "has more than 5 requests; use the command line" in page.error[0].value


@pytest.mark.parametrize("row", ["1e300,5,5,a", "0,1e30,5,a", "0,99999999999999999999,5,a", "nan,5,5,a", "0,5,-1,a",
                                 "-inf,5,5,a", "0,5,9223372036854775807,a"])
def test_huge_numbers_are_refused(row: str) -> None:
    page = uploaded("replay", "t.csv", (HEAD + row + "\n").encode())
    assert not page.exception
    assert "t.csv line 2" in page.error[0].value
    assert not page.metric


@pytest.mark.parametrize("place", ["workload", "replay", "schedule", "compare", "capacity"])
def test_hostile_ids_are_text_on_every_page(place: str) -> None:
    page = uploaded(place, "<b>t</b>.csv", hostile_trace())
    assert not page.exception
    assert not page.error
    assert not any(getattr(each.proto, "allow_html", False) for each in (*page.markdown, *page.caption, *page.info))
    for figure in page.get("plotly_chart"):
        shown = json.loads(figure.proto.spec)
        names = [*(name for trace in shown["data"] for name in _names(trace.get("y"))),
                 *_names(shown["layout"].get("yaxis", {}).get("categoryarray"))]
        assert not any("<img" in name or "<script" in name for name in names)


def _names(values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def test_downloads_hold_no_formulas_and_reports_no_markup() -> None:
    page = uploaded("replay", "t.csv", hostile_trace())
    trace = page.session_state["upload"]
    study = Study(name="t", trace=trace.source, format=None, scenario=Scenario(model="llama-3.1-8b", gpu="h100-sxm"),
                  objectives=None)
    asked = ReplayQuestion(trace=trace, study=study)
    table = requests(asked)
    assert set(HOSTILE[:4]) <= set(table["request_id"])
    rows = list(csv.DictReader(io.StringIO(table_csv(table))))
    assert [row["request_id"] for row in rows][:4] == [f"'{name}" for name in HOSTILE[:4]]
    assert not any(value.startswith(("=", "+", "@", "\t")) for row in rows for value in row.values())
    assert "<img src=x" not in report([asked])


def test_only_text_is_quoted() -> None:
    table = pl.DataFrame({"a": ["=1", "x", None, "-1"], "b": [-1.5, 2.0, None, 3.0]})
    assert harmless(table).rows() == [("'=1", -1.5), ("x", 2.0), (None, None), ("'-1", 3.0)]


def test_sessions_do_not_see_each_others_data() -> None:
    secret = b"arrival_s,input_tokens,output_tokens\n0,777,3\n1,778,3\n"
    one = uploaded("replay", "secret.csv", secret)
    press(one, "Pin to compare")
    two = opened("replay", trace="your file")
    assert "Upload a trace in the sidebar" in two.info[0].value
    assert not two.metric
    assert "upload" not in two.session_state
    assert not two.session_state["pins"] if "pins" in two.session_state else True
    assert len(one.session_state["pins"]) == 1
    assert one.session_state["upload"].requests["input_tokens"].to_list() == [777, 778]


def test_it_listens_on_this_machine_alone() -> None:
    assert inspect.signature(cli.ui).parameters["address"].default == "localhost"
    config = Path(cli.__file__).parents[2] / ".streamlit" / "config.toml"
    assert 'address = "localhost"' in config.read_text()
