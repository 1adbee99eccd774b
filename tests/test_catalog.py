"""The catalog: every file is complete and sourced, names are found, and the user's own entries come first."""

import doctest
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from helpers import trace_of
from typer.testing import CliRunner

import planner
from planner.catalog import catalog_files as entries
from planner.catalog.catalog_files import (
    add_gpu,
    add_model,
    data_dir,
    describe_model,
    gpu_names,
    hub_name,
    load_gpu,
    load_model,
    model_names,
    other_checkpoint,
)
from planner.catalog.other_kinds import gpu_refusal, model_refusal
from planner.catalog.parameters import num_parameters
from planner.commands.cli import app
from planner.deployment.deploy import deploy, resolve
from planner.errors import CatalogError, OutputError, UnknownNameError
from planner.launch import launch_command
from planner.report.profile_tables import show_profile
from planner.results.notes import notes
from planner.results.resolved import describe_deployment
from planner.settings.scenario import Scenario

GPUS = sorted((data_dir("hardware_db") / "gpus").glob("*.toml"))
MODELS = sorted((data_dir("hardware_db") / "models").glob("*.toml"))


OTHER_ACCELERATORS = ("ascend-910c-die", "gaudi-3", "tpu-v7-core", "trainium2-core", "trainium3-core")
FP8_SPEED = {"gaudi-3": 1, "trainium2-core": 1.95, "trainium3-core": 3.75, "vr200": 4.375}  # over bf16; else 2


@pytest.fixture(autouse=True)
def own_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLANNER_DB", str(tmp_path / "own"))
    return tmp_path / "own"


def test_doctests_hold() -> None:
    assert doctest.testmod(entries).failed == 0


def test_catalog_holds_what_is_promised() -> None:
    assert {"a100-sxm", "a100-sxm-40gb", "a100-pcie", "h100-sxm", "h100-pcie", "h200-sxm", "b200-sxm", "b300-sxm",
            "gb200", "gb300", "h200-nvl", "h20", "l4", "l40s", "a10g", "rtx-4090", "rtx-5090", "rtx-pro-6000", "mi300x",
            "mi325x", "mi355x", "h800-sxm", "a800-sxm", "l20", "t4", "v100-sxm-16gb", "v100-sxm-32gb", "gb10",
            "arc-pro-b60", "gaudi-3", "rtx-a6000", "rtx-3090", "mi350x", "mi350p", "vr200", "rtx-pro-5000",
            "rtx-pro-5000-72gb", "rtx-pro-4500", "jetson-thor", *OTHER_ACCELERATORS} <= set(gpu_names())
    assert len(model_names()) >= 16


@pytest.mark.parametrize("path", GPUS, ids=lambda path: path.stem)
def test_every_gpu_number_has_unit_source_date_and_flops_are_dense(path: Path) -> None:
    gpu = load_gpu(path.stem)
    assert gpu.name == path.stem
    for field, quantity in gpu.provenance.items():
        assert quantity.unit, field
        assert len(quantity.source) > 5, field
        assert quantity.dense is field.startswith("flops_per_s."), field
    assert "bf16" in gpu.flops_per_s
    for field in gpu.__slots__:
        if isinstance(getattr(gpu, field), float | int):
            defaults = (("launch_speed", 1.0), ("multiprocessors", 0.0), ("shared_memory_bytes", 0.0),
                        ("sustained_clock", 0.0), ("hbm_energy_j_per_byte", 0.0), ("flop_energy_j", 0.0),
                        ("host_staged", 0.0), ("network_bytes_per_s", 0.0), ("power_limit_w", 0.0), ("instances", 1))
            assert field in gpu.provenance or (field, getattr(gpu, field)) in defaults, field


@pytest.mark.parametrize("path", GPUS, ids=lambda path: path.stem)
def test_gpu_numbers_are_si_and_plausible(path: Path) -> None:
    gpu = load_gpu(path.stem)
    assert 2e11 < gpu.hbm_bandwidth_bytes_per_s < 3e13
    assert 1.5e10 < gpu.hbm_capacity_bytes < 4e11
    assert 20 < gpu.flops_per_s["bf16"] / gpu.hbm_bandwidth_bytes_per_s <= 1000
    ratio = FP8_SPEED.get(gpu.name, 2)
    assert gpu.flops_per_s.get("fp8", gpu.flops_per_s["bf16"] * ratio) / gpu.flops_per_s["bf16"] == pytest.approx(
        ratio, 0.02)
    assert 1e10 < gpu.scale_up_bandwidth_bytes_per_s <= 2e12
    assert 1e-6 < gpu.scale_up_latency_s < 1e-4
    assert gpu.idle_w < gpu.tdp_w / 3
    assert 0.03 < gpu.price_usd_per_hour < 20


