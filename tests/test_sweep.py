"""Sweeps: what a grid comes to, that a killed one goes on, and that nothing stale is taken over."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import joblib
import numpy as np
import polars as pl
import pytest
from command_line import HEADER, fails, planner
from polars.testing import assert_frame_equal
from watching import Recorded

from planner.errors import PlannerError, SweepError, UnknownNameError, UsageError
from planner.loop.state.engine_settings import Recording
from planner.planning import fingerprint
from planner.planning.cluster_tasks import on_backend
from planner.planning.grid import Sweep, parse_sweep, read_sweep
from planner.planning.optimize import optimize
from planner.planning.pareto import is_less_better, pareto_front
from planner.planning.sweeping import describe, shortfall, sweep
from planner.progress import shown_by
from planner.results.summary import numbers
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import read_trace

PLAN = """
trace = "trace.csv"
slo = "ttft:500 tpot:50"
pareto = ["p99_ttft_ms", "p99_tpot_ms", "num_gpus"]

[scenario]
model = "llama-3.1-8b"

[axes]
gpu = ["h100-sxm", "l40s"]
replicas = [1, 2]
max_num_seqs = [8, 64]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(0.05, 300))
    rows = "".join(f"{at},{rng.integers(50, 3000)},{rng.integers(1, 200)}\n" for at in arrivals)
    (tmp_path / "trace.csv").write_text(HEADER + rows)
    path = tmp_path / "sweep.toml"
    path.write_text(PLAN)
    return path


def run(plan: Path, name: str = "out.parquet", **options: object) -> pl.DataFrame:
    return sweep(read_sweep(plan), plan.with_name(name), jobs=1, **options)  # type: ignore[arg-type]


def test_every_row_is_the_replay_of_its_configuration(plan: Path) -> None:
    table = run(plan)
    assert table.height == 8
    assert pl.read_parquet(plan.with_name("out.parquet")).equals(table)
    trace, slo = read_trace(str(plan.with_name("trace.csv"))), "ttft:500 tpot:50"
    for row in table.to_dicts():
        scenario = Scenario(model="llama-3.1-8b", gpu=row["gpu"], max_num_seqs=row["max_num_seqs"],
                            data_parallel_size=row["replicas"])
        outcome = replay(trace, scenario, slo=slo, recording=Recording())
        assert row["status"] == "done"
        assert numbers(outcome.summary).items() <= row.items()
        assert (row["num_gpus"], row["bottleneck"]) == (row["replicas"], outcome.summary["bottleneck"])
    costs = table.select("p99_ttft_ms", "p99_tpot_ms", "num_gpus").to_numpy()
    assert table["is_pareto"].to_list() == pareto_front(costs).tolist()
    assert 0 < table["is_pareto"].sum() < 8


def test_processes_change_nothing(plan: Path) -> None:
    sweep(read_sweep(plan), plan.with_name("many.parquet"), jobs=2)
    run(plan, "one.parquet")
    assert plan.with_name("many.parquet").read_bytes() == plan.with_name("one.parquet").read_bytes()


def test_an_axis_leaves_an_option_out_and_prefix_ids_reach_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace of over a megabyte is shared memory in the processes, which the loop's helpers must be able to take."""
    monkeypatch.chdir(tmp_path)
    run = planner("sweep", "agents", "--limit", "60", "--model", "llama-3.1-8b", "--gpu", "l40s", "--axis",
                  "kv_offloading_size=none,64", "--axis", "policy=none,sjf", "--jobs", "2", "--json", "out.json")
    assert run.returncode == 0, run.stderr
    answer = json.loads(Path("out.json").read_text())
    assert {(row["kv_offloading_size"], row["policy"]) for row in answer["rows"]} == {
        (None, None), (64, None), (None, "sjf"), (64, "sjf")}
    assert all(("--kv-offloading-size" in row["replay_command"]) == (row["kv_offloading_size"] == 64)
               for row in answer["front"])
    assert re.search(r"^ +none +none ", run.stdout, re.MULTILINE)
    grid = parse_sweep({"trace": "agents", "scenario": {"kv_offloading_size": 32}, "axes": {
        "kv_offloading_size": ["none", 64], "cudagraph_mode": ["none"]}}, tmp_path)
    assert [(point.scenario.kv_offloading_size, point.scenario.cudagraph_mode) for point in grid.points()] == [
        (None, "none"), (64.0, "none")]


