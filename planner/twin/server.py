"""The twin's HTTP server: the endpoints of an OpenAI-compatible engine, answered at the pace of a live fleet."""

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.engines import ENGINES
from planner.errors import UsageError
from planner.files.writing import append_text, write_text
from planner.loop.state import engine_state as st
from planner.replays.request_columns import MOST_OUTPUT
from planner.twin.contents import keys_of
from planner.twin.exposition import Exposition
from planner.twin.live_fleet import Arrival, LiveFleet
from planner.twin.network_delay import App, Delayed, Message, Receive, Send
from planner.twin.pace import Pace, Stream
from planner.twin.protocol import (
    BYTES_PER_TOKEN,
    BadRequestError,
    Call,
    Encode,
    Reply,
    error_body,
    prompt_of,
    read_body,
    read_call,
    replicas_of,
)

MOST_BODY = 1 << 26  # bytes of a request
REFUSALS = {st.OVERLOADED: (503, "the server has too many requests"), st.UNAVAILABLE: (503, "no replica is up"),
            st.LOST: (500, "the request's replica has stopped")}
STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
NEEDS = "planner serve needs starlette, uvicorn and prometheus-client; pip install 'llm-serving-planner[serve]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How the twin serves.

    Parameters
    ----------
    models : names of the served model.
    speed : seconds of the fleet in a second of the wall clock [1].
    slow : factor on all times of the server [1].
    startup_delay_s : until the server is ready, on the fleet's clock; before, it answers 503 [s].
    output_tokens : of a request that may end before its limit [tokens].
    tokenizer : a file tokenizer.json; None for the approximation of `protocol.BYTES_PER_TOKEN`.
    record : file for the requests that arrived, in the planner's own JSONL; None for none.
    network_delay_s : between a client and the server, each way [s].
    """

    models: tuple[str, ...]
    speed: float = 1.0
    slow: float = 1.0
    startup_delay_s: float = 0.0
    output_tokens: int = 256
    tokenizer: Path | None = None
    record: Path | None = None
    network_delay_s: float = 0.0


def encoder(path: Path) -> Encode:
    """Return the function that tokenizes text by a file of the library `tokenizers`.

    Raises
    ------
    UsageError : the library is not installed, or the file cannot be read.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UsageError(f"--tokenizer {path}: needs the library tokenizers; pip install "
                         f"'llm-serving-planner[serve]'") from None
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no other type
        raise UsageError(f"--tokenizer {path}: cannot be read: {error}; give a file tokenizer.json") from error
    return lambda text: list(tokenizer.encode(text).ids)


