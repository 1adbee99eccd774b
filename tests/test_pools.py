"""Pools of different replicas: worked cases, what equals what, the tables, and files that cannot be."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import planner
from helpers import EVERYTHING, play, scenario_of, trace_of
from hypothesis import given, settings
from hypothesis import strategies as some
from typer.testing import CliRunner

from planner.commands.cli import app
from planner.deployment.deploy import resolve
from planner.deployment.pools import read_fleet, turns
from planner.errors import FleetError, PolicyError, UsageError
from planner.planning.capacity import capacity
from planner.planning.fewest import apart, cheapest_split, fewest_replicas, of_two_kinds
from planner.planning.fingerprint import scenario_sha256
from planner.planning.search_options import Choices, Search
from planner.planning.size_answer import Fleet
from planner.planning.sizing import size
from planner.planning.study import parse_study
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.replays.fleet.disaggregation import transfer_of
from planner.replays.fleet.replicas import serve
from planner.replays.result_tables import ReplayResult
from planner.report.plan_tables import sizing_table
from planner.report.summary_tables import summary_table
from planner.results.notes import notes
from planner.run import replay
from planner.settings.objectives import judge, parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace

FAST, SLOW = "linear:1,0", "linear:3,0"  # every step takes a second, or three


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleets")


def fleet_of(folder: Path, *pools: dict[str, Any]) -> str:
    """Write a fleet's file of pools, and return its name."""
    text = "".join("[[pool]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in pool.items())
                   for pool in pools)
    path = folder / f"fleet-{abs(hash(text))}.toml"
    path.write_text(text)
    return str(path)


def sent(result: ReplayResult) -> list[int]:
    assert result.replica is not None
    numbers: list[int] = result.replica.tolist()
    return numbers


def finished(result: ReplayResult) -> list[float]:
    times: list[float] = np.asarray(result.records.requests.finished_s).tolist()
    return times


def two(folder: Path, **slow: Any) -> str:
    return fleet_of(folder, {"name": "fast", "step_time": FAST}, {"name": "slow", "step_time": SLOW, **slow})


def test_each_replica_has_its_own_step_time(folder: Path) -> None:
    """Two requests of two tokens each: two seconds on the fast one, six on the slow one; the third finds the fast one
    free at 2, when the slow one is not."""
    rows = [(0.0, 10, 2), (0.0, 10, 2), (2.5, 10, 2)]
    for router, wanted in (("least-outstanding-requests", [0, 1, 0]), ("round-robin", [0, 1, 0])):
        result = play(rows, fleet=two(folder), router=router)
        assert sent(result) == wanted
        assert finished(result) == [2.0, 6.0, 4.5]


def test_each_pool_has_its_own_policy(folder: Path) -> None:
    """One seat each. Where jobs are sorted by length the short one is first, elsewhere the one that came first."""
    rows = [(0.0, 10, 2), (0.0, 10, 2), (0.5, 100, 3), (0.5, 100, 3), (0.6, 10, 1), (0.6, 10, 1)]
    shared = {"step_time": FAST, "max_num_seqs": 1}
    fleet = fleet_of(folder, {"policy": "fcfs", **shared}, {"policy": "sjf", **shared})
    for router in ("round-robin", "least-outstanding-requests"):
        result = play(rows, fleet=fleet, router=router)
        assert sent(result) == [0, 1, 0, 1, 0, 1]
        assert finished(result) == [2.0, 2.0, 5.0, 6.0, 6.0, 3.0]


def test_each_pool_has_its_own_blocks(folder: Path) -> None:
    """Prompts of 64 tokens in common: of blocks of 16 three are found again, of those of 32 one; the last token is
    computed anew."""
    trace = trace_of([(10.0 * k, 64, 1) for k in range(4)], hash_ids=[[1, 2, 3, 4]] * 4, hash_block_tokens=16)
    fleet = fleet_of(folder, {"block_size": 16, "num_gpu_blocks": 100}, {"block_size": 32, "num_gpu_blocks": 10})
    for router in ("round-robin", "least-outstanding-requests"):
        result = play(trace, fleet=fleet, router=router, step_time=FAST)
        assert sent(result) == [0, 1, 0, 1]
        assert result.requests_table()["num_cached_tokens"].to_list() == [0, 0, 48, 32]
        found = replay(trace, scenario_of(fleet=fleet, router=router, step_time=FAST)).summary
        assert found["kv_cache_usage_peak"] == max(4 / 100, 2 / 10)
        assert found["num_gpu_blocks"] is None
        assert [pool["kv_cache_usage_peak"] for pool in found["pools"]] == [4 / 100, 2 / 10]


