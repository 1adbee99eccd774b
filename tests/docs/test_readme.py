"""What the README shows is what one gets: its commands run, its output is real, its code works."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from measured_runs import write_synthetic

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [line.strip() for _, block in BLOCKS for line in block.splitlines() if line.startswith("planner ")]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of the README, with this Python's planner, in a folder that has what the line names."""
    own = f"{shlex.quote(sys.executable)} -m planner.cli"
    line = re.sub(r"(^|&& )planner ", rf"\1{own} ", command)
    return subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = "".join(f"{k / 10},{100 + k},{1 + k % 30}\n" for k in range(200))
    (tmp_path / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    for name in ("my_policy.py", "my_router.py"):
        text = next(block for language, block in BLOCKS if language == "python" and f"# {name}" in block)
        (tmp_path / name).write_text(text)
    for name in ("targets.toml", "sweep.toml", "a.toml", "b.toml"):
        text = next(block for language, block in BLOCKS if language == "toml" and f"# {name}" in block)
        (tmp_path / name).write_text(text)
    assert run("planner check targets.toml --baseline baseline.json --update-baseline", tmp_path).returncode == 0
    write_synthetic(tmp_path / "runs.csv", {}, noise=0.02)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs(command: str, folder: Path) -> None:
    done = run(command, folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", [block for _, block in BLOCKS if block.startswith("$ ")])
def test_the_shown_output_is_what_the_command_prints(block: str, folder: Path) -> None:
    """Line by line, but for the speed; a line of three dots stands for those before the next."""
    command, *shown = block.strip().splitlines()
    printed = run(command.removeprefix("$ "), folder).stdout.splitlines()
    if shown[0] == "…":
        shown, printed = shown[1:], printed[1 - len(shown):]
    assert [comparable(line) for line in printed] == [comparable(line) for line in shown]


def comparable(line: str) -> str:
    """Return a line of output, without the numbers where it is about the speed."""
    return re.sub(r"[\d,.]+", "#", line) if line.startswith("replayed ") else line


def test_the_python_example_works(folder: Path) -> None:
    code = next(block for language, block in BLOCKS if language == "python" and "# my_" not in block)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert "request_id" in done.stdout


def test_links_and_images_exist() -> None:
    root = Path(__file__).resolve().parents[2]
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (root / target).exists(), target
