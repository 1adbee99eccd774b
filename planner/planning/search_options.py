"""How to look for a capacity or a fleet: each choice is declared once, with its default and its command-line option."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import UsageError
from planner.files.finite import number_in
from planner.settings.declared_options import declare
from planner.settings.load_options import SCALING
from planner.settings.rate_scaling import RECOMMENDED

if TYPE_CHECKING:  # the command line makes its options of this file, and loads no tables for that
    from planner.catalog.prices import ApiPrice, GpuPrice
    from planner.traces.shaping.rate_series import RateSeries

DEFAULT_ATTAINMENT = 0.99  # share of requests that a search asks for if none is given [1]
SHARED = ("prices", "num_spare", "scaling", "jobs")  # choices of `share`; its file has the others
MOST_LOAD = 10.0  # times the load: more is not tried for the headroom of fleets other than the cheapest
RANKS = (1, 2, 4, 8)  # tensor-parallel sizes that are tried if none are given


def _scaling() -> Any:
    return declare(RECOMMENDED, SCALING)


def _compare_assumptions() -> Any:
    return declare(True, "Also give the answer for the other --scaling methods and for other routers, without "
                         "confidence values.")


def _quick() -> Any:
    return declare(False, "Give the number alone: no confidence, no other --scaling methods, no other routers.",
                   is_switch=True)


def _jobs() -> Any:
    return declare(-1, "Number of processes. -1: one per core.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How to look for a capacity.

    Parameters
    ----------
    seed : of every draw.
    """

    of: str = declare("requests", "What the answer counts. requests: the highest request rate. concurrency: the most "
                                  "users, as planner replay --max-concurrency: each has a request in flight. sessions: "
                                  "the most open sessions, as planner replay --max-sessions.")
    think_time: float | None = declare(None, "With --of concurrency or sessions: pause of a user between an answer and "
                                             "the next request [s]. [the trace's]")
    scaling: str = _scaling()
    horizon: str = declare("double", "Length of the replayed traffic. double: repeat the trace and double its length "
                                     "until the capacity changes by at most 2 %. trace: use the trace once.")
    by_tenant: bool = declare(False, "Each tenant must meet the objectives by itself.")
    replicates: int = declare(20, "Bootstrap replicates for the confidence. 0: none.")
    compare_assumptions: bool = _compare_assumptions()
    quick: bool = _quick()
    jobs: int = _jobs()
    seed: int = 0


def parse_prices(text: str, option: str = "--price") -> dict[str, float]:
    """Read `"h100-sxm=2.5,h200-sxm=3"`, in USD per GPU-hour.

    >>> parse_prices("h100-sxm=2.5")
    {'h100-sxm': 2.5}

    Parameters
    ----------
    option : that errors name.

    Raises
    ------
    UsageError, UnknownNameError : a part is no name and price; there is no such GPU.
    """
    from planner.catalog.catalog_files import load_gpu

    prices = {}
    for part in text.replace(",", " ").split():
        name, _, value = part.partition("=")
        price = number_in(value)
        if not 0 <= price < math.inf:
            raise UsageError(f"{option} {part!r}: price {value!r}: must be a number of at least 0, as in "
                             f"'h100-sxm=2.5'")
        prices[load_gpu(name).name] = price
    return prices


def parse_ranks(text: str) -> tuple[int, ...]:
    """Read `"1,2,4"`.

    Raises
    ------
    UsageError : a part is no whole number above 0, or is given twice.
    """
    return _whole_numbers("--tensor-parallel-size", text, "1,2,4")


def parse_thresholds(text: str) -> tuple[int, ...]:
    """Read `"2048,8192"` [tokens].

    Raises
    ------
    UsageError : a part is no whole number above 0, or is given twice.
    """
    return _whole_numbers("--thresholds", text, "2048,8192")


