"""The error of a fleet's prediction: how much longer its steps may take, and whether it keeps the objectives then."""

import math
from collections.abc import Sequence

import numpy as np

from planner.deployment.deploy import Deployment
from planner.errors import CatalogError
from planner.files.counts import count_text
from planner.planning.alternatives import fewest_near
from planner.planning.fewest import verdict_alone
from planner.planning.fleets import Kind, spare_replicas
from planner.planning.loads import Traffic
from planner.planning.search_options import Choices
from planner.planning.size_answer import Fleet
from planner.replays.result_tables import ReplayResult
from planner.results.resolved import fitted_deployments
from planner.results.uncertainty import step_factors
from planner.settings.objectives import Objectives, Verdict
from planner.traces import Trace
from planner.traces.shaping.closed_load import pausing
from planner.traces.shaping.window_and_rate import scale_rate

CONFIDENCE = 0.9  # share of the measured runs whose steps exceeded the prediction by at most `step_error`
BEYOND = 10  # requests beyond a percentile, below which chance decides its value
PER_REPLICA = 100  # requests of a load, below which a replica hardly leaves its start


def step_error(deployment: Deployment) -> float | None:
    """Return the share by which steps may take longer than predicted, at `CONFIDENCE`; of pools the largest [1].

    None if the errors of the deployment's step times are unknown.
    """
    quantile = np.array([1 - CONFIDENCE])  # of log(predicted / measured)
    fitted = [own for own in fitted_deployments(deployment) if own.stack is not None]
    try:
        factors = [float(step_factors(own, quantile)[0]) for own in fitted]
    except CatalogError:  # a calibration without held-out errors
        return None
    return max(*factors, 1.0) - 1.0 if factors else None


def keeps_with_error(served: ReplayResult, count: int, objectives: Objectives, verdict: Verdict,
                     error: float | None) -> bool | None:
    """Tell whether replicas keep the objectives if their steps take longer by a share; None without a share.

    With all times f times as long, a load behaves as one that comes f times as fast, within limits of 1 / f. If those
    limits are missed without the haste, no replay is needed.

    Parameters
    ----------
    verdict : on the replicas as predicted.
    """
    if error is None:
        return None
    if verdict.strain * (1 + error) > 1:
        return False
    load = hurried(served.trace, 1 + error)
    return verdict_alone(load, served.deployment, objectives.scaled(1 / (1 + error)), count).is_met


def replicas_with_error(load: Trace, kind: Kind, objectives: Objectives, choices: Choices, count: int,
                        fleet: Fleet) -> int | None:
    """Return the fewest replicas, with spares, that keep the objectives if steps take longer by the fleet's error.

    None if the fleet covers its error, the error is unknown, or more than eight times as many replicas are needed.

    Parameters
    ----------
    load : that the fleet was sized on.
    count : its replicas without spares [1].
    """
    if fleet.covers_error is not False or fleet.step_error is None:
        return None
    factor = 1 + fleet.step_error
    sized = fewest_near(hurried(load, factor), kind, objectives.scaled(1 / factor), choices, count)
    return None if sized is None else sized.count + spare_replicas(choices, kind.divided)


def hurried(load: Trace, factor: float) -> Trace:
    """Return a load by the clock of a deployment whose steps take `factor` times as long."""
    return pausing(scale_rate(load, factor), 1 / factor)


def needed_requests(objectives: Objectives) -> int:
    """Return the requests at which ten lie beyond the highest percentile that is asked for [1]; 0 if none is.

    The number of requests beyond it then has a standard deviation of a third of itself.

    >>> from planner.settings.objectives import parse_objectives
    >>> [needed_requests(parse_objectives(text, 0.99)) for text in ("ttft:500", "p95_ttft:500", "mean_ttft:500")]
    [1000, 200, 0]
    """
    shares = [objectives.attainment] if objectives.slo.limits_s and objectives.attainment else []
    shares += [each.percentile / 100 for each in objectives.statistics if each.percentile is not None]
    highest = max((share for share in shares if share < 1), default=0.0)
    return math.ceil(BEYOND / (1 - highest) - 1e-6) if highest else 0


def doubts_of(traffic: Traffic, kind: Kind, count: int, fleets: Sequence[Fleet], objectives: Objectives,
              choices: Choices) -> tuple[str, ...]:
    """Return `doubts` of the cheapest fleet, which has the kind; it is sized again with longer steps if necessary."""
    load = traffic.load(fleets[0].trace_copies)
    covering = replicas_with_error(load, kind, objectives, choices, count, fleets[0])
    return doubts(traffic.trace.num_requests, load.num_requests, count, fleets, objectives, covering)


def doubts(num_recorded: int, num_requests: int, count: int, fleets: Sequence[Fleet],
           objectives: Objectives, covering: int | None) -> tuple[str, ...]:
    """Return why the size of the cheapest fleet may not hold, a sentence each: its error and the sample.

    Parameters
    ----------
    num_recorded : requests of the log; a load repeats them [1].
    num_requests : of the load that the fleet was sized on [1].
    count : replicas of the cheapest fleet, without spares [1].
    fleets : of all kinds, the cheapest first.
    covering : as `replicas_with_error`.
    """
    needed = needed_requests(objectives)
    sentences = [_error_words(fleets, covering)] if fleets[0].covers_error is False else []
    if fleets[0].stationary is False:
        sentences.append("the repeated trace needs more replicas the longer it is: this number of replicas is too low")
    if num_recorded < needed:
        sentences.append(f"the log has {count_text(num_recorded, 'request')}: the highest percentile of the "
                         f"objectives needs {needed:,}, {BEYOND} of them beyond it. Take a longer log, or a lower "
                         f"percentile")
    if num_requests < PER_REPLICA * count and count > 1:
        sentences.append(f"the load has {num_requests / count:,.3g} requests per replica: {count:,} replicas need "
                         f"{PER_REPLICA * count:,} requests to leave their start. Take a longer log, or a lower rate")
    return tuple(sentences)


def _error_words(fleets: Sequence[Fleet], covering: int | None) -> str:
    """Return that the cheapest fleet fails with longer steps, and which fleets do not."""
    fleet, safe = fleets[0], next((other for other in fleets if other.covers_error), None)
    price = 0.0 if covering is None else covering * fleet.cost_usd_per_hour / fleet.num_replicas
    instead = ("" if covering is None else f". {covering:,} replicas of this kind keep them"
               + ("" if fleet.instances else f", for about {price:,.2f} USD/h"))  # whole instances cost by steps
    if safe is not None and (covering is None or safe.cost_usd_per_hour < price):
        instead += (f". The cheapest other fleet that keeps them: {safe.replicas} "
                    f"replica{'s' * (safe.num_replicas != 1)} of {safe.kind.words}, "
                    f"{safe.cost_usd_per_hour:,.2f} USD/h")
    return (f"the headroom does not cover the error of the prediction: steps may take "
            f"{100 * (fleet.step_error or 0.0):.0f} % longer ({100 * CONFIDENCE:.0f} % of the measured runs were "
            f"within), and the fleet misses the objectives then{instead}")
