"""Policies: what each plan asks for, how the keys sort, and what becomes of a user's broken file."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import batches, play, trace_of

from planner import DECODES_FIRST, IN_ORDER, PROMPTS_ALONE, PROMPTS_FIRST
from planner.errors import PolicyError, UnknownNameError, UsageError
from planner.loop.state.engine_state import COMPLETED, REJECTED
from planner.policies.builtin_policies import POLICIES, by_deadline, by_predicted_work, by_priority
from planner.policies.by_name import load_policy
from planner.policies.policy import NO_LIMIT, StepState
from planner.run import replay
from planner.settings.scenario import Scenario

QUIET = StepState(now_s=0.0, num_running=0, num_prefilling=0, num_waiting=1, num_free_blocks=10, num_gpu_blocks=10,
                  max_num_seqs=8, max_num_batched_tokens=512, long_prefill_token_threshold=0, last_step_had_prompts=0,
                  num_decode_only_steps=0)


@pytest.mark.parametrize(
    ("policy", "order"),
    [("fcfs", IN_ORDER), ("priority", IN_ORDER), ("sjf", IN_ORDER), ("edf", IN_ORDER), ("decode-first", DECODES_FIRST),
     ("prefill-first", PROMPTS_FIRST), ("chunked", DECODES_FIRST), ("vllm-v0", PROMPTS_ALONE), ("orca", DECODES_FIRST),
     ("simple-chunking", PROMPTS_ALONE), ("static", DECODES_FIRST), ("nano-vllm", PROMPTS_ALONE)],
)
def test_an_idle_engine_admits_and_knows_the_order(policy: str, order: int) -> None:
    plan = POLICIES[policy].plan_step(QUIET)
    assert plan.order == order
    assert plan.max_new_seqs >= 1


def test_every_policy_has_its_own_name() -> None:
    assert all(policy.name == name for name, policy in POLICIES.items())


@pytest.mark.parametrize(("waiting", "cap"), [(1, NO_LIMIT), (2, 256)])
def test_fcfs_caps_a_prompt_only_in_company(waiting: int, cap: int) -> None:
    state = QUIET._replace(num_waiting=waiting, long_prefill_token_threshold=256)
    assert POLICIES["fcfs"].plan_step(state).max_tokens_per_prompt == cap


def test_decode_first_keeps_one_prompt_in_flight() -> None:
    plan_step = POLICIES["decode-first"].plan_step
    assert plan_step(QUIET._replace(num_running=3)).max_new_seqs == 1
    assert plan_step(QUIET._replace(num_running=3, num_prefilling=1)).max_new_seqs == 0


def test_static_admits_only_into_an_empty_engine() -> None:
    assert POLICIES["static"].plan_step(QUIET._replace(num_running=1)).max_new_seqs == 0


def test_static_batch_of_trtllm_leaves_prompts_out_while_a_decode_runs() -> None:
    plan_step = POLICIES["trtllm-static"].plan_step
    assert plan_step(QUIET._replace(num_running=1, num_prefilling=1)).max_prefill_tokens == NO_LIMIT
    plan = plan_step(QUIET._replace(num_running=2, num_prefilling=1))
    assert (plan.max_new_seqs, plan.max_prefill_tokens) == (0, 0)


def test_simple_chunking_takes_turns() -> None:
    plan_step = POLICIES["simple-chunking"].plan_step
    decodes_turn = QUIET._replace(num_running=3, num_prefilling=1, last_step_had_prompts=1)
    assert plan_step(decodes_turn)[:2] == (0, 0)
    assert plan_step(decodes_turn._replace(last_step_had_prompts=0))[:2] == (0, NO_LIMIT)  # first finish the prompt
    assert plan_step(decodes_turn._replace(last_step_had_prompts=0, num_prefilling=0)).max_new_seqs == NO_LIMIT
    assert plan_step(decodes_turn._replace(num_running=1)).max_prefill_tokens == NO_LIMIT  # nobody decodes


def test_ageing_is_worth_priority() -> None:
    """With 2 points per second, 3 seconds of waiting outweigh 5 points of priority."""
    columns = {"priority": np.array([5.0, 0.0]), "arrival_s": np.array([0.0, 3.0]),
               "priority_ageing_per_s": np.array([2.0, 2.0])}
    assert by_priority(columns).tolist() == [5.0, 6.0]


def test_keys_of_work_and_deadlines() -> None:
    columns = {"input_tokens": np.array([10.0, 5.0]), "predicted_output_tokens": np.array([1.0, 9.0]),
               "arrival_s": np.array([0.0, 1.0]), "deadline_s": np.array([2.0, math.inf])}
    assert by_predicted_work(columns).tolist() == [11.0, 14.0]
    assert by_deadline(columns).tolist() == [2.0, math.inf]


# who goes first of requests that arrive at once, one slot
@pytest.mark.parametrize(
    ("policy", "columns", "order"),
    [
        ("fcfs", {}, "012"),
        ("priority", {"priority": [2.0, 0.0, 1.0]}, "120"),
        ("sjf", {"predicted_output_tokens": [9, 7, 8]}, "120"),
        ("sjf", {"max_output_tokens": [9, 7, 8]}, "120"),
        ("sjf-oracle", {}, "210"),
        ("edf", {"deadline_s": [0.3, None, 0.1]}, "201"),
    ],
)
def test_the_key_decides_who_is_next(policy: str, columns: dict[str, Any], order: str) -> None:
    trace = trace_of([(0.0, 4, 3), (0.0, 4, 2), (0.0, 4, 1)], **columns)
    result = play(trace, policy=policy, max_num_seqs=1)
    assert "".join(dict.fromkeys(i for batch in batches(result) for i in batch)) == order


@pytest.mark.parametrize("name", ["priority", "sjf", "edf"])
def test_equal_keys_go_by_arrival_then_by_id_as_text(name: str) -> None:
    result = play([(0.0, 4, 1)] * 11, policy=name, max_num_seqs=1)
    assert [i for batch in batches(result) for i in batch] == ["0", "1", "10", *"23456789"]


def test_unknown_policy_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown policy 'fcsf'; did you mean 'fcfs'\?"):
        load_policy("fcsf")


HEADER = "from planner import IN_ORDER, Policy, StepPlan\n\n\n"
USABLE = "\n\nmine = Policy(name='mine', plan_step=plan)\n"


def written(tmp_path: Path, *lines: str) -> str:
    """Write a policy whose plan has these lines, the first of them at line 5, and return its name."""
    body = "".join(f"    {line}\n" for line in lines)
    (tmp_path / "own.py").write_text(f"{HEADER}def plan(s):\n{body}{USABLE}")
    return f"{tmp_path}/own.py:mine"


def test_a_policy_from_a_file(tmp_path: Path) -> None:
    policy = written(tmp_path, "return StepPlan(1, 3, 3, IN_ORDER)")
    assert batches(play([(0.0, 6, 1), (0.0, 1, 1)], policy=policy)) == [{"0": 3}, {"0": 3}, {"1": 1}]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["return StepPlan(0, 0, 1, IN_ORDER)"], r"own.py:4\) at 1.5\d* s: scheduled nothing while 0 .* 1 wait"),
        (["return StepPlan(-1, 0, 1, IN_ORDER)"], r"own.py:4\) .*negative limit or an unknown order"),
        (["return StepPlan(1, 1, 1, 4)"], r"own.py:4\) .*negative limit or an unknown order"),
        (["n = s.num_running", "return StepPlan(1, 8 // n, 1, IN_ORDER)"], r"own.py:6: .*zero"),
        (["return 1"], r"own.py:\d+: .*cannot be compiled"),
        (["return StepPlan(1, 1, 1, 'prompts')"], r"own.py:\d+: .*cannot be compiled"),
        (["return StepPlan(1, 1, 1, nonsense)"], r"own.py:\d: .*cannot be compiled.*nonsense"),
        (["return StepPlan(1, s.output_tokens, 1, 0)"], r"own.py:5: .*cannot be compiled"),
    ],
    ids=["idle", "negative", "order", "zero", "number", "text", "name", "field"],
)
def test_a_broken_plan_is_an_error_with_its_line(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        play([(1.5, 6, 1)], policy=written(tmp_path, *lines))


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("x = 1\ndef plan(s:\n", "mine", r"own.py line 2: SyntaxError"),
        ("x = 1\n\ny = 1 / 0\n", "mine", r"own.py line 3: ZeroDivisionError"),
        ("from planner import Policy\nmine = 3\n", "mine", r"own.py: mine is a int; must be a Policy"),
        ("from planner.policies.builtin_policies import FCFS\n", "mine", r"own.py defines no 'mine'; it has FCFS"),
    ],
    ids=["syntax", "run", "kind", "missing"],
)
def test_a_broken_file_is_an_error_with_its_line(tmp_path: Path, text: str, name: str, message: str) -> None:
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(PolicyError, match=message):
        load_policy(f"{tmp_path}/own.py:{name}")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"policy file .*own.py does not exist"):
        load_policy(f"{tmp_path}/own.py:mine")


@pytest.mark.parametrize("policy", ["static", "orca"])
def test_a_prompt_beyond_the_limit_has_its_slots_where_the_limit_is_reserved(policy: str) -> None:
    """Its contents are numbered before it is rejected; the table held fewer of its blocks than it has."""
    rows = [(0.1 * k, 3000 if k % 3 else 100, 20) for k in range(60)]
    found = play(rows, policy=policy, max_model_len=1024, num_gpu_blocks=4000, enable_prefix_caching=True)
    states = found.records.requests.state
    assert (states == REJECTED).sum() == 40
    assert (states == COMPLETED).sum() == 20


def test_a_policy_in_place_of_its_name_is_said() -> None:
    objects: dict[str, Any] = {"policy": POLICIES["fcfs"], "router": lambda load: 0}
    for kind, value in objects.items():
        options: dict[str, Any] = {"step_time": "linear:1,0", kind: value}
        with pytest.raises(UsageError, match=f"^{kind}: .* is no name; write it to a file, and give {kind}="):
            play([(0.0, 1, 1)], data_parallel_size=2, **options)


def test_replay_reads_a_path_or_a_sample(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,input_tokens,output_tokens\n0,5,5\n")
    scenario = Scenario(step_time="linear:1,0", num_gpu_blocks=1000, limit=1)
    assert replay(tmp_path / "t.csv", scenario).summary["completed"] == 1
    assert replay("chat", scenario).summary["workload"]["source"] == "chat"
