"""The memory model: measured block counts, weights under every format and layout, and what does not fit."""

import dataclasses
import doctest
import re
from typing import Any

import pytest

from planner.catalog.catalog_files import load_gpu, load_model
from planner.catalog.kv_cache import state_bytes_per_seq
from planner.catalog.parameters import num_parameters
from planner.deployment import memory
from planner.deployment.deploy import deploy
from planner.deployment.engine_limits import limits_of
from planner.deployment.memory import CONTEXT_BYTES, MemoryPlan, activation_bytes, plan_memory, weight_bytes
from planner.deployment.sliding_windows import WindowRules
from planner.engines import sglang, vllm
from planner.errors import CapacityError, UnknownNameError, UsageError
from planner.model.layout import Layout
from planner.results.memory_notes import hybrid_memory
from planner.settings.scenario import Scenario


def plan(model: str = "llama-3.1-8b", gpu: str = "h100-sxm", layout: Layout | None = None,
         **changes: object) -> MemoryPlan:
    settings: dict[str, object] = {
        "engine": "vllm", "quantization": None, "kv_bytes_per_element": 2.0, "gpu_memory_utilization": 0.9,
        "max_num_batched_tokens": 2048, "max_num_seqs": 256, "block_size": 16}
    arch, hardware = load_model(model), load_gpu(gpu)
    return plan_memory(arch, hardware, layout or Layout(), **{**settings, **changes})  # type: ignore[arg-type]


def tensor_parallel(ranks: int) -> Layout:
    return Layout(tensor_parallel_size=ranks)


def experts_over(size: int, gpus: int = 8) -> Layout:
    return Layout(tensor_parallel_size=gpus, expert_parallel_size=size)


def test_doctests_hold() -> None:
    assert not any(doctest.testmod(module).failed for module in (memory, sglang, vllm))


@pytest.mark.parametrize(("gpu", "utilization", "measured"), [
    ("rtx-4090", 0.90, 2588),  # vLLM 0.19, start-up log
    ("h100-sxm", 0.90, 28124),  # vLLM 0.6, 54.93 GiB
    ("a100-sxm", 0.92, 28781),  # vLLM 0.2x, 460,496 tokens
])
def test_blocks_of_llama_3_1_8b_are_those_that_vllm_found(gpu: str, utilization: float, measured: int) -> None:
    assert plan(gpu=gpu, gpu_memory_utilization=utilization).num_gpu_blocks == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "gemma-2-9b",
                                   "RedHatAI/Qwen3.5-35B-A3B-NVFP4"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_parts_add_up(model: str, ranks: int, engine: str) -> None:
    got = plan(model, layout=tensor_parallel(ranks), engine=engine)
    parts = got.weight_bytes + got.activation_bytes + got.communication_bytes + got.runtime_bytes + got.kv_bytes
    parts += got.state_bytes
    assert parts == pytest.approx(got.usable_bytes, rel=1e-12)
    assert got.usable_bytes <= got.capacity_bytes
    block = got.kv_bytes_per_token * got.block_size
    assert 0 <= got.kv_bytes - got.num_gpu_blocks * block < block
    assert got.num_kv_tokens == got.num_gpu_blocks * got.block_size
    assert all(field.name.removesuffix("_bytes") in str(got) for field in dataclasses.fields(got)
               if field.name.endswith("_bytes"))


def test_vllms_share_is_of_all_that_it_uses() -> None:
    assert plan(gpu_memory_utilization=0.8).usable_bytes == 0.8 * load_gpu("h100-sxm").hbm_capacity_bytes


def test_sglangs_share_is_of_weights_and_kv() -> None:
    """mem_fraction_static: activations and buffers live in what it leaves, and take from KV only where that is less."""
    vllm, sglang = plan(gpu_memory_utilization=0.8), plan(engine="sglang", gpu_memory_utilization=0.8)
    assert sglang.weight_bytes + sglang.kv_bytes == pytest.approx(0.8 * (sglang.capacity_bytes - CONTEXT_BYTES))
    assert sglang.kv_bytes - vllm.kv_bytes == pytest.approx(
        vllm.activation_bytes + vllm.runtime_bytes - 0.8 * CONTEXT_BYTES)
    full = plan(engine="sglang", gpu_memory_utilization=1.0)
    assert full.usable_bytes == full.capacity_bytes


