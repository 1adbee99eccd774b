"""Kinds of replicas that a fleet may have: their prices, their spares and their power."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.catalog.catalog_files import load_gpu, load_model
from planner.catalog.gpus import Gpu
from planner.catalog.prices import GpuPrice
from planner.deployment.deploy import Deployment, Pool, pools_of, resolve
from planner.deployment.starting import startable
from planner.errors import UsageError
from planner.planning.fewest import Divided, apart, of_two_kinds, together
from planner.planning.instances import Rent, rent
from planner.planning.price_list import ON_DEMAND, RESERVED, SPOT
from planner.planning.search_options import RANKS, Choices
from planner.planning.size_answer import KindNames
from planner.replays.fleet.shares import Share
from planner.replays.result_tables import ReplayResult
from planner.results.energy import mean_power_w
from planner.settings.scenario import Scenario, attention_ranks
from planner.traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fleet, whose number of replicas is looked for.

    Parameters
    ----------
    scenario : of a replica, or of one that prefills.
    decode : of a replica that decodes; None if it has the same kind.
    divided : how replicas share the work: `fewest.together` or `fewest.apart`.
    lowered : a sentence on a context limit that is lower than the engine's default, so that the engine starts.
    """

    scenario: Scenario
    decode: Scenario | None
    divided: Divided
    lowered: str | None = None

    @property
    def names(self) -> KindNames:
        """The names that distinguish a kind from the others."""
        model = load_model(str(self.scenario.model))
        return KindNames(
            gpu=load_gpu(str(self.scenario.gpu)).name, tensor_parallel_size=self.scenario.tensor_parallel_size,
            data_parallel_size=attention_ranks(self.scenario),
            quantization=self.scenario.quantization or model.quantization or "bf16",
            decode_gpu=None if self.decode is None else load_gpu(str(self.decode.gpu)).name,
            decode_tensor_parallel_size=None if self.decode is None else self.decode.tensor_parallel_size)

    def behind(self, router: str) -> "Kind":
        """Return the same replicas behind another router."""
        decode = None if self.decode is None else replace(self.decode, router=router)
        return replace(self, scenario=replace(self.scenario, router=router), decode=decode)

    def started(self, trace: Trace) -> "Kind":
        """Return the kind with a context limit with which its engines start; replicas of two kinds have the same.

        Raises
        ------
        CapacityError : an engine would not start, and no limit that holds the requests of the trace helps.
        """
        found = startable(self.scenario, trace)
        if self.decode is None:
            return replace(self, scenario=found.scenario, lowered=found.lowered)
        other = startable(self.decode, trace)
        least = min((found, other), key=lambda each: each.deployment.settings.max_model_len)
        if least.lowered is None:
            return self
        limit = least.scenario.max_model_len
        return replace(self, scenario=replace(self.scenario, max_model_len=limit),
                       decode=replace(self.decode, max_model_len=limit), lowered=least.lowered)

    def deployed(self, trace: Trace) -> Deployment:
        """Return a fleet of the kind, made concrete for a trace."""
        deployment = resolve(self.scenario, trace)
        return deployment if self.decode is None else of_two_kinds(deployment, resolve(self.decode, trace))


def kinds_of(scenario: Scenario, choices: Choices) -> list[Kind]:
    """Return the kinds to try: one for all replicas, or one for prefill replicas and one for decode replicas.

    Raises
    ------
    UsageError : no node has as many GPUs; options for decode replicas are given, but there are none.
    """
    gpus = choices.gpus or (str(scenario.gpu),)
    made = _replicas(scenario, gpus, choices.ranks, choices.quantizations)
    found = [Kind(scenario=one, decode=None, divided=together) for one in made]
    if choices.decode_gpus is None and choices.decode_ranks is None:
        return found + [Kind(scenario=one, decode=None, divided=apart) for one in made if choices.disaggregate]
    if not choices.disaggregate:
        raise UsageError("--decode-gpu, --decode-tensor-parallel-size: need --disaggregate")
    others = _replicas(scenario, choices.decode_gpus or gpus, choices.decode_ranks or choices.ranks,
                       choices.quantizations)
    return found + [Kind(scenario=one, decode=None if other == one else other, divided=apart)
                    for one in made for other in others if other.quantization == one.quantization]


