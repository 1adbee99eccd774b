"""The page of formats is what the readers declare, and its commands run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run_line

from planner.traces import FORMATS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```\n(.*?)```", PAGE, flags=re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.startswith("planner ")]
FILES = {
    "burst.csv": "Timestamp,Model,Request tokens,Response tokens,Log Type\n5,GPT-4,472,18,API log\n"
                 "9,GPT-4,0,0,API log\n12,GPT-4,87,230,API log\n",
    "log.csv": "ts,prompt,out,model\n1790000000000,10,3,a\n1790000001000,20,4,b\n1790000002000,30,5,a\n",
    "log.jsonl": '{"at": "2026-09-21T10:13:20Z", "usage": {"prompt": 9, "completion": 2}}\n',
    "measured.csv": "arrival_s,input_tokens,output_tokens,ttft_client_ms,e2e_client_ms\n"
                    + "".join(f"{k},100,5,20,{60 + k}\n" for k in range(6)),
}


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return run_line(command, folder)


def test_the_page_is_what_the_readers_declare(tmp_path: Path) -> None:
    path = tmp_path / "formats.md"
    subprocess.run([sys.executable, ROOT / "docs" / "make_formats.py", path], check=True)
    assert path.read_text(encoding="utf-8") == PAGE, "run make formats"


def test_every_format_has_its_section() -> None:
    assert re.findall(r"^### (.*)$", PAGE, flags=re.MULTILINE) == list(FORMATS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs(command: str, tmp_path: Path) -> None:
    done = run(command, tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_shown_output_is_what_the_command_prints(tmp_path: Path) -> None:
    command, *shown = next(block for block in BLOCKS if block.startswith("$ ")).strip().splitlines()
    assert run(command.removeprefix("$ "), tmp_path).stdout.splitlines() == shown
