"""Fits `steptime.operators.collectives` to measured collectives and writes hardware_db/kernels/collectives.toml."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from fit_gemm import Row, priors, profile, report
from fitting import ROOT, SOURCE, SYSTEMS, fit, tables, write_fits

from planner.steptime.operators.collectives import CollectiveConstants, collective_s
from planner.steptime.operators.gemm import Floats

BYTES_PER_ELEMENT = {"bfloat16": 2.0, "half": 2.0}  # int8, up to 27 % slower by bytes, is left out
LEAST_OF_RING = 1 / 3
MAX_BYTES = 2.0**29  # no step of a serving engine sends more
START = {"small_latency_s": 5e-6, "small_bandwidth_frac": 0.1, "large_latency_s": 1.5e-5, "large_bandwidth_frac": 0.6}
BOUNDS = {"small_latency_s": (1e-6, 1e-3), "small_bandwidth_frac": (1e-4, 1.0), "large_latency_s": (1e-6, 1e-2),
          "large_bandwidth_frac": (1e-4, 1.0)}


def main() -> None:
    rows: list[Row] = []
    for system in SYSTEMS:
        for engine, version, op, num_gpus, table in measured(system):
            constants, quality = fit_table(system, op, num_gpus, table)
            rows.append({"gpu": SYSTEMS[system], "engine": engine, "version": version, "op": op, "num_gpus": num_gpus,
                         **constants, **quality, "source": SOURCE})
            report(rows[-1])
    rows = [row for row in rows if not is_without_peers(row, rows)]
    rows += all_priors(rows)
    write_fits(ROOT / "hardware_db/kernels/collectives.toml",
               "Constants of steptime/operators/collectives.py; written by benchmarks/kernels/fit_collectives.py.\n"
               "engine: the all-reduce an engine runs in a CUDA graph (its own for small, NCCL for large), or nccl.\n"
               "Fractions are of the scale-up link of hardware_db/gpus, one way; gpu = \"prior\": NVLink medians,\n"
               "gpu = \"PCIe 4\", \"PCIe 5\": those of GPUs that it joins.",
               rows)


def all_priors(rows: Sequence[Row]) -> list[Row]:
    """Return the medians over GPUs that NVLink joins, and over those on each generation of PCIe, by its name.

    No 4 or 8 GPUs on PCIe 4 were measured with a way to each other. They take latencies of PCIe 5, whose smallest
    all-reduces take as long (13 and 25 µs on both), and the ring's bandwidth: a pair's over 2(p − 1)/p.
    """
    links = {row["gpu"]: profile(row["gpu"]).scale_up_link for row in rows}
    kinds = {link if link.startswith("PCIe") else "prior" for link in links.values()}
    found = [median | {"gpu": kind} for kind in sorted(kinds)
             for median in priors([row for row in rows if links[row["gpu"]] == kind or
                                   (kind == "prior" and not links[row["gpu"]].startswith("PCIe"))],
                                  list(START), ("op", "num_gpus"))]
    pairs = {(row["engine"], row["op"]): row for row in found if row["gpu"] == "PCIe 4" and row["num_gpus"] == 2}
    rings = [row | {"gpu": "PCIe 4", "large_bandwidth_frac": ring_frac(row, pairs[row["engine"], row["op"]]),
                    "source": "latencies of PCIe 5, bandwidth of a ring by that of a pair on PCIe 4"}
             for row in found if row["gpu"] == "PCIe 5" and row["num_gpus"] > 2]
    return found + rings


def ring_frac(row: Row, pair: Row) -> float:
    """Return the share of the link that a ring of as many GPUs as a row has reaches, by a pair's [1].

    It sends 2(p − 1)/p of an all-reduce over each link, of which two GPUs send all; other operations count what is
    sent (`sent_bytes`).
    """
    num_gpus = row["num_gpus"]
    share = num_gpus / (2 * (num_gpus - 1)) if row["op"] == "all_reduce" else 1.0
    return float(pair["large_bandwidth_frac"]) * share


def is_without_peers(row: Row, rows: list[Row]) -> bool:
    """Tell whether GPUs had no way to each other but through the host's memory, as in some virtual machines.

    A ring of p GPUs sends 2(p − 1)/p of a message over each link, so p reach p / (2(p − 1)) of what two do. L40S over
    PCIe 4 reach a tenth to a fifth of that in the tables: 1 to 3 GB/s, where published throughput needs six times as
    much.
    """
    num_gpus = row["num_gpus"]
    pairs = [other for other in rows if other["num_gpus"] == 2
             and all(other[key] == row[key] for key in ("gpu", "engine", "op"))]
    ring = max((ring_frac(row, pair) for pair in pairs), default=0.0)
    if num_gpus == 2 or row["large_bandwidth_frac"] > LEAST_OF_RING * ring:
        return False
    print(f"{row['gpu']} {row['engine']} {row['op']} of {num_gpus}: left out, {row['large_bandwidth_frac']:.3f} of the "
          f"link where {ring:.3f} is a ring's")
    return True


def measured(system: str) -> Iterator[tuple[str, str, str, int, pl.DataFrame]]:
    """Yield the 16-bit tables of each engine, operation and number of GPUs."""
    for (engine, version), table in (tables(system, "comm", "custom_allreduce_perf")
                                     | tables(system, "comm", "nccl_perf")).items():
        dtype = "nccl_dtype" if engine == "nccl" else "allreduce_dtype"
        chosen = table.filter(pl.col(dtype).is_in(list(BYTES_PER_ELEMENT))
                              & ~pl.col("kernel_source").str.contains("eager")
                              & (pl.col("message_size") * 2.0 <= MAX_BYTES))
        for (op, num_gpus), part in sorted(chosen.group_by("op_name", "num_gpus"), key=lambda item: str(item[0])):
            yield engine, version, str(op), int(str(num_gpus)), part.sort("message_size")


def fit_table(system: str, op: str, num_gpus: int, table: pl.DataFrame) -> tuple[dict[str, float], dict[str, float]]:
    """Fit one table from several starts, since the change of protocol has local optima."""
    largest_s = table["latency"][-1] * 1e-3
    link = profile(system).scale_up_bandwidth_bytes_per_s
    large = min(1.0, table["message_size"][-1] * 2.0 / link / largest_s)
    floor_s = table["latency"].head(5).median() * 1e-3  # type: ignore[operator]
    found = []
    for share in (0.02, 0.1, 0.3, 0.6):
        for multiple in (1.1, 1.5, 2.5, 4.0):
            start = {"small_latency_s": floor_s, "small_bandwidth_frac": share * large,
                     "large_latency_s": multiple * floor_s, "large_bandwidth_frac": large}
            found.append(fit(lambda **given: predict(system, op, num_gpus, table, given), start, BOUNDS,
                             table["latency"].to_numpy() * 1e-3))
    return min(found, key=lambda result: result[1]["median_ape"] + 0.3 * result[1]["p90_ape"])


def predict(system: str, op: str, num_gpus: int, table: pl.DataFrame, given: Mapping[str, Any]) -> Floats:
    """Return the formula's times of a table's rows."""
    return collective_s(table["message_size"].to_numpy() * 2.0, op=op, num_gpus=num_gpus,
                        link_bandwidth_bytes_per_s=profile(system).scale_up_bandwidth_bytes_per_s,
                        constants=CollectiveConstants(**given))


if __name__ == "__main__":
    main()
