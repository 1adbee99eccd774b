"""Prefill and decode on different replicas: worked cases, the link, full pools, and what is conserved."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import EVERYTHING, play, scenario_of, trace_of
from hypothesis import given
from hypothesis import strategies as some

from planner.deployment.deploy import resolve
from planner.errors import UsageError
from planner.loop.state.engine_settings import Recording
from planner.planning.fewest import apart, fewest_replicas, together
from planner.policies.builtin_routers import ROUTERS
from planner.replays.fleet.disaggregation import transfer_of
from planner.replays.fleet.replicas import serve
from planner.replays.result_tables import ReplayResult
from planner.run import replay
from planner.settings.objectives import judge, parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import Trace

SECONDS: dict[str, Any] = {"step_time": "linear:1,0", "data_parallel_size": 2, "prefill_replicas": 1}
PHASES = ("frontend_s", "queue_s", "prefill_s", "handover_s", "decode_s", "preempted_s", "recompute_s")


def column(result: ReplayResult, name: str) -> list[Any]:
    return result.requests_table()[name].to_list()


def test_a_transfer_in_flight() -> None:
    """Both prompts are through at 1, and their KV is there at 1.5. The last one's is asked for when a step begins."""
    result = play([(0.0, 10, 4), (0.0, 10, 4), (0.5, 10, 1), (0.6, 10, 3)], **SECONDS, kv_transfer_latency=0.5)
    assert column(result, "prefilled_at_s") == [1.0, 1.0, 2.0, 2.0]
    assert column(result, "first_token_at_s") == [2.5, 2.5, 2.0, 4.5]  # after the first step of the decoder
    assert column(result, "finished_at_s") == [4.5, 4.5, 2.0, 5.5]
    assert column(result, "handover_s") == [0.5, 0.5, 0.0, 1.0]
    assert column(result, "tpot_s") == [pytest.approx(2 / 3), pytest.approx(2 / 3), None, 0.5]
    assert column(result, "replica") == [0, 0, 0, 0]
    assert column(result, "decode_replica") == [1, 1, 0, 1]
    assert column(result, "output_tokens") == [4, 4, 1, 3]
    assert int(result.records.gaps.counts.sum()) == 3 + 3 + 0 + 2


@pytest.mark.parametrize(("engine", "first_s", "gaps_s"), [
    ("vllm", 2.5, [0.0, 1.0, 1.0]), ("sglang", 1.5, [1.0, 1.0, 1.0]), ("trtllm", 1.5, [1.0, 1.0, 1.0])])
def test_the_first_token_is_sampled_anew_or_sent_on(engine: str, first_s: float, gaps_s: list[float]) -> None:
    """The KV is there at 1.5, and the decoder steps until 2.5, 3.5 and 4.5."""
    result = play([(0.0, 10, 4)], **SECONDS, kv_transfer_latency=0.5, engine=engine)
    assert column(result, "first_token_at_s") == [first_s]
    assert column(result, "finished_at_s") == [4.5]
    gaps = result.records.gaps
    assert sorted(np.repeat(gaps.values_s, gaps.counts).tolist()) == gaps_s


@pytest.mark.parametrize(("engine", "gaps_s"), [("sglang", [1.0, 2.0]), ("trtllm", [1.0, 2.0])])
def test_a_token_that_is_sent_on_begins_the_groups_of_a_stream(engine: str, gaps_s: list[float]) -> None:
    """Tokens 1, 3 and 4, at 1.5, 3.5 and 4.5."""
    result = play([(0.0, 10, 4)], **SECONDS, kv_transfer_latency=0.5, engine=engine, stream_interval=2)
    gaps = result.records.gaps
    assert sorted(np.repeat(gaps.values_s, gaps.counts).tolist()) == gaps_s


