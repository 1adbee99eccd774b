"""A GPU's profile and its file in the catalog."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.catalog.provenance import CatalogNumber, quantity_of, text_of
from planner.errors import CatalogError, UnknownNameError

PRECISIONS = ("fp32", "bf16", "fp16", "fp8", "fp4", "int8")
_GPU_NUMBERS = {  # key in the file -> field, unit, and the range in which any accelerator's is
    "hbm_bandwidth": ("hbm_bandwidth_bytes_per_s", "B/s", 1e10, 1e15),
    "hbm_capacity": ("hbm_capacity_bytes", "B", 1e9, 1e13),
    "scale_up_bandwidth": ("scale_up_bandwidth_bytes_per_s", "B/s", 1e8, 1e14),
    "scale_up_latency": ("scale_up_latency_s", "s", 1e-8, 1e-2),
    "host_bandwidth": ("host_bandwidth_bytes_per_s", "B/s", 1e8, 1e14),
    "gpus_per_node": ("gpus_per_node", "GPUs", 1, 1024),
    "tdp": ("tdp_w", "W", 1, 1e5), "idle_power": ("idle_w", "W", 0, 1e4),
    "price": ("price_usd_per_hour", "USD/h", 0, 1e4), "launch_speed": ("launch_speed", "1", 1e-2, 1e2),
    "multiprocessors": ("multiprocessors", "1", 1, 1e4), "shared_memory": ("shared_memory_bytes", "B", 1e3, 1e9),
    "sustained_clock": ("sustained_clock", "1", 0.1, 1),
    "hbm_energy": ("hbm_energy_j_per_byte", "J/B", 1e-12, 1e-9),
    "flop_energy": ("flop_energy_j", "J/FLOP", 1e-14, 1e-10),
    "host_staged": ("host_staged", "1", 1, 1),
    "network": ("network_bytes_per_s", "B/s", 1e8, 1e13),
}
_FLOPS = (1e11, 1e18)  # dense, any precision
_OPTIONAL = ("launch_speed", "multiprocessors", "shared_memory", "sustained_clock", "hbm_energy", "flop_energy",
             "host_staged", "network")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU model; every number is per GPU.

    Parameters
    ----------
    name, aliases, vendor : short name, other usual names, maker.
    hbm_bandwidth_bytes_per_s : device memory, peak [B/s].
    hbm_capacity_bytes : device memory as the runtime reports it, less than the name says [B].
    flops_per_s : dense peak by precision: bf16, fp16, fp8, fp4, int8, if the hardware has it [FLOP/s].
    scale_up_link : the link between the GPUs of a node ("NVLink 4", "xGMI", "PCIe 4").
    scale_up_bandwidth_bytes_per_s : that link, all lanes of one GPU, one direction [B/s].
    scale_up_latency_s : duration of the smallest all-reduce between two GPUs [s].
    host_bandwidth_bytes_per_s : to the host's memory, one direction [B/s].
    gpus_per_node : joined by that link [1].
    launch_speed : speed at which its usual hosts launch kernels, over that of the hosts of Hopper and B200 [1].
    multiprocessors : of the GPU, if FlashAttention-2 runs on it; else 0 [1].
    shared_memory_bytes : that tiles of one multiprocessor share [B].
    sustained_clock : share of the peak's clocks that large products keep, if measured; else 0 [1].
    network_bytes_per_s : a GPU's share of the network between nodes as published clusters have it, one direction; 0 if
        none is known [B/s].
    tdp_w, idle_w : power limit, and draw without work [W].
    hbm_energy_j_per_byte : of a byte from device memory through the chip, if measured; else 0 [J/B].
    flop_energy_j : of an operation in 16 bit, if measured; else 0 [J/FLOP].
    host_staged : 1 if collectives go through the host, since GPUs lack peer access as hosts are installed; else 0 [1].
    price_usd_per_hour : on-demand list price [USD/h].
    kernels_of : the GPU whose measured kernels are its own: itself, or one of the same chip.
    collectives_of : the same for collectives: `kernels_of` if the same link joins both, else itself.
    power_limit_w : a power limit that was set below `tdp_w`; 0 for none [W].
    slice_of : the GPU that it is a MIG instance of; "" for a whole GPU.
    instances : such instances in a whole GPU [1].
    provenance : the source of each number, by field ("flops_per_s.bf16" and so on).
    """

    name: str
    aliases: tuple[str, ...]
    vendor: str
    scale_up_link: str
    hbm_bandwidth_bytes_per_s: float
    hbm_capacity_bytes: float
    flops_per_s: Mapping[str, float]
    scale_up_bandwidth_bytes_per_s: float
    scale_up_latency_s: float
    host_bandwidth_bytes_per_s: float
    gpus_per_node: int
    tdp_w: float
    idle_w: float
    price_usd_per_hour: float
    launch_speed: float = 1.0
    multiprocessors: float = 0.0
    shared_memory_bytes: float = 0.0
    sustained_clock: float = 0.0
    hbm_energy_j_per_byte: float = 0.0
    flop_energy_j: float = 0.0
    host_staged: float = 0.0
    network_bytes_per_s: float = 0.0
    kernels_of: str
    collectives_of: str
    slice_of: str = ""
    instances: int = 1
    power_limit_w: float = 0.0
    provenance: Mapping[str, CatalogNumber]


