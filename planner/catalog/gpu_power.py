"""Power of a GPU while steps run: shares of its power limit, and energy per byte and per operation."""

import functools
from dataclasses import dataclass, replace

from planner.catalog.catalog_files import data_dir, read_toml
from planner.catalog.gpus import Gpu
from planner.catalog.provenance import quantity_of
from planner.errors import UsageError

PRIORS = ("running_share", "prompt_share", "memory_share", "compute_share")
# Prompts of 198,000 tokens on RTX 3090 of 350 W (llmgarage.ai, power-limit-tokens-per-second-benchmark, 2026-02) have
# 0.943 of the speed at 300 W, 0.853 at 250, 0.600 at 200 and 0.258 at 150. Voltage falls with the clock to this share.
VOLTAGE_FLOOR_CLOCK = 0.79
LEAST_LIMIT_SHARE = 0.4  # of the profile's limit: no rule fits published steps below it


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """The draw of one GPU's board.

    Parameters
    ----------
    idle_w, limit_w : without work, and at most [W].
    running_w : more of it while a step of any kind runs: clocks, schedulers, on-chip network [W].
    prompt_w : more of it while prompts run, however well their kernels use the tensor cores [W].
    memory_w, compute_w : more of it at the peak of HBM's bandwidth and of the arithmetic [W].
    """

    idle_w: float
    limit_w: float
    running_w: float
    prompt_w: float
    memory_w: float
    compute_w: float

    def draw_w(self, mfu: float, mbu: float, prompts: float = 0.0) -> float:
        """Return the draw while steps run at such shares of the two peaks, and of their time in prompts [W].

        Dynamic power of CMOS is the energy of switching: each byte from HBM and each operation takes its energy, beside
        the draw of a GPU that runs at all. Kernels of prompts keep all multiprocessors, shared memory and caches busy,
        which takes power at a low share of the peak too. At the limit the GPU lowers its clocks, so the draw stays
        there.

        >>> h100 = Power(idle_w=75, limit_w=700, running_w=156, prompt_w=238, memory_w=318, compute_w=1244)
        >>> [round(h100.draw_w(*shares)) for shares in ((0.0, 0.0), (0.02, 0.6), (0.1, 0.1, 0.8), (0.6, 0.2, 1.0))]
        [231, 447, 578, 700]
        """
        return min(self.idle_w + self.running_w + prompts * self.prompt_w + mbu * self.memory_w + mfu * self.compute_w,
                   self.limit_w)


def limited(gpu: Gpu, limit_w: float | None) -> Gpu:
    """Return a GPU whose power limit is lowered; None leaves it.

    Raises
    ------
    UsageError : the limit is above the profile's, or below the range of the rule, or the GPU is a MIG slice.
    """
    if limit_w is None:
        return gpu
    if gpu.slice_of:
        raise UsageError(f"power_limit = {limit_w:g} W: {gpu.name} is a MIG slice, and a power limit applies to the "
                         f"whole GPU; leave it out")
    least_w = LEAST_LIMIT_SHARE * gpu.tdp_w
    if not least_w <= limit_w <= gpu.tdp_w:
        raise UsageError(f"power_limit = {limit_w:g} W: {gpu.name} has a limit of {gpu.tdp_w:g} W; give {least_w:g} to "
                         f"{gpu.tdp_w:g} W, for which clocks are known")
    return replace(gpu, power_limit_w=limit_w)


def limit_of(gpu: Gpu) -> float:
    """Return the power limit: the profile's, or a lower one that was set [W]."""
    return gpu.power_limit_w or gpu.tdp_w


def clock_share(gpu: Gpu) -> float:
    """Return the clock of large products under a lowered power limit, over that under the profile's limit [1].

    The draw without work, and that of a GPU which runs at all, do not depend on the clock. The rest goes with the cube
    of the clock while voltage follows it, and below `VOLTAGE_FLOOR_CLOCK` with the clock alone.

    >>> from planner.catalog.catalog_files import load_gpu
    >>> [round(clock_share(limited(load_gpu("rtx-3090"), watts)), 2) for watts in (350, 300, 250, 200, 150)]
    [1.0, 0.93, 0.84, 0.62, 0.29]
    """
    power = power_of(gpu)
    base_w = power.idle_w + power.running_w
    room = max(limit_of(gpu) - base_w, 0.0) / (gpu.tdp_w - base_w)
    cubic: float = room ** (1 / 3)
    return cubic if cubic >= VOLTAGE_FLOOR_CLOCK else room / VOLTAGE_FLOOR_CLOCK**2


def power_of(gpu: Gpu) -> Power:
    """Return the draw of a GPU; if its energies are not in the catalog, by the priors of `hardware_db/power.toml`.

    An operation takes energy in proportion to the time that its format's peak allows for it, so that each format draws
    as much at its own peak.

    Raises
    ------
    CatalogError : the priors' file is missing or wrong.
    """
    span_w = gpu.tdp_w - gpu.idle_w
    memory_w = gpu.hbm_energy_j_per_byte * gpu.hbm_bandwidth_bytes_per_s or priors()["memory_share"] * span_w
    compute_w = gpu.flop_energy_j * gpu.flops_per_s["bf16"] or priors()["compute_share"] * span_w
    return Power(idle_w=gpu.idle_w, limit_w=limit_of(gpu), running_w=priors()["running_share"] * span_w,
                 prompt_w=priors()["prompt_share"] * span_w, memory_w=memory_w, compute_w=compute_w)


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
