"""Flags of launch commands: every one of an engine's is modelled, without effect, or named with its effect."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from wheel_flags import (
    Flags,
    sglang_flags,
    sglang_kv_types,
    sglang_methods,
    vllm_flags,
    vllm_kv_types,
    vllm_methods,
    wheel,
)

from planner import Scenario
from planner.commands.cli import app
from planner.deployment.deploy import deploy
from planner.engines import ENGINES
from planner.engines.dialect import SGLANG_KV_DTYPES, VLLM_KV_DTYPES
from planner.errors import CapacityError, UsageError
from planner.launch import launch_command, launch_options, read_launch
from planner.launch.flag_names import names_of
from planner.settings.draft_lengths import draft_lengths


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "flags_of"), [("vllm", vllm_flags), ("sglang", sglang_flags)])
def test_every_flag_of_the_newest_wheel_is_in_the_table(engine: str, flags_of: Any,
                                                        tmp_path_factory: pytest.TempPathFactory) -> None:
    source = wheel(engine, tmp_path_factory.getbasetemp())
    if source is None:
        pytest.skip("the package index is not reachable")
    theirs: Flags = flags_of(source)
    assert len(theirs) > 250
    ours = names_of(engine)
    flags = [name for names in theirs for name in names if name != "--help"]
    assert [name for name in flags if name not in ours] == []
    several = [(name, words) for names, words in theirs.items() for name in names
               if words and ours[name] != words and not (words == "one" and ours[name] == "several")]
    assert several == []


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "types_of", "least", "ours"), [
    ("vllm", vllm_kv_types, 15, VLLM_KV_DTYPES), ("sglang", sglang_kv_types, 7, SGLANG_KV_DTYPES)])
def test_every_kv_cache_type_of_the_newest_wheel_is_known(engine: str, types_of: Any, least: int, ours: dict[str, str],
                                                          tmp_path_factory: pytest.TempPathFactory) -> None:
    source = wheel(engine, tmp_path_factory.getbasetemp())
    if source is None:
        pytest.skip("the package index is not reachable")
    theirs = types_of(source)
    assert len(theirs) > least
    assert [name for name in theirs if name not in ours] == []


REFUSED = {  # values of --quantization without a format here
    "vllm": ["experts_int8", "fp_quant", "nvfp4_per_token", "online"],
    "sglang": ["auto-round-int8", "gguf", "mlx_q4", "mlx_q8", "modelslim", "mxfp_w4a8", "nvfp4_online", "petit_nvfp4",
               "quark_int4fp8_moe", "w4afp8"]}


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "methods_of"), [("vllm", vllm_methods), ("sglang", sglang_methods)])
def test_every_quantization_of_the_newest_wheel_is_read_or_known_as_refused(
        engine: str, methods_of: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = wheel(engine, tmp_path_factory.getbasetemp())
    if source is None:
        pytest.skip("the package index is not reachable")
    assert sorted(set(methods_of(source)) - {*quantizations(engine)}) == REFUSED[engine]


def quantizations(engine: str) -> list[str]:
    """Return the values of `--quantization` that a launch command of an engine may have."""
    with pytest.raises(UsageError) as error:
        read_launch({"vllm": "vllm serve m/m", "sglang": "sglang serve m/m"}[engine] + " --quantization none-of-these")
    return str(error.value).partition("must be one of ")[2].split(", ")


@pytest.mark.parametrize(("engine", "name", "format_"), [
    ("vllm", "auto_awq", "awq"), ("vllm", "fp8_per_block", "fp8_block"), ("vllm", "deepseek_v4_fp8", None),
    ("vllm", "int8_per_channel_weight_only", "w8a16"), ("sglang", "quark_mxfp4", "mxfp4"),
    ("sglang", "unquant", "bf16"),
])
def test_a_quantization_method_gives_its_format(engine: str, name: str, format_: str | None) -> None:
    command = {"vllm": "vllm serve Qwen/Qwen3-32B", "sglang": "sglang serve Qwen/Qwen3-32B"}[engine]
    assert read_launch(f"{command} --quantization {name}").options.get("quantization") == format_


@pytest.mark.parametrize("engine", ENGINES)
def test_a_flag_is_in_one_class_only(engine: str) -> None:
    dialect = ENGINES[engine].dialect
    modelled = {name for entry in (*dialect.entries, *dialect.file_entries) for name in entry.names}
    by_value = [name for group in dialect.table.unmodelled if group.only for flag in group.flags for name in flag.names]
    listed = list(dict.fromkeys(by_value)) + [name for flag in dialect.table.known() for name in flag.names
                                              if name not in by_value]
    assert sorted(set(listed)) == sorted(listed)
    assert not modelled & set(listed)
    values = [(name, value) for group in dialect.table.unmodelled for flag in group.flags for name in flag.names
              for value in group.only]
    assert sorted(set(values)) == sorted(values)
    assert all(group.effect.strip() and not group.effect.endswith(".") for group in dialect.table.unmodelled)


@pytest.mark.parametrize(("command", "expected"), [
    ("vllm serve m/m --tensor_parallel 2 --gpu-memory-util=0.8", {"tensor_parallel_size": 2,
                                                                  "gpu_memory_utilization": 0.8}),
    ("sglang serve --model m/m --tp 4 --mem-frac 0.7 --disable-radix", {
        "tensor_parallel_size": 4, "gpu_memory_utilization": 0.7, "enable_prefix_caching": False}),
    ("vllm serve --served-model-name a b --trust-remote-code --model m/m", {}),
    ("vllm serve m/m --disable-expert-parallel --no-enable-prefix-caching", {
        "expert_parallel": False, "enable_prefix_caching": False}),
    ("vllm serve m/m --watermark 0.05 --kv-cache-memory-bytes 20G --max-num-queued-reqs 64", {
        "watermark": 0.05, "kv_cache_memory_bytes": 20 * 2**30, "max_num_queued_reqs": 64}),
    ("vllm serve m/m --cudagraph-capture-sizes 1 2 64 8", {"max_cudagraph_capture_size": 64}),
    ("vllm serve m/m -O0", {"cudagraph_mode": "none", "fuse_allreduce_rms": False}),
    ("vllm serve m/m -O 1", {"cudagraph_mode": "piecewise", "fuse_allreduce_rms": False}),
    ("vllm serve m/m -O3 --optimization-level 2", {}),
    ("vllm serve m/m --spec-method eagle --spec-model o/draft --spec-tokens 3", {
        "speculative_method": "eagle", "num_speculative_tokens": 3}),
    ("sglang serve --model m/m --tp 8 --attn-dp-size 8", {
        "tensor_parallel_size": 1, "data_parallel_size": 8, "data_parallel_attention": True}),
    ("sglang serve --model m/m --lora-paths a=x b=y --max-loras-per-batch 4 --max-lora-rank 32", {
        "max_loras": 4, "max_lora_rank": 32}),
    ("sglang serve --model m/m --enable-lora", {"max_loras": 8}),
    ("sglang serve --model m/m --max-loras-per-batch 4", {}),
    ("sglang serve --model m/m --tp 2 --enable-hierarchical-cache --hicache-size 100 --hicache-write-policy write_back",
     {"tensor_parallel_size": 2, "kv_offloading_size": pytest.approx(200e9 / 2**30), "kv_write_policy": "write_back"}),
    ("sglang serve --model m/m --enable-hicache", {"kv_offloading_ratio": 2.0}),
    ("sglang serve --model m/m --enable-hierarchical-cache --hicache-ratio 1.5", {"kv_offloading_ratio": 1.5}),
    ("sglang serve --model m/m --hicache-ratio 1.5 --hicache-size 0", {}),
    ("sglang serve --model m/m --cuda-graph-backend-decode disabled", {"cudagraph_mode": "none"}),
    ("sglang serve --model m/m --speculative-algorithm NEXTN", {"speculative_method": "mtp",
                                                                "num_speculative_tokens": 3}),
    ("sglang serve --model m/m --speculative-algo NGRAM --speculative-num-draft-tokens 8",
     {"speculative_method": "ngram", "num_speculative_tokens": 7}),
    ("sglang serve --model m/m --tp 2 --enable-ep-moe --device cuda", {"tensor_parallel_size": 2,
                                                                       "expert_parallel": True}),
    ("vllm serve m/m --speculative-model [ngram] --num-speculative-tokens 5", {
        "speculative_method": "ngram", "num_speculative_tokens": 5}),
    ("vllm serve m/m --kv-cache-dtype int8_per_token_head", {"kv_cache_dtype": "int8_per_token_head"}),
    ("vllm serve m/m --kv-cache-dtype float16", {"kv_cache_dtype": "fp16"}),
    ("vllm serve m/m --max-model-len auto --device cuda", {"max_model_len": -1}),
    ("vllm serve m/m -tp 8 --enable-expert-parallel --enable-eplb --eplb-config "
     "'{\"num_redundant_experts\": 32, \"window_size\": 1000}'", {
         "tensor_parallel_size": 8, "expert_parallel": True, "enable_eplb": True, "num_redundant_experts": 32}),
    ("sglang serve --model m/m --tp 8 --ep-size 8 --ep-num-redundant-experts 32 --init-expert-location loads.json", {
        "tensor_parallel_size": 8, "expert_parallel": True, "enable_eplb": True, "num_redundant_experts": 32}),
    ("vllm serve m/m --speculative-config '{\"method\": \"dspark\", \"model\": \"o/dspark_block7\", "
     "\"num_speculative_tokens\": 7, \"num_speculative_tokens_per_batch_size\": [[1, 32, 7], [33, 128, 5]]}'", {
         "speculative_method": "dspark", "num_speculative_tokens": 7,
         "num_speculative_tokens_per_batch_size": "[[1,32,7],[33,128,5]]"}),
    ("vllm serve m/m -dp 2 --speculative-config '{\"method\": \"mtp\", \"num_speculative_tokens\": 3, "
     "\"num_speculative_tokens_per_batch_size\": [[1, 32, 3], [33, 128, 1]]}'", {
         "speculative_method": "mtp", "num_speculative_tokens": 3, "data_parallel_size": 2, "router": "vllm-dp"}),
    ("trtllm-serve m/m --backend _autodeploy", {}),
    ("vllm serve m/m --limit-mm-per-prompt.image 0 --limit-mm-per-prompt.video=0", {"language_model_only": True}),
    ("vllm serve m/m --kv-transfer-config.kv_connector OffloadingConnector --kv-transfer-config.kv_role kv_both "
     "--kv_transfer_config.kv_connector_extra_config.cpu_bytes_to_use 10737418240", {"kv_offloading_size": 10.0}),
    ("vllm serve m/m-speculator.eagle3 --spec-tokens 5", {"speculative_method": "eagle3", "num_speculative_tokens": 5}),
    ("vllm serve m/m --speculative-config '{\"method\": \"suffix\"}'", {
        "speculative_method": "suffix", "num_speculative_tokens": 24}),
    ("sglang serve --model m/m --speculative-algorithm DFLASH --speculative-draft-model-path o/d "
     "--speculative-dflash-block-size 16", {"speculative_method": "dflash", "num_speculative_tokens": 15}),
    ("sglang serve --model m/m --speculative-algorithm DSPARK --speculative-dspark-block-size 7", {
        "speculative_method": "dspark", "num_speculative_tokens": 7}),
])
def test_flags_are_read_as_the_engine_reads_them(command: str, expected: dict[str, Any]) -> None:
    options = dict(read_launch(command).options)
    assert options.pop("model") == "m/m"
    assert options.pop("engine") in command
    assert options == expected


def test_trtllms_host_cache_counts_each_gpu(tmp_path: Path) -> None:
    path = tmp_path / "options.yaml"
    path.write_text("kv_cache_config:\n  host_cache_size: 8589934592\n  enable_partial_reuse: true\n")
    found = read_launch(f"trtllm-serve m/m --tp_size 4 --config {path}")
    assert found.options["kv_offloading_size"] == 32.0
    assert found.unmodelled == ()


@pytest.mark.parametrize(("command", "flags"), [
    ("vllm serve m/m -pcp 1 --dcp-comm-backend=a2a", ["--dcp-comm-backend a2a"]),
    ("vllm serve m/m --decode-context-parallel-size 1", []),
    ("vllm serve m/m --disable-hybrid-kv-cache-manager --attention-backend FLASHINFER",
     ["--attention-backend FLASHINFER"]),
    ("vllm serve m/m --no-disable-hybrid-kv-cache-manager --dtype bfloat16 --runner generate --cpu-offload-gb 0", []),
    ("vllm serve m/m --compilation-config '{\"custom_ops\": [\"none\"]}'", ["--compilation-config.custom_ops none"]),
    ("vllm serve m/m --performance-mode interactivity", ["--performance-mode interactivity"]),
    ("VLLM_ATTENTION_BACKEND=FLASHINFER VLLM_USE_V1=1 vllm serve m/m", ["VLLM_ATTENTION_BACKEND"]),
    ("VLLM_USE_V1=0 vllm serve m/m", ["VLLM_USE_V1"]),
    ("sglang serve --model m/m --tp 8 --ep-size 8 --ep-num-redundant-experts 32", ["--ep-num-redundant-experts 32"]),
    ("sglang serve --model m/m --tbo-token-distribution-threshold 0.3 --attention-backend fa3 --eplb-algorithm auto",
     ["--tbo-token-distribution-threshold", "--attention-backend fa3"]),
    ("sglang serve --model m/m --speculative-algorithm EAGLE3 --speculative-draft-model o/e --speculative-num-steps 5 "
     "--speculative-eagle-topk 1 --speculative-num-draft-tokens 6", []),
    ("sglang serve --model m/m --speculative-algorithm EAGLE3 --speculative-draft-model o/e --speculative-num-steps 5 "
     "--speculative-eagle-topk 8 --speculative-num-draft-tokens 64",
     ["--speculative-eagle-topk 8", "--speculative-num-draft-tokens 64"]),
    ("trtllm-serve m/m --cp_size 2 --max_beam_width 1", ["--cp_size 2"]),
    ("vllm serve m/m --speculative-config '{\"method\": \"dflash\", \"model\": \"o/d\"}'",
     ["speculative decoding with dflash"]),
])
def test_flags_that_are_not_modelled_are_named_with_their_effect(command: str, flags: list[str]) -> None:
    found = read_launch(command)
    assert [flag for flag, _ in found.unmodelled] == flags
    assert all(effect for _, effect in found.unmodelled)


def test_the_notes_keep_the_kinds_apart() -> None:
    _, notes = launch_options("vllm serve m/m --port 8000 --dcp-comm-backend a2a --mystery 7")
    assert notes == [
        "--from-command: left aside, as without effect: --port 8000",
        "--from-command: left aside, as no flag of vLLM that is known: --mystery 7",
        "--from-command: not modelled, and would change the answer: --dcp-comm-backend a2a: spreads the context "
        "of a sequence over GPUs in another way than --decode-context-parallel-size does"]


@pytest.mark.parametrize(("command", "said"), [
    ("vllm serve m/m --tensor-paralel-size 2", "did you mean --tensor-parallel-size?"),
    ("sglang serve --model m/m --max-runing-requests 8", "did you mean --max-running-requests?"),
    ("trtllm-serve m/m --max_batch_sizes 8", "did you mean --max-batch-size?"),
    ("vllm serve m/m --max-num 8", "is ambiguous"),
    ("vllm serve m/m $EXTRA_ARGS", "'$EXTRA_ARGS' belongs to no flag; put the variable's value in its place"),
    ("vllm serve m/m -tp2", "-tp2 is no flag of vLLM"),
    ("vllm serve m/m --device cpu", "no GPU"),
    ("vllm serve m/m --cpu-offload-gb 80", "keeps weights in host memory"),
    ("vllm serve m/m --dtype float32", "computes in 32 bit"),
    ("sglang serve --model m/m --dtype float", "computes in 32 bit"),
    ("vllm serve m/m --task transcription", "must be one of auto, generate"),
    ("vllm serve m/m --runner draft", "must be one of auto, generate, pooling"),
    ("sglang serve --model m/m --encoder-only", "serves neither text"),
    ("trtllm-serve m/m --backend tensorrt", "runs TensorRT engines"),
    ("sglang serve --model m/m --tp 8 --dp 2 --attn-dp-size 4", "replicas (--dp-size) of an engine with 4 ranks"),
    ("vllm serve $MODEL --port 1", "the model is $MODEL, a variable without a single value"),
    ("trtllm-serve m/m --server_role GENERATION", "separate prefill and decode"),
])
def test_what_the_engine_or_a_prediction_cannot_take_is_refused(command: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_launch(command)
    assert said in str(caught.value)


def test_ranks_stay_ranks_if_the_model_is_given_beside_a_path() -> None:
    command = "vllm serve /models/own -dp 4 --enable-expert-parallel"
    options, _ = launch_options(command, model="qwen3-30b-a3b")
    named, _ = launch_options(command.replace("/models/own", "qwen3-30b-a3b"))
    assert options == named
    assert options["data_parallel_attention"]
    assert "data_parallel_attention" not in launch_options(command)[0]


@pytest.mark.parametrize(("flags", "seqs", "tokens"), [
    ("--max-model-len 16384", 1024, 16384),
    ("--max-model-len 4096", 1024, 8192),
    ("", 1024, 131072),  # the model's own longest context
    ("--max-model-len 16384 --max-num-batched-tokens 9000", 1024, 9000),
    ("--max-model-len 16384 --max-num-seqs 1", 1, 16384),
    ("--max-model-len 16384 --performance-mode throughput", 2048, 16384),
    ("--max-model-len 64 --max-num-seqs 4", 4, 256),
])
def test_without_chunks_a_step_takes_the_longest_prompt(flags: str, seqs: int, tokens: int) -> None:
    options, _ = launch_options(f"vllm serve llama-3.1-8b --no-enable-chunked-prefill {flags}")
    settings = deploy(Scenario(**options, gpu="h100-sxm")).settings
    assert (settings.max_num_seqs, settings.max_num_batched_tokens) == (seqs, tokens)


def test_so_it_does_without_a_command() -> None:
    whole = Scenario(model="llama-3.1-8b", gpu="h100-sxm", enable_chunked_prefill=False)
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 131072), ({"max_model_len": 4096}, 8192), ({"max_model_len": 10240}, 10240),
        ({"max_num_batched_tokens": 3000}, 3000), ({"enable_chunked_prefill": True}, 8192)]
    for options, tokens in cases:
        assert deploy(replace(whole, **options)).settings.max_num_batched_tokens == tokens


def with_connector(name: str, role: str = "kv_both", **extra: Any) -> str:
    config = {"kv_connector": name, "kv_role": role} | ({"kv_connector_extra_config": extra} if extra else {})
    return f"vllm serve m/m -tp 2 --kv-transfer-config '{json.dumps(config)}'"


@pytest.mark.parametrize(("command", "gib"), [
    (with_connector("OffloadingConnector", cpu_bytes_to_use=2**36), 64.0),
    ("LMCACHE_MAX_LOCAL_CPU_SIZE=20 " + with_connector("LMCacheConnectorV1"), 40.0),
    (with_connector("MultiConnector", connectors=[
        {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {"cpu_bytes_to_use": 2**35}}]), 32.0),
])
def test_a_connector_to_host_memory_is_a_tier(command: str, gib: float) -> None:
    found = read_launch(command)
    assert found.options["kv_offloading_size"] == gib
    assert found.unmodelled == ()


def test_a_tier_without_prefix_caching_is_left_out_and_said(tmp_path: Path) -> None:
    """vLLM's connector then finds prefixes by itself; TensorRT-LLM fills no tier; SGLang does not start."""
    command = with_connector("OffloadingConnector", cpu_bytes_to_use=2**36)
    assert "kv_offloading_size" in read_launch(command).options
    launch = read_launch(f"{command} --no-enable-prefix-caching")
    assert "kv_offloading_size" not in launch.options
    assert [flag for flag, _ in launch.unmodelled] == ["a KV tier without the engine's prefix caching"]
    path = tmp_path / "options.yaml"
    path.write_text("kv_cache_config: {host_cache_size: 10000000000, enable_block_reuse: false}\n")
    launch = read_launch(f"trtllm-serve m/m --config {path}")
    assert "kv_offloading_size" not in launch.options
    assert "a KV tier without the reuse of blocks" in launch.left_aside


