"""The container: its Dockerfile keeps the rules of linters, and what it copies is enough to build the wheel."""

import fnmatch
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import jsonschema
import pytest
import yaml
from helpers import validate_compose
from typer.main import get_command

from planner.commands.cli import app

ROOT = Path(__file__).resolve().parent.parent
Instruction = tuple[str, str]


def instructions(text: str) -> list[Instruction]:
    """Return a Dockerfile's instructions with their arguments, comments left out and lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", lines)
    parts = (line.strip().partition(" ") for line in joined.splitlines())
    return [(word.upper(), rest.strip()) for word, _, rest in parts if word]


FILE = instructions((ROOT / "Dockerfile").read_text())
STAGES = [place for place, (word, _) in enumerate(FILE) if word == "FROM"]
LAST = FILE[STAGES[-1]:]


def arguments(word: str, among: list[Instruction] = FILE) -> list[str]:
    return [rest for name, rest in among if name == word]


def copied() -> list[tuple[list[str], str]]:
    """Return what the build takes from the checkout: sources and destination of each COPY."""
    found = [rest.split() for rest in arguments("COPY") if "--from=" not in rest]
    return [(parts[:-1], parts[-1]) for parts in found]


def is_ignored(path: str) -> bool:
    """Tell whether .dockerignore keeps a path of the checkout from the build; the last pattern that fits counts."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        names = ["/".join(path.split("/")[:end]) for end in range(1, path.count("/") + 2)]
        if pattern.startswith("**/"):  # at any depth
            pattern, names = pattern.removeprefix("**/"), path.split("/")
        if line and not line.startswith("#") and any(fnmatch.fnmatch(name, pattern) for name in names):
            ignored = not line.startswith("!")
    return ignored


@pytest.mark.skipif(not (Path(sysconfig.get_path("scripts")) / "hadolint").exists(), reason="hadolint is not installed")
def test_hadolint_has_nothing_to_say() -> None:
    found = subprocess.run([Path(sysconfig.get_path("scripts")) / "hadolint", "--failure-threshold", "style",
                            ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_the_rules_of_a_small_and_safe_image() -> None:
    """Several stages of a slim base with a tag of its own; no cache left; no root; commands in exec form."""
    assert len(STAGES) >= 2
    for base in arguments("FROM"):
        assert re.match(r"python:3\.\d+-slim-\w+( AS \w+)?$", base), base
    for line in arguments("RUN"):
        assert "pip install" not in line or "--no-cache-dir" in line
        assert "apt-get" not in line
    users = arguments("USER", LAST)
    assert users
    assert all(user.isdigit() and int(user) > 0 for user in users), "a number, so that Kubernetes knows it is not root"
    assert all(Path(folder).is_absolute() for folder in arguments("WORKDIR"))
    assert not arguments("ADD")
    assert json.loads(arguments("ENTRYPOINT", LAST)[0]) == ["planner"]
    assert json.loads(arguments("CMD", LAST)[0]) == ["ui", "--address", "0.0.0.0"]


def test_health_is_that_of_the_dashboard() -> None:
    port = arguments("EXPOSE", LAST)[0]
    assert port == "8501"
    check = json.loads(arguments("HEALTHCHECK", LAST)[0].split("CMD", 1)[1])
    assert f"http://localhost:{port}/_stcore/health" in check[-1]
    compile(check[-1], "HEALTHCHECK", "exec")


def test_what_is_copied_is_there_and_reaches_the_build() -> None:
    sources = [source for several, _ in copied() for source in several]
    assert sources
    for source in sources:
        path = ROOT / source
        assert path.exists(), source
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        for each in files:
            name = str(each.relative_to(ROOT))
            assert is_ignored(name) == ("__pycache__" in name), name
    for name in (".git/HEAD", "tests/conftest.py", "out/report.html", ".venv/bin/python", "docs/README.md"):
        assert is_ignored(name), name


def test_the_compose_file_keeps_the_studies_in_a_volume() -> None:
    """The command is one of the dashboard, and the image's user owns the folder of the volume."""
    document = yaml.safe_load((ROOT / "compose.yaml").read_text())
    service = document["services"]["planner"]
    entry, *words = service["command"]
    context = get_command(app).commands[entry].make_context(entry, words)  # type: ignore[attr-defined]
    volume, _, folder = service["volumes"][0].partition(":")
    assert volume in document["volumes"]
    assert context.params["studies"].parent == Path(folder)
    made = next(line for line in arguments("RUN", LAST) if f"mkdir /work {folder}" in line)
    assert f"chown planner:planner /work {folder}" in made
    assert service["ports"] == [f"127.0.0.1:{port}:{port}" for port in arguments("EXPOSE", LAST)]


def test_the_compose_file_keeps_the_compose_specification() -> None:
    document = yaml.safe_load((ROOT / "compose.yaml").read_text())
    validate_compose(document)
    document["services"]["planner"]["mem_limt"] = "16g"
    with pytest.raises(jsonschema.ValidationError, match="mem_limt"):
        validate_compose(document)


@pytest.mark.slow
def test_what_is_copied_is_enough_to_build_the_wheel(tmp_path: Path) -> None:
    source = tmp_path / "src"
    for several, destination in copied():
        for name in several:
            target = source / (f"{destination}{name}" if destination.endswith("/") else destination)
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, target)
    done = subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, source], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    assert {"planner/commands/cli.py", "planner/ui/app.py", "planner/data/workloads/chat.toml",
            "planner/data/reports/template/page.html", "planner/data/reports/accuracy.json"} <= names
