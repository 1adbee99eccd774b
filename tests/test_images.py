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
from planner.catalog.hf_config import architecture_from_config
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
                 tile_tokens=0, num_full_layers=2, has_videos=False)
    assert own.parameters == 2 * 8 * (4 * 8 + 3 * 32)


@pytest.mark.parametrize(("name", "published"), [
    ("Qwen/Qwen2-VL-2B-Instruct", 629e6), ("Qwen/Qwen2-VL-72B-Instruct", 629e6),
    ("Qwen/Qwen2.5-VL-3B-Instruct", 630e6), ("Qwen/Qwen2.5-VL-7B-Instruct", 630e6),
    ("Qwen/Qwen2.5-VL-32B-Instruct", 634e6), ("Qwen/Qwen2.5-VL-72B-Instruct-AWQ", 634e6),
    ("Qwen/Qwen3-VL-4B-Instruct", 302e6), ("Qwen/Qwen3-VL-8B-Instruct-FP8", 411e6),
    ("Qwen/Qwen3-VL-30B-A3B-Instruct", 411e6), ("Qwen/Qwen3-VL-235B-A22B-Instruct", 411e6),
    ("OpenGVLab/InternVL3-8B", 0.30e9), ("OpenGVLab/InternVL3-14B", 0.30e9), ("OpenGVLab/InternVL2_5-38B", 5.54e9),
    ("OpenGVLab/InternVL3-78B", 5.54e9), ("mistralai/Pixtral-12B-2409", 0.4e9),
    ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 0.4e9), ("mistralai/Ministral-3-8B-Base-2512", 0.4e9),
    ("mistralai/Mistral-Large-3-675B-Instruct-2512", 2.5e9), ("google/gemma-4-31B-it", 0.55e9),
    ("google/gemma-4-E2B-it", 0.15e9), ("Qwen/Qwen3.5-397B-A17B", 411e6),
])
def test_bundled_encoders_have_their_published_parameters(name: str, published: float) -> None:
    """Without patches' embedding and projector; of InternViT the published 300 million and 5.54e9."""
    vision = load_model(name).vision
    assert vision is not None
    assert vision.parameters == pytest.approx(published, rel=0.01)


def test_the_loaded_weights_of_gemma_4_are_those_of_a_start_up_log() -> None:
    """31.04 GiB of nvidia/Gemma-4-31B-IT-NVFP4 (vllm-project/vllm#40291 fails on a card of 31.35 GiB)."""
    arch = load_model("nvidia/Gemma-4-31B-IT-NVFP4")
    loaded = weight_bytes(arch, None, Layout()) + vision_weight_bytes(arch, Layout())
    assert loaded / 2**30 == pytest.approx(31.04, rel=0.03)


@pytest.mark.parametrize(("name", "encoders"), [
    ("Qwen/Qwen2.5-7B-Instruct", ()), ("Qwen/Qwen2.5-VL-7B-Instruct", ()), ("Qwen/Qwen2.5-Omni-7B", ("audio",)),
    ("google/gemma-3n-E4B-it", ("vision", "audio")), ("stepfun-ai/Step-3.5-Flash", ()),
    ("stepfun-ai/Step-3.7-Flash", ("vision",)), ("MiniMaxAI/MiniMax-M3", ("vision",))])
def test_a_note_names_encoders_that_are_not_known(name: str, encoders: tuple[str, ...]) -> None:
    assert load_model(name).encoders_left_out == encoders
    if name != "Qwen/Qwen2.5-Omni-7B":
        return
    trace = trace_of([(0.0, 10, 2)])
    for is_text in (False, True):
        found = replay(trace, Scenario(**OPTIONS | {"model": name, "language_model_only": is_text})).summary["notes"]
        start = f"the audio encoder of {name} is left out"
        assert any(note.startswith(start) for note in found) is not is_text


def test_an_encoder_inside_a_thinker_is_read() -> None:
    """As Qwen2.5-Omni's config.json has it."""
    text = {"model_type": "qwen2_5_omni_text", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
            "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768}
    arch = architecture_from_config({"model_type": "qwen2_5_omni", "thinker_config": {
        "text_config": text, "vision_config": {**QWEN3, "model_type": "qwen2_5_omni_vision_encoder"},
        "audio_config": {"d_model": 1280}}}, name="omni", where="config.json")
    assert arch.vision is not None
    assert arch.vision.num_matrices == 3
    assert arch.encoders_left_out == ("audio",)


@pytest.mark.parametrize(("model", "limit", "left_out"), [
    ("Qwen/Qwen2.5-VL-7B-Instruct", '{"image":0,"video":0}', True),
    ("Qwen/Qwen2.5-VL-7B-Instruct", '{"image":0}', False),  # videos need the encoder
    ("google/gemma-3-27b-it", '{"image":0}', True), ("google/gemma-4-31B-it", '{"image":0,"audio":0}', False),
    ("google/gemma-3-27b-it", "image=0", True), ("google/gemma-3-27b-it", '{"image":{"count":2}}', False),
    ("someone/unknown-vl", '{"image":0}', False), ("someone/unknown-vl", '{"image":0,"video":0}', True)])
def test_prompts_without_images_leave_the_encoder_out(model: str, limit: str, left_out: bool) -> None:
    """vllm-project/vllm#22299."""
    described = read_launch(f"vllm serve {model} --limit-mm-per-prompt '{limit}'")
    assert described.options.get("language_model_only", False) is left_out
    assert (described.left_aside == ("--limit-mm-per-prompt",)) is not left_out
