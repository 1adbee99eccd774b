"""Fits `planner.steptime.operators.moe` to measured routed experts and writes three files of hardware_db/kernels.

In moe.toml each GPU holds all tokens. In dispatched_moe.toml a GPU gets only the tokens of its own experts (wide EP).
In shaped_moe.toml are experts of one shape, whose newest tables are of other shapes.
"""

from collections.abc import Iterator, Mapping

import polars as pl
from fit_gemm import FORMATS, L2_BYTES, Row, priors, profile, report
from fitting import ROOT, SOURCE, SYSTEMS, fit, tables, write_fits

from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.moe import MoeConstants, moe_s

DISTRIBUTION = "power_law_1.01"  # nearer to real routing than balanced
UNGATED = ((1024, 2688), (2048, 5120), (2688, 1856))  # (hidden, inter) of experts with two matrices
WIDE = {("sglang", "wideep_generation_moe_perf"): "deepep_masked", ("trtllm", "wideep_moe_perf"): "wideep_cutlass"}
# By engine, dtype, kernel and the backend that asks for it. Of gpt-oss-120b, whose experts have biases and a clamped
# activation: the newest table has other models' alone. Of DeepSeek-V3: one fit of CUTLASS's to whole and narrow experts
# of all models is up to 1.6 times its whole experts' table. Of 4-bit experts on one GDDR7 card, as it runs them whole:
# one fit to all shapes is up to 2.4 times the table at one token.
SHAPED = [("trtllm", "w4a8_mxfp4_mxfp8", "moe_torch_flow", "auto", [(2880, 2880, 128)], tuple(SYSTEMS)),
          ("trtllm", "nvfp4", "moe_torch_flow_cutlass", "cutlass", [(7168, 2048, 256)], tuple(SYSTEMS)),
          ("vllm", "nvfp4", "vllm_", "auto", [(2048, 512, 256), (2048, 768, 128), (2816, 704, 128), (3072, 1024, 256),
                                              (3072, 1536, 256)], ("rtx_pro_6000_server",)),
          ("vllm", "w4a16_mxfp4", "vllm_", "auto", [(2880, 2880, 32), (2880, 2880, 128)], ("rtx_pro_6000_server",))]
SHAPE = ("hidden_size", "inter_size", "num_experts")
LARGEST_EP = 4  # of these: on more GPUs a count of tokens has another ratio to the formula
OTHER_KERNELS = "nongated|situ"  # two matrices, or another activation
START = {"flops_frac": 0.5, "bandwidth_frac": 0.85, "route_bandwidth_frac": 0.4, "floor_s": 2e-5, "s_per_expert": 1e-8,
         "depth_s": 2e-9, "padding_tokens": 8.0, "tile_tokens": 16.0, "rereads_max": 0.3, "spread_frac": 0.8,
         "imbalance_exponent": 0.2, "sharpness": 2.0}
BOUNDS = {"flops_frac": (0.02, 1.0), "bandwidth_frac": (0.02, 1.0), "route_bandwidth_frac": (0.02, 1.0),
          "floor_s": (1e-6, 1e-3), "s_per_expert": (1e-12, 1e-5), "depth_s": (1e-13, 1e-7),
          "padding_tokens": (0.01, 256.0), "tile_tokens": (4.0, 256.0), "rereads_max": (1e-3, 4.0),
          "spread_frac": (0.1, 1.0), "imbalance_exponent": (1e-4, 1.0), "sharpness": (1.0, 20.0)}


def main() -> None:
    fit_all()
    fit_dispatched()
    fit_shaped()


