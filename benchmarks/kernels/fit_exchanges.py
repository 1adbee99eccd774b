"""Fits `steptime.operators.exchange` to measured exchanges of tokens with experts, into hardware_db/kernels."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from fit_gemm import Row, priors, profile, report
from fit_moe import release
from fitting import KERNELS, ROOT, SOURCE, SYSTEMS, fit, write_fits

from planner.model.node_link import NodeLink
from planner.steptime.operators.exchange import ExchangeConstants, exchange_s
from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.moe import touched_gpus

FP8_BYTES = 1.0 + 4.0 / 128.0  # with a 32-bit scale for 128 values
BYTES = {"bfloat16": 2.0, "fp8": FP8_BYTES, "nvfp4": 0.5625}
GPUS_OF_NODE = {"gb200": 4}  # that the tables' nodes have; else 8
NETWORK = NodeLink(bandwidth_bytes_per_s=50e9, latency_s=0.0)  # 400 Gb/s for each GPU of the measured nodes
MORI = Path(__file__).with_name("mori_times.csv")  # 7,168 wide, 8 of 256 experts, eight GPUs a node
MORI_SOURCE = "ROCm/mori (MIT), docs/EP8.en.md and docs/EP16.en.md @ac97b1d, read 2026-11"
START = {"latency_s": 1.5e-5, "doubling_s": 1e-6, "bandwidth_frac": 0.5, "network_frac": 0.8}
BOUNDS = {"latency_s": (1e-6, 2e-4), "doubling_s": (1e-9, 5e-5), "bandwidth_frac": (0.02, 1.0),
          "network_frac": (0.05, 1.0)}


def main() -> None:
    rows: list[Row] = []
    for system in (*SYSTEMS, "mi355x"):
        for kernel, version, table in (("mori", "2026-07", mori()),) if system == "mi355x" else measured(system):
            parts = table.with_columns(several=pl.col("nodes") > 1).group_by("op", "several")
            for (op, several), part in sorted(parts):
                fixed = {"doubling_s": 0.0} if part["gpus"].n_unique() == 1 else {}
                fixed |= {} if several else {"network_frac": 1.0}
                start = {name: value for name, value in START.items() if name not in fixed}
                constants, quality = fit(
                    lambda system=system, part=part, fixed=fixed, **given: predict(system, part, given | fixed),
                    start, BOUNDS,
                    part["latency_s"].to_numpy())
                rows.append({"gpu": SYSTEMS.get(system, system), "engine": "any", "version": version, "kernel": kernel,
                             "op": op, "over_nodes": several, **constants, **fixed, **quality,
                             "source": MORI_SOURCE if kernel == "mori" else SOURCE})
                report(rows[-1])
    rows += [row for row in priors(rows, list(START), ("kernel", "op", "over_nodes")) if row["engine"] == "any"]
    write_fits(ROOT / "hardware_db/kernels/exchanges.toml",
               "Constants of steptime/operators/exchange.py; written by benchmarks/kernels/fit_exchanges.py.\n"
               "bandwidth_frac is a share of the GPU's scale-up link, one way; network_frac is a share of 50 GB/s.\n"
               "over_nodes: whether the GPUs are in several nodes. Kernels that were measured on one number of GPUs\n"
               "have no growth with it. gpu = \"prior\": medians over GPUs.", rows)


def measured(system: str) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Yield kernel, version and table of each kernel: tokens, copies, GPUs, nodes, bytes and time of both ways."""
    folder = KERNELS / system / "wideep"
    for path in sorted(folder.glob("sglang-*/wideep_deepep_*_perf.parquet")):
        table = pl.read_parquet(path)
        if path.parent.name != newest(folder, path.name) and "node_num" in table.columns:
            table = table.filter(pl.col("node_num") > 1)  # the newest release was measured on one node alone
        if table.is_empty():
            continue
        is_low = "_ll_" in path.name
        of_ll = {"dispatch": "dispatch_avg_t_us", "combine": "combine_avg_t_us"}
        if not is_low:
            # SGLang's default, 20, else the nearest; nodes of eight are left out: their times are no function of tokens
            table = table.filter((pl.col("dispatch_sms") == 20) & (pl.col("node_num") < 8))
        parts = [deepep(system, table, op, of_ll[op] if is_low else None) for op in of_ll]
        yield "deepep_low_latency" if is_low else "deepep_high_throughput", path.parent.name, pl.concat(parts)
    for path in sorted(folder.glob("trtllm-*/trtllm_alltoall_perf.parquet")):
        table = pl.read_parquet(path)
        for source, kernel in (("NVLinkOneSided", "nvlink_one_sided"), ("NVLinkTwoSided", "nvlink_two_sided")):
            yield kernel, path.parent.name, trtllm(table.filter(pl.col("kernel_source") == source))


