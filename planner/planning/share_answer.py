"""The answer of `planner share`: how deployments of several models share the GPUs of one cluster."""

from dataclasses import dataclass
from typing import Annotated

from planner.files.keys import Key
from planner.planning.size_answer import Fleet, UnableFleet
from planner.results.answers import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentShare:
    """The share of one deployment."""

    deployment: Annotated[str, Key("", "Name of the deployment")]
    load_share: Annotated[float, Key("1", "Share of its load that the fleet serves within the SLO")]
    rate_rps: Annotated[float, Key("requests/s", "Rate of this share of the load")]
    fleet: Annotated[Fleet, Key("", "Fleet, as in the answer of size")]
    others: Annotated[tuple[Fleet | UnableFleet, ...], Key("", "Fleets of the other kinds of replica, and kinds that "
                                                           "cannot serve the load")]
    doubts: Annotated[tuple[str, ...], Key("", "Reasons why the size of the fleet may not hold: the error of the "
                                           "prediction, or a log that is too short for the percentile")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShare:
    """How many GPUs of one kind the deployments take."""

    gpu: Annotated[str, Key("", "GPU")]
    available: Annotated[int, Key("1", "GPUs of the cluster")]
    used: Annotated[int, Key("1", "GPUs that the deployments take; MIG slices of one profile together on as few as "
                             "hold them")]
    lacking: Annotated[int, Key("1", "GPUs to add so that the whole load is served. 0 if it is, and if other GPUs can "
                                "be added instead")]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ShareAnswer(Answer):
    """The output of `planner share --json`."""

    feasible: Annotated[bool, Key("", "Whether the cluster serves all loads within their SLOs")]
    load_share: Annotated[float, Key("1", "Largest share of every load that the cluster serves within the SLOs")]
    minimized: Annotated[str, Key("", "What the choice of fleets minimizes: gpus or cost")]
    deployments: Annotated[tuple[DeploymentShare, ...], Key("", "Fleet of each deployment. Empty if the cluster serves "
                                                            "no share")]
    gpus: Annotated[tuple[GpuShare, ...], Key("", "GPUs by kind")]
    cost_usd_per_hour: Annotated[float, Key("USD/h", "Price of the GPUs that the deployments take")]
    cost_usd_per_month: Annotated[float, Key("USD", "Price of these GPUs over 730 hours")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]
