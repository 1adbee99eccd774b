"""Releases of engines: what a version is, which are before an engine's newest line, and what older ones left off."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

from planner.errors import UsageError

# The first release of an engine's newest line: older ones launch more kernels (`layers_once_slower`).
NEWEST_SINCE = {"sglang": "0.5.11", "trtllm": "1.2"}


@dataclass(frozen=True, slots=True)
class Default:
    """A default that an engine has since a release.

    Parameters
    ----------
    option : of `Scenario`.
    since : the first release that has it.
    before : what older ones do where they are told nothing.
    """

    option: str
    since: str
    before: Any


# vLLM's: pull requests 27614 (release notes of 0.14.0) and 34299; routers in 32 bit had cuBLAS for a kernel until 0.20.
DEFAULTS_SINCE = {"vllm": (Default("async_scheduling", "0.14", before=False),
                           Default("fuse_allreduce_rms", "0.16", before=False),
                           Default("fp32_matmul", "0.20", before="fp32"))}


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
    """Return what a record gives as its version where that is a release's, else None.

    >>> stated_release("1.1.0rc2.post2"), stated_release("nightly-dev-20260216"), stated_release(None)
    ('1.1.0rc2.post2', None, None)
    """
    return version if version is not None and is_release(version) else None


def check_release(version: str | None) -> None:
    """Raise UsageError where `engine_version` is not the version of a release."""
    if version is not None and not is_release(version):
        raise UsageError(f"engine_version = {version!r}: must be a release's, as in 0.5.9 or 1.2.0rc6.post3; leave it "
                         f"out for the newest")


def is_older(engine: str, version: str | None) -> bool:
    """Tell whether a release is before the engine's newest line; a release candidate is of the release that it is for.

    Parameters
    ----------
    version : None for the newest.

    >>> is_older("trtllm", "1.1.0rc2.post2"), is_older("trtllm", "1.2.0rc2"), is_older("sglang", None)
    (True, False, False)
    """
    return engine in NEWEST_SINCE and is_before(version, NEWEST_SINCE[engine])


def defaults_before(engine: str, version: str | None) -> Iterator[Default]:
    """Yield the defaults that a release does not have yet.

    >>> [default.option for default in defaults_before("vllm", "0.15.1")]
    ['fuse_allreduce_rms', 'fp32_matmul']
    """
    yield from (default for default in DEFAULTS_SINCE.get(engine, ()) if is_before(version, default.since))


def left_off(engine: str, version: str | None, scenario: Any) -> dict[str, Any]:
    """Return what a release makes of a scenario's options that are left to the engine, None or "auto".

    >>> from types import SimpleNamespace
    >>> given = SimpleNamespace(async_scheduling=None, fuse_allreduce_rms=True, fp32_matmul="auto")
    >>> left_off("vllm", "0.13.0", given)
    {'async_scheduling': False, 'fp32_matmul': 'fp32'}
    """
    return {default.option: default.before for default in defaults_before(engine, version)
            if getattr(scenario, default.option) in (None, "auto")}


def is_before(version: str | None, release: str) -> bool:
    """Tell whether a version is of an earlier release; None, the newest, is not.

    >>> is_before("0.19.1", "0.20"), is_before("0.20.0rc1", "0.20"), is_before(None, "0.20")
    (True, False, False)
    """
    return version is not None and Version(version).release < Version(release).release
