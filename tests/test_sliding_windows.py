"""Sliding layers' KV: how engines lay it out, by release, and what running requests are charged for it."""

import doctest
from typing import Any
from unittest.mock import patch

import pytest
from helpers import number, play, trace_of

from planner.catalog.catalog_files import load_model
from planner.deployment.deploy import deploy, resolve
from planner.deployment.memory import MemoryPlan
from planner.deployment.sliding_windows import Windows
from planner.deployment.starting import would_not_start
from planner.engines import kv_groups
from planner.engines.kv_groups import window_pages
from planner.errors import UsageError
from planner.results.notes import notes
from planner.settings.scenario import Scenario

SETTINGS = "planner.deployment.parts.window_settings"
H100: dict[str, Any] = {"gpu": "h100-sxm", "max_num_seqs": 256, "max_num_batched_tokens": 2048}


def plan(model: str, **options: Any) -> MemoryPlan:
    found = deploy(Scenario(**H100 | {"model": model} | options)).memory
    assert found is not None
    return found


def test_doctests_hold() -> None:
    assert not doctest.testmod(kv_groups).failed


@pytest.mark.parametrize(("model", "full", "sliding", "tokens"), [
    ("gpt-oss-20b", 12, 1, (16, 16)), ("gemma-2-9b", 21, 1, (16, 16)), ("gemma-3-27b", 10, 6, (16, 16)),
    ("gemma-4-31b", 10, 5, (32, 16)), ("gemma-4-12b", 8, 5, (64, 16)), ("gemma-4-e2b", 3, 4, (16, 32)),
    ("olmo-3-32b", 16, 3, (16, 16)), ("llama-4-scout", 12, 3, (16, 16)),
])
def test_vllms_groups_have_the_rarer_kinds_layers(model: str, full: int, sliding: int, tokens: tuple[int, int]) -> None:
    """A page has the same bytes in every group; Gemma-3-27B's 52 sliding layers are padded to 60."""
    found = window_pages(load_model(model), 16, 2.0, 1, 1, None)
    assert found is not None
    assert (found.block_size, found.page_size) == tokens
    assert found.page_bytes == sliding * found.block_bytes
    kinds = [attention.kv_bytes(2.0, 1) for attention, _ in load_model(model).by_attention]
    assert found.block_bytes == full * 16 * max(kinds)


def test_ranks_and_stages_divide_the_groups() -> None:
    whole, ranks, stages = (window_pages(load_model("gemma-4-31b"), 16, 2.0, tp, pp, None)
                            for tp, pp in ((1, 1), (8, 1), (1, 2)))
    assert whole is not None
    assert ranks is not None
    assert stages is not None
    assert ranks.block_size == 16  # one KV head of 512 for two of 256
    assert ranks.block_bytes * 8 == whole.block_bytes
    assert stages.block_bytes * 2 == whole.block_bytes


@pytest.mark.parametrize(("model", "release", "is_hybrid"), [
    ("gemma-3-27b", "0.8.5", False), ("gemma-3-27b", "0.10.0", True), ("gemma-3-27b", None, True),
    ("llama-4-scout", "0.11.2", False), ("llama-4-scout", "0.13.0", True),
])
def test_older_releases_keep_all_of_the_context(model: str, release: str | None, is_hybrid: bool) -> None:
    found = window_pages(load_model(model), 16, 2.0, 1, 1, release)
    assert (found is not None) == is_hybrid


def test_capacity_does_not_depend_on_seats_but_by_the_samplers_memory() -> None:
    few, many = plan("gemma-3-27b", max_num_seqs=1), plan("gemma-3-27b", max_num_seqs=256)
    assert few.state_bytes == many.state_bytes == 0
    assert few.kv_bytes - many.kv_bytes == many.activation_bytes - few.activation_bytes
    assert few.kv_bytes_per_token == many.kv_bytes_per_token == 10 * 2 * 16 * 128 * 2


def test_gemma_4_31b_has_what_vllms_logs_say() -> None:
    """~55k tokens in 0.20 and ~525k in 0.21 of about 50 GB, as the line changed (vllm-project/vllm#43308)."""
    before, after = (plan("gemma-4-31b", gpu="a100-sxm", quantization="awq", engine_version=release,
                          kv_cache_memory_bytes=50 * 2**30, max_model_len=131072) for release in ("0.20.0", "0.21.0"))
    assert before.num_gpu_blocks == after.num_gpu_blocks
    assert before.logged_kv_tokens == pytest.approx(55_000, rel=0.02)
    assert after.logged_kv_tokens == pytest.approx(525_000, rel=0.02)


