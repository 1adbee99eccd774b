"""Speculative decoding: the method that drafts tokens, its layers, and the memory that engines keep for it."""

import math
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any

from planner.catalog.acceptance_lengths import measured_lengths, measured_names
from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import load_model
from planner.catalog.layers.mlps import Experts, Mlp, MlpGroup
from planner.errors import UsageError
from planner.settings.acceptance import MEASURED, acceptance_of_lengths, cumulative_acceptance
from planner.settings.draft_lengths import draft_lengths
from planner.settings.scenario import Scenario

EAGLE3_VOCAB = 32_000  # tokens that a published EAGLE-3 head chooses from, of the target's (`draft_vocab_size`)
MLP_RATIO = 4  # width of a dense head's MLP over the hidden size, if its target has no dense one
ALIASES = {"deepseek_mtp": "mtp"}  # that vLLM says are now called otherwise
BLOCKS = ("dflash", "dspark")  # draft all tokens in one pass: a block of masked tokens behind the last token
WITH_LAYERS = ("mtp", "eagle", "eagle3", "draft_model", *BLOCKS)  # that read the context: they have KV
WITH_MODEL = ("draft_model", "eagle", "eagle3", *BLOCKS)  # that can be given as a model
BLOCK_LAYERS, BLOCK_TAPS = 5, 5  # layers of published DFlash and DSpark heads, and layers of the target that they read
STAGES = 3  # DSpark's layers in DeepSeek-V4's checkpoints, with experts (`mtp.*`)
MARKOV_RANK = 256  # of DSpark's head that corrects each token by the one before (`markov_rank`)
DEFAULT_ACCEPTANCE = "0.7"  # of random tokens in published runs; see the decisions


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """How tokens are drafted.

    Parameters
    ----------
    method : "mtp", "eagle", "eagle3", "dflash", "dspark", "draft_model", "medusa", "ngram", "ngram_gpu" or "suffix".
    acceptance : chance that the first j tokens are all accepted, shape [k]; it says how many are drafted.
    acceptance_source : source of the acceptance, for notes; empty if the user gives it.
    lengths : tokens drafted after a step of n requests, shape [most + 1]; empty if there are always k.
    arch : the layers of a pass: one layer, several, or the draft model; of "medusa" the target, whose LM head each head
        has; None if nothing runs on the GPU.
    quantization : format of its weights; None for the checkpoint's own.
    fused_inputs : hidden states that a 16-bit product joins before the layer, on every rank in full: 2 in MTP (the
        target's and the last token's embedding), the hidden states of the target's layers that a block reads, else 0
        [1].
    shares_head : whether it uses the target's embedding and LM head.
    markov_rank : rank of the head that corrects each token of a block by the one before; else 0 [1].
    """

    method: str
    acceptance: tuple[float, ...]
    arch: Architecture | None
    quantization: str | None
    fused_inputs: int
    shares_head: bool
    markov_rank: int = 0
    lengths: tuple[int, ...] = ()
    acceptance_source: str = ""

    @property
    def num_tokens(self) -> int:
        """Tokens that are drafted a step, k [1]."""
        return len(self.acceptance)

    @property
    def num_lookahead_tokens(self) -> int:
        """KV slots that vLLM's scheduler keeps for the next drafts: k if the draft has KV, else 0 [tokens].

        DFlash's block has the last token too, as a query.
        """
        return self.num_tokens + (self.method == "dflash") if self.method in WITH_LAYERS else 0

    @property
    def is_block(self) -> bool:
        """Whether one pass drafts all tokens."""
        return self.method in BLOCKS

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens that a decode emits a step, its own included; vLLM's name."""
        return 1.0 + math.fsum(self.acceptance)


def draft_of(scenario: Scenario, target: Architecture | None) -> Draft | None:
    """Return the drafting method of a scenario; None without one.

    MTP (DeepSeek-V3, section 2.2) runs a layer of the target's kind, its experts included, and EAGLE (Li et al., 2024)
    a dense one in 16 bit; both join two hidden states before it and use the target's LM head. EAGLE-3 has a head of its
    own over fewer tokens. k modules or one that runs k times take the same time. DFlash (Chen et al., 2026,
    arXiv:2602.06036) and DSpark (deepseek-ai/DeepSpec) run dense layers once over a block of k tokens, whose context is
    the target's hidden states; DSpark then goes through the block once more with a head of low rank.

    Parameters
    ----------
    target : the model that checks; None if step times are a line, which includes no draft.

    Raises
    ------
    UsageError, UnknownNameError, CatalogError : the method lacks its model or takes none, or vocabularies differ.
    """
    if not scenario.num_speculative_tokens:
        return None
    method = draft_method(scenario)
    acceptance, source = _acceptance(scenario, method, target)
    drafter = _own_model(scenario.speculative_model, method)
    if target is None:
        arch = None
    elif method == "mtp":
        experts = next((mlp for _, mlp in target.mlps_of(Experts)), None)
        arch = _one_layer(target, experts or target.dense_mlp, keeps_indexer=True)
    elif _has_stages(method, drafter, target):
        experts = next((mlp for _, mlp in target.mlps_of(Experts)), None)
        arch = _layers(_one_layer(target, experts or target.dense_mlp, keeps_indexer=False), STAGES)
    elif method in ("eagle", "eagle3", *BLOCKS):
        arch = drafter or _layers(_dense_layer(target), BLOCK_LAYERS if method in BLOCKS else 1)
        if method == "eagle3":
            arch = replace(arch, vocab_size=min(arch.vocab_size, EAGLE3_VOCAB))
    elif method == "draft_model" and drafter is not None:
        if drafter.vocab_size != target.vocab_size:
            raise UsageError(f"--speculative-model {drafter.name}: has {drafter.vocab_size:,} tokens and {target.name} "
                             f"{target.vocab_size:,}; a draft model needs its target's vocabulary")
        arch = drafter
    else:
        arch = target if method == "medusa" else None
    return Draft(method=method, acceptance=acceptance, acceptance_source=source, arch=arch,
                 lengths=draft_lengths(scenario.num_speculative_tokens_per_batch_size,
                                       scenario.num_speculative_tokens),
                 quantization=_quantization(scenario, method, target),
                 fused_inputs={"mtp": 2, "eagle": 2, "eagle3": 3}.get(method, BLOCK_TAPS if method in BLOCKS else 0),
                 shares_head=method in ("mtp", "eagle", *BLOCKS), markov_rank=MARKOV_RANK if method == "dspark" else 0)


