"""Architectures and names: each is read by the catalog, or refused with its reason."""

import ast
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wheel_flags import wheel

from planner.catalog.catalog_files import load_model
from planner.catalog.hf_config import architecture_from_config
from planner.catalog.other_kinds import BOTH, EMBEDDING, ENCODER, HEARING, IMAGE, RERANKER, SPEAKING, VIDEO, VISION
from planner.errors import CatalogError, UnknownNameError

LISTED: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("registries.toml").read_text())
# Sections: classes that serve any model, and types of which nothing is known.
ANY, UNKNOWN = "wrappers of any model", "unknown"
REASONS = {"other kinds": "this is ", "layers that are not modelled": "which the planner does not model",
           UNKNOWN: "is not supported"}  # a part of the error
MOST_UNKNOWN = 36  # architectures, which may only fall
ROWS = [(section, model_type, name) for section, types in LISTED.items() if section != ANY
        for model_type, names in types.items() for name in names.split()]

READ = """meta-llama/Llama-3.1-8B-Instruct Qwen/Qwen3-32B Qwen/Qwen3.8-27B zai-org/GLM-5.3 moonshotai/Kimi-K3
openai/gpt-oss-120b MiniMaxAI/MiniMax-M3 deepseek-ai/DeepSeek-V3.2 google/gemma-3-27b-it zai-org/GLM-5.3-Flash
Qwen/Qwen3-Embedding-8B BAAI/bge-m3 intfloat/e5-mistral-7b-instruct Alibaba-NLP/gte-modernbert-base
Qwen/Qwen3-Reranker-8B BAAI/bge-reranker-v2-m3 jinaai/jina-embeddings-v3 jinaai/jina-embeddings-v4
jinaai/jina-reranker-v2-base-multilingual"""
OF_KIND = {  # kind -> names of models that the catalog does not have
    EMBEDDING: """nomic-ai/nomic-embed-text-v1.5 mixedbread-ai/mxbai-embed-large-v1 jinaai/jina-embeddings-v5-text-small
        google/embeddinggemma-300m nvidia/NV-Embed-v2 Snowflake/snowflake-arctic-embed-l-v2.0
        Alibaba-NLP/gte-multilingual-base Salesforce/SFR-Embedding-Mistral sentence-transformers/all-mpnet-base-v2
        ibm-granite/granite-embedding-278m-multilingual""",
    RERANKER: """BAAI/bge-reranker-large jinaai/jina-reranker-v3 mixedbread-ai/mxbai-rerank-large-v2
        cross-encoder/ms-marco-MiniLM-L6-v2 Alibaba-NLP/gte-reranker-modernbert-base Qwen/Qwen2.5-Math-PRM-7B
        nvidia/llama-nemotron-rerank-1b-v2 Skywork/Skywork-Reward-V2-Llama-3.1-8B BAAI/bge-reranker-v2-gemma
        cross-encoder/stsb-roberta-base""",
    HEARING: """openai/whisper-large-v3 nvidia/parakeet-tdt-0.6b-v3 nvidia/canary-1b-v2 facebook/wav2vec2-base-960h
        facebook/hubert-large-ls960-ft Qwen/Qwen3-ASR-1.7B UsefulSensors/moonshine-base distil-whisper/distil-large-v3
        ibm-granite/granite-speech-3.3-8b CohereLabs/cohere-transcribe-03-2026""",
    SPEAKING: """hexgrad/Kokoro-82M suno/bark coqui/XTTS-v2 microsoft/speecht5_tts microsoft/VibeVoice-1.5B
        parler-tts/parler-tts-large-v1 FunAudioLLM/CosyVoice2-0.5B nari-labs/Dia-1.6B canopylabs/orpheus-3b-0.1-ft
        sesame/csm-1b""",
    IMAGE: """black-forest-labs/FLUX.1-dev stabilityai/stable-diffusion-3.5-large Qwen/Qwen-Image
        PixArt-alpha/PixArt-Sigma-XL-2-1024-MS tencent/HunyuanImage-3.0 kandinsky-community/kandinsky-2-2-decoder
        Efficient-Large-Model/Sana_1600M_1024px_diffusers Tongyi-MAI/Z-Image-Turbo HiDream-ai/HiDream-I1-Full
        playgroundai/playground-v2.5-1024px-aesthetic""",
    VIDEO: """Wan-AI/Wan2.2-T2V-A14B Wan-AI/Wan2.1-I2V-14B-720P tencent/HunyuanVideo-1.5 Lightricks/LTX-Video
        zai-org/CogVideoX-5b genmo/mochi-1-preview stabilityai/stable-video-diffusion-img2vid-xt rhymes-ai/Allegro
        nvidia/Cosmos-Predict2-14B-Video2World hpcai-tech/Open-Sora-v2""",
    ENCODER: """google-bert/bert-base-uncased FacebookAI/roberta-large microsoft/deberta-v3-large
        answerdotai/ModernBERT-base distilbert/distilbert-base-uncased google/electra-large-discriminator
        FacebookAI/xlm-roberta-large microsoft/codebert-base google-bert/bert-base-chinese
        allenai/scibert_scivocab_uncased""",
    VISION: "openai/clip-vit-large-patch14 google/siglip2-so400m-patch14-384 facebook/dinov3-vitb16-pretrain-lvd1689m",
    BOTH: "google-t5/t5-large facebook/bart-large facebook/nllb-200-3.3B",
}


