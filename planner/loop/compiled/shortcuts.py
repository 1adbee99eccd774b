"""Whether the loop is compiled with shortcuts through Numba, or by Numba's own way.

`lean.py`, `linking.py` and `kept_helpers.py` replace inner parts of Numba while it compiles: the replay loop takes 15 s
with them and 71 s without. Another Numba may have other inner parts. One that is newer than the tested ones therefore
compiles a small function with the shortcuts first, once on a machine and in another process. If that fails, the loop is
compiled by Numba's own way: seconds are lost, and no answer changes.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

TESTED = (0, 68)  # newest Numba whose inner parts the tests have seen
SWITCH = "PLANNER_NUMBA"  # environment variable: "plain" or "shortcuts"; both ignore the package's code
_TRIAL = "import planner.loop.compiled.trial"


def why_plain(numba_version: str, kept: Path) -> str:
    """Return why the loop is compiled by Numba's own way; empty if it is compiled with the shortcuts.

    Parameters
    ----------
    numba_version : such as "0.68.1".
    kept : file with the outcome of the trial on this machine; written if there is none.
    """
    asked = os.environ.get(SWITCH, "")
    if asked:
        return f"{SWITCH}={asked}" if asked == "plain" else ""
    if tuple(int(part) for part in numba_version.split(".")[:2]) <= TESTED:
        return ""
    with suppress(OSError):
        return kept.read_text()
    trial = subprocess.run([sys.executable, "-c", _TRIAL], env=os.environ | {SWITCH: "shortcuts"}, check=False,
                           capture_output=True)
    reason = f"Numba {numba_version} is newer than the tested ones and has other inner parts"
    reason = reason if trial.returncode else ""
    with suppress(OSError):
        kept.write_text(reason)
    return reason
