"""One row of a table of runs: the deployment and the load that it names, and the engine's defaults for the rest."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.catalog.catalog_files import load_gpu, load_model
from planner.engines import ENGINES
from planner.errors import UnknownNameError, UsageError
from planner.measured.run_columns import DATES, LAYOUT, LOAD, MEAN, NAMES, OPTIONS, options_of, text_of
from planner.model.layout import AUTO, Layout
from planner.model.spread import with_exchange
from planner.settings.scenario import parse_scenario
from planner.traces import Trace
from planner.traces.shaping.client_load import at_client_rate, lower_range_load, random_load

UNKNOWN = "unknown"  # the client of a row that names none
CLIENTS = (*(name for name, engine in ENGINES.items() if engine.client is not None), "inferencex", "internal")
DRAW_BELOW = {name for name, engine in ENGINES.items() if engine.client is not None and engine.client.draws_below}
PROMPTS_PER_CONCURRENCY = 10  # if a row does not say how many prompts were sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The content of a row.

    Parameters
    ----------
    gpu, engine, model, version, date, precision : as in the table; empty if it has none. `precision` is the
        weights' format: bf16, fp8, fp4, int4.
    client : a name of CLIENTS, or UNKNOWN.
    isl, osl : lengths of prompts and answers [tokens].
    concurrency : requests in flight over the whole deployment at most [1]; None if a rate alone limits them.
    tp, pp, dp, ep : parallel sizes [1]; `dp` counts attention ranks, `ep` the GPUs that experts are spread over.
    drafts : whether drafts are checked; None if the table does not say.
    has_attention : whether the table says if attention is data parallel, so that its layout needs no correction.
    options : of the scenario, by their names, if the row gives them.
    notes : sentences on how the row was read.
    """

    gpu: str
    engine: str
    model: str
    version: str
    date: str
    precision: str
    client: str
    isl: int
    osl: int
    concurrency: int | None
    tp: int
    pp: int
    dp: int
    ep: int
    drafts: bool | None = None
    has_attention: bool = False
    options: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The given options that go to the scenario as they are."""
        return {name: value for name, value in self.options.items() if name not in (*LOAD, *LAYOUT)}


def read_row(cells: Mapping[str, Any], client: str | None) -> Row:
    """Read a row.

    Parameters
    ----------
    client : of rows that name none.

    Raises
    ------
    UsageError : a cell is wrong, or contradicts another.
    """
    text = {name: text_of(cells, *names) for name, names in NAMES.items()}
    named = text_of(cells, "client") or client or UNKNOWN
    if named not in (*CLIENTS, UNKNOWN):
        raise UnknownNameError("client", named, CLIENTS)
    tp, pp, dp, ep = (int(float(text[name] or 1)) or 1 for name in ("tp", "pp", "dp", "ep"))
    if text_of(cells, "dp_attention").lower() == "true":  # InferenceMAX counts all GPUs as tp then
        tp, dp = 1, tp * dp
    drafting = text_of(cells, "spec_decoding").lower()
    num_gpus = text_of(cells, "n_gpus")
    if num_gpus and float(num_gpus) != tp * pp * dp:
        raise UsageError(f"n_gpus = {num_gpus} beside tp · pp · dp = {tp * pp * dp}; must be equal")
    num_chips = text_of(cells, "n_chips")  # of one device or several: TPU v7 has two
    if num_chips and tp * pp * dp % float(num_chips):
        raise UsageError(f"n_chips = {num_chips} beside tp · pp · dp = {tp * pp * dp}; each chip must have as many "
                         f"devices")
    options = options_of(cells, (*OPTIONS, *LOAD, *LAYOUT), data_parallel_size=dp, pipeline_parallel_size=pp)
    needed = ("isl", "osl") if "request_rate" in options else ("isl", "osl", "concurrency")
    for name in needed:
        if not text[name]:
            raise UsageError(f"{name} is empty; must be a number; fill it in, or leave the row out")
    means = [name for name in ("isl", "osl") if text[name].endswith(MEAN)]
    text |= {name: text[name].removesuffix(MEAN) for name in means}
    notes = [f"{name} = {text[name]} is a mean over requests: all requests have this length" for name in means]
    if text["version"] and not has_release(text["version"]):
        notes.append(f"engine_version = {text['version']} names no release; the newest is assumed")
    return Row(gpu=text["gpu"], engine=text["engine"], model=text["model"], version=text["version"],
               date=text_of(cells, *DATES)[:10], client=named,
               precision=text_of(cells, "precision") or _precision_of(text_of(cells, "gemm_quant_mode")),
               isl=int(float(text["isl"])), osl=int(float(text["osl"])),
               concurrency=int(float(text["concurrency"])) if text["concurrency"] else None,
               tp=tp, pp=pp, dp=dp, ep=ep, drafts=drafting != "none" if drafting else None,
               has_attention=bool(text_of(cells, "dp_attention")), options=options, notes=tuple(notes))


def _precision_of(gemm_mode: str) -> str:
    return {"nvfp4": "fp4", "fp8_block": "fp8", "int4_wo": "int4"}.get(gemm_mode, gemm_mode)


def has_release(version: str) -> bool:
    """Tell whether a row's version gives a release, right or wrong, and not only a platform or a kind of build.

    >>> has_release("0.19.1"), has_release("0.19.x"), has_release("gaudi plugin"), has_release("nightly 426e59f")
    (True, True, False, False)
    """
    return version.removeprefix("v")[:1].isdigit()


def quantization_of(model: str, precision: str) -> str | None:
    """Return the weight format that a precision means; None if the checkpoint has it already."""
    arch = load_model(model)
    format_ = arch.quantization or arch.expert_quantization  # Kimi's have their experts alone in 4 bit
    same = {"fp8": ("fp8", "fp8_block"), "fp4": ("nvfp4", "mxfp4", "fp4"), "int4": ("int4", "int4-g32", "awq", "gptq"),
            "bf16": (None,)}
    if format_ in same.get(precision, ()):
        return None
    return {"fp4": "nvfp4"}.get(precision, precision)


def check_drafts(row: Row) -> None:
    """Raise a UsageError if drafts are checked and nothing says how many."""
    if row.drafts and "num_speculative_tokens" not in row.options:
        raise UsageError("spec_decoding: nothing says how many tokens are drafted; add the columns "
                         "num_speculative_tokens and speculative_method")


def own_run(row: Row) -> dict[str, Any]:
    """Return the scenario, layout and load of a user's own row, by the names of `Measurement`.

    A setting that the row does not give is the default of the engine's server on this GPU; weights and KV cache are
    the checkpoint's.

    Raises
    ------
    PlannerError : the deployment or the load is impossible.
    """
    check_drafts(row)
    gpu = load_gpu(row.gpu)
    options: dict[str, Any] = {"model": row.model, "gpu": gpu.name, "engine": row.engine,
                               "tensor_parallel_size": row.tp, "pipeline_parallel_size": row.pp}
    if has_release(row.version):
        options["engine_version"] = row.version
    if row.precision and (weights := quantization_of(row.model, row.precision)):
        options["quantization"] = weights
    if row.concurrency is not None:
        options["max_concurrency"] = max(row.concurrency // row.dp, 1)
    scenario = parse_scenario(options | row.settings)
    return {"scenario": scenario, "layout": _layout(row), "load": _load(row, scenario.max_concurrency),
            "notes": row.notes}


def _layout(row: Row) -> Layout:
    """Return the layout of a row: ranks of one engine that shares its experts, or replicas, one of them replayed."""
    ranks = row.dp if row.options.get("data_parallel_attention", True) else 1
    whole = row.options.get("expert_parallel")
    size = min(row.ep, row.tp * ranks) if whole is None else row.tp * ranks if whole else 1
    layout = Layout(tensor_parallel_size=row.tp, pipeline_parallel_size=row.pp, data_parallel_size=ranks,
                    expert_parallel_size=size)
    return with_exchange(layout, row.settings.get("all2all_backend", AUTO), ENGINES[row.engine], load_model(row.model),
                         load_gpu(row.gpu))


def _load(row: Row, in_flight: int | None) -> Trace:
    """Return the prompts of one rank, drawn as the row's client draws them; as vLLM's if it names no client.

    Both vLLM's and SGLang's client count every request, the opening burst among them.
    """
    num_prompts, rate_per_s = row.options.get("num_prompts"), row.options.get("request_rate")
    ratio, seed = row.options.get("random_range_ratio"), row.options.get("seed", 0)
    if num_prompts is None and in_flight is None:
        raise UsageError(f"request_rate = {rate_per_s} without num_prompts: the queue depends on how long the run was; "
                         f"add the column num_prompts")
    count = PROMPTS_PER_CONCURRENCY * (in_flight or 1) if num_prompts is None else max(num_prompts // row.dp, 1)
    load = _drawn(row.client, count, row.isl, row.osl, ratio, seed)
    return load if rate_per_s is None else at_client_rate(load, rate_per_s / row.dp, seed=seed)


@functools.cache
def _drawn(client: str, count: int, isl: int, osl: int, ratio: float | None, seed: int) -> Trace:
    if client in DRAW_BELOW:
        return lower_range_load(num_prompts=count, input_tokens=isl, output_tokens=osl, seed=seed, source=client,
                                range_ratio=1.0 if ratio is None else ratio)
    return random_load(num_prompts=count, input_tokens=isl, output_tokens=osl, range_ratio=ratio or 0.0, seed=seed)