@pytest.mark.parametrize(("engine", "reads"), [("vllm", 1), ("sglang", 0), ("trtllm", 0)])
def test_the_decoder_reads_a_prompts_text_where_a_proxy_sends_it_on(engine: str, reads: int) -> None:
    """The time of 4,000 tokens more in the decoder's API server, with a link that takes none."""
    apart = model(step_time="roofline", engine=engine, kv_transfer_bandwidth=1e9)
    short, long = (column(replay(trace_of([(0.0, tokens, 2)]), apart).result, "handover_s")[0]
                   for tokens in (1, 4_001))
    terms = resolve(apart, trace_of([(0.0, 1, 2)])).step_time.terms
    assert long - short == pytest.approx(reads * 4_000 * terms.frontend_s_per_token, abs=1e-6)


def test_four_thousand_tokens_of_a_seventy_billion_model_take_25_ms() -> None:
    """1.25 GiB over 50 GiB/s."""
    scenario = model(model="llama-3.1-70b", tensor_parallel_size=4, kv_transfer_bandwidth=50 * 2**30 / 1e9)
    trace = trace_of([(0.0, 4096, 2)])
    assert 4096 * transfer_of(resolve(scenario, trace)).s_per_token == pytest.approx(0.025, rel=1e-12)
    assert column(replay(trace, scenario).result, "handover_s") == pytest.approx([0.025], rel=1e-12)


def model(**options: Any) -> Scenario:
    """A second for 100,000 tokens on the link, and steps of a second."""
    plain: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "step_time": "linear:1,0",
                             "num_gpu_blocks": 100_000, "async_scheduling": False, "data_parallel_size": 2,
                             "prefill_replicas": 1, "kv_transfer_bandwidth": 131072 * 1e5 / 1e9}
    return Scenario(**plain | options)


def test_transfers_share_a_link() -> None:
    """Two of a second each, from one replica to one: the second is there a second later."""
    found = replay(trace_of([(0.0, 100_000, 3), (0.0, 100_000, 3)]), model(max_num_batched_tokens=200_000)).result
    assert column(found, "handover_s") == pytest.approx([1.0, 2.0])
    assert column(found, "finished_at_s") == pytest.approx([4.0, 5.0])


def test_layer_by_layer_what_is_left_is_short() -> None:
    """The prompt's step took as long as its transfer: a layer of 32 is left."""
    found = replay(trace_of([(0.0, 100_000, 3)]), model(max_num_batched_tokens=200_000, kv_transfer="layerwise")).result
    assert column(found, "handover_s") == pytest.approx([1 / 32])


def test_short_prompts_stay_where_they_decode() -> None:
    result = play([(0.0, 10, 3), (0.0, 100, 3)], **SECONDS, local_prefill_below=50, kv_transfer_latency=0.25)
    assert column(result, "replica") == [1, 0]
    assert column(result, "handover_s") == [0.0, 0.25]
    assert column(result, "finished_at_s") == [3.0, 4.0]  # the second's decodes join the first's last step's end


def test_a_full_pool_keeps_the_senders_blocks() -> None:
    """The decoder has room for one: the second's KV waits where it was made, and the third's prompt for that room."""
    rows = [(0.0, 32, 5), (0.0, 32, 2), (2.5, 64, 1)]
    result = play(rows, **SECONDS, num_gpu_blocks=4, block_size=16, enable_prefix_caching=False)
    assert column(result, "prefilled_at_s") == [1.0, 1.0, 6.0]
    assert column(result, "finished_at_s") == [5.0, 6.0, 6.0]
    assert column(result, "handover_s") == [0.0, 4.0, 0.0]
    assert set(column(result, "status")) == {"completed"}


def test_what_the_decoder_can_never_hold_fails_there() -> None:
    """Its prompt fits, with its first token it does not; what it held is returned."""
    result = play([(0.0, 64, 5), (3.0, 32, 2)], **SECONDS, num_gpu_blocks=4, block_size=16)
    assert column(result, "status") == ["rejected", "completed"]
    assert column(result, "finished_at_s")[1] == 5.0


@pytest.mark.parametrize(("options", "said"), [
    ({"prefill_replicas": 2, "data_parallel_size": 2}, "must leave one at least that decodes"),
    ({"prefill_replicas": -1, "data_parallel_size": 2}, "prefill_replicas = -1: must be at least 0"),
    ({"kv_transfer_bandwidth": 0.0}, "must be above 0"),
    ({"kv_transfer_latency": -1.0}, "must be at least 0"),
    ({"local_prefill_below": -1}, "must be at least 0"),
    ({"prefill_worker_ratio": 0.0}, "must be at least 0.5 and at most 4"),
    ({"prefill_worker_ratio": 9.0}, "must be at least 0.5 and at most 4"),
    ({"prefill_worker_token_time": -1.0}, "must be at least 0 and at most 100"),
])
def test_pools_and_links_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        scenario_of(**options)