def test_the_front_is_who_nobody_beats() -> None:
    rng = np.random.default_rng(2)
    for columns in (2, 3, 4):
        costs = rng.integers(0, 6, (200, columns)).astype(float)
        costs[rng.random(costs.shape) < 0.02] = np.nan
        beaten = [any((other <= row).all() and (other < row).any() for other in costs) for row in costs]
        wanted = ~np.isnan(costs).any(axis=1) & ~np.array(beaten)
        assert np.array_equal(pareto_front(costs), wanted)


def test_an_attainment_keeps_others_off_the_front(plan: Path) -> None:
    plan.write_text(PLAN.replace("pareto", "attainment = 0.9\npareto"))
    table = run(plan)
    front = table.filter("is_pareto")
    assert front.height > 0
    assert (front["slo_attainment"] >= 0.9).all()
    assert (table["slo_attainment"] < 0.9).any()


@pytest.mark.parametrize("num_lines", [1, 70])  # in the first round, and in the second, which is longer
def test_a_killed_sweep_goes_on_where_it_was(plan: Path, num_lines: int) -> None:
    """The same parquet, byte for byte, as of a sweep that nobody killed."""
    plan.write_text(PLAN.replace("[8, 64]", str(list(range(8, 56)))))
    run(plan, "whole.parquet")
    output, journal = plan.with_name("killed.parquet"), plan.with_name("killed.parquet.journal")
    command: list[str | Path] = [sys.executable, "-m", "planner.commands.cli", "sweep", plan, "--output", output,
                                 "--jobs", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not journal.exists() or journal.read_bytes().count(b"\n") < num_lines:
        assert process.poll() is None, "the sweep was through before it could be killed"
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not output.exists()
    with journal.open("a") as file:
        file.write('{"key": "cut o')  # as a line that was being written
    watch = Recorded()
    with shown_by(watch):
        run(plan, "killed.parquet")
    assert num_lines <= watch.first("replaying configurations") < 192
    assert output.read_bytes() == plan.with_name("whole.parquet").read_bytes()
    assert not journal.exists()


def done_before(plan: Path) -> int:
    """Return how many configurations another run takes over."""
    watch = Recorded()
    with shown_by(watch):
        run(plan)
    return int(watch.first("replaying configurations"))


def test_a_finished_sweep_is_extended(plan: Path) -> None:
    run(plan)
    assert done_before(plan) == 8
    plan.write_text(PLAN.replace("[8, 64]", "[64, 128, 8]"))
    assert done_before(plan) == 8
    table = pl.read_parquet(plan.with_name("out.parquet"))
    assert table.height == 12
    run(plan, "fresh.parquet")
    assert plan.with_name("out.parquet").read_bytes() == plan.with_name("fresh.parquet").read_bytes()


def test_nothing_stale_is_taken_over(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(plan)
    trace = plan.with_name("trace.csv")
    trace.write_text(trace.read_text() + "99,1,1\n")
    assert done_before(plan) == 0
    assert done_before(plan) == 8
    plan.write_text(PLAN.replace("ttft:500", "ttft:600"))
    assert done_before(plan) == 0
    monkeypatch.setattr(fingerprint, "program_sha256", lambda: "another version")
    assert done_before(plan) == 0


def test_a_changed_file_of_the_user_is_another_configuration(plan: Path) -> None:
    policy = plan.with_name("mine.py")
    text = ("from planner import Policy, StepPlan\ndef plan_step(s):\n    return StepPlan(max_new_seqs={n}, "
            "max_prefill_tokens=512, max_tokens_per_prompt=512, order=0)\n"
            "own = Policy(name='own', plan_step=plan_step)\n")
    policy.write_text(text.format(n=4))
    plan.write_text(PLAN.replace("[8, 64]", '[8]\npolicy = ["mine.py:own"]'))
    run(plan)
    assert done_before(plan) == 4
    policy.write_text(text.format(n=5))
    assert done_before(plan) == 0


def test_the_program_s_hash_covers_code_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_DB", str(tmp_path))
    fingerprint.program_sha256.cache_clear()
    before = fingerprint.program_sha256()
    (tmp_path / "mine.toml").write_text("a = 1")
    fingerprint.program_sha256.cache_clear()
    assert fingerprint.program_sha256() != before
    monkeypatch.undo()
    fingerprint.program_sha256.cache_clear()


def test_a_configuration_that_does_not_fit_says_why(plan: Path) -> None:
    plan.write_text(PLAN.replace('model = "llama-3.1-8b"', "").replace("[axes]", '[axes]\nmodel = ["llama-3.1-8b", '
                                                                                 '"llama-3.1-70b"]'))
    table = run(plan)
    failed = table.filter(pl.col("model") == "llama-3.1-70b")
    assert failed["status"].str.contains("does not fit").all()
    assert failed["p99_ttft_ms"].null_count() == failed.height == 8
    assert not failed["is_pareto"].any()
    assert run(plan).equals(table)
    plan.write_text(plan.read_text().replace('"llama-3.1-8b", ', ""))
    with pytest.raises(UsageError, match=r"no configuration could be replayed; the first: .*does not fit"):
        run(plan)


def test_what_is_noted_of_some_configurations_is_said_once(plan: Path) -> None:
    plan.write_text(plan.read_text().replace("[axes]", 'speculative_method = "ngram"\n[axes]\n'
                                             "num_speculative_tokens = [0, 2]"))
    for _ in range(2):  # the second takes over what the first left
        table = run(plan)
        found = describe(read_sweep(plan), plan.with_name("out.parquet"), table).notes
        assert ("speculative_method = ngram: no effect without --num-speculative-tokens (8 of 16 configurations)"
                in found)
        assert any(note.startswith("speculative decoding: ngram drafts 2 tokens") for note in found)


def test_an_axis_with_the_name_of_a_number(plan: Path) -> None:
    """`duration` is how much of the trace is kept, and how long the replay took."""
    plan.write_text(PLAN.replace("max_num_seqs = [8, 64]", "duration = [5.0, 10.0]"))
    table = run(plan)
    assert set(table["duration"]) == {5.0, 10.0}
    assert (table["summary_duration"] > 0).all()
    plan.write_text(plan.read_text().replace("10.0]", "10.0, 12.0]"))
    assert run(plan)["summary_duration"].null_count() == 0


def test_the_client_s_own_load(plan: Path) -> None:
    plan.write_text(PLAN.replace("trace.csv", "random").replace("[8, 64]", "[8]\nrandom_input_len = [100, 200]")
                    .replace("[scenario]", "[scenario]\nnum_prompts = 20"))
    table = run(plan)
    assert table["total_input_tokens"].to_list() == [2000, 4000] * 4


def test_options_plan_what_a_file_does(plan: Path) -> None:
    """The same rows, keys included: results of one are taken over by the other."""
    own = plan.read_text().replace('"num_gpus"]', '"num_gpus"]\nattainment = 0.5')
    plan.write_text(own + '\n[[constraint]]\nmetric = "p99_ttft_ms"\nmax = 4000\n')
    table = run(plan)
    done = planner("sweep", plan.with_name("trace.csv"), "--model", "llama-3.1-8b", "--axis", "gpu=h100-sxm,l40s",
                   "--axis", "replicas=1,2", "--axis", "max-num-seqs=8,64", "--slo", "ttft:500 tpot:50", "--pareto",
                   "p99_ttft_ms,p99_tpot_ms,num_gpus", "--attainment", 0.5, "--constraint", "p99_ttft_ms<=4000",
                   "--output", plan.with_name("flags.parquet"), "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert pl.read_parquet(plan.with_name("flags.parquet")).equals(table)


@pytest.mark.parametrize(("attainment", "is_open"), [([], True), (["--attainment", "0.99"], False)])
def test_a_front_that_may_miss_the_limits_says_so(attainment: list[str], is_open: bool, tmp_path: Path) -> None:
    done = planner("sweep", "chat", "--limit", "40", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--axis",
                   "max_num_seqs=4,8", "--slo", "ttft:1", *attainment, "--output", tmp_path / "s.parquet", "--jobs", 1)
    assert ("without --attainment no share of the requests must keep" in done.stdout + done.stderr) is is_open


@pytest.mark.parametrize(("words", "said"), [
    (["chat", "--axis", "max_num_seqs"], "--axis 'max_num_seqs': must be an option with values"),
    (["chat", "--axis", "max_num_seqs=1", "--axis", "max-num-seqs=2"], "an option is given twice"),
    (["chat", "--axis", "seqs=1"], "unknown option 'seqs'"),
    (["chat", "--axis", "max_num_seqs=many"], "max_num_seqs = 'many': must be a whole number"),
    (["chat", "--constraint", "p99_ttft_ms=3"], "--constraint 'p99_ttft_ms=3': must be a metric with a limit"),
    (["chat", "--pareto", "p99_ttft_ms"], "must be two to four metrics"),
    (["plan.toml", "--max-num-seqs", "4"], "options beside plan.toml: write them into the file"),
])
def test_bad_options(words: list[str], said: str) -> None:
    fails(planner("sweep", *words, "--model", "llama-3.1-8b", "--gpu", "h100-sxm"), 2, said)


def test_on_a_dask_cluster(plan: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        options = ("--output", plan.with_name("dask.parquet"), "--backend", "dask", "--address")
        found = planner("sweep", plan, *options, cluster.scheduler_address)
    assert found.returncode == 0, found.stderr
    run(plan, "own.parquet")
    assert plan.with_name("dask.parquet").read_bytes() == plan.with_name("own.parquet").read_bytes()


def test_a_dask_cluster_of_one_worker_does_the_work() -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as own, \
         on_backend("dask", own.scheduler_address, None):
        at = joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(4))
    assert len(set(at)) == 1
    assert os.getpid() not in at


def test_on_a_ray_cluster(plan: Path) -> None:
    """Where Ray is installed: in processes of their own, since Ray warns where warnings are errors."""
    pytest.importorskip("ray", reason="Ray is not installed")
    whole = run(plan)
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    subprocess.run([*ray, "start", "--head", "--num-cpus=2", "--include-dashboard=false", "--port=6399"], check=True,
                   capture_output=True)
    try:
        done = planner("sweep", plan, "--output", plan.with_name("ray.parquet"), "--backend", "ray", "--address",
                       "127.0.0.1:6399")
    finally:
        subprocess.run([*ray, "stop"], check=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert pl.read_parquet(plan.with_name("ray.parquet")).equals(whole)


def test_the_command_line(plan: Path) -> None:
    output = plan.with_name("out.parquet")
    found = planner("sweep", plan, "--output", output, "--json", plan.with_name("out.json"), "--jobs", 1)
    assert found.returncode == 0, found.stderr
    result = json.loads(plan.with_name("out.json").read_text())
    table = pl.read_parquet(output)
    assert result["num_configurations"] == 8
    assert result["status"] == {"done": 8}
    assert {row["key"] for row in result["front"]} == set(table.filter("is_pareto")["key"])
    assert f"of 8 configurations on the front; all in {output}" in found.stdout
    assert [row["is_pareto"] for row in result["rows"]] == sorted((row["is_pareto"] for row in result["rows"]),
                                                                  reverse=True)
    printed = [line.split() for line in found.stdout.splitlines()[1:9]]
    assert [line[-1] for line in printed] == ["yes" if row["is_pareto"] else "no" for row in result["rows"]]
    assert {(line[0], line[1], line[2]) for line in printed} == {
        (row["gpu"], str(row["replicas"]), str(row["max_num_seqs"])) for row in table.to_dicts()}
    fails(planner("sweep", plan, "--output", plan.with_name("out.csv")), 2, "must be .parquet")
    fails(planner("sweep", plan, "--backend", "spark"), 2, "unknown backend 'spark'")
    fails(planner("sweep", plan, "--address", "tcp://x"), 2, "--address tcp://x: needs --backend")
    fails(planner("sweep", plan.with_name("none.toml")), 3, "none.toml")
    output.write_text("no table")
    fails(planner("sweep", plan, "--output", output), 3, "out.parquet: is not a table of planner sweep")
    assert output.read_text() == "no table"
    pl.DataFrame({"key": ["a"]}).write_parquet(output)
    fails(planner("sweep", plan, "--output", output), 3, "out.parquet: is not a table of planner sweep")


LARGE = """
gpu = ["h100-sxm", "h200-sxm", "l40s"]
replicas = [1, 2, 3]
policy = ["fcfs", "decode-first", "vllm-v0"]
max_num_seqs = [4, 8, 16, 64]
max_num_batched_tokens = [512, 2048, 8192]
"""
COST = '"cost_usd_per_million_output_tokens", "p99_ttft_ms"'


@pytest.mark.parametrize(("front", "limits"), [
    (COST, "attainment = 0.95"),
    ('"p99_ttft_ms", "p99_tpot_ms"', '[[constraint]]\nmetric = "num_gpus"\nmax = 2'),
    ('"request_goodput", "cost_usd"', '[[constraint]]\nmetric = "p99_tpot_ms"\nmax = 18'),
])
def test_the_optimiser_agrees_with_the_grid(plan: Path, front: str, limits: str) -> None:
    plan.write_text(f'trace = "trace.csv"\nslo = "ttft:300 tpot:20"\npareto = [{front}]\n{limits}\n'
                    f'[scenario]\nmodel = "llama-3.1-8b"\nrouter = "round-robin"\n[axes]{LARGE}')
    asked = read_sweep(plan)
    whole = sweep(asked, plan.with_name("whole.parquet"), jobs=2)
    kept = whole.filter([shortfall(asked, row) == 0 for row in whole.to_dicts()])
    sign = 1 if is_less_better(asked.front[0]) else -1
    assert 0 < kept.height < whole.height == 324
    for seed in (0, 1):
        table, found = optimize(asked, plan.with_name(f"{seed}.parquet"), jobs=1, seed=seed)
        best = (sign * kept[asked.front[0]]).min()
        is_flat = asked.front[0] == "request_goodput"  # all that keep up differ in when their last request ends
        assert sign * (found.best or {})[asked.front[0]] == (pytest.approx(best, rel=1e-3) if is_flat else best)
        assert found.num_replays == table.height < whole.height / 2
        same = whole.filter(pl.col("key").is_in(table["key"].implode()))
        assert_frame_equal(table.drop("is_pareto"), same.drop("is_pareto"), check_exact=True)
        assert covered(asked, table, whole) > 0.95


def covered(asked: Sweep, table: pl.DataFrame, whole: pl.DataFrame) -> float:
    """Return the share of the area below the grid's front that the rows of a table dominate, by sampling."""
    signs = np.array([1 if is_less_better(metric) else -1 for metric in asked.front])
    front, found = (each.filter("is_pareto").select(asked.front).to_numpy() * signs for each in (whole, table))
    low, high = front.min(axis=0), front.max(axis=0)
    points = low + (high - low) * np.random.default_rng(0).random((4000, len(signs)))

    def dominated(rows: np.ndarray) -> int:
        return int(np.any([(row <= points).all(axis=1) for row in rows], axis=0).sum())

    return dominated(found) / dominated(front) if dominated(front) else float(len(found) > 0)


@pytest.mark.parametrize("front", [
    '"cost_usd_per_million_output_tokens", "p99_ttft_ms", "p99_tpot_ms"',
    '"output_throughput", "num_gpus", "p99_tpot_ms", "p99_ttft_ms"'])
def test_the_optimiser_finds_the_front_of_several_metrics_by_few_replays(plan: Path, front: str) -> None:
    plan.write_text(f'trace = "trace.csv"\npareto = [{front}]\n[scenario]\nmodel = "llama-3.1-8b"\n'
                    f'router = "round-robin"\n[axes]{LARGE}')
    asked = read_sweep(plan)
    whole = sweep(asked, plan.with_name("whole.parquet"), jobs=1)
    table, found = optimize(asked, plan.with_name("found.parquet"), jobs=1)
    assert found.num_replays == table.height < whole.height / 2
    assert covered(asked, table, whole) > 0.98


def test_an_optimiser_keeps_what_a_sweep_has(plan: Path) -> None:
    table = run(plan)
    optimize(read_sweep(plan), plan.with_name("out.parquet"), jobs=1)
    assert pl.read_parquet(plan.with_name("out.parquet")).equals(table)


def test_the_optimiser_says_that_none_keeps_the_limits(plan: Path) -> None:
    plan.write_text(PLAN.replace("[scenario]", '[[constraint]]\nmetric = "p99_ttft_ms"\nmax = 1e-3\n[scenario]'))
    found = planner("sweep", plan, "--optimize", "--output", plan.with_name("out.parquet"), "--jobs", 1)
    assert found.returncode == 1
    assert "none meets the limits, by" in found.stdout
    assert "0 of" in found.stdout.splitlines()[-1]
    plan.write_text(PLAN)
    found = planner("sweep", plan, "--optimize", "--output", plan.with_name("out.parquet"), "--jobs", 1)
    assert found.returncode == 0
    assert "best: gpu h100-sxm, replicas 2, max_num_seqs 64: p99_ttft_ms " in found.stdout


@pytest.mark.parametrize(("old", "new", "words"), [
    ("[scenario]", '[[constraint]]\nmetric = "mfu"\n[scenario]', "mfu: has neither min, max"),
    ("[scenario]", '[[constraint]]\nmetric = "mfu"\nmax_regression = 1\n[scenario]', "has no max_regression"),
    ("[scenario]", "[constraint]\n[scenario]", "must be tables, [[constraint]]"),
    ('trace = "trace.csv"', "", "has no trace"),
    ('trace = "trace.csv"', 'trace = "trace.csv"\nformat = 5', "format = 5: must be text"),
    ("[8, 64]", "8", "axes: max_num_seqs = 8: must be a list"),
    ("[8, 64]", "[]", "must be a list"),
    ("[8, 64]", "[8, 8]", "has a value twice"),
    ('"num_gpus"]', '"num_gpus", "p99_ttft_ms"]', "two to four metrics, each once"),
    ('"num_gpus"]', '"num_steps"]', "'num_steps': must be a metric where less or more is better"),
    ("pareto =", "front =", "unknown key 'front'"),
    ('slo = "ttft:500 tpot:50"', "slo = 500", "slo = 500: must be text"),
    ('slo = "ttft:500 tpot:50"', "attainment = 0.9", "--attainment 0.9: needs slo"),
    ("[axes]", "[axes", "cannot be read"),
])
def test_a_bad_plan(plan: Path, old: str, new: str, words: str) -> None:
    assert old in PLAN
    plan.write_text(PLAN.replace(old, new))
    with pytest.raises(SweepError) as caught:
        read_sweep(plan)
    assert words in str(caught.value)
    assert str(plan) in str(caught.value)


@pytest.mark.parametrize(("old", "new", "words"), [
    ("max_num_seqs", "max_num_seq", "unknown option 'max_num_seq'; did you mean 'max_num_seqs'?"),
    ("[8, 64]", '[8, "64"]', "max_num_seqs = '64': must be a whole number"),
    ("[1, 2]", "[0]", "data_parallel_size = 0: must be at least 1"),
    ("[8, 64]", '[8]\npolicy = ["fifo"]', "unknown policy 'fifo'"),
    ("[8, 64]", "[8]\nnum_prompts = [1]", "--num-prompts 1: describes the TRACE `random`"),
    ('"num_gpus"]', '"worst_ttft_ms"]', "unknown metric 'worst_ttft_ms'"),
    ("trace.csv", "none.csv", "no such file"),
    ("[scenario]", '[[constraint]]\nmetric = "worst_ttft_ms"\nmax = 1\n[scenario]', "unknown metric 'worst_ttft_ms'"),
])
def test_a_bad_grid(plan: Path, old: str, new: str, words: str) -> None:
    assert old in PLAN
    plan.write_text(PLAN.replace(old, new))
    with pytest.raises(PlannerError) as caught:
        run(plan)
    assert words in str(caught.value)
    assert not plan.with_name("out.parquet").exists()


def test_a_statistic_objective_is_a_limit_of_the_front(plan: Path) -> None:
    plan.write_text(PLAN.replace("ttft:500 tpot:50", "ttft:500 p90_ttft:250"))
    table = run(plan)
    asked = read_sweep(plan)
    assert table["objective_p90_ttft_ms"].to_list() == table["p90_ttft_ms"].to_list()
    late = table["p90_ttft_ms"] > 250
    assert 0 < late.sum() < table.height
    assert not table.filter(late)["is_pareto"].any()
    assert set(table.filter(late)["misses"]) == {"objective_p90_ttft_ms"}
    assert set(table.filter(~late)["misses"]) == {""}
    _, found = optimize(asked, plan.with_name("best.parquet"), jobs=1)
    assert (found.best or {})["p90_ttft_ms"] <= 250
    run(plan)  # the cache has its own columns
    assert pl.read_parquet(plan.with_name("out.parquet")).equals(table)


def test_names_of_statistics_are_the_same_everywhere(plan: Path) -> None:
    plan.write_text(PLAN.replace('"p99_ttft_ms", "p99_tpot_ms"', '"p99_ttft", "p50_tpot_ms"')
                    + '[[constraint]]\nmetric = "median_ttft"\nmax = 1e6\n')
    asked = read_sweep(plan)
    assert asked.front == ("p99_ttft_ms", "median_tpot_ms", "num_gpus")
    assert asked.constraints[0].metric == "median_ttft_ms"


def test_a_large_grid_is_not_printed_whole(plan: Path) -> None:
    axis = f"[{', '.join(str(count) for count in range(1, 71))}]"
    plan.write_text(PLAN.replace("[8, 64]", axis).replace('gpu = ["h100-sxm", "l40s"]', 'gpu = ["h100-sxm"]')
                    .replace("replicas = [1, 2]", "replicas = [1]"))
    output = plan.with_name("out.parquet")
    found = planner("sweep", plan, "--output", output, "--jobs", 1, "--json", plan.with_name("out.json"))
    assert f"… 10 more configurations; all are in {output}, and in --json" in found.stdout
    assert len(found.stdout.splitlines()) == 64  # heading, 60 rows, the rest, a replay line, the front
    assert len(json.loads(plan.with_name("out.json").read_text())["rows"]) == 70


def test_a_wrong_name_comes_back_from_another_process(plan: Path) -> None:
    plan.write_text(PLAN.replace("[8, 64]", '[8]\npolicy = ["fifo"]'))
    with pytest.raises(UnknownNameError, match="unknown policy 'fifo'"):
        sweep(read_sweep(plan), plan.with_name("out.parquet"), jobs=2)


