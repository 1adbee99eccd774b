"""MIG slices as GPUs: the profile of an instance, as h100-sxm:1g.10gb, derived from the profile of its GPU."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.catalog.gpus import Gpu
from planner.catalog.provenance import CatalogNumber
from planner.errors import CatalogError

SEPARATOR = ":"  # between the GPU's name and the profile's
EIGHTHS = (1, 2, 4, 8)  # of the memory, whose sizes the table lists for each GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One MIG profile of a GPU.

    Parameters
    ----------
    memory_share : share of the memory's bandwidth and of the L2 cache [1].
    memory_bytes : memory of the instance; None for its share of the GPU's [B].
    compute_share : share of the multiprocessors [1].
    multiprocessors : of the instance [1].
    instances : instances of the profile that a GPU holds [1].
    source, date, note : of these numbers.
    """

    memory_share: float
    memory_bytes: float | None
    compute_share: float
    multiprocessors: int
    instances: int
    source: str
    date: str
    note: str


def slices_of(gpu: str, table: Mapping[str, Any], path: Path) -> dict[str, Slice]:
    """Return the MIG profiles of a GPU by name; none if the table does not have it.

    Parameters
    ----------
    table, path : content of `hardware_db/mig.toml`, and its path, which errors name.

    Raises
    ------
    CatalogError : a key is missing or has another form.
    """
    try:
        chip = next((chip for chip in table.values() if gpu in chip["gpus"]), None)
        if chip is None:
            return {}
        sizes = chip["gpus"][gpu]
        gb = dict(zip(EIGHTHS, sizes["gb"], strict=True))
        gib = dict(zip(EIGHTHS, sizes.get("gib", ()), strict=False))
        return {f"{row['compute']}g.{gb[row['memory']]}gb": Slice(
            memory_share=row["memory"] / 8, compute_share=row["multiprocessors"] / chip["multiprocessors"],
            memory_bytes=gib[row["memory"]] * 2**30 if row["memory"] in gib else None,
            multiprocessors=row["multiprocessors"], instances=row["instances"], source=chip["source"],
            date=chip["date"], note=chip["note"]) for row in chip["profiles"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CatalogError(f"{path}: has a table of another form: {error!r}") from error


def sliced(gpu: Gpu, profile: str, slices: Mapping[str, Slice]) -> Gpu:
    """Return a MIG instance as a GPU.

    Peaks and the power limit go by the share of the multiprocessors, memory and its bandwidth by the share of the
    memory. The link to the host, idle power and the price are divided by the instances that a GPU holds. Kernels are
    the GPU's own: there are no measurements of slices.

    Raises
    ------
    CatalogError : the GPU has no such profile.
    """
    if profile not in slices:
        known = f"its profiles are {', '.join(slices)}" if slices else "the catalog has no MIG profiles of this GPU"
        raise CatalogError(f"{gpu.name} has no MIG profile {profile!r}; {known}")
    slice_ = slices[profile]
    capacity = slice_.memory_share if slice_.memory_bytes is None else slice_.memory_bytes / gpu.hbm_capacity_bytes
    factors = dict.fromkeys(("host_bandwidth_bytes_per_s", "idle_w", "price_usd_per_hour"), 1.0 / slice_.instances)
    factors |= {"hbm_bandwidth_bytes_per_s": slice_.memory_share, "hbm_capacity_bytes": min(capacity, 1.0),
                "tdp_w": slice_.compute_share}
    values = {field: getattr(gpu, field) * factor for field, factor in factors.items()}
    factors |= {f"flops_per_s.{precision}": slice_.compute_share for precision in gpu.flops_per_s}
    if gpu.multiprocessors:
        values["multiprocessors"] = float(slice_.multiprocessors)
        factors["multiprocessors"] = slice_.multiprocessors / gpu.multiprocessors
    factors["gpus_per_node"] = 1.0 / gpu.gpus_per_node
    return replace(
        gpu, name=f"{gpu.name}{SEPARATOR}{profile}", aliases=(), gpus_per_node=1, slice_of=gpu.name,
        network_bytes_per_s=0.0, instances=slice_.instances, **values,
        flops_per_s={precision: peak * slice_.compute_share for precision, peak in gpu.flops_per_s.items()},
        provenance={field: _part(number, factors[field], gpu.name, slice_) if field in factors else number
                    for field, number in gpu.provenance.items()})


def _part(number: CatalogNumber, factor: float, gpu: str, slice_: Slice) -> CatalogNumber:
    return replace(number, value=number.value * factor, date=slice_.date, note=slice_.note,
                   source=f"{factor:.4g} of {gpu}'s, by {slice_.source}")
