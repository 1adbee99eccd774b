"""Deployments of several models on one cluster: the fewest GPUs, or the cheapest, or the largest share of all loads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.catalog.catalog_files import load_gpu
from planner.errors import ClusterError, PlannerError, UsageError
from planner.files.counts import share_text
from planner.planning.cluster_file import Candidate, Cluster, read_cluster, whole_gpu
from planner.planning.prediction_error import doubts
from planner.planning.price_list import usd_per_month
from planner.planning.search_options import RANKS, Choices
from planner.planning.share_answer import DeploymentShare, GpuShare, ShareAnswer
from planner.planning.size_answer import Fleet, SizeAnswer
from planner.planning.sizing import reasons_of, size
from planner.planning.study import Study, times_rate
from planner.progress import counted
from planner.settings.format_spec import Reading, over
from planner.settings.objectives import Objectives
from planner.traces import Trace
from planner.traces.shaping.client_load import read_load

MINIMIZED = ("gpus", "cost")
ANY = Reading()
TOLERANCE = 0.02  # of the share of the loads


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedDeployment:
    """A deployment with the fleets that serve a share of its load, one for each kind of replica that can."""

    name: str
    answer: SizeAnswer

    @property
    def fleets(self) -> tuple[Fleet, ...]:
        """The fleets that meet the objectives."""
        return tuple(fleet for fleet in self.answer.alternatives if isinstance(fleet, Fleet))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFleets:
    """One fleet for each deployment, and the whole GPUs that they take.

    Parameters
    ----------
    fleets : in the order of the deployments.
    used, lacking : GPUs by name: the GPUs taken, and the part of them that the cluster does not have.
    """

    fleets: tuple[Fleet, ...]
    used: Mapping[str, int]
    lacking: Mapping[str, int]


def share(path: Path, choices: Choices, minimize: str = "gpus", reading: Reading = ANY) -> ShareAnswer:
    """Find a fleet for each deployment of a cluster file within the GPUs of the cluster.

    Each deployment has replicas of one kind, as in `size`. If the GPUs do not suffice, the loads are lowered by the
    same share, by bisection, until they do.

    Parameters
    ----------
    choices : prices, spares and the method of changing the rate; its GPUs and sizes are the file's.
    minimize : "gpus", ties by cost, or "cost", ties by GPUs.
    reading : how all traces are read, in addition to the keys of a deployment's table.

    Raises
    ------
    ClusterError : the file is wrong, or a deployment in it cannot be replayed.
    UsageError : there is nothing of this name to minimize.
    """
    if minimize not in MINIMIZED:
        raise UsageError(f"--minimize {minimize}: must be {' or '.join(MINIMIZED)}")
    choices = replace(choices, compare_assumptions=False)
    cluster = read_cluster(path, RANKS)
    loads = [_read(path, candidate.study, reading) for candidate in cluster.candidates]

    def sized(load_share: float) -> list[SizedDeployment]:
        what = "sizing deployments"
        what += "" if load_share == 1.0 else f" at {share_text(load_share)} of their loads"
        return [_size(path, candidate, load, choices, load_share) for candidate, load in counted(
            what, list(zip(cluster.candidates, loads, strict=True)))]

    whole = sized(1.0)
    unable = [each.name for each in whole if not each.fleets]
    if unable:
        return _answer(cluster, whole, None, 0.0, minimize, [_unable(each) for each in whole if not each.fleets])
    if (found := choose(whole, cluster.gpus, minimize)) is not None:
        return _answer(cluster, whole, found, 1.0, minimize, [])
    lacking = choose(whole, cluster.gpus, minimize, may_lack=True)
    assert lacking is not None
    lower, upper, best, chosen = 0.0, 1.0, whole, None
    while upper - lower > TOLERANCE:
        middle = (lower + upper) / 2
        lowered = sized(middle)
        if all(each.fleets for each in lowered) and (found := choose(lowered, cluster.gpus, minimize)) is not None:
            lower, best, chosen = middle, lowered, found
        else:
            upper = middle
    return _answer(cluster, best, chosen, lower, minimize, [], lacking.lacking)


def choose(sized: Sequence[SizedDeployment], gpus: Mapping[str, int], minimize: str, *,
           may_lack: bool = False) -> ClusterFleets | None:
    """Return the best fleet for each deployment within the GPUs, exactly; None if there is none.

    An integer program: one fleet for each deployment, and for each GPU and MIG profile the number of whole GPUs that
    hold the replicas of all deployments. If GPUs may be lacking, the fewest of them come before all else.

    Parameters
    ----------
    gpus : number of each GPU.
    minimize : "gpus" or "cost".
    may_lack : whether the fleets may take more than there are.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    options = [(row, fleet) for row, each in enumerate(sized) for fleet in each.fleets]
    kinds = sorted({fleet.kind.gpu for _, fleet in options})
    names, count = list(gpus), len(options)
    size_of = count + len(kinds) + len(names)  # a fleet each, whole GPUs of each kind, GPUs that lack
    rows: list[np.ndarray[Any, Any]] = []
    lows, highs = [], []

    def keep(row: "np.ndarray[Any, Any]", low: float, high: float) -> None:
        rows.append(row)
        lows.append(low)
        highs.append(high)

    for number in range(len(sized)):
        row = np.zeros(size_of)
        row[:count] = [own == number for own, _ in options]
        keep(row, 1, 1)
    for place, kind in enumerate(kinds):
        row = np.zeros(size_of)
        row[:count] = [fleet.num_gpus if fleet.kind.gpu == kind else 0 for _, fleet in options]
        row[count + place] = -load_gpu(kind).instances
        keep(row, -np.inf, 0)
    for place, name in enumerate(names):
        row = np.zeros(size_of)
        row[count:count + len(kinds)] = [whole_gpu(kind) == name for kind in kinds]
        row[count + len(kinds) + place] = -1
        keep(row, 0, gpus[name])
    costs = np.array([fleet.cost_usd_per_hour for _, fleet in options])
    most_cost = 1.0 + costs.sum()
    weights = np.concatenate([costs, np.zeros(len(kinds) + len(names))])
    if minimize == "gpus":
        weights /= most_cost  # below one GPU: of choices with as many GPUs the cheapest
        weights[count:count + len(kinds)] = 1.0
    else:
        weights[count:count + len(kinds)] = 1e-6
    most_gpus = sum(fleet.num_gpus for _, fleet in options) + 1.0
    weights[count + len(kinds):] = (most_gpus + most_cost) if may_lack else 0.0
    lack = most_gpus if may_lack else 0.0
    found = milp(weights, integrality=np.ones(size_of), bounds=Bounds(
        np.zeros(size_of), np.concatenate([np.ones(count), np.full(len(kinds), most_gpus), np.full(len(names), lack)])),
        constraints=LinearConstraint(np.array(rows), lows, highs), options={"mip_rel_gap": 0.0})
    if found.x is None:
        return None
    taken = np.rint(found.x).astype(int)
    used = {name: int(sum(taken[count + place] for place, kind in enumerate(kinds) if whole_gpu(kind) == name))
            for name in names}
    return ClusterFleets(fleets=tuple(fleet for (_, fleet), is_taken in zip(options, taken, strict=False) if is_taken),
                         used=used, lacking={name: max(used[name] - gpus[name], 0) for name in names})