@pytest.mark.parametrize(("name", "precision", "expected"), [
    ("h100-sxm", "bf16", 989.4e12), ("h200-sxm", "fp8", 1978.9e12), ("l40s", "fp8", 733e12), ("l4", "bf16", 121e12),
    ("a100-pcie", "int8", 624e12), ("b200-sxm", "fp4", 9e15), ("gb200", "bf16", 2.5e15), ("mi300x", "bf16", 1307.4e12),
])
def test_flops_are_without_sparsity(name: str, precision: str, expected: float) -> None:
    assert load_gpu(name).flops_per_s[precision] == expected


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_model_loads_by_each_of_its_names(path: Path) -> None:
    entry = tomllib.loads(path.read_text())
    described = describe_model(path.stem)
    assert described["source"]
    for name in (path.stem, *entry["aliases"], *entry.get("variants", {})):
        assert load_model(name.upper()).name == path.stem


def test_no_two_files_share_a_name() -> None:
    for files in (GPUS, MODELS):
        keys = [key for path in files for key in entries._keys_of(path)]
        assert len(keys) == len(set(keys))


@pytest.mark.parametrize(("given", "expected"), [
    ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("h100_sxm", "h100-sxm"), ("H100", "h100-sxm"), ("A100 SXM4", "a100-sxm"),
    ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
    ("rtx_pro_6000_server", "rtx-pro-6000"), ("NVIDIA B200-SXM-180GB", "b200-sxm"), ("RTX4090", "rtx-4090"),
])
def test_gpu_lookup_ignores_case_separators_and_maker(given: str, expected: str) -> None:
    assert load_gpu(given).name == expected


@pytest.mark.parametrize(("names", "expected"), [
    (("meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.3-70B-Instruct"), "llama-3.1-70b"),
    (("meta-llama/Llama-3.1-8B-Instruct",), "llama-3.1-8b"), (("Qwen/Qwen3-32B",), "qwen3-32b"),
    (("meta-llama/Llama-3.1-405B-Instruct", "meta-llama/Llama-3.1-405B-Instruct-FP8"), "llama-3.1-405b"),
    (("meta-llama/Llama-2-70b-hf", "meta-llama/Llama-2-70b-chat-hf"), "llama-2-70b"),
    (("Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-235B-A22B-FP8"), "qwen3-235b-a22b"),
    (("Qwen/Qwen3.5-397B-A17B", "Qwen/Qwen3.5-397B-A17B-FP8", "nvidia/Qwen3.5-397B-A17B-NVFP4"), "qwen3.5-397b-a17b"),
    (("openai/gpt-oss-120b",), "gpt-oss-120b"), (("openai/gpt-oss-20b",), "gpt-oss-20b"),
    (("deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.1",
      "deepseek-ai/DeepSeek-V3-0324"), "deepseek-v3"),
    (("deepseek-ai/DeepSeek-V3.2", "deepseek-ai/DeepSeek-V3.2-Exp"), "deepseek-v3.2"),
    (("MiniMaxAI/MiniMax-M2.5", "MiniMaxAI/MiniMax-M2", "MiniMaxAI/MiniMax-M2.1"), "minimax-m2.5"),
    (("moonshotai/Kimi-K2.5", "moonshotai/Kimi-K2-Thinking"), "kimi-k2.5"),
    (("moonshotai/Kimi-K2-Instruct",), "kimi-k2"),
    (("zhipuai/GLM-5", "zai-org/GLM-5", "zai-org/GLM-5-FP8"), "glm-5"),
    (("zai-org/GLM-4.5", "zai-org/GLM-4.6", "zai-org/GLM-4.6-FP8"), "glm-4.5"),
    (("zai-org/GLM-4.5-Air",), "glm-4.5-air"),
    (("meta-llama/Llama-4-Scout-17B-16E-Instruct",), "llama-4-scout"),
    (("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8",), "llama-4-maverick"),
    (("mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x7B-Instruct-v0.1"), "mixtral-8x7b"),
    (("Qwen/Qwen3-30B-A3B",), "qwen3-30b-a3b"), (("Qwen/Qwen3-Next-80B-A3B-Instruct",), "qwen3-next-80b-a3b"),
    (("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8",), "qwen3-coder-480b-a35b"),
])
def test_names_that_benchmarks_use_are_found(names: tuple[str, ...], expected: str) -> None:
    assert {load_model(name).name for name in names} == {expected}


