"""Which assumption flips the decision: the cheapest kinds are sized again under each assumption, changed both ways."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from planner.deployment.deploy import Deployment
from planner.files.counts import share_text
from planner.planning.alternatives import fewest_near
from planner.planning.fewest import together
from planner.planning.fleets import Kind, fleet_cost, spare_replicas
from planner.planning.loads import Traffic
from planner.planning.search_options import Choices
from planner.planning.sensitivity_answer import Changed, Sensitivity, Swing
from planner.planning.size_answer import Fleet
from planner.progress import in_parallel, later
from planner.replays.fleet.replicas import serve
from planner.results.resolved import fitted_deployments
from planner.results.uncertainty import step_factors
from planner.schema import MAX_TOKENS
from planner.settings.objectives import Objectives
from planner.traces import Trace
from planner.traces.shaping.rescaling import compressed, rate_of

SHARE = 0.2  # by which assumptions are changed [1]
QUANTILES = (0.9, 0.1)  # of log(predicted / measured): steps that are shorter, and longer, than predicted
COMPARED = 4  # kinds at most, the chosen one among them
DEARER = 2.0  # times the chosen kind's price above which a kind is not compared
LENGTHS = ("output_tokens", "max_output_tokens", "predicted_output_tokens")
Able = Sequence[tuple[Kind, Fleet]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shift:
    """A changed assumption: the load of a kind, the objectives in its clock, and the factor of the chosen GPU's price.
    """

    text: str
    load: Callable[[Trace, Deployment], Trace]
    objectives: Callable[[Objectives, Deployment], Objectives] = lambda objectives, _: objectives
    price: float = 1.0


def sensitivity(traffic: Traffic, able: Able, objectives: Objectives, choices: Choices) -> Sensitivity:
    """Return the effect of each assumption on the choice and on the number of GPUs.

    Changed are output lengths, prefix hits, the rate and the chosen GPU's price by a fifth, and step times by the 80 %
    interval of their held-out errors. A replay of the chosen fleet gives the prefix hits; if there are none, a fifth
    of each prompt. Each of the kinds that cost at most twice as much is sized again, up to eight times its replicas.

    Parameters
    ----------
    able : kinds with their fleets, the chosen one first.
    """
    (kind, chosen), *others = able
    kept = [(kind, chosen), *((each, fleet) for each, fleet in others
                              if fleet.cost_usd_per_hour <= DEARER * chosen.cost_usd_per_hour)][:COMPARED]
    named = _changes(traffic, kind, chosen)
    tasks = [(change, own, fleet) for _, ends in named for change in ends if change is not None
             for own, fleet in kept]
    calls = (later(_sized)(traffic, own, fleet, objectives, choices, change) for change, own, fleet in tasks)
    sizes = iter(in_parallel("sizing under changed assumptions", calls, len(tasks), choices.jobs))
    swings = []
    for name, ends in named:
        low, high = (None if change is None else _changed(change, kept, [next(sizes) for _ in kept])
                     for change in ends)
        costs = [end.cost_usd_per_hour if end is not None else chosen.cost_usd_per_hour for end in (low, high)]
        known = [cost for cost in costs if cost is not None]
        swings.append(Swing(assumption=name, low=low, high=high,
                            span_usd_per_hour=max(known) - min(known) if len(known) == len(costs) else None))
    swings.sort(key=lambda swing: -math.inf if swing.span_usd_per_hour is None else -swing.span_usd_per_hour)
    break_even = _break_even(kept)
    return Sensitivity(chosen=_words(chosen, chosen.num_gpus), num_gpus=chosen.num_gpus,
                       cost_usd_per_hour=chosen.cost_usd_per_hour, swings=tuple(swings), break_even=break_even,
                       compared=tuple(_words(fleet, fleet.num_gpus) for _, fleet in kept[1:]),
                       sentence=_sentence(chosen, swings, break_even))


def _changes(traffic: Traffic, kind: Kind, chosen: Fleet) -> list[tuple[str, tuple[_Shift | None, _Shift | None]]]:
    """Return the assumptions by name, each with the change to a lighter load or a lower price, and the other way."""
    share = share_text(SHARE)
    found: list[tuple[str, tuple[_Shift | None, _Shift | None]]] = [
        ("output lengths", (_Shift(text=f"−{share}", load=lambda load, _: _with_lengths(load, 1 - SHARE)),
                            _Shift(text=f"+{share}", load=lambda load, _: _with_lengths(load, 1 + SHARE)))),
        ("request rate", (_Shift(text=f"−{share}", load=lambda _, __: traffic.grown(1 - SHARE, chosen.trace_copies)),
                          _Shift(text=f"+{share}", load=lambda _, __: traffic.grown(1 + SHARE, chosen.trace_copies)))),
        ("step times", (_slower(0), _slower(1))),
        ("GPU price", (_Shift(text=f"−{share}", load=lambda load, _: load, price=1 - SHARE),
                       _Shift(text=f"+{share}", load=lambda load, _: load, price=1 + SHARE)))]
    hits = _prefix_changes(traffic, kind, chosen)
    return [*found, ("prefix hits", hits)] if hits is not None else found


def _slower(end: int) -> _Shift:
    """Return step times at one end of their interval.

    With all times f times as long, a load behaves as one that comes f times as fast, within limits of 1 / f.
    """
    return _Shift(
        text=("shorter", "longer")[end] + " by their errors",
        load=lambda load, deployment: compressed(load, rate_of(load) * _factor(deployment, end), 0),
        objectives=lambda objectives, deployment: objectives.scaled(1 / _factor(deployment, end)))


def _factor(deployment: Deployment, end: int) -> float:
    """Return how much longer steps are than predicted at one end of the 80 % interval; of pools, the extreme."""
    quantile = np.array([QUANTILES[end]])
    return (min, max)[end](float(step_factors(own, quantile)[0]) for own in fitted_deployments(deployment))


def _with_lengths(load: Trace, factor: float) -> Trace:
    """Return a load with longer outputs, output limits and predicted outputs."""
    columns = [name for name in LENGTHS if name in load.requests.columns]
    return replace(load, requests=load.requests.with_columns(
        (pl.col(name) * factor).round().clip(1, MAX_TOKENS).cast(load.requests.schema[name]) for name in columns))


def _prefix_changes(traffic: Traffic, kind: Kind, chosen: Fleet) -> tuple[_Shift | None, _Shift] | None:
    """Return changes of the prompt tokens that a cache has; None if no replica caches any.

    All kinds are sized on the chosen fleet's load, whose requests these are: another one's may be longer.
    """
    if kind.divided is not together or kind.scenario.enable_prefix_caching is False:
        return None
    load = traffic.load(chosen.trace_copies)
    deployment = kind.deployed(load)
    count = chosen.num_replicas - chosen.num_spare
    hits = np.maximum(np.asarray(serve(load, deployment, count).records.requests.num_cached_tokens), 0)
    inputs = load.requests["input_tokens"].to_numpy()
    share = share_text(SHARE)

    def with_hits(text: str, hits: np.ndarray) -> _Shift:
        return _Shift(text=text, load=lambda _, __: _with_hits(traffic.load(chosen.trace_copies), hits))

    if not hits.any():
        return None, with_hits(f"of {share}", inputs * SHARE)
    return with_hits(f"+{share}", hits * (1 + SHARE)), with_hits(f"−{share}", hits * (1 - SHARE))


def _with_hits(load: Trace, hits: np.ndarray) -> Trace:
    """Return a load with given hits in place of shared prefixes."""
    most = load.requests["input_tokens"].to_numpy() - 1
    tokens = np.minimum(np.round(hits), most).astype(np.int64)
    return replace(load, prefix=None, requests=load.requests.with_columns(pl.Series("cached_tokens", tokens)))


def _sized(traffic: Traffic, kind: Kind, fleet: Fleet, objectives: Objectives, choices: Choices,
           change: _Shift) -> tuple[int, float] | None:
    """Return the GPUs of a kind under a change, and their price; None if no number of replicas tried is enough."""
    if change.price != 1.0:  # nothing else is changed
        return fleet.num_gpus, fleet.cost_usd_per_hour
    load = traffic.load(fleet.trace_copies)
    deployment = kind.deployed(load)
    load, wanted = change.load(load, deployment), change.objectives(objectives, deployment)
    guess = fleet.num_replicas - spare_replicas(choices, kind.divided)
    sized = fewest_near(load, kind, wanted, choices, guess)
    return None if sized is None else (sized.gpus(kind, choices), fleet_cost(sized.served, choices))


def _changed(change: _Shift, kept: Able, sizes: Sequence[tuple[int, float] | None]) -> Changed:
    """Return the chosen kind under a change, and which kind is the cheapest then."""
    gpu = kept[0][1].kind.gpu
    priced = [None if size is None else (size[0], size[1] * (change.price if fleet.kind.gpu == gpu else 1.0))
              for size, (_, fleet) in zip(sizes, kept, strict=True)]
    own = priced[0]
    rows = [(size[1], place, size[0]) for place, size in enumerate(priced) if size is not None]
    best = min(rows, default=None)
    return Changed(change=change.text, num_gpus=None if own is None else own[0],
                   cost_usd_per_hour=None if own is None else own[1],
                   cheapest="none" if best is None else _words(kept[best[1]][1], best[2]),
                   cheapest_usd_per_hour=None if best is None else best[0],
                   is_flipped=best is None or best[1] != 0)


def _break_even(kept: Able) -> float | None:
    """Return the share by which the chosen GPU's price may grow until a fleet of another GPU is cheaper."""
    chosen = kept[0][1]
    others = [fleet.cost_usd_per_hour for _, fleet in kept[1:]
              if fleet.kind.gpu != chosen.kind.gpu and fleet.kind.decode_gpu is None]
    if not others or chosen.cost_usd_per_hour <= 0 or chosen.kind.decode_gpu is not None:
        return None
    return min(others) / chosen.cost_usd_per_hour - 1.0


