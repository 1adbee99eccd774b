"""The launch in a shell script: its line, with the variables, arrays and defaults that the script assigns."""

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from planner.engines import ENGINES
from planner.errors import UsageError
from planner.launch.beginnings import BEGINNINGS, bare_words, find_launch, launched, shell_words
from planner.launch.described import Described
from planner.launch.scripts.branches import PATTERN, UNSET, Block, holds
from planner.launch.variables import put_in

ASSIGNED = re.compile(r"^(?:(?:export|local|readonly|declare|typeset)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)=(.*)$", re.S)
BARE_FLAG = re.compile(r"--?[A-Za-z]")
ARRAY = re.compile(r"^\s*(?:(?:export|local|declare)\s+(?:-\w+\s+)*)?\w+\+?=\(")
EXPORTED = re.compile(r"^(?:export|(?:declare|typeset)\s+-\w*x\w*)\s")
# A command in a variable: $CMD, "${CMD[@]}", exec $CMD, eval "$CMD", bash -c "$CMD".
FROM_VARIABLE = re.compile(r"^(?:(?:exec|eval|nohup|time|sudo|env|[A-Za-z_]\w*=\S*)\s+|"
                           r"(?:\S*/)?(?:ba|da|a|z)?sh\s+-\w*c\s+)*\"?\$")
KEY = re.compile(r"^[\w.\"-]+\s+=\s")  # of a file that is no script
# Requests of a batch system, and the variables that it sets for them.
SBATCH = re.compile(r"^#SBATCH\s+(--nodes|-N|--gpus-per-node|--ntasks|-n)[\s=]+(?:\w+:)?(\d+)[ \t]*(?:#.*)?$", re.M)
OF_SBATCH = {"--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "-N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
             "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"), "--ntasks": ("SLURM_NTASKS",),
             "-n": ("SLURM_NTASKS",)}
LOOP = re.compile(r"^for\s+(\w+)\s+in\s+(.*)$", re.S)
SPAN = re.compile(r"\{(-?\d+)\.\.(-?\d+)\}|\$\(seq(?:\s+(-?\d+))?\s+(-?\d+)\)")
CASE = re.compile(r"^case\s+(\"[^\"]*\"|\S+)\s+in\b\s*(.*)$", re.S)
ONE_TEST = r"!?\s*(?:\[\[?\s(?:(?!\s\]).)*\s\]\]?|test\s[^&|]*?)"
# [ -n "$X" ] && Y=1, also behind several tests
SHORT = re.compile(rf"^({ONE_TEST}(?:\s+(?:&&|\|\|)\s+{ONE_TEST})*)\s+(&&|\|\|)\s+(.*)$", re.S)
NAMES = re.compile(r"\$\{?(\w+)")
PART = re.compile(r"""(?:[^;'"\\]|\\.|'[^']*'|"(?:\\.|[^"\\])*")+""", re.S)  # up to a semicolon outside quotes
# A file that the script writes: cat > engine.yaml <<'EOF'; the lines up to EOF are its text.
HEREDOC = re.compile(r"""^cat\s+(?:>{1,2}\s*(\S+)\s+<<-?\s*(['"]?)(\w+)\2|<<-?\s*(['"]?)(\w+)\4\s*>{1,2}\s*(\S+))""")
GOES_ON = ("\\", " `", " ^")  # of a shell, PowerShell and Windows' shell
# Lines for a command that runs none of them: the text of a message, of a file, or of a manifest that kubectl applies.
SHOWN = re.compile(r"""^(?:cat|tee|kubectl|oc|echo|printf|read)\b[^\n]*<<-?\s*(['"]?)(\w+)\1""")
APPLIED = re.compile(r"""^(?=[^\n]*\b(?:kubectl|oc)\b)(?=[^\n]*-f\s*-)[^\n]*<<-?\s*(['"]?)(\w+)\1[^\n]*\n"""
                     r"""(.*?)^\s*\2\s*$""", re.MULTILINE | re.DOTALL)
ENDLESS = "runs in a loop of unknown length; one engine is predicted. --data-parallel-size has their number"
MOST_LETTERS = 100_000  # of a variable, which a script may double again and again
OPENS, CLOSES = ("if", "case", "for", "while", "until", "select"), ("fi", "esac", "done")


