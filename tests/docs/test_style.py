"""Plain English: phrases that docs/style.md rejects are in no page and in no help text."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

from planner.commands.cli import app
from planner.results.glossary import SUMMARY
from planner.settings.scenario import Scenario

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DATED = ("style.md",)  # it quotes what it rejects
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md",
         *(path for folder in ("", "guides", "reference", "decisions") for path in sorted((DOCS / folder).glob("*.md"))
           if path.name not in DATED)]
BLOCK = re.compile(r"```.*?```", flags=re.DOTALL)
CODE = re.compile(r"`[^`]*`")
REJECTED = {
    "but for": r"\bbut for\b",
    "those that": r"\bthose (?:that|which|of|who)\b",
    "whoever": r"\bwhoever\b",
    "besides": r"\bbesides\b",
    "is of": r"\bis of\b",
    "comes to": r"\bcomes? to\b",
    "likewise": r"\blikewise\b",
    "4.0 % for 4.5": r"\d %? ?for \d[\d.]* ?[,.;)]",
    "vllm V1": r"\bVLLM\b",
}


def rejected(text: str) -> list[str]:
    """Return the phrases of a text that the style rejects, with the words around them; code is not prose.

    >>> rejected("All of it, but for the `besides` of the code.")
    ['but for: All of it, but for the  of th']
    """
    prose = CODE.sub("", BLOCK.sub("", text))
    return [f"{name}: {prose[max(match.start() - 11, 0):match.end() + 11]}" for name, pattern in REJECTED.items()
            for match in re.finditer(pattern, prose, flags=0 if name == "vllm V1" else re.IGNORECASE)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_is_in_plain_english(path: Path) -> None:
    assert rejected(path.read_text(encoding="utf-8")) == []


def test_help_is_in_plain_english() -> None:
    texts = {f.name: f.metadata["help"] for f in fields(Scenario)} | {
        name: term.meaning for name, term in SUMMARY.items()} | dict(_help(typer.main.get_command(app), "planner"))
    assert {name: found for name, text in texts.items() if (found := rejected(text))} == {}


def _help(command: Any, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    yield from ((f"{name} {parameter.name}", getattr(parameter, "help", "") or "") for parameter in command.params)
    for other, below in getattr(command, "commands", {}).items():
        yield from _help(below, f"{name} {other}")