def _replicas(scenario: Scenario, gpus: Sequence[str], ranks: Sequence[int],
              quantizations: Sequence[str | None]) -> list[Scenario]:
    """Return a scenario for each kind of replica; of the usual sizes, for each that fits a node."""
    scenarios = [replace(scenario, gpu=gpu if gpu.endswith(".toml") else load_gpu(gpu).name, tensor_parallel_size=size,
                         quantization=quantization)
                 for gpu, size, quantization in itertools.product(gpus, ranks, quantizations)
                 if tuple(ranks) != RANKS or _fits(scenario, size, load_gpu(gpu))]
    if not scenarios:
        raise UsageError(f"no node of {', '.join(gpus)} has {_num_gpus(scenario, min(ranks))} GPUs; give "
                         f"--inter-node-bandwidth, or fewer ranks or stages")
    return scenarios


def _fits(scenario: Scenario, size: int, gpu: Gpu) -> bool:
    """Tell whether a replica is in one node; between the nodes of a given network, whether a rank is."""
    return (size if scenario.inter_node_bandwidth is not None else _num_gpus(scenario, size)) <= gpu.gpus_per_node


def _num_gpus(scenario: Scenario, size: int) -> int:
    """Return the GPUs of a replica of a tensor-parallel size."""
    return size * scenario.pipeline_parallel_size * attention_ranks(scenario)


def with_prices(choices: Choices) -> Choices:
    """Return choices with prices by GPU and term: of the options, then of the file, then of the cloud.

    A price by the GPU is an instance's over its GPUs, the lowest of the cloud's. The cloud's instances stay for the
    GPUs and terms that have no other price.
    """
    stated = {term: {**choices.price_file.get(term, {}), **prices} for term, prices in _prices(choices).items()}
    cloud = tuple(row for row in choices.cloud if row.gpu not in stated[row.term])
    for row in sorted(cloud, key=lambda row: -row.usd_per_gpu_hour):
        stated[row.term][row.gpu] = row.usd_per_gpu_hour
    return replace(choices, prices=stated[ON_DEMAND], reserved_prices=stated[RESERVED], spot_prices=stated[SPOT],
                   price_file={}, cloud=cloud)


def _prices(choices: Choices) -> dict[str, Mapping[str, float]]:
    """Return the prices that the options state, by term."""
    return {ON_DEMAND: choices.prices, RESERVED: choices.reserved_prices, SPOT: choices.spot_prices}


def price_of(gpu: Gpu, term: str, choices: Choices) -> float | None:
    """Return the price of a GPU on a term [USD/h]; None if it is not stated.

    The catalog has on-demand prices alone. A MIG slice without a price of its own costs its part of the GPU's.
    """
    prices = _prices(choices)[term]
    if gpu.name in prices:
        return prices[gpu.name]
    if gpu.slice_of in prices:
        return prices[gpu.slice_of] / gpu.instances
    return gpu.price_usd_per_hour if term == ON_DEMAND else None


def check_prices(choices: Choices) -> None:
    """Raise UsageError if a price is given for a GPU that no fleet has."""
    gpus = [load_gpu(name) for name in (*choices.gpus, *(choices.decode_gpus or ())) if name]
    known = {name for gpu in gpus for name in (gpu.name, gpu.slice_of)}
    for option, prices in (("--price", choices.prices), ("--reserved-price", choices.reserved_prices),
                           ("--spot-price", choices.spot_prices)):
        for name in prices.keys() - known if gpus else ():
            raise UsageError(f"{option} {name}={prices[name]:g}: no fleet has this GPU; --gpu names "
                             f"{', '.join(gpu.name for gpu in gpus)}")


