"""Ranks that step together: worked cases, what equals what, whose GPUs count, and what cannot be."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from helpers import EVERYTHING, cheapest, number, play, scenario_of, trace_of
from typer.testing import CliRunner

from planner.commands.cli import app
from planner.deployment.deploy import deploy, resolve
from planner.deployment.roofs import model_flops
from planner.errors import FleetError, PlannerError, UsageError
from planner.launch import launch_command, launch_options, read_launch
from planner.loop.state.count_table import node_counts
from planner.loop.state.engine_settings import Recording
from planner.model.precision import peak_flops_per_s
from planner.planning.capacity import capacity
from planner.planning.fewest import apart, fewest_replicas
from planner.planning.search_options import Choices, Search
from planner.planning.sizing import size
from planner.planning.study import parse_study
from planner.replays.driver import run
from planner.replays.fleet.replicas import serve
from planner.replays.fleet.shares import shares
from planner.replays.result_tables import ReplayResult
from planner.report.llmd import _engine
from planner.report.plan_tables import sizing_table
from planner.report.summary_tables import summary_table
from planner.results.causes import explain
from planner.results.energy import mean_power_w
from planner.results.notes import notes
from planner.run import replay
from planner.settings.objectives import judge, parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace

TWO: dict[str, Any] = {"data_parallel_size": 2, "data_parallel_attention": True}
MOE = Scenario(model="qwen3-30b-a3b", gpu="h100-sxm", expert_parallel=True, **TWO)


def column(result: ReplayResult, name: str) -> list[Any]:
    return result.requests_table()[name].to_list()


def test_two_ranks_and_three_requests() -> None:
    """A second a step and a tenth a token: 20 tokens at most, then 6 (a decode and a prompt of 5), then a decode each.

    Rank 0 waits a second for 10 tokens of the first step, rank 1 half a second for 5 of the second.
    """
    outcome = replay(trace_of([(0.0, 10, 2), (0.0, 20, 3), (0.5, 5, 2)]),
                     scenario_of(step_time="linear:1,0.1", **TWO), recording=EVERYTHING)
    result = outcome.result
    assert column(result, "replica") == [0, 1, 0]
    assert column(result, "first_token_at_s") == pytest.approx([3.0, 3.0, 4.6])
    assert column(result, "finished_at_s") == pytest.approx([4.6, 5.7, 5.7])
    steps = result.steps_table()
    assert steps["replica"].to_list() == [0, 0, 0, 1, 1, 1]
    assert steps["start_s"].to_list() == pytest.approx([0.0, 3.0, 4.6] * 2)
    assert steps["duration_s"].to_list() == pytest.approx([3.0, 1.6, 1.1] * 2)
    assert steps["rank_wait_s"].to_list() == pytest.approx([1.0, 0.0, 0.0, 0.0, 0.5, 0.0])
    assert outcome.summary["rank_wait_fraction"] == pytest.approx(1.5 / 11.4)
    assert outcome.summary["gpu_busy_fraction"] == pytest.approx(1.0)
    assert column(result, "interference_s") == pytest.approx([0.5, 0.5, 0.0])


def test_an_idle_rank_waits_and_its_request_for_the_steps_end() -> None:
    """Steps of 2 and 1.1 s; who comes at 2.5 to the idle rank is in the step that begins at 3.1, padded to 5 tokens."""
    outcome = replay(trace_of([(0.0, 10, 3), (2.5, 5, 1)]), scenario_of(step_time="linear:1,0.1", **TWO))
    result = outcome.result
    assert column(result, "finished_at_s") == pytest.approx([4.6, 4.6])
    assert column(result, "queue_s") == pytest.approx([0.0, 0.6])
    assert [float(each.engine.busy_s) for each in result.replicas] == pytest.approx([4.6, 4.6])
    assert [float(each.engine.total_wait_s) for each in result.replicas] == pytest.approx([0.4, 3.1])
    assert outcome.summary["rank_wait_fraction"] == pytest.approx(3.5 / 9.2)


def test_the_slowest_rank_need_not_be_the_largest() -> None:
    """A hundredth a context token: a decode of 300 is slower than 2 decodes of 10, which pad it to 2 tokens."""
    rows = [(0.0, 300, 3), (0.0, 10, 3), (0.0, 1, 1), (0.0, 10, 3)]
    result = play(rows, step_time="linear:1,0.1,0.01", **TWO)
    assert column(result, "replica") == [0, 1, 0, 1]
    first_s = 1 + 0.1 * 301
    assert column(result, "first_token_at_s") == pytest.approx([first_s] * 4)
    assert column(result, "finished_at_s") == pytest.approx(
        [first_s + 2 * 1.2 + 3.0 + 3.01, first_s + 8.41, first_s, first_s + 8.41])
    waits = result.steps_table().filter(replica=0, num_decodes=1)["rank_wait_s"].to_list()
    assert waits == pytest.approx([0.1, 0.1])


def test_another_rank_comes_to_be_the_slowest() -> None:
    """Contexts of 400 and of 2 · 10 that grow by 1 and by 2 a step: after 380 steps the second sum is the larger."""
    rows = [(0.0, 400, 800), (0.0, 10, 800), (0.0, 1, 1), (0.0, 10, 800)]
    options = {"step_time": "linear:1,0,0.01", **TWO}
    for recording in (Recording(), EVERYTHING):
        result = play(rows, recording=recording, **options)
        longest = np.maximum(400 + np.arange(799), 20 + 2 * np.arange(799))
        assert column(result, "finished_at_s")[0] == pytest.approx(1 + 799 + 0.01 * longest.sum(), rel=1e-9)
        gaps = result.records.gaps
        assert (gaps.values_s * gaps.counts).sum() == pytest.approx(3 * (799 + 0.01 * longest.sum()))


def test_graphs_are_padded_to_the_largest_rank() -> None:
    """8 requests beside 3, all in steps that are CUDA graphs: the 8 are as fast as if both ranks had 8."""
    trace = trace_of([(0.0, 16, 40)] * 6 + [(0.0, 1, 1), (0.0, 16, 40)] * 5)
    result = replay(trace, MOE, recording=EVERYTHING).result
    many = np.flatnonzero(result.replica == 1)
    assert len(many) == 8
    alike = replay(trace_of([(0.0, 16, 40)] * 16), MOE).result
    assert result.e2e_s[many].tolist() == alike.e2e_s[1::2].tolist()
    few = result.steps_table().filter((pl.col("replica") == 0) & (pl.col("num_decodes") == 3))
    assert (few["rank_wait_s"] > 0).all()
    lone = replay(trace_of([(0.0, 16, 40)] * 3), replace(MOE, data_parallel_size=1, data_parallel_attention=False))
    assert number(few["duration_s"].mean()) > float(lone.result.tpot_s.mean())


def test_other_steps_run_their_own_tokens_and_experts_see_the_sum() -> None:
    """8,192 tokens at one rank of two: what the ranks do for each other is that of 4,096 at each."""
    trace = trace_of([(0.0, 8192, 2)])
    scenario = replace(MOE, max_num_batched_tokens=8192)
    step = replay(trace, scenario, recording=EVERYTHING).result.steps_table().row(0, named=True)
    both = replay(trace_of([(0.0, 8192, 2)] * 2), scenario, recording=EVERYTHING).result
    alike = both.steps_table().row(0, named=True)
    curve = resolve(scenario, trace).step_time.curve
    shared = dict(zip(node_counts().tolist(), curve.shared_s.tolist(), strict=False))
    experts = dict(zip(node_counts().tolist(), curve.experts_s.tolist(), strict=False))
    assert alike["duration_s"] - step["duration_s"] == pytest.approx(shared[8192] - shared[4096])
    assert step["experts_s"] == pytest.approx(experts[4096])
    terms = [name for name in alike if name in ("linear_s", "experts_s", "activations_s", "attention_prompt_s",
                                                "lm_head_s", "collectives_s", "overhead_s", "rank_wait_s")]
    for row in (step, alike):
        assert sum(row[name] for name in terms) == pytest.approx(row["duration_s"])
    assert step["rank_wait_s"] == pytest.approx(0.0, abs=1e-12)
    eager = replay(trace_of([(0.0, 16, 9)]), replace(MOE, cudagraph_mode="none"), recording=EVERYTHING).result
    assert (eager.records.steps["num_spared_tokens"] == 8).sum() == 1  # of 16: the experts see 8 of each rank


def test_each_gpu_counts_once() -> None:
    """Four ranks of two GPUs, with the same load each: one of them does a quarter of the work on a quarter of all."""
    scenario = replace(MOE, data_parallel_size=4, tensor_parallel_size=2)
    outcome = replay(trace_of([(0.0, 700, 50)] * 8), scenario)
    summary, result = outcome.summary, outcome.result
    hours = 8 * summary["duration"] / 3600
    deployment = result.deployment
    assert deployment.gpu is not None
    assert deployment.architecture is not None
    assert (summary["deployment"]["num_gpus"], summary["deployment"]["num_replicas"], deployment.num_gpus) == (8, 4, 8)
    assert summary["gpu_hours"] == pytest.approx(hours)
    assert summary["cost_usd"] == pytest.approx(hours * deployment.gpu.price_usd_per_hour)
    one = result.replicas[0].engine
    rank = replace(shares(result, summary["duration"])[0], engine=one, mean_replicas=1)
    assert summary["energy_kwh"] == pytest.approx(hours * mean_power_w(rank, summary["duration"]) / 1e3)
    decodes = one.total_decode_tokens + one.total_dropped
    flops = model_flops(deployment.architecture, prompt_tokens=one.total_prompt_tokens, decodes=decodes,
                        pairs=one.total_prompt_pairs, window_pairs=one.total_window_pairs,
                        context=one.total_context_tokens, sampled=one.total_sampled)
    assert summary["mfu"] == pytest.approx(flops / (one.busy_s * 2 * peak_flops_per_s(deployment.gpu, "bf16")))
    assert summary["mbu"] == pytest.approx(one.total_hbm_bytes / one.busy_s / deployment.gpu.hbm_bandwidth_bytes_per_s)
    assert summary["rank_wait_fraction"] == 0.0
    assert "rank_wait_fraction" in str(summary_table(summary))


def test_ranks_share_the_experts_memory() -> None:
    """Attention is on every rank in full, experts once for all, whole or in slices."""
    one, whole, sliced = (deploy(each).memory for each in (
        replace(MOE, data_parallel_size=1, data_parallel_attention=False, expert_parallel=False),
        MOE, replace(MOE, expert_parallel=False)))
    assert one is not None
    assert whole is not None
    assert sliced is not None
    assert whole.weight_bytes == pytest.approx(sliced.weight_bytes)
    experts = 48 * 128 * 3 * 2048 * 768 * 2.0
    assert one.weight_bytes - whole.weight_bytes == pytest.approx(experts / 2)
    assert whole.kv_bytes_per_token == one.kv_bytes_per_token


def test_groups_do_not_wait_for_each_other() -> None:
    """Of two groups of two each does what it would do alone."""
    rows = [(0.01 * k, 20 + 37 * k % 91, 1 + 11 * k % 30) for k in range(40)]
    trace, deployment = trace_of(rows), resolve(scenario_of(**TWO), trace_of(rows))
    found = serve(trace, deployment, 2, EVERYTHING)
    assert (found.num_replicas, found.deployment.num_gpus) == (4, 2)
    for group in range(2):
        own = np.flatnonzero(np.arange(40) % 4 // 2 == group)
        alone = serve(replace(trace, requests=trace.requests[own]), deployment, 1, EVERYTHING)
        assert found.replica is not None
        assert alone.replica is not None
        assert found.records.requests.finished_s[own].tolist() == alone.records.requests.finished_s.tolist()
        assert (found.replica[own] - 2 * group).tolist() == alone.replica.tolist()


def test_a_group_is_slower_than_replicas_by_themselves() -> None:
    """Requests of unequal lengths take longer where ranks wait for each other."""
    rows = [(0.02 * k, 5 + 67 * k % 191, 1 + 13 * k % 40) for k in range(60)]
    apart_, together_ = (play(rows, **TWO | {"data_parallel_attention": each}, max_num_batched_tokens=64)
                         for each in (False, True))
    assert together_.e2e_s.mean() > 1.05 * apart_.e2e_s.mean()


POOLS = """[[pool]]
name = "prompts"
role = "prefill"
replicas = 2
data_parallel_size = 2
data_parallel_attention = true

