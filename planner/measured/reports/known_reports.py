"""The benchmark reports that are read as runs, and how each is known."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from planner.errors import TraceError
from planner.measured.reports.client_results import is_evalscope, is_genai_bench, read_evalscope, read_genai_bench
from planner.measured.reports.guidellm_report import is_guidellm, read_guidellm
from planner.measured.reports.inferencex_file import is_inferencex, read_inferencex
from planner.measured.reports.llmd_report import is_llmd, read_llmd
from planner.measured.reports.perf_stage import is_stage, is_summary, read_stage, read_summary
from planner.measured.reports.reported import Reported, measurement_of
from planner.measured.reports.trtllm_report import is_trtllm, read_trtllm
from planner.measured.run_table import Measurement
from planner.settings.scenario import Scenario

Document = Mapping[str, Any]

READERS: tuple[tuple[Callable[[Document], bool], Callable[[str, Document], list[Reported]]], ...] = (
    (is_llmd, read_llmd), (is_guidellm, read_guidellm), (is_trtllm, read_trtllm), (is_stage, read_stage),
    (is_summary, read_summary), (is_evalscope, read_evalscope), (is_genai_bench, read_genai_bench))
MOST_KEYS = 12


def read_reports(path: Path, documents: Sequence[Document], scenario: Scenario) -> list[Measurement] | None:
    """Return the runs of a file of reports; None if its first document is none.

    Raises
    ------
    TraceError : something in a report is wrong, or a value for the replay is missing.
    """
    runs: list[Measurement] = []
    for k, document in enumerate(documents):
        where = str(path) if len(documents) == 1 else f"{path} run {k}"
        name = path.name.partition(".")[0] + ("" if len(documents) == 1 else f"#{k}")
        if is_inferencex(document):
            runs.append(read_inferencex(where, name, document, scenario))
            continue
        reader = next((read for matches, read in READERS if matches(document)), None)
        if reader is None and runs:
            raise unknown(path, document, f"JSON, and entry {k} is")
        if reader is None:
            return None
        parsed = reader(where, document)
        runs += [measurement_of(where, name if len(parsed) == 1 else f"{name}#{j}", run, scenario)
                 for j, run in enumerate(parsed)]
    return runs or None


def yaml_documents(path: Path) -> list[Document]:
    """Return the documents of a YAML file.

    Raises
    ------
    TraceError : the file is no YAML, or its documents are no tables of keys.
    """
    try:
        parts = [part for part in yaml.safe_load_all(path.read_text(encoding="utf-8")) if part is not None]
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise TraceError(f"{path}: cannot be read as YAML: {error}") from error
    if not parts or not all(isinstance(part, dict) for part in parts):
        raise TraceError(f"{path}: is YAML without keys; must be a benchmark's report")
    return parts


def unknown(path: Path, document: Document, kind: str) -> TraceError:
    """Return the error of a file that is no known report, with its keys."""
    keys = ", ".join(map(str, [*document][:MOST_KEYS]))
    more = "" if len(document) <= MOST_KEYS else f" and {len(document) - MOST_KEYS} more"
    return TraceError(f"{path}: is {kind} of no known kind, with the keys {keys}{more}; must be a benchmark's result, "
                      f"an llm-d Benchmark Report, or requests with measured times")
