"""Where time goes, what binds and what to change: known answers, and every number again from the written files."""

import itertools
import json
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import EVERYTHING, number, play, scenario_of, trace_of
from typer.testing import CliRunner

from planner import Scenario, read_trace, replay
from planner.commands.cli import app
from planner.files.counts import share_text
from planner.loop.state.engine_settings import Recording
from planner.planning.comparison import explain_outcome
from planner.replays.result_tables import STOPPED_BY, ReplayResult
from planner.results.causes import difference, explain
from planner.results.limits import STEP_BOUNDS, step_bounds
from planner.results.phases import PHASES, request_phases
from planner.settings.objectives import parse_objectives
from planner.traces.shaping.window_and_rate import limit

STEPS = Recording(steps=True)
BUSY: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}
SHARED = 'trace = "chat"\nmodel = "llama-3.1-8b"\ngpu = "h100-sxm"\nlimit = 1500\nrate_scale = 6\n'


def explained(result: ReplayResult) -> dict[str, Any]:
    return explain(result.requests_table(), result.steps_table(), result.num_replicas)


def test_interference_is_what_prompts_add_to_a_decodes_steps() -> None:
    """Steps of 10 ms + 1 ms a token: a prompt of 20 tokens beside a decode adds 20 ms to it, and nothing else does."""
    result = play([(0.0, 10, 5), (0.025, 20, 1)], step_time="linear:0.01,0.001")
    first = result.requests_table().row(0, named=True)
    assert first["interference_s"] == pytest.approx(0.020)
    assert first["decode_s"] == pytest.approx(4 * 0.011 + 0.020)
    times = request_phases(result.requests_table())
    assert times["decode"].to_list() == pytest.approx([0.044, 0.0])
    assert times["interference"].to_list() == pytest.approx([0.020, 0.0])


def test_a_prompt_that_runs_alone_holds_up_decodes_with_its_whole_step() -> None:
    result = play([(0.0, 10, 5), (0.025, 20, 1)], step_time="linear:0.01,0.001", policy="vllm-v0")
    assert result.requests_table()["interference_s"][0] == pytest.approx(0.030)


def test_what_preemption_costs_is_told_apart() -> None:
    """Two requests that outgrow six blocks of 4: one waits for the other, and computes all it knows once more."""
    result = play([(0.0, 8, 12), (0.0, 8, 12)], block_size=4, num_gpu_blocks=6, step_time="linear:0.01,0.001")
    table = result.requests_table()
    victim = table.filter(pl.col("num_preemptions") > 0).row(0, named=True)
    assert victim["preempted_s"] > 0
    assert victim["recompute_s"] == pytest.approx(0.010 + 0.001 * victim["num_recomputed_tokens"] + 0.001)
    assert table.filter(num_preemptions=0)["recompute_s"].to_list() == [0.0]


@pytest.mark.parametrize(("options", "expected"), [
    ({"max_num_seqs": 1}, "max_num_seqs"),
    ({"max_num_batched_tokens": 8}, "token_budget"),
    ({"num_gpu_blocks": 2}, "kv_cache"),
])
def test_the_queue_names_what_stops_it(options: dict[str, Any], expected: str) -> None:
    rows = [(0.0, 16, 30)] + [(0.001 * k, 16, 4) for k in range(1, 12)]
    result = play(rows, max_model_len=64, step_time="linear:0.01,0.001", block_size=32, **options)
    found = explained(result)["limits"]
    assert found["binding"] == expected
    assert found["queue"][expected]["share"] > 0.3


@pytest.mark.parametrize("options", [
    {"max_num_seqs": 8},
    {"max_num_batched_tokens": 256},
    {"num_gpu_blocks": 1500},
    {"engine": "sglang", "num_gpu_blocks": 1500},
    {"engine": "trtllm", "num_gpu_blocks": 1500},  # promises all of a request's blocks: few are in use when it is full
], ids=str)
def test_the_summary_names_the_limit_that_the_steps_say(options: dict[str, Any]) -> None:
    """Whether steps are recorded or not: the loop adds up what each of them says."""
    trace, scenario = limit(read_trace("chat"), 800), Scenario(**BUSY, rate_scale=8.0, **options)
    outcome, recorded = (replay(trace, scenario, recording=kept) for kept in (Recording(), STEPS))
    found = explained(recorded.result)["limits"]
    assert outcome.summary["bottleneck"] == recorded.summary["bottleneck"] == found["binding"]
    waited_s = dict(zip(STOPPED_BY.values(), recorded.result.replicas[0].engine.total_stopped_s, strict=True))
    for name, each in found["queue"].items():
        assert waited_s[name] == pytest.approx(each["request_s"])


