"""Operators' formulas: never faster than the hardware, monotone, and the shipped constants reproduce their errors."""

import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UsageError
from planner.steptime.kernel_constants import find_fit
from planner.steptime.operators.collectives import CollectiveConstants, collective_s, sent_bytes
from planner.steptime.operators.gemm import GemmConstants, gemm_s, smooth_maximum
from planner.steptime.operators.moe import MoeConstants, moe_s, touched_experts
from planner.steptime.operators.small import SmallConstants, small_kernel_s

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "benchmarks" / "kernels"
SHARED = ROOT.parent / "shared" / "kernels"
FITS = {name: tomllib.loads((ROOT / f"hardware_db/kernels/{name}.toml").read_text())["fit"]
        for name in ("gemm", "moe", "collectives", "small")}

fractions = st.floats(0.02, 1.0)
tokens = st.integers(1, 32768)
sizes = st.sampled_from([512, 1024, 2880, 4096, 7168, 28672])
gemm_constants = st.builds(GemmConstants, flops_frac=fractions, bandwidth_frac=fractions,
                           quantize_bandwidth_frac=fractions, floor_s=st.floats(0, 1e-4), depth_s=st.floats(0, 1e-8),
                           idle_outputs=st.floats(0, 3e6), sharpness=st.floats(1, 20), narrow_frac=st.floats(0.5, 1))
moe_constants = st.builds(MoeConstants, flops_frac=fractions, bandwidth_frac=fractions, route_bandwidth_frac=fractions,
                          floor_s=st.floats(0, 1e-4), s_per_expert=st.floats(0, 1e-6), depth_s=st.floats(0, 1e-8),
                          padding_tokens=st.floats(0, 256), tile_tokens=st.floats(4, 256), rereads_max=st.floats(0, 4),
                          spread_frac=st.floats(0.1, 1), imbalance_exponent=st.floats(0, 1), sharpness=st.floats(1, 20))
link_constants = st.builds(CollectiveConstants, small_latency_s=st.floats(0, 1e-4), small_bandwidth_frac=fractions,
                           large_latency_s=st.floats(0, 1e-3), large_bandwidth_frac=fractions)
PEAKS: dict[str, Any] = {"flops_per_s": 989.4e12, "bandwidth_bytes_per_s": 3.35e12}
MODELS = ((2880, 2880, 4, 128), (7168, 2048, 8, 256), (4096, 1536, 8, 128), (3072, 1536, 8, 256))
EXACT = 1 - 1e-12


def constants_of(kind: Any, row: dict[str, Any]) -> Any:
    return kind(**{name: row[name] for name in kind.__slots__ if name in row})


@given(m=tokens, n=sizes, k=sizes, constants=gemm_constants, activation=st.sampled_from([2.0, 1.0, 0.5625]))
def test_a_gemm_is_never_faster_than_the_hardware_and_never_faster_with_more_tokens(
        m: int, n: int, k: int, constants: GemmConstants, activation: float) -> None:
    def time_s(m: int, **faster: float) -> float:
        peaks = PEAKS | {name: PEAKS[name] * factor for name, factor in faster.items()}
        return float(gemm_s(m, n, k, weight_bytes_per_element=activation, activation_bytes_per_element=activation,
                            constants=constants, **peaks))
    assert time_s(m) >= EXACT * (n * k + m * k) * activation / PEAKS["bandwidth_bytes_per_s"]
    assert time_s(m) >= EXACT * 2 * m * n * k / PEAKS["flops_per_s"]
    assert time_s(m) >= constants.floor_s
    assert time_s(m + 1) >= EXACT * time_s(m)
    for name in PEAKS:
        assert EXACT * time_s(m, **{name: 2.0}) <= time_s(m)


@given(n=tokens, model=st.sampled_from(MODELS), tp=st.sampled_from([1, 2, 8]), ep=st.sampled_from([1, 2, 8, 32]),
       constants=moe_constants)