@pytest.mark.parametrize("name", ["LMCacheConnectorV1", "OffloadingConnector", "MooncakeStoreConnector"])
def test_a_tier_without_a_size_points_to_the_option(name: str) -> None:
    found = read_launch(with_connector(name))
    assert "kv_offloading_size" not in found.options
    assert [flag for flag, _ in found.unmodelled] == [f"--kv-transfer-config {name}"]
    assert "--kv-offloading-size" in found.unmodelled[0][1]


def test_layers_on_different_gpus_are_said() -> None:
    found = read_launch("""vllm serve m/m --afd-config '{"afd_role": "attention"}'""")
    assert [flag for flag, _ in found.unmodelled] == ['--afd-config {"afd_role": "attention"}']
    assert "different GPUs (AFD)" in found.unmodelled[0][1]


@pytest.mark.parametrize("command", [
    "LMCACHE_LOCAL_DISK=file:///kv LMCACHE_MAX_LOCAL_DISK_SIZE=200 vllm serve m/m",
    "trtllm-serve m/m --kv_cache_config.disk_cache_size 200000000000",
    "sglang serve --model m/m --enable-hierarchical-cache --hicache-storage-backend file",
])
def test_a_disk_points_to_the_option(command: str) -> None:
    found = read_launch(command)
    assert all("--kv-remote-scope replica" in effect for _, effect in found.unmodelled)
    assert found.unmodelled


