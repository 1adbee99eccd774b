"""The guides on traces: every command runs, and what is shown is what one gets."""

import re
from pathlib import Path

import pytest

from tests.docs.test_readme import run

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
NAMES = ("describe-a-trace", "synthesise-traffic", "share-a-trace", "speculative-decoding")
TEXTS = {name: (GUIDES / f"{name}.md").read_text(encoding="utf-8") for name in NAMES}
BLOCKS = [block for text in TEXTS.values() for block in re.findall(r"```\n(.*?)```", text, flags=re.DOTALL)]
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.startswith("planner ")]
SHOWN = [block for block in BLOCKS if block.startswith("$ ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the guides name: a trace, a model of it, and that model with a tenant besides."""
    found = tmp_path_factory.mktemp("guides")
    (found / "out").mkdir()
    for command in ("planner trace synth fitted-chat --output trace.csv",
                    "planner trace synth trace.csv --fit --save model.toml",
                    "planner trace synth model.toml --add-tenant agents=long-context@0.2 --save besides.toml"):
        done = run(command, found)
        assert done.returncode == 0, done.stderr
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs(command: str, folder: Path) -> None:
    done = run(command, folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", SHOWN)
def test_the_shown_output_is_what_the_command_prints(block: str, folder: Path) -> None:
    """Piece by piece, in order: three dots stand for lines between."""
    command, *shown = block.strip().splitlines()
    printed = run(command.removeprefix("$ "), folder).stdout
    place = 0
    for piece in "\n".join(shown).split("\n…"):
        found = printed.find(piece.strip("\n"), place)
        assert found >= 0, piece
        place = found + len(piece)


@pytest.mark.parametrize("name", NAMES)
def test_links_exist(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXTS[name]):
        if not target.startswith("http"):
            assert (GUIDES / target).exists(), target
