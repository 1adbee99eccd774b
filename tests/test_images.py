"""Images in prompts: the vision encoder's shapes, time and memory, and what replays make of them."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from helpers import play, scenario_of, trace_of
from hypothesis import given
from hypothesis import strategies as some
from steps import stack_of

from planner.catalog.catalog_files import load_model
from planner.catalog.vision import Vision, vision_of
from planner.deployment.memory import vision_weight_bytes, weight_bytes
from planner.errors import CatalogError
from planner.launch.read_command import read_launch
from planner.loop.state.engine_settings import Recording
from planner.model.layout import Layout
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.steptime.vision_time import image_time
from planner.traces import Trace

QWEN3 = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "patch_size": 16,
         "spatial_merge_size": 2, "out_hidden_size": 4096}
GEMMA = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
         "image_size": 896, "patch_size": 14}
OPTIONS: dict[str, Any] = {"model": "gemma-3-4b", "gpu": "h100-sxm", "max_model_len": 16384}


@pytest.mark.parametrize(("config", "expected"), [
    ({"vision_config": QWEN3}, {"num_layers": 27, "patches_per_token": 4, "tile_tokens": 0, "num_full_layers": 27}),
    ({"vision_config": GEMMA, "mm_tokens_per_image": 256}, {"patches_per_token": 16, "tile_tokens": 256}),
    ({"vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4, "num_heads": 16,
                        "spatial_merge_size": 2, "model_type": "qwen2_vl"}},
     {"hidden_size": 1280, "mlp_width": 5120, "num_matrices": 2}),
    ({"vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
                        "spatial_merge_size": 2, "model_type": "qwen2_5_vl", "fullatt_block_indexes": [7, 15, 23, 31]}},
     {"num_matrices": 3, "num_full_layers": 4}),
    ({"vision_config": {**GEMMA, "image_size": 336, "pixel_shuffle_ratio": 0.5}},
     {"patches_per_token": 4, "tile_tokens": 144}),
    ({"vision_config": {"vt_hidden_size": 1152, "vt_intermediate_size": 4304, "vt_num_hidden_layers": 27,
                        "vt_num_attention_heads": 16, "merge_kernel_size": [2, 2]}}, {"patches_per_token": 4}),
])
def test_encoders_are_read_as_their_configs_name_them(config: dict[str, Any], expected: dict[str, int]) -> None:
    found = vision_of(config, "config.json")
    assert found is not None
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_text_model_has_no_encoder() -> None:
    assert vision_of({"hidden_size": 4096}, "config.json") is None
    assert vision_of({"vision_config": {}}, "config.json") is None
    assert load_model("llama-3.1-8b").vision is None
    assert load_model("moonshotai/Kimi-K2-Thinking").vision is None


@pytest.mark.parametrize(("changed", "said"), [
    ({"depth": 0}, "vision_config.depth = 0; must be a positive integer"),
    ({"num_heads": "16"}, "vision_config.num_heads = '16'; must be a positive integer"),
])
def test_a_size_that_is_no_number_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(CatalogError, match=f"config.json: {said}"):
        vision_of({"vision_config": {**QWEN3, **changed}}, "config.json")


@pytest.mark.parametrize("key", ["depth", "hidden_size", "intermediate_size", "num_heads"])
def test_an_encoder_that_is_described_in_part_is_not_known(key: str) -> None:
    """Transformers' classes have defaults for what a config leaves out; the text model is read all the same."""
    assert vision_of({"vision_config": {name: value for name, value in QWEN3.items() if name != key}}, "c.json") is None


def test_the_encoder_is_in_memory_and_can_be_left_out() -> None:
    """SigLIP-So400m: 27 layers of four products of 1,152² and two of 1,152 · 4,304, 411 million weights."""
    arch = load_model("gemma-3-4b")
    assert vision_weight_bytes(arch, Layout()) == 2 * 27 * (4 * 1152**2 + 2 * 1152 * 4304)
    assert vision_weight_bytes(arch, Layout(tensor_parallel_size=2)) == vision_weight_bytes(arch, Layout()) / 2
    trace = trace_of([(0.0, 10, 2)])
    plans = [replay(trace, Scenario(**OPTIONS, language_model_only=left_out)).summary["deployment"]["memory"]
             for left_out in (False, True)]
    weights = [plan["weight_bytes"] for plan in plans]
    assert weights[0] - weights[1] == vision_weight_bytes(arch, Layout())
    assert weights[1] == weight_bytes(arch, None, Layout())


