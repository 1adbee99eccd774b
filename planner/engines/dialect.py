"""Launch commands of an engine: the types of its flags, and words that engines share."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.engines.flag_table import COMPILED, FlagTable, Takes, Unmodelled
from planner.engines.values import Read, one_of, whole

Write = Callable[[Any], str | tuple[str, ...] | None]  # several words if other flags follow the value


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A flag with a value."""

    names: tuple[str, ...]  # with dashes for underscores, the one that is written first; of a table's key its path
    option: str  # of `Scenario`, that it sets; or a value that `read` settles with others
    read: Read = whole  # turns the flag's value into the option's
    write: Write = str  # turns the option's into the flag's; None if the flag has no such value
    takes: Takes = "one"  # "several" if a list of words follows it


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A flag without a value, or a key with a truth value, and the value to which it sets an option."""

    names: tuple[str, ...]
    option: str
    value: Any = True
    otherwise: Any = None  # for the same name with "--no-" before it, or the value false; None for neither


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A flag or key whose value is a table, in JSON or as YAML: its keys are flags by their paths."""

    names: tuple[str, ...]
    effect: str = COMPILED  # of keys that set no option and are not in the engine's table of flags


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFlags:
    """How an engine is told of ranks of data-parallel attention."""

    # Whether a flag turns them on, and the TP size counts the GPUs of all ranks; else every mixture of experts has
    # them, and the TP size is a rank's.
    needs_switch: bool = True
    are_all_gpus: bool = False  # whether every GPU is a rank; else a flag has their number
    limits_are_of_all: bool = False  # whether seat and token limits count all ranks together; else one rank
    sends_whole_experts: bool = False  # whether sending tokens to their experts implies whole experts
    router: str | None = None  # of the server that deals requests to ranks; None for the planner's default


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFlags:
    """The flags of a tier of KV in host memory, if the engine counts the memory of one GPU."""

    size: str  # flag with the size; 0 is none
    unit_bytes: float  # unit of the size [bytes]
    switch: str | None = None  # flag that turns the tier on; None if the size does
    default_ratio: float | None = None  # size over the GPU's KV cache if the switch stands alone; None if none


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFlags:
    """Lengths of drafts, if the engine does not read them from the draft's config."""

    steps: str  # flag with the number of drafted tokens
    block: str  # flag with the size of a block of drafts
    default_steps: int  # drafted tokens without the flag [1]
    ngram_tokens: int  # tokens of an n-gram's draft without the flag, and the token that is checked [1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Launch commands of an engine, and its log's record of them."""

    launch: tuple[str, ...]  # the words that a written command begins with, up to the model
    commands: tuple[re.Pattern[str], ...]  # the words that a launch begins with, up to the arguments
    images: tuple[str, ...] = ()  # patterns of names of container images, whose tag has the release
    model: tuple[str, ...] = ("--model",)  # flags that name the model, if it is not the first word without a flag
    entries: tuple[Flag | Switch | Tree, ...] = ()  # flags and switches that set options
    files: tuple[str, ...] = ("--config",)  # flags that name a YAML file with keys of both kinds
    # Files that go over the command line: the first release in which they no longer do by flag, None for none.
    files_first: Mapping[str, str | None] = field(default_factory=dict)
    table: FlagTable = FlagTable()  # flags that set no option, with their effect on a prediction
    # Flags that make the engine one of several that pass requests on: the role by the flag's value, in small letters. A
    # pool of a fleet can have such a role.
    roles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    role_switches: Mapping[str, str] = field(default_factory=dict)  # the same for flags without a value
    # Module that launches replicas and a router in front of them; None if the engine has none.
    with_router: str | None = None
    words_after: tuple[str, ...] = ()  # switches that true or false may follow
    connectors: tuple[str, ...] = ()  # flags with a connector of KV, by which it has a role or a tier in host memory
    has_abbreviations: bool = True  # whether the beginning of a flag stands for it, as argparse has it
    # Commands that do not start with the beginning of a flag, as click has it.
    refuses_abbreviations: tuple[re.Pattern[str], ...] = ()
    file_entries: tuple[Flag | Switch | Tree, ...] = ()  # entries that are keys of a file only
    experts: tuple[str, ...] = ()  # flags with the number of GPUs that share the experts
    kv_tokens: tuple[str, ...] = ()  # flags with the size of the KV cache in tokens
    read_kv_tokens: Read = whole
    variables: Mapping[str, Flag] = field(default_factory=dict)  # environment variables that set an option, by name
    # Variables that change an answer and are not modelled; a default is a value without effect.
    unmodelled_variables: tuple[Unmodelled, ...] = ()
    # Release since which the engine refuses a context limit above the model's; None if none does.
    refuses_longer_since: str | None = None
    # Whether the engine refuses a value of --quantization, of (the checkpoint's method, the value, the model's type);
    # None if the engine's rule is not known.
    refuses_method: Callable[[str, str, str], bool] | None = None
    config_effects: tuple[str, ...] = ()  # effects of flags that change the model's config, and so its own limit
    ranks: RankFlags = RankFlags()  # flags of data-parallel attention
    lora_switch: str | None = None  # the flag that turns adapters on; None if none is needed
    # Flags of a tier in host memory; None if an option of its own has the size over all GPUs.
    tier: TierFlags | None = None
    # Method of drafting by the method that is named, if no draft model is.
    methods_without_draft: Mapping[str, str] = field(default_factory=dict)
    drafts: DraftFlags | None = None  # flags with the length of drafts; None if the draft's config has it
    # A name of a checkpoint that names its model and how it drafts; None if there are none.
    speculator: re.Pattern[str] | None = None
    # Whether flags turn chunks and prefix caching off for a model whose prompts run whole; else the engine does.
    whole_prompts_by_flags: bool = False
    files_tell_pooling: bool = False  # whether a model's files say that it is pooled; else a flag does
    copies_need_load: bool = False  # whether copies of experts are placed without their load unless a flag asks for it
    overlap_needs_ranks: bool = False  # whether two-batch overlap is ignored without several ranks
    # The text before the arguments in a server's log, and the sign between name and value; None if the log has none.
    log_opening: tuple[str, str] | None = None
    logs_all_arguments: bool = False  # whether these are all arguments, or only arguments that differ from the defaults
    # Finds the release in a line of the log; None if the log does not say it.
    log_version: re.Pattern[str] | None = None
    # Finds the release, and the values with which the engine runs, in a later line of the log; None if the arguments
    # have them.
    log_resolved: re.Pattern[str] | None = None
    dash: str = "-"  # "-" or "_", in written flags

    @property
    def command(self) -> tuple[str, ...]:
        """Return the words that a written command begins with, without a flag for the model."""
        return self.launch[:-1] if self.launch[-1].startswith("--") else self.launch

    @property
    def options(self) -> frozenset[str]:
        """Return the options that a launch can set."""
        entries = (*self.entries, *self.file_entries, *self.variables.values())
        return frozenset(entry.option for entry in entries if not isinstance(entry, Tree))

    @property
    def known_variables(self) -> frozenset[str]:
        """Return the names of environment variables that set an option, or change an answer."""
        known = (name for group in self.unmodelled_variables for flag in group.flags for name in flag.names)
        return frozenset((*self.variables, *known))