@pytest.mark.parametrize("tokens", [
    444_500,  # SGLang 0.4.1, its documentation's log: 54.26 GiB, of 63.72 free after the weights
    442_750,  # March 2025, sequences as many as by default
])
def test_sglang_has_the_tokens_of_its_logs(tokens: int) -> None:
    got = plan(engine="sglang", gpu_memory_utilization=0.88, max_num_seqs=2048, max_num_batched_tokens=8192)
    assert got.num_kv_tokens == pytest.approx(tokens, rel=0.01)


def test_sglangs_own_share_follows_from_gpu_chunk_graphs_and_drafts() -> None:
    """A log of Qwen3-30B-A3B in FP8 on one H100, with SGLang's own settings, has 35.98 GiB for KV."""
    scenario = Scenario(engine="sglang", model="qwen3-30b-a3b", gpu="h100-sxm", quantization="fp8")
    own = deploy(scenario).memory
    assert own is not None
    assert own.kv_bytes / 2**30 == pytest.approx(35.98, rel=0.02)
    h100 = load_gpu("h100-sxm").hbm_capacity_bytes
    usual = sglang.memory_share(h100, 8192, 256)
    kept_gib = {method: (usual - sglang.memory_share(h100, 8192, 256, draft_method=method)) * h100 / 2**30
                for method in ("mtp", "draft_model", "ngram")}
    assert kept_gib == pytest.approx({"mtp": 2, "draft_model": 6, "ngram": 0}, abs=0.1)
    assert sglang.memory_share(h100, 16384, 256) < usual
    assert sglang.memory_share(h100, 2048, 8) == round(1 - 10 * 2**30 / h100, 3)  # 10 GiB at least
    assert sglang.memory_share(h100, 8192, 512, num_gpus=8, num_ranks=8) < sglang.memory_share(
        h100, 8192, 512, num_gpus=8)
    given = deploy(dataclasses.replace(scenario, gpu_memory_utilization=0.8)).memory
    assert given is not None
    assert given.kv_bytes < own.kv_bytes


def test_trtllms_share_is_of_what_weights_and_activations_leave() -> None:
    """free_gpu_memory_fraction."""
    trtllm = plan(engine="trtllm", gpu_memory_utilization=0.8)
    taken = trtllm.weight_bytes + trtllm.activation_bytes + trtllm.runtime_bytes
    assert trtllm.kv_bytes == pytest.approx(0.8 * (trtllm.capacity_bytes - CONTEXT_BYTES - taken))
    assert trtllm.usable_bytes == pytest.approx(taken + trtllm.kv_bytes)
    assert trtllm.kv_bytes > plan(gpu_memory_utilization=0.8).kv_bytes


def test_trtllm_keeps_its_decoders_buffers_beside_the_largest_steps_activations() -> None:
    """Its log of 2,048 sequences of 151,936 logits: 2.66 GB of runtime buffers and 5.76 GB of the decoder."""
    arch = load_model("qwen2.5-7b")
    empty, full = (activation_bytes(arch, 8192, count, 1, "trtllm") for count in (1, 2049))
    assert full - empty == pytest.approx(2048 * arch.vocab_size * 27)
    assert abs((2.66e9 + 5.76e9) / (2048 * 151_936) - 27) < 0.1
    assert activation_bytes(arch, 16, 256, 1, "trtllm") > activation_bytes(arch, 16, 16, 1, "trtllm")  # before any step
    llama = load_model("llama-3.1-8b")
    assert activation_bytes(llama, 2048, 256, 1, "trtllm") == (
        2 * 2048 * 4096 * 2 + 3 * 2048 * 14336 * 2 + 256 * 128256 * 27)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_what_does_not_fit_one_gpu_fits_under_no_engine(engine: str) -> None:
    with pytest.raises(CapacityError, match=r"llama-3.1-70b does not fit one h100-sxm"):
        plan("llama-3.1-70b", engine=engine)


