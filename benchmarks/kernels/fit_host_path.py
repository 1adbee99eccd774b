"""Fits `steptime.operators.host_path` to two tables of NCCL on one machine, and writes host_paths.toml.

LLMServingSim (MIT) measured NCCL between two RTX PRO 6000 twice, in CUDA graphs, and keeps both tables in
profiler/perf/RTXPRO6000/hardware.yaml: of 2026-09-08 (commit e08dc38), and of 2026-09-26 with ACS and the IOMMU off
(commit 1b2cc02). Give both files, in that order.

Other cards on PCIe 5 take the latency of that machine. Those on an older one take the mean of it and of a machine with
two GeForce cards on PCIe 4, whose small all-reduces somebody printed. Its bandwidth, 1.9 GB/s, is left out: others
print 13 to 18 (docs/lab/kernels.md).
"""

import argparse
from pathlib import Path

import numpy as np
import yaml
from fit_gemm import Row, report
from fitting import ROOT, write_fits

from planner.steptime.collective_time import NCCL
from planner.steptime.engine_constants import load_engine
from planner.steptime.kernel_constants import find_fit
from planner.steptime.operators.collectives import CollectiveConstants, collective_s
from planner.steptime.operators.gemm import Floats
from planner.steptime.operators.host_path import HostPathConstants, host_path_s

SOURCE = "casys-kaist/LLMServingSim (MIT), profiler/perf/RTXPRO6000/hardware.yaml, commits e08dc38 and 1b2cc02"
GPU, OP, NUM_GPUS = "rtx-pro-6000", "all_reduce", 2
OTHER_SOURCE = "sgl-project/sglang#39605: two RTX 5070 Ti on PCIe 4"
OTHER_BYTES, OTHER_S = 10240, 39e-6
PCIE_4 = 32e9  # [B/s]
SMALL, LARGE = 150e3, 1e6  # messages that wait for latency alone, and for bandwidth alone [B]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("through_host", type=Path)
    parser.add_argument("direct", type=Path)
    files = parser.parse_args()
    staged, direct = (samples(path) for path in (files.through_host, files.direct))
    both = sorted(staged.keys() & direct.keys())
    latency_s = float(np.median([staged[size] - direct[size] for size in both if size <= SMALL]))
    large = np.array([size for size in staged if size >= LARGE])
    bandwidth = float(np.polyfit([staged[size] for size in large], large, 1)[0])
    constants = HostPathConstants(latency_s=latency_s, bandwidth_bytes_per_s=bandwidth)
    measured_s = np.array([staged[size] for size in both])
    errors = through_host_s(both, np.array([direct[size] for size in both]), constants) / measured_s - 1
    row: Row = {"gpu": GPU, "engine": "nccl", "version": "", "latency_s": latency_s,
                "bandwidth_bytes_per_s": bandwidth, "num_points": len(both),
                "median_ape": float(np.median(np.abs(errors))), "p90_ape": float(np.quantile(np.abs(errors), 0.9)),
                "bias": float(np.exp(np.mean(np.log1p(errors))) - 1), "source": SOURCE}
    report(row)
    write_fits(ROOT / "hardware_db/kernels/host_paths.toml",
               "Constants of steptime/operators/host_path.py; written by benchmarks/kernels/fit_host_path.py.\n"
               "Errors compare the formula with the path through the host. Its direct times are the same machine's.\n"
               "gpu = \"PCIe 5\": other GPUs on it. \"prior\": on an older one, the mean of two machines.",
               [row, row | {"gpu": "PCIe 5"}, row | {"gpu": "prior", "latency_s": (latency_s + other_latency_s()) / 2,
                            "source": f"{SOURCE}; latency also {OTHER_SOURCE}; errors: first machine"}])


def other_latency_s() -> float:
    """Return the other machine's latency [s]: a small all-reduce, less NCCL's direct one and an engine's wait."""
    nccl = find_fit(CollectiveConstants, "collectives", gpu="PCIe 4", engine=NCCL, op=OP, num_gpus=NUM_GPUS).constants
    direct_s = collective_s(OTHER_BYTES, op=OP, num_gpus=NUM_GPUS, constants=nccl, link_bandwidth_bytes_per_s=PCIE_4)
    return OTHER_S - float(direct_s) - load_engine("vllm").collective_wait_s


def samples(path: Path) -> dict[int, float]:
    """Return the all-reduces of a table: the time [s] by the message's size [B]."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))["measured"]["interconnect"]["samples"]
    return {int(row["bytes"]): row["us_graphed"] * 1e-6 for row in found if row["collective"] == OP}


def through_host_s(sizes: list[int], direct_s: Floats, constants: HostPathConstants) -> Floats:
    """Return the formula's times [s] of messages [B] that take so long directly."""
    return host_path_s(sizes, op=OP, num_gpus=NUM_GPUS, direct_s=direct_s, constants=constants)


if __name__ == "__main__":
    main()
