"""Options that several flags say together, as drafts, adapters, ranks and tiers; and checks of a start."""

from collections.abc import Mapping
from typing import Any

from planner.catalog.catalog_files import is_path, load_model, stated_method
from planner.catalog.checkpoint_names import format_in_name
from planner.catalog.layers.mlps import Experts
from planner.engines import ENGINES
from planner.engines.dialect import CONTAINERS, Tree
from planner.engines.releases import is_before
from planner.errors import UsageError
from planner.launch.checkpoint_format import known_model
from planner.launch.rank_flags import read_ranks
from planner.launch.take_flags import Taken
from planner.model.drafting import BLOCKS
from planner.model.layout import ALL_GATHER

LEVELS: Mapping[int, Mapping[str, Any]] = {  # vLLM's -O, OPTIMIZATION_LEVEL_TO_CONFIG in vllm/config/vllm.py
    0: {"cudagraph_mode": "none", "fuse_allreduce_rms": False},
    1: {"cudagraph_mode": "piecewise", "fuse_allreduce_rms": False}}
NGRAMS = ("ngram", "[ngram]")  # vLLM's words in place of a draft model
PPLX_UNTIL = "0.16"  # later releases of vLLM gather all tokens in its place: `ParallelConfig.__post_init__`
UNPLACED = ("takes memory for copies of experts that are placed without their load; --enable-eplb or "
            "--init-expert-location places them by it")
TREE = "checks a tree of drafts, of which a chain of --speculative-num-steps is predicted"
SUFFIX_TOKENS = 24  # vLLM's suffix_decoding_max_tree_depth, its default length of drafts
CUT = "cuts prompts that are longer than the context limit; they are rejected in the replay"
ALONE = "finds prefixes in the tier alone; no prompt is taken from it in the replay"
OF_DRAFT = "drafts as many tokens as the draft's own config says, which is not read; give --num-speculative-tokens"


def settle(taken: Taken) -> dict[str, Any]:
    """Return the options of a launch.

    Raises
    ------
    UsageError : flags contradict each other, or are not modelled together.
    """
    found = taken.found
    for option, value in LEVELS.get(found.pop("optimization_level", 2), {}).items():
        found.setdefault(option, value)
    _settle_container(taken)
    _settle_draft(taken)
    _settle_adapters(taken)
    _settle_attention_ranks(found)
    if taken.dialect.copies_need_load:
        _settle_copies(taken)
    if (slots := found.pop("expert_slots", None)) is not None:
        found |= {"enable_eplb": True, "num_redundant_experts": _copies(found["model"], slots)}
    mode = found.pop("deepep_mode", "deepep")
    if found.get("all2all_backend") == "deepep":
        found["all2all_backend"] = mode
    if found.get("all2all_backend") == "pplx":
        found["all2all_backend"] = "alltoall" if is_before(found.get("engine_version"), PPLX_UNTIL) else ALL_GATHER
    _settle_overlap(taken)
    _settle_images(taken)
    _settle_pooling(found)
    _settle_truncation(taken)
    if not found.pop("chunks_free_blocks", True) and load_model(found["model"]).model_type == "llama4_text":
        found["disable_hybrid_kv_cache_manager"] = True  # VllmConfig.__post_init__ of vllm/config/vllm.py
    ranks = read_ranks(found)
    if found.get("data_parallel_attention") and not ranks.get("data_parallel_attention"):
        taken.no_effect.append("data-parallel attention of one rank (of N ranks it is --data-parallel-attention "
                               "--data-parallel-size N, with --tensor-parallel-size for the GPUs of each)")
    if "all2all_backend" in found.keys() - ranks.keys():
        taken.no_effect.append(f"all2all backend {found['all2all_backend']} (no ranks send tokens to experts)")
    if ranks.get("all2all_backend") != "mori" and (tokens := ranks.pop("dispatch_tokens_per_rank", None)) is not None:
        taken.no_effect.append(f"MoRI's buffer of {tokens} tokens (no ranks send tokens to experts by MoRI)")
    return _without_unread_tier(taken, _settle_tier(taken, _settle_sizes(ranks)))


def _settle_container(taken: Taken) -> None:
    """Take the format of a container of weight formats from the checkpoint, by its config or its name."""
    found = taken.found
    launched, container = found.pop("launched_model", ""), found.get("quantization")
    if container not in CONTAINERS:
        return
    arch = known_model(found["model"])
    own = None if arch is None else arch.quantization
    del found["quantization"]
    if own is None and (named := format_in_name(launched)) is not None:
        found["quantization"] = named
    elif own is None and CONTAINERS[container] is not None:
        found["quantization"] = CONTAINERS[container]
        taken.unmodelled.append((f"--quantization {container}", f"names a container of formats, and the checkpoint's "
                                 f"format is not known: {CONTAINERS[container]} is assumed; --quantization chooses"))


