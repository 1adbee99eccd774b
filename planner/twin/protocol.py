"""Requests and answers of the OpenAI-compatible endpoints: bodies are checked, answers and errors are written."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

BYTES_PER_TOKEN = 4  # of text without a tokenizer: about that of English under the vocabularies of current models
DEFAULT_COMPLETION = 16  # max_tokens of /v1/completions without the field, in the OpenAI API and in vLLM
REFUSED = {"n": 1, "best_of": 1, "logprobs": None, "prompt_logprobs": None, "top_logprobs": None, "echo": False,
           "use_beam_search": False}  # fields that may have no other value
WORD = " tok"  # a generated token: as many bytes as BYTES_PER_TOKEN

Encode = Callable[[str], list[int]]


class BadRequestError(Exception):
    """A body that an engine refuses, with its HTTP status."""

    def __init__(self, message: str, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param = status, param


KINDS = {400: "BadRequestError", 404: "NotFoundError", 503: "ServiceUnavailableError"}


def error_body(message: str, status: int, param: str | None, *, is_flat: bool) -> dict[str, Any]:
    """Return an error as the engine writes it.

    Parameters
    ----------
    is_flat : whether the error's fields are the answer's own, as in SGLang and TensorRT-LLM.
    """
    error = {"message": message, "type": KINDS.get(status, "InternalServerError"), "param": param, "code": status}
    return {"object": "error", **error} if is_flat else {"error": error}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt: its tokens, or the bytes of its text that stand for them."""

    tokens: list[int] | bytes

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt, by `BYTES_PER_TOKEN` without a tokenizer."""
        return len(self.tokens) if isinstance(self.tokens, list) else -(-len(self.tokens) // BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A checked request.

    Parameters
    ----------
    is_chat : of /v1/chat/completions.
    model : the name that the answer has.
    max_tokens : the client's limit; None without one [tokens].
    min_tokens : the model generates at least as many [tokens].
    ignore_eos : the model generates up to the limit.
    includes_usage : whether a stream ends with a chunk of usage.
    counts_usage : whether every chunk of it has the usage so far.
    """

    is_chat: bool
    model: str
    prompt: Prompt
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    stream: bool
    includes_usage: bool
    counts_usage: bool


def read_call(raw: bytes, models: tuple[str, ...], encode: Encode | None, *, is_chat: bool) -> Call:
    """Return a request's fields.

    Parameters
    ----------
    models : names of the served model.
    encode : the tokenizer; None for the approximation.

    Raises
    ------
    BadRequestError : the body is not valid, or a field has a value that the twin does not support.
    """
    body = read_body(raw)
    model = body.get("model")
    if model is None:
        model = models[0]
    if model not in models:
        raise BadRequestError(f"The model `{model}` does not exist.", 404, "model")
    for name, value in REFUSED.items():
        if body.get(name) not in (None, value, False) and body[name] != value:
            raise BadRequestError(f"{name} = {body[name]!r}: the twin has one answer and no probabilities; "
                                  f"leave it out", param=name)
    stream, options = _flag(body, "stream"), body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise BadRequestError("stream_options must be an object", param="stream_options")
    if options is not None and not stream:
        raise BadRequestError("Stream options can only be defined when `stream=True`.", param="stream_options")
    asked = _count(body, "max_tokens", 1)
    if is_chat and body.get("max_completion_tokens") is not None:
        asked = _count(body, "max_completion_tokens", 1)
    if asked is None and not is_chat:
        asked = DEFAULT_COMPLETION
    least = _count(body, "min_tokens", 0) or 0
    if asked is not None and least > asked:
        raise BadRequestError(f"min_tokens must be less than or equal to max_tokens={asked}, got {least}.",
                              param="min_tokens")
    includes_usage = _flag(options or {}, "include_usage")
    return Call(is_chat=is_chat, model=model, prompt=_chat(body, encode) if is_chat else _prompt(body, encode),
                max_tokens=asked, min_tokens=least, ignore_eos=_flag(body, "ignore_eos"), stream=stream,
                includes_usage=includes_usage,
                counts_usage=_flag(options or {}, "continuous_usage_stats") and includes_usage)


