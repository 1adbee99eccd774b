"""The trace formats that the planner reads, and how a file's format is found."""

import dataclasses
from collections.abc import Mapping

from planner.errors import TraceError, UnknownNameError
from planner.schema import REQUIRED_TRACE_COLUMNS
from planner.settings.format_spec import parse_format
from planner.traces.bound_reader import bind, unknown_json
from planner.traces.column_map import COLUMNS, with_columns
from planner.traces.formats import column_formats as of_columns
from planner.traces.formats.aiperf import AIPERF
from planner.traces.formats.dynamo import DYNAMO
from planner.traces.formats.genai_perf import GENAI_PERF
from planner.traces.formats.guidellm import GUIDELLM
from planner.traces.formats.inference_perf import INFERENCE_PERF
from planner.traces.formats.langfuse import LANGFUSE
from planner.traces.formats.litellm import LITELLM
from planner.traces.formats.llmservingsim import LLMSERVINGSIM
from planner.traces.formats.mooncake import AIPERF_TRACE, MOONCAKE, TIMED
from planner.traces.formats.native_csv import NATIVE_CSV, NATIVE_JSONL
from planner.traces.formats.otel import OTEL
from planner.traces.formats.ragpulse import RAGPULSE
from planner.traces.formats.sagemaker import SAGEMAKER
from planner.traces.formats.vidur import LENGTHS, VIDUR
from planner.traces.formats.vllm_bench import SGLANG_BENCH, VLLM_BENCH
from planner.traces.formats.weka import WEKA
from planner.traces.likely import guessed, likeness
from planner.traces.reader import LAYOUT_NAMES, OBJECTS, Head, Reader
from planner.traces.summary_files import what_it_is

# In the order in which they are tried on a file's head.
FORMATS: Mapping[str, Reader] = {
    reader.name: reader for reader in (
        NATIVE_CSV, NATIVE_JSONL, VLLM_BENCH, SGLANG_BENCH, AIPERF_TRACE, MOONCAKE, TIMED, GUIDELLM, AIPERF,
        OTEL, LITELLM, LANGFUSE, of_columns.AZURE, of_columns.BURSTGPT, INFERENCE_PERF, DYNAMO, of_columns.BAILIAN,
        RAGPULSE, WEKA, of_columns.KV_CACHE_TESTER, GENAI_PERF, of_columns.LLMPERF, of_columns.LMBENCHMARK,
        LLMSERVINGSIM, of_columns.SPLITWISE, of_columns.APEX, VIDUR, of_columns.HELICONE, of_columns.ENVOY, SAGEMAKER,
        LENGTHS, COLUMNS,
    )
}
OUTPUT = "output_tokens"
_DEFAULTS = {"csv": "csv", "table": "jsonl", "jsonl": "jsonl", "document": "jsonl"}


def check_format(spec: str | None) -> None:
    """Raise UsageError if `spec` is no format, nor a format and a map of columns; with the nearest name."""
    if spec is None:
        return
    name, columns, where = parse_format(spec)
    if name not in FORMATS:
        raise UnknownNameError("trace format", name, FORMATS)
    with_columns(FORMATS[name], columns, where)


def knows(head: Head, spec: str | None, *, by_names: bool = True) -> bool:
    """Tell whether a head has a known format, or has all columns that `spec` names.

    Parameters
    ----------
    by_names : columns whose names look like lengths are enough.
    """
    name, columns, where = (COLUMNS.name, {}, {}) if spec is None else parse_format(spec)
    if name != COLUMNS.name and FORMATS[name].rows is not None:
        return FORMATS[name].matches(head)
    if not columns:
        readers = FORMATS.values() if name == COLUMNS.name else (FORMATS[name],)
        is_known = any(head.layout in reader.layouts and reader.matches(head) and (by_names or reader is not LENGTHS)
                       for reader in readers)
        if by_names and name == COLUMNS.name:
            is_known = is_known or (what_it_is(head) is None and guessed(head) is not None)
        return is_known and all(head.has(path) for path in where)
    reader = with_columns(FORMATS[name], columns, where)
    return all(head.has(reader.columns[column]) for column in (
        *(set(columns) & set(reader.columns)), *(f"where {k}" for k in range(len(where)))))


def find_reader(source: str, head: Head, spec: str | None, *, has_outputs: bool = True) -> Reader:
    """Choose the reader that `spec` forces, or the one that knows the head; with the columns that the file has.

    Parameters
    ----------
    has_outputs : whether requests generate tokens. If not, the file needs no column of them.

    Raises
    ------
    TraceError : the file is not laid out as the format wants, or a required column is missing.
    """
    if not has_outputs:
        return _without_outputs(source, head, spec)
    name, columns, where = (None, {}, {}) if spec is None else parse_format(spec)
    if name is None or (name == COLUMNS.name and not columns):  # conditions alone leave the format to the file
        known = (reader for reader in FORMATS.values() if head.layout in reader.layouts and reader.matches(head))
        reader = next(known, None) or _guess(source, head, spec)
    else:
        reader = FORMATS[name]
    if head.layout not in reader.layouts:
        wanted = " or ".join(LAYOUT_NAMES[layout] for layout in reader.layouts)
        raise TraceError(
            f"trace {source} line {head.line}: looks like {LAYOUT_NAMES[head.layout]}; format {reader.name!r} must be "
            f"{wanted} (leave --format out to have it detected)"
        )
    is_guessed = reader.name.startswith(f"{COLUMNS.name},")
    reader = with_columns(reader, columns, where)
    if (columns or where) and not is_guessed:  # its results differ from the results of the format's own columns
        reader = dataclasses.replace(reader, name=spec or reader.name)
    lacks_lengths = not all(head.has(reader.columns[name]) for name in ("input_tokens", "output_tokens"))
    if columns and reader.rows is None and name == COLUMNS.name and lacks_lengths:
        reader = guessed(head, reader) or reader
    return bind(source, head, reader, spec)


def _without_outputs(source: str, head: Head, spec: str | None) -> Reader:
    """Return a reader that reads no output tokens, as if the file had a column of them."""
    is_there = likeness(head, OUTPUT) is not None or any(
        head.has(reader.columns.get(OUTPUT, OUTPUT)) for reader in FORMATS.values())
    seen = head if is_there else dataclasses.replace(head, columns=(*head.columns, OUTPUT))
    reader = find_reader(source, seen, spec)
    return dataclasses.replace(reader, has_outputs=False, columns={
        name: path for name, path in reader.columns.items() if name != OUTPUT})


def _guess(source: str, head: Head, spec: str | None) -> Reader:
    """Return a reader by the names of a file's columns, or the planner's own, if the file is in no known format.

    Raises
    ------
    TraceError : the file has no requests, or nothing in it looks like their columns.
    """
    if (known := what_it_is(head)) is not None:
        raise TraceError(f"trace {source}: is {known.what}, without requests; {known.instead}")
    if (reader := guessed(head)) is not None:
        return reader
    if spec is None and head.layout in OBJECTS and not any(map(head.has, REQUIRED_TRACE_COLUMNS)):
        raise unknown_json(source, head)
    return FORMATS[_DEFAULTS[head.layout]]