def _copies(model: str, slots: int) -> int:
    """Return the copies of experts that places for experts and copies leave room for [1].

    Raises
    ------
    UsageError : there are fewer places than experts.
    PlannerError : the model is not known.
    """
    most = max((experts.num_experts for _, experts in load_model(model).mlps_of(Experts)), default=0)
    if not 0 < most <= slots:
        raise UsageError(f"--from-command: {slots} places for {most} experts of {model}; give at least as many")
    return slots - most


def _settle_copies(taken: Taken) -> None:
    """Take copies of experts over if they are placed by load; else SGLang's first experts have them, with any load."""
    found = taken.found
    if found.pop("expert_location", "trivial") != "trivial":
        found["enable_eplb"] = True
    copies = found.get("num_redundant_experts")
    if copies and not found.get("enable_eplb"):
        del found["num_redundant_experts"]
        taken.unmodelled.append((f"--ep-num-redundant-experts {copies}", UNPLACED))


def _settle_images(taken: Taken) -> None:
    """Leave the vision encoder out if prompts may have neither images nor videos, as vLLM does since 0.10.1.

    An encoder that takes videos is loaded unless these are 0, too.

    Source: vllm-project/vllm#22299, `_mark_tower_model` in vllm/model_executor/models/interfaces.py.
    """
    limits = taken.found.pop("limits_per_prompt", None)
    if limits is None:
        return
    arch = known_model(taken.found["model"])
    vision = None if arch is None else arch.vision
    kinds = ("image", "video") if vision is None or vision.has_videos else ("image",)
    if all(limits.get(kind) == 0 for kind in kinds):
        taken.found["language_model_only"] = True
    else:
        taken.no_effect.append("--limit-mm-per-prompt")


def _settle_pooling(options: dict[str, Any]) -> None:
    """Take over that a model is pooled: the task decides, then the model's own result, then the flag."""
    task, flag = options.pop("pooling_task", None), options.pop("pooling", None)
    if task is None and flag is None:
        return
    arch = known_model(options.get("model"))
    usual = None if arch is None else arch.pooling
    result = task or usual or flag
    if result != usual:
        options["pooling"] = result


def _settle_truncation(taken: Taken) -> None:
    """Take over that prompts are cut to the tokens of a batch, if a model takes longer ones; TEI does not start else.

    Source: router/src/lib.rs of huggingface/text-embeddings-inference.
    """
    if not taken.found.pop("truncates_prompts", False):
        return
    arch, tokens = known_model(taken.found.get("model")), taken.found.get(
        "max_num_batched_tokens", ENGINES[taken.engine].defaults.options.max_num_batched_tokens)
    if arch is not None and arch.max_model_len > tokens:
        taken.found["max_model_len"] = tokens
    taken.unmodelled.append(("--auto-truncate", CUT))


def _settle_overlap(taken: Taken) -> None:
    """Leave two-batch overlap aside as vLLM does without several ranks; and its thresholds without it.

    Source: `check_ubatch_thresholds` in vllm/v1/worker/ubatch_utils.py.
    """
    found = taken.found
    is_alone = taken.dialect.overlap_needs_ranks and found.get("data_parallel_size", 1) == 1
    if is_alone and found.pop("enable_dbo", False):
        taken.no_effect.append("--enable-dbo without --data-parallel-size")
    if not found.get("enable_dbo"):
        taken.ignore("dbo_decode_token_threshold", "dbo_prefill_token_threshold")


def _settle_draft(taken: Taken) -> None:
    """Find how tokens are drafted as the engines do; weights of a head are left aside, as its layer is known without.

    vLLM tells the method by the draft's name (`SpeculativeConfig.__post_init__`); SGLang's EAGLE without a draft of its
    own is the target's MTP layer.
    """
    found = taken.found
    speculator = taken.dialect.speculator
    if speculator is not None and (both := speculator.fullmatch(found["model"])):
        found |= {"model": both[1], "speculative_method": both[2]}
    model = found.get("speculative_model")
    if model in NGRAMS:
        found["speculative_method"] = "ngram"
        del found["speculative_model"]
    _settle_draft_length(taken)
    if model is None or model in NGRAMS:
        method = found.get("speculative_method", "")
        if (other := taken.dialect.methods_without_draft.get(method)) is not None:
            found["speculative_method"] = other
        return
    named = [method for method in ("eagle3", "eagle", "medusa", *BLOCKS) if method in model.lower()]
    method = found.setdefault("speculative_method", named[0] if named else "draft_model")
    if method != "draft_model":
        taken.no_effect.append(f"speculative model {model}")
        del found["speculative_model"]


