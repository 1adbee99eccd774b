"""Results of `vllm bench serve --save-detailed` and SGLang's: an object a run, with lists of all requests' times."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from planner.errors import TraceError
from planner.files.finite import is_number
from planner.traces.reader import OBJECTS, SENT, Head, Reader, Skip, between, total

LISTS = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "errors",
         "cached_tokens")
SKIPS = (Skip(reason="the client recorded an error", where=pl.col("error") != ""),
         Skip(reason="no output tokens", where=pl.col("output_tokens") == "0"))

_SUMMARY = {"completed", "duration", "total_input_tokens", "total_output_tokens"}
_SGLANG = ("random_range_ratio", "server_info", "total_output_tokens_retokenized", "sharegpt_output_len")


def is_run(head: Head) -> bool:
    """Tell whether a file holds results of a benchmark's runs, vLLM's or SGLang's."""
    return len(_SUMMARY & set(head.first)) >= 3


def is_sglang(head: Head) -> bool:
    """Tell SGLang's results from vLLM's."""
    return any(key in head.first for key in _SGLANG)


def requests_of(run: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the requests of a run, failed ones included.

    Raises
    ------
    TraceError : the run is a summary, or its lists differ in length.
    """
    lists = {key: run[key] for key in LISTS if isinstance(run.get(key), list)}
    if not {"input_lens", "output_lens"} <= set(lists):
        raise TraceError("is a summary without requests; save it with --save-detailed (vLLM) or "
                         "--output-details (SGLang). planner validate takes summaries")
    if len({len(values) for values in lists.values()}) > 1:
        sizes = ", ".join(f"{key} {len(values)}" for key, values in lists.items())
        raise TraceError(f"its lists differ in length ({sizes}); must have one entry a request")
    for k in range(len(lists["input_lens"])):
        yield _request({key: values[k] for key, values in lists.items()})


def _request(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return one request; it was due when it began to wait for a place in the client's limit."""
    sent_at_s, waited_s, ttft_s, e2e_s, gaps_s = (
        one.get(key) for key in ("start_times", "queue_times", "ttfts", "latencies", "itls"))
    if e2e_s is None and isinstance(gaps_s, list):
        e2e_s = total(ttft_s, *gaps_s)
    due_at_s = sent_at_s if waited_s is None or not is_number(sent_at_s) else between(waited_s, sent_at_s)
    return {"arrival_s": due_at_s, SENT: sent_at_s, "input_tokens": one["input_lens"],
            "output_tokens": one["output_lens"], "ttft_s": ttft_s, "e2e_s": e2e_s, "error": one.get("errors", ""),
            "cached_tokens": one.get("cached_tokens")}


def client_rate(run: Mapping[str, Any]) -> float | None:
    """Return the rate of a run's client; infinite without a limit, None if the file does not say it [1/s]."""
    rate = run.get("request_rate")
    return float(rate) if is_number(rate) or rate in ("inf", math.inf) else None


def is_closed_loop(run: Mapping[str, Any]) -> bool:
    """Tell whether a client only limited the requests in flight: their send times follow from the measured system."""
    return is_number(run.get("max_concurrency")) and client_rate(run) in (None, math.inf)


def client_notes(head: Head) -> Iterator[str]:
    """Yield how `planner validate` replays the same file, if a replay of its requests is another load."""
    run = head.first
    if is_closed_loop(run):
        most = run["max_concurrency"]
        times = "" if "start_times" not in run else "the recorded send times follow from the measured server; "
        yield (f"the client kept up to {most:g} requests in flight: {times}--max-concurrency {most:g} "
               f"--ready-at-start replays this closed loop, as planner validate does")
    elif "start_times" not in run and is_number(run.get("request_rate")):
        rate = run["request_rate"]
        yield f"planner validate draws arrivals at the file's rate; so does --request-rate {rate:g}"


VLLM_BENCH = Reader(
    name="vllm-bench",
    meaning="vllm bench serve --save-result --save-detailed: JSON with a list of every request's times",
    layouts=OBJECTS,
    columns={name: name for name in ("arrival_s", SENT, "input_tokens", "output_tokens", "ttft_s", "e2e_s", "error")},
    time="s on the client's own clock; arrivals count from the earliest",
    tokens="the client's tokenizer (input), the server's usage or the client's tokenizer (output)",
    matches=lambda head: is_run(head) and not is_sglang(head),
    clock="other",
    arrivals="optional",
    rows=requests_of,
    single=True,
    skips=SKIPS,
    head_notes=client_notes,
)


SGLANG_BENCH = Reader(
    name="sglang-bench",
    meaning="SGLang bench_serving --output-details: JSONL with a list of every request's times",
    layouts=OBJECTS,
    columns={name: name for name in ("input_tokens", "output_tokens", "ttft_s", "e2e_s", "cached_tokens", "error")},
    time="s; when requests were sent is not recorded",
    tokens="the client's tokenizer (input), the server's usage (output)",
    matches=lambda head: is_run(head) and is_sglang(head),
    arrivals="absent",
    rows=requests_of,
    single=True,
    skips=SKIPS,
    head_notes=client_notes,
)
