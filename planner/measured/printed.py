"""Results as benchmarks print them, wherever they stand in a text: vLLM's, SGLang's and TensorRT-LLM's clients."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.files.finite import number_in
from planner.traces.source import text_lines

Document = dict[str, Any]

BEGINS = "Serving Benchmark Result"
TRTLLM_BEGINS = "= PERFORMANCE OVERVIEW"
TABLES = (".csv", ".parquet", ".json", ".jsonl", ".yaml", ".yml")
_LINE = re.compile(r"([A-Za-z][^:=]*?|\[[A-Z]+\] \w+)\s*:\s+(\S.*?)\s*$")
_STATISTIC = re.compile(r"^(Mean|Median|P[\d.]+|Std) (TTFT|TPOT|ITL|E2EL|E2E Latency) \(ms\)$")
_METRICS = {"E2E Latency": "e2el"}
_LABELS = {
    "successful requests": "completed", "failed requests": "failed", "benchmark duration (s)": "duration",
    "total input tokens": "total_input_tokens", "total generated tokens": "total_output_tokens",
    "total generated tokens (retokenized)": "total_output_tokens_retokenized",
    "request throughput (req/s)": "request_throughput", "output token throughput (tok/s)": "output_throughput",
    "maximum request concurrency": "max_concurrency", "max request concurrency": "max_concurrency",
    "max reqeuest concurrency": "max_concurrency", "traffic request rate": "request_rate",
    "request rate configured (rps)": "request_rate", "burstiness factor": "burstiness"}
_SENT = ("max_concurrency", "request_rate", "burstiness")  # printed before the result, too
_FLAGS = re.compile(r"--(random-input-len|random-output-len|random-range-ratio|num-prompts|request-rate|burstiness|"
                    r"max-concurrency|model)[ =]+[\"']?([^\s\"'\\]+)")
# Labels of trtllm-bench's report, and their places in its JSON.
_TRTLLM = {
    "request throughput (req/sec)": "performance.request_throughput_req_s",
    "total output throughput (tokens/sec)": "performance.system_output_throughput_tok_s",
    "per gpu output throughput (tokens/sec/gpu)": "performance.output_throughput_per_gpu_tok_s",
    "per gpu output throughput (tps/gpu)": "performance.output_throughput_per_gpu_tok_s",
    "total latency (ms)": "performance.total_latency_ms",
    "average request latency (ms)": "performance.avg_request_latency_ms",
    "average time-to-first-token [ttft] (ms)": "streaming_metrics.avg_ttft_ms",
    "average time-per-output-token [tpot] (ms)": "streaming_metrics.avg_tpot_ms",
    "number of requests": "request_info.num_requests",
    "number of concurrent requests": "request_info.avg_num_concurrent_requests",
    "average input length (tokens)": "request_info.avg_input_length",
    "average output length (tokens)": "request_info.avg_output_length",
    "tp size": "world_info.tp_size", "pp size": "world_info.pp_size",
    "max runtime batch size": "world_info.max_batch_size", "max runtime tokens": "world_info.max_num_tokens",
    "scheduling policy": "world_info.scheduling_policy", "issue rate (req/sec)": "world_info.issue_rate",
    "model": "engine.model", "tensorrt-llm version": "engine.version", "quantization": "engine.quantization",
    "kv cache dtype": "engine.kv_cache_dtype"}
_TRTLLM_STATISTIC = re.compile(r"^\[(TTFT|TPOT|Latency)\] (MINIMUM|MAXIMUM|AVERAGE|P\d+)$", re.IGNORECASE)
_TRTLLM_PLACES = {"ttft": "streaming_metrics.ttft_percentiles", "tpot": "streaming_metrics.tpot_percentiles",
                  "latency": "performance.request_latency_percentiles_ms"}


def printed_results(path: Path) -> list[Document]:
    """Return the results that are printed in a text, as their tools write them in JSON; empty if none is.

    Raises
    ------
    TraceError : the file cannot be read.
    """
    if path.suffix in TABLES:
        return []
    lines = [line for _, line in text_lines(path)]
    if any(TRTLLM_BEGINS in line for line in lines):
        return list(_trtllm_reports(lines))
    starts = [at for at, line in enumerate(lines) if BEGINS in line]
    results = []
    for start, before, end in zip(starts, [0, *starts], [*starts[1:], len(lines)], strict=False):
        context = _context(lines[before:start])
        results.append(_defaults(context | _numbers(_fields(lines[start + 1:end]))))
    return results


def _fields(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield labels and values up to the line that ends a block."""
    for line in lines:
        text = line.strip().strip("|>").strip()
        if len(text) > 10 and set(text) == {"="}:
            return
        if (match := _LINE.search(text)) is not None:
            yield " ".join(match[1].split()), match[2]


def _numbers(fields: Iterator[tuple[str, str]]) -> Document:
    numbers: Document = {}
    for label, text in fields:
        key = _LABELS.get(label.lower())
        if (match := _STATISTIC.match(label)) is not None:
            key = f"{match[1].lower()}_{_METRICS.get(match[2], match[2].lower())}_ms"
        value = number_in(text.split()[0])
        if label == "Backend":
            numbers["backend"] = text
        elif key is not None and not math.isnan(value):
            numbers[key] = "inf" if value == math.inf else value
    for key in ("completed", "max_concurrency", "total_input_tokens", "total_output_tokens"):
        if key in numbers:
            numbers[key] = round(numbers[key])
    return numbers


def _context(lines: list[str]) -> Document:
    """Return the load that lines before a result state: by the client's words, or by a command's flags."""
    context: Document = {}
    for line in lines:
        if "bench" in line:  # a new command
            context = {}
        for flag, text in _FLAGS.findall(line):
            value = number_in(text)
            key = flag.replace("-", "_") if flag != "model" else "model_id"
            context[key] = text if flag == "model" or math.isinf(value) else value
        for key, number in _numbers(_fields([line])).items():
            if key in _SENT:
                context[key] = number
    return {key: value for key, value in context.items() if not (isinstance(value, float) and math.isnan(value))}


def _defaults(result: Document) -> Document:
    """Add the rate that newer clients of vLLM leave out, which is without a limit."""
    is_silent = "failed" in result and "max_concurrency" not in result
    return {"request_rate": "inf"} | result if is_silent else result


def _trtllm_reports(lines: list[str]) -> Iterator[Document]:
    """Yield the reports of a text; each has one overview, after the sections on the engine and the requests."""
    report: dict[str, Document] = {}
    for label, text in _fields([line for line in lines if not set(line.strip()) <= {"="}]):
        name = label.lower()
        place = _TRTLLM.get(name)
        if "performance" in report and (name == "model" or name.startswith("request throughput")):
            yield _whole(report)
            report = {}
        if (match := _TRTLLM_STATISTIC.match(label)) is not None:
            section, key = _TRTLLM_PLACES[match[1].lower()].split(".")
            report.setdefault(section, {}).setdefault(key, {})[match[2].lower()] = number_in(text.split()[0])
        elif place is not None:
            section, key = place.split(".")
            value = number_in(text.split()[0])
            report.setdefault(section, {})[key] = text if section == "engine" or math.isnan(value) else (
                round(value) if key.startswith(("max_", "tp_", "pp_", "num_")) else value)
    if "performance" in report:
        yield _whole(report)


def _whole(report: Mapping[str, Document]) -> Document:
    return {"engine": {}, "world_info": {}, "request_info": {}, **report}
