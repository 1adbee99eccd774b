"""Scripts of a shell in other files: the recipes of a Makefile, and the code of a Jupyter notebook."""

import json
import re
from collections.abc import Iterator

ASSIGNED = re.compile(r"(?:export\s+)?(\w+)\s*(\?=|::?=|=)\s*(.*)")
USED = re.compile(r"\$[({](\w+)[)}]")
MAGICS = ("%%bash", "%%sh", "%%script")


def recipes_of(text: str) -> str:
    """Return the variables and recipes of a Makefile as a shell's script; a variable's first default holds.

    >>> recipes_of("TP ?= 2\\nserve:\\n\\t@vllm serve m/m -tp $(TP) # $$HOME\\n").splitlines()
    ['TP=2', 'vllm serve m/m -tp ${TP} # $HOME']
    """
    lines, given = list[str](), set[str]()
    for line in text.splitlines():
        goes_on = bool(lines) and lines[-1].endswith("\\")
        if line.startswith("\t") or goes_on:
            command = USED.sub(r"${\1}", line).strip().replace("$$", "$")
            lines.append(command if goes_on else command.lstrip("@-+"))
        elif (match := ASSIGNED.fullmatch(line.strip())) and not (match[2] == "?=" and match[1] in given):
            given.add(match[1])
            lines.append(f"{match[1]}=" + USED.sub(r"${\1}", match[3]))
    return "\n".join(lines)


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