def read_body(raw: bytes) -> dict[str, Any]:
    """Return the object of a body.

    Raises
    ------
    BadRequestError : it is no JSON object.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequestError("body must be a JSON object")
    return body


def replicas_of(body: Mapping[str, Any]) -> int:
    """Return the number of replicas that a Scale (autoscaling/v1) asks for.

    Raises
    ------
    BadRequestError : `spec.replicas` is no whole number of at least 0.
    """
    spec = body.get("spec")
    replicas = _count(spec, "replicas", 0) if isinstance(spec, dict) else None
    if replicas is None:
        raise BadRequestError('spec.replicas is missing; send {"spec": {"replicas": 2}}', param="spec.replicas")
    return replicas


def prompt_of(body: Mapping[str, Any], encode: Encode | None) -> Prompt:
    """Return the prompt of a body for /tokenize: of `messages`, or of `prompt`."""
    return _chat(body, encode) if "messages" in body else _prompt(body, encode)


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequestError(f"{name} = {value!r}: must be true or false", param=name)
    return bool(value)


def _count(body: Mapping[str, Any], name: str, least: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 31:
        raise BadRequestError(f"{name} must be at least {least}, got {value!r}.", param=name)
    return value


def _text(text: str, encode: Encode | None) -> Prompt:
    raw = text.encode("utf-8", errors="replace")  # JSON may hold half a surrogate pair
    if not raw:
        raise BadRequestError("the prompt is empty", param="prompt")
    return Prompt(tokens=raw if encode is None else encode(raw.decode()))


def _prompt(body: Mapping[str, Any], encode: Encode | None) -> Prompt:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return _text(prompt, encode)
    if isinstance(prompt, list) and prompt and all(type(token) is int and 0 <= token < 1 << 31 for token in prompt):
        return Prompt(tokens=prompt)
    raise BadRequestError("prompt must be a string or a list of tokens; several prompts are several requests",
                          param="prompt")


def _chat(body: Mapping[str, Any], encode: Encode | None) -> Prompt:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages must be a list with one message or more", param="messages")
    return _text("".join(map(_message, messages)), encode)


def _message(message: Any) -> str:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise BadRequestError("each message must be an object with a role", param="messages")
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(map(_part, content))
    if content is not None and not isinstance(content, str):
        raise BadRequestError("a message's content must be text", param="messages")
    return f"{message['role']}\n{content or ''}\n"


def _part(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    if not isinstance(text, str):
        raise BadRequestError("parts of a message's content must be text: the twin reads no images or audio",
                              param="messages")
    return text


class Reply:
    """The answer to one call, whole or as the chunks of a stream.

    Parameters
    ----------
    call : with the prompt.
    name : of the request.
    """

    def __init__(self, call: Call, name: str) -> None:
        self._call = call
        kind = "chat.completion" if call.is_chat else "text_completion"
        self._head = {"id": name, "object": kind, "created": int(time.time()), "model": call.model}
        chunk = self._head | {"object": "chat.completion.chunk" if call.is_chat else kind}
        before, after = json.dumps(chunk | {"choices": [self._choice("\0", None)]}).split(json.dumps("\0"))
        self._before, self._after = f"data: {before}".encode(), f"{after}\n\n".encode()
        self._chunk = chunk

    def _choice(self, text: str, reason: str | None, whole: bool = False) -> dict[str, Any]:
        ending = {"logprobs": None, "finish_reason": reason, "stop_reason": None}
        if not self._call.is_chat:
            return {"index": 0, "text": text, **ending}
        if whole:
            return {"index": 0, "message": {"role": "assistant", "content": text}, **ending}
        return {"index": 0, "delta": {"content": text}, **ending}

    def first(self) -> bytes:
        """Return the chunk that begins a chat; empty for a completion."""
        if not self._call.is_chat:
            return b""
        delta = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return _event(self._chunk | {"choices": [delta]} | self._usage_so_far(0))

    def tokens(self, count: int, num_output: int) -> bytes:
        """Return a chunk of tokens, with the usage so far if it is asked for."""
        if self._call.counts_usage:
            choices = [self._choice(WORD * count, None)]
            return _event(self._chunk | {"choices": choices} | self._usage_so_far(num_output))
        return b"".join((self._before, json.dumps(WORD * count).encode(), self._after))

    def last(self, count: int, num_output: int, num_cached: int, reason: str) -> bytes:
        """Return the chunk of the last tokens, the usage if it is asked for, and the end."""
        choices = [self._choice(WORD * count, reason)]
        end = _event(self._chunk | {"choices": choices} | self._usage_so_far(num_output))
        if self._call.includes_usage:
            end += _event(self._chunk | {"choices": [], "usage": self._usage(num_output, num_cached)})
        return end + b"data: [DONE]\n\n"

    def whole(self, num_output: int, num_cached: int, reason: str) -> dict[str, Any]:
        """Return the answer that is not streamed."""
        choice = self._choice(WORD * num_output, reason, whole=True)
        return self._head | {"choices": [choice], "usage": self._usage(num_output, num_cached)}

    def _usage_so_far(self, num_output: int) -> dict[str, Any]:
        """Return the field of a chunk in a stream that counts its usage, without the cached tokens, as vLLM writes it.
        """
        if not self._call.counts_usage:
            return {}
        usage = self._usage(num_output, 0)
        return {"usage": {name: usage[name] for name in usage if name != "prompt_tokens_details"}}

    def _usage(self, num_output: int, num_cached: int) -> dict[str, Any]:
        num_prompt = self._call.prompt.num_tokens
        return {"prompt_tokens": num_prompt, "total_tokens": num_prompt + num_output,
                "completion_tokens": num_output, "prompt_tokens_details": {"cached_tokens": num_cached}}


def _event(content: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()
