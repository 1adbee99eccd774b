"""Errors for users: each names the place, the value, the limit and the remedy."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NEAREST = 3  # names at most that an error offers for an unknown one
LEAST_LIKE, AS_LIKE = 0.45, 0.15  # of difflib's ratio: to be offered at all, and below the nearest name's
MANY = 24  # names: more are not printed if a command lists them
OF_OPTIONS = ("GPU", "model", "policy", "router")  # kinds whose option planner compare takes as a list
LISTS = {  # by kind of name
    "GPU": "planner db list", "model": "planner db list", "GPU or model": "planner db list",
    "option": "planner replay --help-all", "trace format": "docs/formats.md",
}


class PlannerError(Exception):
    """Base of every error that the planner raises for its user; the command line prints it as one line."""

    exit_code = 3


class UsageError(PlannerError):
    """An option or argument is wrong or does not fit the others."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A model, GPU, policy, format or column that the planner does not know; its text offers the nearest names."""

    def __init__(self, kind: str, name: str, known: Iterable[str], remedy: str | None = None) -> None:
        super().__init__(f"unknown {kind} {name!r}; {remedy or _offer(kind, name, sorted(known))}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text, as it comes back from another process."""
        return _unpickled, (type(self), str(self))


def _offer(kind: str, name: str, known: list[str]) -> str:
    """Offer the three nearest names, and the command that lists all if there are many.

    >>> _offer("policy", "fcsf", ["edf", "fcfs", "sjf"]), _offer("policy", "x", ["edf", "fcfs"])
    ("did you mean 'fcfs'?", 'known: edf, fcfs')
    """
    if kind in OF_OPTIONS and "," in name and any(part.strip() in known for part in name.split(",")):
        return (f"one {kind} is asked for here; planner sweep takes several by --axis, as in --axis {kind.lower()}="
                f"{name}, and planner compare as they are")
    close = difflib.get_close_matches(name.lower(), known, n=NEAREST, cutoff=LEAST_LIKE)
    likeness = [difflib.SequenceMatcher(None, name.lower(), one).ratio() for one in close]
    near = [repr(one) for one, like in zip(close, likeness, strict=True) if like >= likeness[0] - AS_LIKE]
    said = [f"did you mean {' or '.join(filter(None, (', '.join(near[:-1]), near[-1])))}?"] if near else []
    if len(known) > MANY and kind in LISTS:
        said.append(f"{LISTS[kind]} lists all {len(known)}")
    return "; ".join(said) or f"known: {', '.join(known)}"


def _unpickled(kind: type[PlannerError], text: str) -> PlannerError:
    error = kind.__new__(kind)
    error.args = (text,)
    return error


class TraceError(PlannerError):
    """A trace file cannot be read, or a row in it is wrong."""


class NoOutputsError(TraceError):
    """A trace has no output tokens, as traffic of embedding models has none."""


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