def _words(fleet: Fleet, num_gpus: int) -> str:
    kind = fleet.kind
    decode = f" + {kind.decode_gpu}" if kind.decode_gpu else ""
    return f"{num_gpus:,} × {kind.gpu}{decode} (tp {kind.tensor_parallel_size}, {kind.quantization})"


def _sentence(chosen: Fleet, swings: Sequence[Swing], break_even: float | None) -> str:
    """Return which assumptions flip the choice, which the number of GPUs, and how far the price may grow."""
    ends = [(swing.assumption, end) for swing in swings for end in (swing.low, swing.high) if end is not None]
    flips = [(name, end) for name, end in ends if end.is_flipped]
    sizes = [f"{name} {end.change} ({end.num_gpus:,})" for name, end in ends
             if not end.is_flipped and end.num_gpus is not None and end.num_gpus != chosen.num_gpus]
    first = f"the choice of {_words(chosen, chosen.num_gpus)} holds under every change that was tried"
    if flips:
        named = {name: " and ".join(end.change for other, end in flips if other == name) for name, _ in flips}
        fleets = ", ".join(dict.fromkeys(end.cheapest for _, end in flips))
        first = (f"the choice of {_words(chosen, chosen.num_gpus)} flips with "
                 f"{', '.join(f'{name} {change}' for name, change in named.items())} (to {fleets})")
    second = [f"its number of GPUs changes with {', '.join(sizes)}"] if sizes else []
    third = [] if break_even is None else [f"another GPU is cheaper once {chosen.kind.gpu} costs "
                                           f"{share_text(break_even)} more"]
    return "; ".join([first, *second, *third])
