"""Documents are what one gets: read from top to bottom, their commands run, their output is real, their code works.

A block whose first line is `# name.ext` is a file. In blocks without a language, lines that begin with `planner` run,
and what follows `$ planner …` is its output: all of it, or pieces, a line of three dots standing for what is between.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run_here
from measured_runs import write_synthetic
from test_scraped import vllm
from test_serverlog import sglang

from planner.measured.published import read_published

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *GUIDES]
PAGES = [*DOCUMENTS, *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "reference").glob("*.md"), ROOT / "CHANGELOG.md"]
SHELLS = re.compile(r"[|&<>$*#]|^(?!planner )")  # what a shell must read
BLOCK = re.compile(r"```(\w*)\n(.*?)```", flags=re.DOTALL)
GATE = (ROOT / "docs" / "guides" / "gate-in-ci.md").read_text(encoding="utf-8")
GRID = (ROOT / "docs" / "guides" / "sweep-a-grid.md").read_text(encoding="utf-8")


def run(command: str, folder: Path, *, here: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a line with this Python's planner; `here`, in this process, unless it takes a shell to read it."""
    if here and not SHELLS.search(command):
        done = run_here(shlex.split(command)[1:], folder)
    else:
        own = f"{shlex.quote(sys.executable)} -m planner.cli"
        line = re.sub(r"(^|&& |\| )planner ", rf"\1{own} ", command)
        done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done


def named_file(block: str) -> str | None:
    found = re.match(r"# ([\w-]+\.\w+)\n", block)
    return found and found[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what documents take for granted: a trace, runs, and for the report's guide the gate's files."""
    rows = "".join(f"{k / 10},{100 + k},{1 + k % 30}\n" for k in range(200))
    (tmp_path / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    (tmp_path / "log.jsonl").write_text('{"arrival_s": 0, "input_tokens": 900, "output_tokens": 30}\n')
    write_synthetic(tmp_path / "runs.csv", {}, noise=0.02)
    (tmp_path / "metrics.prom").write_text(f"# at 1000\n{vllm(20)}# at 1050\n{vllm(120)}")
    lines = ["[2026-04-05 20:00:00] server_args=ServerArgs(model_path='meta-llama/Llama-3.1-8B-Instruct', tp_size=1)"]
    lines += [sglang(n, (1000 + 40 * k) * n, n / (7e-3 + 2e-5 * n)) for n in (64, 32, 16, 8, 4, 2, 1) for k in range(8)]
    (tmp_path / "server.log").write_text("\n".join(lines))
    return tmp_path


def prepare(name: str, folder: Path) -> None:
    """Put what one guide names and another makes into its folder."""
    if name == "make-reports.md":
        for _, block in BLOCK.findall(GATE) + BLOCK.findall(GRID):
            if named_file(block):
                (folder / str(named_file(block))).write_text(block)
    if name in ("make-reports.md", "gate-in-ci.md"):
        (folder / "targets.toml").write_text(next(b for _, b in BLOCK.findall(GATE) if named_file(b)))
        run("planner check targets.toml --baseline baseline.json --update-baseline", folder)
    if name == "synthesise-traffic.md":
        for command in ("planner trace synth fitted-chat --output trace.csv",
                        "planner trace synth trace.csv --fit --save model.toml"):
            run(command, folder)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_is_what_one_gets(path: Path, folder: Path) -> None:
    """Every command of the README in a process of its own, as its reader has it."""
    prepare(path.name, folder)
    here = path.name != "README.md"
    for language, block in BLOCK.findall(path.read_text(encoding="utf-8")):
        name = named_file(block)
        if name is not None:
            (folder / name).write_text(block.split("\n", 1)[1] if language == "csv" else block)
        elif block.startswith("$ "):
            command, *shown = block.strip().splitlines()
            assert_shown(run(command.removeprefix("$ "), folder, here=here).stdout, shown, command)
        elif language == "python":
            subprocess.run([sys.executable, "-W", "error", "-c", block], cwd=folder, check=True, capture_output=True)
        elif not language:
            for line in block.splitlines():
                if line.startswith("planner ") or "| planner " in line:
                    run(line, folder, here=here)


def assert_shown(printed: str, shown: list[str], command: str) -> None:
    """Assert that the lines shown are those printed, in order; a line of three dots stands for others between."""
    lines = [comparable(line) for line in printed.splitlines()]
    pieces = re.split(r"(?m)^…$\n?", "\n".join(comparable(line) for line in shown))
    text, place = "\n".join(lines), 0
    for number, piece in enumerate(pieces):
        found = text.find(piece.strip("\n"), place)
        assert found >= 0, f"{command}\n{printed}\nhas no\n{piece}"
        assert number > 0 or found == 0, f"{command}: something comes before\n{piece}"
        place = found + len(piece.strip("\n"))
    assert shown[-1] == "…" or place == len(text), f"{command}: something comes after\n{pieces[-1]}"


def comparable(line: str) -> str:
    """Return a line of output, without the numbers where it is about the speed."""
    return re.sub(r"[\d,.]+", "#", line) if line.startswith("replayed ") else line.rstrip()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = BLOCK.sub("", path.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        found = path if not file else path.parent / file
        assert found.exists(), target
        if anchor:
            heads = re.findall(r"(?m)^#+ (.*)$", found.read_text(encoding="utf-8"))
            assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}, target


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([^)#]+)", index))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert not pages - linked


def test_the_index_of_decisions_has_each_once_in_order() -> None:
    docs = ROOT / "docs"
    index = (docs / "decisions.md").read_text(encoding="utf-8")
    listed = re.findall(r"(?m)^- \[(.*)\]\((decisions/[\w-]+\.md)#", index)
    for page in sorted((docs / "decisions").iterdir()):
        heads = re.findall(r"(?m)^## (.*)$", page.read_text(encoding="utf-8"))
        assert heads == [title for title, of in listed if of == f"decisions/{page.name}"], page.name


def test_the_readmes_speed_is_the_measured_one() -> None:
    readme, report = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "reports/speed.md"))
    shown = re.search(r"([\d.]+) million requests a second", readme)
    measured = re.search(r"\| Azure conversation hour, recorded rate \| ([\d,]+) ", report)
    assert shown
    assert measured
    assert float(shown[1]) == pytest.approx(int(measured[1].replace(",", "")) / 1e6, rel=0.05)


def test_the_accuracy_table_is_the_published_one() -> None:
    """Median and mean errors of the README's table, and of the background's sentence, are those of the report."""
    figures = {each.name: each.value for each in read_published()["Closed-loop runs, mean TTFT and TPOT"]}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = {"as bundled": "in sample", "without the run's GPU": "GPU held out",
            "without the run's model": "model held out", "without the run's kind of layout": "layout held out",
            "not fitted at all": "no fit at all"}
    for words, name in rows.items():
        row = next(line for line in readme.splitlines() if line.startswith("| ") and words in line)
        shown = [[float(number) for number in cell.split("/")] for cell in row.split("|")[2:4]]
        assert shown == [[round(100 * float(figures[f"{name}, {metric} {error}"] or 0), 1)
                          for error in ("median APE", "MAPE")] for metric in ("TPOT", "TTFT")], row
    background = (ROOT / "docs" / "background.md").read_text(encoding="utf-8")
    for name in ("in sample", "GPU held out", "no fit at all"):
        tpot, ttft = (100 * float(figures[f"{name}, {metric} median APE"] or 0) for metric in ("TPOT", "TTFT"))
        assert f"{tpot:.1f} %" in background
        assert f"{ttft:.1f} %" in background
