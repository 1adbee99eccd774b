"""Kinds that the planner refuses: models of speech and images, closed models, accelerators that are no GPUs."""

import re
from collections.abc import Mapping

EMBEDDING, RERANKER, ENCODER = "an embedding model", "a reranker or classifier", "a text encoder"
POOLED = (EMBEDDING, RERANKER, ENCODER)  # kinds that are modelled, by a config.json
HEARING, SPEAKING = "a speech recognition model", "a speech synthesis model"
IMAGE, VIDEO, VISION = "an image generation model", "a video generation model", "an encoder of images or sound"
BOTH, TAGGER = "an encoder-decoder model", "a model that labels each token"
DIFFUSION, DRAFT = "a diffusion language model", "a draft model, which another model checks"
MUSIC, SERIES, SIGHT = "an audio generation model", "a time series model", "an image recognition model"
VECTORS, ACTION = "a retrieval model with a vector for each token", "a model of a robot's or a car's actions"
WORDS: Mapping[str, str] = {  # kind -> pattern of a word in a name
    RERANKER: r"re-?rank(er|ing)?|cross-?encoder|reward|prm|classifier|ms-marco",
    EMBEDDING: r"embed(ding|dings|der|dinggemma)?|bge|gte|e5|minilm|mpnet|sbert|col(bert|pali|qwen)\w*|mxbai|nomic",
    HEARING: r"\w*whisper|distil-large|wav2vec2?|parakeet|canary|hubert|conformer|fastconformer|moonshine|asr|speech|"
             r"transcribe|sensevoice\w*|voxtral",
    SPEAKING: r"\w*tts\d?|kokoro|bark|vits|parler|speecht5|fishspeech|cosyvoice\d?|vibevoice|openaudio|chatterbox|"
              r"dia|orpheus|csm",
    VIDEO: r"wan\d?|t2v|i2v|ti2v|hunyuanvideo|ltx|ltxv|cogvideox?|mochi|svd|stable-video-diffusion|video2world|allegro|"
           r"open-sora",
    IMAGE: r"flux\d?|sdxl|sd3|stable-diffusion|t2i|hunyuanimage|image|kandinsky|pixart|sana|dalle|imagen|hidream|"
           r"playground",
    DIFFUSION: r"llada\d*|sdar|diffusiongemma|dream",
    ACTION: r"openvla|alpamayo\d*",
    MUSIC: r"musicgen|audiogen|audioldm\d?|stable-audio|ace-step|songbloom|riffusion",
    SERIES: r"timesfm|chronos(-bolt)?|moirai|toto|tirex", SIGHT: r"sam\d?|yolo\w*|detr|segformer|mask2former",
    VISION: r"(open)?clip|clap|siglip\d?|dino(v\d)?|vit",
    ENCODER: r"(\w*bert|\w*roberta|electra)\w*",
    BOTH: r"m?t5|ul2|bart|mbart|nllb|m2m100|marian|pegasus",
}
TYPES: Mapping[str, str] = {  # of a config.json, model_type -> kind
    "whisper": HEARING, "wav2vec2": HEARING, "hubert": HEARING, "deberta": ENCODER, "deberta-v2": ENCODER,
    "distilbert": ENCODER, "electra": ENCODER, "mpnet": ENCODER, "clip": VISION, "siglip": VISION, "dinov2": VISION,
    "vit": VISION, "t5": BOTH, "mt5": BOTH, "bart": BOTH, "mbart": BOTH, "m2m_100": BOTH, "marian": BOTH,
    "pegasus": BOTH, "vits": SPEAKING, "bark": SPEAKING, "speecht5": SPEAKING, "openvla": ACTION,
    "alpamayo2_super": ACTION, "clip_text_model": VISION, "siglip_text_model": VISION, "pixtral": VISION,
    "diffusion_gemma_text": DIFFUSION, "llada": DIFFUSION, "llada2_moe": DIFFUSION, "sdar": DIFFUSION,
    "sdar_moe": DIFFUSION, "dream": DIFFUSION}
CLASSES: Mapping[str, str] = {  # of a config.json, pattern in a name in `architectures` -> kind
    r"For(TokenClassification|QuestionAnswering|JointSchema)$": TAGGER,
    r"A(sr|SR)(\d|For|R|$)|ASR2|Transcribe|LID": HEARING,
    r"^(Ops)?Col[A-Z]|^HF_ColBERT|ForRetrieval$": VECTORS, r"ImageFor|^Cheers|^Bagel|^Emu3": IMAGE,
    r"MTP|NextN|[Ee]agle\d?[A-Z]|Eagle3?$|DSpark|DFlash|Draft|Assistant|XPress": DRAFT}
# Text generators, model_type -> the part of their layers that is not modelled.
UNMODELLED: Mapping[str, str] = {
    **dict.fromkeys(("deepseek_v41", "deepseek_v41_text"), "KV entries that layers share, and tables of n-grams"),
    "qwen4_exp_text": "sparse attention over compressed keys, and tables of n-grams",
    "dots3_note_text": "latent attention of two shapes", "step5": "sparse attention over compressed keys",
    **dict.fromkeys(("inkling_text", "inkling_model"), "short convolutions on keys, values and hidden states"),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv"), "recurrent states alone, without attention"),
    **dict.fromkeys(("dory", "hrm_text", "nanbeige", "ouro", "iquestloopcoder"), "layers that run several times"),
    **dict.fromkeys(("minimax", "minimax_m1", "minimax_text_01", "bailing_hybrid"), "lightning attention"),
    "mllama_text_model": "cross-attention to images", "zamba2": "attention layers that share weights",
    "zaya": "convolutions in attention", "ernie4_5_vl_moe_text": "experts of two widths",
    "gigachat35": "gates in its norms", "jet_nemotron": "dynamic convolutions",
    "minicpm_sala": "lightning attention beside sparse attention"}
