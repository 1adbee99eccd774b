"""Speculative decoding: what is emitted, checked and kept, and what drafting takes in time and memory."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import assert_same_requests, batches, play, scenario_of, trace_of
from hypothesis import given
from hypothesis import strategies as some
from steps import seconds, stack_of, step, terms_of, with_constants

from planner.catalog.catalog_files import load_gpu, load_model
from planner.deployment.deploy import deploy
from planner.deployment.draft_cache import draft_kv_bytes_per_token
from planner.deployment.memory import draft_weight_bytes, weight_bytes
from planner.errors import PlannerError, UsageError
from planner.model.drafting import Draft, draft_of
from planner.model.layout import Layout
from planner.results.notes import notes
from planner.run import replay
from planner.settings.acceptance import acceptance_of_lengths, cumulative_acceptance
from planner.settings.scenario import Scenario, parse_scenario
from planner.steptime.roofline import roofline
from planner.steptime.small_time import sampling_s

LLAMA = load_model("llama-3.1-8b")
LAYER_PARAMETERS = 41_943_040 + 176_160_768  # of Llama-3.1-8B's attention and MLP


def drafting(method: str, tokens: int = 3, model: str = "llama-3.1-8b", **options: Any) -> Draft:
    scenario = Scenario(model=model, num_speculative_tokens=tokens, speculative_method=method,  # type: ignore[arg-type]
                        **options)
    found = draft_of(scenario, load_model(model))
    assert found is not None
    return found


@pytest.mark.parametrize(("given", "tokens", "expected"), [
    ("0.7", 0, ()), ("0.5", 3, (0.5, 0.25, 0.125)), ("1", 2, (1.0, 1.0)), ("0", 2, (0.0, 0.0)),
    ("0.8,0.6,0.4", 3, (0.8, 0.6, 0.4)), ("0.8, 0.6, 0.4", 1, (0.8,)), ("0.5,0.5", 2, (0.5, 0.5)),
])
def test_one_number_is_conditional_and_several_are_cumulative(given: str, tokens: int,
                                                              expected: tuple[float, ...]) -> None:
    assert cumulative_acceptance(given, tokens) == expected


@pytest.mark.parametrize(("options", "said"), [
    ({"speculative_acceptance": "1.2"}, "1.2 is outside [0, 1]; give a share of the drafts (0.7 for 70 %), or a mean"),
    ({"speculative_acceptance": "3.5"}, "SGLang's accept len, as length:3.5"),
    ({"speculative_acceptance": "80,60,40"}, "80 is outside [0, 1]"),
    ({"speculative_acceptance": "-0.1"}, "outside [0, 1]"),
    ({"speculative_acceptance": "nan"}, "outside [0, 1]"),
    ({"speculative_acceptance": "0.6,0.8"}, "0.8 at position 2 is above 0.6"),
    ({"speculative_acceptance": "0.8,,0.4"}, "'' is no number"),
    ({"speculative_acceptance": "high"}, "'high' is no number"),
    ({"speculative_acceptance": "0.8,0.6", "num_speculative_tokens": 3}, "has 2 positions"),
    ({"num_speculative_tokens": -1}, "must be at least 0"),
])
def test_options_out_of_range_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Scenario(**options)
    assert said in str(caught.value)


@pytest.mark.parametrize(("options", "said"), [
    ({"speculative_method": "draft_model"}, "needs --speculative-model"),
    ({"speculative_method": "ngram", "speculative_model": "llama-3.2-1b"}, "ngram drafts without a model"),
    ({"speculative_method": "mtp", "speculative_model": "llama-3.2-1b"}, "mtp drafts without a model"),
    ({"speculative_model": "qwen3-8b"}, "a draft model needs its target's vocabulary"),
    ({"speculative_model": "llama-3.2-1"}, "llama-3.2-1b"),
])
def test_what_cannot_draft_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(PlannerError) as caught:
        draft_of(Scenario(model="llama-3.1-8b", num_speculative_tokens=2, **options), LLAMA)
    assert said in str(caught.value)


@pytest.mark.parametrize(("value", "expected"), [(0.6, "0.6"), (1, "1"), ([0.8, 0.5], "0.8,0.5"),
                                                  ("0.8,0.5", "0.8,0.5")])
def test_files_may_give_numbers(value: Any, expected: str) -> None:
    assert parse_scenario({"speculative_acceptance": value}).speculative_acceptance == expected


def test_files_may_give_ranges() -> None:
    given = {"num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 99, 0]], "num_speculative_tokens": 3}
    assert parse_scenario(given).num_speculative_tokens_per_batch_size == "[[1,8,3],[9,99,0]]"


def test_the_method_follows_from_the_model() -> None:
    assert draft_of(Scenario(num_speculative_tokens=0), LLAMA) is None
    found = draft_of(Scenario(num_speculative_tokens=1, speculative_model="llama-3.2-1b"), LLAMA)
    assert found is not None
    assert found.method == "draft_model"
    assert drafting("deepseek_mtp", model="deepseek-v3").method == "mtp"


def test_all_accepted_tokens_come_at_once() -> None:
    """A prompt of 4 and 12 tokens after the first: three steps of 10 + 4 · 0.1 ms, in each of which four come."""
    result = play([(0.0, 4, 13)], num_speculative_tokens=3, speculative_acceptance="1")
    assert batches(result) == [{"0": 4}] * 4
    row = result.requests_table().row(0, named=True)
    assert row["finished_at_s"] == pytest.approx(4 * 0.0104)
    assert row["tpot_s"] == pytest.approx(3 * 0.0104 / 12)
    assert (result.records.gaps.values_s.tolist(), result.records.gaps.counts.tolist()) == (
        [pytest.approx(0.0104)], [3])
    steps = result.steps_table()
    assert steps["num_sampled"].to_list() == [1, 4, 4, 4]
    assert steps["num_accepted_tokens"].to_list() == [0, 3, 3, 3]


def test_nothing_is_emitted_beyond_the_output() -> None:
    """After the first token three are left: one step has room for four and emits three."""
    steps = play([(0.0, 4, 4)], num_speculative_tokens=3, speculative_acceptance="1").steps_table()
    assert steps["num_sampled"].to_list() == [1, 3]


def test_a_refused_draft_costs_its_check() -> None:
    """Nothing is accepted: one token a step, of 10.4 ms where it would take 10.1."""
    result = play([(0.0, 4, 13)], num_speculative_tokens=3, speculative_acceptance="0", max_model_len=100)
    row = result.requests_table().row(0, named=True)
    assert row["tpot_s"] == pytest.approx(0.0104)


@pytest.mark.parametrize(("method", "first", "last"), [("ngram", 2, 5), ("medusa", 2, 5), ("mtp", 3, 6),
                                                       ("draft_model", 3, 6)])
def test_lookahead_slots_are_held(method: str, first: int, last: int) -> None:
    """At the first decode 4 tokens are computed and 4 checked, at the last 15; a draft with KV has room for 3 more.

    It has this room behind a prompt too.
    """
    options: dict[str, Any] = {"speculative_model": "llama-3.2-1b"} if method == "draft_model" else {}
    result = play([(0.0, 4, 13)], num_speculative_tokens=3, speculative_acceptance="0", block_size=4,
                  speculative_method=method, max_model_len=100, **options)
    used = result.steps_table()["num_used_blocks"].to_list()
    assert used[:2] == [2 if last == 6 else 1, first]
    assert used[-1] == max(used) == last


def test_drafts_take_part_in_the_budget() -> None:
    """Six tokens a step: the first decode has all four, the second its own and one that is drafted."""
    result = play([(0.0, 2, 9)] * 2, num_speculative_tokens=3, speculative_acceptance="1", max_num_batched_tokens=6)
    assert batches(result)[1] == {"0": 4, "1": 2}
    assert result.steps_table()["num_sampled"].to_list()[1] == 4 + 2


def test_a_stage_passes_all_checked_tokens_on() -> None:
    """Two stages, one request: a step in flight at a time, of four tokens each."""
    result = play([(0.0, 4, 13)], num_speculative_tokens=3, speculative_acceptance="1", pipeline_parallel_size=2)
    assert batches(result) == [{"0": 4}] * 4
    assert result.requests_table()["finished_at_s"].to_list() == [pytest.approx(4 * 0.0104)]


def test_groups_of_a_stream_are_filled_by_several_tokens() -> None:
    """Four tokens a step, groups of five: the client sees the 1st token, and more with the 9th and with the last."""
    result = play([(0.0, 4, 13)], num_speculative_tokens=3, speculative_acceptance="1", stream_interval=5)
    gaps = result.records.gaps
    assert sorted(np.repeat(gaps.values_s, gaps.counts).tolist()) == [pytest.approx(0.0104), pytest.approx(0.0208)]


def test_groups_of_tensorrt_llm_are_filled_by_steps() -> None:
    """Four tokens a step, groups of two steps: the client sees the 1st token, and more with the 9th and the last."""
    result = play([(0.0, 4, 14)], engine="trtllm", num_speculative_tokens=3, speculative_acceptance="1",
                  stream_interval=2)
    gaps = result.records.gaps
    step_s = result.steps_table()["duration_s"].to_list()
    assert len(step_s) == 5
    assert sorted(np.repeat(gaps.values_s, gaps.counts).tolist()) == pytest.approx(
        sorted([step_s[1] + step_s[2], step_s[3] + step_s[4]]))


@given(rates=some.lists(some.floats(0, 1), min_size=1, max_size=4).map(lambda found: sorted(found, reverse=True)))
def test_the_mean_acceptance_length_is_what_was_asked_for(rates: list[float]) -> None:
    """Of n steps with a chance c the count has a deviation of √(c (1 − c) / n), here of at most 0.008 a position."""
    if len(rates) == 1:
        rates *= 2
    given = ",".join(map(str, rates))
    options: dict[str, Any] = {"num_speculative_tokens": len(rates), "speculative_acceptance": given,
                               "step_time": "linear:0.01,0"}
    trace = trace_of([(0.0, 1, 1000)] * 20)
    found = replay(trace, scenario_of(**options)).summary["mean_acceptance_length"]
    assert found == pytest.approx(1 + sum(rates), abs=5 * 0.008 * len(rates))


def test_draws_follow_the_seed_and_the_request_alone() -> None:
    options: dict[str, Any] = {"num_speculative_tokens": 3, "speculative_acceptance": "0.6",
                               "step_time": "linear:0.01,0"}
    alone, again, other = (play([(0.0, 4, 400)], **options | seed) for seed in ({}, {"seed": 0}, {"seed": 1}))
    beside = play([(0.0, 4, 400), (0.0, 9, 50)], **options)
    finished_s = [float(result.records.requests.finished_s[0]) for result in (alone, again, other, beside)]
    assert finished_s[0] == finished_s[1] == finished_s[3] != finished_s[2]


def test_a_layer_of_the_target_drafts() -> None:
    """With one token drafted MTP runs one of 32 equal layers over all 16 tokens, a product that joins, and a head."""
    plain = stack_of()
    drafted = terms_of(replace(plain, draft=drafting("mtp", 1)), step(0, 8, 1000))
    checked = terms_of(plain, step(0, 16, 0))
    rest_s = drafted["draft_s"] - (checked["linear_s"] + checked["activations_s"]) / 32
    one_head_s = terms_of(plain, step(0, 8, 0))["lm_head_s"] - sampling_s(plain)[8]
    joining_s = rest_s - one_head_s - attention_floor_s() / 32
    read_s = 2 * 2 * 4096 * 4096 / plain.gpu.hbm_bandwidth_bytes_per_s
    assert read_s < joining_s < 4 * read_s
    attention_s = terms_of(plain, step(0, 8, 1000))["attention_decode_s"]
    context_s = attention_s - attention_floor_s()
    assert drafted["attention_decode_s"] == pytest.approx(attention_s + context_s / 32)


def attention_floor_s() -> float:
    return terms_of(stack_of(), step(0, 8, 0))["attention_decode_s"]


def test_more_drafts_take_longer_and_ngram_nothing() -> None:
    row = step(0, 8, 1000)
    own = {"speculative_model": "llama-3.2-1b"}
    taken = [terms_of(replace(stack_of(), draft=draft), row)["draft_s"] for draft in (
        drafting("ngram"), drafting("medusa"), drafting("eagle", 1), drafting("eagle", 3),
        drafting("draft_model", 3, **own), drafting("draft_model", 5, **own))]
    assert taken[0] == 0
    assert taken[1] > 0
    assert 0 < taken[2] < taken[3] < taken[4] < taken[5]
    assert terms_of(replace(stack_of(), draft=drafting("eagle3")), row)["draft_s"] < taken[3] + 1e-4
    prompts = [terms_of(replace(stack_of(), draft=drafting(method)), step(4096)) for method in ("ngram", "eagle")]
    assert prompts[0]["draft_s"] == 0 < prompts[1]["draft_s"]


def test_a_draft_model_is_decoded_k_times() -> None:
    """One step of the drafts' model for all 8 decodes: its layers run 4 · 8 tokens once and 8 tokens twice."""
    model = stack_of("llama-3.2-1b")
    drafted = terms_of(replace(stack_of(), draft=drafting("draft_model", 3, speculative_model="llama-3.2-1b")),
                       step(0, 8, 1000))["draft_s"]
    first, later, floor = (terms_of(model, step(0, decodes, 0)) for decodes in (32, 8, 8))
    layers = ("linear_s", "activations_s")
    expected = sum(first[name] + 2 * later[name] for name in layers) + 3 * (
        floor["attention_decode_s"] + later["lm_head_s"] - sampling_s(model)[8])
    assert drafted == pytest.approx(expected)


