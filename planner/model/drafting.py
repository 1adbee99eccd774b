"""Speculative decoding: what drafts the tokens, with which layers, and what engines keep for it."""

import math
from dataclasses import dataclass, replace

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import load_model
from planner.catalog.layers.mlps import Experts, Mlp, MlpGroup
from planner.errors import UsageError
from planner.settings.acceptance import cumulative_acceptance
from planner.settings.scenario import Scenario

EAGLE3_VOCAB = 32_000  # tokens that a published EAGLE-3 head chooses from, of the target's (`draft_vocab_size`)
MLP_RATIO = 4  # width of an EAGLE head's MLP over the hidden size, where its target has no dense one
ALIASES = {"deepseek_mtp": "mtp"}  # that vLLM says are now called otherwise
WITH_LAYERS = ("mtp", "eagle", "eagle3", "draft_model")  # that read the context: they have KV, and vLLM looks ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """How tokens are drafted.

    Parameters
    ----------
    method : "mtp", "eagle", "eagle3", "draft_model", "medusa" or "ngram".
    acceptance : chance that the first j tokens are all accepted, shape [k]; it says how many are drafted.
    arch : what each of k passes runs: one layer, or the draft model; of "medusa" the target, whose LM head each head
        has; None where nothing runs on the GPU.
    quantization : format of its weights; None for the checkpoint's own.
    fused_inputs : hidden states that a 16-bit product joins before the layer, on every rank in full: 2 in MTP (the
        target's and the last token's embedding), 0 where there is none [1].
    shares_head : whether it uses the target's embedding and LM head.
    """

    method: str
    acceptance: tuple[float, ...]
    arch: Architecture | None
    quantization: str | None
    fused_inputs: int
    shares_head: bool

    @property
    def num_tokens(self) -> int:
        """Tokens that are drafted a step, k [1]."""
        return len(self.acceptance)

    @property
    def num_lookahead_tokens(self) -> int:
        """KV slots that vLLM's scheduler keeps for the next drafts: k where the draft has KV, else 0 [tokens]."""
        return self.num_tokens if self.method in WITH_LAYERS else 0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens that a decode emits a step, its own included; vLLM's name."""
        return 1.0 + math.fsum(self.acceptance)


def draft_of(scenario: Scenario, target: Architecture | None) -> Draft | None:
    """Return how a scenario drafts; None where it does not.

    MTP (DeepSeek-V3, section 2.2) runs a layer of the target's kind, its experts included, and EAGLE (Li et al., 2024)
    a dense one in 16 bit; both join two hidden states before it and use the target's LM head. EAGLE-3 has a head of its
    own over fewer tokens. k modules or one that runs k times take the same time.

    Parameters
    ----------
    target : the model that checks; None where steps are a line, which no draft is part of.

    Raises
    ------
    UsageError, UnknownNameError, CatalogError : the method lacks its model or takes none, or vocabularies differ.
    """
    acceptance = cumulative_acceptance(scenario.speculative_acceptance, scenario.num_speculative_tokens)
    if not acceptance:
        return None
    method = draft_method(scenario)
    own = _own_model(scenario.speculative_model, method)
    if target is None:
        arch = None
    elif method == "mtp":
        experts = next((mlp for _, mlp in target.mlps_of(Experts)), None)
        arch = _one_layer(target, experts or target.dense_mlp, keeps_indexer=True)
    elif method in ("eagle", "eagle3"):
        width = target.dense_mlp.width or MLP_RATIO * target.hidden_size
        arch = own or replace(_one_layer(target, replace(target.dense_mlp, width=width), keeps_indexer=False),
                              quantization=None, attention_quantization=None, linear_quantization=None)
        if method == "eagle3":
            arch = replace(arch, vocab_size=min(arch.vocab_size, EAGLE3_VOCAB))
    elif method == "draft_model" and own is not None:
        if own.vocab_size != target.vocab_size:
            raise UsageError(f"--speculative-model {own.name}: has {own.vocab_size:,} tokens and {target.name} "
                             f"{target.vocab_size:,}; a draft model needs its target's vocabulary")
        arch = own
    else:
        arch = target if method == "medusa" else None
    return Draft(method=method, acceptance=acceptance, arch=arch,
                 quantization=scenario.quantization if method == "mtp" else None if method == "draft_model" else "bf16",
                 fused_inputs={"mtp": 2, "eagle": 2, "eagle3": 3}.get(method, 0),
                 shares_head=method in ("mtp", "eagle"))


def draft_method(scenario: Scenario) -> str:
    """Return what drafts tokens where something does: as asked for, else the draft model that is named, else MTP."""
    given = scenario.speculative_method or ("draft_model" if scenario.speculative_model else "mtp")
    return ALIASES.get(given, given)


def _own_model(name: str | None, method: str) -> Architecture | None:
    """Return the model that a method names, or the error of one that needs it, or has none."""
    if name is None:
        if method == "draft_model":
            raise UsageError("--speculative-method draft_model: needs --speculative-model, a model of the catalog or a "
                             "config.json")
        return None
    if method not in ("draft_model", "eagle", "eagle3"):
        raise UsageError(f"--speculative-model {name}: {method} drafts without a model of its own; leave it out")
    return load_model(name)


def _one_layer(target: Architecture, mlp: Mlp, *, keeps_indexer: bool) -> Architecture:
    """Return one layer of the target without a window, with its attention and an MLP."""
    attention, groups = target.by_attention[0]
    return replace(target, name=f"a layer of {target.name}", per_layer_input_size=0, mlps=(MlpGroup(1, mlp),),
                   layers=(attention.drafting_layer(groups, keeps_indexer=keeps_indexer),))