def test_experts_are_never_faster_than_the_hardware_and_never_faster_with_more_tokens(
        n: int, model: tuple[int, int, int, int], tp: int, ep: int, constants: MoeConstants) -> None:
    hidden, inter, topk, num_experts = model

    def time_s(n: int, **faster: float) -> float:
        peaks = PEAKS | {name: PEAKS[name] * factor for name, factor in faster.items()}
        return float(moe_s(n, hidden=hidden, inter=inter, topk=topk, num_experts=num_experts, moe_tp=tp, moe_ep=ep,
                           weight_bytes_per_element=2.0, constants=constants, **peaks))
    touched = float(touched_experts(n, topk, num_experts, ep, constants.spread_frac))
    assert 0 < touched <= num_experts / ep
    expert = 3 * hidden * inter / tp
    assert time_s(n) >= EXACT * touched * expert * 2 / PEAKS["bandwidth_bytes_per_s"]
    assert time_s(n) >= EXACT * 2 * expert * n * topk / ep / PEAKS["flops_per_s"]
    assert time_s(n + 1) >= EXACT * time_s(n)
    for name in PEAKS:
        assert EXACT * time_s(n, **{name: 2.0}) <= time_s(n)


@given(size=st.floats(1, 2.0**30), op=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "alltoall"]),
       num_gpus=st.sampled_from([2, 4, 8]), constants=link_constants)
def test_a_collective_is_never_faster_than_its_link_and_never_faster_with_more_bytes(
        size: float, op: str, num_gpus: int, constants: CollectiveConstants) -> None:
    def time_s(size: float, link: float = 450e9) -> float:
        return float(collective_s(size, op=op, num_gpus=num_gpus, link_bandwidth_bytes_per_s=link, constants=constants))
    assert time_s(size) >= EXACT * float(sent_bytes(size, op, num_gpus)) / 450e9
    assert time_s(size * 1.1) >= EXACT * time_s(size)
    assert EXACT * time_s(size, 900e9) <= time_s(size)


def test_narrow_tiles_read_faster_up_to_16_tokens_and_never_beyond_the_peak() -> None:
    """8192 x 8192 in 16 bit are 134 MB: 134 µs at 1 TB/s, 149 at 0.9 of it, 134 of those 149 at 0.9 in narrow tiles."""
    def us(m: int, narrow_frac: float) -> float:
        constants = GemmConstants(flops_frac=1.0, bandwidth_frac=0.9, quantize_bandwidth_frac=1.0, floor_s=0.0,
                                  depth_s=0.0, idle_outputs=0.0, sharpness=20.0, narrow_frac=narrow_frac)
        return 1e6 * float(gemm_s(m, 8192, 8192, weight_bytes_per_element=2.0, activation_bytes_per_element=2.0,
                                  flops_per_s=1e15, bandwidth_bytes_per_s=1e12, constants=constants))
    assert us(1, 1.0) == pytest.approx(149.1, abs=0.1)
    assert us(1, 0.95) == pytest.approx(0.95 * us(1, 1.0))
    assert us(1, 0.9) == pytest.approx(134.2, abs=0.1)
    assert us(1, 0.5) == us(1, 0.9)
    assert us(17, 0.95) == us(17, 1.0) > us(16, 1.0) > us(16, 0.95)
    with pytest.raises(UsageError, match="narrow_frac"):
        us(1, 1.1)


@given(a=st.floats(0, 1), b=st.floats(0, 1), sharpness=st.floats(1, 20))
def test_the_smooth_maximum_lies_between_the_larger_and_the_sum(a: float, b: float, sharpness: float) -> None:
    assert EXACT * max(a, b) <= float(smooth_maximum(a, b, sharpness)) <= (a + b) / EXACT


def test_one_token_touches_its_experts_and_many_tokens_all() -> None:
    assert float(touched_experts(1, 8, 256, 1, 0.5)) == pytest.approx(8)
    assert float(touched_experts(100_000, 8, 256, 8, 1.0)) == pytest.approx(32)