def test_variants_change_their_keys_only() -> None:
    plain, quantized = load_model("qwen3-235b-a22b"), load_model("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8")
    assert (plain.quantization, quantized.quantization) == (None, "fp8_block")
    assert (plain.max_model_len, quantized.max_model_len) == (40_960, 262_144)
    assert num_parameters(plain) == num_parameters(quantized)


@pytest.mark.parametrize(("name", "base", "formats"), [
    ("Qwen/Qwen2.5-14B-Instruct-GPTQ-Int8", "qwen2.5-14b", ("w8a16", None, None)),
    ("Qwen/QwQ-32B-AWQ", "qwen2.5-32b", ("awq", None, None)),
    ("RedHatAI/Qwen3-8B-quantized.w4a16", "qwen3-8b", ("int4", None, None)),
    ("neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8", "llama-3.1-70b", ("int8", None, None)),
    ("RedHatAI/gemma-3-27b-it-FP8-dynamic", "gemma-3-27b", ("fp8", None, None)),
    ("Qwen/Qwen3-30B-A3B-Thinking-2507-FP8", "qwen3-30b-a3b", ("fp8_block", None, None)),
    ("casperhansen/llama-3.3-70b-instruct-awq", "llama-3.1-70b", ("awq", None, None)),
    ("hugging-quants/Meta-Llama-3.1-405B-Instruct-AWQ-INT4", "llama-3.1-405b", ("awq", None, None)),
    ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "qwen3-14b", ("bnb-4bit", None, None)),
    ("unsloth/Llama-3.3-70B-Instruct", "llama-3.1-70b", (None, None, None)),
    ("unsloth/gpt-oss-20b-BF16", "gpt-oss-20b", (None, None, None)),
    ("amd/Llama-3.3-70B-Instruct-FP8-KV", "llama-3.1-70b", ("fp8", None, None)),
    ("/models/Qwen3-32B-MXFP4", "qwen3-32b", ("mxfp4", None, None)),
    ("someone/Qwen3-Next-80B-A3B-Instruct-FP8-dynamic", "qwen3-next-80b-a3b", ("fp8", None, "bf16")),
    ("nvidia/GLM-4.7-NVFP4", "glm-4.5", ("nvfp4", "bf16", None)),
    ("someone/DeepSeek-R1-NVFP4", "deepseek-v3", ("nvfp4", "bf16", None)),
    ("someone/DeepSeek-V3-0324-AWQ", "deepseek-v3", ("awq", None, None)),
    ("someone/DeepSeek-V4-Pro-NVFP4-FP8", "deepseek-v4-pro", ("fp8_block", None, None)),  # its experts in NVFP4
    ("nvidia/Gemma-4-31B-IT-NVFP4", "gemma-4-31b", ("nvfp4", "bf16", None)),
    ("nvidia/Gemma-4-E4B-it-NVFP4", "gemma-4-e4b", ("nvfp4", "bf16", None)),
    ("RedHatAI/gemma-4-31B-it-NVFP4", "gemma-4-31b", ("nvfp4", None, None)),
    ("nvidia/Qwen3-8B-FP8", "qwen3-8b", ("fp8", None, None)),  # not Qwen's, which is in blocks
    ("nvidia/Qwen3.6-27B-NVFP4", "qwen3.5-27b", ("w4a16_nvfp4", "fp8", None)),
    ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "nemotron-3-super-120b-a12b", ("fp8", "bf16", "fp8")),
    ("nvidia/Nemotron-3-Super-120B-A12B-NVFP4", "nemotron-3-super-120b-a12b", ("fp8", "bf16", "fp8")),
    ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "nemotron-3-super-120b-a12b", ("fp8", "bf16", "fp8")),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", "nemotron-3-nano-30b-a3b", ("nvfp4", "bf16", "nvfp4")),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", "nemotron-3-nano-30b-a3b", ("fp8", "bf16", "fp8")),
    ("nvidia/Llama-3_3-Nemotron-Super-49B-v1_5-FP8", "llama-3.3-nemotron-super-49b", ("fp8", None, None)),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B", "nemotron-3-nano-30b-a3b", (None, None, None)),
    ("nvidia/Gemma-4-26B-A4B-it-NVFP4", "gemma-4-26b-a4b", ("nvfp4", "bf16", None)),
    ("amd/Llama-3.3-70B-Instruct-MXFP4-Preview", "llama-3.1-70b", ("mxfp4", None, None)),
])
def test_a_checkpoint_is_a_known_model_in_the_format_that_its_name_says(
        name: str, base: str, formats: tuple[str | None, ...]) -> None:
    arch = load_model(name)
    assert arch.name == base
    assert (arch.quantization, arch.attention_quantization, arch.linear_quantization) == formats
    assert describe_model(name)["name"] == base
    has_scales = name.endswith("KV") or (name.startswith("nvidia/") and formats[0] is not None)
    assert arch.kv_cache_dtype == ("fp8" if has_scales else load_model(base).kv_cache_dtype)


