"""The answer of `planner size --evictions`: the cheapest mix of replicas that stay and replicas on spot instances."""

from dataclasses import dataclass
from typing import Annotated

from planner.files.keys import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotMix:
    """The fewest spot replicas beside a number of replicas that stay."""

    num_steady: Annotated[int, Key("1", "Replicas that stay: on demand, or reserved where that costs less")]
    num_spot: Annotated[int, Key("1", "Replicas on spot instances")]
    cost_usd_per_month: Annotated[float, Key("USD", "Price over 730 hours. A spot replica is paid while it runs")]
    attainment: Annotated[float | None, Key("1", "Share of requests within their own limits, in the draw of evictions "
                                            "with the least. Null without evictions")]
    is_met: Annotated[bool, Key("", "Whether the objectives hold in every draw. If not, one more spot replica would "
                                "make the mix cost more than the best one, or they are too many")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotAnswer:
    """The share of the cheapest fleet that is cheapest on spot instances."""

    best: Annotated[SpotMix, Key("", "Cheapest mix that meets the objectives")]
    mixes: Annotated[tuple[SpotMix, ...], Key("", "Mixes, by falling number of replicas that stay")]
    steady_term: Annotated[str, Key("", "Term of the replicas that stay: on demand or reserved")]
    steady_usd_per_gpu_hour: Annotated[float, Key("USD/h", "Price of a GPU that stays")]
    spot_usd_per_gpu_hour: Annotated[float, Key("USD/h", "Price of a spot GPU")]
    running_share: Annotated[float, Key("1", "Share of the time in which a spot replica runs")]
    evictions_per_h: Annotated[float, Key("1/h", "Evictions of a spot replica in an hour of its running")]
    notice_s: Annotated[float, Key("s", "Time from the notice to the eviction. The router sends nothing more in it")]
    away_s: Annotated[float, Key("s", "Mean time until a replica is back after an eviction")]
    num_draws: Annotated[int, Key("1", "Draws of evictions that each mix was replayed with")]
    num_evictions: Annotated[int, Key("1", "Evictions of the best mix in all draws together")]
    replay_command: Annotated[str | None, Key("", "Command that replays the best mix with its worst draw. Null without "
                                              "evictions, or if no options of a replay describe the load")]
    sentence: Annotated[str, Key("", "The best mix, its price and the saving")]