def test_blocks_move_the_right_way() -> None:
    base = plan().num_gpu_blocks
    assert plan(gpu_memory_utilization=0.95).num_gpu_blocks > base
    assert plan(quantization="fp8").num_gpu_blocks > base
    assert plan(kv_bytes_per_element=1.0).num_gpu_blocks in (2 * base, 2 * base + 1)
    assert plan(max_num_seqs=512).num_gpu_blocks < base
    assert plan(max_num_batched_tokens=65536).num_gpu_blocks < base
    assert plan(block_size=32).num_gpu_blocks == base // 2


def test_states_of_linear_attention_are_set_aside_for_every_sequence() -> None:
    def qwen(**changes: object) -> MemoryPlan:
        return plan("Qwen/Qwen3.5-397B-A17B-FP8", "h200-sxm", tensor_parallel(8), **{"engine": "sglang"} | changes)

    few, many = qwen(max_num_seqs=1), qwen(max_num_seqs=257)
    assert many.state_bytes - few.state_bytes == 256 * 45 * 4_268_032 / 8
    assert many.kv_bytes == pytest.approx(few.kv_bytes - 256 * 45 * 4_268_032 / 8)
    assert few.kv_bytes_per_token == 15 * 2 * 256 * 2
    assert many.max_num_seqs == 257
    with pytest.raises(CapacityError, match=r"recurrent states \d+\.\d GiB .*lower max_num_seqs"):
        qwen(engine="trtllm", max_num_seqs=8192, max_num_batched_tokens=2048)
    assert plan().state_bytes == 0


def test_sglang_runs_as_many_as_it_has_room_for_states() -> None:
    """0.9 of what is left for KV: by default 2,048 sequences are asked for, and 98 GB of states on four GPUs."""
    got = plan("Qwen/Qwen3.5-397B-A17B-FP8", "b200-sxm", tensor_parallel(4), engine="sglang", max_num_seqs=2048)
    assert got.state_bytes == pytest.approx(0.9 * got.kv_bytes, rel=0.01)
    assert got.state_bytes == got.max_num_seqs * 45 * 4_268_032 / 4
    assert 300 < got.max_num_seqs < 2048


def test_sglangs_radix_cache_keeps_states_of_prefixes_in_the_same_pool() -> None:
    """The pool is what 0.9 says, whatever is asked for, and a fifth as many sequences run; without overlap a third."""
    options = {"model": "Qwen/Qwen3.5-122B-A10B-FP8", "gpu": "b200-sxm", "engine": "sglang"}

    def divided(**changes: Any) -> MemoryPlan:
        found = deploy(Scenario(**options | changes)).memory
        assert found is not None
        return found

    alone, kept, waits = (divided(**changes) for changes in (
        {"enable_prefix_caching": False}, {}, {"enable_prefix_caching": True, "async_scheduling": False}))
    assert kept.max_num_seqs == alone.max_num_seqs // 5
    assert waits.max_num_seqs == alone.max_num_seqs // 3
    assert kept.state_bytes == alone.state_bytes == waits.state_bytes
    assert divided(max_num_seqs=4).max_num_seqs == 4
    assert divided(max_num_seqs=4).kv_bytes == kept.kv_bytes
    assert divided(enable_prefix_caching=False, max_num_seqs=4).kv_bytes > kept.kv_bytes
    assert divided(model="qwen3-32b").state_bytes == 0


@pytest.mark.parametrize(("model", "ranks", "tokens"), [
    ("Qwen/Qwen3.5-397B-A17B-FP8", 4, 466_752), ("Qwen/Qwen3.5-122B-A10B-FP8", 2, 1_370_784),
    ("Qwen/Qwen3.5-35B-A3B-FP8", 1, 1_178_496), ("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8", 1, 538_016),
])
def test_vllm_keeps_states_in_its_blocks(model: str, ranks: int, tokens: int) -> None:
    """`GPU KV cache size` of vLLM 0.18 on H200 counts a quarter of the pool: one of its four groups of layers."""
    got = plan(model, "h200-sxm", tensor_parallel(ranks), gpu_memory_utilization=0.92, max_num_batched_tokens=8192,
               max_num_seqs=1024)
    assert got.state_bytes == 0
    assert got.state_blocks == 3
    assert got.num_kv_tokens / 4 == pytest.approx(tokens, rel=0.1)


