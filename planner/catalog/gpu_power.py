"""Power of a GPU while steps run: shares of its power limit, and energy per byte and per operation."""

import functools
from dataclasses import dataclass

from planner.catalog.catalog_files import data_dir, read_toml
from planner.catalog.gpus import Gpu
from planner.catalog.provenance import quantity_of

PRIORS = ("running_share", "memory_share", "compute_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """The draw of one GPU's board.

    Parameters
    ----------
    idle_w, limit_w : without work, and at most [W].
    running_w : more of it while a step runs, whatever the step does: clocks, schedulers, on-chip network [W].
    memory_w, compute_w : more of it at the peak of HBM's bandwidth and of the arithmetic [W].
    """

    idle_w: float
    limit_w: float
    running_w: float
    memory_w: float
    compute_w: float

    def draw_w(self, mfu: float, mbu: float) -> float:
        """Return the draw while steps run at such shares of the two peaks [W].

        Dynamic power of CMOS goes with what switches: each byte from HBM and each operation takes its energy, beside
        the draw of a GPU that runs at all. At the limit the GPU lowers its clocks, so the draw stays there.

        >>> h100 = Power(idle_w=75, limit_w=700, running_w=156, memory_w=318, compute_w=1244)
        >>> [round(h100.draw_w(mfu, mbu)) for mfu, mbu in ((0.0, 0.0), (0.02, 0.6), (0.6, 0.2))]
        [231, 447, 700]
        """
        return min(self.idle_w + self.running_w + mbu * self.memory_w + mfu * self.compute_w, self.limit_w)


def power_of(gpu: Gpu) -> Power:
    """Return the draw of a GPU; where its energies are not in the catalog, by the priors of `hardware_db/power.toml`.

    An operation takes energy in proportion to the time that its format's peak allows for it, so that each format draws
    as much at its own peak.

    Raises
    ------
    CatalogError : the priors' file is missing or wrong.
    """
    span_w = gpu.tdp_w - gpu.idle_w
    memory_w = gpu.hbm_energy_j_per_byte * gpu.hbm_bandwidth_bytes_per_s or priors()["memory_share"] * span_w
    compute_w = gpu.flop_energy_j * gpu.flops_per_s["bf16"] or priors()["compute_share"] * span_w
    return Power(idle_w=gpu.idle_w, limit_w=gpu.tdp_w, running_w=priors()["running_share"] * span_w,
                 memory_w=memory_w, compute_w=compute_w)


@functools.cache
def priors() -> dict[str, float]:
    """Return the values of `hardware_db/power.toml` by name.

    Raises
    ------
    CatalogError : the file is missing or wrong.
    """
    path = data_dir("hardware_db") / "power.toml"
    table = read_toml(path)
    return {name: quantity_of(table, name, "1", path).value for name in PRIORS}