@pytest.mark.parametrize("name", READ.split())
def test_a_served_name_is_read(name: str) -> None:
    assert load_model(name).num_layers > 1


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in OF_KIND.items() for name in names.split()])
def test_a_name_of_a_kind_is_refused_by_it_without_another_name(kind: str, name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"its name says that it is {kind}") as error:
        load_model(name)
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize(("name", "layers"), [
    ("deepseek-ai/DeepSeek-V4.1-Flash", "KV entries that layers share, and tables of n-grams"),
    ("Qwen/Qwen3.8-Flash-Next-FP8", "sparse attention over compressed keys"), ("Zyphra/ZAYA1-8B", "convolutions"),
    ("state-spaces/mamba-2.8b-hf", "recurrent states alone"), ("MiniMaxAI/MiniMax-Text-01", "lightning attention")])
def test_a_name_of_layers_that_are_not_modelled_says_which(name: str, layers: str) -> None:
    with pytest.raises(UnknownNameError, match=f"its layers have {layers}.* which the planner does not model") as error:
        load_model(name)
    assert "did you mean" not in str(error.value)


def section_of(model_type: str, name: str) -> str:
    """Return the section of an architecture by the error that a config with its names alone gives."""
    with pytest.raises(CatalogError) as error:  # at least its sizes are missing
        architecture_from_config({"model_type": model_type, "architectures": [name]}, name="test", where="config.json")
    return next((section for section, words in REASONS.items() if words in str(error.value)), "read")


def test_every_architecture_is_read_or_refused_as_listed() -> None:
    assert [row for row in ROWS if section_of(*row[1:]) != row[0]] == []
    assert sum(section == UNKNOWN for section, _, _ in ROWS) <= MOST_UNKNOWN


@pytest.mark.slow
@pytest.mark.parametrize(("package", "names_of"), [
    ("vllm", lambda source: vllm_names(source)), ("sglang", lambda source: sglang_names(source))])
def test_the_newest_wheels_have_no_architecture_beyond_the_list(
        package: str, names_of: Callable[[zipfile.ZipFile], Iterator[str]],
        tmp_path_factory: pytest.TempPathFactory) -> None:
    source = wheel(package, tmp_path_factory.getbasetemp())
    if source is None:
        pytest.skip("the package index is not reachable")
    theirs = set(names_of(source))
    assert len(theirs) > 250
    listed = {name for types in LISTED.values() for names in types.values() for name in names.split()}
    assert sorted(theirs - listed) == []


def vllm_names(source: zipfile.ZipFile) -> Iterator[str]:
    """Yield the keys of all tables of the registry."""
    for node in ast.parse(source.read("vllm/model_executor/models/registry.py")).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            yield from (key.value for key in node.value.keys
                        if isinstance(key, ast.Constant) and isinstance(key.value, str))


def sglang_names(source: zipfile.ZipFile) -> Iterator[str]:
    """Yield the classes that the models' files enter."""
    for file in source.namelist():
        if file.startswith("sglang/srt/models/") and file.endswith(".py"):
            for node in ast.parse(source.read(file)).body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EntryClass":
                    yield from (part.id for part in ast.walk(node.value) if isinstance(part, ast.Name))