def _read(path: Path, study: Study, reading: Reading) -> Trace:
    try:
        return read_load(study.trace, study.scenario, over(study.format, reading.spec),
                         "drop" if "drop" in (study.on_bad_rows, reading.on_bad_rows) else "error")
    except PlannerError as error:
        raise ClusterError(f"{path}: deployment.{study.name}: {error}") from error


def _size(path: Path, candidate: Candidate, load: Trace, choices: Choices, load_share: float) -> SizedDeployment:
    """Return the fleets that serve a share of a deployment's load."""
    study, scenario = candidate.study, candidate.study.scenario
    assert study.objectives is not None
    if load_share < 1.0:
        scenario = times_rate(scenario, load_share)
    asked = replace(choices, gpus=candidate.gpus, ranks=candidate.ranks, quantizations=candidate.quantizations)
    try:
        answer = size(load, scenario, study.objectives, asked)
    except PlannerError as error:
        raise ClusterError(f"{path}: deployment.{study.name}: {error}") from error
    return SizedDeployment(name=study.name, answer=answer)


def _doubts(sized: SizedDeployment, fleet: Fleet, objectives: Objectives | None) -> tuple[str, ...]:
    """Return why the size of a fleet may not hold: the answer has the reasons of its cheapest fleet."""
    answer = sized.answer
    if fleet is answer.cheapest:
        return answer.doubts
    assert objectives is not None
    count = fleet.num_replicas - fleet.num_spare * (1 + (fleet.prefill_replicas > 0))
    return doubts(answer.workload.num_recorded, answer.workload.num_requests * fleet.trace_copies, count,
                  [fleet, *(other for other in sized.fleets if other is not fleet)], objectives, None)


def _unable(sized: SizedDeployment) -> str:
    fleets = [fleet for fleet in sized.answer.alternatives if not isinstance(fleet, Fleet)]
    return f"{sized.name}: no number of replicas meets its SLO: {reasons_of(fleets)}"


def _answer(cluster: Cluster, sized: Sequence[SizedDeployment], chosen: ClusterFleets | None, load_share: float,
            minimize: str, notes: Sequence[str], lacking: Mapping[str, int] | None = None) -> ShareAnswer:
    fleets = () if chosen is None else chosen.fleets
    deployments = tuple(
        DeploymentShare(deployment=each.name, load_share=load_share, rate_rps=each.answer.request_rate or 0.0,
                        fleet=fleet, others=tuple(other for other in each.answer.alternatives if other is not fleet),
                        doubts=_doubts(each, fleet, candidate.study.objectives))
        for each, fleet, candidate in zip(sized, fleets, cluster.candidates, strict=False))
    cost = sum(fleet.cost_usd_per_hour for fleet in fleets)
    return ShareAnswer(
        feasible=load_share == 1.0, load_share=load_share, minimized=minimize, deployments=deployments,
        gpus=tuple(GpuShare(gpu=name, available=count, used=0 if chosen is None else chosen.used[name],
                            lacking=0 if lacking is None else lacking[name])
                   for name, count in cluster.gpus.items()),
        cost_usd_per_hour=cost, cost_usd_per_month=usd_per_month(cost),
        notes=(*notes, *(f"{each.deployment}: {note}" for each in deployments for note in each.fleet.notes)))
