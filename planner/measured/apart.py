"""Rows of runs with prefill and decode apart: the workers of both sides, their settings, and the load of all."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.catalog.catalog_files import load_gpu, load_model
from planner.deployment.parts import blocks_of, parts_of, planned_memory
from planner.deployment.pools import PoolSpec, Role
from planner.errors import CapacityError, UsageError
from planner.measured.inferencex import RANDOM_TOKENS_ACCEPTANCE, checkpoint_of, inferencex_load, kv_type_of
from planner.measured.pool_recipes import SIDES, ApartRun, PoolRecipe, Side, find_pools
from planner.measured.run_columns import DATES, text_of
from planner.measured.run_row import PROMPTS_PER_CONCURRENCY, quantization_of
from planner.settings.default_router import TURNS
from planner.settings.scenario import Scenario, parse_scenario

LARGEST_FRACTION = 0.95  # of a GPU's memory, in SGLang's recipes for four GPUs


def apart_run(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scenario, pools and load of a row, by the names of `Measurement`.

    Raises
    ------
    PlannerError : the deployment is impossible, or a cell is wrong.
    """
    run = _run(cells)
    recipe = find_pools(run) or PoolRecipe(options={}, sides=run.sides, note=(
        f"{run.engine} on {run.gpu}, {run.model} in {run.precision}: no recipe of prefill and decode apart is known, "
        f"so the engine's defaults apply"))
    if not recipe.sides:
        raise UsageError(f"prefill_num_workers = 0, and no recipe has {run.num_gpus} GPUs: must be a whole number from "
                         f"1 on")
    checkpoint, gpu = checkpoint_of(run.model, run.precision), load_gpu(run.gpu)
    common: dict[str, Any] = {
        "model": checkpoint, "gpu": gpu.name, "engine": run.engine, "kv_cache_dtype": kv_type_of(gpu),
        "enable_prefix_caching": False, "max_model_len": run.isl + run.osl + 200, "max_concurrency": run.concurrency,
        "router": TURNS}
    if weights := quantization_of(checkpoint, run.precision):
        common["quantization"] = weights
    pools = tuple(_starting(_pool(role, side, common, recipe, run.concurrency)) for role, side in recipe.sides.items())
    return {"scenario": parse_scenario(common), "pools": pools,
            "notes": (*((recipe.note,) if recipe.note else ()), *(note for pool in pools for note in pool.notes)),
            "load": inferencex_load(run.isl, run.osl, PROMPTS_PER_CONCURRENCY * run.concurrency, 1.0, is_burst=True)}


def _run(cells: Mapping[str, Any]) -> ApartRun:
    """Return a row as recipes match it. Without numbers of workers, both sides are labelled with all GPUs."""
    workers = {text_of(cells, f"{side}_num_workers") for side in SIDES}
    gpus = [_count(cells, f"{side}_gpus") for side in SIDES]
    is_whole = workers == {"0"} and len(set(gpus)) == 1
    return ApartRun(
        engine=text_of(cells, "engine"), gpu=load_gpu(text_of(cells, "gpu")).name, model=text_of(cells, "model"),
        precision=text_of(cells, "precision") or "bf16", isl=_count(cells, "isl"), osl=_count(cells, "osl"),
        drafts=text_of(cells, "spec_decoding").lower() not in ("", "none"), concurrency=_count(cells, "concurrency"),
        day=text_of(cells, *DATES)[:10], num_gpus=gpus[0] if is_whole else sum(gpus),
        sides={} if is_whole else {side: _side(cells, side) for side in SIDES})


def _side(cells: Mapping[str, Any], side: str) -> Side:
    workers, gpus = (_count(cells, f"{side}_{name}") for name in ("num_workers", "gpus"))
    if gpus % workers:
        raise UsageError(f"{side}_gpus = {gpus} beside {side}_num_workers = {workers}; must be a multiple")
    return Side(workers=workers, gpus=gpus // workers,
                has_ranks=text_of(cells, f"{side}_dp_attention").lower() == "true",
                spreads_experts=text_of(cells, f"{side}_ep") not in ("", "1"))


def _count(cells: Mapping[str, Any], name: str) -> int:
    text = text_of(cells, name)
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"{name} = {text or 'empty'}: must be a whole number from 1 on")
    return int(text)


def _pool(role: Role, side: Side, common: Mapping[str, Any], recipe: PoolRecipe, concurrency: int) -> PoolSpec:
    """Return one side as a pool. Ranks with their own attention always spread whole experts.

    Without a recipe for this very load, there are seats for all requests in flight. Tokens are sent to the GPUs of
    their experts from attention ranks alone.
    """
    options = dict(recipe.options.get(role, {}))
    side = replace(side, has_ranks=options.pop("has_ranks", side.has_ranks) and side.gpus > 1)
    values = {"max_num_seqs": _seats(side, concurrency), **common, **options}
    if role == "decode" and not recipe.is_whole:
        values["max_num_seqs"] = max(values["max_num_seqs"], _seats(side, concurrency))
    layout: dict[str, Any] = {
        "tensor_parallel_size": 1 if side.has_ranks else side.gpus,
        "expert_parallel": load_model(common["model"]).num_moe_layers > 0 and side.has_whole_experts}
    if side.has_ranks:
        layout |= {"data_parallel_attention": True, "data_parallel_size": side.gpus}
    else:
        values.pop("all2all_backend", None)
    if values.get("num_speculative_tokens"):
        values |= {"speculative_method": "mtp", "speculative_acceptance": RANDOM_TOKENS_ACCEPTANCE}
    values.setdefault("max_cudagraph_capture_size", values["max_num_seqs"])
    return PoolSpec(name=role, role=role, weight=1, num_replicas=side.num_ranks,
                    scenario=parse_scenario(values | layout), notes=())


def _starting(pool: PoolSpec) -> PoolSpec:
    """Return a pool that starts: with LARGEST_FRACTION of the memory if its weights need more than its recipe gives."""
    if _starts(pool.scenario):
        return pool
    scenario = replace(pool.scenario, gpu_memory_utilization=LARGEST_FRACTION)
    if not _starts(scenario):
        return pool
    return replace(pool, scenario=scenario, notes=(
        f"{pool.name}: gpu_memory_utilization = {pool.scenario.gpu_memory_utilization or 'the default'} leaves no room "
        f"for KV beside the weights on {scenario.gpu}: {LARGEST_FRACTION} applies, the largest of published recipes",))


def _starts(scenario: Scenario) -> bool:
    parts = parts_of(scenario, None)
    try:
        planned_memory(parts, blocks_of(parts)[0])
    except CapacityError:
        return False
    return True


def _seats(side: Side, concurrency: int) -> int:
    """Return seats of a rank for its share of the requests in flight."""
    return max(math.ceil(concurrency / side.num_ranks), 1)
