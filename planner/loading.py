"""A policy by name, or from a user's file."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from planner.errors import PolicyError, UnknownNameError
from planner.policies import POLICIES
from planner.policy import Policy


def load_policy(name: str) -> Policy:
    """Return the policy of that name, or the `Policy` that a `path/to/file.py:name` holds.

    Raises
    ------
    UnknownNameError : no policy has that name.
    PolicyError : the file is missing or broken (its line is named), or `name` in it is no `Policy`.
    """
    path, separator, attribute = name.rpartition(":")
    if not separator or not path.endswith(".py"):
        if name not in POLICIES:
            raise UnknownNameError("policy", name, POLICIES)
        return POLICIES[name]
    module = _import_file(Path(path))
    policy = getattr(module, attribute, None)
    if policy is None:
        names = [key for key, value in vars(module).items() if isinstance(value, Policy)]
        raise PolicyError(f"{path} defines no {attribute!r}; it has {', '.join(names) or 'no Policy'}")
    if not isinstance(policy, Policy):
        raise PolicyError(f"{path}: {attribute} is a {type(policy).__name__}; must be a planner.Policy")
    return policy


def _import_file(path: Path) -> ModuleType:
    """Run a user's file as a module."""
    if not path.is_file():
        raise PolicyError(f"policy file {path} does not exist")
    spec = importlib.util.spec_from_file_location(f"planner_user_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [0])[-1]
        raise PolicyError(f"policy file {path} line {line}: {type(error).__name__}: {error}") from error
    return module
