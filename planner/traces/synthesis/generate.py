"""A workload's file read, and a trace drawn from it; the same workload and seed give the same requests every time."""

import hashlib
from pathlib import Path
from typing import Any

from numpy.random import PCG64, Generator

from planner.catalog.catalog_files import data_dir
from planner.errors import CatalogError, UnknownNameError, UsageError
from planner.files.nested import parse_toml
from planner.traces.synthesis.conversations import draw_spec
from planner.traces.synthesis.spec import Spec, spec_of
from planner.traces.synthesis.tenant_draws import draw_model
from planner.traces.synthesis.traffic_model import Model, model_of
from planner.traces.table import Trace, account_of

GENERATOR = 1  # goes into each trace's hash: raise it with every change that alters the trace of a spec


def sample_names() -> list[str]:
    """Names of the bundled samples, sorted."""
    return sorted(path.stem for path in data_dir("workloads").glob("*.toml"))


def load_sample(name: str) -> Trace:
    """Generate a bundled sample.

    Raises
    ------
    UnknownNameError : there is no such sample.
    """
    if name not in sample_names():
        raise UnknownNameError("sample trace", name, sample_names())
    return generate(read_workload(data_dir("workloads") / f"{name}.toml"), seed=None)


def read_spec(path: Path) -> Spec:
    """Read a hand-written workload from TOML; its keys are the fields of `Spec`, its name is the file's.

    Raises
    ------
    CatalogError : the file is missing, is not TOML, or a key or value in it is wrong.
    """
    model = read_workload(path)
    if isinstance(model, Model):
        raise CatalogError(f"workload {path}: is a fitted model; must be written by hand, without [[tenants]]")
    return model


def read_workload(path: Path) -> Spec | Model:
    """Read a workload from TOML: a fitted model if it has [[tenants]], else one written by hand.

    Raises
    ------
    CatalogError : the file is missing, is not TOML, or a key or value in it is wrong.
    """
    try:
        text = path.read_bytes()
        table = parse_toml(text.decode())
        parts: dict[str, Any] = {"name": path.stem, "sha256": hashlib.sha256(text).hexdigest()}
        return model_of({**parts, **table}) if "tenants" in table else spec_of({**parts, "sessions": None, **table})
    except OSError as error:
        raise CatalogError(f"workload {path}: {error.strerror}; give the path of a readable TOML file") from None
    except (ValueError, TypeError, UsageError) as error:
        raise CatalogError(f"workload {path}: {error}") from None


def generate(workload: Spec | Model, *, seed: int | None) -> Trace:
    """Draw a trace.

    Parameters
    ----------
    workload : spec or model to draw from.
    seed : instead of the workload's own; None for that.

    Returns
    -------
    Trace
        the same for the same workload and seed. Its `sha256` is over the workload's text, the generator's version and
        the seed. With sessions it has `session_id`, and prefix ids if sharing is known; arrivals are open-loop,
        without `parent_id`.
    """
    seed = workload.seed if seed is None else seed
    if seed < 0:
        raise UsageError(f"seed = {seed}; must be a whole number >= 0")
    rng = Generator(PCG64(seed))
    requests, prefix = draw_model(workload, rng) if isinstance(workload, Model) else draw_spec(workload, rng)
    if not requests.height:
        raise UsageError(f"workload {workload.name}: no request in {workload.duration_s:g} s; raise the duration or "
                         f"the rate")
    mark = hashlib.sha256(f"{workload.sha256} generator {GENERATOR} seed {seed}".encode()).hexdigest()
    account = account_of(
        requests, source=workload.name, format="synthetic", rows_read=requests.height, dropped={}, ignored_columns=()
    )
    return Trace(
        requests=requests, prefix=prefix, source=workload.name, format="synthetic", sha256=mark, account=account
    )
