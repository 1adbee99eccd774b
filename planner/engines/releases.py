"""Releases of engines: versions, their order, and defaults that began with one."""

from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

from planner.errors import UsageError


@dataclass(frozen=True, slots=True)
class Default:
    """A default that an engine has since a release."""

    option: str  # of `Scenario`
    since: str  # the first release that has it
    before: Any  # value in older releases if the user gives none


def is_release(version: str) -> bool:
    """Tell whether a text is the version of a release, as PEP 440 has it, and not that of a nightly build.

    >>> is_release("0.5.10.post1"), is_release("nightly-dev-20260216"), is_release("")
    (True, False, False)
    """
    try:
        Version(version)
    except InvalidVersion:
        return False
    return True


def stated_release(version: str | None) -> str | None:
    """Return a record's version if it is a release's, else None.

    >>> stated_release("1.1.0rc2.post2"), stated_release("nightly-dev-20260216"), stated_release(None)
    ('1.1.0rc2.post2', None, None)
    """
    return version if version is not None and is_release(version) else None


def check_release(version: str | None) -> None:
    """Raise UsageError if `engine_version` is not the version of a release."""
    if version is not None and not is_release(version):
        raise UsageError(f"engine_version = {version!r}: must be a release's, as in 0.5.9 or 1.2.0rc6.post3; leave it "
                         f"out for the newest")


def is_before(version: str | None, release: str | None, *, counts_candidates: bool = False) -> bool:
    """Tell whether a version belongs to an earlier release; None, the newest, does not, and none is before None.

    Parameters
    ----------
    counts_candidates : whether an earlier candidate of the same release is before it.

    >>> is_before("0.19.1", "0.20"), is_before("0.20.0rc1", "0.20"), is_before(None, "0.20")
    (True, False, False)
    >>> is_before("0.20.0rc1", "0.20.0rc2", counts_candidates=True)
    True
    """
    if version is None or release is None:
        return False
    one, other = Version(version), Version(release)
    return one < other if counts_candidates else one.release < other.release
