"""Text on a terminal: no row or sentence is broken within a word, and no cell is left out."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from command_line import H100, planner

from planner.commands.actions import _read
from planner.report.text import Grid, Text
from planner.settings.scenario import Scenario

LAUNCH = ("launch: vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 4 --max-num-seqs 256 --port 8000 "
          "--host 0.0.0.0")
FLEETS = Text([
    "cheapest: 1 × 4 h200-sxm (bf16), 4 GPUs, 14.36 USD/h, 10,483 USD/month; fewest GPUs: 4 × h200-sxm (bf16)",
    Grid(heads=("gpu", "tp", "weights", "replicas", "GPUs", "USD/h", "USD/Mtok", "kW", "headroom", "error", "covered",
                "one less misses"), left=(0, 2, -1), rows=[
        ("h200-sxm", "4", "bf16", "1", "4", "14.36", "4.053", "2.66", "8.2%", "10%", "no", "–"),
        ("h200-sxm", "2", "bf16", "3", "6", "21.54", "6.079", "3.80", "35.4%", "10%", "yes", "tpot"),
        ("l4", "1", "bf16", "–", "llama-3.1-70b does not fit one l4: weights 131.4 GiB, activations 0.7 GiB")]),
    LAUNCH])
WIDE = f"""\
cheapest: 1 × 4 h200-sxm (bf16), 4 GPUs, 14.36 USD/h, 10,483 USD/month; fewest GPUs: 4 × h200-sxm (bf16)
gpu       tp  weights  replicas  GPUs  USD/h  USD/Mtok    kW  headroom  error  covered  one less misses
h200-sxm   4  bf16            1     4  14.36     4.053  2.66      8.2%    10%       no  –
h200-sxm   2  bf16            3     6  21.54     6.079  3.80     35.4%    10%      yes  tpot
l4         1  bf16            –  llama-3.1-70b does not fit one l4: weights 131.4 GiB, activations 0.7 GiB
{LAUNCH}"""
FOLDED = f"""\
cheapest: 1 × 4 h200-sxm (bf16), 4 GPUs, 14.36 USD/h, 10,483 USD/month; fewest
  GPUs: 4 × h200-sxm (bf16)
gpu       tp  weights  replicas  GPUs  USD/h  USD/Mtok    kW  headroom  error
h200-sxm   4  bf16            1     4  14.36     4.053  2.66      8.2%    10%
h200-sxm   2  bf16            3     6  21.54     6.079  3.80     35.4%    10%

gpu       tp  covered  one less misses
h200-sxm   4       no  –
h200-sxm   2      yes  tpot
l4  1  bf16  –  llama-3.1-70b does not fit one l4: weights 131.4 GiB,
  activations 0.7 GiB
{LAUNCH}"""
GRID = Grid(heads=("max_num_seqs", "gpu_memory_utilization", "p99_ttft_ms", "front"), left=(-1,), rows=[
    ("64", "0.800", "310.7", "yes"), ("64", "0.900", "310.7", "no: misses p99_ttft_ms")])


def test_a_wide_table_is_folded_and_sentences_are_broken_between_words() -> None:
    assert "\n".join(FLEETS.lines(80)) == FOLDED
    assert "\n".join(FLEETS.lines(120)) == str(FLEETS) == WIDE


def test_a_number_and_its_per_cent_stay_on_one_line() -> None:
    assert Text(["at least 13.22 with 90 %, 16.86 with 10 %"]).lines(40) == [
        "at least 13.22 with 90 %, 16.86 with", "  10 %"]


def test_rows_without_a_short_name_are_numbered() -> None:
    assert "\n".join(GRID.lines(45)) == """\
#  max_num_seqs  gpu_memory_utilization
1            64                   0.800
2            64                   0.900

#  p99_ttft_ms  front
1        310.7  yes
2        310.7  no: misses p99_ttft_ms"""


def test_titles_between_rows_are_repeated() -> None:
    grid = Grid(heads=("", "one", "two"), indent=2, rows=[
        "Times", ("mean", "1.0", "1.1"), "Cost", ("usd", "2.0", "2.2")])
    parts = (f"      {name}\nTimes\nmean  {time}\nCost\nusd   {cost}" for name, time, cost in (
        ("one", "1.0", "2.0"), ("two", "1.1", "2.2")))
    assert "\n".join(grid.lines(13)) == "\n\n".join(parts)
    assert grid.lines() == ["        one  two", "Times", "  mean  1.0  1.1", "Cost", "  usd   2.0  2.2"]


def shown(folder: Path, *arguments: str, columns: int = 80) -> list[str]:
    """Return the lines that a command prints on a terminal."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen([sys.executable, "-m", "planner.commands.cli", *arguments], cwd=folder, env=environment,
                          stdout=follower, stderr=subprocess.DEVNULL) as process:
        os.close(follower)
        text = b""
        while part := _part(leader):
            text += part
    os.close(leader)
    assert process.returncode == 0
    return text.decode().splitlines()


def _part(leader: int) -> bytes:
    try:
        return os.read(leader, 1 << 16)
    except OSError:  # on Linux the end of a terminal is an error
        return b""


@pytest.mark.parametrize("command", [
    ("compare", "chat", "--limit", "100", *H100, "--policy", "fcfs,decode-first,sjf", "--max-num-seqs", "32,64"),
    ("replay", "chat", "--limit", "100", *H100, "--slo", "ttft:500", "--interval", "0.8", "--explain"),
    ("sweep", "chat", "--limit", "100", *H100, "--axis", "max_num_seqs=16,32", "--axis",
     "gpu_memory_utilization=0.8,0.9", "--jobs", "1"),
])
def test_a_terminal_of_80_columns_shows_every_cell(command: tuple[str, ...], tmp_path: Path) -> None:
    lines = shown(tmp_path, *command)
    assert all(len(line) <= 80 or re.match("launch|to check", line) for line in lines), lines
    printed = planner(*command, *(("--output", tmp_path / "again.parquet") if command[0] == "sweep" else ()))
    assert max(map(len, printed.stdout.splitlines())) > 80
    words = set(re.sub(r"replayed .*|\S+\.parquet", "", printed.stdout).split())
    assert words <= set(" ".join(lines).split())


def test_the_account_of_a_trace_is_broken_between_words(capsys: pytest.CaptureFixture[str],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    _read("chat", Scenario(), None, "error")
    assert max(map(len, capsys.readouterr().err.splitlines())) <= 80