def fit_shaped() -> None:
    """Fit experts of one shape on GPUs that hold whole experts, and the tables' ratio to the formula by octaves."""
    rows: list[Row] = []
    for system in SYSTEMS:
        for engine, dtype, kernel, backend, sizes in shaped_on(system):
            shape = dict(zip(SHAPE, sizes, strict=True))
            found = of_shape(system, engine, dtype, kernel, shape)
            if found is None:
                continue
            version, chosen = found
            constants, quality = fit(
                lambda chosen=chosen, dtype=dtype, system=system, **given: predict(system, dtype, chosen, given),
                START, BOUNDS, chosen["latency"].to_numpy() * 1e-3)
            rows.append({"gpu": SYSTEMS[system], "engine": engine, "version": version, "dtype": dtype,
                         "kernel": chosen["kernel_source"][0], "backend": backend, **shape, "largest_ep": LARGEST_EP,
                         **constants,
                         **ratios(chosen, predict(system, dtype, chosen, constants)), **quality,
                         "source": f"{SOURCE}; {DISTRIBUTION}"})
            report(rows[-1])
    write_fits(ROOT / "hardware_db/kernels/shaped_moe.toml",
               "Constants of steptime/operators/moe.py for experts of one shape, where GPUs hold whole experts;\n"
               "written by benchmarks/kernels/fit_moe.py. `ratios` divides the measured time by the formula's time:\n"
               "the median over an octave around `at_tokens`. A fraction is a share of the peak in hardware_db/gpus.",
               rows)


def shaped_on(system: str) -> Iterator[tuple[str, str, str, str, tuple[int, int, int]]]:
    """Yield engine, dtype, kernel, backend and sizes of each row of SHAPED on a system."""
    for engine, dtype, kernel, backend, shapes, systems in SHAPED:
        if system in systems:
            yield from ((engine, dtype, kernel, backend, sizes) for sizes in shapes)


def of_shape(system: str, engine: str, dtype: str, kernel: str,
             shape: Mapping[str, int]) -> tuple[str, pl.DataFrame] | None:
    """Return the newest version that has whole experts of a shape, and its rows; None where none has."""
    kept = ((pl.col("moe_dtype") == dtype) & (pl.col("moe_tp_size") == 1) & (pl.col("moe_ep_size") <= LARGEST_EP)
            & pl.col("kernel_source").str.starts_with(kernel)
            & pl.all_horizontal(pl.col(name) == size for name, size in shape.items()))
    found = ((version, select(system, dtype, table.filter(kept)))
             for (name, version), table in tables(system, "moe", "moe_perf").items() if name == engine)
    return max((each for each in found if each[1].height), key=lambda each: release(each[0]), default=None)


def ratios(table: pl.DataFrame, formula_s: Floats) -> Row:
    """Return the ratio of measured to calculated time, the median of each octave of tokens."""
    found = table.with_columns(ratio=pl.col("latency") * 1e-3 / pl.Series(formula_s),
                             octave=pl.col("num_tokens").log(2).round().cast(pl.Int64))
    medians = found.group_by("octave").agg(pl.col("ratio").log().median().exp()).sort("octave")
    return {"at_tokens": [2**octave for octave in medians["octave"]],
            "ratios": [round(ratio, 3) for ratio in medians["ratio"]]}


def fit_dispatched() -> None:
    """Fit experts whose GPUs get their own tokens alone: SGLang's behind DeepEP, TensorRT-LLM's of wide EP."""
    rows: list[Row] = []
    for system in SYSTEMS:
        for (family, stem), kernel in WIDE.items():
            found = {key: table for key, table in tables(system, "wideep", stem).items() if key[0] == family}
            if not found:
                continue
            (engine, version), table = max(found.items(), key=lambda item: release(item[0][1]))
            (dtype,) = set(table["moe_dtype"])
            chosen = table.filter(pl.col("distribution") == DISTRIBUTION)
            constants, quality = fit(
                lambda chosen=chosen, dtype=dtype, system=system, **given: predict(system, dtype, chosen, given,
                                                                                   is_dispatched=True),
                START, BOUNDS, chosen["latency"].to_numpy() * 1e-3)
            rows.append({"gpu": SYSTEMS[system], "engine": engine, "version": version, "dtype": dtype, "kernel": kernel,
                         "default": Plain("true"), **constants, **quality, "source": f"{SOURCE}; {DISTRIBUTION}"})
            report(rows[-1])
    rows += [row | {"default": Plain("true")} for row in priors(rows, list(START), ("dtype",))]
    write_fits(ROOT / "hardware_db/kernels/dispatched_moe.toml",
               "Constants of steptime/operators/moe.py where tokens were sent to the GPUs of their experts;\n"
               "written by benchmarks/kernels/fit_moe.py. Fractions are shares of the peaks in hardware_db/gpus.\n"
               "gpu = \"prior\" and engine = \"prior\": medians over GPUs.", rows)


def release(version: str) -> list[int]:
    """Return a release's numbers, by which it is newer than another."""
    return [int(part) for part in version.split(".") if part.isdigit()]


