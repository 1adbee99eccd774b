"""The gate as CI meets it: verdicts, exit codes, JUnit XML, Markdown, and what a baseline is good for."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import fails, planner
from helpers import trace_of

from planner.errors import BaselineError, TargetsError
from planner.loop.state.engine_settings import Recording
from planner.planning.check_answer import CheckAnswer, TargetVerdict
from planner.planning.fingerprint import hardware_db_sha256
from planner.planning.gate import check
from planner.planning.targets import read_targets
from planner.replays.fleet.replicas import serve
from planner.report.content import _rows
from planner.report.gate_tables import gate_row
from planner.results.summary import summarize
from planner.run import replay
from planner.settings.scenario import Scenario

SERVER = """
[scenario.one]
trace = "trace.csv"
step_time = "linear:{step_s},1e-9"
num_gpu_blocks = 4000
max_num_seqs = 1
async_scheduling = false
slo = "ttft:150"
"""
TARGETS = """
[[scenario.one.target]]
metric = "slo_attainment"
min = 0.99

[[scenario.one.target]]
metric = "p99_ttft_ms"
max = 450
max_regression = 0.05
"""


@pytest.fixture
def targets(tmp_path: Path) -> Path:
    """One-token requests a second apart, of which a server of 0.1 s a step answers each in 100 ms."""
    rows = "".join(f"{k},10,1\n" for k in range(20))
    (tmp_path / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    path = tmp_path / "targets.toml"
    path.write_text(SERVER.format(step_s=0.1) + TARGETS)
    return path


def slower(targets: Path, step_s: float) -> None:
    targets.write_text(SERVER.format(step_s=step_s) + TARGETS)


def test_a_share_is_in_per_cent_in_verdicts_and_in_the_table_of_all_figures() -> None:
    row = TargetVerdict(scenario="one", metric="slo_attainment", predicted=0.98999, baseline=None, margin=-0.00001,
                        reason=None, kind="min", limit=0.99, verdict="missed")
    assert gate_row(row) == ("one", "slo_attainment", "≥ 99 %", "98.999 %", "-0.001 %", "missed")
    rest = replace(row, metric="p99_ttft_ms", kind="max", limit=450.0, predicted=483.7, margin=-33.7)
    assert gate_row(rest)[2:5] == ("≤ 450", "483.7", "-33.700 (-7.5 %)")
    assert [each.unit for each in _rows([{"kv_cache_usage_peak": 0.5, "slo_attainment_by_metric": {"ttft": 0.5}}])] == [
        "%", "%"]


def verdicts(result: CheckAnswer) -> list[str]:
    return [row.verdict for row in result.checks]


def junit(path: Path) -> dict[str, str]:
    """Return what became of each test case: passed, or the tag that says otherwise."""
    cases = ElementTree.parse(path).getroot().iter("testcase")
    return {str(case.get("name")): case[0].tag if len(case) else "passed" for case in cases}


def gate(targets: Path, *options: object) -> tuple[Any, dict[str, str], str]:
    """Run the command line; return its run, its JUnit cases and its Markdown."""
    xml, text = targets.with_name("out.xml"), targets.with_name("out.md")
    run = planner("check", targets, "--junit", xml, "--markdown", text, *options)
    return run, junit(xml) if xml.exists() else {}, text.read_text() if text.exists() else ""


def test_met(targets: Path) -> None:
    baseline = targets.with_name("baseline.json")
    assert planner("check", targets, "--baseline", baseline, "--update-baseline").returncode == 0
    run, cases, markdown = gate(targets, "--baseline", baseline)
    assert run.returncode == 0
    assert cases == dict.fromkeys(["slo_attainment min", "p99_ttft_ms max", "p99_ttft_ms max_regression"], "passed")
    assert run.stdout.splitlines()[-1] == "3 targets: 3 met"
    assert "## Capacity targets: met" in markdown
    assert "| one | p99_ttft_ms | ≤ 450 | 100.0 | 350.0 (+77.8 %) | met |" in markdown


def test_missed(targets: Path) -> None:
    slower(targets, 0.5)
    run, cases, markdown = gate(targets)
    assert run.returncode == 1
    assert cases == {"slo_attainment min": "failure", "p99_ttft_ms max": "failure",
                     "p99_ttft_ms max_regression": "skipped"}
    assert "## Capacity targets: missed" in markdown
    assert "2 missed, 1 not compared" in run.stdout


def test_regressed(targets: Path) -> None:
    baseline = targets.with_name("baseline.json")
    check(targets, baseline=baseline, update=True)
    for step_s, verdict in ((0.1045, "met"), (0.106, "regressed"), (0.05, "met")):
        slower(targets, step_s)
        row = check(targets, baseline=baseline).checks[-1]
        assert (row.kind, row.verdict) == ("max_regression", verdict)
        assert row.margin == pytest.approx(0.05 - (step_s / 0.1 - 1), abs=1e-6)
    slower(targets, 0.106)
    run, cases, markdown = gate(targets, "--baseline", baseline)
    assert run.returncode == 1
    assert list(cases.values()) == ["passed", "passed", "failure"]
    assert "regressed" in markdown


def test_a_missing_baseline(targets: Path) -> None:
    run, cases, markdown = gate(targets, "--baseline", targets.with_name("none.json"))
    assert run.returncode == 2
    assert "none.json" in run.stderr
    assert "--update-baseline" in run.stderr
    assert list(cases.values()) == ["passed", "passed", "error"]
    assert "no baseline" in markdown
    slower(targets, 0.5)
    assert gate(targets, "--baseline", targets.with_name("none.json"))[0].returncode == 1
    fails(planner("check", targets, "--update-baseline"), 2, "--baseline")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"versions": {}, "hardware_db": "", "scenarios": {"one": {}}}',
                                     '{"versions": {}, "hardware_db": "", "scenarios": {"one": '
                                     '{"trace_sha256": "", "metrics": {"p99_ttft_ms": "fast"}}}}'])
def test_a_damaged_baseline(targets: Path, content: str) -> None:
    baseline = targets.with_name("baseline.json")
    baseline.write_text(content)
    with pytest.raises(BaselineError, match="record one with --update-baseline"):
        check(targets, baseline=baseline)
    assert check(targets, baseline=baseline, update=True).met
    assert check(targets, baseline=baseline).met


def test_damaged_files_leave_nothing_behind(targets: Path) -> None:
    targets.with_name("baseline.json").write_text("{")
    run, cases, markdown = gate(targets, "--baseline", targets.with_name("baseline.json"))
    fails(run, 3, "baseline.json")
    assert (cases, markdown) == ({}, "")
    targets.write_text("[scenario.one")
    run, cases, markdown = gate(targets)
    fails(run, 3, "targets.toml")
    assert (cases, markdown) == ({}, "")


def test_a_changed_trace_is_no_regression(targets: Path) -> None:
    baseline = targets.with_name("baseline.json")
    check(targets, baseline=baseline, update=True)
    trace = targets.with_name("trace.csv")
    trace.write_text(trace.read_text() + "19.01,10,1\n")
    slower(targets, 0.12)
    result = check(targets, baseline=baseline)
    assert result.checks[-1].verdict == "not compared"
    assert str(result.checks[-1].reason).startswith("the trace changed (")


@pytest.mark.parametrize(("key", "value", "words"), [("versions", {"planner": "0.0"}, "the planner changed (0.0 → "),
                                                     ("hardware_db", "0" * 64, "profiles or constants changed")])
def test_a_changed_planner_is_no_regression(targets: Path, key: str, value: Any, words: str) -> None:
    baseline = targets.with_name("baseline.json")
    check(targets, baseline=baseline, update=True)
    recorded = json.loads(baseline.read_text())
    assert recorded["hardware_db"] == hardware_db_sha256()
    assert recorded["versions"].keys() == {"planner", "python", "numba", "numpy", "polars"}
    baseline.write_text(json.dumps(recorded | {key: value}))
    slower(targets, 0.12)
    result = check(targets, baseline=baseline)
    assert result.checks[-1].verdict == "not compared"
    assert words in str(result.checks[-1].reason)
    _, cases, markdown = gate(targets, "--baseline", baseline)
    assert cases["p99_ttft_ms max_regression"] == "skipped"
    assert words.split(" (")[0] in markdown


def test_the_job_summary_gets_the_markdown(targets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = targets.with_name("summary.md")
    summary.write_text("before\n")
    monkeypatch.setitem(os.environ, "GITHUB_STEP_SUMMARY", str(summary))
    _, _, markdown = gate(targets)
    assert summary.read_text() == "before\n" + markdown


def test_a_model_that_does_not_fit_misses_its_targets(tmp_path: Path) -> None:
    path = tmp_path / "targets.toml"
    path.write_text('[scenario.big]\ntrace = "chat"\nmodel = "llama-3.1-70b"\ngpu = "h100-sxm"\n'
                    '[[scenario.big.target]]\nmetric = "p99_ttft_ms"\nmax = 1e9\n')
    row = check(path).checks[0]
    assert (row.verdict, row.predicted) == ("missed", None)
    assert "does not fit" in str(row.reason)


def test_replicas_share_the_trace(targets: Path) -> None:
    """Two of a tenth of a second serve 20 requests a second that one does not."""
    rows = "".join(f"{k / 20},10,1\n" for k in range(100))
    targets.with_name("trace.csv").write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    assert not check(targets).met
    fleet = "[scenario.one]\nreplicas = 2\nrouter = 'round-robin'"
    targets.write_text(targets.read_text().replace("[scenario.one]", fleet))
    assert check(targets).met


def test_a_capacity_can_be_a_target(targets: Path) -> None:
    """A server that is free again after 0.1 s keeps arrivals within 5 s up to 10 a second."""
    server = SERVER.format(step_s=0.1).replace("ttft:150", "ttft:5000")
    targets.write_text(server + "[[scenario.one.target]]\nmetric = 'capacity_rps'\nmin = 9.5\nmax = 10.5\n")
    assert verdicts(check(targets)) == ["met", "met"]
    targets.write_text(targets.read_text().replace("ttft:5000", "ttft:50"))
    result = check(targets)
    assert verdicts(result) == ["missed", "met"]
    assert result.checks[0].predicted == 0


def test_a_pooled_summary_is_that_of_its_replicas() -> None:
    rows = [(k / 20, 10 + k, 1 + k % 5) for k in range(60)]
    server = Scenario(step_time="linear:0.02,1e-5", num_gpu_blocks=400, max_num_seqs=4, max_model_len=100)
    fleet = replace(server, data_parallel_size=3, router="round-robin")
    outcome = replay(trace_of(rows), fleet, slo=None, recording=Recording())
    parts = [replay(trace_of(rows[k::3]), server, slo=None, recording=Recording()) for k in range(3)]
    for name in ("completed", "num_steps", "total_input_tokens", "total_output_tokens", "num_computed_prompt_tokens"):
        assert outcome.summary[name] == sum(part.summary[name] for part in parts)
    for name in ("max_running", "max_waiting", "kv_cache_usage_peak"):
        assert outcome.summary[name] == max(part.summary[name] for part in parts)
    busy_s = sum(float(part.result.records.engine.busy_s) for part in parts)
    assert outcome.summary["gpu_busy_fraction"] == pytest.approx(busy_s / 3 / outcome.summary["duration"])
    num_gaps = sum(int(part.result.records.gaps.counts.sum()) for part in parts)
    assert int(outcome.result.records.gaps.counts.sum()) == num_gaps == sum(k % 5 for k in range(60))
    alone = replay(trace_of(rows), server, slo=None, recording=Recording())
    assert summarize(serve(trace_of(rows), alone.result.deployment, 1), None) == alone.summary.figures


@pytest.mark.parametrize(("old", "new", "words"), [
    ('slo = "ttft:150"', 'slow = "ttft:150"', "unknown option 'slow'"),
    ('slo = "ttft:150"', "", "slo_attainment needs slo"),
    ('slo = "ttft:150"', 'slo = "ttft:fast"', "fast"),
    ('slo = "ttft:150"', "slo = 150", "slo = 150: must be text"),
    ('slo = "ttft:150"', "attainment = 0.9", "needs slo"),
    ("max_num_seqs = 1", 'max_num_seqs = "1"', "max_num_seqs = '1': must be a whole number"),
    ("max_num_seqs = 1", "max_num_seqs = true", "max_num_seqs = True: must be a whole number"),
    ("max_num_seqs = 1", 'engine = "tgi"', "engine = 'tgi': must be vllm, sglang, trtllm"),
    ("max_num_seqs = 1", "replicas = 0", "data_parallel_size = 0: must be at least 1"),
    ("max_num_seqs = 1", "replicas = 2\ndata_parallel_size = 3", "is data_parallel_size, which is there already"),
    ('trace = "trace.csv"', "", "has no trace"),
    ('trace = "trace.csv"', 'trace = "none.csv"', "no such file"),
    ('"slo_attainment"', '"slo_attained"', "unknown metric 'slo_attained'; did you mean 'slo_attainment'?"),
    ('"slo_attainment"', '"wall_s"', "unknown metric 'wall_s'"),
    ('"slo_attainment"', '"p99_ttft_ms"', "a metric has two targets"),
    ('metric = "slo_attainment"', "", "a target has no metric"),
    ("min = 0.99", "", "has neither min, max nor max_regression"),
    ("min = 0.99", "min = 2\nmax = 1", "min = 2 is above max = 1"),
    ("min = 0.99", "min = 99", "slo_attainment: min = 99: must be a share from 0 to 1; 99 % is 0.99"),
    ("min = 0.99", "least = 1", "unknown key of a target 'least'"),
    ("min = 0.99", "min = nan", "min = nan: must be a number"),
    ("max_regression = 0.05", "max_regression = -1", "must be 0 or more"),
    ("[scenario.one]", "[settings]\n[scenario.one]", "unknown key 'settings'"),
    ("[[scenario.one.target]]", "[[scenarios.target]]", "unknown key 'scenarios'"),
])
def test_bad_targets(targets: Path, old: str, new: str, words: str) -> None:
    text = targets.read_text()
    assert old in text
    targets.write_text(text.replace(old, new))
    with pytest.raises(TargetsError) as caught:
        check(targets)
    assert words in str(caught.value)
    assert str(targets) in str(caught.value)


def test_which_way_is_worse(targets: Path) -> None:
    server = SERVER.format(step_s=0.1)
    for metric, is_less in (("p99_ttft_ms", True), ("request_goodput", False), ("cost_usd", True), ("mfu", False)):
        targets.write_text(f"{server}[[scenario.one.target]]\nmetric = '{metric}'\nmax_regression = 0.1\n")
        assert read_targets(targets)[0].targets[0].is_less_better == is_less
    targets.write_text(f"{server}[[scenario.one.target]]\nmetric = 'num_steps'\nmax_regression = 0.1\n")
    with pytest.raises(TargetsError, match="needs a min or a max"):
        read_targets(targets)
    targets.write_text(targets.read_text() + "max = 9\n")
    assert read_targets(targets)[0].targets[0].is_less_better


def test_files_are_looked_for_beside_the_targets(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "mine.toml").write_text("")
    path = tmp_path / "targets.toml"
    path.write_text('[scenario.a]\ntrace = "t.csv"\nmodel = "llama-3.1-8b"\npolicy = "mine.py:own"\ngpu = "mine.toml"\n'
                    '[[scenario.a.target]]\nmetric = "mfu"\nmin = 0\n')
    gated = read_targets(path)[0]
    assert gated.study.trace == str(tmp_path / "t.csv")
    assert gated.study.scenario.policy == f"{tmp_path / 'mine.py'}:own"
    assert gated.study.scenario.gpu == str(tmp_path / "mine.toml")
    assert gated.study.scenario.model == "llama-3.1-8b"


def test_a_statistic_in_slo_is_judged_and_speaks_the_names_of_targets(targets: Path) -> None:
    text = targets.read_text().replace('slo = "ttft:150"', 'slo = "ttft:150 p99_ttft:50 p50_ttft_ms:200"')
    targets.write_text(text + '[[scenario.one.target]]\nmetric = "p99.9_ttft"\nmax = 120\n'
                              '[[scenario.one.target]]\nmetric = "median_ttft"\nmax = 90\n')
    result = check(targets)
    rows = {(row.metric, row.limit): row for row in result.checks}
    predicted = [row.predicted for row in rows.values() if row.metric != "slo_attainment"]
    assert predicted == pytest.approx(6 * [100.0])
    assert rows["p99_ttft_ms", 50.0].verdict == "missed"
    assert rows["median_ttft_ms", 200.0].verdict == "met"
    assert rows["p99.9_ttft_ms", 120.0].verdict == "met"
    assert rows["median_ttft_ms", 90.0].verdict == "missed"
    assert not result.met


@pytest.mark.parametrize("scaling", ["compress", "thin"])
def test_a_capacity_is_searched_without_the_rate_of_its_scenario(scaling: str, targets: Path) -> None:
    target = '[[scenario.one.target]]\nmetric = "capacity_rps"\nmin = 0.1\n'
    server = SERVER.format(step_s=0.1)
    targets.write_text(server + f'scaling = "{scaling}"\nrate_scale = 2\n' + target)
    fast = check(targets)
    targets.write_text(server + f'scaling = "{scaling}"\nrate_scale = 0.5\n' + target)
    assert check(targets).scenarios["one"].metrics == fast.scenarios["one"].metrics
    assert (f"one: capacity_rps: the search looks for the rate by scaling = {scaling}; rate_scale = 2 of the scenario "
            f"is for its other targets") in fast.notes


def test_statistics_in_slo_are_those_of_the_search_where_all_targets_are_of_the_capacity(targets: Path) -> None:
    targets.write_text(SERVER.format(step_s=0.1).replace('"ttft:150"', '"p99_ttft:150"')
                       + '[[scenario.one.target]]\nmetric = "capacity_rps"\nmin = 0.1\n')
    assert [row.metric for row in check(targets).checks] == ["capacity_rps"]


def test_a_latency_of_completed_requests_alone_says_how_many_have_none(targets: Path) -> None:
    trace = targets.with_name("trace.csv")
    trace.write_text(trace.read_text() + "20,100000000,1\n")  # longer than the cache: rejected
    text = targets.read_text().replace('slo = "ttft:150"', 'slo = "ttft:150 p99_ttft:150"')
    targets.write_text(text)
    result = check(targets)
    rows = [row for row in result.checks if row.metric == "p99_ttft_ms" and row.kind == "max"]
    assert [(row.verdict, row.reason) for row in rows] == [
        ("met", None), ("missed", "too many requests are never answered")]
    assert any("of completed requests only. 1 of 21 were not completed" in note for note in result.notes)


def test_targets_on_saturation_and_on_users(tmp_path: Path) -> None:
    """A server of one request in 100 ms gets 5/s and 20/s; with two in flight the second waits for the first."""
    for name, gap_s in (("slow", 0.2), ("fast", 0.05)):
        lines = "\n".join(f"{k * gap_s},1,1" for k in range(500))
        (tmp_path / f"{name}.csv").write_text(f"arrival_s,input_tokens,output_tokens\n{lines}\n")
    path = tmp_path / "targets.toml"
    path.write_text("\n".join(f"""
[scenario.{name}]
trace = "{name}.csv"
step_time = "linear:0.1,0"
num_gpu_blocks = 100
max_num_seqs = 1
async_scheduling = false
slo = "e2el:350"
[[scenario.{name}.target]]
metric = "saturated"
max = 0
[[scenario.{name}.target]]
metric = "capacity_concurrency"
min = 3""" for name in ("slow", "fast")))
    found = check(path)
    rows = {(row.scenario, row.metric): (row.predicted, row.verdict) for row in found.checks}
    assert rows == {("slow", "saturated"): (0.0, "met"), ("fast", "saturated"): (1.0, "missed"),
                    ("slow", "capacity_concurrency"): (3, "met"), ("fast", "capacity_concurrency"): (3, "met")}
    assert any(note.startswith("fast: saturated: yes since") for note in found.notes)
    assert ("slow: capacity_concurrency: a user sends the next request as soon as the one before is answered: no think "
            "time") in found.notes
