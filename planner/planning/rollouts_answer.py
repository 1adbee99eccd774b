"""The answer of `planner rollouts`: generators for a trainer, the parts of a step, and the cost of stragglers."""

from dataclasses import dataclass
from typing import Annotated

from planner.files.keys import Key
from planner.results.answers import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStep:
    """A number of generators and a step with them, in the mean over the replayed steps."""

    num_replicas: Annotated[int, Key("1", "Generator replicas")]
    num_gpus: Annotated[int, Key("1", "GPUs of the generators")]
    step_s: Annotated[float, Key("s", "Time from one weight update to the next")]
    generation_s: Annotated[float, Key("s", "Time from the first sample's start to the last sample's end")]
    until_90_percent_s: Annotated[float, Key("s", "Part of it until 90 % of the samples have ended")]
    until_99_percent_s: Annotated[float, Key("s", "Part of it until 99 % of the samples have ended")]
    stragglers_s: Annotated[float, Key("s", "Part of it from then, 90 %, until all samples have ended")]
    stragglers_idle_share: Annotated[float, Key("1", "Share of the generators' time in the generation without a "
                                                "sample, as other replicas still have some")]
    update_s: Annotated[float, Key("s", "Time of a weight update")]
    trainer_s: Annotated[float, Key("s", "Time of the trainer")]
    trainer_wait_s: Annotated[float, Key("s", "Time in which the trainer waits for samples")]
    trainer_wait_share: Annotated[float, Key("1", "Share of the step in which the trainer waits for samples")]
    generator_wait_s: Annotated[float, Key("s", "Time in which all generators wait for the trainer")]
    generator_idle_share: Annotated[float, Key("1", "Share of the step in which a generator has no sample, in the mean "
                                               "over generators: stragglers of others, weight updates, the trainer")]
    samples_per_s: Annotated[float, Key("requests/s", "Samples that the trainer takes, over the time of the steps")]
    output_tokens_per_s_per_gpu: Annotated[float, Key("tokens/s", "Output tokens that the trainer takes, over the time "
                                                      "of the steps and the generators' GPUs")]
    mean_staleness: Annotated[float, Key("1", "Weight updates between a group's first token and the trainer, mean over "
                                         "groups")]
    max_staleness: Annotated[int, Key("1", "Weight updates between a group's first token and the trainer, largest")]
    cost_usd_per_step: Annotated[float | None, Key("USD", "Price of the generators and of the trainer's "
                                                   "GPUs for a step")]
    cost_usd_per_million_output_tokens: Annotated[float | None, Key("USD", "This price over the output "
                                                                    "tokens that the trainer takes in a step")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutChange:
    """Another way to run the steps on the same generators."""

    option: Annotated[str, Key("", "Options that differ")]
    meaning: Annotated[str, Key("", "The change in words")]
    speedup: Annotated[float, Key("1", "Samples a second, as a factor of the question's")]
    cut_share: Annotated[float, Key("1", "Share of the samples that the limit on the length cuts")]
    fewest_replicas: Annotated[int | None, Key("1", "Fewest generator replicas that keep the trainer busy with the "
                                               "change. Null if none do, and with --generators")]
    step: Annotated[RolloutStep, Key("", "Step with the change")]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RolloutsAnswer(Answer):
    """The output of `planner rollouts --json`."""

    feasible: Annotated[bool, Key("", "Whether the trainer waits at most the given share of the time")]
    sentence: Annotated[str, Key("", "The generators, and what limits the step")]
    step: Annotated[RolloutStep, Key("", "Generators and step: the fewest that keep the trainer busy, or as asked; if "
                                     "no number does, the number from which twice as many shorten a step by less than "
                                     "5 %")]
    longest_alone_s: Annotated[float, Key("s", "Generation time of the longest sample of a batch alone on a replica, "
                                          "mean over the steps: no number of generators takes less")]
    max_trainer_wait: Annotated[float, Key("1", "Share of the time in which a busy trainer may wait")]
    prompts: Annotated[int, Key("1", "Prompts of a batch")]
    group_size: Annotated[int, Key("1", "Samples of a prompt")]
    lag: Annotated[int, Key("1", "Steps by which generation may run ahead of the trainer")]
    max_length: Annotated[int | None, Key("tokens", "Limit on the output length. Null without one")]
    length_budget: Annotated[int | None, Key("tokens", "Tokens of a sample in one step. Null without one")]
    cut_share: Annotated[float, Key("1", "Share of the samples that the limit on the length cuts")]
    num_steps: Annotated[int, Key("1", "Steps that were replayed")]
    output_tokens_p50: Annotated[float, Key("tokens", "Median output length")]
    output_tokens_p99: Annotated[float, Key("tokens", "99th percentile of the output lengths")]
    output_tokens_max: Annotated[int, Key("tokens", "Largest output length")]
    fleets: Annotated[tuple[RolloutStep, ...], Key("", "Numbers of generators that were replayed, from few to many")]
    changes: Annotated[tuple[RolloutChange, ...], Key("", "Other ways to run the steps on the same generators, the "
                                                      "fastest first")]
    notes: Annotated[tuple[str, ...], Key("", "Notes, a sentence each")]
    trace_sha256: Annotated[str, Key("", "Hash of the trace")]