@pytest.mark.parametrize(("trace", "options"), [
    ("chat", {"model": "qwen3-32b", "tensor_parallel_size": 2}),  # most steps by arithmetic, most of the time by HBM
    ("chat", {"tensor_parallel_size": 4, "rate_scale": 6.0}),
    ("code", {"rate_scale": 2.0}),  # requests wait in bursts
    ("code", {"rate_scale": 0.5}),  # idle
], ids=str)
def test_the_bottleneck_of_the_summary_is_that_of_the_explanation(trace: str, options: dict[str, Any]) -> None:
    recorded = replay(limit(read_trace(trace), 2000), Scenario(**BUSY | options), recording=STEPS)
    found = explained(recorded.result)
    assert recorded.summary["bottleneck"] == found["limits"]["bottleneck"] == found["limits"]["binding"]
    assert found["limits"]["roofs"]["compute"]["share"] == pytest.approx(recorded.summary["mfu"])
    assert found["limits"]["roofs"]["memory_bandwidth"]["share"] == pytest.approx(recorded.summary["mbu"])
    longest = max(found["limits"]["steps"].items(), key=lambda row: row[1]["share"])[0]
    named = found["limits"]["binding"] == longest or found["limits"]["binding"] not in found["limits"]["roofs"]
    assert named != ("step by step, compute (FLOP/s) limits" in found["sentence"])


def test_links_that_bound_the_steps_are_named_beside_the_bottleneck() -> None:
    """The totals do not know the links: the sentence says that they compare arithmetic and HBM traffic."""
    recorded = replay(limit(read_trace("chat"), 300), Scenario(
        model="llama-3.1-8b", gpu="l40s", tensor_parallel_size=8), recording=STEPS)
    found = explained(recorded.result)
    assert (found["limits"]["binding"], recorded.summary["bottleneck"]) == ("communication", "memory_bandwidth")
    assert "; bottleneck = memory_bandwidth compares only two totals: all HBM traffic" in found["sentence"]


def test_a_policy_that_leaves_the_queue_alone_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("from planner import IN_ORDER, Policy, StepPlan\n\n\ndef plan(s):\n"
                    "    return StepPlan(1 if s.num_running == 0 else 0, 100, 100, IN_ORDER)\n\n\n"
                    "one = Policy(name='one', plan_step=plan)\n")
    result = play([(0.0, 16, 8)] * 4, policy=f"{path}:one")
    assert set(result.steps_table()["stopped_by"].drop_nulls()) == {"policy"}


def test_a_policy_whose_plan_limits_the_prompts_is_named_in_words(tmp_path: Path) -> None:
    """Its plan has 512 of the engine's 8,192 tokens: the engine's limit is never reached."""
    path = tmp_path / "own.py"
    path.write_text("from planner import DECODES_FIRST, Policy, StepPlan\n\n\ndef plan(s):\n"
                    "    return StepPlan(s.max_num_seqs, 512, 512, DECODES_FIRST)\n\n\n"
                    "guard = Policy(name='kv-guard', plan_step=plan)\n")
    trace, scenario = limit(read_trace("chat"), 600), Scenario(**BUSY, rate_scale=6.0, policy=f"{path}:guard")
    recorded = replay(trace, scenario, recording=STEPS)
    outcome = replay(trace, scenario, recording=Recording())
    assert outcome.summary["bottleneck"] == recorded.summary["bottleneck"] == "policy"
    found = explain_outcome(trace, scenario, recorded, slo=None)
    assert found["limits"]["queue"]["token_budget"]["share"] == 0.0
    assert "in the queue because the plan of policy kv-guard left them out, at most " in found["sentence"]


def test_the_cap_of_a_policy_is_said_and_the_engines_policy_is_the_change(tmp_path: Path) -> None:
    """Its plan admits while fewer than eight run; no limit of the engine is near."""
    path = tmp_path / "own.py"
    path.write_text("from planner import DECODES_FIRST, Policy, StepPlan\n\n\ndef plan(s):\n"
                    "    return StepPlan(max(8 - s.num_running, 0), 8192, 8192, DECODES_FIRST)\n\n\n"
                    "cap = Policy(name='cap', plan_step=plan)\n")
    trace, scenario = limit(read_trace("chat"), 300), Scenario(
        model="llama-3.1-8b", gpu="h100-sxm", rate_scale=6.0, policy=f"{path}:cap")
    found = explain_outcome(trace, scenario, replay(trace, scenario, recording=STEPS), slo=None)
    assert "because the plan of policy cap left them out, at most 8 ran" in found["sentence"]
    assert (found["advice"]["first"]["setting"], found["advice"]["first"]["after"]) == ("policy", "fcfs")