@pytest.mark.parametrize(("name", "expected"), [
    ("nvidia/Llama-3.3-70B-Instruct-FP8", "fp8"), ("nvidia/Llama-3.3-70B-Instruct-FP4", "fp8"),
    ("nvidia/Llama-3.3-70B-Instruct-NVFP4", "fp8"), ("nvidia/Llama-4-Scout-17B-16E-Instruct-FP8", "fp8"),
    ("nvidia/Qwen3-235B-A22B-FP4", "fp8"), ("nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4", "fp8"),
    ("nvidia/Qwen3-32B-NVFP4", "fp8"), ("nvidia/phi-4-FP8", "fp8"), ("nvidia/Gemma-4-31B-IT-NVFP4", "fp8"),
    ("nvidia/Qwen3.5-397B-A17B-NVFP4", "fp8"),
    ("nvidia/DeepSeek-V3-0324-NVFP4", None), ("nvidia/Llama-3.1-8B-Instruct-FP8", None),  # which state none
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", None), ("RedHatAI/Qwen3-32B-NVFP4", None),
    ("Qwen/Qwen3-32B-FP8", None),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", None),
])
def test_nvidias_checkpoints_state_the_format_of_their_kv_cache(name: str, expected: str | None) -> None:
    """`kv_cache_quant_algo` of their hf_quant_config.json."""
    assert load_model(name).kv_cache_dtype == expected


@pytest.mark.parametrize(("name", "said"), [
    ("unsloth/Qwen3-8B-GGUF", "llama.cpp's format"), ("Qwen/Qwen3-8B-GGUF:Q4_K_M", "llama.cpp's format"),
    ("mlx-community/Qwen3-8B-4bit", "MLX's format"), ("lmstudio-community/Qwen3-8B-MLX-8bit", "MLX's format")])
def test_a_format_that_no_engine_serves_is_refused(name: str, said: str) -> None:
    with pytest.raises(UnknownNameError, match=f"it is in {said}.*give the model's own checkpoint"):
        load_model(name)


@pytest.mark.parametrize("name", ["someone/Qwen3-8B-uncensored", "someone/Qwen3-8B-v2", "someone/Qwen3-8B-W4A8"])
def test_another_word_behind_a_known_name_is_another_model(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"if it is qwen3-8b in another format, give --model qwen3-8b and "
                                               r"--quantization with the format .* else give its config.json"):
        load_model(name)


def test_another_version_is_no_other_format() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean .*'minimax-m3'") as error:
        load_model("MiniMaxAI/MiniMax-M3.5")
    assert "in another format" not in str(error.value)


def test_a_written_command_names_the_checkpoint() -> None:
    assert [hub_name(name) for name in ("qwen3-32b", "qwen3-32b-awq", "me/x", "llama-8b", "qwen3-32b-gptq-int8")] == [
        "Qwen/Qwen3-32B", "Qwen/Qwen3-32B-AWQ", "me/x", "meta-llama/Llama-3.1-8B", "qwen3-32b-gptq-int8"]


@pytest.mark.parametrize(("name", "checkpoint"), [
    ("llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct"), ("llama-3.1-70b", "meta-llama/Llama-3.1-70B"),
    ("deepseek-r1", "deepseek-ai/DeepSeek-R1"), ("gemma-3-27b", "google/gemma-3-27b-it"),
    ("mixtral-8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1")])
def test_a_name_launches_its_own_checkpoint(name: str, checkpoint: str) -> None:
    scenario = Scenario(model=name, gpu="h200-sxm", tensor_parallel_size=8)
    deployment = deploy(scenario)
    assert launch_command(scenario)[0] == f"vllm serve {checkpoint} --tensor-parallel-size 8"
    assert describe_deployment(deployment, 1)["model"] == name
    assert other_checkpoint(name) is None


def test_an_alias_of_no_checkpoint_says_which_one_is_launched() -> None:
    trace = trace_of([(0.0, 10, 10)])
    deployment = resolve(Scenario(model="llama-70b", gpu="h200-sxm", tensor_parallel_size=8), trace)
    assert ("llama-70b is the catalog's llama-3.1-70b, and a launch command names meta-llama/Llama-3.1-70B; --model "
            "takes the name of another checkpoint") in notes(deployment, trace)
    assert deployment.architecture is not None
    assert (deployment.architecture.name, deployment.architecture.profile_name) == ("llama-70b", "llama-3.1-70b")


