"""A pytest fixture, `planner_target`, that holds capacity targets in a test suite."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def planner_target(request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """Return a function that judges a targets file, as `planner check` does, and fails the test if one is missed.

    `planner_target("targets.toml", baseline="baseline.json")` returns the JSON of `planner check --json`.
    Paths are relative to the test's file. Without the baseline that a target needs, the test fails too.
    """
    folder = request.path.parent

    def judge(targets: str | Path, *, baseline: str | Path | None = None) -> dict[str, Any]:
        from planner.files.keys import asdict  # not at start: every test run of an environment loads this file
        from planner.planning.gate import check
        from planner.report.gate_tables import gate_table

        result = check(folder / targets, baseline=None if baseline is None else folder / baseline)
        if not result.met:
            pytest.fail(str(gate_table(result)), pytrace=False)
        return asdict(result)

    return judge