def test_an_image_takes_no_less_than_its_arithmetic() -> None:
    """Products of 2 FLOP a weight and patch, attention of 4 · hidden a pair of patches and layer."""
    vision, stack = load_model("gemma-3-4b").vision, stack_of("gemma-3-4b")
    assert vision is not None
    found, patches, tokens = image_time(stack), 4096, 256
    seconds = found.per_image_s + tokens * found.per_token_s + tokens**2 * found.per_pair_s
    flops = 2 * vision.parameters * patches + 4 * vision.hidden_size * patches**2 * vision.num_layers
    assert 1 < seconds / (flops / stack.gpu.flops_per_s["bf16"]) < 4


def images(trace: Trace, tokens: list[int], numbers: list[int] | None = None) -> Trace:
    columns = [pl.Series("image_tokens", tokens)] + ([] if numbers is None else [pl.Series("num_images", numbers)])
    return replace(trace, requests=trace.requests.with_columns(columns))


@given(tokens=some.lists(some.integers(0, 900), min_size=1, max_size=6), number=some.integers(1, 4))
def test_the_encoder_runs_once_over_each_image(tokens: list[int], number: int) -> None:
    """The encoder's time over all steps is that of the images, whatever the chunks; without images nothing changes."""
    trace = images(trace_of([(0.001 * k, 1000, 3) for k in range(len(tokens))]), tokens, [number] * len(tokens))
    scenario = Scenario(**OPTIONS, max_num_batched_tokens=512)
    found = replay(trace, scenario, recording=Recording(steps=True))
    time = image_time(stack_of("gemma-3-4b"))
    expected = sum(max(number, -(-count // 256)) * time.per_image_s + count * time.per_token_s
                   + count**2 / max(number, -(-count // 256)) * time.per_pair_s for count in tokens if count)
    assert found.result.steps_table()["images_s"].sum() == pytest.approx(expected, rel=1e-3)
    if not any(tokens):
        plain = replay(trace_of([(0.001 * k, 1000, 3) for k in range(len(tokens))]), scenario)
        assert found.summary["mean_ttft_ms"] == plain.summary["mean_ttft_ms"]


def test_images_lengthen_the_first_token_and_notes_say_how() -> None:
    trace = trace_of([(0.0, 1000, 10)])
    plain, seen = (replay(each, Scenario(**OPTIONS)).summary for each in (trace, images(trace, [512], [2])))
    assert seen["mean_ttft_ms"] > plain["mean_ttft_ms"] + 10
    assert any(note.startswith("images: the vision encoder's time") for note in seen["notes"])
    blind = replay(images(trace, [512]), Scenario(model="llama-3.1-8b", gpu="h100-sxm")).summary
    assert any("the vision encoder is not known" in note for note in blind["notes"])
    without = replay(images(trace, [512]), Scenario(**OPTIONS, language_model_only=True)).summary
    assert any("a server without its vision encoder rejects prompts with images" in note for note in without["notes"])


def test_a_line_of_step_times_has_no_encoder() -> None:
    trace = images(trace_of([(0.0, 100, 2)]), [50])
    assert "image_tokens count as prompt tokens alone" in " ".join(replay(trace, scenario_of()).summary["notes"])
    assert play([(0.0, 100, 2)]).requests_table().height == 1


@pytest.mark.parametrize("command", ["vllm serve m/m --language-model-only",
                                     "sglang serve --model m/m --language-model-only"])
def test_servers_without_the_encoder_are_read(command: str) -> None:
    assert read_launch(command).options["language_model_only"] is True


def test_parameters_of_an_encoder() -> None:
    own = Vision(num_layers=2, hidden_size=8, mlp_width=32, num_heads=2, num_matrices=3, patches_per_token=4,
                 tile_tokens=0, num_full_layers=2)
    assert own.parameters == 2 * 8 * (4 * 8 + 3 * 32)
