"""Real load generators against the twin, and the details of the protocol that they ask for.

A client is used if its program is on the PATH, or in a virtual environment in the folder PLANNER_CLIENTS.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_twin import MODEL, events, post, serving, until_empty

from planner.measured.accuracy import predict_file
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.twin.server import ServeOptions

H100 = Scenario(model=MODEL, gpu="h100-sxm")
NUM = 40
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x" * 400}], "stream": True, "ignore_eos": True,
                        "max_completion_tokens": 6}


def program(name: str) -> str:
    """Return the path of a client's program; skip the test without one."""
    folder = os.environ.get("PLANNER_CLIENTS")
    places = sorted(map(str, Path(folder).glob("*/bin"))) if folder else []
    found = shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip(f"{name} is not installed: pip install {name} in a virtual environment in a folder that the "
                    f"environment variable PLANNER_CLIENTS names")
    return found


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tokenizer of single bytes, for clients without a network."""
    library = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("tokenizer")
    letters = {letter: k for k, letter in enumerate(["</s>", *library.pre_tokenizers.ByteLevel.alphabet()])}
    tokenizer = library.Tokenizer(library.models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "</s>",
        "model_max_length": 131072,
        "chat_template": "{% for m in messages %}{{ m['role'] }}\n{{ m['content'] }}\n{% endfor %}"}))
    return folder


def driven(command: list[str], tokenizer: Path, tmp_path: Path) -> Any:
    """Let a client send its requests to a twin ("URL" in its command); return the replay of what arrived."""
    record = tmp_path / "arrived.jsonl"
    options = ServeOptions(models=(MODEL,), record=record, tokenizer=tokenizer / "tokenizer.json")
    with serving(options) as served:
        told = subprocess.run([part.replace("URL", served.url) for part in command], cwd=tmp_path, timeout=300,
                              capture_output=True, text=True, check=False,
                              env=os.environ | {"USE_TORCH": "0", "PYTHONPATH": "", "HOME": str(tmp_path)})
        assert told.returncode == 0, told.stdout[-3000:] + told.stderr[-3000:]
        until_empty(served)
    return replay(read_trace(str(record)), H100)


def agrees(path: Path, replayed: Any, num_requests: int | None = NUM) -> None:
    """Assert that a client's file is read, and that its times are the replay's and the client's own overhead.

    The medians: a client that shares its cores with others stands still at times.
    """
    prediction = predict_file(path, H100, client=None, jobs=1).predictions[0]
    measured, summary = prediction.measurement.measured, replayed.summary
    load = prediction.measurement.load
    assert load is not None
    assert num_requests is None or load.num_requests == num_requests
    for name in ("median_ttft_ms", "median_tpot_ms"):
        print(f"{path.name}: {name}: {measured[name]:.3f}, replayed {summary[name]:.3f}, predicted "
              f"{prediction.predicted[name]:.3f}")
    assert measured["median_ttft_ms"] >= 0.98 * summary["median_ttft_ms"]
    assert measured["median_tpot_ms"] == pytest.approx(summary["median_tpot_ms"], rel=0.2)
    assert measured["median_tpot_ms"] == pytest.approx(prediction.predicted["median_tpot_ms"], rel=0.2)


@pytest.mark.slow
def test_aiperf_reports_the_replays_times(tokenizer: Path, tmp_path: Path) -> None:
    replayed = driven([program("aiperf"), "profile", "-m", MODEL, "--tokenizer", str(tokenizer), "--url", "URL",
                       "--endpoint-type", "chat", "--streaming", "--request-rate", "8", "--request-count", str(NUM),
                       "--prompt-input-tokens-mean", "300", "--prompt-output-tokens-mean", "60", "--extra-inputs",
                       "ignore_eos:true", "--use-server-token-count", "--per-chunk-usage", "--output-artifact-dir",
                       "out", "--ui-type", "none", "--workers-max", "1", "--no-gpu-telemetry"], tokenizer, tmp_path)
    for name in ("profile_export.jsonl", "profile_export_aiperf.json"):
        agrees(tmp_path / "out" / name, replayed)
    assert read_trace(str(tmp_path / "out" / "profile_export.jsonl")).num_requests == NUM


@pytest.mark.slow
def test_guidellm_reports_the_replays_times(tokenizer: Path, tmp_path: Path) -> None:
    replayed = driven([program("guidellm"), "run", "--backend", f"kind=openai_http,target=URL,model={MODEL}",
                       "--profile", "kind=poisson,rate=8", "--constraint", f"kind=max_requests,count={NUM}",
                       "--tokenizer", f"kind=hf_auto,model={tokenizer}", "--data",
                       "kind=synthetic_text,prompt_tokens=300,output_tokens=60", "--output", "kind=json,path=out.json",
                       "--disable-progress"], tokenizer, tmp_path)
    agrees(tmp_path / "out.json", replayed)
    assert read_trace(str(tmp_path / "out.json")).num_requests == NUM


@pytest.mark.slow
def test_genai_bench_reports_the_replays_times(tokenizer: Path, tmp_path: Path) -> None:
    replayed = driven([program("genai-bench"), "benchmark", "--api-backend", "openai", "--api-base", "URL", "--api-key",
                       "none", "--task", "text-to-text", "--api-model-name", MODEL, "--model-tokenizer",
                       str(tokenizer), "--model", MODEL, "--num-concurrency", "2", "--traffic-scenario", "D(300,60)",
                       "--max-time-per-run", "1", "--max-requests-per-run", "20", "--server-engine", "vLLM",
                       "--server-gpu-type", "H100", "--server-version", "0", "--server-gpu-count", "1",
                       "--experiment-base-dir", ".", "--experiment-folder-name", "out"], tokenizer, tmp_path)
    agrees(next((tmp_path / "out").glob("D300*.json")), replayed, None)


@pytest.mark.slow
def test_vllms_benchmark_reports_the_replays_times(tokenizer: Path, tmp_path: Path) -> None:
    replayed = driven([program("vllm"), "bench", "serve", "--backend", "vllm", "--base-url", "URL", "--model", MODEL,
                       "--tokenizer", str(tokenizer), "--dataset-name", "random", "--random-input-len", "300",
                       "--random-output-len", "60", "--num-prompts", str(NUM), "--request-rate", "8", "--ignore-eos",
                       "--save-result", "--save-detailed", "--result-filename", "out.json"], tokenizer, tmp_path)
    agrees(tmp_path / "out.json", replayed)
    assert read_trace(str(tmp_path / "out.json")).num_requests == NUM


def test_a_stream_counts_its_usage_in_every_chunk() -> None:
    """aiperf --per-chunk-usage and guidellm ask for it."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    with serving() as served:
        chunks = events(post(served, "/v1/chat/completions", **CHAT, stream_options=options).text)
        text = events(post(served, "/v1/completions", prompt="x", max_tokens=3, stream=True,
                           stream_options=options).text)
        alone = events(post(served, "/v1/chat/completions", **CHAT,
                            stream_options={"continuous_usage_stats": True}).text)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert (counts[0], counts[-1]) == (0, 6)
    assert counts == sorted(counts)
    assert all(chunk["usage"].keys() == {"prompt_tokens", "total_tokens", "completion_tokens"}
               for chunk in chunks[:-1])
    assert text[0]["usage"]["completion_tokens"] >= 1
    assert not any("usage" in chunk for chunk in alone)  # vLLM has it with include_usage only


@pytest.mark.parametrize("body", [
    {"temperature": None, "stop": None, "stream_options": {"include_usage": True}, "max_tokens": 6},  # guidellm
    {"temperature": 0.0, "top_p": 0.9, "min_tokens": 6, "max_tokens": None, "seed": 3, "user": "me"},
    {"tools": [], "response_format": {"type": "text"}, "n": 1, "logprobs": False, "repetition_penalty": 1.1},
])
def test_fields_of_clients_are_taken(body: dict[str, Any]) -> None:
    with serving() as served:
        response = post(served, "/v1/chat/completions", **CHAT | body)
    assert response.status_code == 200
    assert sum(chunk["choices"][0]["delta"]["content"].count("tok")
               for chunk in events(response.text) if chunk["choices"]) == 6


def test_models_have_the_fields_that_clients_read() -> None:
    with serving() as served:
        model = httpx.get(served.url + "/v1/models").json()["data"][0]
    assert {"id", "object", "created", "owned_by", "root", "max_model_len"} <= model.keys()