def test_tokens_in_flight_are_two_steps_since_0_26() -> None:
    chunks = {(release, ahead): plan("gemma-3-27b", engine_version=release, async_scheduling=ahead).windows.window_chunk
              for release in ("0.21.0", None) for ahead in (True, False)}
    assert chunks == {("0.21.0", True): 2048, ("0.21.0", False): 2048, (None, True): 4096, (None, False): 2048}


def test_a_window_as_long_as_the_context_is_none() -> None:
    """Then sliding layers keep as much as the others, in the same blocks."""
    within, beyond = (plan("gemma-3-27b", max_model_len=length) for length in (1024, 1025))
    assert within.windows == Windows(block_size=16, bytes_per_token=62 * 2 * 16 * 128 * 2)
    assert beyond.windows.window_tokens == 1024
    assert "window" not in str(within)
    assert "windows of 1,024 tokens" in str(beyond)


def test_the_manager_can_be_disabled() -> None:
    off = plan("gemma-3-27b", disable_hybrid_kv_cache_manager=True)
    assert off.kv_bytes_per_token == 62 * 2 * 16 * 128 * 2


def test_sglang_has_two_pools_where_it_knows_the_model() -> None:
    """gpt-oss-20b: F full tokens and 0.8 F of sliding ones; Gemma 3 is not among its hybrid models."""
    pools, even, off = (plan("gpt-oss-20b", engine="sglang", **options) for options in (
        {}, {"swa_full_tokens_ratio": 1.0}, {"disable_hybrid_kv_cache_manager": True}))
    layer = 12 * 2 * 8 * 64 * 2
    assert pools.kv_bytes_per_token == pytest.approx(1.8 * layer)
    assert even.kv_bytes_per_token == off.kv_bytes_per_token == 2 * layer
    assert plan("gemma-3-27b", engine="sglang").kv_bytes_per_token == 62 * 2 * 16 * 128 * 2
    with pytest.raises(UsageError, match="swa_full_tokens_ratio = 0"):
        Scenario(engine="sglang", swa_full_tokens_ratio=0.0)


def test_sglangs_states_take_the_share_that_is_asked_for() -> None:
    usual, less = (plan("Qwen/Qwen3.5-122B-A10B-FP8", gpu="b200-sxm", engine="sglang", **options) for options in (
        {}, {"mamba_full_memory_ratio": 0.45}))
    assert usual.state_bytes == pytest.approx(0.9 * usual.kv_bytes, rel=0.01)
    assert less.state_bytes == pytest.approx(0.45 * less.kv_bytes, rel=0.01)


def test_tensorrt_llm_keeps_all_of_the_context() -> None:
    """Its log of gpt-oss-120b with FP8 KV: 88.13 GiB are 2,566,934 tokens."""
    found = plan("gpt-oss-120b", gpu="b200-sxm", engine="trtllm", kv_cache_dtype="fp8")
    assert found.kv_bytes_per_token == pytest.approx(88.13 * 2**30 / 2_566_934, rel=1e-4)


def test_window_blocks_are_pages_of_the_window_and_what_is_computed() -> None:
    own = Windows(block_size=32, bytes_per_token=10.0, window_tokens=100, window_chunk=50, window_page_size=10,
                  window_page_bytes=640)
    assert own.window_blocks(length=25, new_tokens=1) == 6  # three pages of two blocks
    assert own.window_blocks(length=1000, new_tokens=1) == 2 * (10 + 1)
    assert own.window_blocks(length=1000, new_tokens=50) == 2 * (15 + 1)
    assert Windows(block_size=16, bytes_per_token=1.0).window_blocks(1000, 50) == 0


WINDOWS = {"window_tokens": 8, "window_chunk": 16, "window_page_size": 4, "window_page_bytes": 20, "block_bytes": 10}


def used_blocks(rows: list[tuple[float, int, int]], **options: Any) -> list[int]:
    with patch(SETTINGS, return_value=WINDOWS):
        result = play(rows, block_size=4, max_num_batched_tokens=16, **options)
    return [int(count) for count in result.steps_table()["num_used_blocks"]]


def test_a_request_returns_its_prompts_pages_once_it_decodes() -> None:
    """40 tokens in chunks of 16 keep 2 x (6 + 1) pages in sliding layers, then 2 x (2 + 1)."""
    used = used_blocks([(0.0, 40, 3)])
    assert used == [4 + 14, 8 + 14, 10 + 14, 11 + 6, 11 + 6]


def test_a_short_request_is_charged_its_length() -> None:
    assert used_blocks([(0.0, 5, 3)]) == [2 + 4, 2 + 4, 2 + 4]  # 8 tokens are 2 pages