def test_bursts_and_idleness_are_named() -> None:
    """Ten requests at once every ten seconds into four seats: most of the time nobody waits."""
    rows = [(10.0 * k, 10, 20) for k in range(5) for _ in range(10)]
    found = explained(play(rows, max_num_seqs=4))
    assert (found["limits"]["binding"], found["limits"]["is_in_bursts"]) == ("max_num_seqs", True)
    assert "in bursts" in found["sentence"]
    alone = explained(play([(float(k), 10, 2) for k in range(5)]))
    assert alone["limits"]["binding"] == "arrivals"
    assert "no limit was reached" in alone["sentence"]


def test_nothing_completed_is_said() -> None:
    found = explained(play([(0.0, 100, 5)], max_model_len=50))
    assert (found["phases"], found["sentence"]) == (None, "no request was completed")
    assert difference(found, found) is None


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A busy replay, explained, as `planner replay --explain --save` writes it."""
    folder = tmp_path_factory.mktemp("explained") / "run"
    done = CliRunner().invoke(app, ["replay", "chat", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--limit", "3000",
                                    "--rate-scale", "3", "--max-num-seqs", "24", "--slo", "ttft:500 tpot:40",
                                    "--explain", "--save", str(folder)])
    assert done.exit_code == 0, done.output
    assert "Mean time per request" in done.output
    return folder, json.loads((folder / "summary.json").read_text())


@pytest.mark.slow
def test_every_number_follows_from_the_written_files(saved: Any) -> None:
    """By plain loops over rows of the two files, without any of the planner's own functions."""
    folder, summary = saved
    found = summary["explanation"]
    requests = pl.read_parquet(folder / "requests.parquet").to_dicts()
    steps = pl.read_parquet(folder / "steps.parquet").to_dicts()
    check_phases(found["phases"], [row for row in requests if row["status"] == "completed"])
    span_s = max(row["finished_at_s"] for row in requests) - min(row["arrival_s"] for row in requests)
    check_limits(found["limits"], requests, steps, span_s)
    ran_s = sum(row["finished_at_s"] - row["first_scheduled_at_s"] - row["preempted_s"] for row in requests)
    waited_s = sum(row["queue_s"] + row["preempted_s"] for row in requests)
    for name, total_s in (("running", ran_s), ("waiting", waited_s)):
        gone = [row["num_ended"] if name == "running" else 0 for row in steps]
        counted_s = sum(row["duration_s"] * (row[f"num_{name}"] - num) for row, num in zip(steps, gone, strict=True))
        assert found["little"][name]["mean"] == pytest.approx(counted_s / span_s)
        assert found["little"][name]["rate_times_time"] == pytest.approx(total_s / span_s)
    assert found["little"]["arrival_rate_rps"] == pytest.approx(len(requests) / span_s)
    assert found["work"]["prompt_tokens"] == sum(row["num_prompt_tokens"] for row in steps)
    assert found["work"]["prompt_tokens_owed"] == sum(
        row["input_tokens"] - row["num_cached_tokens"] + row["num_recomputed_tokens"] for row in requests)
    assert found["work"]["output_tokens"] == sum(row["num_sampled"] for row in steps)
    assert found["work"]["output_tokens_emitted"] == sum(row["output_tokens"] for row in requests)
    gaps_s = [after["start_s"] - row["start_s"] - row["duration_s"] for row, after in itertools.pairwise(steps)]
    assert found["work"]["idle_s"] == pytest.approx(sum(gap for gap in gaps_s if gap > 1e-6))