@pytest.mark.parametrize(("method", "expected", "kv_bytes"), [
    ("ngram", 0, 0),
    ("medusa", 3 * 2 * (4096**2 + 128_256 * 4096), 0),
    ("mtp", 2 * LAYER_PARAMETERS + 2 * 2 * 4096**2, 4096),
    ("eagle", 2 * LAYER_PARAMETERS + 2 * 2 * 4096**2, 4096),
    ("eagle3", 2 * LAYER_PARAMETERS + 2 * 3 * 4096**2 + 2 * 32_000 * 4096, 4096),
])
def test_weights_and_kv_of_drafts(method: str, expected: float, kv_bytes: float) -> None:
    """KV: one layer's 2 · 8 heads · 128 · 2 B."""
    draft = drafting(method)
    assert draft_weight_bytes(draft, Layout()) == expected
    assert draft_kv_bytes_per_token(draft, 2.0, 1) == kv_bytes


def test_a_draft_model_is_in_memory_beside_its_target() -> None:
    draft = drafting("draft_model", speculative_model="llama-3.2-1b")
    small = load_model("llama-3.2-1b")
    assert draft_weight_bytes(draft, Layout()) == weight_bytes(small, None, Layout())
    assert draft_kv_bytes_per_token(draft, 2.0, 1) == 16 * 2 * 8 * 64 * 2
    common = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}
    plans = [deploy(Scenario(**common, **options)).memory for options in (  # type: ignore[arg-type]
        {}, {"num_speculative_tokens": 3, "speculative_method": "ngram"},
        {"num_speculative_tokens": 3, "speculative_model": "llama-3.2-1b"})]
    assert plans[0] is not None
    assert plans[1] is not None
    assert plans[2] is not None
    assert plans[1] == plans[0]
    assert plans[2].kv_bytes == plans[0].kv_bytes - weight_bytes(small, None, Layout())
    assert plans[2].kv_bytes_per_token == plans[0].kv_bytes_per_token + 16 * 2 * 8 * 64 * 2


