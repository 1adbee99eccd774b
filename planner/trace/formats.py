"""The trace formats that the planner reads, and how a file's format is found."""

import dataclasses
from collections.abc import Mapping

from planner.errors import TraceError, UnknownNameError
from planner.settings.format_spec import parse_format
from planner.trace.aiperf import AIPERF
from planner.trace.aiperf_trace import AIPERF_TRACE
from planner.trace.apex import APEX
from planner.trace.azure import AZURE
from planner.trace.bailian import BAILIAN
from planner.trace.burstgpt import BURSTGPT
from planner.trace.columns import COLUMNS, with_columns
from planner.trace.dynamo import DYNAMO
from planner.trace.envoy import ENVOY
from planner.trace.genai_perf import GENAI_PERF
from planner.trace.guidellm import GUIDELLM
from planner.trace.helicone import HELICONE
from planner.trace.inference_perf import INFERENCE_PERF
from planner.trace.kv_cache_tester import KV_CACHE_TESTER
from planner.trace.langfuse import LANGFUSE
from planner.trace.litellm import LITELLM
from planner.trace.llmperf import LLMPERF
from planner.trace.llmservingsim import LLMSERVINGSIM
from planner.trace.lmbenchmark import LMBENCHMARK
from planner.trace.mooncake import MOONCAKE
from planner.trace.native_csv import NATIVE_CSV
from planner.trace.native_jsonl import NATIVE_JSONL
from planner.trace.otel import OTEL
from planner.trace.ragpulse import RAGPULSE
from planner.trace.reader import LAYOUT_NAMES, Head, Reader, bind, missing_column
from planner.trace.sagemaker import SAGEMAKER
from planner.trace.sglang_bench import SGLANG_BENCH
from planner.trace.splitwise import SPLITWISE
from planner.trace.summaries import what_it_is
from planner.trace.timed import TIMED
from planner.trace.vidur import LENGTHS, VIDUR
from planner.trace.vllm_bench import VLLM_BENCH
from planner.trace.weka import WEKA

# In the order in which they are tried on a file's head.
FORMATS: Mapping[str, Reader] = {
    reader.name: reader for reader in (
        NATIVE_CSV, NATIVE_JSONL, VLLM_BENCH, SGLANG_BENCH, AIPERF_TRACE, MOONCAKE, TIMED, GUIDELLM, AIPERF, OTEL,
        LITELLM, LANGFUSE, AZURE, BURSTGPT, INFERENCE_PERF, DYNAMO, BAILIAN, RAGPULSE, WEKA, KV_CACHE_TESTER,
        GENAI_PERF, LLMPERF, LMBENCHMARK, LLMSERVINGSIM, SPLITWISE, APEX, VIDUR, LENGTHS, HELICONE, ENVOY, SAGEMAKER,
        COLUMNS,
    )
}
_DEFAULTS = {"csv": "csv", "table": "jsonl", "jsonl": "jsonl", "document": "jsonl"}


def check_format(spec: str | None) -> None:
    """Raise UsageError where `spec` is no format, nor a format and a map of columns; with the nearest name."""
    if spec is None:
        return
    name, columns, where = parse_format(spec)
    if name not in FORMATS:
        raise UnknownNameError("trace format", name, FORMATS)
    with_columns(FORMATS[name], columns, where)


def find_reader(source: str, head: Head, spec: str | None) -> Reader:
    """Choose the reader that `spec` forces, or the one that knows the head; with the columns that the file has.

    Raises
    ------
    TraceError : the file is not laid out as the format wants, or a required column is missing.
    """
    name, columns, where = (None, {}, {}) if spec is None else parse_format(spec)
    if name is None or (name == COLUMNS.name and not columns):  # conditions alone leave the format to the file
        known = (reader for reader in FORMATS.values() if head.layout in reader.layouts and reader.matches(head))
        reader = next(known, FORMATS[_DEFAULTS[head.layout]])
        if reader.name in _DEFAULTS.values() and not reader.matches(head) and (found := what_it_is(head)) is not None:
            raise TraceError(f"trace {source}: is {found.what}, without requests; {found.instead}")
    else:
        reader = FORMATS[name]
    if head.layout not in reader.layouts:
        wanted = " or ".join(LAYOUT_NAMES[layout] for layout in reader.layouts)
        raise TraceError(
            f"trace {source} line {head.line}: looks like {LAYOUT_NAMES[head.layout]}; format {reader.name!r} must be "
            f"{wanted} (leave --format out to have it detected)"
        )
    reader = with_columns(reader, columns, where)
    if columns or where:  # whose results differ from those of the format's own columns
        reader = dataclasses.replace(reader, name=spec or reader.name)
    for name in (*columns, *(f"where {k}" for k in range(len(where)))):  # what was asked for by name must be there
        if not head.has(reader.columns[name]):
            raise missing_column(source, head, reader.columns[name])
    return bind(source, head, reader)