def check_phases(found: dict[str, Any], done: list[dict[str, Any]]) -> None:
    done = sorted(done, key=lambda row: -row["e2e_s"])
    for name, rows in (("all", done), ("slowest", done[:round(len(done) / 100)])):
        means = {
            "frontend": [row["frontend_s"] for row in rows],
            "queue": [row["queue_s"] for row in rows],
            "prefill": [row["prefill_s"] for row in rows],
            "decode": [row["decode_s"] - row["interference_s"] - row["transfer_s"] for row in rows],
            "interference": [row["interference_s"] for row in rows],
            "transfer": [row["transfer_s"] for row in rows],
            "preemption": [row["preempted_s"] for row in rows],
            "recompute": [row["recompute_s"] for row in rows],
        }
        total_s = sum(row["e2e_s"] for row in rows)
        assert found[name]["num_requests"] == len(rows)
        for phase, values in means.items():
            assert found[name]["mean_ms"][phase] == pytest.approx(1e3 * sum(values) / len(rows), abs=1e-9)
            assert found[name]["share"][phase] == pytest.approx(sum(values) / total_s, abs=1e-9)
        assert sum(found[name]["share"].values()) == pytest.approx(1.0)


def check_limits(found: dict[str, Any], requests: list[dict[str, Any]], steps: list[dict[str, Any]],
                 span_s: float) -> None:
    latency_s = sum(row["finished_at_s"] - row["arrival_s"] for row in requests)
    busy_s = sum(row["duration_s"] for row in steps)
    for name, each in found["queue"].items():
        stopped = [row for row in steps if row["stopped_by"] == name]
        waited_s = sum(row["duration_s"] * row["num_waiting"] for row in stopped)
        assert each["time_s"] == pytest.approx(sum(row["duration_s"] for row in stopped))
        assert (each["request_s"], each["share"]) == pytest.approx((waited_s, waited_s / latency_s))
    bounds = dict.fromkeys(STEP_BOUNDS, 0.0)
    for row in steps:
        kernels_s = row["duration_s"] - row["overhead_s"] - row["collectives_s"]
        roof = "compute" if row["compute_s"] >= row["memory_s"] else "memory_bandwidth"
        sizes = {"host": row["overhead_s"], "communication": row["collectives_s"], roof: kernels_s}
        bounds[max(sizes, key=lambda name: sizes[name])] += row["duration_s"]
    for name, each in found["steps"].items():
        assert (each["time_s"], each["share"]) == pytest.approx((bounds[name], bounds[name] / busy_s))
    assert found["busy_share"] == pytest.approx(busy_s / span_s)
    waiting = [row for row in steps if row["num_waiting"] > 0]
    waiting_s = sum(row["duration_s"] for row in waiting)
    assert found["waiting_share"] == pytest.approx(waiting_s / span_s)
    came = sum(row["start_s"] <= request["arrival_s"] < row["start_s"] + row["duration_s"]
               for row in waiting for request in requests)
    assert found["burst"] == pytest.approx(came / waiting_s / (len(requests) / span_s))


def test_the_advice_is_what_a_replay_says(saved: Any) -> None:
    """The gain that is claimed for the first change is that of a replay with it."""
    _, summary = saved
    advice = summary["explanation"]["advice"]
    first = advice["first"]
    assert (first["setting"], first["before"]) == ("max_num_seqs", 24)
    scenario = Scenario(**BUSY, limit=3000, rate_scale=3.0, max_num_seqs=first["after"])
    other = replay(read_trace("chat"), scenario, slo="ttft:500 tpot:40", recording=Recording()).summary
    assert first["value"] == other["slo_attainment"]
    assert first["gain"] == pytest.approx(other["slo_attainment"] - summary["slo_attainment"])
    assert f"to {share_text(first['value'])};" in advice["sentence"]
    gains = [row["gain"] for row in advice["changes"] if "gain" in row]
    assert gains == sorted(gains, reverse=True)


def test_a_change_that_cannot_be_is_listed_with_its_reason() -> None:
    """A closed loop has no replicas to add, and no limit is none to raise; what cannot be replayed says why."""
    trace = trace_of([(0.0, 16, 4)] * 3, max_output_tokens=[4] * 3)
    scenario = scenario_of(max_concurrency=2)
    outcome = replay(trace, scenario, slo=None, recording=STEPS)
    advice = explain_outcome(trace, scenario, outcome, slo=None)["advice"]
    assert "data_parallel_size" not in {row["setting"] for row in advice["changes"]}
    assert advice["metric"] == "mean_e2el_ms"
    ageing = changed(scenario, policy="vllm-v0", enable_chunked_prefill=False)
    assert all(("reason" in row) != ("gain" in row) for row in explain_outcome(
        trace, ageing, replay(trace, ageing, slo=None, recording=STEPS), slo=None)["advice"]["changes"])
    seqs = changed(scenario, max_num_seqs=0)
    assert all(row["setting"] != "max_num_seqs" for row in explain_outcome(
        trace, seqs, replay(trace, seqs, slo=None, recording=STEPS), slo=None)["advice"]["changes"])


