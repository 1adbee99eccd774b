"""KV capacity: the memory model against what engines say in their start-up logs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.accuracy.section import ERROR_COLUMNS, Section, Verdict, ape, error_row
from planner.catalog.catalog_files import load_model
from planner.deployment.deploy import deploy
from planner.engines.releases import stated_release
from planner.errors import CapacityError
from planner.report.content import Listing
from planner.results.memory_notes import memory_notes
from planner.settings.scenario import Scenario

# One row a start. `source` has the log. A version with "?" is the newest release at the log's date. `checkpoint` is the
# log's name of the model; `model` and `quantization` are its names in the catalog. An empty setting is the engine's
# own. `weights_gib`, `kv_gib` and `kv_tokens` are of one GPU, by the log.
STARTS = Path(__file__).with_suffix(".csv")
OPTIONS = ("engine", "gpu", "model", "quantization", "tensor_parallel_size", "pipeline_parallel_size",
           "expert_parallel", "kv_cache_dtype", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens")
FITTED_SINCE = (0, 18)  # of vLLM: by then it sampled with Triton, and these logs say what that takes
FITTED = "vLLM since 0.18"
DOUBTED = 0.15  # error above which a prediction must have a note that says why


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of an engine.

    Parameters
    ----------
    kind : engine and versions.
    family : the model type of its config.json, without the suffix of a multimodal model's text part.
    notes : the planner's notes on the memory.
    measured, predicted : memory for KV [GiB], or where the log has none KV tokens [1]; predicted NaN where it finds
        no room.
    measured_weights_gib, predicted_weights_gib : NaN where not logged.
    """

    id: str
    kind: str
    gpu: str
    family: str
    notes: tuple[str, ...]
    measured: float
    predicted: float
    measured_weights_gib: float
    predicted_weights_gib: float


def read_starts() -> list[Start]:
    """Return the starts, each with what the memory model says of it."""
    return [_start(row) for row in pl.read_csv(STARTS).iter_rows(named=True)]


def kv_capacity() -> Section:
    """Return the section on them."""
    starts = read_starts()
    groups = sorted({group for start in starts for group in _groups(start)})
    rows = [[*group, *_errors([start for start in starts if group in _groups(start)])] for group in groups]
    newest = [s for s in starts if s.kind == FITTED]
    off = ape([s.predicted for s in newest], [s.measured for s in newest])
    return Section(
        title="KV capacity",
        lead=f"{len(starts)} start-up logs: the memory that the engine found for KV, and the model's, both of one GPU.",
        verdicts=[Verdict(name=f"{FITTED}, KV memory median APE", value=float(np.median(off)), limit=None),
                  Verdict(name=f"{FITTED}, share within 5 %", value=float((off < 0.05).mean()), limit=None)],
        tables=[Listing(title="Errors of KV memory, and of weights", rows=rows,
                        columns=("by", "value", *ERROR_COLUMNS, *(f"weights {name}" for name in ERROR_COLUMNS))),
                Listing(title="Starts, measured → predicted (GiB, or tokens)", columns=("start", "of", "KV", "weights"),
                        rows=[[s.id, s.kind, f"{s.measured:.5g} → {s.predicted:.5g}",
                               f"{s.measured_weights_gib:.4g} → {s.predicted_weights_gib:.4g}"] for s in starts])],
        notes=["Three numbers of the model are from vLLM's logs of 0.18 and later: what its sampler takes for a logit, "
               "its workspaces, and its buffers for more than one GPU. All else is shapes, formats and shares.",
               "Up to 0.16 vLLM sampled with PyTorch, which sorts, and needs 38 bytes a logit; now it needs 20. Some "
               "logs of up to 0.11 show 14, as FlashInfer would need. With 1,024 sequences that is up to 3 GiB more.",
               "A family is the model type of the checkpoint's config.json. Checkpoints that read images are predicted "
               "with their vision encoder.",
               f"Errors above {DOUBTED:.0%}: {_doubted(starts)}."])


def _groups(start: Start) -> tuple[tuple[str, str], ...]:
    return ("engine", start.kind), ("GPU", start.gpu), ("family", start.family)


def _doubted(starts: list[Start]) -> str:
    """Return the starts that are further off, each with the planner's note that says why."""
    found = [f"{start.id} ({'; '.join(start.notes) or 'no note'})" for start in starts
             if not abs(start.predicted / start.measured - 1) <= DOUBTED]
    return "; ".join(found) or "none"


def _errors(starts: list[Start]) -> list[Any]:
    return [*error_row([s.predicted for s in starts], [s.measured for s in starts]),
            *error_row([s.predicted_weights_gib for s in starts], [s.measured_weights_gib for s in starts])]


def _start(row: Mapping[str, Any]) -> Start:
    given = {name: row[name] for name in OPTIONS if row[name] not in (None, "")}
    scenario = Scenario(engine_version=_release(row["version"]), **given)
    try:
        deployment = deploy(scenario)
        memory, notes = deployment.memory, tuple(memory_notes(deployment))
    except CapacityError as error:
        memory, notes = None, (str(error),)
    gib, tokens, weights = (float("nan"),) * 3
    if memory is not None:
        gib, tokens, weights = memory.kv_bytes / 2**30, float(memory.num_kv_tokens), memory.weight_bytes / 2**30
    return Start(
        id=row["id"], kind=_kind(row["engine"], row["version"] or ""), gpu=row["gpu"], notes=notes,
        family=load_model(row["model"]).model_type.removesuffix("_text"),
        measured=row["kv_gib"] or float(row["kv_tokens"]), predicted=tokens if row["kv_gib"] is None else gib,
        measured_weights_gib=row["weights_gib"] or float("nan"), predicted_weights_gib=weights)


def _release(version: str | None) -> str | None:
    """Return the release of a start; one behind which the table has "?" is the newest of the log's date."""
    return None if version is None else stated_release(version.removesuffix("?"))


def _kind(engine: str, version: str) -> str:
    if engine != "vllm":
        return {"sglang": "SGLang", "trtllm": "TensorRT-LLM"}[engine]
    numbers = tuple(int(part) for part in version.split(".")[:2] if part)  # of a log of 2025-07 it is not known
    return FITTED if numbers >= FITTED_SINCE else "vLLM before"