def mori() -> pl.DataFrame:
    """Return MoRI's rows, with results that are copied to its buffers; a copy goes to each GPU and node with experts.

    Up to 768 tokens the low-latency kernels between nodes, beyond the others.
    """
    table = pl.read_csv(MORI)
    gpus, nodes = table["nodes"] * 8, table["nodes"]
    element = [BYTES[dtype] for dtype in table["dtype"]]
    return pl.DataFrame({"op": table["op"], "copy_bytes": table["tokens"] * 7168 * pl.Series(element),
                         "per_gpu": [touched_gpus(8, 256, count) for count in gpus],
                         "per_node": [touched_gpus(8, 256, count) for count in nodes],
                         "gpus": gpus, "nodes": nodes, "latency_s": table["us"] * 1e-6})


def newest(folder: Any, name: str) -> str:
    """Return the folder of the newest release that has a table."""
    return max((str(path.parent.name) for path in folder.glob(f"sglang-*/{name}")),
               key=lambda text: release(text.split("-")[1]))


def deepep(system: str, table: pl.DataFrame, op: str, column: str | None) -> pl.DataFrame:
    """Return DeepEP's rows; low latency sends a copy to each expert, the other one to each GPU and node with any."""
    nodes = table["node_num"].to_numpy()
    gpus = nodes * GPUS_OF_NODE.get(system, 8)
    pairs = list(zip(table["num_topk"], table["num_experts"], gpus, nodes, strict=True))
    if column is not None:
        seconds = table[column].to_numpy() * 1e-6
        per_gpu = per_node = table["num_topk"].to_numpy().astype(float)
    else:
        seconds = (table[f"{op}_transmit_us"] + table[f"{op}_notify_us"]).to_numpy() * 1e-6
        per_gpu = np.array([touched_gpus(k, e, int(g)) for k, e, g, _ in pairs])
        per_node = np.array([touched_gpus(k, e, int(n)) for k, e, _, n in pairs])
    element = 2.0 if op == "combine" else FP8_BYTES
    return pl.DataFrame({"op": op, "copy_bytes": table["num_token"] * table["hidden_size"] * element,
                         "per_gpu": per_gpu, "per_node": per_node, "gpus": gpus, "nodes": nodes,
                         "latency_s": seconds}).filter(pl.col("latency_s") > 0)


def trtllm(table: pl.DataFrame) -> pl.DataFrame:
    """Return TensorRT-LLM's rows: a copy to each GPU with any of a token's experts; preparing is part of sending."""
    keys = ["moe_dtype", "num_tokens", "hidden_size", "topk", "num_experts", "moe_ep_size"]
    ways = (table.filter(pl.col("op_name") != "alltoall_combine_low_precision")
            .with_columns(op=pl.when(pl.col("op_name") == "alltoall_combine").then(pl.lit("combine"))
                          .otherwise(pl.lit("dispatch")))
            .group_by(*keys, "op").agg(pl.col("latency").sum()).sort(*keys, "op"))
    per_gpu = [touched_gpus(*row) for row in ways.select("topk", "num_experts", "moe_ep_size").rows()]
    element = [2.0 if op == "combine" else BYTES[dtype] for op, dtype in ways.select("op", "moe_dtype").rows()]
    return pl.DataFrame({"op": ways["op"], "copy_bytes": ways["num_tokens"] * ways["hidden_size"] * pl.Series(element),
                         "per_gpu": per_gpu, "per_node": per_gpu, "gpus": ways["moe_ep_size"], "nodes": 1,
                         "latency_s": ways["latency"] * 1e-3})


def predict(system: str, table: pl.DataFrame, given: dict[str, float]) -> Floats:
    """Return the formula's times of a table's rows."""
    times = np.empty(table.height)
    link = profile(system).scale_up_bandwidth_bytes_per_s
    for (gpus, nodes), part in table.with_row_index().group_by("gpus", "nodes"):
        copies = part["per_gpu"].to_numpy()
        times[part["index"].to_numpy()] = exchange_s(
            part["copy_bytes"].to_numpy() * copies, per_gpu=1.0,
            per_node=float(np.mean(part["per_node"].to_numpy() / copies)), num_gpus=int(gpus), num_nodes=int(nodes),
            link_bandwidth_bytes_per_s=link, node_link=NETWORK, constants=ExchangeConstants(**given))
    return times


if __name__ == "__main__":
    main()
