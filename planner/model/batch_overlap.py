"""Overlap of the experts' exchange with compute: how a step's tokens are split for it."""

import math
from dataclasses import dataclass, replace

from planner.engines import ENGINES
from planner.engines.engine import EngineDefaults, TwoBatchOverlap
from planner.errors import UsageError
from planner.model.layout import Layout
from planner.settings.scenario import Scenario


@dataclass(frozen=True, slots=True)
class BatchOverlap:
    """The work that runs beside the exchange.

    Parameters
    ----------
    first, last : tokens of a rank between which its step runs as two halves, one computing while the other is
        exchanged; `first` is infinite if none does [1].
    splits_decodes : whether steps of decodes alone are among them.
    in_one_batch : whether shared experts and the last product of the routed ones run beside the exchange of their own
        step, if it is not split.
    """

    first: float = math.inf
    last: float = math.inf
    splits_decodes: bool = False
    in_one_batch: bool = False

    @property
    def splits(self) -> bool:
        """Whether any step runs as two halves."""
        return self.first < math.inf


def overlap_of(scenario: Scenario, layout: Layout, tokens_per_decode: int, limits: EngineDefaults) -> BatchOverlap:
    """Return the work that runs beside the exchange of a scenario.

    Raises
    ------
    UsageError : there is no exchange to overlap, a threshold is negative or given without the overlap, or the engine
        has no such overlap.
    """
    asked = [flag for flag, is_on in (("--enable-dbo", scenario.enable_dbo),
                                      ("--enable-single-batch-overlap", scenario.enable_single_batch_overlap)) if is_on]
    thresholds = {"--dbo-decode-token-threshold": scenario.dbo_decode_token_threshold,
                  "--dbo-prefill-token-threshold": scenario.dbo_prefill_token_threshold}
    for flag, value in thresholds.items():
        if value is not None and (value < 0 or not scenario.enable_dbo):
            raise UsageError(f"{flag} {value}: two-batch overlap splits a step from so many tokens on; give 0 or more, "
                             "and --enable-dbo")
    if not asked:
        return BatchOverlap()
    rule = ENGINES[scenario.engine].kernels.batch_overlap
    if rule is None:
        raise UsageError(f"{asked[0]}: {scenario.engine} has no such overlap; leave it out, or give another engine")
    if not layout.dispatches:
        raise UsageError(f"{asked[0]}: overlaps the exchange of tokens with their experts, and here all tokens go to "
                         "all GPUs; give --all2all-backend deepep or another, with --data-parallel-attention and "
                         "--expert-parallel")
    if not scenario.enable_dbo:
        return BatchOverlap(in_one_batch=True)
    return replace(_split(scenario, rule, layout.exchange, tokens_per_decode, limits),
                   in_one_batch=scenario.enable_single_batch_overlap)


def _split(scenario: Scenario, rule: TwoBatchOverlap, exchange: str, tokens_per_decode: int,
           limits: EngineDefaults) -> BatchOverlap:
    """Return which steps are split, by their tokens alone.

    If ranks have steps of decodes and steps with prompts, a step counts as one of decodes: the ranks decide
    together, and most have decodes alone.
    """
    decodes_from = scenario.dbo_decode_token_threshold
    decodes_from = max(rule.decodes_from if decodes_from is None else decodes_from, 2)
    prompts_from = scenario.dbo_prefill_token_threshold
    prompts_from = max(rule.prompts_from if prompts_from is None else prompts_from, 2)
    most_decodes = limits.max_num_seqs * tokens_per_decode if limits.max_num_seqs else math.inf
    splits_prompts = (exchange not in rule.whole_prompts_with
                      and prompts_from <= (limits.max_num_batched_tokens or math.inf))
    if decodes_from <= most_decodes:
        return BatchOverlap(decodes_from, math.inf if splits_prompts else most_decodes, splits_decodes=True)
    return BatchOverlap(prompts_from) if splits_prompts else BatchOverlap()