def test_a_tile_is_multiplied_whole() -> None:
    """4,096 by 4,096: a token as 64 of them, 2·64·4,096² operations; as many tokens as rows, as without."""
    slow: dict[str, Any] = {"weight_bytes_per_element": 2.0, "activation_bytes_per_element": 2.0,
                            "flops_per_s": 1e14, "bandwidth_bytes_per_s": 1e13}
    plain = GemmConstants(flops_frac=1.0, bandwidth_frac=1.0, quantize_bandwidth_frac=1.0, floor_s=0.0, depth_s=0.0,
                          idle_outputs=0.0, sharpness=20.0)
    tiled = replace(plain, tile_tokens=64.0)
    one, most, none = (float(gemm_s(m, 4096, 4096, constants=tiled, **slow)) for m in (1, 64, 0))
    assert one == pytest.approx(most, rel=1e-3) == pytest.approx(2 * 64 * 4096**2 / 1e14, rel=1e-3)
    assert most == pytest.approx(float(gemm_s(64, 4096, 4096, constants=plain, **slow)))
    assert none == pytest.approx(float(gemm_s(0, 4096, 4096, constants=plain, **slow)))


def test_medians_with_what_is_known_of_a_gpu_are_still_medians() -> None:
    own = find_fit(GemmConstants, "gemm", gpu="h20", engine="vllm", dtype="bfloat16")
    prior = find_fit(GemmConstants, "gemm", gpu="prior", engine="vllm", dtype="bfloat16")
    assert (own.is_measured, own.constants) == (False, replace(prior.constants, tile_tokens=64.0))


def test_an_expert_with_more_rows_than_a_tile_is_read_again() -> None:
    """Tiles of 8 rows, 8 experts, 1 a token: 128 tokens fill 2 tiles of each, 2·e^-0.5 more reads where 4 are most."""
    constants = MoeConstants(flops_frac=1.0, bandwidth_frac=1.0, route_bandwidth_frac=1.0, floor_s=0.0,
                             s_per_expert=0.0, depth_s=0.0, padding_tokens=0.0, tile_tokens=8.0, rereads_max=0.0,
                             spread_frac=1.0, imbalance_exponent=0.0, sharpness=20.0)
    shape: dict[str, Any] = {"hidden": 4096, "inter": 4096, "topk": 1, "num_experts": 8, "moe_tp": 1,
                             "weight_bytes_per_element": 2.0}

    def time_s(n: int, most: float, ep: int = 1) -> float:
        again = replace(constants, rereads_max=most)
        return float(moe_s(n, moe_ep=ep, constants=again, **shape, **PEAKS))
    weights_s = 8 * 3 * 4096**2 * 2 / PEAKS["bandwidth_bytes_per_s"]
    again = 4.0 * -np.expm1(-2.0 * np.exp(-0.5) / 4.0)
    assert time_s(128, 4.0) - time_s(128, 0.0) == pytest.approx(again * weights_s, rel=1e-3)
    assert time_s(8, 4.0) == pytest.approx(time_s(8, 0.0), rel=0.01)  # a row or two of each: one tile
    assert time_s(1024, 1.0) < 2.2 * time_s(1024, 0.0)
    fewer = [time_s(128, 4.0, ep) / time_s(128, 0.0, ep) for ep in (1, 2, 4)]
    assert fewer[0] > fewer[1] > fewer[2] > 1
    listed = [float(moe_s(4, moe_ep=ep, constants=replace(constants, s_per_expert=1e-6), **shape, **PEAKS)
                    - moe_s(4, moe_ep=ep, constants=constants, **shape, **PEAKS)) for ep in (1, 4)]
    assert listed == pytest.approx([8e-6, 2e-6])  # of 8 experts, and of the 2 that one of 4 GPUs holds


@given(traffic=st.floats(0, 1e10), touched=st.floats(1, 1e10), cache=st.floats(0, 3e8), faster=st.floats(0, 2e13),
       floor_s=st.floats(0, 1e-5), hidden_s=st.floats(0, 1e-5))