def test_the_mtp_layer_of_a_mixture_has_its_experts() -> None:
    """DeepSeek-V3: 256 experts of 3 · 7168 · 2048 in 8 bit are most of it."""
    draft = drafting("mtp", model="deepseek-v3")
    assert draft.arch is not None
    assert (draft.arch.num_layers, draft.arch.num_moe_layers) == (1, 1)
    experts = 256 * 3 * 7168 * 2048
    assert experts < draft_weight_bytes(draft, Layout()) < 1.1 * experts
    dense = drafting("eagle", model="deepseek-v3").arch
    assert dense is not None
    assert dense.num_moe_layers == 0


@pytest.mark.parametrize("model", ["gpt-oss-120b", "glm-5", "qwen3.5-397b-a17b", "gemma-2-9b", "llama-4-scout"])
@pytest.mark.parametrize("method", ["mtp", "eagle", "eagle3", "medusa"])
def test_every_kind_of_target_can_draft(model: str, method: str) -> None:
    stack = stack_of(model, "b200-sxm", "sglang", Layout(tensor_parallel_size=8))
    drafted = replace(stack, draft=drafting(method, 2, model))
    for row in (step(0, 16, 2000), step(1024, 16, 2000), step(1024)):
        plain, found = terms_of(stack, row), terms_of(drafted, row)
        assert all(np.isfinite(value) and value >= 0 for value in found.values())
        assert found["draft_s"] > 0 or (method == "medusa" and not row.num_decodes[0])
        assert sum(found.values()) > sum(plain.values()) or not row.num_decodes[0]


