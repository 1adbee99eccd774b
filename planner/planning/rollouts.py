"""Rollouts of reinforcement learning: how many generators a trainer needs, and the parts of a step.

Each batch is a replay of its samples, all there at the start. Steps follow from the times of the batches: generation
of batch j begins when batch j - 1 is generated and the trainer has taken batch j - 1 - lag; the trainer takes batch j
when it has taken batch j - 1 and batch j is generated. A weight update holds up both.
"""

import bisect
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.deployment.deploy import Deployment
from planner.deployment.starting import startable
from planner.errors import CapacityError, UsageError
from planner.files.counts import count_text, share_text
from planner.loop.state import engine_state as st
from planner.planning.answers_on_disk import keeps_answers
from planner.planning.fewest import MOST_GPUS
from planner.planning.fleets import price_of
from planner.planning.price_list import ON_DEMAND
from planner.planning.rollout_batches import Batch, Batches
from planner.planning.rollouts_answer import RolloutChange, RolloutsAnswer, RolloutStep
from planner.planning.search_options import Choices, Rollouts
from planner.progress import stage
from planner.replays.fleet.replicas import serve
from planner.settings.default_router import TURNS
from planner.settings.panel import Range
from planner.settings.scenario import Scenario
from planner.traces import Trace

ROUNDS = 8  # times that the replayed steps follow each other before their pace is taken
GAIN = 0.05  # by which twice as many generators must shorten a step, or more are not tried [1]
CAPS, BUDGETS, LAGS = (0.9, 0.99), (0.5, 0.9), (0, 1, 2)  # of the changes; quantiles of the output lengths
LEAST_ONE = Range(least=1)
RANGES = {"prompts": ("--prompts", LEAST_ONE), "group_size": ("--group-size", LEAST_ONE),
          "steps": ("--steps", LEAST_ONE), "max_length": ("--max-length", LEAST_ONE),
          "length_budget": ("--length-budget", LEAST_ONE), "generators": ("--generators", LEAST_ONE),
          "lag": ("--lag", Range(least=0)), "max_staleness": ("--max-staleness", Range(least=0)),
          "trainer_gpus": ("--trainer-gpus", Range(least=0)),
          "trainer_s": ("--trainer-time", Range(least=0, is_finite=True)),
          "trainer_rate": ("--trainer-rate", Range(above=0, is_finite=True)),
          "update_s": ("--update-time", Range(least=0, is_finite=True)),
          "trainer_wait": ("--trainer-wait", Range(least=0, is_finite=True))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A batch as a number of generators compute it: times from its start, and of all engines with a sample [s]."""

    batch: Batch
    num_engines: int
    all_s: float
    until_90_s: float
    until_99_s: float
    busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyPace:
    """The steps in the long run.

    Parameters
    ----------
    step_s : mean time from step to step [s].
    lags : weight updates between the start of a batch and the trainer, for batches in a row [1].
    """

    step_s: float
    lags: tuple[int, ...]


def paced(generation_s: Sequence[float], trainer_s: Sequence[float], update_s: float, lag: int) -> SteadyPace:
    """Return the pace of steps whose batches follow each other in turn.

    A synchronous step takes generation, update and trainer one after the other:

    >>> paced([40.0], [20.0], 1.0, 0).step_s
    61.0

    If generation runs one step ahead, the longer of them and the update:

    >>> paced([40.0], [20.0], 1.0, 1).step_s
    41.0
    """
    window = len(generation_s) * (lag + 1)  # after which even batches that wait for each other are as before
    generated, taken, lags = [0.0], [0.0] * (lag + 1), list[int]()
    for j in range(window * (ROUNDS + 1)):
        k = j % len(generation_s)
        begin_s = max(generated[-1], taken[j])
        lags.append(j + lag + 1 - bisect.bisect_right(taken, begin_s, lo=lag + 1))
        generated.append(begin_s + update_s + generation_s[k])
        taken.append(max(generated[-1], taken[-1] + (update_s if lag and j else 0.0)) + trainer_s[k])
    return SteadyPace(step_s=(taken[-1] - taken[-1 - window]) / window, lags=tuple(lags[-window:]))


class Generators:
    """A deployment whose replicas generate the batches of a question; each number of replicas is replayed once."""

    def __init__(self, trace: Trace, deployment: Deployment, asked: Rollouts, choices: Choices) -> None:
        self.asked, self.deployment, self._choices = asked, deployment, choices
        self.batches = Batches(trace, asked)
        self._of_steps = [self.batches.batch(step) for step in range(asked.steps)]
        self._known: dict[int, list[Generation]] = {}
        samples = max(batch.load.num_requests for batch in self._of_steps)
        self.most = min(samples, MOST_GPUS // deployment.layout.num_gpus)
        self.seated = min(math.ceil(samples / max(deployment.settings.max_num_seqs, 1)), self.most)

    @property
    def cut_share(self) -> float:
        """Share of the samples that the limit on the length cuts [1]."""
        return self.batches.num_cut / int(self.batches.lengths.size)

    def at_lag(self, lag: int) -> "Generators":
        """Return generators of the same batches, which are not replayed again, with another lag."""
        other = copy.copy(self)
        other.asked = replace(self.asked, lag=lag)
        return other

    def alone(self) -> list[Generation]:
        """Replay the longest sample of each batch alone on a replica."""
        rows = [np.lexsort((batch.load.requests["input_tokens"], batch.load.requests["output_tokens"]))[-1:]
                for batch in self._of_steps]
        return [self._generated(replace(batch, load=batch.load.take(row)), 1)
                for batch, row in zip(self._of_steps, rows, strict=True)]

    def generated(self, count: int) -> list[Generation]:
        """Replay each batch on a number of replicas."""
        if count not in self._known:
            self._known[count] = [self._generated(batch, count) for batch in self._of_steps]
        return self._known[count]

    def _generated(self, batch: Batch, count: int) -> Generation:
        served = serve(batch.load, self.deployment, count)
        requests = served.records.requests
        if (lost := int((requests.state != st.COMPLETED).sum())) > 0:
            raise CapacityError(f"{batch.load.source}: {lost:,} of {count_text(batch.load.num_requests, 'sample')} of "
                                f"a batch are not served; give --max-length, or a longer --max-model-len")
        ended_s = np.sort(requests.finished_s)
        last_s = np.zeros(served.num_replicas)
        np.maximum.at(last_s, np.zeros(len(ended_s), int) if served.replica is None else served.replica,
                      requests.finished_s)
        until = [float(ended_s[int(np.ceil(share * len(ended_s))) - 1]) for share in (0.9, 0.99)]
        return Generation(batch=batch, num_engines=served.num_replicas, all_s=float(ended_s[-1]), until_90_s=until[0],
                          until_99_s=until[1], busy_s=float(last_s.sum()))

    def step(self, count: int, batches: Sequence[Generation] | None = None) -> RolloutStep:
        """Return the mean step with a number of replicas, or with generations of its batches."""
        batches = self.generated(count) if batches is None else batches
        asked, gpus = self.asked, count * self.deployment.layout.num_gpus
        trainer = [self._trainer_s(each.batch) for each in batches]
        pace = paced([each.all_s for each in batches], trainer, asked.update_s, asked.lag)
        mean_s = {name: float(np.mean([getattr(each, name) for each in batches]))
                  for name in ("all_s", "until_90_s", "until_99_s", "busy_s")}
        busy_s = mean_s["busy_s"] / batches[0].num_engines
        trainer_s, outputs, samples = (float(np.mean(values)) for values in (
            trainer, [each.batch.output_tokens for each in batches], [each.batch.num_trained for each in batches]))
        staleness = np.concatenate([lag + batches[j % len(batches)].batch.num_updates
                                    for j, lag in enumerate(pace.lags)])
        wait_s = max(pace.step_s - trainer_s - asked.update_s, 0.0)
        usd = self._usd_per_step(gpus, pace.step_s)
        return RolloutStep(
            num_replicas=count, num_gpus=gpus, step_s=pace.step_s, generation_s=mean_s["all_s"],
            until_90_percent_s=mean_s["until_90_s"], until_99_percent_s=mean_s["until_99_s"],
            stragglers_s=mean_s["all_s"] - mean_s["until_90_s"],
            stragglers_idle_share=1.0 - busy_s / mean_s["all_s"], update_s=asked.update_s, trainer_s=trainer_s,
            trainer_wait_s=wait_s, trainer_wait_share=wait_s / pace.step_s,
            generator_wait_s=max(pace.step_s - mean_s["all_s"] - asked.update_s, 0.0),
            generator_idle_share=1.0 - busy_s / pace.step_s, samples_per_s=samples / pace.step_s,
            output_tokens_per_s_per_gpu=outputs / pace.step_s / gpus, mean_staleness=float(staleness.mean()),
            max_staleness=int(staleness.max()), cost_usd_per_step=usd,
            cost_usd_per_million_output_tokens=None if usd is None else usd / outputs * 1e6)

    def _trainer_s(self, batch: Batch) -> float:
        """Return the time of the trainer: of a batch with more or fewer samples than asked, in proportion [s]."""
        asked = self.asked
        if asked.trainer_rate is not None:
            return batch.trained_tokens / asked.trainer_rate
        return (asked.trainer_s or 0.0) * batch.num_trained / (asked.prompts * asked.group_size)

    def _usd_per_step(self, num_gpus: int, step_s: float) -> float | None:
        gpu = self.deployment.gpu
        price = None if gpu is None else price_of(gpu, ON_DEMAND, self._choices)
        return None if price is None else (num_gpus + self.asked.trainer_gpus) * price * step_s / 3600.0


@keeps_answers
def rollouts(trace: Trace, scenario: Scenario, asked: Rollouts, choices: Choices) -> RolloutsAnswer:
    """Find the fewest generators that keep a trainer busy, the parts of a step, and the gain of other ways to run it.

    Parameters
    ----------
    trace : its rows are samples: prompt and output length.
    scenario : of a generator replica; without a router, samples are dealt in turn.
    asked : batch, trainer, weight updates.
    choices : prices.

    Raises
    ------
    UsageError : an option is missing, out of range, or does not go with another.
    CapacityError : a sample is longer than the model's context or the KV cache.
    PlannerError : as a replay.
    """
    check_rollouts(asked, scenario)
    scenario = replace(scenario, router=scenario.router or TURNS)
    started = startable(scenario, Batches(trace, asked).whole)

    def generators(question: Rollouts) -> Generators:
        return Generators(trace, started.deployment, question, choices)

    fleet = generators(asked)
    tried, count = _search(fleet)
    step, floor = fleet.step(count), fleet.step(1, fleet.alone())
    with stage("replaying other ways to run the steps"):
        changes = tuple(_changes(fleet, step, generators))
    lengths = fleet.batches.lengths
    is_busy = step.trainer_wait_share <= asked.trainer_wait
    return RolloutsAnswer(
        feasible=is_busy, sentence=_sentence(step, floor, is_busy), step=step, longest_alone_s=floor.generation_s,
        max_trainer_wait=asked.trainer_wait, prompts=asked.prompts, group_size=asked.group_size, lag=asked.lag,
        max_length=asked.max_length, length_budget=asked.length_budget, cut_share=fleet.cut_share,
        num_steps=asked.steps, output_tokens_p50=float(np.quantile(lengths, 0.5)),
        output_tokens_p99=float(np.quantile(lengths, 0.99)), output_tokens_max=int(lengths.max()),
        fleets=tuple(map(fleet.step, sorted(tried))), changes=changes, trace_sha256=trace.sha256,
        notes=tuple(_notes(trace, asked, started.lowered, fleet)))


def check_rollouts(asked: Rollouts, scenario: Scenario) -> None:
    """Raise UsageError if options of rollouts are missing, out of range, or do not go with others."""
    for name, (option, values) in RANGES.items():
        value = getattr(asked, name)
        if value is not None and value not in values:
            raise UsageError(f"{option} {value:g}: must be {values}")
    if (asked.trainer_s is None) == (asked.trainer_rate is None):
        raise UsageError("--trainer-time, --trainer-rate: the trainer needs one of them, its time for a batch or its "
                         "tokens a second")
    if asked.max_staleness is not None and asked.length_budget is None:
        raise UsageError(f"--max-staleness {asked.max_staleness}: without --length-budget samples end in their step; "
                         f"leave it out")
    if asked.max_staleness is not None and asked.max_staleness < asked.lag:
        raise UsageError(f"--max-staleness {asked.max_staleness}: must be at least --lag {asked.lag}")
    if scenario.data_parallel_size > 1 and not scenario.data_parallel_attention:
        raise UsageError(f"--data-parallel-size {scenario.data_parallel_size}: give --generators, the number of "
                         f"replicas, or --data-parallel-attention, whose ranks it is the number of")


def _search(fleet: Generators) -> tuple[set[int], int]:
    """Return the numbers of replicas that were replayed, and the one that the answer is about.

    More are not tried once twice as many shorten a step by less than `GAIN`: the longest samples then set its time.
    """
    asked = fleet.asked
    tried: set[int] = set()

    def step(count: int) -> RolloutStep:
        tried.add(count)
        return fleet.step(count)

    if asked.generators is not None:
        return {max(asked.generators // 2, 1), asked.generators, 2 * asked.generators}, asked.generators

    def is_busy(count: int) -> bool:
        return step(count).trainer_wait_share <= asked.trainer_wait

    with stage("trying numbers of generators"):
        low, count = 0, fleet.seated
        while count > 1 and (is_busy(count) or not _is_shorter(step(count), step(count // 2))):
            count //= 2
        while not is_busy(count):
            more = min(2 * count, fleet.most)
            if more == count or not (is_busy(more) or _is_shorter(step(more), step(count))):
                return tried, count
            low, count = count, more
        return tried, low + 1 + bisect.bisect_left(range(low + 1, count), True, key=is_busy)


def _is_shorter(step: RolloutStep, other: RolloutStep) -> bool:
    """Tell whether a step with twice as many generators is worth them."""
    return step.step_s < (1 - GAIN) * other.step_s


def _changes(fleet: Generators, step: RolloutStep,
             generators: Callable[[Rollouts], Generators]) -> Iterator[RolloutChange]:
    """Yield other ways to run the steps on as many replicas, the fastest first."""
    rows = []
    for option, meaning, question in _others(fleet):
        is_lag_alone = question == replace(fleet.asked, lag=question.lag) and question.max_staleness is None
        other = fleet.at_lag(question.lag) if is_lag_alone else generators(question)
        changed, fewest = other.step(step.num_replicas), _search(other)[1]
        is_busy = fleet.asked.generators is None and other.step(fewest).trainer_wait_share <= question.trainer_wait
        rows.append(RolloutChange(option=option, meaning=meaning, speedup=changed.samples_per_s / step.samples_per_s,
                                  cut_share=other.cut_share, step=changed,
                                  fewest_replicas=fewest if is_busy else None))
    yield from sorted(rows, key=lambda row: -row.speedup)


def _others(fleet: Generators) -> Iterator[tuple[str, str, Rollouts]]:
    """Yield the options of each change, its meaning and the question with it."""
    asked, lengths = fleet.asked, fleet.batches.lengths
    names = {0: "synchronous", 1: "overlapped, one step off", 2: "overlapped, two steps off"}
    for lag in LAGS:
        if lag != asked.lag and (asked.max_staleness is None or lag <= asked.max_staleness):
            yield f"--lag {lag}", names[lag], replace(asked, lag=lag)
    for share in CAPS:
        if (cap := int(np.quantile(lengths, share))) < lengths.max():
            yield f"--max-length {cap}", f"a limit at the p{100 * share:.0f} length", replace(asked, max_length=cap)
    for share in BUDGETS if asked.max_staleness is None or asked.max_staleness > asked.lag else ():
        if (budget := int(np.quantile(lengths, share))) not in (lengths.max(), asked.length_budget):
            yield (f"--length-budget {budget}", f"partial rollouts of the p{100 * share:.0f} length",
                   replace(asked, length_budget=budget))
    if asked.length_budget is not None:
        yield "no --length-budget", "samples end in their step", replace(asked, length_budget=None, max_staleness=None)


def _sentence(step: RolloutStep, floor: RolloutStep, is_busy: bool) -> str:
    who = f"{count_text(step.num_replicas, 'generator')} ({count_text(step.num_gpus, 'GPU')})"
    tail = (f"generation takes {step.generation_s:,.1f} s, of which the last 10 % of the samples take "
            f"{share_text(step.stragglers_s / step.generation_s)}")
    if is_busy:
        return f"{who} keep{'s' * (step.num_replicas == 1)} the trainer busy: a step takes {step.step_s:,.1f} s; {tail}"
    alone = f"; the longest sample alone takes {floor.generation_s:,.1f} s"
    return (f"with {who} the trainer waits {share_text(step.trainer_wait_share)} of a step of {step.step_s:,.1f} s; "
            f"{tail}{alone}")


def _notes(trace: Trace, asked: Rollouts, lowered: str | None, fleet: Generators) -> Iterator[str]:
    yield from filter(None, [lowered])
    rows, groups = trace.num_requests, fleet.batches.num_groups
    if left := rows - groups * asked.group_size:
        yield f"the last {left:,} of {rows:,} rows make no group of {asked.group_size} samples and are left out"
    if asked.prompts * asked.steps > groups:
        yield (f"{asked.steps} steps take {asked.prompts * asked.steps:,} prompts, and {trace.source} has {groups:,}: "
               f"after the last the first follows again")
    inputs = trace.requests["input_tokens"].to_numpy()[:groups * asked.group_size].reshape(groups, -1)
    if (inputs != inputs[:, :1]).any():
        yield (f"prompts of {trace.source} differ within groups of {asked.group_size} rows: each sample has the prompt "
               f"of its group's first row")
    if asked.update_s == 0.0:
        yield "weight updates take no time; --update-time gives one"
    if asked.trainer_gpus == 0:
        yield "costs are the generators' alone; --trainer-gpus adds the trainer's GPUs"
    if ignored := [name for name in ("session_id", "parent_id") if name in trace.requests.columns]:
        yield f"{' and '.join(ignored)} of {trace.source} are left aside: each row is a sample of its own"
