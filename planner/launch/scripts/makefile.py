"""Makefiles: their variables and the lines of their recipes, as a script of a shell."""

import re

ASSIGNED = re.compile(r"(?:export\s+)?(\w+)\s*(\?=|::?=|=)\s*(.*)")
USED = re.compile(r"\$[({](\w+)[)}]")


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
