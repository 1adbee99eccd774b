"""Documents are what one gets: read from top to bottom, their commands run, their output is real, their code works.

The folder is empty at the start. A block whose first line is `# name.ext` is a file. In blocks without a language,
lines that begin with `planner` run. The lines below `$ planner …` are its output: all of it, or pieces with a line of
three dots between them. The JSON of each command keeps the schema of `planner schema`.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import SHELLS, run_line
from helpers import shorten_loads

from planner.measured.published import read_published
from planner.report.answer_schemas import LINES, SCHEMAS, answer_schema

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed; pip install '.[dev]'")

ROOT = Path(__file__).resolve().parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *GUIDES]
PAGES = [*DOCUMENTS, *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "reference").glob("*.md"),
         *(ROOT / "docs" / "decisions").glob("*.md"), *(ROOT / "docs" / "lab").glob("*.md"), ROOT / "CHANGELOG.md"]
DATA = ("csv", "json", "text")  # these files have no comments: the line with the name is no part of them
UNSEEN = 5_000  # requests of a load in a search whose answer nobody reads
BLOCK = re.compile(r"```(\w*)\n(.*?)```", flags=re.DOTALL)


def run(line: str, folder: Path, *, here: bool) -> subprocess.CompletedProcess[str]:
    """Run a line; commands of the line that write no JSON write it too, and all JSON is held against its schema."""
    commands = [with_json(command, f".answer-{i}.json") for i, command in enumerate(line.split(" && "))]
    done = run_line(" && ".join(commands), folder, here=here)
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    for command in commands:
        name = name_of(command)
        for option, file in re.findall(r" (--json(?:-lines)?) (\S+)", command) if name is not None else ():
            text = (folder / file).read_text(encoding="utf-8")
            for answer in text.splitlines() if option == "--json-lines" else [text]:
                jsonschema.Draft202012Validator(answer_schema(str(name))).validate(json.loads(answer))
    return done


def with_json(command: str, file: str) -> str:
    """Return a command that writes its JSON too; without a change if it does so, has none, or needs a shell."""
    is_plain = not SHELLS.search(command) and " --json" not in command
    return f"{command} --json {file}" if is_plain and name_of(command) not in (None, LINES) else command


def name_of(command: str) -> str | None:
    """Return the name by which a command has a schema; None for the others."""
    words = command.split()[1:3]
    return next((name for name in (" ".join(words), words[0]) if name in SCHEMAS), None)


def named_file(block: str) -> str | None:
    found = re.match(r"# ([\w-]+\.\w+)\n", block)
    return found and found[1]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_is_what_one_gets(path: Path, tmp_path: Path) -> None:
    """Every command of the README in a process of its own, as its reader has it.

    Commands whose output is not shown search shorter loads, which takes half of the time.
    """
    here = path.name != "README.md"
    for language, block in BLOCK.findall(path.read_text(encoding="utf-8")):
        name = named_file(block)
        if name is not None:
            (tmp_path / name).write_text(block.split("\n", 1)[1] if language in DATA else block)
        elif block.startswith("$ "):
            command, *shown = block.strip().splitlines()
            assert_shown(run(command.removeprefix("$ "), tmp_path, here=here).stdout, shown, command)
        elif language == "python":
            subprocess.run([sys.executable, "-W", "error", "-c", block], cwd=tmp_path, check=True, capture_output=True)
        elif not language:
            for line in block.splitlines():
                if line.startswith("planner ") or "| planner " in line:
                    with pytest.MonkeyPatch.context() as patch:
                        shorten_loads(patch, UNSEEN)
                        run(line, tmp_path, here=here)


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


def test_the_index_of_decisions_has_each_page_once() -> None:
    docs = ROOT / "docs"
    index = (docs / "decisions.md").read_text(encoding="utf-8")
    listed = re.findall(r"(?m)^- \[.*\]\((decisions/[\w-]+\.md)\)", index)
    assert sorted(listed) == sorted(f"decisions/{page.name}" for page in (docs / "decisions").iterdir())


def test_each_decision_names_its_alternative_and_its_lab_page() -> None:
    for page in (ROOT / "docs" / "decisions").iterdir():
        for section in re.split(r"(?m)^## ", page.read_text(encoding="utf-8"))[1:]:
            title, *pairs = section.strip().split("\n\n")
            kinds = [re.sub(r"^\*\*(\w+)\.\*\* .*", r"\1", line) for line in pairs]
            assert kinds == ["Decision", "Rejected"] * (len(pairs) // 2), title
            assert pairs, title
            assert all(f"[lab](../lab/{page.name}#" in line for line in pairs[1::2]), title


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


def test_the_accuracy_pages_later_runs_are_the_published_ones() -> None:
    """Medians stand beside means, as the report has both."""
    figures = {each.name: each.value for each in read_published()["Runs that were published later"]}
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8").partition("## Later runs")[2]
    for kind in ("one node", "prefill and decode apart"):
        row = next(line for line in page.splitlines() if line.startswith(f"| {kind}"))
        for metric, cell in zip(("median_tpot_ms", "median_ttft_ms", "output_tput_per_gpu"), row.split("|")[3:6],
                                strict=True):
            median, mean = (100 * float(figures[f"{kind}, {metric}: {error}"] or 0) for error in ("median APE", "MAPE"))
            assert f"{median:.1f} / {mean:.1f} %" in cell


@pytest.mark.parametrize("name", ["docs/architecture.md", "docs/inside.md"])
def test_files_that_a_page_names_are_there(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for path in re.findall(r"`([\w./]+(?:/|\.py))`", text):
        assert (ROOT / "planner" / path).exists() or (ROOT / path).exists(), f"{name}: {path} is no file"