def test_vllm_wants_a_block_for_each_sequences_states() -> None:
    """Its 1,024 sequences exceed the 856 blocks that it has for Qwen3.6-27B-FP8 at 0.95 (vllm-project/recipes#551)."""
    with pytest.raises(CapacityError, match=r"max_num_seqs = 1,024 exceeds the \d+ KV blocks of qwen3.5-27b") as error:
        plan("Qwen/Qwen3.6-27B-FP8", gpu_memory_utilization=0.95, max_num_seqs=1024, max_num_batched_tokens=8192)
    blocks = int(re.findall(r"the (\d+) KV blocks", str(error.value))[0])
    assert blocks == pytest.approx(856, rel=0.05)


@pytest.mark.parametrize(("version", "mode", "starts"), [
    (None, None, False), ("0.20.0", None, False), ("0.20.0", "full_decode_only", False),
    (None, "none", True), (None, "piecewise", True),  # no full graphs
    ("0.18.1", None, True), ("0.19.1", None, True),  # smaller graphs are captured
    ("0.17.0", "none", True),
])
def test_vllm_wants_blocks_for_states_only_for_full_graphs(version: str | None, mode: str | None, starts: bool) -> None:
    """Wheels of 0.17.0, 0.18.1, 0.19.1 and 0.20.0 differ in this check."""
    scenario = Scenario(model="Qwen/Qwen3.6-27B-FP8", gpu="h100-sxm", max_num_seqs=1024, max_num_batched_tokens=8192,
                        max_model_len=8192, engine_version=version, cudagraph_mode=mode)  # type: ignore[arg-type]
    if starts:
        deployment = deploy(scenario)
        assert deployment.memory is not None
        assert deployment.memory.num_gpu_blocks < deployment.memory.max_num_seqs == 1024
        return
    with pytest.raises(CapacityError, match=r"max_num_seqs = 1,024 exceeds the \d+ KV blocks"):
        deploy(scenario)


def test_an_older_vllm_fails_only_at_the_batches_that_it_captures() -> None:
    def divided(graph_seqs: int) -> MemoryPlan:
        return plan("Qwen/Qwen3.6-27B-FP8", gpu_memory_utilization=0.95, max_num_seqs=1024, max_num_batched_tokens=8192,
                    window_rules=WindowRules(version="0.17.0"), graph_seqs=graph_seqs)

    assert divided(512).num_gpu_blocks > 512
    with pytest.raises(CapacityError, match="full CUDA graph"):
        divided(1024)


def test_16_bit_weights_are_two_bytes_a_parameter() -> None:
    for name in ("llama-3.1-8b", "llama-3.2-3b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b", "glm-5", "glm-5.2",
                 "qwen3.5-397b-a17b"):
        arch = load_model(name)
        assert weight_bytes(arch, "bf16", Layout()) == pytest.approx(2 * num_parameters(arch))


@pytest.mark.parametrize(("name", "quantization", "published"), [
    ("deepseek-v3", None, 672e9),  # fp8, checkpoint without the multi-token-prediction layer
    ("gpt-oss-120b", None, 65.2e9), ("gpt-oss-20b", None, 13.76e9),  # mxfp4 experts
    ("llama-3.1-70b", "fp8", 72.7e9), ("llama-3.1-70b", "awq", 39.8e9), ("llama-3.1-8b", "int4", 5.73e9),
    ("nvidia/Llama-3.3-70B-Instruct-FP4", None, 42.7e9), ("moonshotai/Kimi-K2.5", None, 594e9),
    ("nvidia/Qwen3.5-397B-A17B-NVFP4", None, 233e9),  # experts only
    ("nvidia/Qwen3.6-27B-NVFP4", None, 21.9e9),  # noonghunna/club-3090#603
    ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", None, 331e9),  # NVIDIA-NeMo/Nemotron#257
])
def test_quantized_checkpoints_have_their_published_size(name: str, quantization: str | None, published: float,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "expert_padding", lambda *_: 1.0)
    assert weight_bytes(load_model(name), quantization, Layout()) == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(("name", "loaded_gib"), [("gpt-oss-20b", 13.47), ("gpt-oss-120b", 64.38)])
