"""A policy, a router or an autoscaler by name, or from a user's file."""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from planner.errors import PolicyError, UnknownNameError, UsageError
from planner.policies.autoscaler import Autoscaler
from planner.policies.builtin_autoscalers import AUTOSCALERS
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.policies.functions import failing_line, said, users_code
from planner.policies.policy import Policy
from planner.policies.router import Router

T = TypeVar("T", Policy, Router, Autoscaler)


def load_policy(name: str) -> Policy:
    """Return the policy of that name, or the `Policy` in `path/to/file.py:name`.

    Raises
    ------
    UnknownNameError : no policy has that name.
    UsageError : a file is given without the name in it, or under a name that does not end in .py.
    PolicyError : the file is missing or broken (its line is named), or `name` in it is no `Policy`.
    """
    return _load("policy", name, POLICIES, Policy)


def load_router(name: str) -> Router:
    """Return the router of that name, or the `Router` in `path/to/file.py:name`. Errors: as `load_policy`."""
    return _load("router", name, ROUTERS, Router)


def load_autoscaler(name: str) -> Autoscaler:
    """Return the autoscaler of that name, or the `Autoscaler` in `path/to/file.py:name`. Errors: as `load_policy`."""
    return _load("autoscaler", name, AUTOSCALERS, Autoscaler)


def _load(kind: str, name: str, known: Mapping[str, T], wanted: type[T]) -> T:
    if not isinstance(name, str):
        raise UsageError(f"{kind}: {type(name).__name__} is no name; write it to a file, and give "
                         f"{kind}='FILE.py:NAME'")
    path, _, attribute = name.rpartition(":")
    if name.endswith(".py"):
        path, attribute = name, ""
    if not path.endswith(".py"):
        if path:
            raise UsageError(f"{kind} {name!r}: {path} is not a Python file; must be FILE.py:NAME, or one of "
                             f"{', '.join(known)}")
        if name not in known:
            raise UnknownNameError(kind, name, known)
        return known[name]
    module = _import_file(kind, Path(path))
    names = [key for key, value in vars(module).items() if isinstance(value, wanted)]
    listed = f"it has {', '.join(names)}" if names else f"it has no {wanted.__name__}"
    if not attribute:
        raise UsageError(f"{kind} {name!r} lacks the name in the file; must be {path}:NAME, and {listed}")
    loaded = getattr(module, attribute, None)
    if loaded is None:
        raise PolicyError(f"{kind} file {path} defines no {attribute!r}; {listed}")
    if not isinstance(loaded, wanted):
        raise PolicyError(f"{kind} file {path}: {attribute} is a {type(loaded).__name__}; must be a {wanted.__name__}, "
                          f"and {listed}")
    return loaded


def _import_file(kind: str, path: Path) -> ModuleType:
    """Run a user's file as a module."""
    if not path.is_file():
        raise PolicyError(f"{kind} file {path} does not exist")
    spec = importlib.util.spec_from_file_location(f"planner_user_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with users_code():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        line = failing_line(str(spec.origin), error)
        raise PolicyError(f"{kind} file {path}{'' if line is None else f' line {line}'}: {said(error)}") from error
    return module