@pytest.mark.parametrize(("name", "kind"), [
    ("whisper-large-v3", "a speech recognition model"), ("nvidia/parakeet-tdt-0.6b-v2", "a speech recognition model"),
    ("hexgrad/Kokoro-82M", "a speech synthesis model"), ("Qwen/Qwen3-TTS", "a speech synthesis model"),
    ("black-forest-labs/FLUX.1-dev", "an image generation model"), ("Qwen/Qwen-Image", "an image generation model"),
    ("stabilityai/stable-diffusion-xl-base-1.0", "an image generation model"),
    ("Wan-AI/Wan2.2-T2V-A14B", "a video generation model"),
    ("openai/clip-vit-large-patch14", "an encoder of images or sound"),
    ("laion/clap-htsat-unfused", "an encoder of images or sound"), ("timesfm-2.0", "a time series model"),
    ("facebook/musicgen-large", "an audio generation model"), ("facebook/sam2", "an image recognition model"),
    ("google/t5-v1_1-xxl", "an encoder-decoder model")])
def test_a_name_of_another_kind_is_refused_by_its_kind(name: str, kind: str) -> None:
    for read in (load_model, lambda asked: show_profile(asked, Scenario())):
        with pytest.raises(UnknownNameError, match=f"its name says that it is {kind}, and the planner models text "
                                                   "generation, embeddings and rerankers; if it is one") as error:
            read(name)
        assert "did you mean" not in str(error.value)


@pytest.mark.parametrize(("name", "kind"), [
    ("nomic-ai/nomic-embed-text-v1.5", "an embedding model"), ("intfloat/e5-base-v2", "an embedding model"),
    ("Skywork/Skywork-Reward-Llama-3.1-8B", "a reranker or classifier"),
    ("cross-encoder/ms-marco-MiniLM-L6-v2", "a reranker or classifier"), ("bert-base-uncased", "a text encoder")])
def test_a_pooling_model_that_the_catalog_lacks_is_asked_for_its_config(name: str, kind: str) -> None:
    with pytest.raises(UnknownNameError, match=f"its name says that it is {kind} that the catalog does not have; give "
                                               f"its config.json as --model") as error:
        load_model(name)
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize(("changed", "kind"), [
    ({"model_type": "whisper"}, "a speech recognition model"), ({"model_type": "deberta-v2"}, "a text encoder"),
    ({"architectures": ["LlamaForTokenClassification"]}, "a model that labels each token")])
def test_a_config_of_another_kind_is_refused_by_its_kind(changed: dict[str, Any], kind: str, tmp_path: Path) -> None:
    config = tomllib.loads((data_dir("hardware_db") / "models/llama-3.1-8b.toml").read_text())["config"]
    (tmp_path / "config.json").write_text(json.dumps(config | changed))
    with pytest.raises(CatalogError, match=f"this is {kind}, and the planner models text generation"):
        load_model(str(tmp_path))


def test_no_model_of_the_catalog_has_a_name_of_another_kind() -> None:
    for name in model_names():
        model = load_model(name)
        assert model.num_layers > 0
        assert model.pooling or model_refusal(name.lower().replace(".", "-")) is None
    refused = [name for name in gpu_names() if gpu_refusal(name) is not None]  # a name of the catalog is found before
    assert sorted(refused) == sorted(OTHER_ACCELERATORS)


@pytest.mark.parametrize(("name", "profile"), [
    ("TPU v7", "tpu-v7-core"), ("Ironwood", "tpu-v7-core"), ("trn2", "trainium2-core"), ("Trainium3", "trainium3-core"),
    ("Ascend 910C", "ascend-910c-die"), ("Vera Rubin NVL72", "vr200"), ("AMD Instinct MI350P", "mi350p"),
    ("NVIDIA RTX PRO 5000 Blackwell", "rtx-pro-5000"), ("NVIDIA Jetson AGX Thor", "jetson-thor")])
def test_an_accelerator_is_found_by_the_names_that_people_use(name: str, profile: str) -> None:
    assert load_gpu(name).name == profile


@pytest.mark.parametrize("name", OTHER_ACCELERATORS)
def test_a_device_is_what_tensor_parallelism_counts(name: str) -> None:
    capacity = load_gpu(name).provenance["hbm_capacity_bytes"]
    assert name == "gaudi-3" or "device of" in capacity.note


@pytest.mark.parametrize(("name", "maker"), [
    ("gpt-5", "OpenAI"), ("gpt-4o-mini", "OpenAI"), ("openai/o3", "OpenAI"), ("claude-sonnet-4.5", "Anthropic"),
    ("gemini-2.5-pro", "Google"), ("grok-4", "xAI"), ("mistral-medium-3", "Mistral"), ("qwen3-max", "Alibaba")])
