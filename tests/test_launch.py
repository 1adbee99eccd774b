"""Launch commands of the engines: read, written, and given to the command line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from typer.testing import CliRunner

from planner import Scenario
from planner.commands.cli import app
from planner.deployment.deploy import deploy
from planner.errors import UsageError
from planner.launch import launch_command, read_launch
from planner.planning.study import read_study


@pytest.mark.parametrize(("command", "expected"), [
    ("vllm serve Qwen/Qwen3-32B", {"engine": "vllm"}),
    ("VLLM_USE_V1=1 CUDA_VISIBLE_DEVICES=0,1 /opt/venv/bin/vllm serve Qwen/Qwen3-32B -tp 2 -pp 2",
     {"engine": "vllm", "tensor_parallel_size": 2, "pipeline_parallel_size": 2}),
    ("docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.11.0 --model Qwen/Qwen3-32B --max_model_len=32K",
     {"engine": "vllm", "engine_version": "0.11.0", "max_model_len": 32768}),
    ("docker run --rm lmsysorg/sglang:v0.5.9-cu129-amd64 python3 -m sglang.launch_server --model Qwen/Qwen3-32B",
     {"engine": "sglang", "engine_version": "0.5.9"}),
    ("docker run nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc2 trtllm-serve Qwen/Qwen3-32B",
     {"engine": "trtllm", "engine_version": "1.2.0rc2"}),
    ("docker run registry:5000/vllm/vllm-openai:latest --model Qwen/Qwen3-32B", {"engine": "vllm"}),
    ("docker run lmsysorg/sglang:nightly-dev-20260216 sglang serve --model Qwen/Qwen3-32B", {"engine": "sglang"}),
    ("python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-32B --max-num-batched-tokens 25.6k",
     {"engine": "vllm", "max_num_batched_tokens": 25600}),
    ("vllm serve Qwen/Qwen3-32B --enable-lora", {"engine": "vllm", "max_loras": 1}),
    ("vllm serve Qwen/Qwen3-32B --max-loras 4 --enable-lora --max-lora-rank 32",
     {"engine": "vllm", "max_loras": 4, "max_lora_rank": 32}),
    ("vllm serve Qwen/Qwen3-32B --speculative-config '{\"model\": \"o/EAGLE3-Qwen3\", \"num_speculative_tokens\": 2}'",
     {"engine": "vllm", "num_speculative_tokens": 2, "speculative_method": "eagle3"}),
    ("sglang serve --model Qwen/Qwen3-32B --speculative-algorithm EAGLE --speculative-num-steps 3",
     {"engine": "sglang", "num_speculative_tokens": 3, "speculative_method": "mtp"}),
    ("vllm serve --trust-remote-code Qwen/Qwen3-32B --no-enable-chunked-prefill --enable-prefix-caching",
     {"engine": "vllm", "enable_chunked_prefill": False, "enable_prefix_caching": True}),
    ("vllm serve Qwen/Qwen3-32B --kv-offloading-size 64", {"engine": "vllm", "kv_offloading_size": 64.0}),
    ("vllm serve Qwen/Qwen3-32B \\\n  --enforce-eager \\\n  --max-num-seqs 64 # small\n",
     {"engine": "vllm", "cudagraph_mode": "none", "max_num_seqs": 64}),
    ("vllm serve Qwen/Qwen3-32B --compilation-config '{\"cudagraph_mode\": \"FULL_DECODE_ONLY\", "
     "\"max_cudagraph_capture_size\": 256}' -O.cudagraph_mode=piecewise",
     {"engine": "vllm", "cudagraph_mode": "piecewise", "max_cudagraph_capture_size": 256}),
    ("vllm serve Qwen/Qwen3-32B -O '{\"pass_config\": {\"fuse_allreduce_rms\": false}}'",
     {"engine": "vllm", "fuse_allreduce_rms": False}),
    ("VLLM_MXFP4_USE_MARLIN=1 VLLM_FLOAT32_MATMUL_PRECISION=high vllm serve Qwen/Qwen3-32B",
     {"engine": "vllm", "moe_backend": "marlin", "fp32_matmul": "tf32"}),
    ("VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE=0 vllm serve meta-llama/Llama-4-Scout-17B-16E-Instruct",
     {"model": "meta-llama/Llama-4-Scout-17B-16E-Instruct", "engine": "vllm",
      "disable_hybrid_kv_cache_manager": True}),
    ("VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE=0 vllm serve Qwen/Qwen3-32B --api-key a#b -tp 2 # -tp 4",
     {"model": "Qwen/Qwen3-32B", "engine": "vllm", "tensor_parallel_size": 2}),
    ("VLLM_MXFP4_USE_MARLIN=1 vllm serve Qwen/Qwen3-32B --moe-backend=triton",
     {"engine": "vllm", "moe_backend": "triton"}),
    ("export SGLANG_ENABLE_FLASHINFER_GEMM=true; sglang serve --model Qwen/Qwen3-32B",
     {"engine": "sglang", "fp8_gemm_backend": "flashinfer_trtllm"}),
    ("SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK=512 sglang serve --model Qwen/Qwen3-32B", {"engine": "sglang"}),
    ("SGLANG_SIMULATE_ACC_LEN=3.5 sglang serve --model Qwen/Qwen3-32B",
     {"engine": "sglang", "speculative_acceptance": "length:3.5"}),
    ("vllm serve Qwen/Qwen3-32B --kv-cache-dtype fp8_ds_mla --moe-backend deep_gemm_mega_moe",
     {"engine": "vllm", "kv_cache_dtype": "fp8", "moe_backend": "auto"}),
    ("sglang serve --model Qwen/Qwen3-32B --tp 8 --moe-a2a-backend deepep",
     {"engine": "sglang", "tensor_parallel_size": 8, "expert_parallel": True}),
    ("sglang serve --model Qwen/Qwen3-32B --tp 8 --ep 8 --moe-a2a-backend none",
     {"engine": "sglang", "tensor_parallel_size": 8, "expert_parallel": True,
      "all2all_backend": "allgather_reducescatter"}),
    ("sglang serve --model Qwen/Qwen3-32B --deepep-mode low_latency --tp 8 --dp 8 --enable-dp-attention "
     "--moe-a2a-backend deepep",
     {"engine": "sglang", "data_parallel_size": 8, "data_parallel_attention": True, "expert_parallel": True,
      "tensor_parallel_size": 1, "all2all_backend": "deepep_low_latency"}),
    ("sglang serve --model Qwen/Qwen3-32B --tp 8 --ep-size 4",
     {"engine": "sglang", "tensor_parallel_size": 8, "expert_parallel": True, "expert_tensor_parallel_size": 2}),
    ("sglang serve --model Qwen/Qwen3-32B --tp 8 --dp 8 --ep 4 --enable-dp-attention --moe-a2a-backend deepep",
     {"engine": "sglang", "data_parallel_size": 8, "data_parallel_attention": True, "expert_parallel": True,
      "tensor_parallel_size": 1, "all2all_backend": "deepep"}),  # _handle_a2a_moe: experts are whole
    ("trtllm-serve Qwen/Qwen3-32B --tp_size 8 --ep_size 2",
     {"engine": "trtllm", "tensor_parallel_size": 8, "expert_parallel": True, "expert_tensor_parallel_size": 4}),
    ("sglang serve --model Qwen/Qwen3-32B --tp 8 --dp 8 --enable-dp-attention --moe-a2a-backend megamoe",
     {"engine": "sglang", "data_parallel_size": 8, "data_parallel_attention": True, "expert_parallel": True,
      "tensor_parallel_size": 1, "all2all_backend": "alltoall"}),
    ("vllm serve Qwen/Qwen3-32B --all2all-backend deepep_low_latency", {"engine": "vllm"}),  # nothing to send
    ("vllm serve Qwen/Qwen3-32B --all2all-backend deepep_low_latency --data-parallel-size 8 --enable-expert-parallel",
     {"engine": "vllm", "data_parallel_size": 8, "expert_parallel": True, "all2all_backend": "deepep_low_latency",
      "router": "vllm-dp"}),
    ("vllm serve Qwen/Qwen3-32B --moe-backend marlin", {"engine": "vllm", "moe_backend": "marlin"}),
    ("vllm serve Qwen/Qwen3-32B --kernel-config '{\"moe_backend\": \"triton\"}'",
     {"engine": "vllm", "moe_backend": "triton"}),
    ("vllm serve Qwen/Qwen3-32B --kv-cache-dtype bfloat16", {"engine": "vllm", "kv_cache_dtype": "bf16"}),
    ("vllm serve Qwen/Qwen3-32B --moe-backend deep_gemm", {"engine": "vllm", "moe_backend": "deep_gemm"}),
    ("sglang serve --model Qwen/Qwen3-32B --moe-runner-backend flashinfer_trtllm",
     {"engine": "sglang", "moe_backend": "flashinfer_trtllm"}),
    ("sglang serve --model Qwen/Qwen3-32B --moe-runner-backend flashinfer_cutlass",
     {"engine": "sglang", "moe_backend": "cutlass"}),
    ("vllm serve Qwen/Qwen3-32B --compilation-config.pass_config.enable_fi_allreduce_fusion=true",
     {"engine": "vllm", "fuse_allreduce_rms": True}),
    ("sglang serve --model Qwen/Qwen3-32B --enable-flashinfer-allreduce-fusion",
     {"engine": "sglang", "fuse_allreduce_rms": True}),
    ("vllm serve Qwen/Qwen3-32B --speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 3}'",
     {"engine": "vllm", "num_speculative_tokens": 3, "speculative_method": "mtp"}),
    ("vllm serve Qwen/Qwen3-32B -q awq_marlin --kv-cache-dtype fp8_e4m3 --enable-expert-parallel "
     "--scheduling-policy priority --max-model-len -1 > log 2>&1",
     {"engine": "vllm", "quantization": "awq", "kv_cache_dtype": "fp8", "expert_parallel": True, "policy": "priority",
      "max_model_len": -1}),
    ("python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 4 --ep-size 4 --mem-fraction-static 0.85 "
     "--page-size 64 --max-total-tokens 6400 --disable-radix-cache --disable-overlap-schedule --max-queued-requests 40",
     {"engine": "sglang", "tensor_parallel_size": 4, "expert_parallel": True, "gpu_memory_utilization": 0.85,
      "block_size": 64, "num_gpu_blocks": 100, "enable_prefix_caching": False, "async_scheduling": False,
      "max_queued_requests": 40}),
    ("sglang serve --model Qwen/Qwen3-32B --chunked-prefill-size -1 --ep 1 --schedule-policy fcfs "
     "--fp8-gemm-backend=flashinfer_trtllm",
     {"engine": "sglang", "enable_chunked_prefill": False, "expert_parallel": False, "schedule_policy": "fcfs",
      "fp8_gemm_backend": "flashinfer_trtllm"}),
    ("trtllm-serve serve Qwen/Qwen3-32B --tp_size 8 --max_batch_size 512 --max_num_tokens 4096",
     {"engine": "trtllm", "tensor_parallel_size": 8, "max_num_seqs": 512, "max_num_batched_tokens": 4096}),
])
def test_commands_are_read(command: str, expected: dict[str, Any]) -> None:
    assert read_launch(command).options == {"model": "Qwen/Qwen3-32B"} | expected


def test_what_has_no_part_in_a_prediction_is_listed() -> None:
    found = read_launch("vllm serve m/m --port 8000 --api-key k --max-loras 4 --lora-modules a=b c --trust-remote-code"
                        .replace(" c ", " "))
    assert found.left_aside == ("--port 8000", "--api-key", "--lora-modules a=b", "--trust-remote-code",
                                "--max-loras 4")


def test_of_variables_that_are_not_modelled_the_names_are_listed() -> None:
    found = read_launch("docker run -e HF_TOKEN=secret -e VLLM_USE_V1=1 vllm/vllm-openai:v0.18.0 --model m/m")
    assert found.left_aside == ("HF_TOKEN", "VLLM_USE_V1")


@pytest.mark.parametrize(("variable", "backend"), [
    ("TRTLLM_FORCE_COMM_METHOD=NVLINK_TWO_SIDED", "nvlink_two_sided"), ("TRTLLM_FORCE_ALLTOALL_METHOD=DeepEP",
                                                                        "deepep_high_throughput")])
def test_a_variable_of_tensorrt_llm_says_how_tokens_reach_their_experts(tmp_path: Path, variable: str,
                                                                        backend: str) -> None:
    """Without attention ranks all GPUs have all tokens, and none are sent."""
    path = tmp_path / "options.yml"
    path.write_text("enable_attention_dp: true\n")
    command = f"{variable} trtllm-serve Qwen/Qwen3-30B-A3B --tp_size 16 --ep_size 16"
    assert read_launch(f"{command} --extra_llm_api_options {path}").options["all2all_backend"] == backend
    assert "all2all_backend" not in read_launch(command).options


def test_files_are_read_and_flags_go_over_them(tmp_path: Path) -> None:
    path = tmp_path / "options.yml"
    path.write_text("max_batch_size: 64\nenable_attention_dp: false\nkv_cache_config:\n  dtype: fp8\n"
                    "  max_tokens: 3200\n"
                    "  enable_block_reuse: false\nscheduler_config:\n  capacity_scheduler_policy: MAX_UTILIZATION\n"
                    "  context_chunking_policy: EQUAL_PROGRESS\n"
                    "cuda_graph_config:\n  max_batch_size: 32\n  enable_padding: true\nprint_iter_log: true\n"
                    "moe_config:\n  backend: DEEPGEMM\ntorch_compile_config:\n  enable_piecewise_cuda_graph: true\n"
                    "  capture_num_tokens: [1, 256, 8192, 512]\n")
    found = read_launch(f"trtllm-serve m/m --max_batch_size 128 --extra_llm_api_options {path}")
    assert found.options == {
        "engine": "trtllm", "model": "m/m", "max_num_seqs": 128, "kv_cache_dtype": "fp8", "num_gpu_blocks": 200,
        "enable_prefix_caching": False, "policy": "trtllm-max-utilization",
        "context_chunking_policy": "EQUAL_PROGRESS", "max_cudagraph_capture_size": 32,
        "moe_backend": "deep_gemm", "cudagraph_mode": "full_and_piecewise", "piecewise_cuda_graph_max_tokens": 8192}
    assert found.left_aside == ("--cuda_graph_config.enable_padding True", "--print_iter_log True")
    vllm = tmp_path / "vllm.yml"
    vllm.write_text("model: m/m\ntensor-parallel-size: 2\nenable-prefix-caching: false\n")
    assert read_launch(f"vllm serve --config {vllm}").options == {
        "engine": "vllm", "model": "m/m", "tensor_parallel_size": 2, "enable_prefix_caching": False}


def test_a_script_has_its_command_in_one_of_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text("#!/bin/bash\nexport HF_TOKEN='it''s \"\n# vllm serve x/y\nvllm serve m/m \\\n  -tp 2 \\\n  "
                    "--port 8000 > log\necho done\n")
    found = read_launch(str(path))
    assert found.options == {"engine": "vllm", "model": "m/m", "tensor_parallel_size": 2}
    assert found.left_aside == ("--port 8000",)


def test_vllm_says_in_its_log_what_it_was_launched_with(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        "INFO 11-20 10:00:00 [__init__.py:216] Automatically detected platform cuda.\n"
        "(APIServer pid=7) INFO 11-20 10:00:02 [api_server.py:1977] vLLM API server version 0.11.2\n"
        "(APIServer pid=7) INFO 11-20 10:00:03 [utils.py:233] non-default args: {'model_tag': 'm/m', 'api_key': "
        "['secret'], 'model': 'm/m', 'enable_prefix_caching': False, 'enable_expert_parallel': True, "
        "'tensor_parallel_size': 4, 'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 3}, "
        "'compilation_config': {'cudagraph_mode': 'FULL', 'custom_ops': ['a, b', \"c}'\"]}, 'dtype': None, "
        "'logits_processors': <Some: object>}\nINFO more\n")
    found = read_launch(str(path))
    assert found.options == {
        "engine": "vllm", "engine_version": "0.11.2", "model": "m/m", "enable_prefix_caching": False,
        "expert_parallel": True, "tensor_parallel_size": 4, "speculative_method": "mtp", "num_speculative_tokens": 3,
        "cudagraph_mode": "full_and_piecewise"}
    assert "--api-key" in found.left_aside
    assert "--logits-processors" in found.left_aside
    assert [flag for flag, _ in found.unmodelled] == ["--compilation-config.custom_ops"]
    assert not any("secret" in each for each in found.left_aside)


def test_sglang_says_in_its_log_all_of_its_arguments(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        "[2026-04-05 20:00:00] server_args=ServerArgs(model_path='m/m', tokenizer_path='m/m', tp_size=8, dp_size=1, "
        "ep_size=8, mem_fraction_static=0.85, max_running_requests=None, chunked_prefill_size=8192, quantization='fp8',"
        " disable_radix_cache=True, disable_cuda_graph=False, cuda_graph_bs=[1, 2], disaggregation_mode='null', "
        "api_key='secret')\n")
    found = read_launch(str(path))
    assert found.options == {
        "engine": "sglang", "model": "m/m", "tensor_parallel_size": 8, "data_parallel_size": 1, "expert_parallel": True,
        "gpu_memory_utilization": 0.85, "max_num_batched_tokens": 8192,
        "quantization": "fp8", "enable_prefix_caching": False, "max_cudagraph_capture_size": 2}
    assert found.left_aside == ("2 more of SGLang's arguments",)


def test_a_file_that_launches_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("vllm is an engine\n'\n")
    with pytest.raises(UsageError, match=r"notes\.txt: launches no engine that is known; give a script with"):
        read_launch(str(path))


@pytest.mark.parametrize(("command", "said"), [
    ("nginx -c a.conf", "launches no engine that is known"),
    ("vllm serve", "names no model"),
    ("vllm serve 'm/m", "put quotes around the whole command"),
    ("vllm serve m/m other", "'other' belongs to no flag"),
    ("vllm serve m/m --max-num-seqs", "--max-num-seqs lacks its value"),
    ("vllm serve m/m --max-num-seqs many", "must be a whole number"),
    ("vllm serve m/m --max-num-seqs 0", "--max-num-seqs 0: must be a whole number from 1 on"),
    ("trtllm-serve m/m --max_num_tokens -1", "--max_num_tokens -1: must be a whole number from 1 on"),
    ("vllm serve m/m --kv-transfer-config.kv_connector=NixlConnector --kv-transfer-config.kv_role=kv_both",
     "--kv-transfer-config makes the engine a part of a deployment"),
    ("vllm serve m/m --max-num-seqs $SEQS", "put the variable's value in its place"),
    ("vllm serve m/m --gpu-memory-utilization high", "must be a number"),
    ("vllm serve m/m --quantization rot13", "must be one of fp8, awq"),
    ("vllm serve m/m --speculative-config none", "is not JSON"),
    ("vllm serve m/m --speculative-config [1]", "must be a JSON object"),
    ("vllm serve m/m --config missing.yml", "missing.yml: cannot be read"),
    ("sglang serve --model m/m --tp 4 --ep 3", "experts over 3 groups of 1 GPUs are not 4 GPUs"),
    ("trtllm-serve m/m --tp_size 8 --ep_size 4 --moe_tensor_parallel_size 4", "experts over 4 groups of 4 GPUs"),
    ("sglang serve --model m/m --tp 8 --dp 3 --enable-dp-attention", "must divide them"),
    ("sglang serve --model m/m --disaggregation-mode prefill", "separate prefill and decode"),
])
def test_what_cannot_be_read_is_refused(command: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_launch(command)
    assert said in str(caught.value)


COMMON = {
    "tensor_parallel_size": some.sampled_from((2, 4)), "pipeline_parallel_size": some.just(2),
    "gpu_memory_utilization": some.sampled_from((0.8, 0.95)), "max_model_len": some.integers(1000, 9000),
    "max_num_seqs": some.integers(1, 999), "max_num_batched_tokens": some.integers(1000, 9000),
    "kv_cache_dtype": some.just("fp8"), "stream_interval": some.just(4), "num_speculative_tokens": some.integers(1, 3),
    "max_cudagraph_capture_size": some.just(64), "async_scheduling": some.just(False),
    "enable_prefix_caching": some.just(False), "block_size": some.sampled_from((32, 64)),
}
OWN = {
    "vllm": {"quantization": some.sampled_from(("fp8", "awq", "nvfp4")), "expert_parallel": some.just(True),
             "num_gpu_blocks": some.integers(10, 99), "swap_space": some.just(8.0), "policy": some.just("priority"),
             "max_loras": some.integers(1, 4), "speculative_method": some.sampled_from(("ngram", "mtp", "ngram_gpu")),
             "num_speculative_tokens_per_batch_size": some.just("[[1,8,1],[9,99,0]]"),
             "long_prefill_token_threshold": some.just(512), "enable_chunked_prefill": some.booleans(),
             "scheduler_reserve_full_isl": some.just(False),
             "cudagraph_mode": some.sampled_from(("none", "piecewise", "full_and_piecewise")),
             "fuse_allreduce_rms": some.booleans(), "custom_all_reduce": some.just(False)},
    "sglang": {"max_prefill_tokens": some.just(9000), "schedule_conservativeness": some.just(0.5),
               "scheduler_recv_interval": some.just(3), "cudagraph_mode": some.just("none"),
               "fuse_allreduce_rms": some.booleans(), "custom_all_reduce": some.just(False)},
    "trtllm": {"enable_chunked_prefill": some.booleans(),
               "policy": some.sampled_from(("trtllm-max-utilization", "trtllm-static")),
               "context_chunking_policy": some.just("EQUAL_PROGRESS"),
               "batch_wait_timeout_iters": some.just(4), "batch_wait_max_tokens_ratio": some.just(0.5)},
}


@pytest.mark.parametrize("engine", OWN)
def test_what_is_written_is_read_back(engine: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every option that an engine has a flag for, alone and with others; a file that the command writes is written."""
    folder = tmp_path_factory.mktemp(engine)

    @given(options=some.fixed_dictionaries({}, optional=COMMON | OWN[engine]))
    def check(options: dict[str, Any]) -> None:
        scenario = Scenario(model="m/m", engine=engine, **options)
        command, lacking = launch_command(scenario)
        assert lacking == ()
        if command.startswith("cat"):
            head, body, rest = command.partition("EOF'\n")[0], *command.partition("EOF'\n")[2].split("EOF\n")
            path = folder / "engine.yaml"
            path.write_text(body)
            assert "engine.yaml" in head
            command = rest.replace("engine.yaml", str(path))
        assert Scenario(**read_launch(command).options) == scenario

    check()


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_experts_over_some_of_the_gpus_are_written_and_read_back(engine: str) -> None:
    scenario = Scenario(model="m/m", engine=engine, tensor_parallel_size=8, expert_parallel=True,
                        expert_tensor_parallel_size=2)
    command, lacking = launch_command(scenario)
    assert (lacking, Scenario(**read_launch(command).options)) == ((), scenario)
    assert launch_command(replace(scenario, engine="vllm"))[1] == ("expert_tensor_parallel_size = 2",)


