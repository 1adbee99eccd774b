"""Outputs of commands: each is checked before the work, and none replaces another result without a word."""

import json
from pathlib import Path

import pytest
from command_line import HEADER, LINEAR, fails, planner

from planner.commands.outputs import check_outputs
from planner.errors import OutputError, UsageError
from planner.files.writing import why_no_folder, why_unwritable

SLO = ("--slo", "ttft:500")
REASON = "No such file or directory; give another path"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "0,100,10\n0.5,2000,3\n1,17,1\n")
    return path


@pytest.mark.parametrize(("command", "option", "path"), [
    (("replay", "TRACE", *LINEAR), "--json", "/proc/x.json"),
    (("replay", "TRACE", *LINEAR), "--scale-events", "/proc/x.csv"),
    (("replay", "TRACE", *LINEAR), "--timeline", "/proc/x.json"),
    (("replay", "TRACE", *LINEAR), "--save", "/proc/x/y"),
    (("compare", "TRACE", *LINEAR, "--policy", "fcfs,sjf"), "--save", "/proc/x"),
    (("capacity", "TRACE", *LINEAR, *SLO), "--json", "/proc/x.json"),
    (("probe", "TRACE", *LINEAR, *SLO), "--script", "/proc/x.sh"),
    (("size", "TRACE", *LINEAR, *SLO), "--json", "/proc/x.json"),
    (("share", "TRACE"), "--json", "/proc/x.json"),
    (("sweep", "TRACE", *LINEAR, "--axis", "max_num_seqs=1,2"), "--output", "/proc/x.parquet"),
    (("check", "TRACE"), "--junit", "/proc/x.xml"),
    (("validate", "TRACE", *LINEAR), "--predictions", "/proc/x.csv"),
    (("calibrate", "TRACE", *LINEAR), "--output", "/proc/x.toml"),
    (("report", "TRACE"), "--output", "/proc/x.html"),
    (("report", "TRACE"), "--llmd", "/proc/x.yaml"),
    (("trace", "describe", "TRACE"), "--html", "/proc/x.html"),
    (("trace", "convert", "TRACE"), "--output", "/proc/x.csv"),
    (("trace", "synth", "TRACE", "--fit"), "--save", "/proc/x.toml"),
])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
        command: tuple[str, ...], option: str, path: str, trace: Path) -> None:
    """The trace is not even read: it is left out of the folder."""
    trace.unlink()
    words = [str(trace) if word == "TRACE" else word for word in command]
    fails(planner(*words, option, path), 3, f"{option} {path}: cannot be written: {REASON}")