def test_a_closed_model_is_refused_by_its_maker(name: str, maker: str) -> None:
    with pytest.raises(UnknownNameError, match=f"it is a closed model of {maker}, and its weights are not") as error:
        load_model(name)
    assert "did you mean" not in str(error.value)
    assert model_refusal("gpt-oss-20b") is model_refusal("gpt-j-6b") is model_refusal("xai-org/grok-2") is None


@pytest.mark.parametrize(("name", "kind"), [
    ("tpu-v5e", "a Google TPU"), ("v6e-8", "a Google TPU"), ("trn1", "an AWS Trainium or Inferentia"),
    ("Apple M3 Ultra", "an Apple chip"), ("ascend-910b", "a Huawei Ascend"), ("Gaudi 2", "an Intel Gaudi other than"),
    ("xeon-6", "a CPU"), ("wse-3", "an accelerator of Cerebras, Groq or SambaNova")])
def test_an_accelerator_that_is_no_gpu_is_refused_by_its_kind(name: str, kind: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown GPU '{name}'; its name says that it is {kind}") as error:
        load_gpu(name)
    assert "did you mean" not in str(error.value)
    assert gpu_refusal("tesla-m40") is gpu_refusal("mi250x") is None


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown GPU 'h100-sxn'; did you mean 'h100-sxm'"):
        load_gpu("h100-sxn")
    with pytest.raises(UnknownNameError, match=r"did you mean 'llama-3.1-8b'"):
        load_model("llama-3.1-8bb")


def test_config_json_file_and_folder(tmp_path: Path) -> None:
    folder = tmp_path / "My-Llama"
    folder.mkdir()
    config = tomllib.loads((data_dir("hardware_db") / "models/llama-3.1-8b.toml").read_text())["config"]
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 16}))
    for given in (folder, folder / "config.json"):
        assert (load_model(str(given)).name, load_model(str(given)).num_layers) == ("My-Llama", 16)
    add_model(folder)
    assert "my-llama" in model_names()
    assert load_model("my-llama").num_layers == 16
    add_model(folder / "config.json", name="llama-3.1-8b")  # the user's entry goes first
    assert load_model("llama-3.1-8b").num_layers == 16


def test_formats_may_be_in_a_file_beside_the_config(tmp_path: Path) -> None:
    """ModelOpt's `hf_quant_config.json`, which a copy in the user's catalog has in itself."""
    config = tomllib.loads((data_dir("hardware_db") / "models/llama-3.1-8b.toml").read_text())["config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    beside = tmp_path / "hf_quant_config.json"
    beside.write_text(json.dumps({"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8",
                                                   "exclude_modules": ["model.layers.*.self_attn.q_proj"]}}))
    arch = load_model(str(tmp_path))
    assert (arch.quantization, arch.attention_quantization, arch.kv_cache_dtype) == ("nvfp4", "bf16", "fp8")
    add_model(tmp_path, name="narrow")
    assert load_model("narrow").quantization == "nvfp4"
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "fp8"}}))
    assert load_model(str(tmp_path)).quantization == "fp8"  # the config's own goes first
    (tmp_path / "config.json").write_text(json.dumps(config))
    beside.write_text(json.dumps({"producer": {"name": "modelopt"}}))
    with pytest.raises(CatalogError, match=r"hf_quant_config\.json: quantization is missing"):
        load_model(str(tmp_path))


def test_added_gpu_goes_before_the_bundled_one(tmp_path: Path, own_catalog: Path) -> None:
    content = (data_dir("hardware_db") / "gpus/l4.toml").read_text()
    (tmp_path / "cheap.toml").write_text(content.replace("value = 0.80", "value = 0"))
    assert add_gpu(tmp_path / "cheap.toml") == own_catalog / "gpus" / "l4.toml"
    assert load_gpu("L4").price_usd_per_hour == 0
    assert [path.name for path in (own_catalog / "gpus").iterdir()] == ["l4.toml"]


@pytest.mark.parametrize(("given", "expected"), [
    ("", "l4"), ("NVIDIA A100-SXM4-80GB", "a100-sxm"), ("A100", "a100-sxm")])
def test_kernels_of_another_gpu_are_found_by_any_of_its_names(tmp_path: Path, given: str, expected: str) -> None:
    content = (data_dir("hardware_db") / "gpus/l4.toml").read_text()
    line = f'kernels_of = "{given}"\n' if given else ""
    (tmp_path / "own.toml").write_text(content.replace("vendor = ", f"{line}vendor = "))
    gpu = load_gpu(str(tmp_path / "own.toml"))
    assert (gpu.kernels_of, gpu.collectives_of) == (expected, "l4")  # the A100s are joined by NVLink, these are not