def test_graphs_are_counted_in_tokens_by_vllm_alone() -> None:
    common: Any = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "num_speculative_tokens": 3,
                   "max_cudagraph_capture_size": 64}
    assert deploy(Scenario(**common)).step_time.terms.graph_seqs == 16
    assert deploy(Scenario(**common, engine="sglang")).step_time.terms.graph_seqs == 64


def test_without_a_draft_no_bit_changes() -> None:
    assert roofline(stack_of()).curve.tobytes() == roofline(replace(stack_of(), draft=None)).curve.tobytes()
    unused: Any = {"num_speculative_tokens": 0, "speculative_method": "eagle", "speculative_acceptance": "0.9"}
    rows = [(0.1 * k, 100 + k, 20) for k in range(20)]
    plain, given = play(rows), play(rows, **unused)
    assert_same_requests(plain.records.requests, given.records.requests)
    assert plain.records.engine.tobytes() == given.records.engine.tobytes()
    assert replay(trace_of(rows), scenario_of()).summary["mean_acceptance_length"] is None


def test_a_reader_is_told_what_drafts() -> None:
    trace = trace_of([(0.0, 10, 10)])
    line = scenario_of(num_speculative_tokens=2, speculative_acceptance="0.8,0.5")
    said = notes(replay(trace, line).result.deployment, trace)
    assert ("speculative decoding: mtp drafts 2 tokens a step, and 1.30 are accepted on average; a linear step time "
            "does not include the draft's cost") in said