[[pool]]
name = "outputs"
role = "decode"
data_parallel_size = 4
data_parallel_attention = true
max_num_seqs = 8
"""


def test_pools_have_ranks_of_their_own(tmp_path: Path) -> None:
    """Two groups of two that prefill, one of four that decodes: 8 GPUs, each group on its own clock."""
    path = tmp_path / "fleet.toml"
    path.write_text(POOLS)
    rows = [(0.03 * k, 10 + 37 * k % 91, 2 + 11 * k % 30) for k in range(50)]
    scenario = scenario_of(fleet=str(path), router="least-outstanding-tokens", kv_transfer_latency=0.01)
    outcome = replay(trace_of(rows), scenario, recording=EVERYTHING)
    result, pools = outcome.result, outcome.summary["pools"]
    assert [(pool["num_replicas"], pool["data_parallel_size"], pool["num_gpus"]) for pool in pools] == [
        (4, 2, 4), (4, 4, 4)]
    assert set(column(result, "status")) == {"completed"}
    assert set(column(result, "pool")) == {"prompts"}
    assert set(column(result, "decode_replica")) == {4, 5, 6, 7}
    steps = result.records.steps
    for ranks in ((0, 1), (2, 3), (4, 5, 6, 7)):
        own = steps[np.isin(steps["replica"], ranks)]
        spans = sorted({(row["start_s"], row["start_s"] + row["duration_s"]) for row in own})
        assert all(end_s <= next_s + 1e-9 for (_, end_s), (next_s, _) in pairwise(spans))
        busy = {float(result.replicas[k].engine.busy_s) for k in ranks}
        assert max(busy) == pytest.approx(min(busy))
    for each in result.replicas:
        assert each.engine.num_free_blocks == each.settings.num_gpu_blocks
        assert each.engine.num_held == 0


@pytest.mark.parametrize(("pool", "words"), [
    ('data_parallel_size = 2', "data_parallel_attention = true"),
    ('data_parallel_attention = true', "one rank steps with no other"),
    ('data_parallel_attention = true\ndata_parallel_size = 2\nreplicas = 0', "leave the pool out"),
    ('data_parallel_attention = true\ndata_parallel_size = 2\npipeline_parallel_size = 2', "pipeline_parallel_size"),
])
def test_pools_that_cannot_be(tmp_path: Path, pool: str, words: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(f"[[pool]]\n{pool}\n")
    with pytest.raises(FleetError, match=words):
        replay(trace_of([(0.0, 1, 1)]), scenario_of(fleet=str(path)))


@pytest.mark.parametrize(("options", "words"), [
    ({"data_parallel_size": 1}, "one rank steps with no other; give --data-parallel-size"),
    ({"pipeline_parallel_size": 2}, "pipeline_parallel_size = 2: tensor_parallel_size and data_parallel_size"),
    ({"prefill_replicas": 1}, "prefill_replicas = 1: a fleet's file has a pool"),
    ({"autoscale": "a.toml"}, "autoscale = 'a.toml': replicas that come and go"),
    ({"fail_replica": "0@1"}, "fail_replica = '0@1': a rank that fails"),
    ({"data_parallel_size": 1, "fleet": "f.toml"}, "fleet = 'f.toml': each pool has its own ranks"),
    ({"model": "llama-3.1-8b", "gpu": "h100-sxm"}, "llama-3.1-8b, which has no experts"),
    ({"model": "deepseek-v3", "gpu": "rtx-pro-6000", "data_parallel_size": 16}, "spans 2 nodes of 8"),
])
def test_ranks_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        deploy(scenario_of(**TWO | options))
    assert words in str(caught.value)


def test_limits_are_a_ranks() -> None:
    """Of SGLang's chunk each rank has its part; other defaults are of a rank anyway."""
    for engine, tokens in (("sglang", 2048), ("vllm", 8192), ("trtllm", 8192)):
        own = deploy(replace(MOE, engine=engine, data_parallel_size=4))
        assert own.settings.max_num_batched_tokens == tokens