def test_mxfp4_experts_are_padded_as_vllms_log_has_them(name: str, loaded_gib: float) -> None:
    assert weight_bytes(load_model(name), None, Layout()) / 2**30 == pytest.approx(loaded_gib, rel=0.005)


def test_sharding_splits_what_can_be_split() -> None:
    llama = load_model("llama-3.1-70b")
    whole = weight_bytes(llama, "bf16", Layout())
    assert weight_bytes(llama, "bf16", tensor_parallel(4)) == pytest.approx(whole / 4)
    assert whole / 16 < weight_bytes(llama, "bf16", tensor_parallel(16)) < 1.1 * whole / 16  # KV heads are replicated
    staged = weight_bytes(llama, "bf16", Layout(pipeline_parallel_size=2))
    assert whole / 2 < staged + 1 < 1.02 * whole / 2
    qwen = load_model("qwen3-235b-a22b")
    sliced, spread = weight_bytes(qwen, "fp8", tensor_parallel(8)), weight_bytes(qwen, "fp8", experts_over(8))
    assert spread == pytest.approx(sliced)
    uneven, even = weight_bytes(qwen, "fp8", experts_over(12, 12)), weight_bytes(qwen, "fp8", experts_over(4, 12))
    assert uneven > even  # 128 / 12: some hold 11 experts


def test_data_parallel_attention_shares_the_experts() -> None:
    shared = plan("deepseek-v3", "b200-sxm", Layout(data_parallel_size=8, expert_parallel_size=8))
    sliced = plan("deepseek-v3", "b200-sxm", tensor_parallel(8))
    assert shared.weight_bytes > sliced.weight_bytes  # attention is whole on every rank
    assert shared.weight_bytes < 1.3 * sliced.weight_bytes


def test_activations_are_the_larger_of_layer_and_sampler() -> None:
    arch = load_model("llama-3.1-8b")
    assert activation_bytes(arch, 2048, 256, 1, "vllm") == 2 * 2048 * 4096 * 2 + 256 * 128256 * 20
    assert activation_bytes(arch, 65536, 1, 1, "vllm") == 2 * 65536 * 4096 * 2 + 3 * 65536 * 14336 * 2
    few, many = (activation_bytes(arch, 16, seqs, 1, "vllm") for seqs in (16, 256))
    assert few == many  # no more sequences than tokens


@pytest.mark.parametrize(("changes", "remedy"), [
    ({"model": "llama-3.1-70b"}, "one h100-sxm: weights 131.4 GiB.* is usable; raise tensor_parallel_size"),
    ({"model": "llama-3.1-70b", "quantization": "fp8", "max_num_seqs": 4096, "max_num_batched_tokens": 8192},
     "lower max_num_seqs"),
])
def test_what_does_not_fit_says_why(changes: dict[str, object], remedy: str) -> None:
    with pytest.raises(CapacityError, match=remedy):
        plan(**changes)  # type: ignore[arg-type]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="gpu_memory_utilization = 90; must be > 0 and <= 1"):
        plan(gpu_memory_utilization=90)
    with pytest.raises(UsageError, match="max_num_seqs = 0; must be >= 1"):
        plan(max_num_seqs=0)
    with pytest.raises(UnknownNameError, match="unknown quantization 'fp9'; did you mean 'fp"):
        plan(quantization="fp9")


