"""Kinds of replicas that a fleet may have: their prices, their spares and their power."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.catalog.catalog_files import load_gpu, load_model
from planner.catalog.gpus import Gpu
from planner.deployment.deploy import Deployment, Pool, pools_of, resolve
from planner.errors import UsageError
from planner.files.finite import number_in
from planner.planning.fewest import Divided, apart, of_two_kinds, together
from planner.replays.fleet.shares import Share
from planner.replays.result_tables import ReplayResult
from planner.results.energy import mean_power_w
from planner.settings.rate_scaling import RECOMMENDED
from planner.settings.scenario import Scenario, attention_ranks
from planner.traces import Trace
from planner.traces.shaping.rate_series import RateSeries

RANKS = (1, 2, 4, 8)  # tensor-parallel sizes that are tried where none are given


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What fleets are made of, and what is asked of them.

    Parameters
    ----------
    gpus, quantizations : catalog names, and weight formats; None is the checkpoint's own.
    ranks : tensor-parallel sizes; of the defaults, those that a node has GPUs for.
    prices : USD per GPU-hour, by catalog name, in place of the catalog's.
    num_spare : replicas that may fail: as many are added to those that serve the trace [1].
    period_s : length of the parts that a schedule has its own number of replicas for; None for no schedule [s].
    splits : whether fleets in which some replicas prefill and the others decode are tried besides.
    decode_gpus, decode_ranks : what those that decode are made of; None for the same as those that prefill.
    series : rates by window, which the trace's traffic takes on in turn; None for the trace as it is.
    scaling : how the traffic gets another rate, a name of `rescaling.SCALINGS`.
    compares : whether the cheapest fleet's kind is sized by other routers and ways of scaling too.
    jobs : processes; -1 for one a core.
    """

    gpus: Sequence[str]
    quantizations: Sequence[str | None]
    ranks: Sequence[int]
    prices: Mapping[str, float]
    num_spare: int = 0
    period_s: float | None = None
    splits: bool = False
    decode_gpus: Sequence[str] | None = None
    decode_ranks: Sequence[int] | None = None
    series: RateSeries | None = None
    scaling: str = RECOMMENDED
    compares: bool = True
    jobs: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fleet, whose number of replicas is looked for.

    Parameters
    ----------
    scenario : of a replica, or of one that prefills.
    decode : of a replica that decodes; None where it is of the same kind.
    divided : how replicas share the work: `fewest.together` or `fewest.apart`.
    """

    scenario: Scenario
    decode: Scenario | None
    divided: Divided

    @property
    def names(self) -> dict[str, Any]:
        """What tells a kind from the others, as plain values."""
        model = load_model(str(self.scenario.model))
        return {"gpu": load_gpu(str(self.scenario.gpu)).name,
                "tensor_parallel_size": self.scenario.tensor_parallel_size,
                "data_parallel_size": attention_ranks(self.scenario),
                "quantization": self.scenario.quantization or model.quantization or "bf16",
                "decode_gpu": None if self.decode is None else load_gpu(str(self.decode.gpu)).name,
                "decode_tensor_parallel_size": None if self.decode is None else self.decode.tensor_parallel_size}

    def behind(self, router: str) -> "Kind":
        """Return the same replicas behind another router."""
        decode = None if self.decode is None else replace(self.decode, router=router)
        return replace(self, scenario=replace(self.scenario, router=router), decode=decode)

    def deployed(self, trace: Trace) -> Deployment:
        """Return a fleet of the kind, made concrete for a trace."""
        deployment = resolve(self.scenario, trace)
        return deployment if self.decode is None else of_two_kinds(deployment, resolve(self.decode, trace))


def kinds_of(scenario: Scenario, choices: Choices) -> list[Kind]:
    """Return the kinds to try: one for all replicas, or one for those that prefill and one for those that decode.

    Raises
    ------
    UsageError : no node has as many GPUs; options for replicas that decode are given where there are none.
    """
    made = _replicas(scenario, choices.gpus, choices.ranks, choices.quantizations)
    found = [Kind(scenario=one, decode=None, divided=together) for one in made]
    if choices.decode_gpus is None and choices.decode_ranks is None:
        return found + [Kind(scenario=one, decode=None, divided=apart) for one in made if choices.splits]
    if not choices.splits:
        raise UsageError("--decode-gpu, --decode-tensor-parallel-size: need --disaggregate")
    others = _replicas(scenario, choices.decode_gpus or choices.gpus, choices.decode_ranks or choices.ranks,
                       choices.quantizations)
    return found + [Kind(scenario=one, decode=None if other == one else other, divided=apart)
                    for one in made for other in others if other.quantization == one.quantization]


def _replicas(scenario: Scenario, gpus: Sequence[str], ranks: Sequence[int],
              quantizations: Sequence[str | None]) -> list[Scenario]:
    """Return a scenario for each kind of replica that fits a node."""
    found = [replace(scenario, gpu=gpu if gpu.endswith(".toml") else load_gpu(gpu).name, tensor_parallel_size=size,
                     quantization=quantization)
             for gpu, size, quantization in itertools.product(gpus, ranks, quantizations)
             if _fits(scenario, size, load_gpu(gpu))]
    if not found:
        raise UsageError(f"no node of {', '.join(gpus)} has {min(ranks) * attention_ranks(scenario)} GPUs; give other "
                         f"--tensor-parallel-size{', or fewer ranks' * scenario.data_parallel_attention}")
    return found


def _fits(scenario: Scenario, size: int, gpu: Gpu) -> bool:
    """Tell whether ranks of such a tensor-parallel size are in one node, or the network between nodes is given."""
    is_spread = scenario.data_parallel_attention and scenario.inter_node_bandwidth is not None
    return size * (1 if is_spread else attention_ranks(scenario)) <= gpu.gpus_per_node


def replica_price(pool: Pool, choices: Choices) -> float:
    """Return what a replica of a pool costs [USD/h]."""
    gpu = pool.deployment.gpu
    assert gpu is not None
    return pool.deployment.layout.num_gpus * choices.prices.get(gpu.name, gpu.price_usd_per_hour)


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
    """Return the replicas that are added because some may fail: where some prefill and others decode, of each kind."""
    return choices.num_spare * (1 if divided is together else 2)


def parse_prices(text: str | None) -> dict[str, float]:
    """Read `"h100-sxm=2.5,h200-sxm=3"`, in USD per GPU-hour.

    >>> parse_prices("h100-sxm=2.5")
    {'h100-sxm': 2.5}

    Raises
    ------
    UsageError, UnknownNameError : a part is no name and price; there is no such GPU.
    """
    found = {}
    for part in (text or "").replace(",", " ").split():
        name, _, value = part.partition("=")
        price = number_in(value)
        if not 0 <= price < math.inf:
            raise UsageError(f"--price {part!r}: price {value!r}: must be a number of at least 0, as in 'h100-sxm=2.5'")
        found[load_gpu(name).name] = price
    return found


def parse_ranks(text: str | None) -> tuple[int, ...]:
    """Read `"1,2,4"`; the sizes of RANKS where there is nothing.

    Raises
    ------
    UsageError : a part is no whole number above 0, or is given twice.
    """
    if text is None:
        return RANKS
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts) or len(set(parts)) < len(parts):
        raise UsageError(f"--tensor-parallel-size {text!r}: must be whole numbers above 0, each once, as in '1,2,4'")
    return tuple(int(part) for part in parts)
