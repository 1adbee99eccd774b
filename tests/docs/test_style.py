"""Plain English: no page and no help text has a phrase that docs/style.md rejects, and ever fewer docstrings have."""

import ast
import io
import re
import tokenize
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
MODULES = sorted((ROOT / "planner").rglob("*.py"))
BLOCK = re.compile(r"```.*?```", flags=re.DOTALL)
CODE = re.compile(r"`+[^`]*`+")
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
IN_CODE = {  # for docstrings and comments, with the numbers of docs/style.md's rules on prose
    "4: plain exceptions": r"\b(?:but for|besides|save for)\b",
    "2: the field's noun, not a pronoun": r"\b(?:what(?!-| :)|who|whom|whoever|whatever|nobody|somebody)\b",
    "2: the noun that is meant": r"\bthose (?:that|which|of|who|in|with|whose|it|they|there|an?)\b",
    "2: a number has a name": r"\bso (?:many|much|few|long)\b",
    "3: a verb that says something": r"\b(?:is of|are of|comes? to)\b",
    "5: conditions with if or when": r"\bwhere (?!:)",
    "1: subject, verb, object": r"\b(?:so|nor) (?:is|are|do|does|has|have)\b|\blikewise\b",
}
MAX_SENTENCES = 10  # both numbers may only fall
MAX_NAMES = 399
NAMES = {"found", "each", "own", "given"}
SENTENCE = re.compile(r"(?<=[.:;])\s+")


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
    assert {name: phrases for name, text in texts.items() if (phrases := rejected(text))} == {}


def test_docstrings_and_comments_get_plainer() -> None:
    places = [place for path in MODULES for place in rejected_sentences(path)]
    assert len(places) <= MAX_SENTENCES, _message("sentences that docs/style.md rejects", MAX_SENTENCES, places)


def test_fewer_local_names_say_nothing() -> None:
    places = [place for path in MODULES for place in empty_names(path)]
    assert len(places) <= MAX_NAMES, _message("local names that docs/style.md rejects", MAX_NAMES, places)


def rejected_sentences(path: Path) -> list[str]:
    """Return the place, the rule and the words of each rejected sentence in a module's docstrings and comments."""
    source = path.read_text(encoding="utf-8")
    texts = [(token.start[0], token.string) for token in tokenize.generate_tokens(io.StringIO(source).readline)
             if token.type == tokenize.COMMENT]
    texts += [(node.body[0].lineno, ast.get_docstring(node) or "") for node in ast.walk(ast.parse(source))
              if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body]
    return [f"{path.relative_to(ROOT)}:{line}: {rule}: {' '.join(sentence.split())}" for line, text in sorted(texts)
            for sentence in SENTENCE.split(CODE.sub("", text))
            for rule in [rule for rule, words in IN_CODE.items() if re.search(words, sentence, re.IGNORECASE)][:1]]


def empty_names(path: Path) -> list[str]:
    """Return the place of each local name of a function that says nothing of its value."""
    functions = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [f"{path.relative_to(ROOT)}:{function.lineno}: {name} in {function.name}()" for function in functions
            for name in sorted(NAMES & {_assigned(node) for node in ast.walk(function)})]


def _assigned(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else ""
    return node.arg if isinstance(node, ast.arg) else ""


def _message(kind: str, limit: int, places: list[str]) -> str:
    return "\n".join([f"{len(places)} {kind} (limit {limit}); write a new one plainly. The first ten:", *places[:10]])


def _help(command: Any, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    yield from ((f"{name} {parameter.name}", getattr(parameter, "help", "") or "") for parameter in command.params)
    for other, below in getattr(command, "commands", {}).items():
        yield from _help(below, f"{name} {other}")
