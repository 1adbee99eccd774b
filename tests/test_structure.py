"""The code's shape: imports go one way, every file is on the map, and sizes stay readable."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import planner

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "planner").rglob("*.py"))

# The planner's rooms, packages and single files, from the ground up: each imports from those before its own only.
ROOMS = (
    "errors", "schema", "glossary", "versions", "answers", "progress", "files", "operators", "explanation",
    "functions", "policy", "router", "autoscaler", "choices", "engine",
    "settings", "catalog", "trace", "synthetic", "launch", "export", "traffic",
    "model", "steptime", "deployment",
    "replays", "fleet", "metrics", "run",
    "measured", "calibration", "planning", "fitting",
    "figures", "report",
    "notebook", "pytest_plugin", "ui", "commands", "cli",
)

# Reading a bundled sample by name generates it, and only then.
ALLOWED = {("trace", "synthetic"), ("trace", "traffic")}


def room_of(name: str) -> str:
    return name.split(".")[1]


def module_of(path: Path) -> str:
    return ".".join(("planner", *path.relative_to(ROOT / "planner").with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_of(path) for path in FILES}


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of ours that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and is_ours(node.module):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & MODULES or {node.module}


def is_ours(module: str) -> bool:
    return module == "planner" or module.startswith("planner.")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_imports_backwards(path: Path) -> None:
    if path == ROOT / "planner" / "__init__.py":
        return
    own = room_of(module_of(path))
    assert own in ROOMS, f"{own} is no room; give it its place"
    others = {room_of(name) for name in imported(path) if name != "planner"} - {own}
    backward = {(own, other) for other in others if ROOMS.index(other) > ROOMS.index(own)}
    assert not backward - ALLOWED


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = {module_of(path): set(imported(path)) for path in FILES}
    list(TopologicalSorter(graph).static_order())  # a circle is a CycleError that names it


def test_every_room_is_on_the_map_with_its_own_words() -> None:
    """docs/architecture.md has a line for each room, equal to the first line of its docstring; files are tested below.

    The reference's page of files is written from their docstrings.
    """
    text = (ROOT / "docs" / "architecture.md").read_text()
    for room in ROOMS:
        alone, package = ROOT / "planner" / f"{room}.py", ROOT / "planner" / room / "__init__.py"
        path, name = (alone, f"{room}.py") if alone.exists() else (package, f"{room}/")
        line = f"| `{name}` | {ast.get_docstring(ast.parse(path.read_text()), clean=True).splitlines()[0]} |"
        assert line in text, f"docs/architecture.md lacks: {line}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_says_what_it_is_for(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring, f"{path} has no docstring"
    assert docstring.splitlines()[0].endswith("."), f"{path}: its docstring begins with no sentence"


def test_no_public_name_is_a_modules() -> None:
    """Importing `planner.x` sets the attribute `x` of the package, over a public name."""
    assert not set(planner.__all__) & {room_of(name) for name in MODULES - {"planner"}}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            docstring = ast.get_docstring(node, clean=False) or ""
            length = (node.end_lineno or 0) - node.lineno + 1 - docstring.count("\n")
            assert length <= 60, f"{path}:{node.lineno} {node.name} has {length} lines"
