"""Rows of runs with prefill and decode apart: the workers of both sides, their settings, and the load of all."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.catalog.catalog_files import load_gpu, load_model
from planner.deployment.pools import PoolSpec, Role
from planner.errors import UsageError
from planner.measured.inferencex import RANDOM_TOKENS_ACCEPTANCE, checkpoint_of, inferencex_load, kv_type_of
from planner.measured.recipes import recipe_rows
from planner.measured.run_columns import text_of
from planner.measured.run_row import PROMPTS_PER_CONCURRENCY, quantization_of
from planner.settings.default_router import TURNS
from planner.settings.scenario import parse_scenario

SIDES: tuple[Role, ...] = ("prefill", "decode")
RECIPES = "disaggregated"  # in hardware_db/recipes
CONDITIONS = ("engine", "gpu", "model", "precision", "isl", "drafts",
              "prefill_workers", "decode_workers", "decode_gpus", "decode_ranks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The workers of one side.

    Parameters
    ----------
    workers : engines [1].
    gpus : of one engine [1].
    has_ranks : whether each GPU has its own attention.
    spreads_experts : whether whole experts are spread over a worker's GPUs, by the label ep.
    """

    workers: int
    gpus: int
    has_ranks: bool
    spreads_experts: bool

    @property
    def num_ranks(self) -> int:
        """Attention ranks of all workers."""
        return self.workers * (self.gpus if self.has_ranks else 1)


def apart_run(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scenario, pools and load of a row, by the names of `Measurement`.

    Raises
    ------
    PlannerError : the deployment is impossible, or a cell is wrong.
    """
    sides = {side: _side(cells, side) for side in SIDES}
    model, precision = text_of(cells, "model"), text_of(cells, "precision") or "bf16"
    gpu, engine = load_gpu(text_of(cells, "gpu")), text_of(cells, "engine")
    isl, osl, concurrency = (_count(cells, name) for name in ("isl", "osl", "concurrency"))
    drafts = text_of(cells, "spec_decoding").lower() not in ("", "none")
    sets = _settings({"engine": engine, "gpu": gpu.name, "model": model, "precision": precision, "isl": isl,
                      "drafts": drafts,
                      "prefill_workers": sides["prefill"].workers, "decode_workers": sides["decode"].workers,
                      "decode_gpus": sides["decode"].gpus, "decode_ranks": sides["decode"].has_ranks}, concurrency)
    checkpoint = checkpoint_of(model, precision)
    common: dict[str, Any] = {
        "model": checkpoint, "gpu": gpu.name, "engine": engine, "kv_cache_dtype": kv_type_of(gpu),
        "enable_prefix_caching": False, "max_model_len": isl + osl + 200, "max_concurrency": concurrency,
        "router": TURNS}
    if weights := quantization_of(checkpoint, precision):
        common["quantization"] = weights
    is_mixture = load_model(checkpoint).num_moe_layers > 0
    sides = {role: replace(side, has_ranks=sets[role].pop("has_ranks", side.has_ranks)) for role, side in sides.items()}
    pools = tuple(_pool(role, side, common | _seats(side, concurrency) | sets[role], is_mixture)
                  for role, side in sides.items())
    return {"scenario": parse_scenario(common), "pools": pools,
            "load": inferencex_load(isl, osl, PROMPTS_PER_CONCURRENCY * concurrency, 1.0, is_burst=True)}


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


def _seats(side: Side, concurrency: int) -> dict[str, Any]:
    """Return seats and graphs for the requests in flight, if no recipe names them."""
    return {"max_num_seqs": max(math.ceil(concurrency / side.num_ranks), 1)}


def _pool(role: Role, side: Side, options: Mapping[str, Any], is_mixture: bool) -> PoolSpec:
    """Return one side as a pool. Ranks with their own attention always spread whole experts."""
    has_ranks = side.has_ranks and side.gpus > 1
    layout: dict[str, Any] = {"tensor_parallel_size": 1 if has_ranks else side.gpus,
                              "expert_parallel": is_mixture and (has_ranks or side.spreads_experts)}
    if has_ranks:
        layout |= {"data_parallel_attention": True, "data_parallel_size": side.gpus}
    values = dict(options)
    if values.get("num_speculative_tokens"):
        values |= {"speculative_method": "mtp", "speculative_acceptance": RANDOM_TOKENS_ACCEPTANCE}
    values.setdefault("max_cudagraph_capture_size", values["max_num_seqs"])
    return PoolSpec(name=role, role=role, weight=1, num_replicas=side.num_ranks,
                    scenario=parse_scenario(values | layout), notes=())


def _settings(run: Mapping[str, Any], concurrency: int) -> dict[str, dict[str, Any]]:
    """Return the options of both sides from the first recipe with fulfilled conditions; empty without one.

    Raises
    ------
    CatalogError : a recipe has a condition that nothing reads.
    """
    for row in recipe_rows(RECIPES, "pools", frozenset({*CONDITIONS, "min_concurrency"}), frozenset(SIDES)):
        holds = all(row.get(name, run[name]) == run[name] for name in CONDITIONS)
        if holds and concurrency >= row.get("min_concurrency", 0):
            return {side: dict(row.get(side, {})) for side in SIDES}
    return {side: {} for side in SIDES}