@pytest.mark.parametrize(("options", "said"), [
    ({}, "the KV cache is in fp8: the checkpoint states this format, and vLLM follows it unless --kv-cache-dtype"),
    ({"engine_version": "0.12.0"}, "states a KV cache in fp8, but vLLM keeps it in 16 bit"),
    ({"kv_cache_dtype": "bf16"}, None), ({"model": "qwen3-32b"}, None)])
def test_a_note_says_where_the_format_of_the_kv_cache_comes_from(options: dict[str, Any], said: str | None) -> None:
    trace = trace_of([(0.0, 10, 1)])
    given = {"model": "nvidia/Qwen3-32B-NVFP4", "gpu": "rtx-pro-6000", "max_model_len": 8192, **options}
    lines = [note for note in notes(resolve(Scenario(**given), trace), trace) if "KV cache in" in note or
             "KV cache is in" in note]
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]


def test_a_result_and_the_catalog_say_whose_kernels_they_are() -> None:
    trace = trace_of([(0.0, 10, 1)])
    said = {gpu: [note for note in notes(resolve(Scenario(model="llama-3.1-8b", gpu=gpu), trace), trace)
                  if "kernels" in note] for gpu in ("h200-sxm", "h200-nvl", "h20")}
    assert said["h200-sxm"] == []
    assert ["kernels measured on h200-sxm, which has the same chip" in note for note in said["h200-nvl"]] == [True]
    assert ["were not measured" in note for note in said["h20"]] == [True]
    values, text = show_profile("h200-nvl", Scenario())
    assert values["kernels_of"] == "h200-sxm"
    assert text.lines()[0].endswith("; kernels of h200-sxm")


@pytest.mark.parametrize(("name", "model"), [
    ("H800", "qwen3-8b"), ("NVIDIA A800-SXM4-80GB", "qwen3-8b"), ("L20", "qwen3-8b"), ("Tesla T4", "qwen3-1.7b"),
    ("V100", "qwen3-8b"), ("DGX-Spark", "qwen3-8b"), ("B60", "qwen3-4b"), ("Gaudi3", "qwen3-8b"),
])
def test_a_gpu_that_nobody_measured_is_predicted_with_a_note(name: str, model: str) -> None:
    trace = trace_of([(0.0, 64, 4)])
    said = " ".join(notes(resolve(Scenario(model=model, gpu=name), trace), trace))
    gpu = load_gpu(name)
    borrowed = f"which has the same chip as {gpu.name}" in said
    assert borrowed == (gpu.name in ("h800-sxm", "a800-sxm", "l20"))
    assert borrowed or f"their kernels were not measured on {gpu.name}" in said


def test_a_note_says_how_bitsandbytes_is_counted() -> None:
    trace = trace_of([(0.0, 64, 4)])
    said = {model: any("bitsandbytes" in note for note in notes(resolve(Scenario(model=model, gpu="l4"), trace), trace))
            for model in ("unsloth/Qwen3-8B-bnb-4bit", "Qwen/Qwen3-8B-AWQ")}
    assert said == {"unsloth/Qwen3-8B-bnb-4bit": True, "Qwen/Qwen3-8B-AWQ": False}


def test_collectives_of_another_gpu_are_those_over_the_same_link() -> None:
    assert {name: load_gpu(name).collectives_of for name in ("a100-sxm-40gb", "a100-pcie", "h200-nvl", "h100-nvl")} == {
        "a100-sxm-40gb": "a100-sxm", "a100-pcie": "a100-pcie", "h200-nvl": "h200-sxm", "h100-nvl": "h100-nvl"}


