"""Checks of users' functions, and the file and line of a failure."""

import contextlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from planner.errors import PlannerError, PolicyError


def check_function(owner: str, field: str, function: Any, takes: tuple[str, ...]) -> None:
    """Raise an error unless a field is a plain function of as many arguments as `takes`.

    Parameters
    ----------
    owner : the policy, router or autoscaler, as errors call it.
    field : of it.
    takes : names of the arguments that it will be called with.

    Raises
    ------
    PolicyError : it is something else, or takes other arguments.
    """
    if hasattr(function, "py_func"):
        raise PolicyError(f"{owner}: {field} is already compiled ({where(function.py_func)}); remove its decorator")
    if not isinstance(function, FunctionType):
        raise PolicyError(f"{owner}: {field} = {function!r}; must be a function of ({', '.join(takes)}), by def or "
                          f"lambda")
    try:
        inspect.signature(function).bind(*takes)
    except TypeError as error:
        raise PolicyError(f"{owner}: {field} ({where(function)}) takes {inspect.signature(function)}; must take "
                          f"({', '.join(takes)})") from error


def check_choice(owner: str, field: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise an error unless a field has one of the values that it may have."""
    if value not in choices:
        raise PolicyError(f"{owner}: {field} = {value!r}; must be one of {', '.join(map(repr, choices))}")


def where(function: Callable[..., Any]) -> str:
    """Return the file and line of a function."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def failing_place(function: Callable[..., Any], error: BaseException) -> str:
    """Return the file and line at which a function failed, or the function's own if the error does not tell."""
    path = function.__code__.co_filename
    line = failing_line(path, error)
    return where(function) if line is None else f"{path}:{line}"


def failing_line(path: str, error: BaseException) -> int | None:
    """Return the line of a file at which its code failed, None if the error does not tell.

    Parameters
    ----------
    path : as Python has it: absolute for an imported file.
    """
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return lines[-1] if lines else None


def said(error: BaseException) -> str:
    """Return an error on one line: its kind, unless it is one of ours, and its message."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    kind = "" if isinstance(error, PlannerError) else type(error).__name__
    return ": ".join(part for part in (kind, " ".join(text.split())) if part)


@contextlib.contextmanager
def users_code() -> Iterator[None]:
    """Let a user's code run: it prints to stderr, since results go to stdout."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