def test_states_after_each_token_are_kept_by_vllm() -> None:
    """Linear attention goes on from the last accepted token: vLLM keeps 1 + k states a sequence."""
    common: Any = {"model": "qwen3.5-35b-a3b", "gpu": "h200", "max_num_seqs": 32}
    plain, drafted = (deploy(Scenario(**common, num_speculative_tokens=tokens)).memory for tokens in (0, 2))
    assert plain is not None
    assert drafted is not None
    assert drafted.state_bytes == 3 * plain.state_bytes
    assert load_gpu("h200").hbm_capacity_bytes == drafted.capacity_bytes


@pytest.mark.parametrize("drafted", [0, 1, 3])
@pytest.mark.parametrize(("prompt", "decodes"), [(0, 1), (0, 64), (500, 32)])
def test_the_host_looks_at_every_token_that_was_checked(drafted: int, prompt: int, decodes: int) -> None:
    """By hand: 1 ms a step, 10 µs of the host and 5 µs beside it for each prompt and each of 1 + k tokens a decode."""
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", num_speculative_tokens=drafted,
                        speculative_method="ngram")
    stack = replace(with_constants(stack_of(), host_s=1e-3, host_s_per_seq=1e-5, overhead_s=1e-6,
                                   overhead_s_per_seq=5e-6),
                    is_overlapped=False, draft=draft_of(scenario, LLAMA), graph_tokens=8192)
    looked_at = int(prompt > 0) + decodes * (1 + drafted)
    assert terms_of(stack, step(prompt, decodes, 100))["overhead_s"] == pytest.approx(1.001e-3 + looked_at * 15e-6)
    bound = with_constants(replace(stack, is_overlapped=True), host_s=2e-2, host_s_per_seq=1e-3)
    assert seconds(bound, step(prompt, decodes, 100)) == pytest.approx(2e-2 + 1e-6 + looked_at * (1e-3 + 5e-6))


