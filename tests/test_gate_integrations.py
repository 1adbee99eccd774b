"""The gate inside other tools: GitHub Actions, pre-commit and pytest; and the project's own targets."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_gate import SERVER, TARGETS, junit, slower, targets

from planner.planning.gate import check

__all__ = ["targets"]  # a fixture

ROOT = Path(__file__).resolve().parent.parent
SUITE = """
def test_capacity(planner_target):
    assert planner_target("targets.toml"{options})["met"]
"""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh virtual environment, which finds our dependencies where we do."""
    folder = tmp_path_factory.mktemp("runner")
    venv.create(folder, with_pip=True)
    own = next(folder.glob("lib/python*/site-packages"))
    (own / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin"


def run_steps(runner: Path, inputs: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the action's shell steps as a runner does, up to the first that fails; what is installed stays."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    given = {name: str(each["default"]) for name, each in action["inputs"].items()} | inputs
    shells = [step for step in action["runs"]["steps"] if "run" in step]
    assert [step["shell"] for step in shells] == ["bash", "bash"]
    for step in shells[(runner / "planner").exists():]:
        values = {name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], text)
                  for name, text in step.get("env", {}).items()}
        path = f"{runner}{os.pathsep}{os.environ['PATH']}"
        run = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=folder,
                             env=os.environ | values | {"PATH": path, "GITHUB_ACTION_PATH": str(ROOT)},
                             capture_output=True, text=True, check=False)
        if run.returncode:
            break
    return run


def test_the_action_passes_and_fails_with_the_targets(runner: Path, targets: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    summary, xml = targets.with_name("summary.md"), targets.with_name("out.xml")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    run = run_steps(runner, {"junit": "out.xml"}, targets.parent)
    assert run.returncode == 0, run.stderr
    assert "2 met, 1 not compared" in run.stdout
    assert "Capacity targets: met" in summary.read_text()
    assert list(junit(xml).values()) == ["passed", "passed", "skipped"]
    slower(targets, 0.5)
    assert run_steps(runner, {}, targets.parent).returncode == 1
    assert run_steps(runner, {"baseline": "none.json", "targets": "$(touch evil).toml"}, targets.parent).returncode == 3
    assert not targets.with_name("evil").exists()


def test_the_pre_commit_hook_runs_a_command_that_exists(targets: Path) -> None:
    hook: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())[0]
    command = [*hook["entry"].split(), *hook["args"]]
    command[0] = str(Path(sys.executable).with_name(command[0]))
    assert subprocess.run(command, cwd=targets.parent, check=False).returncode == 0
    slower(targets, 0.5)
    assert subprocess.run(command, cwd=targets.parent, check=False).returncode == 1
    assert hook["pass_filenames"] is False


@pytest.mark.parametrize(("step_s", "options", "code", "words"), [
    (0.1, "", 0, "1 passed"),
    (0.5, "", 1, "p99_ttft_ms     ≤ 450"),
    (0.1, ", baseline='none.json'", 1, "no baseline"),
])
def test_a_target_in_a_test_suite(targets: Path, step_s: float, options: str, code: int, words: str) -> None:
    """The fixture is there by itself: the installed package registers it."""
    targets.write_text(SERVER.format(step_s=step_s) + TARGETS)
    targets.with_name("test_capacity.py").write_text(SUITE.format(options=options))
    run = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", targets.parent],
                         cwd=targets.parent, capture_output=True, text=True, check=False)
    assert run.returncode == code, run.stdout
    assert words in run.stdout


def test_our_own_targets_are_met() -> None:
    """And compared: a change of the profiles or constants needs `planner check --update-baseline`."""
    folder = ROOT / "tests" / "gate"
    result = check(folder / "targets.toml", baseline=folder / "baseline.json")
    assert {row.verdict for row in result.checks} == {"met"}, result.checks
    assert {row.scenario for row in result.checks} >= {"chat", "code", "long-context"}