def test_a_small_kernel_is_never_slower_for_a_cache_and_never_faster_for_more_bytes(
        traffic: float, touched: float, cache: float, faster: float, floor_s: float, hidden_s: float) -> None:
    constants = SmallConstants(floor_s=floor_s, bandwidth_frac=1.0, cache_bytes=cache,
                               cache_bandwidth_bytes_per_s=faster, hidden_s=hidden_s)

    def time_s(traffic: float, touched: float) -> float:
        return float(small_kernel_s(traffic, touched, bandwidth_bytes_per_s=1e12, constants=constants))
    least_s = max(floor_s, traffic / max(faster, 1e12))
    assert EXACT * least_s <= time_s(traffic, touched) <= (floor_s + traffic / 1e12) / EXACT
    assert time_s(1.5 * traffic, touched) >= EXACT * time_s(traffic, touched)
    assert time_s(traffic, 1.5 * touched) >= EXACT * time_s(traffic, touched)


def test_a_small_kernel_finds_in_the_cache_what_has_room_there() -> None:
    """40 MB of cache at 2 TB/s, memory at 1 TB/s: 20 MB in 10 µs, of 80 MB one half at each rate; 2 µs to launch."""
    constants = SmallConstants(floor_s=1e-6, bandwidth_frac=0.5, cache_bytes=40e6, cache_bandwidth_bytes_per_s=2e12,
                               hidden_s=0.0)
    given: dict[str, Any] = {"bandwidth_bytes_per_s": 2e12, "num_floors": 2.0}
    found = small_kernel_s([20e6, 80e6], [20e6, 80e6], constants=constants, **given)
    assert found * 1e6 == pytest.approx([12.0, 62.0])
    hides = replace(constants, hidden_s=1.5e-6)
    assert small_kernel_s([2e6, 20e6], [2e6, 20e6], constants=hides, **given) * 1e6 == pytest.approx([2.0, 10.5])
    with pytest.raises(UsageError, match="cache_bytes"):
        replace(constants, cache_bytes=-1.0)


def test_constants_outside_physics_are_refused() -> None:
    good = FITS["gemm"][0]
    for name, value in (("flops_frac", 1.2), ("bandwidth_frac", 0.0), ("sharpness", 0.5), ("floor_s", -1e-6)):
        with pytest.raises(UsageError, match=name):
            constants_of(GemmConstants, good | {name: value})
    with pytest.raises(UsageError, match="broadcast"):
        sent_bytes(1.0, "broadcast", 2)
    with pytest.raises(UsageError, match="num_gpus = 1"):
        sent_bytes(1.0, "all_reduce", 1)


def test_every_shipped_fit_is_physical_and_says_how_good_it_is() -> None:
    for name, kind in (("gemm", GemmConstants), ("moe", MoeConstants), ("collectives", CollectiveConstants)):
        for row in FITS[name]:
            constants_of(kind, row)
            assert row["source"]
            assert row["num_points"] > 0
            assert 0 < row["median_ape"] < 0.3, row


def shipped(name: str, **keys: Any) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in FITS[name] if all(row[key] == value for key, value in keys.items()))
    return found


@pytest.mark.skipif(not SHARED.is_dir(), reason="measured tables are not here")
def test_shipped_constants_reproduce_their_measured_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    sys.modules.pop("fitting", None)
    import fit_collectives
    import fit_gemm
    import fit_moe
    import fitting
    import polars as pl

    def error(predicted: Any, table: pl.DataFrame) -> float:
        return float(np.median(np.abs(predicted / (table["latency"].to_numpy() * 1e-3) - 1)))

    row = shipped("gemm", gpu="h100-sxm", engine="vllm", dtype="bfloat16")
    table = fitting.tables("h100_sxm", "gemm", "gemm_perf")["vllm", row["version"]]
    table = fit_gemm.select("h100_sxm", "bfloat16", table.filter(pl.col("gemm_dtype") == "bfloat16"))
    given_constants = {name: row[name] for name in fit_gemm.START}
    assert error(fit_gemm.predict("h100_sxm", "bfloat16", table, given_constants), table) == pytest.approx(
        row["median_ape"], rel=0.02)
    row = shipped("moe", gpu="b200-sxm", engine="vllm", dtype="fp8_block", default=True)
    table = fit_moe.newest("b200_sxm")["vllm", "fp8_block"][1].filter(pl.col("kernel_source") == row["kernel"])
    given_constants = {name: row[name] for name in fit_moe.START}
    assert error(fit_moe.predict("b200_sxm", "fp8_block", table, given_constants), table) == pytest.approx(
        row["median_ape"], rel=0.02)
    row = shipped("collectives", gpu="h100-sxm", engine="vllm", op="all_reduce", num_gpus=8)
    table = next(part[4] for part in fit_collectives.measured("h100_sxm") if part[:4] == (
        "vllm", row["version"], "all_reduce", 8))
    given_constants = {name: row[name] for name in fit_collectives.START}
    assert error(fit_collectives.predict("h100_sxm", "all_reduce", 8, table, given_constants), table) == pytest.approx(
        row["median_ape"], rel=0.05)