def _settle_draft_length(taken: Taken) -> None:
    """Take the engine's default length of drafts, and tell drafts that are trees: `_auto_choose_speculative_params`.

    A block of SGLang's DFlash has the last token too (`speculative_num_draft_tokens`), one of DSpark has drafts alone.
    """
    found, tokens, flags = taken.found, taken.found.pop("draft_tokens", None), taken.dialect.drafts
    method, block = found.get("speculative_method"), taken.found.pop("draft_block", None)
    _settle_draft_table(taken)
    if method == "suffix":
        found.setdefault("num_speculative_tokens", SUFFIX_TOKENS)
    if flags is not None and method in BLOCKS and (size := block or tokens) is not None:
        found["num_speculative_tokens"] = size - (method == "dflash")
    if (method is not None or found.get("speculative_model")) and "num_speculative_tokens" not in found and (
            flags is None or method in BLOCKS):
        taken.unmodelled.append((f"speculative decoding with {method or found['speculative_model']}", OF_DRAFT))
    if flags is None or method is None or method in BLOCKS:
        return
    if "num_speculative_tokens" not in found:
        ngram = (tokens or flags.ngram_tokens) - 1
        found["num_speculative_tokens"] = ngram if method == "ngram" else flags.default_steps
    elif tokens not in (None, found["num_speculative_tokens"] + 1):
        taken.unmodelled.append((f"--speculative-num-draft-tokens {tokens}", TREE))


def _settle_draft_table(taken: Taken) -> None:
    """Leave vLLM's draft lengths by batch size aside as vLLM does: each rank would choose its own length.

    Source: `_maybe_disable_dynamic_sd_for_data_parallel` in vllm/config/vllm.py.
    """
    table = taken.found.get("num_speculative_tokens_per_batch_size")
    if table is not None and taken.found.get("data_parallel_size", 1) > 1:
        del taken.found["num_speculative_tokens_per_batch_size"]
        taken.no_effect.append(f"num_speculative_tokens_per_batch_size {table} beside --data-parallel-size")


def _settle_adapters(taken: Taken) -> None:
    """Take adapters over if they are turned on; without the switch the server ignores their number and rank."""
    found = taken.found
    has_paths = found.pop("lora_paths", None) is not None
    if found.pop("enable_lora", False) or has_paths:
        found.setdefault("max_loras", ENGINES[taken.engine].defaults.max_loras)
        return
    taken.ignore("max_loras", "max_cpu_loras", "max_lora_rank")


def _settle_attention_ranks(found: dict[str, Any]) -> None:
    """Take SGLang's --attn-dp-size over: the ranks, as --dp-size beside --enable-dp-attention."""
    ranks = found.pop("attention_ranks", 1)
    if ranks <= 1:
        return
    if found.get("data_parallel_size", 1) > 1 and not found.get("data_parallel_attention"):
        raise UsageError(f"--from-command: {found['data_parallel_size']} replicas (--dp-size) of an engine with "
                         f"{ranks} ranks (--attn-dp-size) are not modelled in one command; leave --dp-size out, and "
                         f"give replicas to a pool of a fleet's file")
    found |= {"data_parallel_attention": True, "data_parallel_size": ranks}


def _settle_sizes(found: dict[str, Any]) -> dict[str, Any]:
    """Return the options without values for "the default", and with the options that several flags set together."""
    kv_tokens = found.pop("kv_tokens", None)
    _settle_experts(found)
    if kv_tokens is not None:
        found["num_gpu_blocks"] = kv_tokens // found.get("block_size", 16)
    if found.get("max_num_batched_tokens", 0) < 0:  # SGLang: prompts run whole
        del found["max_num_batched_tokens"]
        found["enable_chunked_prefill"] = False
    return {name: value for name, value in found.items() if value is not None}


def _settle_experts(found: dict[str, Any]) -> None:
    """Take over how many GPUs the experts are spread over, and how many share each; engines derive either of both.

    Source: `Mapping` in tensorrt_llm/mapping.py; `moe_tp_size` of SGLang's `initialize_model_parallel`, whose kernels
    that send tokens hold whole experts (`_handle_a2a_moe`).

    Raises
    ------
    UsageError : the numbers do not divide the GPUs.
    """
    spread, shared = found.pop("experts", None), found.pop("expert_tensor_parallel_size", None)
    gpus = found.get("tensor_parallel_size", 1) * found.get("prefill_context_parallel_size", 1)
    gpus *= found["data_parallel_size"] if found.get("data_parallel_attention") else 1
    spread, shared = (None if size is None or size < 1 else size for size in (spread, shared))
    if found.get("expert_parallel") or (spread is None and shared is None):
        return
    if spread is None or shared is None:
        spread = spread or gpus // (shared or 1)
        shared = shared or gpus // spread
    if spread * shared != gpus:
        raise UsageError(f"--from-command: experts over {spread} groups of {shared} GPUs are not {gpus} GPUs, over "
                         f"which each layer's experts are; their product must be {gpus}")
    found["expert_parallel"] = spread > 1
    if spread > 1 and shared > 1:
        found["expert_tensor_parallel_size"] = shared


