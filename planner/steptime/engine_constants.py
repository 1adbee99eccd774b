"""An engine's times besides its kernels: factors on operator benchmarks, and its host and front-end times."""

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
    """The constants of a step's time that belong to an engine, not to a GPU's kernels; each within a physical range.

    A ratio says how much longer an operator takes inside the engine than alone in the benchmark that its kernel's
    constants were fitted to (`planner.steptime.kernel_constants`): other versions, cold caches, clocks under load.

    Raises
    ------
    CatalogError : a constant is outside its range.
    """

    linear_ratio: float = _constant(0.4, 3.0, "1", "dense GEMMs, over the benchmark's")
    experts_ratio: float = _constant(0.4, 3.0, "1", "routed experts, over the benchmark's")
    compute_ratio: float = _constant(0.4, 5.0, "1", "large steps' arithmetic, over the benchmark's: clocks under load")
    prompt_attention_ratio: float = _constant(0.4, 4.0, "1", "prompt attention, over the benchmark's")
    decode_attention_ratio: float = _constant(0.4, 4.0, "1", "decode attention, over the benchmark's")
    collective_wait_s: float = _constant(1e-7, 1e-4, "s", "waiting for the slowest GPU in each collective")
    kernel_floor_s: float = _constant(2e-7, 3e-5, "s", "least time of a kernel in a graph, below a benchmark's")
    layer_s: float = _constant(1e-7, 1e-4, "s", "a layer's norms and other small kernels, unless measured on the GPU")
    moe_layer_s: float = _constant(1e-7, 2e-4, "s", "more of them in an MoE layer: routing, permutation, combination")
    older_layer_s: float = _constant(1e-8, 5e-4, "s", "what a layer takes longer in releases before the newest line")
    index_layer_s: float = _constant(1e-7, 5e-4, "s", "more of them in a layer with an indexer: logits, top-k")
    activation_bandwidth_frac: float = _constant(0.02, 1.0, "1", "share of HBM bandwidth that they reach there")
    sampling_s_per_seq: float = _constant(1e-8, 1e-4, "s", "sampling a token on the GPU, besides reading its logits")
    host_s: float = _constant(1e-5, 2e-2, "s", "host's work on a step, beside the GPU's")
    host_s_per_seq: float = _constant(1e-8, 1e-3, "s", "more of it for each sequence of the step")
    workers_s: float = _constant(1e-6, 2e-2, "s", "more of it where GPUs have a worker process each")
    serial_workers_s: float = _constant(1e-6, 2e-2, "s", "the same in vLLM without asynchronous scheduling")
    serial_workers_s_per_seq: float = _constant(1e-8, 1e-3, "s", "more of it for each sequence of the step")
    launch_s_per_layer: float = _constant(1e-6, 5e-3, "s", "launching a layer's kernels, with prompts, one by one")
    launch_s_per_moe_layer: float = _constant(1e-6, 1e-2, "s", "more of it in a layer with routed experts")
    launch_s_per_mla_layer: float = _constant(1e-6, 1e-2, "s", "more of it in a layer with multi-head latent attention")
    launch_s_per_linear_layer: float = _constant(1e-6, 1e-2, "s", "more of it in a layer with linear attention")
    launch_s_per_flashinfer_layer: float = _constant(1e-6, 1e-2, "s", "more of it where vLLM runs FlashInfer")
    decode_launch_s_per_layer: float = _constant(1e-6, 5e-3, "s", "the same of decodes alone where no CUDA graph does")
    decode_launch_s_per_part: float = _constant(1e-6, 1e-2, "s", "more for each of its experts, MLA, linear attention")
    overhead_s: float = _constant(1e-6, 2e-2, "s", "time of a step that neither hides")
    overhead_s_per_seq: float = _constant(1e-8, 1e-3, "s", "more of it for each sequence of the step")
    frontend_s: float = _constant(1e-6, 5e-2, "s", "API server's serial work on a request")
    frontend_s_per_token: float = _constant(1e-9, 1e-4, "s", "more of it for each prompt token: tokenising")
    latency_s: float = _constant(1e-5, 2e-1, "s", "rest of a request's way in and of its first token's way out")
    latency_s_per_token: float = _constant(1e-9, 1e-4, "s", "more of it for each prompt token")
    latency_s_per_seq: float = _constant(1e-7, 5e-3, "s", "more of it for each running sequence, streamed beside it")

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
    CatalogError : the file is missing or no TOML, or a name or value in it is wrong.
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
    """Read another table of such a file, empty where it has none: `source`, `held_out`, `residuals`.

    Raises
    ------
    CatalogError : the file is missing or no TOML, or has something else by that name.
    """
    table = read_toml(path).get(name, {})
    if not isinstance(table, dict):
        raise CatalogError(f"{path}: {name} = {table!r}; must be a table, [{name}]")
    return table
