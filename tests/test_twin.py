"""The twin over HTTP: its schedule is a replay's of what arrived, and requests end as an engine would end them."""

import asyncio
import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from helpers import EVERYTHING, finished
from test_live_fleet import is_empty

from planner.measured.metric_source import source_of_file
from planner.replays.fleet.failures import Failure
from planner.run import replay
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.twin import pace
from planner.twin.live_fleet import LiveFleet
from planner.twin.protocol import BadRequestError
from planner.twin.server import ServeOptions, Twin, encoder

MODEL = "llama-3.1-8b"
DEPLOYED: dict[str, Any] = {"model": MODEL, "gpu": "h100-sxm"}


class Served:
    """A twin behind a port of localhost, in a thread of its own."""

    def __init__(self, twin: Twin, fleet: LiveFleet) -> None:
        self.twin, self.fleet = twin, fleet
        self._server = uvicorn.Server(uvicorn.Config(twin.app, port=0, log_level="error", access_log=False))
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"

    def end(self) -> None:
        self._server.should_exit = True
        self._thread.join()


@contextlib.contextmanager
def serving(options: ServeOptions | None = None, failures: Sequence[Failure] = (), max_replicas: int | None = None,
            startup_s: float = 0.0, **scenario: Any) -> Iterator[Served]:
    fleet = LiveFleet(Scenario(**DEPLOYED | scenario), failures=failures, max_replicas=max_replicas,
                      startup_s=startup_s)
    served = Served(Twin(fleet, options or ServeOptions(models=(MODEL,))), fleet)
    try:
        yield served
    finally:
        served.end()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as one:
        yield one


def post(served: Served, path: str, **body: Any) -> httpx.Response:
    return httpx.post(served.url + path, json=body, timeout=60)


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def until_empty(served: Served) -> None:
    """Wait until no request holds a seat or a block."""
    end_s = time.monotonic() + 30
    while not (served.twin.pace.num_streams == 0 and served.fleet.num_in_use == 0 and is_empty(served.fleet)):
        assert time.monotonic() < end_s, "a request still holds a seat or a block"
        time.sleep(0.02)


def test_a_completion_has_its_tokens_and_their_count(served: Served) -> None:
    answer = post(served, "/v1/completions", prompt=[1, 2, 3, 4], max_tokens=7, ignore_eos=True).json()
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["text"].count("tok") == 7
    assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 7, "total_tokens": 11,
                               "prompt_tokens_details": {"cached_tokens": 0}}


def test_a_chat_is_streamed_token_by_token(served: Served) -> None:
    response = post(served, "/v1/chat/completions", messages=[{"role": "user", "content": "x" * 40}], stream=True,
                    max_completion_tokens=9, ignore_eos=True, stream_options={"include_usage": True})
    chunks = events(response.text)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert sum(chunk["choices"][0]["delta"]["content"].count("tok") for chunk in chunks[:-1]) == 9
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 9
    assert all(chunk["object"] == "chat.completion.chunk" for chunk in chunks)


def test_an_answer_ends_by_itself_unless_it_ignores_the_end(served: Served) -> None:
    chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}
    by_itself = post(served, "/v1/chat/completions", **chat).json()
    assert by_itself["usage"]["completion_tokens"] == ServeOptions(models=("m",)).output_tokens
    assert by_itself["choices"][0]["finish_reason"] == "stop"
    assert post(served, "/v1/chat/completions", **chat, min_tokens=300).json()["usage"]["completion_tokens"] == 300


def test_a_prompt_that_came_before_is_cached(served: Served) -> None:
    prompt = "A text of its own. " * 40
    first, second = (post(served, "/v1/completions", prompt=prompt, max_tokens=2).json()["usage"] for _ in range(2))
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] == 176  # 190 tokens, in whole blocks of 16