@pytest.mark.parametrize(("command", "role"), [
    (with_connector("NixlConnector", "kv_producer"), "prefill"),
    (with_connector("LMCacheConnectorV1", "kv_consumer"), "decode"),
    (with_connector("NixlConnector"), "prefill"),
    (with_connector("NixlConnector"), "decode"),
    ("sglang serve --model m/m --tp 2 --disaggregation-mode decode", "decode"),
    ("trtllm-serve m/m --tp_size 2 --server_role context", "prefill"),
])
def test_a_role_is_a_pools(command: str, role: str) -> None:
    assert read_launch(command, role=role).options["tensor_parallel_size"] == 2
    with pytest.raises(UsageError, match=r"\[\[pool\]\] with role"):
        read_launch(command)
    if "kv_both" not in command:
        with pytest.raises(UsageError, match="give the command to the other pool"):
            read_launch(command, role="decode" if role == "prefill" else "prefill")


@pytest.mark.parametrize("options", [
    {"engine": "sglang", "kv_offloading_ratio": 2.0, "kv_write_policy": "write_back"},
    {"engine": "sglang", "tensor_parallel_size": 2, "kv_offloading_size": 2e9 * 100 / 2**30},
    {"engine": "vllm", "watermark": 0.1, "kv_cache_memory_bytes": 2**34},
    {"engine": "sglang", "max_loras": 4, "max_lora_rank": 32},
    {"engine": "vllm", "kv_cache_dtype": "nvfp4"},
    {"engine": "vllm", "disable_hybrid_kv_cache_manager": True},
    {"engine": "sglang", "swa_full_tokens_ratio": 0.5, "mamba_full_memory_ratio": 0.7},
    {"engine": "sglang", "disable_hybrid_kv_cache_manager": True},
])
def test_new_flags_are_written_and_read_back(options: dict[str, Any]) -> None:
    command, lacking = launch_command(Scenario(model="m/m", **options))
    assert lacking == ()
    assert options.items() <= read_launch(command).options.items()