def fit_all() -> None:
    """Fit experts whose GPUs hold all tokens."""
    rows: list[Row] = []
    for system in SYSTEMS:
        for (engine, dtype), (version, table) in sorted(newest(system).items()):
            rows += fit_kernels(system, engine, version, dtype, table)
    rows += priors([row for row in rows if row["default"] == "true"], list(START), ("dtype",))
    write_fits(ROOT / "hardware_db/kernels/moe.toml",
               "Constants of steptime/operators/moe.py; written by benchmarks/kernels/fit_moe.py, not by hand.\n"
               "Fractions are of the peaks in hardware_db/gpus. default: of several kernels, the one with most rows.\n"
               "gpu = \"prior\" and engine = \"prior\": medians over default kernels.",
               [{key: Plain(value) if key == "default" else value for key, value in row.items()} for row in rows])


class Plain:
    """A value that is written as it prints."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def newest(system: str) -> dict[tuple[str, str], tuple[str, pl.DataFrame]]:
    """Return the newest version's table that has enough of a dtype, by (engine, dtype)."""
    found = {}
    for (engine, version), table in tables(system, "moe", "moe_perf").items():
        for dtype in sorted(set(table["moe_dtype"]) & set(FORMATS)):
            found[engine, dtype] = (version, select(system, dtype, table.filter(pl.col("moe_dtype") == dtype)))
    return found


def select(system: str, dtype: str, table: pl.DataFrame) -> pl.DataFrame:
    """Keep gated experts under skewed routing, spread as serving does, without those that a large L2 cache serves."""
    size = pl.struct("hidden_size", "inter_size")
    ungated = [{"hidden_size": hidden, "inter_size": inter} for hidden, inter in UNGATED]
    expert = 3 * pl.col("hidden_size") * pl.col("inter_size") / pl.col("moe_tp_size") * FORMATS[dtype].weight
    touched = pl.min_horizontal(pl.col("num_tokens") * pl.col("topk"), pl.col("num_experts")) / pl.col("moe_ep_size")
    return table.filter((pl.col("distribution") == DISTRIBUTION) & (pl.col("moe_ep_size") <= 64)
                        & (pl.col("moe_tp_size") <= 8) & ~size.is_in(ungated)
                        & ~pl.col("kernel_source").str.contains(OTHER_KERNELS)
                        & ((pl.col("num_tokens") > 512) | (expert * touched > L2_BYTES.get(system, 0.0))))


def fit_kernels(system: str, engine: str, version: str, dtype: str, table: pl.DataFrame) -> list[Row]:
    """Fit each kernel of one engine and dtype; the one with most rows is its default."""
    rows: list[Row] = []
    for kernel, count in table["kernel_source"].value_counts().sort("count", "kernel_source", descending=True).rows():
        if count < 150:
            continue
        chosen = table.filter(pl.col("kernel_source") == kernel)
        constants, quality = fit(lambda chosen=chosen, **given: predict(system, dtype, chosen, given), START, BOUNDS,
                                 chosen["latency"].to_numpy() * 1e-3)
        rows.append({"gpu": SYSTEMS[system], "engine": engine, "version": version, "dtype": dtype, "kernel": kernel,
                     "default": "false" if rows else "true", **constants, **quality,
                     "source": f"{SOURCE}; {DISTRIBUTION}"})
        report(rows[-1])
    return rows


def predict(system: str, dtype: str, table: pl.DataFrame, given: Mapping[str, float], *,
            is_dispatched: bool = False) -> Floats:
    """Return the formula's times of a table's rows."""
    gpu, form = profile(system), FORMATS[dtype]
    tokens, hidden, inter, topk, num_experts, moe_tp, moe_ep = (
        table[name].to_numpy() for name in
        ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"))
    return moe_s(tokens, hidden=hidden, inter=inter, topk=topk, num_experts=num_experts, moe_tp=moe_tp, moe_ep=moe_ep,
                 weight_bytes_per_element=form.weight, flops_per_s=gpu.flops_per_s[form.precision],
                 bandwidth_bytes_per_s=gpu.hbm_bandwidth_bytes_per_s, constants=MoeConstants(**given),
                 is_dispatched=is_dispatched)


if __name__ == "__main__":
    main()
