"""Flags that name a container of weight formats: the checkpoint, or the log's line of the resolved config, decides."""

from pathlib import Path

import pytest

from planner.launch.read_command import read_launch

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