@dataclass(slots=True)
class Variables:
    """Variables of a script: each has the values that it can have, more than one if they depend on a branch.

    Parameters
    ----------
    values : of each variable.
    exported : names of variables that its commands see.
    arguments : of the script, which it has as "$@".
    used : names that texts of the script have.
    from_unset : names by whose defaults a variable has its value, because these names are not set.
    notes : on branches that a variable decides which is not set.
    """

    values: dict[str, list[str]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    arguments: Sequence[str] = ()
    used: set[str] = field(default_factory=set)
    from_unset: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Return the exported variables with a single value, which commands of the script see."""
        return {name: values[0] for name in self.values if name in self.exported
                and len(values := self.values[name]) == 1}

    def assign(self, name: str, value: str, *, is_added: bool, is_certain: bool) -> None:
        """Assign a value, or add it to the variable's possible values if the line is one of a branch."""
        before, value = self.values.get(name, []), value[:MOST_LETTERS]
        new = [f"{one} {value}".strip()[:MOST_LETTERS] for one in before or [""]] if is_added else [value]
        self.values[name] = new if is_certain or not before else list(dict.fromkeys([*before, *new]))

    def put_in(self, text: str) -> str:
        """Return a text with the values of its variables; variables without a single value stay as they are."""
        assigned: dict[str, str] = {}
        single = {name: values[0] if len(values) == 1 else None for name, values in self.values.items()}
        text = put_in(text, single, arguments=self.arguments, assigned=assigned)
        self.values |= {name: [value] for name, value in assigned.items()}
        self.from_unset |= {name: (name,) for name in assigned}
        return text

    def unset_in(self, text: str) -> tuple[str, ...]:
        """Return the names that decide a text by being unset: its own, and those behind the values of its variables."""
        names = NAMES.findall(text)
        self.used.update(names)
        return tuple(dict.fromkeys(unset for name in names for unset in (
            self.from_unset.get(name, ()) if name in self.values else (name,))))

    def note(self, text: str, number: int, result: str) -> None:
        """Note that a branch of a line has a result because variables are not set."""
        if unset := self.unset_in(text):
            names = " and ".join(f"argument {name}" if name.isdigit() else name for name in unset)
            values = " or ".join(f"{name}=VALUE" for name in unset if not name.isdigit())
            remedy = f"{values} before the command, or in its environment, changes it" if values else (
                "give the command that the script runs with arguments")
            self.notes.append(f"runs with {names} unset: `{text}` of line {number} {result}; {remedy}")


def applied_manifests(text: str) -> Iterator[str]:
    """Yield the manifests that a script gives to kubectl: `kubectl apply -f - <<EOF`, `cat <<EOF | kubectl …`."""
    yield from (match[3] for match in APPLIED.finditer(text))


def script_launches(text: str, variables: Mapping[str, str] | None = None, arguments: Sequence[str] = (), *,
                    where: str = "", keeps_others: bool = False) -> Iterator[Described]:
    """Yield the engines that the lines of a script launch; branches that do not run are left out.

    Parameters
    ----------
    variables : of the environment.
    arguments : of the script.
    where : follows the number of a line in its place.
    keeps_others : whether variables that the engine does not know count, unless the script uses them itself. Else a
        script's variables are left out, as it exports many for other commands.

    Raises
    ------
    UsageError : flags of a launch stand on a line of their own, which no backslash joins to it.
    """
    requested = {name: value for flag, value in SBATCH.findall(text) for name in OF_SBATCH[flag]}
    known = Variables({name: [value] for name, value in {**requested, **(variables or {})}.items()},
                      arguments=arguments)
    files: dict[str, str] = {}
    blocks: list[Block] = []  # that are open
    launched_at: int | None = None  # line before this one, if it launches an engine
    for number, line, body in _lines(text):
        if launched_at is not None and BARE_FLAG.match(line):
            raise UsageError(f"--from-command: line {number} begins with the flag {line.split()[0]}, and line "
                             f"{launched_at} launches an engine without it; end the line before it with a backslash, "
                             f"without a comment between them")
        launched_at = None
        if written := HEREDOC.match(line):
            if any(block.runs is False for block in blocks):
                continue
            is_quoted = bool(written[2] or written[4])
            files[known.put_in(written[1] or written[6]).strip("\"'")] = body if is_quoted else known.put_in(body)
            continue
        for part in _commands(line):
            left = _entered(known, blocks, part, number)
            states = [block.runs for block in blocks]
            for command, is_sure in _chosen(known, left, number):
                if False in states:
                    _leave_out(known, command)
                elif not _assigns(known, command, is_sure and None not in states) and (
                        words := _launching(known, command)):
                    launched_at = number
                    counts = [block.times for block in blocks] if command.endswith("&") else []
                    yield Described(words=words, place=f"line {number}{where}", files=dict(files),
                                    variables=_seen(known, words, variables or {}, keeps_others),
                                    replicas=1 if None in counts else math.prod(count or 1 for count in counts),
                                    notes=(*known.notes, *((ENDLESS,) if None in counts else ())))


def _seen(known: Variables, words: Sequence[str], environment: Mapping[str, str], keeps_others: bool) -> dict[str, str]:
    """Return the variables of the environment, and of the script, that count for an engine."""
    of_engine = ENGINES[launched(words).engine].dialect.known_variables
    return {name: value for name, value in {**environment, **known.environment}.items()
            if name in of_engine or (keeps_others and name not in known.used)}


def _entered(known: Variables, blocks: list[Block], part: str, number: int) -> str:
    """Open, change or close the blocks that a part of a line does, and return the command that is left of it."""
    if blocks and blocks[-1].kind == "case" and part != "esac" and (pattern := PATTERN.match(part)):
        blocks[-1].enter_pattern(known.put_in(pattern[1]))
        part = pattern[2]
    first, _, rest = part.partition(" ")
    if first == "if":
        blocks.append(Block(kind=first))
        blocks[-1].runs = _holds(known, rest, number, blocks[:-1])
        return ""
    if case := CASE.match(part):
        unset = [name for name in known.unset_in(case[1]) if name not in known.values and not name.isdigit()]
        word = UNSET.sub(lambda match: "" if (match[1] or match[2]) in unset else match[0],
                         known.put_in(case[1])).strip("\"'")
        is_known = "$" not in word and "`" not in word
        if is_known and all(block.runs is not False for block in blocks):
            known.note(f"case {case[1]} in", number, f"has the word {word!r}")
        blocks.append(Block(kind="case", word=word if is_known else None, runs=False))
        return _entered(known, blocks, case[2], number) if case[2] else ""
    if first in OPENS:
        blocks.append(Block(kind=first, times=_times(known, part, first)))
    elif first in CLOSES and blocks:
        blocks.pop()
    elif first == "elif" and blocks:
        has_run = blocks[-1].is_done or blocks[-1].runs is True  # the shell does not evaluate the condition then
        blocks[-1].enter(False if has_run else _holds(known, rest, number, blocks[:-1]))
        return ""
    elif first == "else" and blocks:
        blocks[-1].enter(True)
    return rest.strip() if first in ("then", "else", "do") else part


def _holds(known: Variables, condition: str, number: int, around: Sequence[Block]) -> bool | None:
    """Tell whether a condition holds; a variable that is not set gets a note if the branch is reached."""
    found = holds(condition, known.put_in, known.values.__contains__)
    if found is not None and all(block.runs is not False for block in around):
        known.note(condition, number, "holds" if found else "does not hold")
    return found


def _chosen(known: Variables, command: str, number: int) -> Iterator[tuple[str, bool]]:
    """Yield the command behind a test, and whether it runs for sure: `[ -n "$X" ] && A || B`."""
    short = SHORT.match(command)
    if short is None:
        yield command, True
        return
    found, (one, _, other) = _holds(known, short[1].strip(), number, ()), short[3].partition(" || ")
    if short[2] == "||":
        found = None if found is None else not found
    if found is not False:
        yield one, found is True
    if other and found is not True:
        yield other, found is False
    elif found is False:
        _leave_out(known, one)


def _leave_out(known: Variables, command: str) -> None:
    """Let a variable that a branch assigns which does not run be empty, unless it has a value."""
    if match := ASSIGNED.match(command):
        known.values.setdefault(match[1], [""])


def _commands(line: str) -> Iterator[str]:
    """Yield the commands of a line."""
    for part in map(str.strip, PART.findall(line)):
        before, is_ended, end = part.rpartition("& ")
        yield from (f"{before}&", end) if is_ended and end.strip() in CLOSES else (part,)


def _times(known: Variables, part: str, first: str) -> int | None:
    """Return how often a block runs, None if it is not known; a loop's variable has all of its values."""
    loop = LOOP.match(part)
    if loop is None:
        return None if first in ("for", "while", "until") else 1
    values = [str(value) for value in _values(known.put_in(loop[2]))]
    known.values[loop[1]] = values
    return None if any("$" in value or "*" in value for value in values) else len(values)


def _values(text: str) -> Sequence[int | str]:
    """Return the values of a loop: words, {0..3}, or $(seq 0 3)."""
    if span := SPAN.fullmatch(text.strip()):
        first, last = (int(span[1] or span[3] or 1), int(span[2] or span[4]))
        return range(first, last + 1)
    return text.split()


def _assigns(known: Variables, line: str, is_certain: bool) -> bool:
    """Take the assignments of a line over; tell whether it has nothing else."""
    match = ASSIGNED.match(line)
    if match is None:
        if EXPORTED.match(line):
            known.exported.update(line.split()[1:])
        if line.startswith(":"):
            known.put_in(line)
        return line.startswith(":")
    name, plus, value = match.groups()
    if EXPORTED.match(line):
        known.exported.update(re.findall(r"(?:^|\s)([A-Za-z_]\w*)\+?=", line))
    is_array, unset = value.startswith("("), known.unset_in(value)
    try:
        words = shell_words(known.put_in(value.strip()[1:].rpartition(")")[0] if is_array else value))
    except ValueError:  # a quote is open
        return True
    known.from_unset[name] = (*(known.from_unset.get(name, ()) if plus else ()), *unset)
    if is_array:
        known.assign(name, shlex.join(words), is_added=bool(plus), is_certain=is_certain)
        return True
    if len(words) > 1 and not line.startswith(("export", "declare", "local", "readonly", "typeset")) and not all(
            ASSIGNED.match(word) for word in words[1:]):
        return False  # set for one command
    known.assign(name, words[0] if words else "", is_added=bool(plus), is_certain=is_certain)
    for word in words[1:]:
        if further := ASSIGNED.match(word):
            known.assign(further[1], further[3], is_added=bool(further[2]), is_certain=is_certain)
    return True


def _launching(known: Variables, line: str) -> list[str]:
    """Return the words of a line that launches an engine; of another one none."""
    try:
        if KEY.match(line) or (find_launch(shell_words(line)) is None and not FROM_VARIABLE.match(line)):
            return []
        words = shell_words(known.put_in(line))
        known.used.update(NAMES.findall(line))
        words = shell_words(" ".join(words[1:])) if words[:1] == ["eval"] else words
        return [] if find_launch(words) is None else words
    except (ValueError, UsageError):  # a quote is open
        return []


def _is_open(line: str) -> bool:
    """Tell whether a quote is open in a line that launches an engine, as in JSON over several lines."""
    try:
        bare_words(line)
    except ValueError:
        return _launches(line)
    return False


def _launches(line: str) -> bool:
    """Tell whether a line has the beginning of a launch, also if a quote is open in it."""
    return any(pattern.search(line) for pattern, _ in BEGINNINGS)


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield lines with their numbers, without comments, and with the text that they write into a file.

    Lines that end with a backslash or within an array are joined. A comment ends a command that a backslash goes on
    with, as in a shell.
    """
    whole, begin = "", 0
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        begin = begin or number
        bare = line.rstrip()
        if bare.lstrip().startswith("#"):
            if not whole.endswith(" "):
                continue
            bare = ""
        if line.endswith(GOES_ON) and bare:
            whole += bare[:-1] + " "
            continue
        whole += bare
        if bare.endswith("\\") and _launches(whole):
            raise UsageError(f"--from-command: line {number} has a space behind its backslash, so a shell does not go "
                             f"on with the next line; remove the space")
        if (ARRAY.match(whole) and whole.count("(") > whole.count(")")) or _is_open(whole):
            whole += "\n"
            continue
        if whole.strip():
            written, shown = HEREDOC.match(whole.strip()), SHOWN.match(whole.strip())
            end = (written[3] or written[5]) if written else shown and shown[2]
            body = takewhile(lambda each: each[1].strip() != end, lines) if end else ()  # noqa: B023
            yield begin, whole.strip(), "".join(f"{text_line}\n" for _, text_line in body)
        whole, begin = "", 0
    if whole.strip():
        yield begin, whole.strip(), ""
