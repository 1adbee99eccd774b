"""Kinds of models that do not generate text: told by words of a name, or by the keys of a config.json."""

import re
from collections.abc import Mapping

EMBEDDING, RERANKER, ENCODER = "an embedding model", "a reranker or classifier", "a text encoder"
HEARING, SPEAKING = "a speech recognition model", "a speech synthesis model"
IMAGE, VIDEO, VISION = "an image generation model", "a video generation model", "an image encoder"
BOTH = "an encoder-decoder model"
WORDS: Mapping[str, str] = {  # kind -> pattern of a word in a name
    RERANKER: r"re-?rank(er|ing)?|crossencoder|reward|prm|classifier|ms-marco",
    EMBEDDING: r"embed(ding|dings|der|dinggemma)?|bge|gte|e5|minilm|mpnet|sbert|col(bert|pali|qwen)\w*|mxbai|nomic",
    HEARING: r"whisper|wav2vec2?|parakeet|canary|hubert|conformer|fastconformer|moonshine|asr|voxtral-transcribe",
    SPEAKING: r"x?tts\d?|kokoro|bark|vits|parler|speecht5|fishspeech|cosyvoice\d?|styletts\d?|vibevoice",
    VIDEO: r"wan\d?|t2v|i2v|ti2v|hunyuanvideo|ltx|ltxv|cogvideox?|mochi|svd",
    IMAGE: r"flux\d?|sdxl|sd3|stable-diffusion|t2i|hunyuanimage|image|kandinsky|pixart|sana|dalle|imagen",
    VISION: r"(open)?clip|siglip\d?|dino(v\d)?|vit",
    ENCODER: r"(\w*bert|\w*roberta|electra)\w*",
    BOTH: r"m?t5|ul2|bart|mbart|nllb|m2m100|marian|pegasus",
}
TYPES: Mapping[str, str] = {  # of a config.json, model_type -> kind
    "whisper": HEARING, "wav2vec2": HEARING, "hubert": HEARING, "bert": ENCODER, "roberta": ENCODER,
    "xlm-roberta": ENCODER, "deberta-v2": ENCODER, "distilbert": ENCODER, "modernbert": ENCODER, "mpnet": EMBEDDING,
    "nomic_bert": EMBEDDING, "clip": VISION, "siglip": VISION, "dinov2": VISION, "vit": VISION, "t5": BOTH, "mt5": BOTH,
    "bart": BOTH, "mbart": BOTH, "m2m_100": BOTH, "marian": BOTH, "pegasus": BOTH, "vits": SPEAKING, "bark": SPEAKING,
    "speecht5": SPEAKING}
CLASSES: Mapping[str, str] = {  # of a config.json, ending of a name in `architectures` -> kind
    "ForSequenceClassification": RERANKER, "ForTokenClassification": RERANKER, "ForRewardModel": RERANKER,
    "ForMaskedLM": ENCODER, "EmbeddingModel": EMBEDDING}
MODELLED = "the planner models text generation by decoder-only models"


def named_kind(key: str) -> str | None:
    """Return the kind of a model whose name says that it does not generate text; else None.

    Parameters
    ----------
    key : the name in small letters, with dashes between its words.

    >>> named_kind("openai/whisper-large-v3"), named_kind("qwen/qwen3-8b")
    ('a speech recognition model', None)
    """
    name = key.rpartition("/")[2]
    return next((kind for kind, pattern in WORDS.items() if re.search(rf"(?:^|-)(?:{pattern})(?:-|$)", name)), None)


def stated_kind(config: Mapping[str, object]) -> str | None:
    """Return the kind of a model whose config.json says that it does not generate text; else None.

    >>> stated_kind({"model_type": "qwen3", "architectures": ["Qwen3ForSequenceClassification"]})
    'a reranker or classifier'
    """
    listed = config.get("architectures")
    classes = [str(class_name) for class_name in listed] if isinstance(listed, list) else []
    by_class = (kind for ending, kind in CLASSES.items() if any(class_name.endswith(ending) for class_name in classes))
    return TYPES.get(str(config.get("model_type"))) or next(by_class, None)
