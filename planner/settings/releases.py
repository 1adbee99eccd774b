"""Releases of engines: what a version is, and which are before an engine's newest line."""

from packaging.version import InvalidVersion, Version

from planner.errors import UsageError

# The first release of an engine's newest line: older ones launch more kernels (`layers_once_slower`).
NEWEST_SINCE = {"sglang": "0.5.11", "trtllm": "1.2"}


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
    if version is None or engine not in NEWEST_SINCE:
        return False
    return Version(version).release < Version(NEWEST_SINCE[engine]).release