@pytest.mark.parametrize(("command", "expected"), [
    ("vllm serve deepseek-ai/DeepSeek-V3 -dp 8 --enable-expert-parallel --max-num-seqs 64",
     {"data_parallel_size": 8, "data_parallel_attention": True, "router": "vllm-dp", "expert_parallel": True,
      "max_num_seqs": 64}),
    ("vllm serve meta-llama/Llama-3.1-8B -dp 2", {"data_parallel_size": 2, "router": "vllm-dp"}),
    ("vllm serve deepseek-ai/DeepSeek-V3 -tp 8", {"tensor_parallel_size": 8}),
    ("sglang serve --model deepseek-ai/DeepSeek-V3 --tp 16 --dp 4 --enable-dp-attention --ep 16 "
     "--chunked-prefill-size 32768 --max-running-requests 1024",
     {"tensor_parallel_size": 4, "data_parallel_size": 4, "data_parallel_attention": True, "expert_parallel": True,
      "max_num_batched_tokens": 8192, "max_num_seqs": 256}),
    ("sglang serve --model deepseek-ai/DeepSeek-V3 --tp 8 --enable-dp-attention", {"tensor_parallel_size": 8}),
    ("sglang serve --model deepseek-ai/DeepSeek-V3 --tp 8 --dp 2",
     {"tensor_parallel_size": 8, "data_parallel_size": 2}),
])
def test_commands_with_ranks_are_read(command: str, expected: dict[str, Any]) -> None:
    found = dict(read_launch(command).options)
    del found["engine"], found["model"]
    assert found == expected


