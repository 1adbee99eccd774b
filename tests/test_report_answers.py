"""Reports of answers: each command's JSON is known by what it holds, its numbers are shown, its text does no harm."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from helpers import filled
from test_report import HOSTILE, Page
from typer.testing import CliRunner

from planner.commands.cli import app as cli
from planner.errors import OutputError, PlannerError, UsageError
from planner.planning.check_answer import CheckAnswer
from planner.report.markdown import to_markdown
from planner.report.page import to_html
from planner.report.report_source import SavedAnswer, answer_of, load_sources
from planner.report.written import write_report
from planner.results.saved import SavedResult

ROWS = "".join(f"{k / 10},{100 + k},{1 + k % 30}\n" for k in range(100))
SLO = ["--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--slo", "ttft:100 tpot:20"]
TARGETS = """
[scenario."a|b"]
trace = "trace.csv"
model = "llama-3.1-8b"
gpu = "h100-sxm"
slo = "ttft:500"
target = [{metric = "p99_ttft_ms", max = 1}, {metric = "slo_attainment", min = 0.5}]
"""
ASKED = {  # file: command
    "comparison": ["compare", "trace.csv", "--policy", "fcfs,sjf", *SLO, "--explain", "--save", "saved"],
    "capacity": ["capacity", "trace.csv", *SLO, "--replicates", "0"],
    "capacity in users": ["capacity", "trace.csv", *SLO, "--replicates", "2", "--of", "concurrency"],
    "fleet": ["size", "trace.csv", *SLO, "--tensor-parallel-size", "1", "--rate-series", "day.csv"],
    "sweep": ["sweep", "trace.csv", *SLO, "--axis", "max_num_seqs=1,8", "--axis", "policy=fcfs,sjf", "--output",
              "grid.parquet"],
    "check": ["check", "targets.toml"],
}
FIGURES = {"comparison": {"latency", "phases"}, "capacity": {"attainment"}, "fleet": {"fleets", "load"},
           "sweep": {"front", "parallel"}, "check": {"margins"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the JSON of each command, as the command writes it."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n" + ROWS)
    (folder / "day.csv").write_text("start_s,rate_rps\n0,5\n60,20\n120,0\n")
    (folder / "targets.toml").write_text(TARGETS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind, words in ASKED.items():
            done = CliRunner().invoke(cli, [*words, "--json", f"{kind}.json"])
            assert done.exit_code == (1 if kind == "check" else 0), done.output
    return folder


def answer_in(path: Path) -> SavedAnswer:
    found = load_sources([path])
    assert isinstance(found, SavedAnswer)
    return found


@pytest.fixture(params=ASKED)
def answer(request: pytest.FixtureRequest, folder: Path) -> SavedAnswer:
    found = answer_in(folder / f"{request.param}.json")
    assert found.kind == request.param.removesuffix(" in users")
    return found


def test_its_figures_have_their_places_and_nothing_is_loaded(answer: SavedAnswer) -> None:
    page = Page(to_html(answer))
    figures = page.figures()["figures"]
    assert set(figures) == FIGURES[answer.kind]
    assert set(figures) == {attrs["id"] for tag, attrs in page.tags if tag == "div" and "id" in attrs}
    assert all(figure["data"] for figure in figures.values())
    assert {"src", "href", "srcset", "action"}.isdisjoint(name for _, attrs in page.tags for name in attrs)


def numbers_of(page: Page) -> set[str]:
    return {attrs["value"] or "" for tag, attrs in page.tags if tag == "data"}


@pytest.mark.parametrize(("kind", "values"), [
    ("comparison", lambda v: [each[key] for each in v for key in ("p99_ttft_ms", "completed", "num_steps")]),
    ("capacity", lambda v: [v["capacity_rps"], v["bracket"]["upper_rps"], *(p["attainment"] for p in v["probes"])]),
    ("fleet", lambda v: [v["cost_usd_per_hour"], v["headroom"], *(p["rate_rps"] for p in v["schedule"]["parts"])]),
    ("sweep", lambda v: [v["num_configurations"], *(row[metric] for row in v["front"] for metric in v["pareto"])]),
])
def test_its_numbers_are_the_commands(folder: Path, kind: str, values: Any) -> None:
    found = json.loads((folder / f"{kind}.json").read_text())
    shown = numbers_of(Page(to_html(answer_in(folder / f"{kind}.json"))))
    assert {repr(value) for value in values(found)} <= shown


def test_the_verdicts_of_a_check_are_shown(folder: Path) -> None:
    text = to_markdown(answer_in(folder / "check.json"))
    assert text.startswith("# Capacity targets: missed\n")
    assert re.search(r"\| a\\\|b \| p99_ttft_ms \| ≤ 1 \|.*\| missed \|", text)
    assert re.search(r"slo_attainment \| ≥ 50 % \|.*\| met \|", text)


def test_both_files_are_written_and_stay_the_same(folder: Path, answer: SavedAnswer, tmp_path: Path) -> None:
    paths = write_report(answer, tmp_path / "out.html")
    assert [path.name for path in paths] == ["out.html", "out.md"]
    assert paths[0].read_text(encoding="utf-8") == to_html(answer)
    assert paths[1].read_text(encoding="utf-8") == to_markdown(answer)


def poisoned(value: Any, key: str = "") -> Any:
    """Return a value with every text in it replaced by one that means harm, but for those that are names of ours."""
    if isinstance(value, dict):
        return {name: poisoned(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [poisoned(each, key) for each in value]
    ours = ("verdict", "kind", "pareto", "status", "of")
    return HOSTILE if isinstance(value, str) and key not in ours else value


@pytest.mark.parametrize("kind", ASKED)
def test_names_do_no_harm(folder: Path, kind: str) -> None:
    hostile = answer_of(poisoned(json.loads((folder / f"{kind}.json").read_text())), f"{kind}.json")
    assert hostile.kind == kind.removesuffix(" in users")
    page = Page(to_html(hostile))
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert not {"img", "a", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert "<script>alert" not in json.dumps(page.figures())
    text = to_markdown(hostile)
    assert "<" not in text
    assert "\u202e" not in text
    assert not re.search(r"(?<!\\)(`|\]\()", text)


def test_a_sweeps_table_is_a_report_too(folder: Path, tmp_path: Path) -> None:
    whole = answer_in(folder / "grid.parquet")
    assert to_html(whole).count("<tr>") == to_html(answer_in(folder / "sweep.json")).count("<tr>")
    alone = tmp_path / "sweep.json"
    alone.write_text((folder / "sweep.json").read_text().replace("grid.parquet", "gone.parquet"))
    assert "the figures show only the front" in to_markdown(answer_in(alone))
    assert "the figures show only the front" not in to_markdown(whole)


def test_a_folder_of_a_comparison_stands_for_its_results(folder: Path) -> None:
    found = load_sources([folder / "saved"])
    assert isinstance(found, list)
    assert [result.name for result in found] == ["fcfs", "sjf"]
    assert all(isinstance(result, SavedResult) for result in found)


@pytest.mark.parametrize(("text", "message"), [
    ("{", "cannot read"), ("[]", "no report can be made of this file"), ('{"a": 1}', "no report can be made"),
    ('[{"capacity_rps": 1, "probes": [], "bracket": {}}]', "no report can be made"),
    ('{"capacity_rps": 1, "probes": [], "bracket": {}}', "looks like the answer of a capacity, but was changed"),
    ('{"checks": [{}], "met": true, "targets": "x"}', "looks like the answer of a check"),
])
def test_what_is_no_answer_is_said(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(PlannerError, match=message):
        to_html(answer_in(path))


def test_what_cannot_be_read_is_said(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="an answer needs a report of its own"):
        load_sources([folder / "saved", folder / "sweep.json"])
    with pytest.raises(PlannerError, match="cannot read the result"):
        load_sources([tmp_path / "empty"])
    with pytest.raises(PlannerError, match=r"cannot read .*missing\.json"):
        load_sources([tmp_path / "missing.json"])
    (tmp_path / "no.parquet").write_bytes(b"PAR1")
    with pytest.raises(PlannerError, match=r"cannot be read.*move it away and run the sweep again"):
        load_sources([tmp_path / "no.parquet"])
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "no.parquet")
    with pytest.raises(PlannerError, match="is not a table of planner sweep"):
        load_sources([tmp_path / "no.parquet"])
    with pytest.raises(OutputError, match="cannot write"):
        write_report(SavedAnswer(name="t", answer=filled(CheckAnswer)), tmp_path / "gone" / "out.html")


def test_the_command_writes_them(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["report", str(folder / "capacity.json")])
    assert done.exit_code == 0, done.output
    assert done.stdout.split() == ["report.html", "report.md"]
    assert isinstance(CliRunner().invoke(cli, ["report", str(folder / "trace.csv")]).exception, PlannerError)


def test_a_report_states_the_objectives_and_what_the_answer_rests_on(folder: Path) -> None:
    for kind, words in (("capacity", ("scaling of the rate", "thin", "By scaling")),
                        ("fleet", ("router", "random", "p99 TTFT", "USD", "By scaling"))):
        text = to_markdown(answer_in(folder / f"{kind}.json")).replace("\\", "")
        for word in ("ttft:100 tpot:20", *words):
            assert word in text, (kind, word)


@pytest.mark.parametrize("command", ["capacity", "size"])
def test_objectives_that_nothing_keeps_have_a_report(folder: Path, tmp_path: Path, command: str) -> None:
    path = tmp_path / "missed.json"
    words = [command, str(folder / "trace.csv"), *SLO[:-1], "ttft:1 p99_tpot:50", "--json", str(path)]
    done = CliRunner().invoke(cli, [*words, *(["--tensor-parallel-size", "1"] if command == "size" else [])])
    assert done.exit_code == 1, done.output
    text = to_markdown(answer_in(path)).replace("\\", "")
    assert "Objectives that are missed" in text
    assert "TTFT of 99 % of the requests is" in text
    assert "p99_tpot:50" in text
    (page,) = write_report(load_sources([path]), tmp_path / "out.html")[:1]
    assert "ms at best" in page.read_text(encoding="utf-8")