@pytest.mark.parametrize(("body", "status", "said"), [
    ({"prompt": "x", "n": 2}, 400, "n = 2"),
    ({"prompt": "x", "model": "gpt-5"}, 404, "does not exist"),
    ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens must be at least 1"),
    ({"prompt": "x", "max_tokens": 4, "min_tokens": 5}, 400, "min_tokens"),
    ({"prompt": "x", "stream_options": {}}, 400, "stream=True"),
    ({"prompt": "x" * 600_000}, 400, "maximum context length is 131072"),
    ({"prompt": "x", "max_tokens": 131_072}, 400, "131072 output tokens"),
    ({"prompt": ["a", "b"]}, 400, "several prompts"),
    ({}, 400, "prompt must be"),
])
def test_bad_requests_get_the_engines_status_and_form(served: Served, body: dict[str, Any], status: int,
                                                      said: str) -> None:
    response = post(served, "/v1/completions", **body)
    assert response.status_code == status
    error = response.json()["error"]
    assert said in error["message"]
    assert error["code"] == status
    assert error.keys() == {"message", "type", "param", "code"}


def test_sglangs_errors_are_flat() -> None:
    with serving(engine="sglang") as sglang:
        error = post(sglang, "/v1/completions", prompt="x", n=3).json()
        assert error["object"] == "error"
        assert error["code"] == 400
        assert "sglang:num_running_reqs" in httpx.get(sglang.url + "/metrics").text


def test_other_endpoints(served: Served) -> None:
    assert httpx.get(served.url + "/health").status_code == 200
    assert httpx.get(served.url + "/v1/models").json()["data"][0]["id"] == MODEL
    assert post(served, "/tokenize", prompt="x" * 41).json()["count"] == 11


def test_a_given_tokenizer_counts(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    file = tmp_path / "tokenizer.json"
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"one": 5, "two": 6, "?": 0}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(file))
    assert encoder(file)("one two three one") == [5, 6, 0, 5]


def test_a_server_that_starts_answers_503() -> None:
    with serving(ServeOptions(models=(MODEL,), startup_delay_s=1.0)) as cold:
        assert httpx.get(cold.url + "/health").status_code == 503
        assert post(cold, "/v1/completions", prompt="x").status_code == 503
        time.sleep(1.1)
        assert post(cold, "/v1/completions", prompt="x").status_code == 200


def test_a_server_that_starts_is_ready_on_the_deployments_clock() -> None:
    with serving(ServeOptions(models=(MODEL,), startup_delay_s=1e5, speed=1e6)) as cold:
        time.sleep(0.3)
        assert httpx.get(cold.url + "/health").status_code == 200


def test_replicas_come_and_go_by_kubernetes_scale() -> None:
    with serving(ServeOptions(models=(MODEL,), speed=10.0), max_replicas=4, startup_s=5.0,
                 router="least-outstanding-requests") as one, httpx.Client(base_url=one.url, timeout=60) as client:
        said = client.put("/scale", json={"spec": {"replicas": 3}}).json()
        assert said == client.get("/scale").json() == {
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": MODEL}, "spec": {"replicas": 3},
            "status": {"replicas": 3, "readyReplicas": 1, "terminatingReplicas": 0}}
        while client.get("/scale").json()["status"]["readyReplicas"] < 3:  # half a second
            time.sleep(0.05)
        assert one.twin.pace.now_s() >= 5.0
        long = {"prompt": "x", "max_tokens": 8000, "ignore_eos": True}
        with ThreadPoolExecutor(3) as pool:
            answers = [pool.submit(client.post, "/v1/completions", json=long) for _ in range(3)]
            while (f'vllm:num_requests_running{{model_name="{MODEL}"}} 3.0' not in client.get("/metrics").text
                   and not any(answer.done() for answer in answers)):
                time.sleep(0.01)
            status = client.put("/scale", json={"spec": {"replicas": 1}}).json()["status"]
            assert status == {"replicas": 1, "readyReplicas": 1, "terminatingReplicas": 2}
            assert all(answer.result().json()["usage"]["completion_tokens"] == 8000 for answer in answers)  # drained
        until_empty(one)
        assert client.put("/scale", json={"spec": {"replicas": 0}}).json()["status"]["readyReplicas"] == 0
        assert client.get("/health").status_code == 503
        assert client.post("/v1/completions", json=long).status_code == 503