@some.composite
def loads(draw: Any) -> dict[str, Any]:
    n = draw(some.integers(1, 12))
    arrivals = sorted(draw(some.lists(some.integers(0, 12), min_size=n, max_size=n)))
    rows = [(0.05 * tick, draw(some.integers(1, 40)), draw(some.integers(1, 20))) for tick in arrivals]
    columns = {}
    if draw(some.booleans()):
        columns["cancel_after_s"] = draw(some.lists(some.sampled_from((0.02, 0.3, 9.0)), min_size=n, max_size=n))
    if draw(some.booleans()):
        columns["session_id"] = [str(k % 3) for k in range(n)]
        columns["think_time_s"] = draw(some.lists(some.none() | some.sampled_from((0.0, 0.1)), min_size=n, max_size=n))
    count = draw(some.integers(2, 4))
    options = {"data_parallel_size": count, "prefill_replicas": draw(some.integers(1, count - 1)),
               "router": draw(some.sampled_from(list(ROUTERS))), "block_size": draw(some.sampled_from((1, 4, 16))),
               "kv_transfer_latency": draw(some.sampled_from((0.0, 0.03, 1.0))),
               "local_prefill_below": draw(some.sampled_from((0, 0, 20))),
               "max_concurrency": draw(some.sampled_from((None, None, 2))),
               "max_num_seqs": draw(some.sampled_from((1, 2, 5))), "max_model_len": 60,
               "max_num_batched_tokens": draw(some.sampled_from((5, 16, 64))),
               "async_scheduling": draw(some.booleans()),
               "engine": draw(some.sampled_from(("vllm", "sglang", "trtllm"))),
               "router_report_interval": draw(some.sampled_from((0.0, 0.1))),
               "policy": draw(some.sampled_from(("fcfs", "prefill-first", "decode-first", "vllm-v0", "sglang")))}
    options["num_gpu_blocks"] = draw(some.integers(1, max(2, 200 // options["block_size"])))
    return {"trace": trace_of(rows, **columns), "options": options}


@given(load=loads(), recording=some.sampled_from((EVERYTHING, Recording())))
def test_nothing_is_lost_between_the_pools(load: dict[str, Any], recording: Recording) -> None:
    """Every request ends once, all blocks come back, tokens are computed once, and phases add up to the time."""
    result = play(load["trace"], recording=recording, **load["options"])
    table, prefill = result.requests_table(), load["options"]["prefill_replicas"]
    assert "unfinished" not in set(table["status"])
    assert table["finished_at_s"].null_count() == 0
    done = table.filter(status="completed")
    wanted = load["trace"].requests.filter(table["status"] == "completed")["output_tokens"]
    cut = wanted.clip(upper_bound=60 - done["input_tokens"])
    if load["options"]["policy"] == "sglang":  # which cuts an output at the KV cache too
        assert (done["output_tokens"] <= cut).all()
    else:
        assert (done["output_tokens"] == cut).all()
    away = done.filter((done["output_tokens"] > 1) & (done["input_tokens"] >= load["options"]["local_prefill_below"]))
    assert (away["replica"] < prefill).all()
    assert (away["decode_replica"] >= prefill).all()
    assert (away["handover_s"] >= load["options"]["kv_transfer_latency"] - 1e-9).all()
    assert (away["first_token_at_s"] >= away["prefilled_at_s"] + away["handover_s"] - 1e-9).all()
    assert (away["first_token_at_s"] < away["finished_at_s"]).all()
    assert int(result.records.gaps.counts.sum()) >= int((done["output_tokens"] - 1).sum())
    if (table["status"] == "completed").all() and not table["num_preemptions"].sum():
        gaps_s = (result.records.gaps.values_s * result.records.gaps.counts).sum()
        assert gaps_s == pytest.approx((done["finished_at_s"] - done["first_token_at_s"]).sum())
    if recording.steps:
        total = done.select(PHASES).fill_null(0.0).sum_horizontal()
        assert np.allclose(total.to_numpy(), done["e2e_s"].to_numpy(), atol=1e-9)


def test_an_idle_link_never_makes_decodes_slower() -> None:
    """Without prompts in their steps, tokens after the second come no later than where both share a replica."""
    rng = np.random.default_rng(3)
    rows = [(float(at), int(n), 40) for at, n in zip(np.cumsum(rng.exponential(0.4, 200)), rng.integers(500, 4000, 200),
                                                     strict=True)]
    options = {"step_time": "linear:0.01,0.0002", "data_parallel_size": 2, "max_num_batched_tokens": 2048}
    apart, together = (play(rows, recording=Recording(), **options, prefill_replicas=prefill) for prefill in (1, 0))
    assert np.quantile(apart.records.gaps.values_s, 0.9) <= np.quantile(together.records.gaps.values_s, 0.9)
    assert apart.tpot_s.mean() < together.tpot_s.mean()


SHAPES = {"long": (6000, 64), "short": (128, 256)}  # prompt and output tokens


def load_of(shape: str, rate_per_s: float, count: int = 400) -> Trace:
    """Return Poisson arrivals of prompts and outputs of one size."""
    arrivals = np.cumsum(np.random.default_rng(5).exponential(1 / rate_per_s, count))
    return trace_of([(float(at), *SHAPES[shape]) for at in arrivals])


@pytest.mark.parametrize(("shape", "rate_per_s", "wins"), [("long", 3.0, "apart"), ("short", 30.0, "together")])
def test_long_prompts_are_better_apart_under_a_tight_tpot(shape: str, rate_per_s: float, wins: str) -> None:
    """As DistServe and Splitwise report: apart, no prompt is in a decode's step; together, no replica is idle."""
    scenario = scenario_of(step_time="linear:0.012,0.00006", num_gpu_blocks=30_000, max_num_seqs=128,
                           max_num_batched_tokens=2048, router="least-outstanding-requests")
    objectives = parse_objectives("ttft:4000 tpot:16", 0.95)
    trace = load_of(shape, rate_per_s)
    deployment = resolve(scenario, trace)
    needed = {divided.__name__: fewest_replicas(trace, deployment, objectives, divided=divided)
              for divided in (together, apart)}
    assert min(needed, key=lambda name: needed[name][0]) == wins, {name: found[0] for name, found in needed.items()}
    split = needed["apart"][1].deployment.scenario
    assert 0 < split.prefill_replicas < split.data_parallel_size == needed["apart"][0]


def test_a_slow_link_takes_the_gain_away() -> None:
    """Five seconds for each prompt's KV: nobody has an answer in three."""
    scenario = scenario_of(step_time="linear:0.012,0.00006", num_gpu_blocks=30_000, data_parallel_size=6,
                           prefill_replicas=4, router="least-outstanding-requests", kv_transfer_latency=5.0)
    slow = replay(load_of("long", 3.0), scenario, slo="e2el:3000").summary
    fast = replay(load_of("long", 3.0), replace(scenario, kv_transfer_latency=0.01), slo="e2el:3000").summary
    assert slow["request_goodput"] < 0.5 * fast["request_goodput"]


def test_no_split_of_fewer_replicas_keeps_the_objectives() -> None:
    """Every split of every smaller number, and the one that was found."""
    scenario = scenario_of(step_time="linear:0.012,0.00006", num_gpu_blocks=30_000, max_num_seqs=128)
    objectives, trace = parse_objectives("ttft:4000 tpot:16", 0.95), load_of("long", 3.0)
    count, served, _ = fewest_replicas(trace, resolve(scenario, trace), objectives, divided=apart)
    assert judge(objectives, served.times_s).is_met
    assert count > 2
    for fewer in range(2, count):
        for prefill in range(1, fewer):
            split = replace(scenario, data_parallel_size=fewer, prefill_replicas=prefill)
            assert not judge(objectives, serve(trace, resolve(split, trace)).times_s).is_met
