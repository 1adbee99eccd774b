"""Laws that hold for every policy under every setting, on random small cases."""

import dataclasses
import itertools
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from cases import Case, cases
from helpers import EVERYTHING, assert_same_requests, batches
from hypothesis import given, settings
from hypothesis import strategies as some

from planner.loop.state.engine_settings import Recording
from planner.policies.builtin_policies import POLICIES, plan_in_order
from planner.replays.result_tables import ReplayResult
from planner.settings.scenario import names_in

every_policy = pytest.mark.parametrize("policy", POLICIES)


DRAWN_ELSEWHERE = {
    "policy",  # a parameter of every law
    "max_queued_requests",  # in the laws of overload
    "performance_mode", "usage_context",  # set defaults of options that are drawn
}


@settings(max_examples=1)
@given(case=cases(with_more=True))
def test_the_laws_draw_every_scheduling_option(case: Case) -> None:
    assert set(names_in("Scheduling")) == DRAWN_ELSEWHERE | (set(names_in("Scheduling")) & case.options.keys())


@every_policy
@given(case=cases(with_more=True))
def test_conservation(policy: str, case: Case) -> None:
    """Requests, tokens and memory are conserved, limits are kept, and time goes forward."""
    result = case.play(policy, EVERYTHING)
    check_requests(result)
    check_tokens(case, policy, result)
    check_limits(case, policy, result)
    check_memory(case, result)
    check_time(case, result)
    check_batches(case, policy, result)
    check_emissions(case, result)
    check_closed_loop(case, result)
    check_phases(case, result)
    check_stops(case, policy, result.steps_table())


def check_requests(result: ReplayResult) -> None:
    """Every request ends in exactly one way, and the engine has counted it."""
    table = result.requests_table()
    assert set(table["status"]) <= {"completed", "rejected", "failed", "cancelled"}
    assert result.records.engine.num_done == table.height
    assert table["finished_at_s"].null_count() == 0
    done = table.filter(status="completed")
    assert done["ttft_s"].null_count() == 0
    assert table.filter(status="rejected")["ttft_s"].null_count() == (table["status"] == "rejected").sum()


def check_tokens(case: Case, policy: str, result: ReplayResult) -> None:
    """Computed tokens = prompt + output − 1 − cached + recomputed. A later hit may spare tokens.

    TensorRT-LLM never computes a token that was in flight when its request was paused.
    """
    computed: Counter[str] = Counter()
    for batch in batches(result):
        computed.update(batch)
    after = rows_after_the_end(result)
    check_rows_after_the_end(case, policy, result, after)
    computed.subtract(after)
    for row in result.requests_table().filter(status="completed").iter_rows(named=True):
        expected = row["input_tokens"] + row["output_tokens"] - 1 - row["num_cached_tokens"]
        expected += row["num_recomputed_tokens"]
        if case.options["enable_prefix_caching"] and row["num_preemptions"] > 0:
            assert computed[row["request_id"]] <= expected
        elif case.options["async_scheduling"] and POLICIES[policy].passes_over:  # the token in flight at a pause
            assert expected - row["num_preemptions"] <= computed[row["request_id"]] <= expected
        else:
            assert computed[row["request_id"]] == expected
        wanted = case.rows[int(row["request_id"])][2]
        assert row["output_tokens"] == min(wanted, *limits_of_output(case, policy, int(row["request_id"])))


def rows_after_the_end(result: ReplayResult) -> Counter[str]:
    """Return the tokens of each request in steps that begin after its end."""
    ends = {row["request_id"]: row["finished_at_s"] for row in result.requests_table().iter_rows(named=True)}
    after: Counter[str] = Counter()
    for start_s, batch in zip(result.steps_table()["start_s"].to_list(), batches(result), strict=True):
        after.update({name: tokens for name, tokens in batch.items() if start_s >= ends[name]})
    return after