def test_a_length_without_drafts_has_no_effect() -> None:
    assert Scenario(speculative_acceptance="length:2.9").num_speculative_tokens == 0
    with pytest.raises(UsageError, match=r"length:5: with --num-speculative-tokens 3 a decode emits 1 to 4 tokens"):
        Scenario(speculative_acceptance="length:5", num_speculative_tokens=3)


@pytest.mark.parametrize("length", [1.0, 1.4, 2.9, 4.0])
def test_a_mean_length_gives_chances_with_that_mean(length: float) -> None:
    chances = cumulative_acceptance(f"length:{length}", 3)
    assert 1 + sum(chances) == pytest.approx(length)
    assert chances[1] == pytest.approx(chances[0] ** 2)


@given(lengths=some.lists(some.floats(1.01, 9), min_size=2, max_size=8), tokens=some.integers(1, 12))
def test_measured_lengths_give_chances_that_never_rise(lengths: list[float], tokens: int) -> None:
    """Their sum is the measured length at k, where k was measured and the length can be: no more than 1 + k."""
    lengths = [min(length, 2.0 + k) for k, length in enumerate(lengths)]
    chances = acceptance_of_lengths(lengths, tokens)
    assert len(chances) == tokens
    assert all(0 <= after <= before + 1e-12 for before, after in itertools.pairwise((1.0, *chances)))
    if tokens <= len(lengths):
        assert 1 + sum(chances) == pytest.approx(lengths[tokens - 1])


@pytest.mark.parametrize(("options", "length", "source"), [
    ({}, 2.99, "measured on SPEED-Bench coding, thinking"),
    ({"speculative_acceptance": "thinking"}, 2.99, "measured on SPEED-Bench coding, thinking"),
    ({"speculative_method": "eagle3"}, 1 + 0.7 + 0.49 + 0.343, "0.7 a token is assumed"),
    ({"speculative_acceptance": "0.5"}, 1.875, ""),
])
def test_acceptance_is_measured_where_somebody_measured_it(options: dict[str, Any], length: float, source: str) -> None:
    draft = draft_of(Scenario(model="glm-5.2", num_speculative_tokens=3, **options), load_model("glm-5.2"))
    assert draft is not None
    assert draft.mean_acceptance_length == pytest.approx(length)
    assert draft.acceptance_source.startswith(source)
    assert bool(draft.acceptance_source) == bool(source)


def test_measured_acceptance_that_nobody_has_is_refused() -> None:
    with pytest.raises(UsageError, match=r"nobody measured glm-5.2 with mtp; known are deepseek-v4-pro with mtp, kimi"):
        drafting("mtp", model="glm-5.2", speculative_acceptance="no-thinking")