def test_prefill_and_decode_on_different_replicas(folder: Path) -> None:
    """A second for the prompt, half a second for its KV, and three seconds for each further token."""
    fleet = fleet_of(folder, {"name": "d", "role": "decode", "step_time": SLOW},
                     {"name": "p", "role": "prefill", "step_time": FAST})
    result = play([(0.0, 10, 3), (0.0, 10, 1)], fleet=fleet, kv_transfer_latency=0.5)
    table = result.requests_table()
    assert table["finished_at_s"].to_list() == [7.5, 1.0]
    assert table["replica"].to_list() == [0, 0]
    assert table["pool"].to_list() == ["p", "p"]
    assert table["decode_pool"].to_list() == ["d", "p"]
    assert result.steps_table().select("replica", "pool", "duration_s").rows() == [(0, "p", 1.0), (1, "d", 3.0),
                                                                                  (1, "d", 3.0)]


def test_the_kv_of_a_pool_is_what_is_passed_on(folder: Path) -> None:
    """Half as much in 8 bits, though the option is the pools'."""
    common = {"num_gpu_blocks": 100, "model": "llama-3.1-8b", "gpu": "h100-sxm"}
    trace = trace_of([(0.0, 10, 2)])
    took = []
    for dtype in ("auto", "fp8"):
        fleet = fleet_of(folder, {"role": "prefill", "kv_cache_dtype": dtype, **common},
                         {"role": "decode", "kv_cache_dtype": dtype, "tensor_parallel_size": 2, **common})
        deployment = resolve(scenario_of(fleet=fleet), trace)
        took.append(transfer_of(deployment.pools[0].deployment).s_per_token)
    assert took[0] == 131072 / 50e9 == 2 * took[1]


def test_weights_deal_by_share(folder: Path) -> None:
    """Three turns to one, evenly spread, whether each replica is replayed by itself or all are on one clock."""
    fleet = fleet_of(folder, {"weight": 3}, {"weight": 1})
    rows = [(100.0 * k, 10, 1) for k in range(8)]
    assert sent(play(rows, fleet=fleet, router="round-robin")) == [0, 0, 1, 0, 0, 0, 1, 0]
    assert sent(play(rows, fleet=fleet, router="round-robin", max_concurrency=9)) == [0, 0, 1, 0, 0, 0, 1, 0]


def test_weights_divide_scores(folder: Path) -> None:
    """Loads of 2 / 3 and 1: the next is the first's; of 3 / 3 and 1, theirs who was sent one the longest ago."""
    fleet = fleet_of(folder, {"weight": 3, "step_time": FAST}, {"weight": 1, "step_time": FAST})
    rows = [(0.01 * k, 10, 90) for k in range(8)]
    for router in ("least-outstanding-requests", "least-outstanding-tokens", "power-of-two"):
        assert sent(play(rows, fleet=fleet, router=router)) == [0, 1, 0, 0, 1, 0, 0, 0], router
    with_this_one = [0, 0, 1, 0, 0, 0, 1, 0]  # 10 / 3 tokens and 10, 20 / 3 and 10, 30 / 3 and 10 …
    assert sent(play(rows, fleet=fleet, router="prefix-aware")) == with_this_one
    drawn = sent(play([(0.01 * k, 10, 1) for k in range(400)], fleet=fleet, router="random"))
    assert 0.2 < np.mean(drawn) < 0.3


def test_decoders_are_chosen_by_weight(folder: Path) -> None:
    fleet = fleet_of(folder, {"role": "prefill", "step_time": "linear:0.001,0"},
                     {"role": "decode", "step_time": FAST, "weight": 3}, {"role": "decode", "step_time": SLOW})
    table = play([(0.01 * k, 10, 90) for k in range(8)], fleet=fleet).requests_table()
    assert table["decode_replica"].to_list() == [1, 2, 1, 1, 2, 1, 1, 1]


