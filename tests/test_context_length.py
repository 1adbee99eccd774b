"""The context limit: fitted to the KV cache as vLLM does, and refused above the model's in launch commands."""

import pytest
from helpers import trace_of

from planner import Scenario, replay
from planner.deployment.deploy import deploy
from planner.errors import CapacityError, UsageError
from planner.launch import read_launch
from planner.results.resolved import value_sources

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(("version", "blocks", "expected"), [
    (None, 1000, 999 * 16), ("0.29.0", 1000, 999 * 16), ("0.28.0", 1000, 1000 * 16), (None, 100_000, 131_072)])
def test_the_limit_is_the_blocks_without_the_one_that_is_held_back(version: str | None, blocks: int, expected: int
                                                                    ) -> None:
    own = deploy(Scenario(model="llama-3.1-8b", gpu="l4", engine_version=version, num_gpu_blocks=blocks,
                          max_model_len=-1))
    assert own.settings.max_model_len == expected
    assert value_sources(own)["max_model_len"] == "derived"


def test_recurrent_states_take_their_blocks_first() -> None:
    own = deploy(Scenario(model="qwen3.5-35b-a3b", gpu="h100-sxm", num_gpu_blocks=100, max_model_len=-1))
    assert own.settings.max_model_len == (100 - 1 - 3) * 1056


def test_windows_of_sliding_layers_take_theirs() -> None:
    own = deploy(Scenario(model="gpt-oss-20b", gpu="l4", max_model_len=-1, gpu_memory_utilization=0.72))
    assert own.memory is not None
    windows, length = own.memory.windows, own.settings.max_model_len

    def needed(tokens: int) -> int:
        return -(-tokens // windows.block_size) + windows.window_blocks(tokens, windows.window_chunk)

    assert windows.window_tokens == 128
    assert needed(length) <= own.memory.num_gpu_blocks - 1 < needed(length + 1)
    assert length < 131_072


def test_limits_of_a_step_are_planned_with_the_models_context() -> None:
    fitted, whole = (deploy(Scenario(model="llama-3.1-8b", gpu="l4", max_model_len=length)) for length in (-1, None))
    assert fitted.memory == whole.memory
    assert fitted.settings.max_model_len == (fitted.settings.num_gpu_blocks - 1) * 16


@pytest.mark.parametrize(("length", "text"), [("auto", "34,960 tokens, and the model has 131,072"), ("-1", "34,960")])
def test_a_launch_is_fitted_and_says_so(length: str, text: str) -> None:
    options = dict(read_launch(f"vllm serve {LLAMA} --max-model-len {length}").options)
    assert options["max_model_len"] == -1
    outcome = replay(trace_of([(0.0, 30_000, 8), (0.0, 40_000, 8)]), Scenario(gpu="l4", **options))
    assert any(text in note for note in outcome.summary["notes"])
    assert outcome.summary["rejected_by_reason"] == {"too_long": 1}


def test_engines_and_releases_that_do_not_fit_it_refuse_it() -> None:
    with pytest.raises(UsageError, match="SGLang does not fit the context to its KV cache; give a length"):
        Scenario(model="llama-3.1-8b", engine="sglang", max_model_len=-1)
    with pytest.raises(UsageError, match=r"vLLM 0\.13\.0 refuses it, and 0\.14 is the first release"):
        Scenario(model="llama-3.1-8b", engine_version="0.13.0", max_model_len=-1)
    with pytest.raises(UsageError, match="no model is given; give --model, or a length"):
        deploy(Scenario(step_time="linear:0.01,0", num_gpu_blocks=100, max_model_len=-1))
    with pytest.raises(CapacityError, match="KV cache of 1 blocks does not hold one token"):
        deploy(Scenario(model="llama-3.1-8b", gpu="l4", num_gpu_blocks=1, max_model_len=-1))


@pytest.mark.parametrize(("command", "remedy"), [
    (f"vllm serve {LLAMA} --max-model-len 131073", "131,072 tokens.*lower it, or set VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"),
    ("python -m sglang.launch_server --model-path Qwen/Qwen3-8B --context-length 41K",
     "--context-length 41984 exceeds.*40,960 tokens.*SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"),
])
def test_a_limit_above_the_models_is_refused(command: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=remedy):
        read_launch(command)


@pytest.mark.parametrize("command", [
    f"VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve {LLAMA} --max-model-len 200000",
    f"""vllm serve {LLAMA} --max-model-len 200000 --hf-overrides '{{"rope_scaling": {{"factor": 16}}}}'""",
    f"python -m sglang.launch_server --model {LLAMA} --context-length 200000 --json-model-override-args '{{\"a\": 1}}'",
    f"docker run lmsysorg/sglang:v0.4.9 python -m sglang.launch_server --model {LLAMA} --context-length 200000",
    "vllm serve some/unknown-model --max-model-len 200000",
])
def test_a_longer_limit_is_read_where_the_engine_takes_it(command: str) -> None:
    assert read_launch(command).options["max_model_len"] == 200_000


def test_a_limit_as_long_as_the_models_is_read() -> None:
    assert read_launch(f"vllm serve {LLAMA} --max-model-len 128K").options["max_model_len"] == 131_072


@pytest.mark.parametrize(("engine", "version", "given", "expected"), [
    ("vllm", None, None, 4_096), ("vllm", "0.11.0", None, 131_072), ("vllm", None, 65_536, 65_536),
    ("vllm", None, -1, 4_096), ("sglang", None, None, 131_072)])
def test_longrope_models_are_served_with_their_original_context(engine: str, version: str | None, given: int | None,
                                                                expected: int) -> None:
    scenario = Scenario(model="phi-4-mini", gpu="l40s", engine=engine, engine_version=version, max_model_len=given)
    assert deploy(scenario).settings.max_model_len == expected
    outcome = replay(trace_of([(0.0, 100, 8)]), scenario)
    said = [note for note in outcome.summary["notes"] if "before LongRoPE extends it to 131,072" in note]
    assert len(said) == ((given, expected) == (None, 4_096))