def _whole_numbers(option: str, text: str, example: str) -> tuple[int, ...]:
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts) or len(set(parts)) < len(parts):
        raise UsageError(f"{option} {text!r}: must be whole numbers above 0, each once, as in '{example}'")
    return tuple(int(part) for part in parts)


def _gpus(text: str) -> list[str]:
    return text.split(",")


def _prices_of(option: str) -> Callable[[str], dict[str, float]]:
    return lambda text: parse_prices(text, option)


def _price_file(path: Path) -> dict[str, dict[str, float]]:
    from planner.planning.price_list import read_prices

    return read_prices(path)


def _list_prices(name: str) -> Callable[[str], Any]:
    """Return a function of `catalog.prices` by its name, loaded when it is called."""
    def read(text: str) -> Any:
        from planner.catalog import prices

        return getattr(prices, name)(text)
    return read


def _series(path: Path) -> "RateSeries":
    from planner.traces.shaping.rate_series import read_rate_series

    return read_rate_series(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The options for fleets, and the requirements on them.

    Parameters
    ----------
    gpus, quantizations : catalog names, and weight formats; None is the checkpoint's own. Without GPUs, the scenario's.
    ranks : tensor-parallel sizes; by default, the sizes that a node has GPUs for.
    prices, reserved_prices, spot_prices : USD per GPU-hour, by catalog name: on demand in place of the catalog's,
        reserved, and of GPUs that may be taken away.
    price_file : prices by term and GPU, for prices that the options before lack; see `price_list.read_prices`.
    cloud : prices of a cloud's instances, for GPUs and terms that the options before lack; see `catalog.prices`.
    apis : prices of hosted APIs that the cheapest fleet is compared with.
    power_price, co2_per_kwh : of the GPUs' power [USD/kWh, g/kWh]; None if not asked for.
    growth, months : of the rate, for which kinds are sized month by month; None for none.
    change_cost : of another kind of replica from one month to the next [USD].
    sensitivity : whether the cheapest kinds are sized again under changed assumptions.
    sort : column by which options are sorted; None for the total cost per month.
    num_spare : replicas that may fail: as many are added to the replicas that serve the trace [1].
    survive : "gpu", "node" or "zone", with one of which gone the objectives must hold; None if nothing fails.
    zones, replicas_per_node : of a fleet, and at most; None for as many as the GPUs of a node hold [1].
    health_check_s : time until the router finds out about a failure [s].
    mtbf_h, mttr_h : mean time of a unit between failures, and to repair; None if not known [h].
    evictions_per_h, notice_s, away_s : of a spot replica, in an hour of its running; None without spot replicas
        [1/h]. Time from the notice to the eviction, and mean time until it is back [s].
    period_s : length of the parts that a schedule has its own number of replicas for; None for no schedule [s].
    disaggregate : whether fleets in which some replicas prefill and the others decode are tried too.
    decode_gpus, decode_ranks : of the decode replicas; None for the same as the prefill replicas.
    thresholds : of the prompt length, that are tried between two pools; none for quantiles of the trace's [tokens].
    forecast_s, season_s, forecast_quantile : how long a forecast of the series is wanted, after how long rates have
        their shape again, and which share of the past it covers; None for the series as it is [s, s, 1].
    series : rates by window, which the trace's traffic takes on in turn; None for the trace as it is.
    num_strata : rates that stand for all of the series [1]; None for its highest window alone.
    """

    gpus: Sequence[str] = ()
    quantizations: Sequence[str | None] = (None,)
    ranks: Sequence[int] = declare(RANKS, "Tensor-parallel sizes to try: 1,2. [1,2,4,8 up to the GPUs of a node]",
                                   name="tensor_parallel_size", kind=str, read=parse_ranks)
    prune_layouts: bool = declare(False, "Do not size a layout that cannot cost less than the fleet of the same GPU's "
                                         "smallest layout.", is_switch=True)
    prices: Mapping[str, float] = declare(dict, "USD per GPU-hour: 'h100-sxm=2.5'. [the catalog's]", name="price",
                                          kind=str, read=parse_prices)
    reserved_prices: Mapping[str, float] = declare(
        dict, "USD per GPU-hour with a reservation: 'h100-sxm=1.9'.", name="reserved_price", kind=str,
        read=_prices_of("--reserved-price"))
    spot_prices: Mapping[str, float] = declare(
        dict, "USD per GPU-hour of spot GPUs, which may be taken away: 'h100-sxm=1.2'.", name="spot_price", kind=str,
        read=_prices_of("--spot-price"))
    price_file: Mapping[str, Mapping[str, float]] = declare(
        dict, "TOML file of prices: a table for each GPU with on_demand, reserved and spot in USD per GPU-hour. "
              "--price, --reserved-price and --spot-price override it.", name="prices", kind=Path, read=_price_file)
    cloud: "Sequence[GpuPrice]" = declare(
        (), "Cloud whose list prices are used, with a region or without: aws, aws:us-east-1, gcp, azure, … (planner db "
            "prices). Fleets take whole instances. --price, --reserved-price, --spot-price and --prices override it.",
        kind=str, read=_list_prices("prices_of_cloud"))
    apis: "Sequence[ApiPrice]" = declare(
        (), "Also compare the cheapest fleet with hosted APIs, and give the traffic at which it costs as much: a "
            "provider, or all (planner db apis).", name="api", kind=str,
        read=_list_prices("prices_of_api"))
    power_price: float | None = declare(None, "Price of the GPUs' power [USD/kWh].")
    co2_per_kwh: float | None = declare(None, "CO₂ emissions of the GPUs' power [g/kWh].")
    sort: str | None = declare(None, "Column that sorts the table of options, as in total_usd_per_month, num_gpus, "
                                     "headroom or co2_kg_per_month.")
    sensitivity: bool = declare(False, "Also size the cheapest fleets with changed output lengths, rate, prefix hits, "
                                       "step times and price, and say which change flips the choice.", is_switch=True)
    growth: str | None = declare(None, "Growth of the rate, as in '10%/month' or '2x/year': also give the cheapest "
                                       "path over the months, on which a fleet grows or changes its kind.")
    months: int = declare(12, "Number of months of --growth.")
    change_cost: float = declare(0.0, "With --growth: cost of a change to another kind of replica [USD].")
    num_spare: int = declare(0, "Number of spare replicas, in addition to the replicas that the "
                                "load needs.", name="spare")
    survive: str | None = declare(None, "Also meet the objectives while one unit has failed: gpu, node or zone. The "
                                        "failure is replayed at the worst moments of the load.")
    zones: int = declare(3, "With --survive zone: number of zones, which have equal shares of the replicas.")
    replicas_per_node: int | None = declare(None, "With --survive node: maximum number of replicas on a node. [as many "
                                                  "as its GPUs hold]")
    health_check_s: float = declare(0.0, "With --survive: time until the router finds out that a replica has failed. "
                                         "Until then the replica is sent requests and answers none [s].",
                                    name="health_check")
    mtbf_h: float | None = declare(None, "With --survive and --mttr: mean time between failures of a unit, for the "
                                         "share of a year in which the objectives hold [h].", name="mtbf")
    mttr_h: float | None = declare(None, "With --survive: mean time to repair a unit [h]. [failed replicas do not "
                                         "return]", name="mttr")
    evictions_per_h: float | None = declare(None, "Also find the cheapest share of the replicas on spot instances, by "
                                                  "replays with so many evictions of a spot replica an hour. Needs a "
                                                  "spot price.", name="evictions")
    notice_s: float = declare(30.0, "With --evictions: time from the notice to the eviction. The router sends nothing "
                                    "more in it [s].", name="notice")
    away_s: float = declare(600.0, "With --evictions: mean time until an evicted replica is back [s].", name="away")
    period_s: float | None = declare(None, "Plan a number of replicas for each period of this length [s].",
                                     name="period")
    disaggregate: bool = declare(False, "Also try separate prefill and decode replicas.", is_switch=True)
    decode_gpus: Sequence[str] | None = declare(
        None, "GPUs to try for decode replicas, separated by commas. [same as the "
              "prefill replicas]", name="decode_gpu", kind=str,
        read=_gpus)
    decode_ranks: Sequence[int] | None = declare(
        None, "Tensor-parallel sizes to try for decode replicas: 1,2. [same as the prefill replicas]",
        name="decode_tensor_parallel_size", kind=str, read=parse_ranks)
    thresholds: Sequence[int] = declare(
        (), "With --fleet: thresholds of the prompt length to try [tokens]. [quantiles of the prompt lengths]",
        name="thresholds", kind=str, read=parse_thresholds)
    series: "RateSeries | None" = declare(
        None, "File of request rates over time: CSV (columns start_s, rate_rps, or as Grafana exports it) or the JSON "
              "of Prometheus's query_range. FILE#COLUMN or FILE#LABEL=VALUE chooses a series, with /min for rates a "
              "minute. A last row without a rate ends the series. The trace's traffic is scaled to these "
              "rates.",
        name="rate_series", kind=Path, read=_series)
    num_strata: int | None = declare(
        None, "With --rate-series: size the fleet for all of its time, not for its highest rate. The traffic is "
              "replayed at this number of rates, from low to high, each for an equal share of the requests.",
        name="strata")
    think_time: float | None = declare(None, "With --max-concurrency or --max-sessions: pause of a user between an "
                                             "answer and the next request [s]. [the trace's]")
    forecast_s: float | None = declare(None, "Forecast the rate series for so long, and size the fleet for the "
                                             "forecast [s].", name="forecast")
    season_s: float = declare(86400.0, "Season of --forecast, as a day or a week [s].", name="season")
    forecast_quantile: float = declare(0.9, "Quantile of --forecast: the share of the past seasons whose rate at "
                                            "that time it covers.")
    scaling: str = _scaling()
    compare_assumptions: bool = _compare_assumptions()
    quick: bool = _quick()
    jobs: int = _jobs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """The steps of a reinforcement learning: a batch of samples is generated, the trainer takes it, weights change.

    Parameters
    ----------
    lag : steps by which generation may run ahead of the trainer [1].
    """

    prompts: int = declare(512, "Number of prompts of a batch, which the trainer takes in a step.")
    group_size: int = declare(16, "Number of samples of a prompt. So many rows of the trace after each other are of "
                                  "one prompt, the prompt of the first row.")
    trainer_s: float | None = declare(None, "Time of the trainer for a batch [s].", name="trainer_time")
    trainer_rate: float | None = declare(None, "In place of --trainer-time: prompt and output tokens that the trainer "
                                               "takes in a second [tokens/s].")
    update_s: float = declare(0.0, "Time of a weight update, in which generators and trainer wait [s].",
                              name="update_time")
    lag: int = declare(1, "Number of steps by which generation may run ahead of the trainer. 0: synchronous. 1: "
                          "overlapped, with weights of one step before.")
    max_length: int | None = declare(None, "Limit on the output length of a sample [tokens].")
    length_budget: int | None = declare(None, "Partial rollouts: tokens of a sample in one step. It goes on in the "
                                              "next step, where its KV is computed again [tokens].")
    max_staleness: int | None = declare(None, "With --length-budget: weight updates between a sample's first token and "
                                              "the trainer, --lag among them. A sample that has no more left ends in "
                                              "its step. [no limit]")
    generators: int | None = declare(None, "Number of generator replicas. [the fewest that keep the trainer busy]")
    trainer_wait: float = declare(0.05, "Share of the time in which a busy trainer may wait.")
    trainer_gpus: int = declare(0, "Number of GPUs of the trainer, for the cost of a step: as generators' GPUs.")
    steps: int = declare(2, "Number of steps that are replayed.")