def test_a_size_that_no_flag_can_say_is_said() -> None:
    assert launch_command(Scenario(engine="sglang", model="m/m", kv_offloading_size=1.5))[1] == (
        "kv_offloading_size = 1.5",)


def test_the_kv_cache_can_be_given_in_bytes() -> None:
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", kv_cache_memory_bytes=2**34)
    memory = deploy(scenario).memory
    assert memory is not None
    assert memory.kv_bytes == 2**34
    assert memory.num_gpu_blocks == 2**34 // (16 * 131072)
    with pytest.raises(CapacityError, match=r"has room for \d+\.\d GiB"):
        deploy(Scenario(model="llama-3.1-8b", gpu="h100-sxm", kv_cache_memory_bytes=2**37))
    with pytest.raises(UsageError, match="leave one of them out"):
        Scenario(kv_cache_memory_bytes=1, num_gpu_blocks=1)


def test_a_host_tier_can_be_a_multiple_of_the_kv_cache() -> None:
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", kv_offloading_ratio=2.0)
    settings = deploy(scenario, enable_prefix_caching=True).settings
    assert settings.cpu_tier is not None
    assert settings.cpu_tier.num_blocks == 2 * settings.num_gpu_blocks
    wrong: list[dict[str, Any]] = [{"kv_offloading_ratio": 0.0},
                                   {"kv_offloading_ratio": 2.0, "kv_offloading_size": 1.0}]
    for options in wrong:
        with pytest.raises(UsageError, match="kv_offloading_ratio"):
            Scenario(**options)


