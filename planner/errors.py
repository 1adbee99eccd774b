"""Errors for users: each names the place, the value, the limit and the remedy."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class PlannerError(Exception):
    """Base of every error that the planner raises for its user; the command line prints it as one line."""

    exit_code = 3


class UsageError(PlannerError):
    """An option or argument is wrong or does not fit the others."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A model, GPU, policy, format or column that the planner does not know."""

    def __init__(self, kind: str, name: str, known: Iterable[str], remedy: str | None = None) -> None:
        choices = sorted(known)
        close = difflib.get_close_matches(name.lower(), choices, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(choices)}"
        super().__init__(f"unknown {kind} {name!r}; {remedy or hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text, as it comes back from another process."""
        return _unpickled, (type(self), str(self))


def _unpickled(kind: type[PlannerError], text: str) -> PlannerError:
    error = kind.__new__(kind)
    error.args = (text,)
    return error


class TraceError(PlannerError):
    """A trace file cannot be read, or a row in it is wrong."""


class CatalogError(PlannerError):
    """A hardware or model description is missing, malformed or unsupported."""


class CapacityError(PlannerError):
    """The model does not fit the memory that it was given."""


class PolicyError(PlannerError):
    """A scheduling policy is broken or made no progress."""


class TargetsError(PlannerError):
    """A targets file is malformed, or a scenario in it cannot be replayed."""


class ClusterError(PlannerError):
    """A cluster's file is malformed, or a deployment in it cannot be replayed."""


class AutoscaleError(PlannerError):
    """An autoscaler's file is malformed."""


class StudyError(PlannerError):
    """A study's file is malformed."""


class FleetError(PlannerError):
    """A fleet's file is malformed, or its pools do not fit each other."""


class SweepError(PlannerError):
    """A sweep's file is malformed."""


class BaselineError(PlannerError):
    """A recorded baseline is damaged."""


class OutputError(PlannerError):
    """A result could not be written."""


@contextmanager
def told_as(kind: type[PlannerError], path: Path) -> Iterator[None]:
    """Raise a fault of a file as an error of its kind, with the file's name if the message lacks it."""
    try:
        yield
    except PlannerError as error:
        raise kind(str(error) if str(path) in str(error) else f"{path}: {error}") from error