@pytest.mark.skipif(not SHARED.is_dir(), reason="measured tables are not here")
def test_the_rtx_4090_reproduces_its_measured_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    sys.modules.pop("fitting", None)
    import fit_gemm

    row = shipped("gemm", gpu="rtx-4090", engine="vllm", dtype="bfloat16")
    table = fit_gemm.select("rtx-4090", "bfloat16", fit_gemm.consumer_table())
    assert set(table["layer"]) == {"qkv_proj", "o_proj", "gate_up_proj", "down_proj", "lm_head"}
    assert table.height == row["num_points"]
    predicted = fit_gemm.predict("rtx-4090", "bfloat16", table, {name: row[name] for name in fit_gemm.BOUNDS})
    ape = np.abs(predicted / (table["latency"].to_numpy() * 1e-3) - 1)
    assert float(np.median(ape)) == pytest.approx(row["median_ape"], rel=0.02)


@pytest.mark.skipif(not SHARED.is_dir(), reason="measured tables are not here")
def test_small_kernels_reproduce_their_measured_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    sys.modules.pop("fitting", None)
    import fit_small

    for gpu, (folder, models) in fit_small.CARDS.items():
        row, found = shipped("small", gpu=gpu), fit_small.fit_card(gpu, folder, models)
        assert found["median_ape"] == pytest.approx(row["median_ape"], rel=0.02)
        assert found["cache_bytes"] == pytest.approx(row["cache_bytes"], rel=0.02)


def test_a_fit_weighs_points_and_a_selection_each_count_of_tokens_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1 s and 4 s a constant finds the middle, 2 s, or the one that outweighs the other."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    sys.modules.pop("fitting", None)
    import fit_gemm
    import fitting
    import polars as pl

    def found(weights: Any) -> float:
        constants, quality = fitting.fit(lambda t: np.full(2, t), {"t": 3.0}, {"t": (0.1, 10.0)}, np.array([1.0, 4.0]),
                                         weights)
        assert quality["num_points"] == 2
        return constants["t"]
    assert found(1.0) == found(np.ones(2)) == pytest.approx(2.0)
    assert found(np.array([100.0, 1.0])) == pytest.approx(1.0, rel=0.01)
    assert found(np.array([1.0, 1.5])) > 2.0
    table = pl.DataFrame({"m": [64] * 3 + [1024] * 3, "n": [4096, 8192, 16384] * 2, "k": [4096, 4096, 8192] * 2})
    kept = fit_gemm.select("rtx_pro_6000_server", "bfloat16", table)  # 34 and 67 MB may stay in L2 up to 512 tokens
    assert kept["weight"].to_list() == pytest.approx([2.0, 2 / 3, 2 / 3, 2 / 3])
    assert set(fit_gemm.select("h100_sxm", "bfloat16", table)["weight"]) == {1.0}
    assert fit_gemm.select("h100_sxm", "bfloat16", table.clear()).is_empty()
    with pytest.raises(ValueError, match="broadcast"):
        found(np.ones(3))


def test_a_constant_that_no_point_depends_on_stays_where_a_fit_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    sys.modules.pop("fitting", None)
    import fitting

    start, bounds = {"told": 3.0, "untold": 0.2}, {"told": (0.1, 10.0), "untold": (1e-4, 1.0)}
    constants, _ = fitting.fit(lambda told, untold: np.full(2, told), start, bounds, np.array([1.0, 4.0]))
    assert constants == pytest.approx({"told": 2.0, "untold": 0.2})