@given(weights=some.lists(some.integers(1, 9), min_size=1, max_size=6))
def test_turns_are_fair(weights: list[int]) -> None:
    """Everybody has as many as it weighs; at no time is anybody a whole turn or more behind or ahead of its share."""
    found = turns(weights)
    gcd = int(np.gcd.reduce(weights))
    assert np.bincount(found, minlength=len(weights)).tolist() == [weight // gcd for weight in weights]
    for k, weight in enumerate(weights):
        ahead = np.cumsum(found == k) - np.arange(1, len(found) + 1) * weight / sum(weights)
        assert np.abs(ahead).max() < len(weights)
    assert len(weights) > 2 or all(np.abs(np.cumsum(found == k) - np.arange(1, len(found) + 1) * weight / sum(weights)
                                          ).max() < 1 for k, weight in enumerate(weights))


def requests_strategy() -> Any:
    row = some.tuples(some.sampled_from((0.0, 0.01, 0.3, 2.0)), some.integers(1, 60), some.integers(1, 12))
    return some.lists(row, min_size=1, max_size=12)


def trace_from(rows: Sequence[tuple[float, int, int]]) -> Trace:
    at_s = np.cumsum([gap for gap, _, _ in rows])
    return trace_of([(float(at), inputs, outputs) for at, (_, inputs, outputs) in zip(at_s, rows, strict=True)])


def assert_same(ours: ReplayResult, theirs: ReplayResult) -> None:
    """The same outcome to the last bit, up to the names of pools."""
    for ours_table, table in ((ours.requests_table(), theirs.requests_table()),
                              (ours.steps_table(), theirs.steps_table()),
                              (ours.schedule_table(), theirs.schedule_table())):
        assert ours_table.drop("pool", "decode_pool", strict=False).equals(table)
    for one, other in zip(ours.replicas, theirs.replicas, strict=True):
        assert one.engine.tobytes() == other.engine.tobytes()


@pytest.mark.slow
@settings(max_examples=40)
@given(rows=requests_strategy(), router=some.sampled_from(list(ROUTERS)), counts=some.lists(some.integers(1, 2),
                                                                                            min_size=1, max_size=3),
       policy=some.sampled_from(list(POLICIES)), seed=some.integers(0, 2))
def test_equal_pools_are_a_plain_fleet(folder: Path, rows: list[tuple[float, int, int]], router: str,
                                       counts: list[int], policy: str, seed: int) -> None:
    trace = trace_from(rows)
    options: dict[str, Any] = {"router": router, "policy": policy, "seed": seed, "num_gpu_blocks": 12}
    ours = play(trace, fleet=fleet_of(folder, *({"replicas": count, "weight": 5} for count in counts)), **options)
    assert_same(ours, play(trace, data_parallel_size=sum(counts), **options))


@settings(max_examples=30)
@given(rows=requests_strategy(), prefill=some.integers(1, 2), decode=some.lists(some.integers(1, 2), min_size=1,
                                                                                max_size=2))
def test_equal_roles_are_a_plain_divided_fleet(folder: Path, rows: list[tuple[float, int, int]], prefill: int,
                                               decode: list[int]) -> None:
    trace = trace_from(rows)
    pools = [{"role": "decode", "replicas": count} for count in decode] + [{"role": "prefill", "replicas": prefill}]
    options: dict[str, Any] = {"router": "least-outstanding-requests", "kv_transfer_latency": 0.02}
    ours = play(trace, fleet=fleet_of(folder, *pools), **options)
    assert_same(ours, play(trace, data_parallel_size=prefill + sum(decode), prefill_replicas=prefill, **options))


@settings(max_examples=30)
@given(rows=requests_strategy(), routed=some.booleans())
def test_unequal_replicas_do_what_each_does_alone(folder: Path, rows: list[tuple[float, int, int]],
                                                  routed: bool) -> None:
    trace = trace_from(rows)
    pools: list[dict[str, Any]] = [
        {"policy": "fcfs", "num_gpu_blocks": 9}, {"policy": "decode-first", "step_time": "linear:0.02,0.001"},
        {"policy": "sglang", "engine": "sglang", "block_size": 4, "num_gpu_blocks": 40, "max_num_seqs": 2}]
    result = play(trace, fleet=fleet_of(folder, *pools), router="least-outstanding-requests" if routed
                  else "round-robin")
    table, steps = result.requests_table(), result.steps_table()
    for k, pool in enumerate(pools):
        mine = table.filter(replica=k)
        if mine.height:
            alone = play(trace_of(list(mine.select("arrival_s", "input_tokens").with_columns(
                trace.requests.filter(trace.requests["request_id"].is_in(mine["request_id"].to_list()))["output_tokens"]
            ).iter_rows())), **pool)
            assert alone.requests_table()["finished_at_s"].equals(mine["finished_at_s"])
            assert alone.steps_table().drop("replica").equals(steps.filter(replica=k).drop("replica", "pool"))


@given(rows=requests_strategy(), policy=some.sampled_from(list(POLICIES)))
@settings(max_examples=20)
def test_a_pool_of_one_is_the_engine(folder: Path, rows: list[tuple[float, int, int]], policy: str) -> None:
    trace = trace_from(rows)
    fleet = fleet_of(folder, {"replicas": 1, "policy": policy, "role": "both"})
    assert_same(play(trace, fleet=fleet), play(trace, policy=policy))


def real(folder: Path, *pools: dict[str, Any], **options: Any) -> Scenario:
    return Scenario(model="llama-3.1-8b", fleet=fleet_of(folder, *pools), **options)


def test_costs_are_sums(folder: Path) -> None:
    """What each pool costs is what as many replicas of its kind cost for as long."""
    scenario = real(folder, {"name": "new", "gpu": "h100-sxm", "replicas": 2},
                    {"name": "old", "gpu": "a100-sxm", "tensor_parallel_size": 2})
    trace = trace_of([(0.1 * k, 500, 50) for k in range(40)])
    found = replay(trace, scenario, recording=EVERYTHING)
    summary, (new, old) = found.summary, found.summary["pools"]
    assert (new["num_gpus"], old["num_gpus"], summary["deployment"]["num_gpus"]) == (2, 2, 4)
    assert summary["deployment"]["num_replicas"] == 3
    assert summary["deployment"]["gpu"] == "h100-sxm + a100-sxm"
    for key in ("gpu_hours", "cost_usd", "energy_kwh", "num_steps"):
        assert summary[key] == pytest.approx(new[key] + old[key], rel=1e-12)
    assert new["num_requests"] + old["num_requests"] == 40
    assert new["gpu_hours"] == old["gpu_hours"] == pytest.approx(2 * summary["duration"] / 3600, rel=1e-12)
    assert summary["gpu_busy_fraction"] == pytest.approx((new["gpu_busy_fraction"] + old["gpu_busy_fraction"]) / 2)
    assert min(new["mfu"], old["mfu"]) < summary["mfu"] < max(new["mfu"], old["mfu"])
    assert min(new["mbu"], old["mbu"]) < summary["mbu"] < max(new["mbu"], old["mbu"])
    steps = found.steps
    assert steps["pool"].to_list() == ["new" if k < 2 else "old" for k in steps["replica"]]
    sums = steps.select(steps[name] for name in ("overhead_s", "linear_s", "collectives_s")).sum_horizontal()
    assert (sums <= steps["duration_s"] * (1 + 1e-9)).all()
    assert steps.filter(pool="new")["collectives_s"].sum() == 0 < steps.filter(pool="old")["collectives_s"].sum()
    assert "2 × h100-sxm" in str(summary_table(summary))


@pytest.mark.slow
def test_the_first_line_counts_the_gpus_of_all_kinds(folder: Path) -> None:
    run = planner("replay", "chat", "--limit", "50", "--model", "llama-3.1-8b", "--fleet",
                  'pool = [{replicas = 2, gpu = "h100-sxm"}, {gpu = "l40s"}]')
    assert run.stdout.splitlines()[0] == "llama-3.1-8b, on 3 GPUs (h100-sxm + l40s), policy fcfs, router round-robin"


def test_a_slower_pool_serves_no_more(folder: Path) -> None:
    """Two H100 serve more than one of them and an L40S with a fifth of the load, and these more than the H100 alone."""
    trace = trace_of([(0.05 * k, 800, 60) for k in range(60)])
    objectives = parse_objectives("ttft:400 tpot:60", 0.9)
    rates = [capacity(trace, real(folder, *pools, router="least-outstanding-requests"), objectives,
                      Search(replicates=0, horizon="trace"))
             for pools in (({"gpu": "h100-sxm"},), ({"gpu": "h100-sxm", "weight": 4}, {"gpu": "l40s"}),
                           ({"gpu": "h100-sxm"}, {"gpu": "h100-sxm"}))]
    assert rates[0].capacity < rates[1].capacity < rates[2].capacity
    assert [rate.num_gpus for rate in rates] == [1, 2, 2]


def test_a_launch_command_describes_a_pool(folder: Path) -> None:
    launch = "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2 --port 80"
    scenario = real(folder, {"gpu": "h100-sxm", "name": "a", "from_command": launch})
    trace = trace_of([(0.0, 10, 1)])
    deployment = resolve(scenario, trace)
    assert deployment.pools[0].deployment.layout.tensor_parallel_size == 2
    assert any(note.startswith("a: --from-command: left aside") for note in notes(deployment, trace))


def test_files_beside_the_fleet(tmp_path: Path) -> None:
    """A study names the fleet beside it, the fleet a policy beside itself; and a change of it is another scenario."""
    (tmp_path / "own.py").write_text(
        "from planner import IN_ORDER, Policy, StepPlan\n"
        "mine = Policy(name='mine', plan_step=lambda s: StepPlan(1, 1 << 40, 1 << 40, IN_ORDER))\n")
    (tmp_path / "fleet.toml").write_text('[[pool]]\npolicy = "own.py:mine"\n')
    study = parse_study("s", {"trace": "t.csv", "fleet": "fleet.toml"}, tmp_path)
    assert study.scenario.fleet == str(tmp_path / "fleet.toml")
    pools = read_fleet(tmp_path / "fleet.toml", study.scenario)
    assert pools[0].scenario.policy == f"{tmp_path / 'own.py'}:mine"
    before = scenario_sha256(study.scenario)
    with (tmp_path / "own.py").open("a") as file:
        file.write("# changed\n")
    assert scenario_sha256(study.scenario) != before


def test_the_policy_at_fault_is_named(tmp_path: Path) -> None:
    """Of two, the one that divides by nothing."""
    (tmp_path / "own.py").write_text(
        "from planner import IN_ORDER, Policy, StepPlan\n"
        "bad = Policy(name='bad', plan_step=lambda s: StepPlan(8 // s.num_running, 1 << 40, 1 << 40, IN_ORDER))\n"
        "still = Policy(name='still', plan_step=lambda s: StepPlan(0, 0, 0, IN_ORDER))\n")
    for name, said in (("bad", "'bad': .*own.py:2: plan_step failed at"), ("still", "'still'.*scheduled nothing")):
        (tmp_path / "fleet.toml").write_text(f'[[pool]]\n[[pool]]\npolicy = "own.py:{name}"\n')
        with pytest.raises(PolicyError, match=said):
            play([(0.0, 10, 1), (0.0, 10, 1)], fleet=str(tmp_path / "fleet.toml"), router="least-outstanding-requests")


BAD = [
    ("", "has no \\[\\[pool\\]\\]"),
    ("pool = 3", "has no \\[\\[pool\\]\\]"),
    ("router = 'random'\n[[pool]]", "unknown key 'router'"),
    ("[[pool]]\nreplicas = 0", "pool 1: replicas = 0: must be at least 1"),
    ("[[pool]]\nreplicas = -1", "replicas = -1: must be at least 1"),
    ("[[pool]]\nreplicas = 1.5", "data_parallel_size = 1.5: must be a whole number"),
    ("[[pool]]\ndata_parallel_size = 2", "give replicas instead"),
    ("[[pool]]\n[[pool]]\nmax_num_seq = 3", "pool 2: unknown option 'max_num_seq'; did you mean 'max_num_seqs'"),
    ("[[pool]]\nmax_num_seqs = 'many'", "max_num_seqs = 'many': must be a whole number"),
    ("[[pool]]\nrouter = 'random'", "router: is an option of the whole fleet"),
    ("[[pool]]\nmax_concurrency = 3", "max_concurrency: is an option of the whole fleet"),
    ("[[pool]]\ninterval = 0.8", "interval: is an option of the whole fleet"),
    ("[[pool]]\nfleet = 'other.toml'", "fleet: is an option of the whole fleet"),
    ("[[pool]]\nrole = 'encode'", "role = 'encode': must be both, prefill, decode"),
    ("[[pool]]\nrole = 'prefill'", "the roles are prefill; must be both"),
    ("[[pool]]\nrole = 'decode'", "the roles are decode; must be both"),
    ("[[pool]]\nrole = 'both'\n[[pool]]\nrole = 'decode'", "the roles are both, decode"),
    ("[[pool]]\nweight = 0", "weight = 0: must be a whole number from 1"),
    ("[[pool]]\nweight = 1.5", "weight = 1.5: must be a whole number"),
    ("[[pool]]\nname = ''", "name = '': must be text"),
    ("[[pool]]\nname = 'a'\n[[pool]]\nname = 'a'", "two pools have the same name"),
    ("[[pool]]\nfrom_command = 3", "from_command = 3: must be text"),
    ('[[pool]]\ngpu = 3\nfrom_command = "vllm serve m/m"', "gpu = 3: must be text"),
    ('[[pool]]\nengine_version = 0.2\nfrom_command = "vllm serve m/m"', "engine_version = 0.2: must be"),
    ("[[pool]]\n[[pool]]\nmodel = 'llama-3.1-8b'", "model is None in pool 'pool 1' and llama-3.1-8b in pool 'pool 2'"),
    ("[[pool]]\nmax_model_len = 100\n[[pool]]\nmax_model_len = 200", "max_model_len is 100 in pool 'pool 1' and 200"),
    ("[[pool]]\nrole = 'prefill'\n[[pool]]\nrole = 'decode'\nkv_cache_dtype = 'fp8'", "kv_cache_dtype is auto in"),
    ("[[pool]]\nrole = 'prefill'\n[[pool]]\nrole = 'decode'\nengine = 'sglang'", "engine is vllm in"),
    ("[[pool]]\npolicy = 'fifo'", "pool 'pool 1': unknown policy 'fifo'"),
    ("[[pool]\n", "cannot be read"),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=[said for _, said in BAD])
def test_files_that_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(FleetError, match=said) as error:
        play([(0.0, 10, 1)], fleet=str(path))
    assert str(path) in str(error.value)


def test_options_that_do_not_go_with_a_fleet(folder: Path) -> None:
    both: tuple[dict[str, Any], ...] = ({"data_parallel_size": 2}, {"data_parallel_size": 2, "prefill_replicas": 1})
    for options in both:
        with pytest.raises(UsageError, match=r"its pools have (replicas|roles); leave one of them out"):
            Scenario(fleet="fleet.toml", **options)
    with pytest.raises(FleetError, match=r"none\.toml: cannot be read"):
        play([(0.0, 10, 1)], fleet=str(folder / "none.toml"))
    trace = trace_of([(0.0, 10, 1)])
    with pytest.raises(UsageError, match="finds the threshold between two pools"):
        size(trace, real(folder, {"gpu": "h100-sxm"}), parse_objectives("ttft:500", 0.9),
             Choices(gpus=["h100-sxm"], quantizations=[None], prices={}))
    mixed = real(folder, {"gpu": "h100-sxm"}, {"gpu": "h100-sxm", "engine": "sglang"}, interval=0.8)
    with pytest.raises(UsageError, match="different errors"):
        replay(trace, mixed)


def test_a_fleet_from_the_command_line(folder: Path, tmp_path: Path) -> None:
    """The table names the pools, the saved result has them, and the explanation and the report are written."""
    fleet = fleet_of(folder, {"name": "new", "gpu": "h100-sxm", "block_size": 16},
                     {"name": "old", "gpu": "l40s", "block_size": 32})
    run = CliRunner().invoke(app, ["replay", "chat", "--model", "llama-3.1-8b", "--fleet", fleet, "--limit", "50",
                                   "--save", str(tmp_path / "saved"), "--explain"])
    assert run.exit_code == 0, run.output
    assert "Pools" in run.output
    assert "1 × l40s" in run.output
    assert "each pool of the fleet's file has its own" in run.output
    written = CliRunner().invoke(app, ["report", str(tmp_path / "saved"), "--output", str(tmp_path / "report.html")])
    assert written.exit_code == 0, written.output
    assert "old.num_requests" in (tmp_path / "report.html").read_text()


def two_kinds(trace: Trace) -> Any:
    """One second for prompts; decodes of half a second each, one seat a replica."""
    prefill = resolve(scenario_of(step_time="linear:1,0", max_num_seqs=1), trace)
    decode = resolve(scenario_of(step_time="linear:0.5,0", max_num_seqs=1), trace)
    return of_two_kinds(prefill, decode)


def test_the_split_of_two_kinds_is_the_cheapest() -> None:
    """Six prompts at once and two objectives: all splits of up to nine replicas are replayed beside it."""
    trace = trace_of([(0.0, 10, 4)] * 6)
    objectives = parse_objectives("e2el:5000", 1.0)
    divided = two_kinds(trace)
    count, served, _ = fewest_replicas(trace, divided, objectives, divided=apart)
    met: dict[tuple[int, ...], bool] = {}
    for prefill in range(1, 7):
        for decode in range(1, 7):
            pools = tuple(replace(pool, num_replicas=number)
                          for pool, number in zip(divided.pools, (prefill, decode), strict=True))
            result = serve(trace, replace(divided, pools=pools))
            met[prefill, decode] = judge(objectives, result.times_s).is_met
    able = [split for split, is_met in met.items() if is_met]
    assert count == min(map(sum, able))
    for prices in ((10.0, 1.0), (1.0, 10.0), (1.0, 1.0), (2.0, 1.0), (3.0, 0.0)):
        found = cheapest_split(served, objectives, prices)
        split = tuple(pool.num_replicas for pool in found.deployment.pools)
        assert met[split]
        if 0.0 not in prices:
            cost = {each: each[0] * prices[0] + each[1] * prices[1] for each in able}
            assert cost[split] == min(cost.values())


def test_sizing_of_two_kinds() -> None:
    """Costs and GPUs are of both kinds, spares of each; what needs --disaggregate says so."""
    trace = trace_of([(0.2 * k, 2000, 60) for k in range(60)])
    choices = Choices(gpus=["h100-sxm"], quantizations=[None], ranks=(1,), prices={"h100-sxm": 3.0, "a100-sxm": 1.5},
                      disaggregate=True, decode_gpus=["a100-sxm"], decode_ranks=(2,), num_spare=1, jobs=1)
    found = size(trace, Scenario(model="llama-3.1-8b"), parse_objectives("ttft:400 tpot:30", 0.9), choices)
    both = next(fleet for fleet in found.alternatives
                if isinstance(fleet, Fleet) and fleet.kind.decode_gpu is not None)
    assert (both.kind.gpu, both.kind.decode_gpu, both.kind.decode_tensor_parallel_size) == ("h100-sxm", "a100-sxm", 2)
    prefill = both.prefill_replicas
    decode = both.num_replicas - prefill
    assert (both.num_spare, prefill >= 2, decode >= 2) == (1, True, True)  # one replica and one spare of each kind
    assert both.replicas == f"{prefill} + {decode}"
    assert both.num_gpus == prefill + 2 * decode
    assert both.cost_usd_per_hour == prefill * 3.0 + 2 * decode * 1.5
    (offer,) = [offer for offer in found.options if offer.kind == both.kind]
    assert offer.option == f"{prefill} × h100-sxm + {2 * decode} × a100-sxm on demand"
    assert offer.cost_usd_per_hour == both.cost_usd_per_hour
    assert "--tensor-parallel-size 2" in str(both.decode_command)
    assert "h100-sxm + a100-sxm" in str(sizing_table(found))
    assert [text.rpartition("; ")[2] for text in found.assumptions[-2:]] == [
        "fleets with prefill and decode apart have replicas of each kind, and send KV over a link of 50 GB/s "
        "(--kv-transfer-bandwidth)", "spare replicas (--spare 1) are idle and not in the prediction"]
    words = str(sizing_table(replace(found, cheapest=both)))
    assert "launch of prefill replicas: vllm serve meta-llama/Llama-3.1-8B --kv-transfer-config" in words
    assert "launch of decode replicas: vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 2 --kv-tr" in words
    with pytest.raises(UsageError, match="need --disaggregate"):
        size(trace, Scenario(model="llama-3.1-8b"), parse_objectives("ttft:400", 0.9),
             replace(choices, disaggregate=False))
