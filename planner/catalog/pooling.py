"""Pooling models: embedding models and rerankers, which return one result for a prompt and generate no tokens."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from planner.errors import CatalogError
from planner.files.nested import parse_json

Pooling = Literal["embed", "score"]
RESULTS: Mapping[str, str] = {"embed": "embedding", "score": "score"}  # of a prompt, or of the pair in it
RATES: Mapping[str | None, str] = {"embed": "embeddings/s", "score": "pairs/s"}  # units; else requests/s
ENCODERS = ("bert", "roberta", "xlm-roberta", "modernbert", "nomic_bert", "new")  # model types
OFFSET_POSITIONS = {"roberta": 2, "xlm-roberta": 2}  # positions before the first token's: pad_token_id + 1
# Poolings that need the hidden states of the whole prompt at once, by their keys in Sentence Transformers.
WHOLE = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
# Names in `architectures`: vllm/model_executor/models/registry.py, and `_SUFFIX_TO_DEFAULTS` of config/model.py.
_SCORES = re.compile(r"(ForSequenceClassification|For\w*RewardModel)$")
_EMBEDS = re.compile(r"(^(Bert|Roberta|XLMRoberta|ModernBert|NomicBert|New|Gte|GteNew|Qwen[23]|Llama|Mistral|Gemma2|"
                     r"Gemma3Text)Model|^(Bert|Roberta|XLMRoberta)ForMaskedLM|EmbeddingModel|BidirectionalModel)$")
# Files of Sentence Transformers beside a config.json. The list of modules names the pooling's folder.
MODULES, POOLING, LIMITS = "modules.json", Path("1_Pooling") / "config.json", Path("sentence_bert_config.json")


def pooling_of(config: Mapping[str, object], where: str, model_type: str) -> Pooling | None:
    """Return the kind of result of a model by its config.json; None if it generates text.

    The key `pooling` is the planner's: files beside the config.json, or the catalog, set it.

    Parameters
    ----------
    model_type : the type that the config is read as.

    >>> pooling_of({"architectures": ["XLMRobertaForSequenceClassification"]}, "", "xlm-roberta")
    'score'
    >>> pooling_of({"architectures": ["LlamaForCausalLM"]}, "", "llama") is None
    True
    """
    stated = config.get("pooling")
    if stated is not None and stated not in get_args(Pooling):
        raise CatalogError(f"{where}: pooling = {stated!r}; must be one of {', '.join(get_args(Pooling))}")
    names = config.get("architectures")
    listed = [str(name) for name in names] if isinstance(names, list) else []
    if any(_SCORES.search(name) for name in listed):
        return "score"
    is_embedder = stated == "embed" or any(_EMBEDS.search(name) for name in listed)
    return "score" if stated == "score" else "embed" if is_embedder or model_type in ENCODERS else None


def sees_both_sides(config: Mapping[str, object], model_type: str) -> bool:
    """Tell whether a token attends to the tokens after it too: in encoders, and in decoders changed into one."""
    names = config.get("architectures")
    is_named = isinstance(names, list) and any("Bidirectional" in str(name) for name in names)
    return (model_type in ENCODERS or is_named or config.get("use_bidirectional_attention") is True
            or config.get("is_causal") is False)


def keys_beside(path: Path) -> dict[str, object]:
    """Return the keys that files of Sentence Transformers beside a config.json state: pooling and longest prompt.

    Raises
    ------
    CatalogError : such a file cannot be read.
    """
    folder = path.parent
    if not (folder / MODULES).is_file():
        return {}
    modes, limits = (_read(folder / name) for name in (POOLING, LIMITS))
    kinds = [kind for kind, key in WHOLE.items() if modes.get(key) is True]
    length = limits.get("max_seq_length")
    return {"pooling": "embed", **({"pooling_type": kinds[0]} if kinds else {}),
            **({"max_seq_length": length} if length else {})}


def _read(path: Path) -> Mapping[str, object]:
    """Return the keys of a file beside a config.json; nothing without the file."""
    if not path.is_file():
        return {}
    try:
        parsed = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CatalogError(f"{path}: cannot be read ({error}); copy it from the model") from error
    return parsed if isinstance(parsed, dict) else {}