NEWER: Mapping[str, str] = {  # pattern of the beginning of a name -> its model_type in UNMODELLED
    r"deepseek-v4-1\b": "deepseek_v41", r"qwen3-8-flash-next|qwen4": "qwen4_exp_text", r"dots3": "dots3_note_text",
    r"step-?5\b": "step5", r"inkling": "inkling_text", r"(falcon3?-)?mamba": "mamba", r"gigachat3-5": "gigachat35",
    r"minimax-(text-01|m1)": "minimax", r"zamba2": "zamba2", r"zaya": "zaya", r"nanbeige": "nanbeige"}
CLOSED: Mapping[str, str] = {  # maker -> pattern of the beginning of a name
    "OpenAI": r"(chat)?gpt-?[345]\w*|o[134](-(mini|pro|preview)\b.*)?$|chatgpt", "Anthropic": r"claude",
    "Google": r"gemini|palm", "xAI": r"grok-[3-9]", "Mistral": r"mistral-medium|magistral-medium",
    "Alibaba": r"qwen[\d-]*-?(max|plus|turbo)\b", "Amazon": r"(amazon-)?nova-(micro|lite|pro|premier)",
    "Perplexity": r"sonar"}
ACCELERATORS: Mapping[str, str] = {  # kind -> pattern of a word in a name
    "a Google TPU other than TPU v7": r"tpu\w*|(cloud-)?v(2|3|4|4i|5e|5p|6e|5litepod|7x)|trillium|ironwood",
    "an AWS Trainium or Inferentia other than Trainium 2 and 3": r"trn\d\w*|trainium\d?|inf\d|inferentia\d?",
    "an Apple chip": r"apple|mac|m[1-5](pro|max|ultra)?",
    "a Huawei Ascend other than 910C": r"ascend\w*|910[abc]\d?",
    "an Intel Gaudi other than gaudi-3": r"gaudi\d?|hpu", "a CPU": r"cpu|xeon|epyc|graviton\d?|ryzen",
    "an accelerator of Cerebras, Groq or SambaNova": r"cerebras|cs-?[23]|wse\d?|groq|lpu|sambanova|sn40l?"}
MODELLED = "the planner models text generation, embeddings and rerankers"


def model_refusal(key: str) -> str | None:
    """Return why a name is no model that can be planned: another kind, or a closed model; None if it may be one.

    >>> model_refusal("gpt-5-mini"), model_refusal("gpt-oss-20b")
    ('it is a closed model of OpenAI, and its weights are not public; name an open model', None)
    """
    name = key.rpartition("/")[2]
    maker = next((maker for maker, pattern in CLOSED.items() if re.match(pattern, name)), None)
    if maker is not None:
        return f"it is a closed model of {maker}, and its weights are not public; name an open model"
    newer = next((model_type for pattern, model_type in NEWER.items() if re.match(pattern, name)), None)
    if newer is not None:
        return f"its layers have {UNMODELLED[newer]}, which the planner does not model"
    kind = named_kind(key)
    if kind in POOLED:
        return f"its name says that it is {kind} that the catalog does not have; give its config.json as --model"
    return None if kind is None else (f"its name says that it is {kind}, and {MODELLED}; if it is one, give its "
                                      f"config.json as --model")


def gpu_refusal(key: str) -> str | None:
    """Return why a name is no GPU that can be planned; None if it may be one.

    >>> gpu_refusal("tpu-v5e-8").partition(";")[0], gpu_refusal("h100")
    ('its name says that it is a Google TPU other than TPU v7', None)
    """
    kind = _kind(key, ACCELERATORS)
    return None if kind is None else (f"its name says that it is {kind}; the planner has step times of the GPUs that "
                                      f"planner db list shows. If it is one, give its profile (.toml) as --gpu")


def _kind(key: str, patterns: Mapping[str, str]) -> str | None:
    return next((kind for kind, pattern in patterns.items() if re.search(rf"(?:^|-)(?:{pattern})(?:-|$)", key)), None)


def named_kind(key: str) -> str | None:
    """Return the kind of a model whose name says that it does not generate text; else None.

    Parameters
    ----------
    key : the name in small letters, with dashes between its words.

    >>> named_kind("openai/whisper-large-v3"), named_kind("qwen/qwen3-8b")
    ('a speech recognition model', None)
    """
    organization, _, name = key.rpartition("/")
    return _kind(f"{organization}-{name}" if organization == "cross-encoder" else name, WORDS)


def stated_refusal(config: Mapping[str, object], model_type: str) -> str | None:
    """Explain why the model of a config.json cannot be planned, by its kind or its layers; None if it may be.

    Parameters
    ----------
    model_type : of the language model in the config.

    >>> stated_refusal({"architectures": ["BertForTokenClassification"]}, "bert")
    'this is a model that labels each token, and the planner models text generation, embeddings and rerankers'
    """
    listed = config.get("architectures")
    classes = [str(class_name) for class_name in listed] if isinstance(listed, list) else []
    by_class = (kind for pattern, kind in CLASSES.items()
                if any(re.search(pattern, class_name) for class_name in classes))
    kind = TYPES.get(model_type) or next(by_class, None)
    if kind is not None:
        return f"this is {kind}, and {MODELLED}"
    layers = UNMODELLED.get(model_type)
    return None if layers is None else f"its layers have {layers}, which the planner does not model"
