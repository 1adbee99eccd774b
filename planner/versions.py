"""Versions that a result depends on: planner, Python and the computing libraries."""

import functools
import platform
from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "llm-serving-planner"  # its name on the package index, on which "planner" is another project


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {"planner": own_version(), "python": platform.python_version(),
            **{name: version(name) for name in ("numba", "numpy", "polars")}}


def own_version() -> str:
    """Return the planner's version as it is installed, "unknown" for a checkout that is not."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
