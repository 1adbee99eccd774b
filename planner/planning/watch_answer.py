"""The answer of `planner watch`: one interval of measured values beside replays, and its drift."""

from dataclasses import dataclass
from typing import Annotated

from planner.files.keys import Key
from planner.results.answers import Answer

CAUSES = ("traffic", "server", "plan", "objective")  # of drift


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One measured value beside its predictions."""

    name: Annotated[str, Key("", "Name, as in mean_tpot_ms")]
    unit: Annotated[str, Key("", "Unit")]
    planned: Annotated[float | None, Key("as unit", "Value of the plan's replay. Null if it has none")]
    predicted: Annotated[float | None, Key("as unit", "Value of a replay of the plan's deployment at the measured "
                                           "traffic. Null if the interval is not judged")]
    measured: Annotated[float | None, Key("as unit", "Measured value. Null if the metrics lack it")]
    low: Annotated[float | None, Key("as unit", "Lower limit. Null without one")] = None
    high: Annotated[float | None, Key("as unit", "Upper limit. Null without one")] = None
    cause: Annotated[str, Key("", "Cause of drift that the value tells: traffic, server or objective. Empty if it "
                              "is not judged")] = ""

    @property
    def beyond(self) -> int:
        """1 if the measured value is above its upper limit, -1 if it is below its lower limit, else 0."""
        if self.measured is None:
            return 0
        return int(self.high is not None and self.measured > self.high) - int(
            self.low is not None and self.measured < self.low)

    @property
    def expected(self) -> float | None:
        """The prediction at the measured traffic, or else the plan's value."""
        return self.planned if self.predicted is None else self.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A fact of the deployment that differs from the plan's."""

    name: Annotated[str, Key("", "Fact, as in num_replicas or block_size")]
    planned: Annotated[str, Key("", "Value in the plan")]
    measured: Annotated[str, Key("", "Value by the metrics")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A deviation in one direction in several intervals in a row."""

    cause: Annotated[str, Key("", "traffic: other rate, lengths or prefix hits. server: slower than a replay at the "
                              "measured traffic. plan: another deployment. objective: an objective is missed")]
    name: Annotated[str, Key("", "Quantity or fact")]
    direction: Annotated[int, Key("1", "1: above the limit. -1: below it. 0: another fact")]
    since: Annotated[str, Key("", "Begin of the first interval with it, in UTC")]
    sentence: Annotated[str, Key("", "Drift in words")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """The plan's deployment, sized again at the measured traffic."""

    planned_replicas: Annotated[int, Key("1", "Replicas of the plan, without spares")]
    num_replicas: Annotated[int | None, Key("1", "Fewest replicas that keep the objectives, without spares. Null if no "
                                            "number does, or if the plan has several kinds of replicas")]
    rate_rps: Annotated[float, Key("requests/s", "Rate: the measured rate, at least the plan's")]
    sentence: Annotated[str, Key("", "Advice in words")]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WatchAnswer(Answer):
    """A line of `planner watch --json-lines`: one interval."""

    start: Annotated[str, Key("", "Begin of the interval, in UTC")]
    end: Annotated[str, Key("", "End of the interval, in UTC")]
    num_requests: Annotated[float, Key("1", "Requests that ended in the interval")]
    holds: Annotated[bool, Key("", "Whether there is no confirmed drift")]
    quantities: Annotated[tuple[Quantity, ...], Key("", "Measured values beside predictions. Empty if the metrics "
                                                    "could not be read")]
    differences: Annotated[tuple[Difference, ...], Key("", "Facts of another deployment")]
    drifts: Annotated[tuple[Drift, ...], Key("", "Confirmed drift")]
    replan: Annotated[Replan | None, Key("", "New size. Null in intervals without new drift")] = None
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")] = ()
