"""Measured runs in any kind of file: a table of runs, a benchmark's result, a server's metrics, requests."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from planner.catalog.catalog_files import load_gpu
from planner.deployment.deploy import Deployment
from planner.errors import TraceError, UnknownNameError, UsageError
from planner.files.table_file import columns_of
from planner.measured.agentic import is_agentic
from planner.measured.benchmarks import is_result, read_objects, read_results
from planner.measured.lanes import is_lanes
from planner.measured.printed import printed_results
from planner.measured.recorded import read_requests
from planner.measured.reports.guidellm_report import without_requests
from planner.measured.reports.known_reports import read_reports, unknown, yaml_documents
from planner.measured.run_row import CLIENTS
from planner.measured.run_table import Measurement, read_measured
from planner.measured.scrape import is_scrape
from planner.measured.scraped import read_scraped
from planner.measured.validate import deploy_measured
from planner.model.spread import expert_parallel_size
from planner.settings.scenario import Scenario, attention_ranks

_TABLE_COLUMNS = {"isl", "osl", "concurrency", "measured_ttft_ms", "measured_tpot_ms"}


def read_runs(path: Path, scenario: Scenario, *, client: str | None, free: Sequence[str] = (),
              format: str | None = None) -> list[Measurement]:
    """Read measured runs.

    Parameters
    ----------
    path : a table with a run a row (see `measured.read_measured`), whose rows name their own deployments; or of one
        deployment a result of vLLM's or SGLang's benchmark, scrapes of its metrics, or a table or trace of requests
        with measured times.
    scenario : that deployment; for a table its calibration alone.
    client : program that sent the requests; of a table, the rows of other clients are left out.
    free : more options that a table may be given.
    format : of a file of requests, as `read_trace` takes it; None to detect the kind of file.

    Raises
    ------
    TraceError : the file is none of these, or something in it is wrong.
    UsageError : an option does not fit the file, or one is missing.
    """
    if client is not None and client not in CLIENTS:
        raise UnknownNameError("client", client, CLIENTS)
    if not path.is_file():
        raise TraceError(f"{path}: no such file")
    if is_table(columns_of(path)):
        if format is not None:
            raise UsageError(f"{path}: is a table of measured runs, and --format, --column and --where read files of "
                             f"requests; leave them out, and write the rows to use to a file of their own")
        return _table(path, scenario, client, free)
    if scenario.data_parallel_size > 1:
        raise UsageError(f"--data-parallel-size {scenario.data_parallel_size}: {path} does not tell which rank served "
                         f"which request; give a table of runs with the column dp, or the server's log")
    if format is None and is_scrape(path):
        return [_deployed(run) for run in read_scraped(path, scenario)]
    return [run if "gpu" in run.groups else _deployed(run) for run in
            (_reported(path, scenario, client) if format is None else None) or [read_requests(path, scenario, format)]]


def _reported(path: Path, scenario: Scenario, client: str | None) -> list[Measurement] | None:
    """Return the runs of a benchmark's result or report; None if the file is neither."""
    is_yaml = path.suffix in (".yaml", ".yml")
    objects: Sequence[Mapping[str, Any]]
    if is_yaml:
        objects = [without_requests(document) for document in yaml_documents(path)]
    else:
        objects = read_objects(path) if path.suffix in (".json", ".jsonl") else printed_results(path)
    if objects and is_result(objects[0]):
        return read_results(path, objects, scenario, client)
    runs = read_reports(path, objects, scenario) if objects else None
    if runs is None and is_yaml:
        raise unknown(path, objects[0], "YAML")
    return runs


def is_table(columns: Sequence[str]) -> bool:
    """Tell whether a file with these columns is a table of runs."""
    return len(_TABLE_COLUMNS & set(columns)) >= 2 or is_agentic(columns) or is_lanes(columns)


def groups_of(scenario: Scenario, model: str, client: str) -> dict[str, str]:
    """Return the groups that one deployment's runs belong to."""
    tp, dp = scenario.tensor_parallel_size, attention_ranks(scenario)
    return {"gpu": scenario.gpu or "unnamed", "engine": scenario.engine, "model": model,
            "precision": scenario.quantization or "checkpoint", "client": client,
            "layout": f"tp{tp}-dp{dp}-ep{expert_parallel_size(scenario)}"}


def model_of(deployment: Deployment) -> str:
    """Return the catalog's name of a deployment's model."""
    return "unnamed" if deployment.architecture is None else deployment.architecture.profile_name


def _table(path: Path, scenario: Scenario, client: str | None, free: Sequence[str]) -> list[Measurement]:
    for f in fields(Scenario):
        if f.name not in ("calibration", "interval", *free) and getattr(scenario, f.name) != f.default:
            raise UsageError(f"--{f.name.replace('_', '-')} {getattr(scenario, f.name)}: each row of {path} names its "
                             f"own deployment and load; leave the option out")
    runs = read_measured(path, client=client)
    if not runs:
        raise TraceError(f"{path}: has no rows; must have at least one run")
    if client is not None:
        runs = [run for run in runs if run.groups["client"] == client]
        if not runs:
            raise TraceError(f"{path}: no row has the client {client}")
    return runs


def _deployed(run: Measurement) -> Measurement:
    """Return a run with its deployment's names; raise the errors of the options."""
    assert run.scenario is not None
    scenario = run.scenario
    if scenario.gpu is not None:
        scenario = dataclasses.replace(scenario, gpu=load_gpu(scenario.gpu).name)
    run = dataclasses.replace(run, scenario=scenario)
    return dataclasses.replace(run, groups=groups_of(scenario, model_of(deploy_measured(run)), run.groups["client"]))