@pytest.mark.parametrize(("table", "said"), [
    ("3", "has no ranges"), ("[]", "has no ranges"), ("[[1,2", "is no JSON"), ("[[1,2]]", r"\[1, 2\] is no range"),
    ("[[2,4,1]]", "begins at 2"), ("[[1,4,1],[4,8,0]]", r"the range \[4, 8\] after 4 overlaps"),
    ("[[1,4,3]]", "drafts 3 tokens; must be from 0 to"), ("[[1,4,true]]", "is no range of whole numbers"),
])
def test_draft_lengths_that_vllm_refuses_are_refused(table: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Scenario(num_speculative_tokens=2, num_speculative_tokens_per_batch_size=table)


def test_the_batch_before_sets_the_length_of_drafts() -> None:
    """Requests that ask for 9 tokens come at 0, 0 and 0.5 steps. A step of n requests drafts for the next step."""
    result = play([(0.0, 2, 9), (0.0, 2, 9), (0.0101, 2, 9)], num_speculative_tokens=3, speculative_acceptance="0",
                  num_speculative_tokens_per_batch_size="[[1,1,3],[2,2,1],[3,8,0]]")
    found = batches(result)
    assert found[:4] == [{"0": 2, "1": 2}, {"0": 2, "1": 2, "2": 2}, {"0": 1, "1": 1, "2": 1}, {"0": 1, "1": 1, "2": 1}]
    steps = result.steps_table()
    assert steps["num_drafted_tokens"].to_list()[:4] == [0, 2, 0, 0]
    alone = [batch for batch in found if len(batch) == 1]
    assert len(alone) == 1  # two leave together, so the last token of the third was drafted for a batch of three
    assert list(alone[0].values()) == [1]


def test_a_table_of_one_length_changes_nothing() -> None:
    rows = [(0.01 * k, 5 + 7 * k, 20 + k) for k in range(12)]
    options: dict[str, Any] = {"num_speculative_tokens": 3, "speculative_acceptance": "0.7",
                               "max_num_batched_tokens": 64}
    table: dict[str, Any] = {"num_speculative_tokens_per_batch_size": "[[1,4,3],[9,9,3]]"}
    assert_same_requests(*(play(rows, **options, **more).records.requests for more in ({}, table)))


def test_shorter_drafts_take_less_time() -> None:
    """Over 64 decodes: no drafts beside the first pass, which is there with any length."""
    tables = ("[[1,8,3],[9,99,0]]", "[[1,8,3],[9,99,1]]", "[[1,99,3]]")
    none, one, three = (replace(stack_of(), draft=drafting("eagle", num_speculative_tokens_per_batch_size=table))
                        for table in tables)
    few, many = step(0, 8, 1000), step(0, 64, 1000)
    assert terms_of(none, few)["draft_s"] == terms_of(three, few)["draft_s"]
    assert terms_of(none, many)["draft_s"] == terms_of(one, many)["draft_s"] < terms_of(three, many)["draft_s"] / 2


def test_ranks_that_step_together_have_one_length_of_drafts() -> None:
    scenario = Scenario(model="deepseek-v3", gpu="h200-sxm", data_parallel_size=8, data_parallel_attention=True,
                        expert_parallel=True, num_speculative_tokens=2,
                        num_speculative_tokens_per_batch_size="[[1,8,1]]")
    with pytest.raises(UsageError, match="8 ranks of data-parallel attention take each step together"):
        deploy(scenario)


def test_a_block_is_drafted_in_one_pass() -> None:
    """DFlash's five layers run once over 1 + k tokens of each decode, EAGLE's one layer k times: with seven, alike."""
    row = step(0, 8, 1000)
    few, many = (terms_of(replace(stack_of(), draft=drafting("dflash", tokens)), row)["draft_s"] for tokens in (3, 7))
    assert few < many < 1.2 * few
    eagle = [terms_of(replace(stack_of(), draft=drafting("eagle", tokens)), row)["draft_s"] for tokens in (3, 7)]
    assert eagle[1] > 2 * eagle[0]
    corrected = terms_of(replace(stack_of(), draft=drafting("dspark", 7)), row)["draft_s"]
    assert many < corrected < 2 * many


def test_heads_of_blocks_have_weights_and_kv() -> None:
    """Five layers, a join of five hidden states, and DSpark's 128,256 tokens times a rank of 256, twice."""
    layers, join = 2 * 5 * LAYER_PARAMETERS, 2 * 5 * 4096**2
    assert draft_weight_bytes(drafting("dflash"), Layout()) == layers + join
    assert draft_weight_bytes(drafting("dspark"), Layout()) == layers + join + 2 * 2 * 128_256 * 256
    assert draft_kv_bytes_per_token(drafting("dflash"), 2.0, 1) == 5 * 4096
    assert [drafting(method).num_lookahead_tokens for method in ("dflash", "dspark", "suffix")] == [4, 3, 0]


def test_dspark_of_deepseek_v4_has_layers_with_experts() -> None:
    arch = drafting("dspark", model="deepseek-v4-pro").arch
    assert arch is not None
    assert arch.num_moe_layers == arch.num_layers == 3