def num_rows_after_the_end(result: ReplayResult) -> int:
    """Return how often a completed request is in a step that begins after its end."""
    done = result.requests_table().filter(status="completed")
    ends = dict(done.select("request_id", "finished_at_s").iter_rows())
    starts = result.steps_table()["start_s"].to_list()
    rows = result.schedule_table().iter_rows()
    return sum(name in ends and starts[step] >= ends[name] for step, name, _ in rows)


def check_rows_after_the_end(case: Case, policy: str, result: ReplayResult, after: Counter[str]) -> None:
    """Under overlap a request has one row after an end by end-of-sequence at most, and none after one by length."""
    overlaps = case.options["async_scheduling"] and case.options["pipeline_parallel_size"] == 1
    for row in result.requests_table().filter(status="completed").iter_rows(named=True):
        is_by_length = row["output_tokens"] >= min(limits_of_output(case, policy, int(row["request_id"])))
        assert after[row["request_id"]] <= (1 if overlaps and not is_by_length else 0)


def limits_of_output(case: Case, policy: str, i: int) -> list[int]:
    """Return the client's limit, and what the model's context leaves to the prompt; under SGLang, or its KV cache."""
    limit, length = case.columns.get("max_output_tokens"), case.rows[i][1]
    limits = [case.options["max_model_len"] - length, *([limit[i]] if limit else [])]
    if POLICIES[policy].promises == "share":
        page = case.options["block_size"]
        pool = case.options["num_gpu_blocks"] * page
        limits += [min(case.options["max_model_len"], pool) - 2 - length, pool - -(-length // page) * page - page - 1]
        return [max(min(limits), 1)]
    return limits


def check_limits(case: Case, policy: str, result: ReplayResult) -> None:
    """No step has more tokens than the budget, and no more requests run than may."""
    steps = result.steps_table()
    tokens = steps["num_prompt_tokens"] + steps["num_decodes"]
    assert tokens.to_list() == [sum(batch.values()) for batch in batches(result)]
    budget, seqs = case.options["max_num_batched_tokens"], case.options["max_num_seqs"]
    assert (tokens >= 1).all()
    if budget and POLICIES[policy].budget == "step":
        assert (tokens <= budget).all()
    if budget and POLICIES[policy].budget == "prompts" and case.options["enable_chunked_prefill"]:
        assert (steps["num_prompt_tokens"] <= budget).all()
    prefill = case.options["max_prefill_tokens"]
    if prefill and POLICIES[policy].promises == "share":  # the last to enter may exceed it
        prompts = [[n for n in batch.values() if n > 1] for batch in batches(result)]
        assert all(sum(each) - max(each, default=0) < prefill for each in prompts)
    elif prefill:
        assert ((steps["num_prompt_tokens"] <= prefill) | (steps["num_prompts"] == 1)).all()
    if seqs and POLICIES[policy].seats != "batch":
        batches_at_once = case.options["pipeline_parallel_size"] if POLICIES[policy].seats == "each" else 1
        assert (steps["num_running"] <= batches_at_once * seqs).all()
    if seqs:
        assert all(len(batch) <= seqs for batch in batches(result))


def check_memory(case: Case, result: ReplayResult) -> None:
    """Blocks in use never exceed those there are, and all are back in the end, the host's too."""
    engine, settings_ = result.records.engine, result.records.settings
    used = result.steps_table()["num_used_blocks"]
    assert ((used >= 1) & (used <= case.options["num_gpu_blocks"])).all()
    assert engine.num_free_blocks == case.options["num_gpu_blocks"]
    assert engine.num_free_cpu_blocks == settings_.num_cpu_blocks
    assert engine.num_running == engine.num_waiting == engine.num_prompts == engine.num_decodes == 0


def check_time(case: Case, result: ReplayResult) -> None:
    """Steps follow each other, and a request's instants are in the order of its life."""
    steps = result.steps_table()
    start_s, duration_s = steps["start_s"].to_numpy(), steps["duration_s"].to_numpy()
    assert (duration_s > 0).all()
    if case.options["pipeline_parallel_size"] == 1:
        assert (start_s[1:] >= (start_s + duration_s)[:-1]).all()
    else:
        assert (start_s[1:] >= start_s[:-1]).all()
    r = result.records.requests
    arrived = np.array([row[0] for row in case.rows])
    assert (r.arrival_s >= arrived).all()
    life = [r.arrival_s, r.first_scheduled_s, r.first_token_s, r.finished_s]
    for earlier, later in itertools.combinations(life, 2):
        known = ~np.isnan(later) & ~np.isnan(earlier)
        assert (earlier <= later)[known].all()
    answered = ~np.isnan(r.first_token_s)
    assert (r.first_scheduled_s < r.first_token_s)[answered].all()


def check_batches(case: Case, policy: str, result: ReplayResult) -> None:
    """A request that yields in a step is not in its batch, and yields once.

    Where a decode needs a spare block, a lone request may have to yield itself: nothing is left to run, and the same
    step is composed again. So it is when all that could run is in flight through a pipeline, or in the step that runs.
    """
    steps, num_decodes = batches(result), result.steps_table()["num_decodes"].to_list()
    yielded = result.preemptions_table().rows()
    assert len(set(yielded)) == len(yielded) == result.records.engine.num_preemptions
    for step, request in yielded:
        composed_again = POLICIES[policy].needs_spare_block and num_decodes[step : step + 1] == [0]
        composed_again = composed_again or case.options["pipeline_parallel_size"] > 1
        composed_again = composed_again or case.options["async_scheduling"]
        assert step == len(steps) or composed_again or request not in steps[step]
    counts = Counter(request for _, request in yielded)
    table = result.requests_table()
    assert table["num_preemptions"].to_list() == [counts[i] for i in table["request_id"]]


def check_emissions(case: Case, result: ReplayResult) -> None:
    """A token comes out exactly when all known tokens are computed, at that step's end: the schedule says when."""
    table = result.requests_table()
    check_gaps(case, result)
    if case.options["pipeline_parallel_size"] > 1:
        return
    for row in table.iter_rows(named=True):
        keeps = case.options["enable_prefix_caching"] or case.options["preemption"] == "swap"
        if row["status"] == "completed" and not (keeps and row["num_preemptions"]):
            emitted_s = emissions(result, row)
            assert emitted_s[0] == row["first_token_at_s"]
            assert emitted_s[-1] == row["finished_at_s"]
            assert len(emitted_s) == row["output_tokens"]


def check_gaps(case: Case, result: ReplayResult) -> None:
    """A client sees the first token by itself, then groups; the last goes at once, whatever the size of its group."""
    table = result.requests_table()
    later, interval = np.maximum(table["output_tokens"].to_numpy() - 1, 0), case.options["stream_interval"]
    groups = np.where(table["status"] == "completed", -(-later // interval), later // interval)
    assert result.records.gaps.counts.sum() == groups.sum()
    if (table["status"] == "completed").all():
        total_s = (table["finished_at_s"] - table["first_token_at_s"]).sum()
        assert (result.records.gaps.values_s * result.records.gaps.counts).sum() == pytest.approx(total_s)


def check_phases(case: Case, result: ReplayResult) -> None:
    """A request's phases are its time; what its decode waited for is what the steps of its decode say."""
    done = result.requests_table().filter(status="completed")
    phases = ["frontend_s", "queue_s", "prefill_s", "decode_s", "preempted_s", "recompute_s"]
    phases += ["load_s"] if "kv_offloading_size" in case.options else []
    for row in done.iter_rows(named=True):
        assert sum(row[name] for name in phases) == pytest.approx(row["e2e_s"])
        assert all(row[name] >= -1e-9 for name in phases)
    if case.options["pipeline_parallel_size"] > 1:
        assert done["interference_s"].null_count() == done.height
        return
    steps = result.steps_table()
    transfer_s = steps["num_swapped_tokens"] * float(result.records.settings.swap_s_per_token)
    waited_s = steps["duration_s"] - steps["decodes_alone_s"] - transfer_s
    for row in done.filter(num_preemptions=0).iter_rows(named=True):
        during = (steps["start_s"] >= row["first_token_at_s"]) & (steps["start_s"] < row["finished_at_s"])
        assert row["interference_s"] == pytest.approx(waited_s.filter(during).sum(), abs=1e-9)


def check_stops(case: Case, policy: str, steps: pl.DataFrame) -> None:
    """A step says what keeps the queue out exactly where somebody waits, and what it says is so."""
    assert (steps["stopped_by"].is_null() == (steps["num_waiting"] == 0)).all()
    full = steps.filter(stopped_by="max_num_seqs")
    limits = [case.options[name] for name in ("max_num_seqs", "max_num_active_seqs") if case.options[name]]
    if POLICIES[policy].seats == "running" and "kv_offloading_size" in case.options:  # who loads has a seat too
        assert (full["num_running"] <= min(limits, default=0)).all()
    elif POLICIES[policy].seats == "running":
        assert (full["num_running"] == min(limits, default=0)).all()
    waits = case.options["batch_wait_timeout_iters"] or case.options["prefill_schedule_interval"] > 1
    if POLICIES[policy].plan_step is plan_in_order and not waits:
        assert "policy" not in steps["stopped_by"]  # such a plan keeps nobody out
    spent = steps.filter(stopped_by="token_budget")
    assert (spent["num_prompts"] + spent["num_decodes"] > 0).all()


def emissions(result: ReplayResult, row: dict[str, Any]) -> list[float]:
    """Return when a request must have emitted its tokens, from the schedule alone."""
    steps = result.steps_table()
    end_s = (steps["start_s"] + steps["duration_s"]).to_list()
    yields_in = {step for step, request in result.preemptions_table().rows() if request == row["request_id"]}
    computed, known = row["num_cached_tokens"], row["input_tokens"]
    emitted_s: list[float] = []
    start_s = steps["start_s"].to_list()
    for step, batch in enumerate(batches(result)):
        if start_s[step] >= row["finished_at_s"]:
            break
        if step in yields_in:
            computed = 0
            if result.records.settings.skips_tokens:
                is_flying = bool(emitted_s) and emitted_s[-1] == end_s[step - 1]
                known = row["input_tokens"] + len(emitted_s) - is_flying
        computed += batch.get(row["request_id"], 0)
        assert computed <= known
        if row["request_id"] in batch and computed == known:
            known += 1
            emitted_s.append(end_s[step])
    return emitted_s


def check_closed_loop(case: Case, result: ReplayResult) -> None:
    """The client never has more requests in flight than it may; one that leaves makes room at that very instant."""
    limit = case.options["max_concurrency"]
    if limit is None:
        return
    r = result.records.requests
    comings = [(at_s, 1) for at_s in r.arrival_s.tolist()] + [(at_s, -1) for at_s in r.finished_s.tolist()]
    in_flight = np.cumsum([change for _, change in sorted(comings)])
    assert in_flight.max(initial=0) <= limit


def undivided(result: ReplayResult) -> pl.DataFrame:
    """Return the requests without what only recorded steps tell of them."""
    return result.requests_table().drop("prefill_s", "decode_s", "recompute_s", "interference_s", "transfer_s")


@every_policy
@given(case=cases(with_more=True))
def test_recording_changes_nothing(policy: str, case: Case) -> None:
    """Stretches of decodes taken at once give what single steps give, bit for bit, and so does a second run."""
    whole, steps, plain, again = (
        case.play(policy, recording)
        for recording in (EVERYTHING, Recording(steps=True), Recording(), Recording())
    )
    assert_same_requests(plain.records.requests, again.records.requests)
    assert plain.records.engine.tobytes() == again.records.engine.tobytes()
    assert steps.steps_table().equals(whole.steps_table())
    assert steps.requests_table().equals(whole.requests_table(), null_equal=True)
    for other in (steps, plain):
        assert undivided(other).equals(undivided(whole), null_equal=True)
        np.testing.assert_allclose(gaps_s(other), gaps_s(whole), rtol=0, atol=1e-12)
        for name in ("num_steps", "num_preemptions", "num_recomputed_tokens", "num_swapped_tokens", "num_hit_tokens",
                     "peak_blocks", "max_running", "total_prompt_tokens", "total_decode_tokens", "total_context_tokens",
                     "now_s"):
            assert other.records.engine[name] == whole.records.engine[name], name
        for name in ("busy_s", "kv_block_s"):
            assert other.records.engine[name] == pytest.approx(whole.records.engine[name]), name


def gaps_s(result: ReplayResult) -> np.ndarray:
    """Return all gaps between tokens in order of length."""
    gaps = result.records.gaps
    return np.sort(np.repeat(gaps.values_s, gaps.counts))


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "sjf-oracle"])
@given(case=cases(with_more=True), data=some.data())
def test_no_policy_knows_how_long_an_output_will_be(policy: str, case: Case, data: some.DataObject) -> None:
    """A request that would have gone on for longer changes nothing before the instant at which it stopped."""
    i = data.draw(some.integers(0, len(case.rows) - 1))
    arrival_s, prompt, output = case.rows[i]
    longer = dataclasses.replace(case, rows=case.rows[:])
    longer.rows[i] = (arrival_s, prompt, output + data.draw(some.integers(1, 20)))
    once, other = case.play(policy, EVERYTHING), longer.play(policy, EVERYTHING)
    until_s = min(once.records.requests.finished_s[i], other.records.requests.finished_s[i])
    assert history(once, until_s) == history(other, until_s)


def history(result: ReplayResult, until_s: float) -> Any:
    """Return what happened before an instant: the steps that began, the tokens and who left."""
    steps = result.steps_table()
    begun = steps["start_s"].search_sorted(until_s, side="left")
    rows = [result.schedule_table(), result.preemptions_table()]
    r = result.records.requests
    left = [(at_s, status) for at_s, status in zip(r.finished_s.tolist(), r.state.tolist(), strict=True)]
    return (
        steps["start_s", "duration_s", "num_waiting", "num_used_blocks"].head(begun).rows(),
        [table.filter(pl.col("step") < begun).rows() for table in rows],
        [at_s if at_s < until_s else None for at_s in r.first_token_s.tolist()],
        [end if end[0] < until_s else None for end in left],
    )


OWN_POLICIES = """
from planner import IN_ORDER, PROMPTS_FIRST, Policy, StepPlan


def plan_gently(s):
    room = 8 if s.num_running > s.num_prefilling else 1_000_000
    return StepPlan(1 if s.num_waiting > 2 else 2, room, 5, PROMPTS_FIRST if s.num_waiting > 3 else IN_ORDER)


def by_size(requests):
    return -requests["input_tokens"]


gentle = Policy(name="gentle", plan_step=plan_gently)
large_first = Policy(name="large-first", plan_step=plan_gently, admit_key=by_size, victim_key=by_size, reserve="output")
"""


@pytest.mark.parametrize("name", ["gentle", "large_first"])
def test_a_users_policy_keeps_the_laws(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("policy") / "own.py"
    path.write_text(OWN_POLICIES)
    policy = f"{path}:{name}"

    @given(case=cases(with_more=True))
    def check(case: Case) -> None:
        result = case.play(policy, EVERYTHING)
        check_requests(result)
        check_memory(case, result)
        check_time(case, result)
        plain = case.play(policy, Recording())
        assert undivided(plain).equals(undivided(result), null_equal=True)
        assert all(tokens <= 5 for batch in batches(result) for tokens in batch.values())

    check()