def flags_named(names: str, read: Read = whole, write: Write = str) -> tuple[Flag, ...]:
    """Return flags that have the names of their options; more names of a flag stand after bars.

    >>> [(flag.names, flag.option) for flag in flags_named("--block-size --max-loras|-l")]
    [(('--block-size',), 'block_size'), (('--max-loras', '-l'), 'max_loras')]
    """
    return tuple(Flag(names=tuple(word.split("|")), option=_option(word), read=read, write=write)
                 for word in names.split())


def switches_named(names: str, otherwise: Any = None) -> tuple[Switch, ...]:
    """Return switches that have the names of their options, as `flags_named`."""
    return tuple(Switch(names=tuple(word.split("|")), option=_option(word), otherwise=otherwise)
                 for word in names.split())


def _option(names: str) -> str:
    return names.partition("|")[0].removeprefix("--").replace("-", "_")


def written(choices: Mapping[str, Any]) -> Write:
    """Return a writer of the first of the words that stand for a value."""
    words: dict[Any, str] = {}
    for word, value in choices.items():
        words.setdefault(value, word)
    return words.get


def choice(names: tuple[str, ...], option: str, choices: Mapping[str, Any]) -> Flag:
    """Return a flag whose value is one of several words, written as they stand here."""
    return Flag(names=names, option=option, read=one_of(choices), write=written(choices))


