"""The code of a Jupyter notebook: Python, or the commands of a shell that it has."""

import json
from collections.abc import Iterator

MAGICS = ("%%bash", "%%sh", "%%script")


def code_of(text: str) -> str:
    r"""Return the Python of a notebook; if its cells have lines of a shell that launch something, these.

    >>> code_of('{"cells": [{"cell_type": "code", "source": ["%pip install vllm\\n", "import vllm"]}]}')
    'import vllm'
    """
    try:
        cells = json.loads(text).get("cells") or []
    except (ValueError, AttributeError, RecursionError):
        return ""
    sources = ["".join(cell.get("source") or ()) for cell in cells
               if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    shell = "\n".join(_shell(sources))
    python = "\n".join(line for source in sources if not source.startswith("%%") for line in source.splitlines()
                       if not line.lstrip().startswith(("!", "%")))
    return shell if "serve" in shell or "launch_server" in shell else python


def _shell(sources: list[str]) -> Iterator[str]:
    """Yield the lines of cells that a shell runs."""
    for source in sources:
        if source.startswith(MAGICS):
            yield source.partition("\n")[2]
            continue
        is_open = False
        for line in source.splitlines():
            if is_open or line.lstrip().startswith("!"):
                yield line.lstrip().removeprefix("!")
                is_open = line.rstrip().endswith("\\")