@pytest.mark.parametrize(("body", "said"), [
    ({"spec": {"replicas": 2}}, "replicas = 2: must be from 0 to 1"), ({"replicas": 1}, "spec.replicas is missing"),
    ({"spec": {"replicas": -1}}, "replicas must be at least 0"), ({"spec": {"replicas": "two"}}, "replicas"),
    ([], "body must be a JSON object"),
])
def test_a_bad_scale_is_refused(served: Served, body: Any, said: str) -> None:
    response = httpx.put(served.url + "/scale", json=body, timeout=60)
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]
    assert served.fleet.num_ready == 1


def test_a_twin_that_is_too_slow_says_so_and_answers(caplog: pytest.LogCaptureFixture,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "LATE_S", 0.2)
    with serving(ServeOptions(models=(MODEL,), speed=1e7)) as late, ThreadPoolExecutor(1) as pool:
        body = {"prompt": "x", "max_tokens": 40_000, "ignore_eos": True}
        answer = pool.submit(httpx.post, late.url + "/v1/completions", json=body, timeout=120)
        while not (late.twin.pace.is_late or answer.done()):
            assert httpx.get(late.url + "/health", timeout=60).status_code == 200
        assert answer.result().json()["usage"]["completion_tokens"] == 40_000
    assert "late: this machine is too slow for them at speed 1e+07; lower --speed" in caplog.text


def test_a_full_queue_answers_503() -> None:
    with serving(max_num_queued_reqs=2, max_num_seqs=2) as full:
        with httpx.Client(timeout=60) as client:
            def call(_: int) -> int:
                return client.post(full.url + "/v1/completions",
                                   json={"prompt": "x", "max_tokens": 60, "ignore_eos": True}).status_code

            with ThreadPoolExecutor(8) as pool:
                statuses = list(pool.map(call, range(8)))
        assert set(statuses) == {200, 503}
        until_empty(full)


