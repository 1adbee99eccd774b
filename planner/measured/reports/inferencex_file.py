"""The JSON that InferenceX writes of each run: a row of a table of runs, under keys of its own."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.catalog.catalog_files import load_gpu
from planner.engines import engine_named
from planner.errors import TraceError, UnknownNameError
from planner.measured.run_columns import MEASURED, is_measured
from planner.measured.run_table import Measurement, measurement_of_row
from planner.settings.scenario import Scenario, given_options

TOOL = "a run of InferenceX"
_NAMES = {"framework": "engine", "conc": "concurrency"}
_AS_THEY_ARE = ("model", "isl", "osl", "tp", "ep", "dp_attention", "spec_decoding", "precision", "image")
_TIMES = ("ttft", "tpot", "itl", "e2el")


def is_inferencex(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is such a run."""
    return {"hw", "framework", "conc", "tp"} <= set(document)


def read_inferencex(where: str, name: str, document: Mapping[str, Any], scenario: Scenario) -> Measurement:
    """Return the measurement of a run, as that of a row of a table of runs whose client is InferenceX's.

    The file has the deployment; the scenario's lengths stand in for lengths that older files lack.

    Raises
    ------
    TraceError : prefill and decode ran apart, or a number is wrong.
    """
    if str(document.get("disagg", "false")).lower() == "true" or str(document.get("framework")).startswith("dynamo"):
        raise TraceError(f"{where}: prefill and decode ran apart (disagg, framework = {document.get('framework')}), "
                         f"and a run is compared with one engine")
    cells = {key: document[key] for key in _AS_THEY_ARE if document.get(key) is not None}
    cells |= {ours: document[theirs] for theirs, ours in _NAMES.items()}
    cells["engine"] = engine_named(str(cells["engine"])) or cells["engine"]
    cells["gpu"], cells["client"], cells["id"] = _gpu(where, str(document["hw"])), "inferencex", name
    if document.get("date"):
        cells["measured_date"] = str(document["date"])
    for ours, option in (("isl", "random_input_len"), ("osl", "random_output_len")):
        if ours not in cells:
            cells[ours] = getattr(scenario, option) or ""
    cells |= {f"{MEASURED}{key}_ms": 1e3 * float(value) for key, value in document.items()
              if key.rpartition("_")[2] in _TIMES and is_measured(f"{MEASURED}{key}_ms")}
    cells |= {f"{MEASURED}{key}": value for key, value in document.items() if is_measured(f"{MEASURED}{key}")}
    options = given_options(scenario)
    in_file = ("model", "gpu", "engine", "tensor_parallel_size", "random_input_len", "random_output_len")
    cells |= {option: value for option, value in options.items() if option not in in_file}
    run = measurement_of_row(Path(where), cells, 0, "inferencex")
    aside = [f"--{option.replace('_', '-')} {options[option]}" for option in in_file[:4] if option in options]
    notes = (f"{where}: the file says what ran ({cells['engine']} with {cells['model']} on {cells['gpu']}), and these "
             f"options give way: {', '.join(aside)}",) if aside else ()
    return dataclasses.replace(run, notes=notes)


def _gpu(where: str, named: str) -> str:
    """Return the GPU in the name of a runner, which may go on behind it (h200-cw)."""
    parts = named.lower().split("-")
    for end in range(len(parts), 0, -1):
        try:
            return load_gpu("-".join(parts[:end])).name
        except UnknownNameError:
            continue
    raise TraceError(f"{where}: hw = {named!r} is no GPU of the catalog; planner db list shows them")
