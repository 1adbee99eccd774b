"""Branches of a shell script: the one that runs, if the script, its environment or a default decides it."""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

TEST = re.compile(r"^(?:\[\[?\s+(.*?)\s+\]\]?|test\s+(.*))$", re.S)
JOINED = re.compile(r"\s+(&&|\|\||-a|-o)\s+")
UNSET = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
UNDECIDED = ("$(", "`", "$?", "$#", "$$", "*)")
PATTERN = re.compile(r"^\(?\s*([^()\s][^()]*?)\s*\)\s*(.*)$", re.S)
COMPARED: Mapping[str, Callable[[str, str], bool]] = {
    "=": lambda one, two: one == two, "==": lambda one, two: one == two, "!=": lambda one, two: one != two}
NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": lambda one, two: one == two, "-ne": lambda one, two: one != two, "-gt": lambda one, two: one > two,
    "-ge": lambda one, two: one >= two, "-lt": lambda one, two: one < two, "-le": lambda one, two: one <= two}


@dataclass(slots=True)
class Block:
    """A block of a script that is open: if, case or a loop.

    Parameters
    ----------
    kind : its first word.
    times : how often it runs; None if it is not known [1].
    runs : whether the branch at hand runs; None if it is not known.
    is_done : whether a branch before has run for sure.
    may_be_done : whether a branch before may have run.
    word : of a case; None if it is not known.
    """

    kind: str
    times: int | None = 1
    runs: bool | None = None
    is_done: bool = False
    may_be_done: bool = False
    word: str | None = None

    def enter(self, holds: bool | None) -> None:
        """Go on with the next branch, whose condition holds, does not, or is not known to hold."""
        self.is_done = self.is_done or self.runs is True
        self.may_be_done = self.may_be_done or self.runs is None
        if self.is_done or holds is False:
            self.runs = False
        else:
            self.runs = None if self.may_be_done or holds is None else True

    def enter_pattern(self, patterns: str) -> None:
        """Go on with the next branch of a case."""
        self.enter(None if self.word is None else any(
            fnmatchcase(self.word, pattern.strip().strip("\"'")) for pattern in patterns.split("|")))


def holds(condition: str, put_in: Callable[[str], str], is_set: Callable[[str], bool]) -> bool | None:
    """Tell whether the condition of a branch holds; None if a program or a file decides it.

    Parameters
    ----------
    put_in : returns a text with the values of variables; those without a single value stay.
    is_set : tells whether a variable has values. One without is unset, and empty.

    >>> holds('[ "$NVLINK" = "1" ]', str, lambda name: False), holds("[ -f x ]", str, lambda name: False)
    (False, None)
    """
    plain = condition.strip()
    parts = re.split(r"\s+(&&|\|\|)\s+", plain)
    if len(parts) > 1 and all(TEST.match(part.removeprefix("! ").strip()) for part in parts[::2]):
        return _joined([holds(part, put_in, is_set) for part in parts[::2]], parts[1::2])
    negated, plain = plain.startswith("! "), plain.removeprefix("! ").strip()
    match = TEST.match(plain)
    found = None if match is None else _expression(put_in(match[1] or match[2]), is_set)
    return found if found is None or not negated else not found


def _expression(text: str, is_set: Callable[[str], bool]) -> bool | None:
    """Tell whether the words of a test hold, of a text with its variables put in."""
    names = [match[1] or match[2] for match in UNSET.finditer(text)]
    if any(mark in text for mark in UNDECIDED) or any(map(is_set, names)):
        return None
    parts = JOINED.split(UNSET.sub("", text))
    return _joined([_term(part) for part in parts[::2]], parts[1::2])


def _joined(values: list[bool | None], operators: list[str]) -> bool | None:
    """Return the value of terms that && and || join, from left to right; `-a` and `-o` are the same."""
    found = values[0]
    for operator, value in zip(operators, values[1:], strict=True):
        if operator in ("&&", "-a"):
            found = False if found is False or value is False else None if None in (found, value) else True
        else:
            found = True if found is True or value is True else None if None in (found, value) else False
    return found


def _term(text: str) -> bool | None:
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    if words[:1] == ["!"]:
        inner = _words(words[1:])
        return None if inner is None else not inner
    return _words(words)


def _words(words: list[str]) -> bool | None:
    match words:
        case []:
            return False
        case [word]:
            return word != ""
        case ["-n", word]:
            return word != ""
        case ["-z", word]:
            return word == ""
        case [one, operator, two] if operator in COMPARED:
            has_glob = operator != "=" and any(mark in two for mark in "*?[")
            equal = fnmatchcase(one, two) if has_glob else one == two
            return equal != (operator == "!=")
        case [one, "=~", two]:
            try:
                return re.search(two, one) is not None
            except re.error:
                return None
        case [one, operator, two] if operator in NUMBERS:
            numbers = [int(word) for word in (one, two) if re.fullmatch(r"-?\d+", word)]
            return NUMBERS[operator](numbers[0], numbers[1]) if len(numbers) == 2 else None
        case [operator, _] if operator in COMPARED or operator in NUMBERS:
            return False  # an unset variable without quotes: the shell's test fails
    return None