def test_work_is_conserved_and_littles_law_holds_under_every_engine() -> None:
    for engine in ("vllm", "sglang", "trtllm"):
        trace = limit(read_trace("code"), 400)
        outcome = replay(trace, Scenario(**BUSY, engine=engine, rate_scale=3.0), slo=None, recording=STEPS)
        found = explained(outcome.result)
        running = found["little"]["running"]
        assert running["difference"] == pytest.approx(0.0, abs=1e-9 * running["mean"])
        assert found["little"]["waiting"]["mean"] <= found["little"]["waiting"]["rate_times_time"] + 1e-9
        work = found["work"]
        assert work["prompt_tokens"] == work["prompt_tokens_owed"] == outcome.summary["num_computed_prompt_tokens"]
        assert work["output_tokens"] == work["output_tokens_emitted"] == outcome.summary["total_output_tokens"]
        assert work["idle_while_waiting_s"] == pytest.approx(0.0, abs=1e-6)


def test_an_engine_that_idles_while_a_request_waits_is_found() -> None:
    result = play([(0.0, 10, 2), (1.0, 10, 2)])
    requests, steps = result.requests_table(), result.steps_table()
    late = steps.with_columns(start_s=pl.when(pl.col("start_s") >= 1.0).then(pl.col("start_s") + 0.5)
                              .otherwise("start_s"))
    moved = requests.with_columns(first_scheduled_at_s=pl.when(pl.col("arrival_s") == 1.0).then(1.5)
                                  .otherwise("first_scheduled_at_s"))
    assert explain(requests, steps)["work"]["idle_while_waiting_s"] == 0.0
    assert explain(moved, late)["work"]["idle_while_waiting_s"] == pytest.approx(0.5)


def test_roofs_of_steps_add_up_to_mfu_and_mbu() -> None:
    trace = limit(read_trace("chat"), 300)
    for options in (BUSY, BUSY | {"quantization": "fp8", "tensor_parallel_size": 2}):
        outcome = replay(trace, Scenario(**options), slo=None, recording=STEPS)
        steps = outcome.result.steps_table()
        busy_s = number(steps["duration_s"].sum())
        assert number(steps["compute_s"].sum()) / busy_s == pytest.approx(outcome.summary["mfu"])
        assert number(steps["memory_s"].sum()) / busy_s == pytest.approx(outcome.summary["mbu"])
        assert (steps.select(pl.max_horizontal("compute_s", "memory_s") - pl.col("duration_s")).to_series() <= 0).all()
        assert step_bounds(steps).null_count() == 0
    one, staged = (replay(trace, Scenario(**BUSY, pipeline_parallel_size=stages), slo=None, recording=STEPS)
                   for stages in (1, 4))
    steps = staged.result.steps_table()
    assert steps["compute_s"][0] == pytest.approx(one.result.steps_table()["compute_s"][0])
    assert number(steps["memory_s"].sum()) / number(steps["compute_s"].sum()) == pytest.approx(
        staged.summary["mbu"] / staged.summary["mfu"])
    assert staged.summary["mbu"] < 1
    line = play([(0.0, 10, 5)]).steps_table()
    assert line["compute_s"].null_count() == step_bounds(line).null_count() == line.height


def test_a_fleets_rows_are_those_of_its_replicas() -> None:
    trace = limit(read_trace("chat"), 200)
    fleet = Scenario(**BUSY, data_parallel_size=2, router="round-robin")
    both = replay(trace, fleet, slo=None, recording=EVERYTHING).result
    own = trace.requests.with_row_index().filter(pl.col("index") % 2 == 1).drop("index")
    alone = replay(changed(trace, requests=own), Scenario(**BUSY), slo=None, recording=EVERYTHING).result
    second = both.steps_table().filter(replica=1)
    assert second.drop("replica").equals(alone.steps_table().drop("replica"))
    assert both.schedule_table().filter(replica=1).drop("replica").equals(alone.schedule_table())
    little = explained(both)["little"]["running"]
    assert little["difference"] == pytest.approx(0.0, abs=1e-9 * little["mean"])
    assert np.isclose(explained(both)["limits"]["busy_share"], both.records.engine.busy_s / 2 / (
        both.requests_table()["finished_at_s"].max() - trace.requests["arrival_s"][0]))