def replica_price(pool: Pool, choices: Choices) -> float:
    """Return the on-demand price of a replica's GPUs [USD/h]."""
    gpu = pool.deployment.gpu
    assert gpu is not None
    return pool.deployment.layout.num_gpus * (price_of(gpu, ON_DEMAND, choices) or 0.0)


def pool_rent(pool: Pool, choices: Choices) -> Rent:
    """Return the on-demand price of a pool's replicas, with spares, and the instances of a cloud that hold them."""
    gpu, count = pool.deployment.gpu, pool.num_groups + choices.num_spare
    assert gpu is not None
    prices = cloud_prices(gpu, ON_DEMAND, choices)
    if prices:
        return rent(count, pool.deployment.layout.num_gpus, prices)
    return Rent(count * replica_price(pool, choices))


def cost_of(gpu: Gpu, num_replicas: int, num_gpus: int, term: str, choices: Choices) -> float | None:
    """Return the price of equal replicas on a term, in whole instances of a cloud [USD/h]; None if none is stated."""
    price, prices = price_of(gpu, term, choices), cloud_prices(gpu, term, choices)
    if prices and num_replicas:
        return rent(num_replicas, math.ceil(num_gpus / num_replicas), prices).usd_per_hour
    return None if price is None else num_gpus * price


def cloud_prices(gpu: Gpu, term: str, choices: Choices) -> list[GpuPrice]:
    """Return the cloud's prices of a GPU on a term. A MIG slice has none: it costs its part of a GPU."""
    return [row for row in choices.cloud if row.gpu == gpu.name and row.term == term]


def rents(served: ReplayResult, choices: Choices) -> list[Rent]:
    """Return the on-demand rent of each pool of a replay, with spares."""
    return [pool_rent(pool, choices) for pool in pools_of(served.deployment, served.num_replicas)]


def fleet_cost(served: ReplayResult, choices: Choices) -> float:
    """Return the on-demand price of the replicas of a replay, with spares [USD/h]."""
    return sum(part.usd_per_hour for part in rents(served, choices))


def whole_gpus(kind: KindNames, num_gpus: int) -> int:
    """Return the number of whole GPUs for `num_gpus`; MIG slices share as few GPUs as hold them."""
    return math.ceil(num_gpus / load_gpu(kind.gpu).instances)


def slice_notes(kind: KindNames, num_gpus: int) -> list[str]:
    """Return notes on a fleet of MIG slices: the number of whole GPUs, and the basis of its figures."""
    gpu = load_gpu(kind.gpu)
    if not gpu.slice_of:
        return []
    return [f"{num_gpus:,} × {gpu.name} take {whole_gpus(kind, num_gpus):,} × {gpu.slice_of}, which holds "
            f"{gpu.instances} each; costs count the slices alone, and nobody measured step times on a slice"]


def power_kw(part: Share, duration_s: float, choices: Choices) -> float:
    """Return the mean draw of a pool, its spare replicas idle [kW]."""
    pool, gpu = part.pool, part.pool.deployment.gpu
    assert gpu is not None
    total_w = pool.num_groups * mean_power_w(part, duration_s) + choices.num_spare * gpu.idle_w
    return total_w * pool.deployment.layout.num_gpus / 1e3


def count_gpus(served: ReplayResult) -> int:
    """Return the GPUs of all replicas of a replay."""
    return sum(pool.num_gpus for pool in pools_of(served.deployment, served.num_replicas))


def spare_gpus(deployment: Deployment, choices: Choices, divided: Divided) -> int:
    """Return the GPUs of the spare replicas."""
    if deployment.pools:
        return choices.num_spare * sum(pool.deployment.layout.num_gpus for pool in deployment.pools)
    return spare_replicas(choices, divided) * deployment.layout.num_gpus


def spare_replicas(choices: Choices, divided: Divided) -> int:
    """Return the replicas that are added because some may fail; of each kind if some prefill and others decode."""
    return choices.num_spare * (1 if divided is together else 2)