def draft_settings(draft: Draft | None, hashes_next_token: Container[str], attention_ranks: int) -> dict[str, Any]:
    """Return the fields of `EngineSettings` that follow from a draft.

    Parameters
    ----------
    hashes_next_token : methods with which a cached block's hash covers the token after it.
    attention_ranks : ranks of data-parallel attention, which take their steps together [1].

    Raises
    ------
    UsageError : draft lengths follow the batch on ranks that must take equal steps; vLLM turns the lengths off there.
    """
    if draft is None:
        return {}
    if draft.lengths and attention_ranks > 1:
        raise UsageError(f"--num-speculative-tokens-per-batch-size: {attention_ranks} ranks of data-parallel attention "
                         f"take each step together, and the length of drafts would differ between them; leave the "
                         f"option out, as vLLM does")
    return {"acceptance": draft.acceptance, "draft_lengths": draft.lengths,
            "num_lookahead_tokens": draft.num_lookahead_tokens,
            "hashes_next_token": draft.method in hashes_next_token}


def draft_method(scenario: Scenario) -> str:
    """Return the method that drafts: the one asked for, else "draft_model" if one is named, else MTP."""
    method = scenario.speculative_method or ("draft_model" if scenario.speculative_model else "mtp")
    return ALIASES.get(method, method)


def _acceptance(scenario: Scenario, method: str, target: Architecture | None) -> tuple[tuple[float, ...], str]:
    """Return the chance that the first j drafted tokens are accepted, and its source.

    Raises
    ------
    UsageError : measured values are asked for, and there are none.
    """
    asked, tokens = scenario.speculative_acceptance, scenario.num_speculative_tokens
    if asked is not None and asked not in MEASURED:
        return cumulative_acceptance(asked, tokens), ""
    mode, name = asked or MEASURED[0], "no model" if target is None else target.profile_name
    lengths = measured_lengths(name, method, mode)
    if lengths is not None:
        return acceptance_of_lengths(lengths, tokens), f"measured on SPEED-Bench coding, {mode}"
    if asked is not None:
        raise UsageError(f"--speculative-acceptance {asked}: nobody measured {name} with {method}; known are "
                         f"{', '.join(measured_names(mode))}; give a number")
    return cumulative_acceptance(DEFAULT_ACCEPTANCE, tokens), (
        f"{DEFAULT_ACCEPTANCE} a token is assumed; --speculative-acceptance takes your server's")


def _own_model(name: str | None, method: str) -> Architecture | None:
    """Return the model that a method names, or the error of one that needs it, or has none."""
    if name is None:
        if method == "draft_model":
            raise UsageError("--speculative-method draft_model: needs --speculative-model, a model of the catalog or a "
                             "config.json")
        return None
    if method not in WITH_MODEL:
        raise UsageError(f"--speculative-model {name}: {method} drafts without a model of its own; leave it out")
    return load_model(name)


def _has_stages(method: str, draft_model: Architecture | None, target: Architecture) -> bool:
    """Tell whether the target's checkpoint has DSpark's layers, with experts."""
    return method == "dspark" and draft_model is None and target.model_type == "deepseek_v4"


def _quantization(scenario: Scenario, method: str, target: Architecture | None) -> str | None:
    """Return the format of a draft's weights: the target's for its layers, 16 bit for heads; None: its checkpoint's."""
    if method == "mtp" or (target is not None and scenario.speculative_model is None
                           and _has_stages(method, None, target)):
        return scenario.quantization
    return None if method == "draft_model" else "bf16"


def _layers(layer: Architecture, count: int) -> Architecture:
    """Return a model of equal layers from one with a single layer."""
    (group,), (mlp,) = layer.layers, layer.mlps
    return replace(layer, name=layer.name.replace("a layer", f"{count} layers") if count > 1 else layer.name,
                   layers=(replace(group, count=count),), mlps=(replace(mlp, count=count),))


def _dense_layer(target: Architecture) -> Architecture:
    """Return one layer of the target in 16 bit, with its attention and a dense MLP."""
    width = target.dense_mlp.width or MLP_RATIO * target.hidden_size
    return replace(_one_layer(target, replace(target.dense_mlp, width=width), keeps_indexer=False),
                   quantization=None, attention_quantization=None, linear_quantization=None)


def _one_layer(target: Architecture, mlp: Mlp, *, keeps_indexer: bool) -> Architecture:
    """Return one layer of the target without a window, with its attention and an MLP."""
    attention, groups = target.by_attention[0]
    return replace(target, name=f"a layer of {target.name}", per_layer_input_size=0, mlps=(MlpGroup(1, mlp),),
                   layers=(attention.drafting_layer(groups, keeps_indexer=keeps_indexer),))
