"""An engine's step-time constants: factors on operator benchmarks, and times of its host and front end."""

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from planner.catalog.catalog_files import data_dir, read_toml
from planner.errors import CatalogError, UnknownNameError
from planner.files.finite import is_number


def _constant(low: float, high: float, unit: str, meaning: str) -> Any:
    return field(metadata={"low": low, "high": high, "unit": unit, "help": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConstants:
    """The step-time constants of an engine; a GPU's kernels have their own. Each constant has a physical range.

    A ratio compares an operator inside the engine with the benchmark that its kernel's constants were fitted to
    (`planner.steptime.kernel_constants`). The engine differs by version, cold caches and clocks under load.

    Raises
    ------
    CatalogError : a constant is outside its range.
    """

    linear_ratio: float = _constant(0.4, 3.0, "1", "Time of dense GEMMs / time in the benchmark")
    experts_ratio: float = _constant(0.4, 3.0, "1", "Time of routed experts / time in the benchmark")
    compute_ratio: float = _constant(0.4, 5.0, "1", "Time of large steps' arithmetic / time in the benchmark")
    prompt_attention_ratio: float = _constant(0.4, 4.0, "1", "Time of prompt attention / time in the benchmark")
    decode_attention_ratio: float = _constant(0.4, 4.0, "1", "Time of decode attention / time in the benchmark")
    collective_wait_s: float = _constant(1e-7, 1e-4, "s", "Wait for the slowest GPU in each collective")
    kernel_floor_s: float = _constant(2e-7, 3e-5, "s", "Shortest time of a kernel in a CUDA graph")
    layer_s: float = _constant(1e-7, 1e-4, "s", "Norms and other small kernels of a layer, unless measured on the GPU")
    moe_layer_s: float = _constant(1e-7, 2e-4, "s", "Small kernels of an MoE layer: routing, permutation, combination")
    older_layer_s: float = _constant(1e-8, 5e-4, "s", "Additional time of a layer in releases before the newest line")
    index_layer_s: float = _constant(1e-7, 5e-4, "s", "Small kernels of an indexer: logits, top-k")
    activation_bandwidth_frac: float = _constant(0.02, 1.0, "1", "Share of HBM bandwidth that small kernels reach")
    sampling_s_per_seq: float = _constant(1e-8, 1e-4, "s", "Sampling of a token on the GPU, without reading its logits")
    host_s: float = _constant(1e-5, 2e-2, "s", "Host work on a step, in parallel with the GPU")
    host_s_per_seq: float = _constant(1e-8, 1e-3, "s", "Host work on a step, for each sequence")
    workers_s: float = _constant(1e-6, 2e-2, "s", "Additional host work on a step if there is a worker process per GPU")
    serial_workers_s: float = _constant(1e-6, 2e-2, "s", "Like workers_s, for vLLM without async scheduling")
    serial_workers_s_per_seq: float = _constant(1e-8, 1e-3, "s", "Like serial_workers_s, for each sequence")
    launch_s_per_layer: float = _constant(1e-6, 5e-3, "s", "Launch of a layer's kernels with prompts, without a graph")
    launch_s_per_moe_layer: float = _constant(1e-6, 1e-2, "s", "Additional launch time of routed experts")
    launch_s_per_mla_layer: float = _constant(1e-6, 1e-2, "s", "Additional launch time of MLA")
    launch_s_per_linear_layer: float = _constant(1e-6, 1e-2, "s", "Additional launch time of linear attention")
    launch_s_per_flashinfer_layer: float = _constant(1e-6, 1e-2, "s", "Additional launch time of FlashInfer under vLLM")
    decode_launch_s_per_layer: float = _constant(1e-6, 5e-3, "s", "Launch of a layer's kernels for decodes, no graph")
    decode_launch_s_per_part: float = _constant(1e-6, 1e-2, "s", "Additional launch time per part: experts, MLA …")
    overhead_s: float = _constant(1e-6, 2e-2, "s", "Time of a step that is not hidden by the GPU or the host")
    overhead_s_per_seq: float = _constant(1e-8, 1e-3, "s", "Like overhead_s, for each sequence of the step")
    frontend_s: float = _constant(1e-6, 5e-2, "s", "Serial work of the API server on a request")
    frontend_s_per_token: float = _constant(1e-9, 1e-4, "s", "Serial work of the API server on a prompt token")
    latency_s: float = _constant(1e-5, 2e-1, "s", "Other latency of a request to the engine and its first token back")
    latency_s_per_token: float = _constant(1e-9, 1e-4, "s", "Like latency_s, for each prompt token")
    latency_s_per_seq: float = _constant(1e-7, 5e-3, "s", "Like latency_s, for each running sequence")

    def __post_init__(self) -> None:
        for name, (low, high) in bounds().items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise CatalogError(f"{name} = {value}; the physical range is {low:g} to {high:g}")


@functools.cache
def bounds() -> dict[str, tuple[float, float]]:
    """Return the physical range of each constant."""
    return {f.name: (f.metadata["low"], f.metadata["high"]) for f in fields(EngineConstants) if f.metadata}


def load_engine(name: str) -> EngineConstants:
    """Load an engine's bundled constants.

    Raises
    ------
    UnknownNameError, CatalogError : there is no such engine; its file is wrong.
    """
    folder = data_dir("hardware_db") / "engines"
    path = folder / f"{name}.toml"
    if not os.path.isfile(path):
        raise UnknownNameError("engine", name, sorted(p.stem for p in folder.glob("*.toml")))
    return _bundled(path)


@functools.cache
def _bundled(path: Path) -> EngineConstants:
    return constants_of(read_constants(path))


def constants_of(values: Mapping[str, float]) -> EngineConstants:
    """Return constants from their values by name.

    Raises
    ------
    CatalogError : one is missing or outside its range.
    """
    missing = [name for name in bounds() if name not in values]
    if missing:
        raise CatalogError(f"constants lack {', '.join(missing)}")
    return EngineConstants(**values)


def read_constants(path: Path) -> dict[str, float]:
    """Read the `[constants]` of an engine's or a calibration's TOML.

    Raises
    ------
    CatalogError : the file is missing or is not TOML, or a name or value in it is wrong.
    """
    table = read_toml(path).get("constants")
    if not isinstance(table, dict) or not table:
        raise CatalogError(f"{path}: has no [constants]; `planner calibrate` writes such files")
    known = bounds()
    for name, value in table.items():
        if name not in known:
            raise UnknownNameError(f"{path}: constant", name, known)
        if not is_number(value) or value <= 0:
            raise CatalogError(f"{path}: {name} = {value!r}; must be a positive number")
    return {name: float(value) for name, value in table.items()}


def read_table(path: Path, name: str) -> dict[str, Any]:
    """Read another table of such a file, `source`, `held_out` or `residuals`; empty if the file lacks it.

    Raises
    ------
    CatalogError : the file is missing or is not TOML, or that name is not a table in it.
    """
    table = read_toml(path).get(name, {})
    if not isinstance(table, dict):
        raise CatalogError(f"{path}: {name} = {table!r}; must be a table, [{name}]")
    return table