def test_a_client_that_hangs_up_frees_its_seat(served: Served) -> None:
    body = {"prompt": "x" * 400, "max_tokens": 5000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", served.url + "/v1/completions", json=body, timeout=60) as response:
        next(response.iter_lines())
        assert served.fleet.num_in_use == 1
    until_empty(served)


def test_what_arrived_has_a_replays_schedule(tmp_path: Path) -> None:
    """The twin's own times are a replay's to the last bit; a client sees them no earlier."""
    file = tmp_path / "arrived.jsonl"
    seen_s: dict[int, float] = {}

    async def send(client: httpx.AsyncClient, k: int) -> None:
        await asyncio.sleep(0.02 * k)
        begin_s = time.monotonic()
        body = {"prompt": ("head " * 100)[:40 * (k % 10)] + f"{k} " * (20 + k), "max_tokens": 20 + k,
                "ignore_eos": True, "stream": True}
        async with client.stream("POST", "/v1/completions", json=body) as response:
            async for _ in response.aiter_lines():
                seen_s.setdefault(k, time.monotonic() - begin_s)

    async def send_all(url: str) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            await asyncio.gather(*(send(client, k) for k in range(40)))

    with serving(ServeOptions(models=(MODEL,), record=file), data_parallel_size=2,
                 router="least-outstanding-requests") as two:
        finished(send_all(two.url))
        until_empty(two)
        metrics = tmp_path / "metrics.txt"
        metrics.write_text(httpx.get(two.url + "/metrics").text)
    scenario = Scenario(**DEPLOYED, data_parallel_size=2, router="least-outstanding-requests")
    trace = read_trace(str(file))
    requests = replay(trace, scenario, recording=EVERYTHING).result.records.requests
    ttft_s = requests.first_token_s - requests.arrival_s
    samples = source_of_file(metrics)

    def value(name: str) -> float:
        return sum(points[-1][1] for points in samples.read(f"vllm:{name}", {}).values())

    assert value("time_to_first_token_seconds_count") == 40
    assert value("time_to_first_token_seconds_sum") == pytest.approx(ttft_s.sum(), rel=1e-9)
    assert value("e2e_request_latency_seconds_sum") == pytest.approx(
        (requests.finished_s - requests.arrival_s).sum(), rel=1e-9)
    assert value("generation_tokens_total") == requests.num_output_tokens.sum()
    assert value("prefix_cache_hits_total") == requests.num_cached_tokens.sum() > 0
    assert min(seen_s.values()) >= ttft_s.min()
    assert np.mean(list(seen_s.values())) >= ttft_s.mean()


def test_a_faster_clock_gives_the_same_times() -> None:
    with serving(ServeOptions(models=(MODEL,), speed=20.0)) as fast:
        begin_s = time.monotonic()
        post(fast, "/v1/completions", prompt="x" * 400, max_tokens=600, ignore_eos=True)
        assert time.monotonic() - begin_s < 3.0  # 600 tokens take 4 s
        told = httpx.get(fast.url + "/metrics").text
        seconds = re.search(r"vllm:e2e_request_latency_seconds_sum\S* (\S+)", told)
        assert seconds is not None
        assert 3.0 < float(seconds[1]) < 6.0


def test_malformed_requests_leave_nothing_behind() -> None:
    """20,000 bodies: none stops the twin, and afterwards no seat, block or place is in use."""
    rng = random.Random(5)
    values: tuple[Any, ...] = (
        None, True, -1, 0, 1, 3, 2**40, 1.5, "", "x", "x" * 300, [], [1, 2], ["a"], {}, "\ud800", [[1, 2]],
        [{"role": "user", "content": "hi"}], [{"role": 1}], float("nan"))
    names = ("prompt", "messages", "max_tokens", "min_tokens", "n", "stream", "stream_options", "ignore_eos", "model",
             "max_completion_tokens", "logprobs", "temperature")
    fleet = LiveFleet(Scenario(**DEPLOYED))
    twin = Twin(fleet, ServeOptions(models=(MODEL,), speed=1000.0))

    async def call_all() -> tuple[int, int]:
        pace, good, bad = asyncio.create_task(twin.pace.run()), 0, 0
        for _ in range(20_000):
            right: dict[str, Any] = {"prompt": [1, 2, 3], "messages": values[-3], "max_tokens": 4}
            body = (right if rng.random() < 0.5 else {}) | {
                name: rng.choice(values) for name in rng.sample(names, rng.randint(0, 3))}
            raw = json.dumps(body).encode()
            if rng.random() < 0.2:
                raw = bytes(rng.choices(raw or b"{", k=rng.randint(0, 30)))
            try:
                _, stream = twin.call(raw, is_chat=rng.random() < 0.5)
                good += 1
                if rng.random() < 0.3:
                    twin.pace.hang_up(stream)
            except BadRequestError:
                bad += 1
            if rng.random() < 0.05:
                await asyncio.sleep(0)
        while twin.pace.num_streams:
            await asyncio.sleep(0.01)
        pace.cancel()
        return good, bad

    good, bad = finished(call_all())
    assert good > 2000
    assert bad > 10_000
    fleet.advance(fleet.now_s + 1.0)
    assert is_empty(fleet)
    assert fleet.num_in_use == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_end_answers_what_is_in_flight(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "planner.commands.cli", "serve", "--model", MODEL, "--gpu", "h100-sxm", "--port",
               "18765"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        url, end_s = "http://127.0.0.1:18765", time.monotonic() + 60
        while time.monotonic() < end_s:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(url + "/health").status_code == 200:
                    break
            time.sleep(0.1)
        body = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", url + "/v1/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        process.wait(30)
