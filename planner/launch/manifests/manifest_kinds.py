"""The kinds of deployment files, and a file read as the first of them that it is."""

from pathlib import Path

from planner.launch.described import Described


def read_manifest(path: Path) -> list[Described]:
    """Return the engines that a deployment file launches."""
    return []
