"""A share reads the same in all texts for people: the table of a replay, of a comparison, of a capacity, and a report.
"""

import json
import re
from pathlib import Path

from command_line import H100, planner

SLO = ("--slo", "ttft:500 tpot:12", "--attainment", "0.5")


def test_a_share_reads_the_same_everywhere(tmp_path: Path) -> None:
    run = planner("replay", "chat", "--limit", "400", *H100, *SLO, "--save", tmp_path / "run", "--explain",
                  "--json", tmp_path / "summary.json")
    assert run.returncode == 0, run.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    share = summary["slo_attainment"]
    assert 0 < share < 1
    text = f"{100 * share:.1f} %" if share * 400 % 4 else f"{100 * share:.0f} %"
    assert re.search(rf"slo_attainment +{text}\n", run.stdout)
    assert f"met: {text} of the requests keep" in run.stdout
    assert f"slo_attainment {text} to " in run.stdout or "no single setting" in run.stdout
    for key in ("kv_cache_usage_peak", "mfu", "mbu"):
        assert re.search(rf"{key} +{100 * summary[key]:.1f} %\n", run.stdout), key
    assert planner("report", tmp_path / "run", "--output", tmp_path / "r.html").returncode == 0
    assert f"| {text} |" in (tmp_path / "r.md").read_text()
    compared = planner("compare", "chat", "--limit", "400", *H100, "--slo", "ttft:500 tpot:12", "--policy",
                       "fcfs,sjf", "--all").stdout
    assert re.search(rf"slo_attainment +{text} ", compared)
    assert not re.search(r"\d%", run.stdout + compared)


def test_a_capacity_has_shares_in_per_cent() -> None:
    run = planner("capacity", "chat", "--limit", "300", *H100, "--slo", "ttft:500 tpot:50", "--horizon", "trace",
                  "--replicates", "0", "--no-compare-assumptions", "--json", "-")
    found = json.loads(run.stdout)
    printed = planner("capacity", "chat", "--limit", "300", *H100, "--slo", "ttft:500 tpot:50", "--horizon", "trace",
                      "--replicates", "0", "--no-compare-assumptions").stdout
    shares = re.findall(r"(?m)^ +[\d.,]+ +([\d.]+) %  ", printed)
    assert len(shares) > 3
    values = [100 * probe["attainment"] for probe in found["probes"]]
    assert all(any(abs(float(share) - value) < 0.06 for value in values) for share in shares)
    assert "no: below 99 %" in printed