@pytest.mark.parametrize(("method", "tokens", "size"), [("dflash", 15, 16), ("dspark", 7, 7)])
def test_blocks_of_sglang_are_written_by_their_size(method: Any, tokens: int, size: int) -> None:
    scenario = Scenario(model="m/m", engine="sglang", speculative_method=method, num_speculative_tokens=tokens)
    command, _ = launch_command(scenario)
    assert f"--speculative-num-draft-tokens {size}" in command
    assert read_launch(command).options["num_speculative_tokens"] == tokens


def trtllm_options(tmp_path: Path, lines: str) -> dict[str, Any]:
    path = tmp_path / "options.yaml"
    path.write_text(lines)
    found = read_launch(f"trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8 --ep_size 8 --config {path}")
    assert found.unmodelled == ()
    return dict(found.options)


def test_trtllms_draft_lengths_end_with_none(tmp_path: Path) -> None:
    """{4: 3, 16: 1} drafts three tokens for up to 4 requests, one for up to 16, and none for more."""
    options = trtllm_options(tmp_path, "speculative_config:\n  decoding_type: MTP\n  num_nextn_predict_layers: 3\n"
                             "  draft_len_schedule: {4: 3, 16: 1}\n")
    lengths = draft_lengths(options["num_speculative_tokens_per_batch_size"], 3)
    assert (lengths[1], lengths[4], lengths[5], lengths[16], lengths[17], len(lengths)) == (3, 3, 1, 1, 0, 18)
    command, lacking = launch_command(Scenario(**options))
    assert lacking == ()
    assert "  draft_len_schedule:\n    4: 3\n    16: 1\n" in command