def test_options_without_a_flag_are_said_and_models_get_their_full_names(tmp_path: Path) -> None:
    scenario = Scenario(model="llama-3.1-8b", policy="decode-first", victim="newest")
    command, lacking = launch_command(scenario)
    assert command.startswith("vllm serve meta-llama/Llama-3.1-8B")
    assert lacking == ("policy = decode-first", "victim = newest")
    assert launch_command(Scenario(model=str(tmp_path / "own" / "config.json")))[0].split()[2] == str(tmp_path / "own")
    assert launch_command(Scenario(engine="sglang"))[0].endswith("--model-path MODEL")


@pytest.mark.parametrize(("options", "lacks"), [
    ({"max_num_seqs": 0}, "max_num_seqs = 0"),
    ({"engine": "sglang", "max_num_batched_tokens": 0}, "max_num_batched_tokens = 0"),
    ({"num_speculative_tokens": 2, "speculative_method": "eagle3"},
     "speculative_model, the checkpoint that eagle3 drafts with"),
])
def test_what_an_engine_has_no_word_for_is_said(options: dict[str, Any], lacks: str) -> None:
    command, lacking = launch_command(Scenario(model="m/m", **options))
    assert (lacks,) == lacking
    assert not command.endswith(" 0")
    assert " 0 " not in command


