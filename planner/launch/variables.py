"""Variables in the texts of launch files: one function puts in their values, in the syntax of each kind of file."""

import ast
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

USED = r"\$\{(?P<braced>\w+)(?:(?P<how>:?[-=+?])(?P<word>(?:[^{}]|\{[^{}]*\})*))?\}|\$(?P<plain>\w+)"
SYNTAXES: Mapping[str, re.Pattern[str]] = {name: re.compile(pattern) for name, pattern in {
    "shell": rf"\\\$|'[^']*'|\"?\$\{{(?P<other>\w+)\[[@*]\]\}}\"?|{USED}|\"?\$[@*]\"?",
    "compose": rf"\$\$|{USED}", "dockerfile": rf"\\\$|{USED}", "unit": rf"\$\$|{USED}|%\(ENV_(?P<other>\w+)\)s",
    "kubernetes": r"\$\$|\$\((?P<plain>\w+)\)"}.items()}
# Lines NAME=value of a file: in single quotes, in double quotes, or plain.
QUOTED = r"[ \t]*'((?:\\'|[^'])*)'|[ \t]*\"((?:\\.|[^\"\\])*)\"|"
LINES = {name: re.compile(rf"^[ \t]*{pattern}[ \t]*$", re.MULTILINE | re.DOTALL) for name, pattern in {
    "compose": rf"(?:export[ \t]+)?([\w.-]+)[ \t]*=(?:{QUOTED}([^\n]*?))(?:[ \t]+#[^\n]*)?",
    "unit": rf"([\w.-]+)[ \t]*=(?:{QUOTED}([^\n]*?))", "docker": r"([\w.-]+)=()()([^\n]*?)"}.items()}
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
SUM = re.compile(r"'[^']*'|\$\(\(((?:[^()]|\([^()]*\))*)\)\)")  # $((8 * NODES))
NAME = re.compile(r"[A-Za-z_]\w*")
OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda one, two: one + two, ast.Sub: lambda one, two: one - two, ast.Mult: lambda one, two: one * two,
    ast.Div: lambda one, two: int(one / two), ast.Mod: lambda one, two: one - two * int(one / two)}
MOST_LETTERS = 200  # of a sum


def put_in(text: str, values: Mapping[str, str | None], syntax: str = "shell", arguments: Sequence[str] = (),
           assigned: dict[str, str] | None = None) -> str:
    """Return a text with the values of its variables; variables without a value or a default stay.

    Parameters
    ----------
    values : by name; None if a variable may have several.
    syntax : one of `SYNTAXES`. Only a shell has sums.
    arguments : of a shell's script, for "$@".
    assigned : takes the values that `${NAME:=value}` assigns.

    >>> put_in("-tp ${TP:-4} --port ${PORT:-8000} '$TP' $MODEL $((2 * TP))", {"TP": "2"})
    "-tp 2 --port 8000 '$TP' $MODEL 4"
    >>> put_in("$(TP) $$TP", {"TP": "2"}, "kubernetes"), put_in("$$TP ${TP:+--tp $TP}", {"TP": "2"}, "compose")
    ('2 $TP', '$TP --tp 2')
    """
    assigned = {} if assigned is None else assigned

    def value(match: re.Match[str]) -> str:
        groups = match.groupdict()
        name = groups.get("other") or groups.get("braced") or groups.get("plain")
        if name is None:  # escaped, quoted, or the script's own arguments
            is_all = match[0].strip('"') in ("$@", "$*")
            return shlex.join(arguments) if is_all else "$" if match[0] == "$$" else match[0]
        if name not in assigned and values.get(name, "") is None:
            return f"${name}"
        known, how = assigned.get(name, values.get(name)), groups.get("how") or ""
        is_set = known is not None and (known != "" or not how.startswith(":"))
        if how.endswith("+"):
            return put_in(groups["word"], values, syntax, arguments, assigned) if is_set else ""
        if known is not None and is_set:
            return known
        if how == "" or how.endswith("?"):
            return match[0]
        default = put_in(groups["word"], values, syntax, arguments, assigned)
        default = default.strip("\"'") if syntax == "shell" else default
        if how.endswith("="):
            assigned[name] = default
        return default

    text = SYNTAXES[syntax].sub(value, text)
    return SUM.sub(lambda match: _sum_in(match, values), text) if syntax == "shell" else text


def variables_used(text: str, values: Mapping[str, str], syntax: str) -> dict[str, str]:
    """Return the variables that a text uses, without variables that have no value."""
    names = {name for match in SYNTAXES[syntax].finditer(text) for name in match.groupdict().values()}
    return {name: value for name, value in values.items() if name in names}


def read_variables(path: Path, syntax: str) -> dict[str, str] | None:
    """Return the variables of a file of lines NAME=value; None if there is no file."""
    return variables_in(path.read_text(encoding="utf-8-sig"), syntax) if path.is_file() else None


def variables_in(text: str, syntax: str) -> dict[str, str]:
    """Return the variables of lines NAME=value, in the grammar of the program that reads them.

    Compose takes quotes, comments behind a value, and earlier variables. systemd takes quotes and lines that go on.
    `docker run` and Podman take each value as it is.

    Parameters
    ----------
    syntax : "compose", "unit" or "docker".

    >>> lines = 'A="x # y" # c\\nB=$A z # c'
    >>> variables_in(lines, "compose"), variables_in(lines, "docker")
    ({'A': 'x # y', 'B': 'x # y z'}, {'A': '"x # y" # c', 'B': '$A z # c'})
    """
    text = text.replace("\r\n", "\n")
    found: dict[str, str] = {}
    for name, single, double, plain in LINES[syntax].findall(text.replace("\\\n", "") if syntax == "unit" else text):
        value = re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), double, flags=re.S) or (
            plain if syntax == "docker" else plain.strip())
        value = put_in(value, found, "compose") if syntax == "compose" else value
        found[name] = single.replace("\\'", "'") or value
    return found


def _sum_in(match: re.Match[str], values: Mapping[str, str | None]) -> str:
    """Return the value of `$((…))`; it stays if it has none."""
    if match[1] is None:
        return match[0]
    value = sum_of(NAME.sub(lambda name: values.get(name[0]) or name[0], match[1]))
    return match[0] if value is None else str(value)


def sum_of(text: str) -> int | None:
    """Return the value of whole numbers with + - * / % and brackets; None if it has none. Division cuts towards zero.

    >>> sum_of("2 * (8 - 1) / 4"), sum_of("8 /"), sum_of("1 / 0")
    (3, None, None)
    """
    try:
        return None if len(text) > MOST_LETTERS else _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, OverflowError, RecursionError, ValueError):
        return None


def _value(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            negated = _value(operand)
            return None if negated is None else -negated
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
            one, two = _value(left), _value(right)
            return None if one is None or two is None else OPERATORS[type(operator)](one, two)
    return None
