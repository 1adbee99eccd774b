"""A session's own files: GPUs and models that the catalog has checked, and tenants, in a folder that goes with it."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import streamlit as st

from planner.catalog.catalog_files import add_gpu, add_model, gpu_names, model_names
from planner.errors import UsageError
from planner.planning.study import Study
from planner.ui.uploads import as_file

FOLDER = "own_profiles"
FOLDERS = {"gpu": "gpus", "model": "models"}
MOST_BYTES = 2**20


def add(kind: str, name: str, content: bytes) -> str:
    """Check a profile and keep it for the session; return its name.

    Parameters
    ----------
    kind : "gpu" (a TOML) or "model" (a config.json).
    name : of the model; a GPU's TOML has its own.

    Raises
    ------
    CatalogError, UnknownNameError : the profile is wrong.
    UsageError : it is too large, or the model has no name.
    """
    if len(content) > MOST_BYTES:
        raise UsageError(f"the profile has more than {MOST_BYTES // 2**20} MiB; it is a few kB of text")
    if kind == "gpu":
        with as_file("gpu.toml", content) as path:
            return add_gpu(path, _folder()).stem
    if not name.strip() or not name.isprintable():
        raise UsageError("the model needs a name, as in 'my-model'")
    with as_file("config.json", content) as path:
        return add_model(path, name, _folder()).stem


def own_names(kind: str) -> dict[str, Path]:
    """Return the session's own profiles by name."""
    if FOLDER not in st.session_state:
        return {}
    return {path.stem: path for path in sorted((_folder() / FOLDERS[kind]).glob("*.*"))}


def names(kind: str) -> Sequence[str]:
    """Return the names of all GPUs or models, the session's own first."""
    own = own_names(kind)
    return [*own, *(name for name in (gpu_names() if kind == "gpu" else model_names()) if name not in own)]


def profile_of(kind: str, name: str | None) -> str | None:
    """Return a profile's name in a scenario: the path of one of the session's own, else its name."""
    own = own_names(kind)
    return str(own[name]) if name in own else name


def name_of(value: str) -> str:
    """Return the name of a profile that a scenario has as a path."""
    return Path(value).stem if value.endswith((".toml", ".json")) else value


def kept_file(name: str, content: bytes) -> str:
    """Keep an uploaded file for the session, in place of an earlier one of that name; return its path."""
    if len(content) > MOST_BYTES:
        raise UsageError(f"{name}: has more than {MOST_BYTES // 2**20} MiB")
    path = _folder() / name
    path.write_bytes(content)
    return str(path)


def portable(study: Study) -> Study:
    """Return a study whose own files are beside it, as they are downloaded."""
    changed: dict[str, Any] = {
        option: Path(value).name for option in (*FOLDERS, "speculative_model", "tenants", "calibration", "fleet")
        if (value := getattr(study.scenario, option)) is not None and value.endswith((".toml", ".json"))}
    return replace(study, scenario=replace(study.scenario, **changed))


@dataclass(frozen=True, eq=False)
class _Folder:
    """A folder that is removed with the last reference to it, as when a session ends."""

    path: Path


def _folder() -> Path:
    """Return the session's folder, which is removed with the session."""
    if FOLDER not in st.session_state:
        kept = _Folder(path=Path(tempfile.mkdtemp(prefix="planner-")))
        weakref.finalize(kept, shutil.rmtree, kept.path, ignore_errors=True)
        st.session_state[FOLDER] = kept
    folder: _Folder = st.session_state[FOLDER]
    return folder.path