def write_studies(folder: Path, **texts: str) -> list[str]:
    paths = []
    for name, text in texts.items():
        path = folder / f"{name}.toml"
        path.write_text(text)
        paths.append(str(path))
    return paths


def test_files_are_compared_and_the_difference_adds_up(tmp_path: Path) -> None:
    files = write_studies(tmp_path, small=SHARED + "max_num_seqs = 16\n", large=SHARED, two=SHARED + "replicas = 2\n")
    done = CliRunner().invoke(app, ["compare", *files, "--json", str(tmp_path / "out.json"), "--save", str(tmp_path)])
    assert done.exit_code == 0, done.output
    small, large, two = json.loads((tmp_path / "out.json").read_text())
    assert [row["name"] for row in (small, large, two)] == ["small", "large", "two"]
    assert small["explanation"]["limits"]["binding"] == "max_num_seqs"
    assert small["explanation"]["difference"] is None
    assert two["deployment"]["num_replicas"] == 2
    for other in (large, two):
        found = other["explanation"]["difference"]
        assert found["e2el_ms"] == pytest.approx(other["mean_e2el_ms"] - small["mean_e2el_ms"])
        assert sum(found["mean_ms"].values()) == pytest.approx(found["e2el_ms"])
        assert found["mean_ms"]["queue"] == pytest.approx(other["mean_queue_ms"] - small["mean_queue_ms"])
        assert found["sentence"] in done.output
    assert set(small["explanation"]["phases"]["all"]["mean_ms"]) == set(PHASES)
    assert pl.read_parquet(tmp_path / "two" / "steps.parquet")["replica"].n_unique() == 2
    report = CliRunner().invoke(app, ["report", str(tmp_path / "small"), str(tmp_path / "two"), "--output",
                                      str(tmp_path / "r.html")])
    assert report.exit_code == 0, report.output


@pytest.mark.parametrize(("texts", "more", "code", "said"), [
    ({"a": SHARED + "max_num_seq = 4\n"}, [], 3, "did you mean 'max_num_seqs'"),
    ({"a": "model = 'llama-3.1-8b'\n"}, [], 3, "has no trace"),
    ({"a": SHARED + "slo = 'p99_itl:500'\n"}, [], 3, "unknown SLO metric 'p99_itl'"),
    ({"a": SHARED}, ["--limit", "5"], 2, "write them into the files"),
    ({"a": SHARED}, ["chat"], 2, "give one trace, or files that end in .toml alone"),
    ({"a": SHARED.replace("h100-sxm", "l41")}, [], 2, "a: unknown GPU 'l41'"),
    ({"a": "trace = \n"}, [], 3, "a.toml"),
])
def test_files_that_are_wrong_are_refused(tmp_path: Path, texts: dict[str, str], more: list[str], code: int, said: str,
                                          capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.commands import cli

    monkeypatch.setattr("sys.argv", ["planner", "compare", *write_studies(tmp_path, **texts), *more])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == code
    assert said in capsys.readouterr().err


def test_two_files_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.commands import cli

    (tmp_path / "other").mkdir()
    files = write_studies(tmp_path, a=SHARED) + write_studies(tmp_path / "other", a=SHARED)
    monkeypatch.setattr("sys.argv", ["planner", "compare", *files])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "two what-ifs have this name" in capsys.readouterr().err


def test_advice_betters_the_statistic_that_is_missed() -> None:
    trace = limit(read_trace("chat"), 300)
    scenario = Scenario(**BUSY, max_num_seqs=4)
    for slo, metric in (("p99_ttft:1 ttft:500", "p99_ttft_ms"), ("p99_ttft:1e9 ttft:500", "slo_attainment"),
                        ("p99_ttft:1e9 p90_tpot:1e9", "p99_ttft_ms"), (None, "mean_e2el_ms")):
        objectives = None if slo is None else parse_objectives(slo)
        outcome = replay(trace, scenario, slo=objectives, recording=STEPS)
        assert explain_outcome(trace, scenario, outcome, slo=objectives)["advice"]["metric"] == metric


def test_an_slo_that_all_requests_meet_leaves_nothing_to_improve() -> None:
    trace = trace_of([(0.0, 16, 4)] * 3, max_output_tokens=[4] * 3)
    scenario = scenario_of()
    outcome = replay(trace, scenario, slo="ttft:100000", recording=STEPS)
    advice = explain_outcome(trace, scenario, outcome, slo=parse_objectives("ttft:100000", 0.99))["advice"]
    assert advice["sentence"] == "all requests meet the SLO, so no setting can improve slo_attainment"