def read_gpu(entry: Mapping[str, object], path: Path) -> Gpu:
    """Return the GPU that a file's content describes, with every number's source checked.

    Parameters
    ----------
    entry, path : the file's content, and the file, which errors name.

    Raises
    ------
    CatalogError, UnknownNameError : a number, its unit or its source is missing or wrong; a key is unknown.
    """
    numbers = {field: _within(quantity_of(entry, key, unit, path), (least, most), key, path)
               for key, (field, unit, least, most) in _GPU_NUMBERS.items() if key in entry or key not in _OPTIONAL}
    if not isinstance(flops := entry.get("flops"), dict) or not flops:
        raise CatalogError(f"{path}: [flops] is missing; it holds the dense FLOP/s by precision")
    peaks = {precision: _within(quantity_of(flops, precision, "FLOP/s", path), _FLOPS, f"flops.{precision}", path)
             for precision in flops}
    for precision, peak in peaks.items():
        if precision not in PRECISIONS:
            raise UnknownNameError(f"precision in {path}", precision, PRECISIONS)
        if not peak.dense:
            raise CatalogError(f"{path}: flops.{precision} lacks dense = true; halve a number printed with sparsity")
    known = {"name", "aliases", "vendor", "scale_up_link", "kernels_of", "flops", *_GPU_NUMBERS}
    for key in entry.keys() - known:
        raise UnknownNameError(f"key in {path}", key, known)
    aliases = entry.get("aliases", [])
    values = {field: number.value for field, number in numbers.items() if field != "gpus_per_node"}
    if not numbers["gpus_per_node"].value.is_integer():
        raise CatalogError(f"{path}: gpus_per_node.value = {numbers['gpus_per_node'].value}; must be an integer")
    name = text_of(entry, "name", path)
    return Gpu(
        name=name, kernels_of=text_of({"kernels_of": name, **entry}, "kernels_of", path), collectives_of=name,
        aliases=tuple(aliases) if isinstance(aliases, list) else (), vendor=text_of(entry, "vendor", path),
        scale_up_link=text_of(entry, "scale_up_link", path), slice_of="", instances=1,
        gpus_per_node=int(numbers["gpus_per_node"].value),
        flops_per_s={precision: peak.value for precision, peak in peaks.items()},
        provenance=numbers | {f"flops_per_s.{precision}": peak for precision, peak in peaks.items()}, **values,
    )


def _within(number: CatalogNumber, limits: tuple[float, float], key: str, path: Path) -> CatalogNumber:
    """Return a number of a range; outside it, it is in a multiple of its unit, or a slip."""
    least, most = limits
    if not least <= number.value <= most:
        unit = "" if number.unit == "1" else f" {number.unit}"
        raise CatalogError(f"{path}: {key}.value = {number.value:g}; must be from {least:g} to {most:g}{unit}")
    return number