def allowed() -> Flag:
    """Return the variable that allows a context limit above the model's."""
    return choice((), "allows_longer_context", dict.fromkeys(ON, True) | dict.fromkeys(OFF, False))


def never_chunked(enable_chunked_prefill: bool) -> str | None:
    """Return the chunk size that stands for prompts that run whole."""
    return None if enable_chunked_prefill else "-1"


def limit(value: int) -> str | None:
    """Return a limit as it is written; engines have no word for none."""
    return str(value) if value else None


def unwritten(_: Any) -> None:
    """Write nothing: another flag says the same."""


def listed(value: int) -> str:
    """Return a list of the one value."""
    return f"[{value}]"


# Containers of weight formats: the checkpoint's own config says which format they hold. The format is the usual one,
# for a checkpoint that is not known; None if there is none. vLLM: `override_quantization_method` of each in
# vllm/model_executor/layers/quantization.
CONTAINERS = {"modelopt": "fp8", "modelopt_mixed": None, "compressed-tensors": None, "auto-round": "gptq",
              "auto_round": "gptq", "inc": None, "quark": None, "torchao": None, "humming": None,
              "deepseek_v4_fp8": None}
QUANTIZATIONS = {"fp8": "fp8", "awq": "awq", "awq-marlin": "awq", "awq_marlin": "awq", "gptq": "gptq",
                 "gptq-marlin": "gptq", "gptq_marlin": "gptq", "modelopt_fp4": "nvfp4", "nvfp4": "nvfp4",
                 "mxfp4": "mxfp4", "w8a8_int8": "int8", "w8a8_fp8": "fp8", "modelopt_fp8": "fp8",
                 "gptq_bitblas": "gptq", "moe_wna16": "gptq", "fbgemm_fp8": "fp8", "ptpc_fp8": "fp8",
                 "bitsandbytes": "bnb-4bit", "mxfp8": "mxfp8", "modelopt_mxfp8": "mxfp8",
                 **{name: name for name in CONTAINERS}, "auto_awq": "awq", "auto_gptq": "gptq",
                 "gpt_oss_mxfp4": "mxfp4", "quark_mxfp4": "mxfp4", "unquant": "bf16"}
VLLM_QUANTIZATIONS = QUANTIZATIONS | {"fp8_per_tensor": "fp8", "fp8_per_channel": "fp8", "fp8_per_block": "fp8_block",
                                      "int8_per_channel_weight_only": "w8a16"}
KV_DTYPES = {"auto": "auto", "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_ds_mla": "fp8", "bf16": "bf16",
             "bfloat16": "bf16"}
# KV types with more than an element and its scale -> the number format that a GPU must multiply in, None for any.
VLLM_PACKED_KV: dict[str, str | None] = {"nvfp4_4over6": "fp4"} | dict.fromkeys((
    "nvfp4", "nvfp4_ds_mla", "int4_per_token_head", "int8_per_token_head", "fp8_per_token_head", "turboquant_k8v4",
    "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc", "octave_k3v4", "octave_k3v3",
    "octave_k3v3_compact", "ultraquant_4bit"))
VLLM_KV_DTYPES = KV_DTYPES | {"float16": "fp16", "fp8_inc": "fp8"} | {name: name for name in VLLM_PACKED_KV}
SGLANG_PACKED_KV = {"nvfp4": "fp4", "mxfp8": "fp4", "fp4_mx_block16": None}  # arg_groups/kv_cache_hook.py
# Older releases call 4 bit with a scale for 16 elements fp4_e2m1 (MHATokenToKVPoolFP4 of 0.5.10).
SGLANG_KV_DTYPES = KV_DTYPES | {name: name for name in SGLANG_PACKED_KV} | {"fp4_e2m1": "fp4_mx_block16"}
MOE_BACKENDS = {name: name for name in ("auto", "marlin", "triton", "deep_gemm", "cutlass", "flashinfer_trtllm")}
OPTIMIZATION_LEVEL = "--optimization-level"  # vLLM's -O2
ON = ("1", "true")
OFF = ("0", "false")