@pytest.mark.parametrize(("old", "new", "message"), [
    ("dense = true, ", "", r"flops.bf16 lacks dense = true"),
    ('unit = "B/s"', 'unit = "GB/s"', r"hbm_bandwidth.unit = 'GB/s'; must be 'B/s'"),
    ('date = "2023-03"', 'date = "March"', r"date = 'March'; must be yyyy-mm"),
    ('source = "NVIDIA L4 datasheet"', 'source = ""', "source = ''; must be a text"),
    ("value = 300e9", "value = -1", r"hbm_bandwidth.value = -1; must be a positive number"),
    ("value = 300e9", "value = inf", r"hbm_bandwidth.value = inf"),
    ("value = 300e9", "value = 300", r"hbm_bandwidth.value = 300; must be from 1e\+10 to 1e\+15 B/s"),
    ("value = 121e12", "value = 121", r"flops.bf16.value = 121; must be from 1e\+11 to 1e\+18 FLOP/s"),
    ("tdp = ", "tdpp = ", "tdp is missing"),
    ("bf16 = ", "bf61 = ", "unknown precision .* 'bf61'; did you mean 'bf16'"),
    ('vendor = ', 'colour = "red"\nvendor = ', "unknown key .* 'colour'"),
    ('vendor = ', 'launch_speed = {value = 0, unit = "1"}\nvendor = ', r"launch_speed.value = 0; must be a positive"),
    ('vendor = ', 'sustained_clock = {value = 1.2, unit = "1", source = "by hand", date = "2026-01"}\nvendor = ',
     r"sustained_clock.value = 1.2; must be from 0.1 to 1$"),
    ('vendor = ', 'kernels_of = "l5"\nvendor = ', "unknown kernels_of .* 'l5'; did you mean 'l4'"),
    ('vendor = ', 'kernels_of = 4\nvendor = ', "kernels_of = 4; must be a text"),
    ("[flops]", "[flops", "is not valid TOML"),
])
def test_a_wrong_gpu_file_is_refused_and_not_copied(tmp_path: Path, own_catalog: Path, old: str, new: str,
                                                    message: str) -> None:
    content = (data_dir("hardware_db") / "gpus/l4.toml").read_text()
    assert old in content
    (tmp_path / "bad.toml").write_text(content.replace(old, new))
    with pytest.raises((CatalogError, UnknownNameError), match=message):
        add_gpu(tmp_path / "bad.toml")
    assert not own_catalog.exists()


@pytest.mark.parametrize(("name", "like"), [("l4", "l4"), ("H100", "h100-sxm"), ("my-own", None)])
def test_a_profile_that_goes_before_a_bundled_one_is_told_of(tmp_path: Path, own_catalog: Path, name: str,
                                                             like: str | None) -> None:
    content = (data_dir("hardware_db") / "gpus/l4.toml").read_text()
    (tmp_path / "own.toml").write_text(content.replace('name = "l4"', f'name = "{name}"', 1))
    done = CliRunner().invoke(app, ["db", "add-gpu", str(tmp_path / "own.toml")])
    assert done.exit_code == 0
    assert (own_catalog / "gpus" / f"{name.lower()}.toml").is_file()
    assert (f"not the bundled {like};" in done.stderr) == (like is not None)


def test_unreadable_files_are_one_line_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CatalogError, match="cannot be read"):
        load_model(str(tmp_path / "none.json"))
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(CatalogError, match="one table"):
        load_model(str(tmp_path / "list.json"))
    (tmp_path / "bare.toml").write_text('name = "x"')
    with pytest.raises(CatalogError, match=r"\[config\] is missing"):
        load_model(str(tmp_path / "bare.toml"))
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("PLANNER_DB", str(tmp_path / "taken"))
    with pytest.raises(OutputError, match="set PLANNER_DB"):
        add_gpu(GPUS[0])


def test_loading_imports_nothing_slow() -> None:
    code = ("import sys; from planner.deployment import memory; from planner.catalog import catalog_files as entries; "
            "entries.load_gpu('l4'); entries.load_model('phi-4'); "
            "sys.exit(len({'numpy', 'polars', 'numba'} & sys.modules.keys()))")
    root = Path(planner.__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


@pytest.mark.parametrize(("name", "parameters", "context"), [  # published sizes [10^9], and contexts of config.json
    ("deepseek-ai/DeepSeek-V2.5", 236, 163_840), ("deepseek-ai/DeepSeek-Coder-V2-Instruct", 236, 163_840),
    ("moonshotai/Moonlight-16B-A3B-Instruct", 16, 8_192), ("microsoft/Phi-3-medium-4k-instruct", 14, 4_096),
    ("microsoft/Phi-3-medium-128k-instruct", 14, 131_072), ("tiiuae/Falcon-H1-34B-Instruct", 33.6, 262_144),
    ("ai21labs/AI21-Jamba-Large-1.7", 398, 262_144), ("ai21labs/AI21-Jamba-Mini-1.6", 51.6, 262_144),
    ("CohereLabs/c4ai-command-a-03-2025", 111, 131_072), ("CohereForAI/c4ai-command-r-plus-08-2024", 104, 131_072),
    ("mistralai/Ministral-8B-Instruct-2410", 8.02, 32_768),
    ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1.78, 131_072),
    ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 7.62, 131_072)])
def test_models_have_their_published_size(name: str, parameters: float, context: int) -> None:
    arch = load_model(name)
    assert num_parameters(arch) / 1e9 == pytest.approx(parameters, rel=0.005)
    assert arch.max_model_len == context
