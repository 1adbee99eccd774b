"""Decode context parallelism: the GPUs of a group hold a part of each context, and exchange queries and results."""

from typing import Any

import pytest
from helpers import trace_of

from planner.deployment.deploy import deploy
from planner.errors import UsageError
from planner.launch import launch_command, read_launch
from planner.run import replay
from planner.settings.scenario import Scenario

R1: dict[str, Any] = {"model": "deepseek-r1", "gpu": "h200-sxm", "tensor_parallel_size": 8}


def tokens_held(**options: Any) -> int:
    """Return the tokens that the KV cache holds."""
    memory = deploy(Scenario(**R1 | options)).memory
    assert memory is not None
    return memory.num_kv_tokens


def last_gap_ms(context: int, num_seqs: int, **options: Any) -> float:
    """Return the time of a step of decodes alone, as contexts have nearly that length [ms]."""
    rows = [(0.0, context, 400)] * num_seqs
    found = replay(trace_of(rows), Scenario(**R1 | {"model": "deepseek-r1"} | options))
    return float(found.summary["median_itl_ms"])


def test_the_cache_holds_as_many_times_the_tokens() -> None:
    assert tokens_held(decode_context_parallel_size=8) == 8 * tokens_held()


def test_a_group_of_one_is_none() -> None:
    assert last_gap_ms(500, 6, decode_context_parallel_size=1) == last_gap_ms(500, 6)


def test_long_contexts_are_read_faster_and_short_ones_pay_for_the_exchange() -> None:
    assert last_gap_ms(100_000, 6, decode_context_parallel_size=8) < last_gap_ms(100_000, 6)
    assert last_gap_ms(500, 6, decode_context_parallel_size=8) > last_gap_ms(500, 6)


@pytest.mark.parametrize(("options", "says"), [
    ({"decode_context_parallel_size": 3}, "must divide tensor_parallel_size = 8"),
    ({"decode_context_parallel_size": 2, "model": "llama-3.1-70b"}, "needs tensor_parallel_size >= 16"),
    ({"decode_context_parallel_size": 2, "model": "gpt-oss-120b"}, "attend to all of the context"),
    ({"decode_context_parallel_size": 2, "model": "qwen3-30b-a3b", "engine": "sglang"},
     "SGLang has it with MLA alone"),
    ({"decode_context_parallel_size": 2, "engine": "trtllm"}, "TensorRT-LLM has it in a form that is not modelled"),
])
def test_impossible_groups_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        deploy(Scenario(**R1 | options))


def test_a_command_says_it() -> None:
    scenario = Scenario(model="m/m", tensor_parallel_size=8, decode_context_parallel_size=4)
    command, lacking = launch_command(scenario)
    assert (command, lacking) == ("vllm serve m/m --tensor-parallel-size 8 --decode-context-parallel-size 4", ())
    assert Scenario(**read_launch(command.replace("--decode-context-parallel-size", "-dcp")).options) == scenario


def test_sglangs_command_says_it() -> None:
    """Its groups are vLLM's: as many times the tokens, and the same exchange."""
    assert tokens_held(engine="sglang", decode_context_parallel_size=8) == 8 * tokens_held(engine="sglang")
    launch = read_launch("python -m sglang.launch_server --model-path m/m --tp 8 --dcp-size 4")
    assert (launch.options["decode_context_parallel_size"], launch.unmodelled) == (4, ())
    assert launch_command(Scenario(**launch.options))[0].endswith("--decode-context-parallel-size 4")


def test_a_deployment_keeps_the_users_scenario_beside_the_options_in_force() -> None:
    """A scenario that is deployed again, as a search does, must not have its blocks multiplied twice."""
    scenario = Scenario(**R1 | {"decode_context_parallel_size": 4})
    deployed = deploy(scenario)
    assert deployed.scenario == scenario
    assert (scenario.block_size, deployed.resolved.block_size) == (16, 64)
    assert scenario.max_num_seqs is None
    assert deployed.resolved.limits.max_num_seqs == deployed.settings.max_num_seqs == deployed.options()["max_num_seqs"]
    assert deploy(deployed.scenario).settings == deployed.settings