def test_a_drafts_checkpoint_is_written() -> None:
    scenario = Scenario(model="m/m", num_speculative_tokens=2, speculative_method="eagle", speculative_model="m/draft")
    command, lacking = launch_command(scenario)
    assert lacking == ()
    assert "--speculative-config.model m/draft" in command
    assert read_launch(command).options["speculative_method"] == "eagle"


@pytest.mark.parametrize(("gpu", "flags", "seqs", "tokens"), [
    ("h100-sxm", "", 1024, 8192), ("a100-sxm", "", 256, 2048), ("l40s", "", 256, 2048),
    ("l40s", "--max-num-seqs 8", 8, 2048), ("h100-sxm", "--max-num-batched-tokens 512", 512, 512),
    ("l40s", "--performance-mode throughput --max-num-seqs 64", 64, 4096)])
def test_vllms_limits_follow_the_gpu(gpu: str, flags: str, seqs: int, tokens: int) -> None:
    command = f"vllm serve llama-3.1-8b {flags}"
    settings = deploy(Scenario(**read_launch(command).options, gpu=gpu)).settings
    assert (settings.max_num_seqs, settings.max_num_batched_tokens) == (seqs, tokens)


@pytest.mark.parametrize(("command", "share"), [
    ("vllm serve llama-3.1-8b", 0.92),
    ("docker run vllm/vllm-openai:v0.19.1 --model llama-3.1-8b", 0.9),
    ("docker run vllm/vllm-openai:v0.20.0 --model llama-3.1-8b", 0.92),
    ("vllm serve llama-3.1-8b --gpu-memory-utilization 0.8", 0.8),
])
def test_vllms_share_of_the_memory_follows_its_release(command: str, share: float) -> None:
    found = deploy(Scenario(**read_launch(command).options, gpu="h100-sxm"))
    assert found.resolved.limits.gpu_memory_utilization == share


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_the_command_line_takes_a_command_and_options_go_over_it(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    done = invoke("replay", "chat", "--limit", "200", "--gpu", "h100-sxm", "--max-num-seqs", "64", "--json", str(path),
                  "--from-command", "vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2 --max-num-seqs 256 --port 1")
    assert done.exit_code == 0, done.output
    summary = json.loads(path.read_text())
    assert (summary["deployment"]["tensor_parallel_size"], summary["policy"]["max_num_seqs"]) == (2, 64)
    assert summary["policy"]["max_num_batched_tokens"] == 8192
    assert "left aside, as without effect: --port 1" in done.stderr


def test_a_size_prints_the_command_of_its_fleet(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    done = invoke("size", "chat", "--limit", "300", "--gpu", "h100-sxm", "--tensor-parallel-size", "2", "--slo",
                  "ttft:1000", "--json", str(path),
                  "--from-command", "vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 4 --max-num-seqs 256")
    assert done.exit_code == 0, done.output
    expected = ("vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2 "
                "--max-num-seqs 256")
    assert json.loads(path.read_text())["command"] == expected
    assert f"launch: {expected}" in done.output
    assert "its tensor_parallel_size gives way" in done.stderr


def test_a_study_takes_a_command(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('trace = "chat"\ngpu = "l40s"\nmax_num_seqs = 8\n'
                    'from_command = "vllm serve meta-llama/Llama-3.1-8B-Instruct --host 0.0.0.0"\n')
    study = read_study(path)
    assert (study.scenario.max_num_seqs, study.scenario.max_num_batched_tokens) == (8, None)
    assert any("--host 0.0.0.0" in note for note in study.notes)


@pytest.mark.parametrize("tokens", [None, 512])
def test_the_buffer_of_mori_is_read_from_its_variable(tokens: int | None) -> None:
    variable = "" if tokens is None else f"SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK={tokens} "
    options = read_launch(variable + "sglang serve --model deepseek-ai/DeepSeek-R1 --tp 8 --dp 8 --enable-dp-attention "
                          "--moe-a2a-backend mori").options
    assert options["all2all_backend"] == "mori"
    assert options.get("dispatch_tokens_per_rank") == tokens
