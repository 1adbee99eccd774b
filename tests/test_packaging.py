"""What is released: the sdist and the wheel have what they must and nothing else, and the wheel works by itself."""

import ast
import csv
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

from planner.loop.compiled.jit import ready_file, source_sha256
from planner.versions import DISTRIBUTION

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
STEM = f"llm_serving_planner-{VERSION}"  # of the files of a release: the name on the index with underscores
DATA = {"hardware_db": "hardware_db", "workloads": "workloads", "reports/template": "reports/template"}

Run = subprocess.CompletedProcess[str]


def run(*command: object, folder: Path) -> Run:
    """Run a command in a folder, without this run's own path to the source and folder of compiled code."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CACHE_DIR")}
    return subprocess.run([str(part) for part in command], cwd=folder, env=inherited,
                          capture_output=True, text=True, check=False)


def checked(done: Run) -> Run:
    assert done.returncode == 0, done.stderr[-4000:]
    return done


def tracked(folder: str) -> set[str]:
    """Return the files of a folder of the checkout, but for what Python leaves there."""
    return {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    checked(run(sys.executable, "-m", "build", "--outdir", folder, ROOT, folder=folder))
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an empty environment that the wheel was installed into, with what it depends on."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=True)
    checked(run(folder / "bin" / "pip", "install", "--quiet", "--no-compile", built[1], folder=folder))
    return folder / "bin"


def test_the_sdist_has_the_source_its_data_and_documents_and_nothing_else(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        prefix = f"{STEM}/"
        names = {name.removeprefix(prefix) for name in archive.getnames()}
    wanted = {"planner", "hardware_db", "workloads", "reports/template", "docs", ".streamlit"}
    files = set().union(*(tracked(folder) for folder in wanted)) - tracked("docs/lab") | {
        "reports/accuracy.json", "app.py", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "LICENSE",
        "pyproject.toml"}
    assert names == files | {"PKG-INFO", ".gitignore"}  # hatchling adds these two


def test_the_wheel_has_the_package_and_its_data_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        entries = archive.read(f"{STEM}.dist-info/entry_points.txt").decode()
        record = archive.read(f"{STEM}.dist-info/RECORD").decode()
    data = {f"planner/data/{name}" for folder in DATA for name in tracked(folder)}
    assert names == tracked("planner") | data | {"planner/data/reports/accuracy.json"}
    assert {"planner/ui/app.py", "planner/py.typed", "planner/data/workloads/chat.toml",
            "planner/data/reports/template/page.html", "planner/data/hardware_db/gpus/h100-sxm.toml"} <= names
    assert "planner = planner.commands.cli:main" in entries
    assert "planner = planner.pytest_plugin" in entries
    licences = [row[0] for row in csv.reader(io.StringIO(record)) if row[0].endswith("licenses/LICENSE")]
    assert licences == [f"{STEM}.dist-info/licenses/LICENSE"]


def test_the_wheel_works_outside_of_the_source(installed: Path, tmp_path: Path) -> None:
    """An empty environment and another folder, as after `pip install llm-serving-planner`.

    The wheel has the same source as the checkout, so it uses the checkout's compiled loop.
    """
    planner = installed / "planner"
    assert checked(run(planner, "--version", folder=tmp_path)).stdout == f"planner {VERSION}\n"
    replayed = checked(run(planner, "replay", "chat", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--limit", 500,
                           "--slo", "ttft:500 tpot:50", "--save", "out/chat", folder=tmp_path))
    assert re.search(r"completed +500\n", replayed.stdout)
    checked(run(planner, "report", "out/chat", folder=tmp_path))
    assert "</html>" in (tmp_path / "report.html").read_text()
    listed = checked(run(planner, "db", "list", folder=tmp_path)).stdout
    assert "h100-sxm" in listed
    assert "llama-3.1-8b" in listed
    assert "--port" in checked(run(planner, "ui", "--help", folder=tmp_path)).stdout
    found = run(installed / "python", "-c", "import planner; print(planner.__file__)", folder=tmp_path).stdout
    assert Path(found).is_relative_to(installed.parent)


def test_the_dashboard_says_what_it_needs(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "planner", "ui", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "UsageError: planner ui: needs streamlit; pip install 'llm-serving-planner[ui]'\n"


def test_what_is_imported_is_declared() -> None:
    """A library that the package imports without declaring it is there in our environments, and not in a user's."""
    of_import = packages_distributions()
    names = set()
    for path in (ROOT / "planner").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    third_party = names - set(sys.stdlib_module_names) - {"planner"}
    asked = [*PROJECT["dependencies"], *(each for extra in PROJECT["optional-dependencies"].values() for each in extra)]
    declared = {re.split(r"[\[<>=]", each)[0].lower() for each in asked}
    optional = {"ray"}  # a cluster of one's own: planner sweep --backend ray
    undeclared = {name for name in third_party - optional
                  if not {each.lower().replace("_", "-") for each in of_import.get(name, [name])} & declared}
    assert not undeclared


def test_one_name_everywhere() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    for name in ("README.md", "docs/releasing.md", "planner/commands/actions.py", "planner/traces/tabular.py"):
        assert DISTRIBUTION in (ROOT / name).read_text(), name


def test_one_version_everywhere() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
    released = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert released
    assert released[1] in (f"[{VERSION}]", VERSION, "Unreleased")
    if released[1] != "Unreleased":  # a release has its own speed report and compiled code
        assert f"loop source {source_sha256()[:12]}" in (ROOT / "reports" / "speed.md").read_text()
        path, made_for = ready_file()
        assert path.read_bytes().startswith(made_for.encode()), "make ready-code"
    assert str(yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]) == VERSION