@pytest.mark.parametrize(("model", "engine", "pool_bytes", "tokens"), [
    ("deepseek-v4-flash", "sglang", 7705.45, None),  # of SGLang's own sizing: FP32 rows, a tenth for windows
    ("deepseek-v4-pro", "vllm", 5755.5, 256),
])
def test_compressed_entries_take_what_engines_state(model: str, engine: str, pool_bytes: float,
                                                    tokens: int | None) -> None:
    got = plan(model, "b300-sxm", tensor_parallel(8), engine=engine, kv_bytes_per_element=1.0)
    assert got.kv_bytes_per_token == pytest.approx(pool_bytes, abs=0.005)
    assert got.state_bytes == 0  # windows are in vLLM's blocks and SGLang's pools
    if tokens is not None:
        assert (got.block_size, got.state_blocks) == (tokens, 26)


def test_compressed_windows_are_set_aside_where_no_pool_holds_them() -> None:
    got = plan("deepseek-v4-flash", "b300-sxm", tensor_parallel(8), engine="trtllm", kv_bytes_per_element=1.0)
    assert got.state_bytes == 256 * state_bytes_per_seq(load_model("deepseek-v4-flash"), 1.0, 8, 1) > 3e9
    assert (got.block_size, got.state_blocks) == (16, 0)


@pytest.mark.parametrize(("model", "published"), [
    ("deepseek-v4-flash", 159.6e9), ("deepseek-v4-pro", 864.7e9), ("nvidia/DeepSeek-V4-Flash-NVFP4", 168.3e9),
])
def test_weights_of_mixed_formats_are_those_of_the_checkpoint(model: str, published: float) -> None:
    """The files' 148.6, 805.3 and 156.7 GiB have a multi-token-prediction layer besides, a layer's worth of weights."""
    arch = load_model(model)
    own = weight_bytes(arch, None, Layout())
    assert own * (1 + 1 / arch.num_layers) == pytest.approx(published, rel=0.01)


def test_sglang_runs_256_sequences_of_compressed_attention_on_all_ranks_together() -> None:
    scenario = Scenario(model="deepseek-v4-flash", gpu="b200-sxm", engine="sglang", data_parallel_size=4,
                        data_parallel_attention=True, expert_parallel=True)
    assert deploy(scenario).settings.max_num_seqs == 64
    assert deploy(dataclasses.replace(scenario, max_num_seqs=100)).settings.max_num_seqs == 100


def test_a_chunk_that_reserves_all_memory_is_told_as_such() -> None:
    """SGLang reserves 1.5 MiB for each token of a chunk."""
    with pytest.raises(UsageError, match=r"131,072: SGLang reserves .*give --gpu-memory-utilization"):
        limits_of(Scenario(engine="sglang", max_num_batched_tokens=131072), load_gpu("gb200"), None)
    assert limits_of(Scenario(engine="sglang", max_num_batched_tokens=131072, gpu_memory_utilization=0.9),
                     load_gpu("gb200"), None).gpu_memory_utilization == 0.9


@pytest.mark.parametrize(("options", "least"), [
    ({}, 939), ({"max_num_seqs": 256}, None), ({"engine_version": "0.25.0"}, None), ({"gpu": "b200-sxm"}, None),
    ({"model": "qwen3-32b"}, None), ({"engine": "sglang"}, None), ({"cudagraph_mode": "none"}, None),
    ({"model": "Qwen/Qwen3.6-35B-A3B-FP8", "gpu": "l40s", "max_num_seqs": 8, "max_model_len": 4096}, None)])
def test_a_hybrid_model_may_have_too_few_blocks_for_its_sequences(options: dict[str, Any], least: int | None) -> None:
    """Qwen3.8-27B-FP8 on an RTX PRO 6000 has 939 blocks and refuses 1,024 sequences (vllm-project/recipes#831)."""
    deployed = deploy(Scenario(**({"model": "Qwen/Qwen3.8-27B-FP8", "gpu": "rtx-pro-6000"} | options)))
    said = hybrid_memory(deployed)
    assert bool(said) is (least is not None)
    if least is not None:
        assert deployed.memory is not None
        assert deployed.memory.num_gpu_blocks > deployed.memory.max_num_seqs
        blocks = int(re.findall(r"leaves ([\d,]+)", said[0])[0].replace(",", ""))
        assert blocks == pytest.approx(least, rel=0.02)