def test_trtllms_ranks_are_its_gpus(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text("enable_attention_dp: true\nmax_num_tokens: 4096\n")
    found = read_launch(f"trtllm-serve deepseek-ai/DeepSeek-V3 --tp_size 8 --ep_size 8 --config {tmp_path / 'e.yaml'}")
    assert found.options == {
        "engine": "trtllm", "model": "deepseek-ai/DeepSeek-V3", "tensor_parallel_size": 1, "data_parallel_size": 8,
        "data_parallel_attention": True, "expert_parallel": True, "max_num_batched_tokens": 4096}


@pytest.mark.parametrize(("engine", "size", "router"), [
    ("vllm", 2, "vllm-dp"), ("sglang", 2, None), ("trtllm", 1, None)])
def test_commands_with_ranks_are_read_back(engine: Any, size: int, router: str | None, tmp_path: Path) -> None:
    scenario = Scenario(model="deepseek-ai/DeepSeek-V3", engine=engine, tensor_parallel_size=size, router=router,
                        data_parallel_size=4, data_parallel_attention=True, expert_parallel=True, max_num_seqs=100,
                        max_num_batched_tokens=1000)
    command, lacking = launch_command(scenario)
    assert lacking == ()
    if command.startswith("cat"):
        (tmp_path / "engine.yaml").write_text(command.partition("EOF'\n")[2].partition("EOF\n")[0])
        command = command.partition("EOF\n")[2].replace("engine.yaml", str(tmp_path / "engine.yaml"))
    assert Scenario(**read_launch(command).options) == scenario


def test_commands_say_what_they_lack() -> None:
    """VLLM deals requests by a score of its own, its ranks of experts step together, TensorRT-LLM's have a GPU each."""
    assert launch_command(Scenario(model="llama-3.1-8b", data_parallel_size=2))[1] == ("router = random",)
    replicas = Scenario(model="deepseek-v3", data_parallel_size=2)
    assert launch_command(replicas)[1] == ("data_parallel_size = 2",)
    assert "--data-parallel-size" not in launch_command(replicas)[0]
    wide = Scenario(model="deepseek-v3", engine="trtllm", tensor_parallel_size=2, **TWO)
    assert launch_command(wide)[1] == ("tensor_parallel_size = 2 of a rank",)
    assert "--tp_size 4" in launch_command(wide)[0]
    options, _ = launch_options("vllm serve deepseek-ai/DeepSeek-V3 -dp 8")
    assert Scenario(**options, gpu="h200-sxm").data_parallel_attention


def test_a_note_says_where_replicas_would_step_together() -> None:
    trace = trace_of([(0.0, 1, 1)])
    words = "--data-parallel-attention"
    for scenario, says in ((MOE, False), (replace(MOE, data_parallel_attention=False), True)):
        assert any(words in note for note in notes(resolve(scenario, trace), trace)) is says


def test_explanations_say_what_ranks_wait_for() -> None:
    """One long prompt after the other at one rank: the other's decodes wait for most of their time."""
    rows = [(0.0, 64, 1), (0.0, 16, 200)] + [(0.001 * k, 4000, 1) if k % 2 else (0.001 * k, 8, 2) for k in range(1, 40)]
    result = replay(trace_of(rows), MOE, recording=EVERYTHING).result
    found = explain(result.requests_table(), result.steps_table(), 2)
    assert found["limits"]["steps"]["other_ranks"]["share"] > 0.2
    older = result.steps_table().drop("rank_wait_s")
    assert explain(result.requests_table(), older, 2)["limits"]["steps"]["other_ranks"]["share"] == 0.0


def load(count: int = 300, rate: float = 20.0) -> Trace:
    return trace_of([(k / rate, 200 + 97 * k % 800, 10 + 31 * k % 90) for k in range(count)])


def test_a_size_is_of_groups() -> None:
    """The fewest groups keep the objectives, one less does not; each costs its ranks' GPUs."""
    objectives = parse_objectives("ttft:200 tpot:14", 0.95)
    trace, choices = load(rate=200.0), Choices(gpus=("h100-sxm",), quantizations=(None,), ranks=(1,), prices={}, jobs=1)
    found = size(trace, MOE, objectives, choices)
    best = cheapest(found)
    count, deployment = best.num_replicas, resolve(MOE, trace)
    assert deployment.gpu is not None
    assert count > 1
    assert (best.kind.data_parallel_size, best.num_gpus) == (2, 2 * count)
    assert best.cost_usd_per_hour == pytest.approx(2 * count * deployment.gpu.price_usd_per_hour)
    for groups, is_met in ((count, True), (count - 1, False)):
        assert judge(objectives, serve(trace, deployment, groups).times_s).is_met is is_met
    assert "--data-parallel-size 2" in best.command
    assert str(sizing_table(found))
    loose = parse_objectives("ttft:5000 tpot:500", 0.95)
    over_nodes = cheapest(size(trace, replace(MOE, data_parallel_size=16), loose, choices))
    assert (over_nodes.kind.data_parallel_size, over_nodes.num_gpus) == (16, 16)
    assert any("published" in note and "--inter-node-bandwidth" in note for note in over_nodes.notes)


def test_groups_are_divided_into_prefill_and_decode() -> None:
    objectives = parse_objectives("ttft:400 tpot:30", 0.9)
    count, served, _ = fewest_replicas(load(), resolve(MOE, load()), objectives, divided=apart)
    assert judge(objectives, served.times_s).is_met
    assert sum(pool.num_groups for pool in served.deployment.pools) == count
    assert served.num_replicas == 2 * count


def test_a_capacity_is_that_of_the_group() -> None:
    found = capacity(load(), replace(MOE, max_num_seqs=16), parse_objectives("ttft:200 tpot:14", 0.95),
                     Search(replicates=0, jobs=1))
    assert found.capacity_per_gpu == pytest.approx(found.capacity / 2)


def test_reports_name_the_ranks() -> None:
    summary = replay(load(20), replace(MOE, tensor_parallel_size=2)).summary
    described = _engine(summary)["standardized"]
    assert described["replicas"] == 1
    assert described["accelerator"]["parallelism"] == {"tp": 2, "pp": 1, "dp": 2, "ep": 4}
    assert described["accelerator"]["count"] == 4


def test_the_command_line_and_files_take_ranks(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    done = CliRunner().invoke(app, ["replay", "chat", "--limit", "100", "--model", "qwen3-30b-a3b", "--gpu", "h100-sxm",
                                    "--data-parallel-size", "4", "--data-parallel-attention", "--explain", "--json",
                                    str(path)])
    assert done.exit_code == 0, done.output
    summary = json.loads(path.read_text())
    assert summary["deployment"]["data_parallel_attention"] is True
    assert summary["deployment"]["num_gpus"] == 4
    settings = {change["setting"]: change["after"] for change in summary["explanation"]["advice"]["changes"]}
    assert (settings["tensor_parallel_size"], settings["data_parallel_size"]) == (2, 8)
    study = parse_study("s", {"trace": "chat", "model": "qwen3-30b-a3b", "gpu": "h100-sxm", "data_parallel_size": 2,
                         "data_parallel_attention": True}, tmp_path)
    assert study.scenario.data_parallel_attention
    refused = CliRunner().invoke(app, ["size", "chat", "--model", "qwen3-30b-a3b", "--gpu", "h100-sxm", "--slo",
                                       "ttft:500", "--data-parallel-size", "4"])
    assert isinstance(refused.exception, UsageError)
    assert "or give --data-parallel-attention" in str(refused.exception)
    with pytest.raises(PlannerError):
        replay(load(3), Scenario(model="llama-3.1-8b", gpu="h100-sxm", **TWO))


@pytest.mark.parametrize("options", [{}, {"cudagraph_mode": "none"}, {"tensor_parallel_size": 2}])
def test_equal_ranks_are_one_rank_among_its_like(options: dict[str, Any]) -> None:
    """As measured runs are replayed: one rank's requests, on a step time that takes all ranks to be like it."""
    rows = [(0.05 * (k // 2), 30 + 997 * k % 3000, 5 + 31 * k % 90) for k in range(30)]
    trace, scenario = trace_of(rows), replace(MOE, **options)
    deployment = resolve(scenario, trace)
    alone = run(trace, deployment.policy, deployment.settings, deployment.step_time, Recording())
    both = replay(trace_of([row for row in rows for _ in range(2)]), scenario).result
    for k in range(2):
        assert both.records.requests.finished_s[k::2].tolist() == alone.requests.finished_s.tolist()
        assert both.records.requests.first_token_s[k::2].tolist() == alone.requests.first_token_s.tolist()
