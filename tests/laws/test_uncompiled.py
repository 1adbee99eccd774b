"""The loop uncompiled is the loop compiled, bit for bit: the same source, for debugging."""

import json
import os
import subprocess
import sys
from pathlib import Path

from uncompiled import CASES, outcomes

import planner
from planner.policies.builtin_policies import POLICIES


def test_uncompiled_is_compiled_bit_for_bit() -> None:
    """Every bit of records, rows and totals, for every policy and case, with and without recording."""
    root = Path(planner.__file__).parents[1]
    paths = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    script = Path(__file__).with_name("uncompiled.py")
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, timeout=300,
                          env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths}, check=False)
    assert done.returncode == 0, done.stderr
    compiled, uncompiled = outcomes(), json.loads(done.stdout)
    alone = [name.rsplit(" ", 1)[0].partition(" ") for name in compiled]
    assert {policy for policy, _, case in alone if case in CASES} == set(POLICIES)
    assert {case for _, _, case in alone if case in CASES} == set(CASES)
    assert [name for name in compiled if compiled[name] != uncompiled[name]] == []
