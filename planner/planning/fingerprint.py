"""Hashes of everything that a prediction depends on except scenario and trace: data, code, a user's files."""

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from planner.catalog.catalog_files import data_dir, user_dir
from planner.deployment.autoscale import named_files
from planner.deployment.named_files import FILES, path_of
from planner.deployment.pools import is_text, read_fleet
from planner.settings.scenario import Scenario
from planner.versions import versions


@functools.cache
def hardware_db_sha256() -> str:
    """Return a hash over the bundled profiles and constants, names and contents."""
    folder = data_dir("hardware_db")
    return _of_files(folder, (path for path in folder.rglob("*.*") if path.suffix in (".toml", ".json")))


@functools.cache
def program_sha256() -> str:
    """Return a hash over everything that is the same for all scenarios: data, a user's own catalog, code, libraries."""
    package = Path(__file__).resolve().parents[1]
    parts = [hardware_db_sha256(), _of_files(user_dir(), user_dir().rglob("*.*")),
             _of_files(package, package.rglob("*.py")), repr(sorted(versions().items()))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def scenario_sha256(scenario: Scenario, *more: object) -> str:
    """Return a hash over a scenario, the files that it names, the program, and all other arguments."""
    values = [(f.name, getattr(scenario, f.name)) for f in fields(Scenario)]
    fleet = scenario.fleet or ""
    files = [_of_file(path_of(getattr(scenario, name) or "")) for name in FILES if name != "fleet"]
    files += [] if is_text(fleet) else [_of_file(fleet)]
    if is_text(fleet) or Path(fleet).is_file():
        files += [scenario_sha256(pool.scenario) for pool in read_fleet(fleet, scenario)]
    if scenario.autoscale is not None:
        files += [_of_file(str(path)) for path in named_files(Path(scenario.autoscale))]
    return hashlib.sha256(repr((values, files, program_sha256(), more)).encode()).hexdigest()


def _of_file(name: str) -> str:
    """Return a hash of a file, of a checkpoint's folder by its JSON files, or of a config.json with those beside it."""
    path = Path(name).expanduser()
    folder = path.parent if path.name == "config.json" else path
    if name and folder.is_dir():
        return _of_files(folder, folder.glob("*.json"))
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _of_files(folder: Path, paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in paths if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()}\0{content}\0".encode())
    return digest.hexdigest()
