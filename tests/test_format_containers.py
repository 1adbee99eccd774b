"""Flags that name a container of weight formats: the checkpoint, or the log's line of the resolved config, decides."""

import json
from pathlib import Path

import pytest

from planner.errors import UsageError
from planner.launch.read_command import read_launch

CONFIG = {"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
          "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
          "max_position_embeddings": 40960, "tie_word_embeddings": True}
LOG = """\
(APIServer pid=1) INFO 08-17 20:37:30 [api_utils.py:339]  version 0.27.1
(APIServer pid=1) INFO 08-17 20:37:38 [api_utils.py:273] non-default args: {'model_tag': '/models/mine', 'model': \
'/models/mine', 'max_model_len': 65536, 'quantization': 'modelopt', 'kv_cache_dtype': 'fp8'}
(EngineCore pid=7) INFO 08-17 20:38:20 [core.py:121] Initializing a V1 LLM engine (v0.27.1) with config: \
model='/models/mine', dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=2, pipeline_parallel_size=1, \
quantization=modelopt_fp4, kv_cache_dtype=fp8_e4m3
"""


@pytest.mark.parametrize(("command", "model", "format_name"), [
    ("vllm serve nvidia/Llama-3.3-70B-Instruct-NVFP4 --quantization modelopt", None, None),  # the checkpoint's own
    ("vllm serve nvidia/Llama-3.1-8B-Instruct-FP8 -q modelopt", None, None),
    ("vllm serve RedHatAI/Qwen3-8B-quantized.w4a16 --quantization compressed-tensors", None, None),
    ("vllm serve /models/qwen-NVFP4 --quantization modelopt", "qwen3-8b", "nvfp4"),  # the folder's name says it
    ("vllm serve /models/qwen-int4-AutoRound --quantization auto-round", "qwen3-8b", "gptq"),
    ("vllm serve /models/qwen --quantization modelopt", "qwen3-8b", "fp8"),
    ("vllm serve Qwen/Qwen3-8B --quantization quark", None, None),
    ("vllm serve Qwen/Qwen3-8B --quantization modelopt_fp4", None, "nvfp4"),  # a format, not a container
    ("python -m sglang.launch_server --model-path nvidia/Llama-3.3-70B-Instruct-NVFP4 --quantization modelopt", None,
     None),
])
def test_the_checkpoint_decides_within_a_container(command: str, model: str | None, format_name: str | None) -> None:
    assert read_launch(command, model=model).options.get("quantization") == format_name


STATED = {"modelopt": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
          "compressed-tensors": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
              "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 128}}}},
          "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128}, "fp8": {"quant_method": "fp8"},
          "awq": {"quant_method": "awq", "bits": 4, "group_size": 128},
          "auto-round": {"quant_method": "auto-round", "bits": 4, "group_size": 128}}


@pytest.mark.parametrize(("method", "asked", "is_refused"), [
    ("compressed-tensors", "modelopt", True), ("compressed-tensors", "awq", True), ("compressed-tensors", "fp8", True),
    ("compressed-tensors", "compressed-tensors", False), ("modelopt", "modelopt_fp4", False), ("gptq", "fp8", True),
    ("gptq", "gptq_marlin", False), ("awq", "gptq", True), ("awq", "awq_marlin", False), ("awq", "moe_wna16", False),
    ("auto-round", "inc", False), ("fp8", "modelopt", True), ("modelopt", "fp8", False)])
def test_vllm_refuses_a_method_that_is_not_the_checkpoints(method: str, asked: str, is_refused: bool, tmp_path: Path
                                                           ) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG | {"quantization_config": STATED[method]}))
    for command, model in ((f"vllm serve {tmp_path} -q {asked}", None), (f"vllm serve m/m -q {asked}", str(path))):
        if is_refused:
            with pytest.raises(UsageError, match=rf"--quantization {asked}: the checkpoint \S+ is quantized by "
                               rf"{method}, .*; leave --quantization out, or give --quantization {method}$"):
                read_launch(command, model=model)
        else:
            assert read_launch(command, model=model).options["engine"] == "vllm"
    server = read_launch(f"python -m sglang.launch_server --model-path {tmp_path} --quantization {asked}")
    assert server.options["engine"] == "sglang"  # has a rule of its own


def test_a_method_beside_a_model_that_only_has_the_same_layers_is_read() -> None:
    with pytest.raises(UsageError, match=r"moonshotai/Kimi-K2\.5 is quantized by compressed-tensors"):
        read_launch("vllm serve moonshotai/Kimi-K2.5 -q modelopt")
    assert "a checkpoint with fp8 weights in place of moonshotai/Kimi-K2.5" in read_launch(
        "vllm serve moonshotai/Kimi-K2.5 -q fp8").notes[0]
    assert read_launch("vllm serve /models/mine -q fp8", model="kimi-k2.5").options["quantization"] == "fp8"
    assert read_launch("vllm serve nvidia/Kimi-K2.5-NVFP4 -q modelopt").options["model"] == "nvidia/Kimi-K2.5-NVFP4"


def test_an_assumed_format_is_said() -> None:
    said = dict(read_launch("vllm serve /models/qwen --quantization modelopt", model="qwen3-8b").unmodelled)
    assert "fp8 is assumed" in said["--quantization modelopt"]
    assert not read_launch("vllm serve /models/qwen-nvfp4 --quantization modelopt", model="qwen3-8b").unmodelled


def test_the_resolved_config_of_a_log_outranks_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(LOG)
    options = read_launch(str(tmp_path / "server.log"), model="qwen3-8b").options
    assert options["quantization"] == "nvfp4"
    assert (options["max_model_len"], options["tensor_parallel_size"]) == (32768, 2)
    assert options["engine_version"] == "0.27.1"


def test_a_log_without_that_line_has_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(LOG.splitlines()[1])
    options = read_launch(str(tmp_path / "server.log"), model="qwen3-8b").options
    assert (options["quantization"], options["max_model_len"]) == ("fp8", 65536)