def _settle_tier(taken: Taken, found: dict[str, Any]) -> dict[str, Any]:
    """Return the options with a tier in host memory: its size over all GPUs of an engine, or over its KV cache."""
    tier = ENGINES[taken.engine].dialect.tier
    is_on, host_bytes = found.pop("has_tier", False), found.pop("host_bytes", 0.0)
    if found.pop("uses_lmcache", False):
        host_bytes = found["lmcache_gib"] * 2**30
    found.pop("lmcache_gib", None)
    if tier is not None and tier.switch is not None and not is_on:
        names = [name for name in ("kv_offloading_ratio", "kv_write_policy") if found.pop(name, None) is not None]
        taken.no_effect += [entry.names[0] for name in names for entry in taken.dialect.entries
                            if not isinstance(entry, Tree) and entry.option == name]
        return found
    if host_bytes > 0:
        gpus = found.get("tensor_parallel_size", 1) * found.get("pipeline_parallel_size", 1)
        found.pop("kv_offloading_ratio", None)
        return found | {"kv_offloading_size": host_bytes * gpus / 2**30}
    if is_on and tier is not None:
        found.setdefault("kv_offloading_ratio", tier.default_ratio)
    return found


def _without_unread_tier(taken: Taken, found: dict[str, Any]) -> dict[str, Any]:
    """Return the options without a tier in host memory if the GPU keeps no prefixes.

    vLLM's connectors then find prefixes by hashes of their own (`request_block_hasher` in vllm/v1/engine/core.py), and
    TensorRT-LLM fills no tier. SGLang does not start with both.
    """
    tier = taken.dialect.tier
    names = [name for name in ("kv_offloading_size", "kv_offloading_ratio") if name in found]
    if not names or found.get("enable_prefix_caching", True) or (tier is not None and tier.switch is not None):
        return found
    if tier is None:
        taken.unmodelled.append(("a KV tier without the engine's prefix caching", ALONE))
    else:
        taken.no_effect.append("a KV tier without the reuse of blocks")
    return {name: value for name, value in found.items() if name not in names}


def check_longer_context(taken: Taken) -> None:
    """Raise UsageError if the context limit exceeds the model's, and the environment does not allow that.

    The model's own limit is not known if a flag changes its config, or if the model is not in the catalog.

    Source: `_get_and_verify_max_len` in vllm/config/model.py; `_derive_context_length` in
    sglang/srt/configs/model_config.py.
    """
    dialect, found = taken.dialect, taken.found
    is_allowed, length = found.pop("allows_longer_context", False), found.get("max_model_len", 0)
    since = dialect.refuses_longer_since
    if since is None or is_allowed or is_before(found.get("engine_version"), since):
        return
    if any(effect in dialect.config_effects for _, effect in taken.unmodelled):
        return
    arch = known_model(found["model"])
    if arch is not None and length > arch.max_model_len:
        flag = next(entry.names[0] for entry in dialect.entries if getattr(entry, "option", None) == "max_model_len")
        variable = next(name for name, entry in dialect.variables.items() if entry.option == "allows_longer_context")
        raise UsageError(f"--from-command: {flag} {length} exceeds the context of {found['model']}, "
                         f"{arch.max_model_len:,} tokens by its config.json, and {ENGINES[taken.engine].title} does "
                         f"not start with it; lower it, or set {variable}=1 before the command if your server has it")


def check_method(taken: Taken) -> None:
    """Raise UsageError if the engine refuses the launch's method of quantization beside the checkpoint's own.

    A checkpoint whose method is not known is not checked. A name of the catalog with a format, as DeepSeek-V3 with awq,
    stands for another checkpoint, which a note names.
    """
    asked, refuses, model = taken.written.get("quantization"), taken.dialect.refuses_method, taken.found["model"]
    if asked is None or refuses is None or not (asked in CONTAINERS or is_path(model)):
        return
    arch = known_model(model)
    method = None if arch is None else stated_method(model)
    if arch is not None and method is not None and refuses(method, asked, arch.model_type):
        raise UsageError(f"--from-command: --quantization {asked}: the checkpoint {model} is quantized by {method}, "
                         f"quant_method of its config.json, and {ENGINES[taken.engine].title} does not start with "
                         f"another method; leave --quantization out, or give --quantization {method}")