def test_the_check_leaves_nothing_behind(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("{}")
    check_outputs({"--json": kept, "--requests": tmp_path / "r.csv", "--steps": None}, folder=tmp_path / "new" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]
    assert kept.read_text() == "{}"


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/null", "-"])
def test_devices_can_be_written(path: str) -> None:
    check_outputs({"--json": Path(path), "--requests": Path(path)})


@pytest.mark.parametrize(("path", "reason"), [
    (".", "Is a directory"), ("file/x.json", "Not a directory"), ("x" * 300, "File name too long"),
    ("/dev/fd/99", "No such file or directory")])
def test_paths_that_cannot_be_written(path: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert why_unwritable(tmp_path / path) == reason
    with pytest.raises(OutputError, match=f"^--json .*: cannot be written: {reason}; give another path$"):
        check_outputs({"--json": tmp_path / path})


def test_a_folder_of_results_may_be_new_but_not_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert why_no_folder(tmp_path / "a" / "b") is None
    assert why_no_folder(tmp_path) is None
    for path in ("file", "file/run"):
        assert why_no_folder(tmp_path / path) == f"{tmp_path / 'file'} is no folder"


def test_two_outputs_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"^--timeline .*: is the file of --json too; give each its own$"):
        check_outputs({"--json": Path("x.json"), "--timeline": tmp_path / "x.json"})


@pytest.mark.parametrize(("command", "words"), [
    (("report", "gone.json", "--output", "r.txt"), "the ending must be .html"),
    (("report", "gone.json", "--llmd", "r.txt"), "the ending must be .yaml"),
    (("trace", "describe", "gone.csv", "--html", "r.txt"), "the ending must be .html"),
    (("trace", "convert", "gone.csv", "x.xyz"), "--to must be one of"),
    (("trace", "synth", "gone.csv", "--fit", "--output", "x.xyz"), "--to must be one of"),
    (("trace", "synth", "gone.csv", "--fit", "--output", "x", "--to", "xyz"), "unknown format 'xyz'"),
])
def test_an_ending_that_means_nothing_is_refused_before_the_work(command: tuple[str, ...], words: str) -> None:
    fails(planner(*command), 2, words)


def test_a_folder_keeps_the_result_of_another_command(trace: Path, tmp_path: Path) -> None:
    """The same command replaces its result, also of a trace that has changed; another command needs --overwrite."""
    command = ("replay", trace, *LINEAR, "--save", tmp_path / "run", "--quiet")
    summary = tmp_path / "run" / "summary.json"
    assert planner(*command).returncode == 0
    first = json.loads(summary.read_text())["replay_command"]
    assert first == f"planner replay {trace} --num-gpu-blocks 1000 --step-time linear:0.01,0.0001"
    again = planner(*command)
    assert again.returncode == 0
    assert "note" not in again.stderr
    kept = summary.read_bytes()
    other = planner(*command, "--max-num-seqs", "8")
    fails(other, 2, f"--save {tmp_path / 'run'}: summary.json exists and is of another command, {first}; give another",
          "or --overwrite")
    assert "read 3 rows" not in other.stderr
    assert summary.read_bytes() == kept
    assert planner(*command, "--max-num-seqs", "8", "--overwrite").returncode == 0
    assert json.loads(summary.read_text())["replay_command"].endswith("--max-num-seqs 8 --step-time "
                                                                      "linear:0.01,0.0001")
    trace.write_text(HEADER + "0,100,10\n")
    changed = planner(*command, "--max-num-seqs", "8")
    assert (changed.returncode, changed.stderr.splitlines()[-1]) == (
        0, f"note: --save {tmp_path / 'run'}: the replaced result was of a trace with other content")


@pytest.mark.parametrize("name", ["requests.parquet", "steps.parquet", "summary.json"])
def test_a_folder_keeps_files_that_are_no_result(name: str, trace: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text("[]")
    fails(planner("replay", trace, *LINEAR, "--save", tmp_path), 2, f"{name} exists and is of no known command")
    assert (tmp_path / name).read_text() == "[]"
    fails(planner("replay", trace, *LINEAR, "--save", tmp_path / "new", "--requests", tmp_path / "new" / name), 2,
          f"--requests {tmp_path / 'new' / name}: cannot be written: the folder")


def test_a_table_is_not_written_into_a_saved_result(trace: Path, tmp_path: Path) -> None:
    fails(planner("replay", trace, *LINEAR, "--save", tmp_path, "--requests", tmp_path / "requests.parquet"), 2,
          f"--save {tmp_path / 'requests.parquet'}: is the file of --requests too; give each its own")


def test_a_comparison_keeps_the_results_of_another_one(trace: Path, tmp_path: Path) -> None:
    command = ("compare", trace, *LINEAR, "--policy", "fcfs,sjf", "--save", tmp_path)
    for _ in range(2):
        assert planner(*command).returncode == 0
    fails(planner(*command, "--max-num-seqs", "8"), 2, f"--save {tmp_path / 'fcfs'}: summary.json exists",
          "--policy fcfs --step-time linear:0.01,0.0001; give another path, or --overwrite")
    assert planner(*command, "--max-num-seqs", "8", "--overwrite").returncode == 0


def test_a_report_of_other_inputs_is_kept(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        assert planner("replay", trace, *LINEAR, "--save", name).returncode == 0
    for _ in range(2):
        assert planner("report", "a", "b").stdout == "report.html\nreport.md\n"
    kept = Path("report.html").read_bytes()
    fails(planner("report", "b"), 2, "--output report.html: report.html exists and is of another command, planner "
          "report a b; give another path, or --overwrite")
    assert Path("report.html").read_bytes() == kept
    assert planner("report", "b", "--overwrite").returncode == 0
    Path("README.md").write_text("mine")
    Path("index.html").write_text("<title>mine</title>")
    for name, file in (("README.html", "README.md"), ("index.html", "index.html")):
        fails(planner("report", "b", "--output", name), 2, f"--output {name}: {file} exists and is of no known command")
    assert Path("README.md").read_text() == "mine"
