"""The code's shape: imports go one way, every file is on the map, and sizes stay readable."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import planner
from planner.engines import ENGINES

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "planner").rglob("*.py"))
MOST_LINES = 89_673  # of the package

# The planner's rooms, packages and single files, from the ground up: each imports from those before its own only.
ROOMS = (
    "errors", "versions", "progress", "family", "schema", "files",
    "policies", "autoscaler", "router", "policy", "loop",
    "catalog", "engines", "settings", "traces",
    "model", "steptime", "launch", "deployment",
    "replays", "results",
    "run", "measured", "planning", "twin",
    "report",
    "pytest_plugin", "notebook", "ui", "commands", "assistant",
)


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


def test_no_room_imports_a_later_one() -> None:
    backward = []
    for path in set(FILES) - {ROOT / "planner" / "__init__.py"}:
        own = room_of(module_of(path))
        assert own in ROOMS, f"{own} is no room; add it to ROOMS"
        others = {room_of(name) for name in imported(path) if name != "planner"} - {own}
        backward += [(module_of(path), other) for other in others if ROOMS.index(other) > ROOMS.index(own)]
    assert not backward


def test_a_base_name_is_one_files() -> None:
    """`arrivals.py` in four rooms would be four things under one name; the names for users' files are copies."""
    names = [path.name for path in FILES if path.name != "__init__.py" and path.parent != ROOT / "planner"]
    assert not {name for name in names if names.count(name) > 1}


def test_a_class_name_is_one_class() -> None:
    """`Target` in four rooms would be four things under one name."""
    names = [node.name.lstrip("_") for path in FILES for node in ast.parse(path.read_text()).body
             if isinstance(node, ast.ClassDef)]
    assert not {name for name in names if names.count(name) > 1}


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
        docstring = ast.get_docstring(ast.parse(path.read_text()), clean=True)
        assert docstring, path
        line = f"| `{name}` | {docstring.splitlines()[0]} |"
        assert line in text, f"docs/architecture.md lacks: {line}"


def test_every_file_says_what_it_is_for() -> None:
    for path in FILES:
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, f"{path} has no docstring"
        assert docstring.splitlines()[0].endswith("."), f"{path}: its docstring begins with no sentence"


def test_no_public_name_is_a_modules() -> None:
    """Importing `planner.x` sets the attribute `x` of the package, over a public name."""
    assert not set(planner.__all__) & {room_of(name) for name in MODULES - {"planner"}}


def test_no_file_outside_the_engines_decides_by_an_engines_name() -> None:
    """No comparison and no table's key names an engine: a fact about one engine stands in its file."""
    decisions = []
    for path in FILES:
        if path.is_relative_to(ROOT / "planner" / "engines"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            compared = [*ast.walk(node)] if isinstance(node, ast.Compare | ast.MatchValue) else (
                node.keys if isinstance(node, ast.Dict) else [])
            decisions += [f"{path.name}:{part.lineno}" for part in compared
                          if isinstance(part, ast.Constant) and part.value in ENGINES]
    assert not decisions


def test_files_and_functions_stay_short() -> None:
    for path in FILES:
        text = path.read_text()
        assert text.count("\n") <= 400, f"{path} has {text.count(chr(10))} lines"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                docstring = ast.get_docstring(node, clean=False) or ""
                length = (node.end_lineno or 0) - node.lineno + 1 - docstring.count("\n")
                assert length <= 60, f"{path}:{node.lineno} {node.name} has {length} lines"


def test_the_package_grows_on_purpose() -> None:
    """The number may fall. A feature that raises it says in its commit which lines it adds, and which it takes away."""
    assert sum(path.read_text().count("\n") for path in FILES) <= MOST_LINES


def test_a_share_has_one_form() -> None:
    """`share_text` and `change_text` write "52.2 %"; Python's own format has no space. A key of JSON may have it."""
    bare = [path.name for path in FILES for _ in re.findall(r":\+?\.\d%\}", path.read_text())]
    assert bare == ["description.py"]
