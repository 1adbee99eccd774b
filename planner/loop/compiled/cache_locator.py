"""Numba's folder for the package's compiled functions."""

import importlib
from pathlib import Path
from typing import Any

caching: Any = importlib.import_module("numba.core.caching")


class PackageCacheLocator(caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """The folder of this package's compiled functions: one for all installations of the same source.

    Numba names the subfolder by the file's folder. The folder above is named by the source already, and a second
    environment would compile the same functions again.
    """

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Return the name of the subfolder of a file's functions; of a file of the user's as Numba names it."""
        path, package = Path(py_file).resolve(), Path(__file__).resolve().parents[2]
        if path.is_relative_to(package):
            return ".".join(path.relative_to(package).with_suffix("").parts)
        return str(super().get_suitable_cache_subpath(py_file))