class Twin:
    """A live fleet behind the endpoints of its engine; `app` is the ASGI application."""

    def __init__(self, fleet: LiveFleet, options: ServeOptions) -> None:
        try:
            from starlette.applications import Starlette
            from starlette.routing import Route

            engine = ENGINES[fleet.deployment.scenario.engine]
            assert engine.metrics is not None
            self._exposition = Exposition(fleet, engine.metrics, options.models[0], options.slow)
        except ImportError:
            raise UsageError(NEEDS) from None
        self._fleet, self._options, self._is_flat = fleet, options, engine.package.has_flat_errors
        self._encode = None if options.tokenizer is None else encoder(options.tokenizer)
        self.pace = Pace(fleet, options.speed / options.slow, self._exposition.observe, self._end)
        self._numbers = itertools.count()
        if options.record is not None:
            write_text(options.record, "")
        app = Starlette(lifespan=self._lifespan, routes=[
            Route("/v1/completions", _Endpoint(self, is_chat=False), methods=["POST"]),
            Route("/v1/chat/completions", _Endpoint(self, is_chat=True), methods=["POST"]),
            Route("/v1/models", self._models), Route("/health", self._health), Route("/metrics", self._metrics),
            Route("/tokenize", self._tokenize, methods=["POST"]),
            Route("/scale", self._scale, methods=["GET", "PUT"]),
        ])
        self.app: App = Delayed(app, options.network_delay_s) if options.network_delay_s else app

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        pace = asyncio.create_task(self.pace.run())
        try:
            yield
        finally:
            pace.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pace

    def refusal(self) -> str | None:
        """Return why no request is served now; None if the server is ready."""
        if self.pace.error is not None:
            return f"the engine has stopped: {self.pace.error}"
        if self.pace.now_s() < self._options.startup_delay_s:
            return "the server is starting"
        return None if self._fleet.is_served else "no replica is up"

    def error(self, error: BadRequestError) -> dict[str, Any]:
        """Return a refusal in the engine's form."""
        return error_body(str(error), error.status, error.param, is_flat=self._is_flat)

    def call(self, raw: bytes, *, is_chat: bool) -> tuple[Call, Stream]:
        """Check a request and send it into the fleet.

        Raises
        ------
        BadRequestError : it is refused.
        """
        if (reason := self.refusal()) is not None:
            raise BadRequestError(reason, 503)
        call = read_call(raw, self._options.models, self._encode, is_chat=is_chat)
        num_prompt, longest = call.prompt.num_tokens, self._fleet.max_model_len
        limit = f"This model's maximum context length is {longest} tokens. However, "
        if num_prompt >= self._fleet.max_prompt:
            raise BadRequestError(f"{limit}your prompt has {num_prompt} tokens.", param="prompt")
        if call.max_tokens is not None and num_prompt + call.max_tokens > longest:
            raise BadRequestError(f"{limit}you requested {call.max_tokens} output tokens and your prompt has "
                                  f"{num_prompt} tokens.", param="max_tokens")
        output = MOST_OUTPUT if call.ignore_eos else max(self._options.output_tokens, call.min_tokens)
        size = self._fleet.piece_tokens * (BYTES_PER_TOKEN if isinstance(call.prompt.tokens, bytes) else 1)
        arrival = Arrival(at_s=max(self.pace.now_s(), self._fleet.now_s), input_tokens=num_prompt,
                          output_tokens=output, max_output_tokens=call.max_tokens,
                          keys=keys_of(call.prompt.tokens, size))
        stream = self.pace.send(arrival)
        if stream is None:
            raise BadRequestError("the twin's memory for requests in flight is full", 503)
        return call, stream

    def answer(self, call: Call) -> Reply:
        """Return an answer with a name of its own."""
        return Reply(call, f"{'chatcmpl' if call.is_chat else 'cmpl'}-twin-{next(self._numbers)}")

    def _end(self, stream: Stream) -> None:
        """Account for a request that has left the fleet."""
        self._exposition.end(stream)
        path = self._options.record
        request = self._fleet.requests[stream.place]
        if path is None or request.state == st.UNAVAILABLE:
            return
        cancelled = request.state == st.CANCELLED
        row = {"arrival_s": stream.arrival.at_s, "input_tokens": stream.arrival.input_tokens,
               "output_tokens": int(request.output_tokens), "max_output_tokens": int(request.max_output_tokens),
               "hash_ids": [key.hex() for key in stream.arrival.keys], "hash_block_tokens": self._fleet.piece_tokens}
        if cancelled:
            row["cancel_after_s"] = float(self._fleet.memory.cancel_after_s[stream.place])
        append_text(path, json.dumps(row) + "\n")

    async def _models(self, _: Any) -> Any:
        from starlette.responses import JSONResponse

        return JSONResponse({"object": "list", "data": [
            {"id": name, "object": "model", "created": 0, "owned_by": "planner", "root": name, "parent": None,
             "max_model_len": self._fleet.max_model_len} for name in self._options.models]})

    async def _health(self, _: Any) -> Any:
        from starlette.responses import Response

        return Response(status_code=200 if self.refusal() is None else 503)

    async def _metrics(self, _: Any) -> Any:
        from starlette.responses import Response

        return Response(self._exposition.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _scale(self, request: Any) -> Any:
        """Read or change the number of replicas, in the form of Kubernetes' Scale (autoscaling/v1)."""
        from starlette.responses import JSONResponse

        try:
            if request.method == "PUT":
                self.pace.scale(replicas_of(read_body(await request.body())))
        except BadRequestError as error:
            return JSONResponse(self.error(error), error.status)
        except UsageError as error:
            return JSONResponse(self.error(BadRequestError(str(error), param="spec.replicas")), 400)
        count = self._fleet.num_replicas
        return JSONResponse({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": self._options.models[0]},
            "spec": {"replicas": count},
            "status": {"replicas": count, "readyReplicas": self._fleet.num_ready,
                       "terminatingReplicas": self._fleet.num_draining}})

    async def _tokenize(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        try:
            prompt = prompt_of(read_body(await request.body()), self._encode)
        except BadRequestError as error:
            return JSONResponse(self.error(error), error.status)
        tokens = prompt.tokens if isinstance(prompt.tokens, list) else [
            int.from_bytes(prompt.tokens[k:k + BYTES_PER_TOKEN], "little")
            for k in range(0, len(prompt.tokens), BYTES_PER_TOKEN)]
        return JSONResponse({"count": len(tokens), "max_model_len": self._fleet.max_model_len, "tokens": tokens})


class _Endpoint:
    """The ASGI application of one endpoint that generates: written without a response object, which costs per token."""

    def __init__(self, twin: Twin, *, is_chat: bool) -> None:
        self._twin, self._is_chat = twin, is_chat

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            raw = await _body(receive)
            if raw is None:
                return
            call, stream = self._twin.call(raw, is_chat=self._is_chat)
        except BadRequestError as error:
            await _answer(send, error.status, self._twin.error(error))
            return
        waiting = asyncio.create_task(_hung_up(receive, self._twin.pace, stream))
        try:
            await (self._stream if call.stream else self._whole)(call, stream, send)
        finally:
            waiting.cancel()
            self._twin.pace.hang_up(stream)

    async def _whole(self, call: Call, stream: Stream, send: Send) -> None:
        while not stream.has_ended:
            await stream.tokens()
        if stream.state == st.CANCELLED:
            return
        if stream.state != st.COMPLETED:
            await self._refuse(stream, send)
            return
        await _answer(send, 200, self._twin.answer(call).whole(stream.num_tokens, stream.num_cached, _reason(stream)))

    async def _stream(self, call: Call, stream: Stream, send: Send) -> None:
        new = await stream.tokens()
        if stream.has_ended and stream.state != st.COMPLETED:
            if stream.state != st.CANCELLED:
                await self._refuse(stream, send)
            return
        answer = self._twin.answer(call)
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        before = answer.first()
        while not stream.has_ended:
            await send({"type": "http.response.body", "body": before + answer.tokens(new, stream.num_sent),
                        "more_body": True})
            before = b""
            new = await stream.tokens()
        if stream.state == st.COMPLETED:
            body = before + answer.last(new, stream.num_tokens, stream.num_cached, _reason(stream))
            await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _refuse(self, stream: Stream, send: Send) -> None:
        status, message = REFUSALS.get(stream.state, (500, "the request failed"))
        await _answer(send, status, self._twin.error(BadRequestError(message, status)))


def _reason(stream: Stream) -> str:
    """Return why a request ended: at its limit, or by itself."""
    limit = stream.arrival.max_output_tokens
    return "length" if limit is not None and stream.num_tokens >= limit else "stop"


async def _body(receive: Receive) -> bytes | None:
    """Return the body of a request; None if its client has gone."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BODY:
            raise BadRequestError(f"body has more than {MOST_BODY:,} bytes", 413)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _hung_up(receive: Receive, pace: Pace, stream: Stream) -> None:
    """Cancel the request once its client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    pace.hang_up(stream)


async def _answer(send: Send, status: int, content: Any) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def run_server(twin: Twin, host: str, port: int) -> None:
    """Serve until the process is told to end; requests in flight are answered first.

    Raises
    ------
    UsageError : uvicorn is not installed.
    """
    try:
        import uvicorn
    except ImportError:
        raise UsageError(NEEDS) from None
    logging.getLogger("uvicorn.error").addFilter(  # a stream that breaks off as its replica stops
        lambda record: "without completing response" not in record.getMessage())
    uvicorn.run(twin.app, host=host, port=port, log_level="warning", access_log=False)
