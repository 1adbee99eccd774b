"""The loop does not become slower unnoticed: each load executes as many of its lines as the baseline says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MOST = 1.02  # of the baseline: two lines in a hundred
RECORD = "NUMBA_DISABLE_JIT=1 python tests/loop_cost/count_lines.py > tests/loop_cost/baseline.json"


@pytest.mark.slow
def test_no_load_costs_more_than_the_baseline() -> None:
    """Lines a request, uncompiled: they follow the compiled loop's instructions, and do not depend on the machine."""
    done = subprocess.run([sys.executable, str(HERE / "count_lines.py")], capture_output=True, text=True, check=True,
                          env=os.environ | {"NUMBA_DISABLE_JIT": "1"})
    now, before = json.loads(done.stdout), json.loads((HERE / "baseline.json").read_text())
    assert set(now) == set(before), f"the loads differ from the baseline's; record it: {RECORD}"
    risen = {name: f"{now[name]:,} lines a request, was {before[name]:,}" for name in now
             if now[name] > before[name] * MOST}
    assert not risen, f"if the feature is worth its cost, record the baseline again: {RECORD}; {risen}"