def test_trtllms_load_balancer_has_places_for_copies(tmp_path: Path) -> None:
    options = trtllm_options(tmp_path, "moe_config: {backend: WIDEEP, load_balancer: {num_slots: 288}}\n")
    assert (options["enable_eplb"], options["num_redundant_experts"]) == (True, 288 - 256)


@pytest.mark.parametrize(("lines", "message"), [
    ("moe_config: {load_balancer: {num_slots: 100}}", "100 places for 256 experts"),
    ("moe_config: {load_balancer: balancer.yaml}", "put the file's keys in its place"),
    ("speculative_config: {draft_len_schedule: [1, 2]}", "must be a table of batch sizes and draft lengths"),
])
def test_trtllms_tables_that_cannot_be_read(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        trtllm_options(tmp_path, lines)


@pytest.mark.parametrize(("command", "option", "value"), [
    ("vllm serve m/m --max-num-seqs 1_024", "max_num_seqs", 1024),
    ("vllm serve m/m --max-num-batched-tokens 8k", "max_num_batched_tokens", 8000),
    ("vllm serve m/m --kv-cache-memory 20G", "kv_cache_memory_bytes", 20 * 2**30),
    ("python -m sglang.launch_server --model m/m --context-length 32K", "max_model_len", 32768),
    ("python -m sglang.launch_server --model m/m --max-prefill-tokens 1.5k", "max_prefill_tokens", 1500)])
def test_numbers_are_read_as_the_engine_reads_the_flag(command: str, option: str, value: int) -> None:
    """`human_readable_int` in vllm/engine/arg_utils.py and sglang/srt/utils/common.py."""
    assert read_launch(command).options[option] == value


@pytest.mark.parametrize(("command", "said"), [
    ("vllm serve m/m --max-num-seqs 1k", "--max-num-seqs 1k: must be a whole number; this flag has no suffixes: write "
                                         "1000"),
    ("trtllm-serve m/m --max_seq_len 20k", "--max_seq_len 20k: must be a whole number; this flag has no suffixes"),
    ("python -m sglang.launch_server --model m/m --max-running-requests 1k", "this flag has no suffixes: write 1000"),
    ("vllm serve m/m --kv-cache-memory 20GiB", "--kv-cache-memory 20GiB: must be a whole number, or one with a suffix: "
                                               "write 20G"),
    ("vllm serve m/m --kv-cache-memory 20GB", "one with a suffix: write 20g"),
    ("vllm serve m/m --max-model-len 1.5K", "--max-model-len 1.5K: must be a whole number")])
def test_numbers_that_the_engine_refuses_are_refused(command: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_launch(command)
    assert said in str(caught.value)


@pytest.mark.parametrize(("flag", "said"), [
    ("--gpu-memory-utilization 90", r"gpu_memory_utilization = 90.0: must be above 0 and at most 1 \[share\]"),
    ("--tensor-parallel-size 0", r"tensor_parallel_size = 0: must be at least 1 \[GPUs\]")])
def test_launch_refuses_the_values_that_replay_refuses(flag: str, said: str) -> None:
    found = CliRunner().invoke(app, ["launch", f"vllm serve m/m {flag}"])
    assert found.exit_code
    assert re.search(said, str(found.exception))


def test_one_part_of_a_step_is_no_change() -> None:
    """`use_ubatching` in vllm/config/parallel.py: a step is split from two parts on."""
    assert read_launch("vllm serve m/m --ubatch-size 1").left_aside == ("--ubatch-size 1",)
    assert [flag for flag, _ in read_launch("vllm serve m/m -dp 2 --ubatch-size 2").unmodelled] == ["--ubatch-size 2"]