def test_what_does_not_fit_with_its_windows_is_rejected() -> None:
    with patch(SETTINGS, return_value=WINDOWS):
        fits, not_ = (play([(0.0, 40, 1)], block_size=4, num_gpu_blocks=count, max_num_batched_tokens=16)
                      for count in (24, 23))
    assert fits.requests_table()["status"].to_list() == ["completed"]
    assert not_.requests_table()["status"].to_list() == ["rejected"]


def test_a_preempted_request_takes_its_windows_again() -> None:
    rows = [(0.0, 12, 30), (0.0, 12, 30)]
    with patch(SETTINGS, return_value=WINDOWS):
        result = play(rows, block_size=4, num_gpu_blocks=28, max_num_batched_tokens=24)
    assert result.records.engine.num_preemptions > 0
    assert result.requests_table()["status"].to_list() == ["completed"] * 2
    assert number(result.steps_table()["num_used_blocks"].max()) <= 28
    assert result.records.engine.num_free_blocks == 28


def test_windows_take_cached_blocks() -> None:
    """A prompt is found again while its blocks are idle, and not once another request's windows took them."""
    def hits(count: int) -> list[int]:
        rows = [(0.0, 17, 1), (1.0, 60, 1), (2.0, 17, 1)]
        ids = [[0, 1, 2, 3], [10 + k for k in range(15)], [0, 1, 2, 3]]
        with patch(SETTINGS, return_value=WINDOWS):
            result = play(trace_of(rows, hash_ids=ids, hash_block_tokens=4), block_size=4, num_gpu_blocks=count,
                          enable_prefix_caching=True, max_num_batched_tokens=16)
        return [int(tokens) for tokens in result.requests_table()["num_cached_tokens"]]

    assert hits(33) == [0, 0, 16]  # 15 blocks, 14 of windows, 4 idle
    assert hits(29) == [0, 0, 0]


def said(rows: list[tuple[float, int, int]], **options: Any) -> str:
    trace = trace_of(rows)
    return " ".join(notes(resolve(Scenario(**options), trace), trace))


@pytest.mark.parametrize(("options", "says"), [
    ({"gpu": "l4"}, True), ({"gpu": "l4", "engine_version": "0.20.2"}, False), ({"gpu": "h100-sxm"}, False),
    ({"gpu": "l4", "cudagraph_mode": "none"}, False), ({"gpu": "l4", "kv_cache_memory_bytes": 2**31}, False),
    ({"gpu": "l4", "engine": "sglang"}, False),
])
def test_graphs_are_named_where_they_matter(options: dict[str, Any], says: bool) -> None:
    assert ("memory of CUDA graphs" in said([(0.0, 10, 10)], model="gpt-oss-20b", **options)) is says


@pytest.mark.parametrize(("rows", "options", "says"), [
    ([(0.0, 100, 20)], {}, True), ([(0.0, 4000, 200)], {}, False), ([(0.0, 100, 20)], {"swa_full_tokens_ratio": 1.0},
                                                                    False),
    ([(0.0, 100, 20)], {"engine": "vllm"}, False),
])
def test_a_second_pool_that_is_full_first_is_named(rows: list[tuple[float, int, int]], options: dict[str, Any],
                                                   says: bool) -> None:
    found = said(rows, **{"model": "gpt-oss-20b", "gpu": "h100-sxm", "engine": "sglang"} | options)
    assert ("100 % of the requests' tokens are within the sliding window of 128 tokens" in found) is says


@pytest.mark.parametrize(("model", "release", "words"), [
    ("gemma-3-27b", "0.21.0", "sliding layers keep 2,048 tokens of a prompt beside their window"),
    ("llama-4-scout", "0.22.0", "sliding layers keep 2,048 tokens"),
    ("gemma-3-27b", "0.30.0", "changes nothing for this model"),
    ("llama-3.1-8b", "0.21.0", "changes nothing for this model"),
])
def test_a_release_says_what_it_does_with_windows(model: str, release: str, words: str) -> None:
    assert words in said([(0.0, 10, 10)], model=model, gpu="b200-sxm", quantization="fp8", engine_version=release,
                         max_num_batched_tokens=2048)


def test_a_longest_context_that_does_not_fit_with_its_windows_is_named() -> None:
    """6 pages of 16 tokens for each of 321 of a window, one for each of the context, and one that is held back."""
    options: dict[str, Any] = {"model": "gemma-3-27b", "gpu": "h100-sxm", "max_num_batched_tokens": 2048}
    blocks, trace = 131_072 // 16 + 6 * 321 + 1, trace_of([(0.0, 10, 10)])
    enough, lacking = (would_not_start(resolve(Scenario(kv_cache_memory_bytes=blocks * 1_310_720 - less, **options),
                                               trace)) for less in (0, 1))
    assert enough is None
    assert "would not start as launched: vLLM's KV cache holds 131,05" in str(lacking)
