"""A baseline of the gate: the results of its scenarios, with the planner's version and the traces."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.errors import BaselineError
from planner.files.finite import is_number
from planner.files.nested import parse_json
from planner.files.writing import write_text
from planner.planning.check_answer import ScenarioMetrics
from planner.planning.fingerprint import hardware_db_sha256
from planner.results.saved import to_json
from planner.versions import versions

KEYS = {"versions", "hardware_db", "scenarios"}
SHOWN_DIGITS = 12  # of a hash


def read_baseline(path: Path) -> dict[str, Any]:
    """Read a baseline; one without scenarios if the file does not exist.

    Raises
    ------
    BaselineError : the file does not have the form that `write_baseline` writes.
    """
    if not path.exists():
        return {"versions": {}, "hardware_db": "", "scenarios": {}}
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
        if _is_baseline(found):
            return dict(found)
        what = "keys of a baseline are missing"
    except (OSError, ValueError) as error:
        what = str(error)
    raise BaselineError(f"{path}: is not a baseline: {what}; record one with --update-baseline")


def _is_baseline(found: Any) -> bool:
    return (isinstance(found, dict) and set(found) == KEYS and isinstance(found["versions"], dict)
            and isinstance(found["hardware_db"], str) and isinstance(found["scenarios"], dict)
            and all(isinstance(each, dict) and isinstance(each.get("trace_sha256"), str)
                    and isinstance(each.get("metrics"), dict) and all(map(_is_value, each["metrics"].values()))
                    for each in found["scenarios"].values()))


def _is_value(value: Any) -> bool:
    return value is None or is_number(value)


def write_baseline(path: Path, scenarios: Mapping[str, ScenarioMetrics]) -> None:
    """Write a baseline of scenarios by name, whole or not at all.

    Raises
    ------
    OutputError : it cannot be written.
    """
    write_text(path, to_json({"versions": versions(), "hardware_db": hardware_db_sha256(), "scenarios": scenarios}))


def changes(baseline: Mapping[str, Any], name: str, trace_sha256: str) -> list[str]:
    """Return the changed inputs of a scenario: the trace, the planner, its profiles and constants."""
    recorded = baseline["scenarios"][name]["trace_sha256"]
    before, now = baseline["versions"].get("planner"), versions()["planner"]
    changed = []
    if recorded != trace_sha256:
        changed.append(f"the trace changed ({recorded[:SHOWN_DIGITS]} → {trace_sha256[:SHOWN_DIGITS]})")
    if before != now:
        changed.append(f"the planner changed ({before} → {now})")
    if baseline["hardware_db"] != hardware_db_sha256():
        changed.append(f"the planner's profiles or constants changed ({baseline['hardware_db'][:SHOWN_DIGITS]} → "
                       f"{hardware_db_sha256()[:SHOWN_DIGITS]})")
    return changed
