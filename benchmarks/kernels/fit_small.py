"""Fits `steptime.operators.small` to measured norms, rotary embeddings and activations, and writes small.toml."""

from collections.abc import Mapping
from typing import Any

import polars as pl
from fitting import KERNELS, ROOT, fit, gpu_of, write_fits

from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.small import SmallConstants, small_kernel_s

ELEMENT_BYTES = 2.0
# Of a token: hidden size, query and key heads together times their size, and the MLP's width.
MODELS = {"meta-llama/Llama-3.1-8B": (4096, 5120, 14336), "Qwen/Qwen3-32B": (5120, 9216, 25600)}
CARDS = {"rtx-4090": ("RTX4090", ("meta-llama/Llama-3.1-8B",)), "rtx-pro-6000": ("RTXPRO6000", tuple(MODELS))}
START = {"floor_s": 2e-6, "bandwidth_frac": 0.9, "cache_bytes": 40e6, "cache_bandwidth_bytes_per_s": 3e12,
         "hidden_s": 1e-6}
BOUNDS = {"floor_s": (1e-7, 1e-5), "bandwidth_frac": (0.5, 1.0), "cache_bytes": (1e6, 2e8),
          "cache_bandwidth_bytes_per_s": (1e12, 2e13), "hidden_s": (1e-8, 1e-5)}
HEADING = """Constants of steptime/operators/small.py; written by benchmarks/kernels/fit_small.py, not by hand.
gpu = "prior": nobody measured another GPU's; all comes from memory, and floor_s, of one kernel, and bandwidth_frac, of
device memory, are an engine's constants (layer_s, activation_bandwidth_frac).
Where memory is HBM the cache is less than twice as fast for kernels that read and write."""
PRIOR: Mapping[str, Any] = {"gpu": "prior", "engine": "vllm", "floor_s": 0.0, "bandwidth_frac": 1.0, "cache_bytes": 0.0,
                            "cache_bandwidth_bytes_per_s": 0.0, "hidden_s": 0.0,
                            "source": "none: all of it comes from device memory"}


def main() -> None:
    rows = [fit_card(gpu, folder, models) for gpu, (folder, models) in CARDS.items()]
    for row in rows:
        print({key: value for key, value in row.items() if key != "source"})
    write_fits(ROOT / "hardware_db/kernels/small.toml", HEADING, [*rows, PRIOR])


def fit_card(gpu: str, folder: str, models: tuple[str, ...]) -> Mapping[str, Any]:
    """Fit one card's small kernels of all steps up to 2,048 tokens."""
    table = pl.concat([kernels(folder, model) for model in models])
    memory = gpu_of(gpu).hbm_bandwidth_bytes_per_s
    traffic, touched = (table[name].to_numpy() for name in ("traffic", "touched"))

    def model_s(**given: float) -> Floats:
        return small_kernel_s(traffic, touched, bandwidth_bytes_per_s=memory, constants=SmallConstants(**given))

    constants, quality = fit(model_s, START, BOUNDS, table["time_us"].to_numpy() * 1e-6)
    return {"gpu": gpu, "engine": "vllm", "version": "0.19.0", **constants, **quality,
            "source": "LLMServingSim profiles of vLLM (MIT), read 2026-11"}


def kernels(folder: str, model: str) -> pl.DataFrame:
    """Return the small kernels of one model with what they read and write, and touch [B].

    A norm adds the residual to its input and writes both back; the rotary embedding turns queries and keys in place.
    """
    hidden, heads, width = MODELS[model]
    shapes = pl.DataFrame({"layer": ["layernorm", "rotary_emb", "act_fn"],
                           "per_token": [4 * hidden, 2 * heads, 3 * width],
                           "distinct": [2 * hidden, heads, 3 * width]})
    table = pl.read_csv(KERNELS / "consumer" / folder / model / "bf16" / "tp1" / "dense.csv").join(shapes, on="layer")
    return table.select("time_us", traffic=ELEMENT_BYTES * pl.col("tokens") * pl.col("per_token"),
                        touched=ELEMENT_BYTES * pl.col("tokens") * pl.col("distinct"))


if __name__ == "__main__":
    main()
