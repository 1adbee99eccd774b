"""Users' functions compiled for the loop, and the errors of functions that cannot be compiled."""

import dis
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from planner.errors import PolicyError
from planner.loop.compiled.fields_read import calls
from planner.loop.compiled.jit import compile_with_signature
from planner.policies.functions import said, where
from planner.policies.policy import StepState
from planner.policies.router import ReplicaLoad

NOISE = ("Failed in", "During", "File ", "Raised from", "There are", "- ", "-", "^")  # lines of Numba's errors


def compiled_function(owner: str, field: str, function: Callable[..., Any], signature: Any, returns: str) -> Any:
    """Return a user's function as a typed one that the loop can call.

    Parameters
    ----------
    owner : the policy or the router, as errors call it.
    field : of it, whose function it is.
    signature : Numba's type of it.
    returns : the required return value, for the error.

    Raises
    ------
    PolicyError : it prints, or cannot be compiled; the error has its file and line.
    """
    path = function.__code__.co_filename
    line = calls(function, print)
    if line is not None:
        raise PolicyError(f"{owner}: {path}:{line}: {field} must not print: results go to stdout, and it is called in "
                          f"every step; remove the print")
    try:  # typed into a notebook or a shell, it has no file beside which to keep the code
        return compile_with_signature(function, signature, cache=Path(path).is_file())
    except Exception as error:  # Numba raises errors of many kinds
        raise PolicyError(f"{owner}: {_place(function, error)}: {field} cannot be compiled: {_cause(error)}; it may "
                          f"use numbers, comparisons, arithmetic, math and functions under numba.njit only, and must "
                          f"return {returns}") from error


def _place(function: Callable[..., Any], error: Exception) -> str:
    """Return the file and line that Numba blames."""
    path = function.__code__.co_filename
    lines = re.findall(rf'(?:File "[^"]*{re.escape(Path(path).name)}", line |Raised from {re.escape(path)} \()(\d+)',
                       str(error))
    missing = re.search(r"NameError: name '(\w+)' is not defined", str(error))
    if missing and not lines:
        lines = _lines_of(function, missing[1])
    return f"{path}:{lines[-1]}" if lines else where(function)


def _lines_of(function: Callable[..., Any], name: str) -> list[int]:
    """Return the lines at which a function reads a name."""
    places = [step.positions for step in dis.get_instructions(function) if step.argval == name]
    return [place.lineno for place in places if place is not None and place.lineno is not None]


def _cause(error: Exception) -> str:
    """Return the telling words of an error of Numba, which is many lines long, on one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line.removeprefix(">>> ") for line in lines if line and not line.startswith(NOISE)]
    if not telling:
        return said(error).split(":")[0]
    returned = re.match(r"No conversion from (.*) to .* for '\$.*return_value", telling[0])
    if returned:
        return f"it returns {returned[1]}"
    unknown = re.match(r"Unknown attribute '(\w+)' of type (\w+)\(", telling[0])
    if unknown:
        return f"{unknown[2]} has no {unknown[1]!r}{_fields_of(unknown[2])}"
    is_split = telling[0].endswith("found for signature:") and len(telling) > 1
    return f"no such operation: {telling[1]}" if is_split else telling[0]


def _fields_of(kind: str) -> str:
    """Return the fields of a function's argument, for the error."""
    known = {record.__name__: record._fields for record in (StepState, ReplicaLoad)}
    return f"; it has {', '.join(known[kind])}" if kind in known else ""
