"""Flags of a command line by their names: abbreviations, negations, typos, and the words that belong to each."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from planner.engines import ENGINES
from planner.engines.dialect import OPTIMIZATION_LEVEL, Dialect, Flag, Switch
from planner.engines.flag_table import Takes
from planner.errors import UsageError

LEVEL = re.compile(r"-O=?([0-3])")
NEARNESS = 0.84  # of a typo to the flag that was meant, as difflib counts equal letters
DASHES = "–—‐‑−"  # of typeset text
PAIRS = (("--enable-", "--disable-"), ("--disable-", "--enable-"))


@dataclass(frozen=True, slots=True)
class Named:
    """A flag as the engine knows it.

    Parameters
    ----------
    name : with dashes, its key's path after a dot.
    takes : the words that follow it.
    is_negated : whether it was written as `--no-…`.
    """

    name: str
    takes: Takes
    is_negated: bool = False


def normal(flag: str) -> str:
    """Return a flag with dashes for underscores, as all three engines read it."""
    return flag.replace("_", "-")


@cache
def names_of(engine: str) -> Mapping[str, Takes]:
    """Return all flags of an engine, with the words that follow each; keys of tables are not among them."""
    dialect, found = ENGINES[engine].dialect, dict[str, Takes]()
    for entry in (*dialect.entries, *dialect.file_entries):
        takes: Takes = entry.takes if isinstance(entry, Flag) else "nothing" if isinstance(entry, Switch) else "one"
        found |= dict.fromkeys(entry.names, takes)
    for flag in dialect.table.known():
        found |= dict.fromkeys(flag.names, flag.takes)
    for names in (dialect.model, dialect.files, dialect.experts, dialect.kv_tokens, dialect.roles, dialect.connectors,
                  () if dialect.tier is None else (dialect.tier.size,)):
        found |= dict.fromkeys(names, "one")
    found |= dict.fromkeys(dialect.role_switches, "nothing")
    return {name: takes for name, takes in found.items() if "." not in name}


def find_flag(engine: str, flag: str) -> Named | None:
    """Return the flag that an engine reads; None if it is no flag of its own and near to none.

    >>> find_flag("vllm", "--tensor_parallel")
    Named(name='--tensor-parallel-size', takes='one', is_negated=False)

    Raises
    ------
    UsageError : the engine would not start with it: it begins as several flags do, or is a typo.
    """
    head, dot, path = normal(flag).partition(".")
    names = names_of(engine)
    if " " in head:
        raise UsageError(f"--from-command: {flag!r} is one word with a space; write the flag and its value as two "
                         f"words")
    if head in names:
        return Named(head + dot + path, "one" if dot else names[head])
    if (switch := _negated(names, head)) is not None:
        return Named(switch, "nothing", is_negated=True)
    if not head.startswith("--"):
        raise UsageError(f"--from-command: {flag} is no flag of {ENGINES[engine].title}, which does not start with it; "
                         f"write the value after a space, or the whole flag")
    if ENGINES[engine].dialect.has_abbreviations and (whole := _begun(engine, flag, head)) is not None:
        return Named(whole + dot + path, "one" if dot else names[whole])
    title = ENGINES[engine].title
    if near := difflib.get_close_matches(head, [name for name in names if name.startswith("--")], 1, NEARNESS):
        raise UsageError(f"--from-command: {flag} is no flag of {title}, which does not start with it; did you mean "
                         f"{near[0]}? Correct it, or leave it out")
    return None


def _negated(names: Mapping[str, Takes], head: str) -> str | None:
    """Return the switch that a flag turns off: `--no-x`, or `--disable-x` for `--enable-x`."""
    candidates = [f"--{head.removeprefix('--no-')}"] if head.startswith("--no-") else []
    candidates += [other + head.removeprefix(own) for own, other in PAIRS if head.startswith(own)]
    return next((name for name in candidates if names.get(name) == "nothing"), None)


def _begun(engine: str, flag: str, head: str) -> str | None:
    """Return the flag that begins so, None if there is none."""
    names, groups = names_of(engine), _same_flags(engine)
    found = [name for name in names if name.startswith(head)]
    if len({groups.get(name, name) for name in found}) > 1:
        raise UsageError(f"--from-command: {flag} is ambiguous: {', '.join(sorted(found)[:4])} begin so; write the "
                         f"whole flag")
    return found[0] if found else None


@cache
def _same_flags(engine: str) -> Mapping[str, str]:
    """Return the first name of each flag, by all of its names."""
    dialect = ENGINES[engine].dialect
    groups = [*(entry.names for entry in (*dialect.entries, *dialect.file_entries)),
              *(flag.names for flag in dialect.table.known()), dialect.model, dialect.experts, dialect.kv_tokens]
    return {name: group[0] for group in groups for name in group}


def flags_in(engine: str, words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the flags of a command line with their values, None for a switch; the first word without one is the model.

    Raises
    ------
    UsageError : as `find_flag`, or a word belongs to no flag.
    """
    dialect, place, has_model = ENGINES[engine].dialect, 0, False
    while place < len(words):
        word = words[place]
        place += 1
        if word == "--":
            continue
        if not word.startswith("-"):
            if has_model:
                raise UsageError(f"--from-command: {word!r} belongs to no flag{_remedy(word)}")
            if " -" in word:
                raise UsageError(f"--from-command: {word!r} is one word with spaces; write each of its words as a word "
                                 f"of its own")
            has_model = True
            yield dialect.model[0], word
        elif level := LEVEL.fullmatch("".join(words[place - 1:place + (word == "-O")])):
            place += word == "-O"
            yield OPTIMIZATION_LEVEL, level[1]
        else:
            flag, is_joined, value = word.partition("=")
            following = [value] if is_joined else _following(engine, dialect, flag, words[place:])
            place += 0 if is_joined else len(following)
            yield flag, following[0] if len(following) == 1 else following or None


def _remedy(word: str) -> str:
    """Return the remedy for a word that belongs to no flag, after a semicolon."""
    if "$" in word:
        return "; put the variable's value in its place"
    if word[0] in DASHES:
        return f"; a flag begins with two hyphens: --{word.lstrip(DASHES)}"
    if word in ("^", "`"):
        return "; a line ends with a backslash if the command goes on"
    if word.lower() in ("true", "false"):
        return f"; a switch takes no value: {'write the switch alone' if word.lower() == 'true' else 'write --no-…'}"
    return "; quote a value that has spaces, or leave the word out"


def _following(engine: str, dialect: Dialect, flag: str, words: Sequence[str]) -> list[str]:
    """Return the words that belong to a flag, of those after it."""
    named = find_flag(engine, flag)
    ends = next((place for place, word in enumerate(words) if re.match(r"-+[a-zA-Z]", word)), len(words))
    takes = "one" if named is None else named.takes
    if takes == "one":
        return list(words[:min(ends, 1)])
    if takes == "several":
        return list(words[:ends])
    is_value = bool(words) and str(words[0]).lower() in ("true", "false") and flag != "-O"
    return list(words[:1]) if is_value and (not dialect.has_abbreviations or (
        named is not None and named.name in dialect.words_after)) else []


def nested(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return values by name, in tables if the name is a path with dots.

    >>> nested([("kv_cache.dtype", "fp8"), ("kv_cache.size", 2), ("eager", True)])
    {'kv_cache': {'dtype': 'fp8', 'size': 2}, 'eager': True}
    """
    whole: dict[str, Any] = {}
    for name, value in values:
        *path, key = name.split(".")
        table = whole
        for part in path:
            table = table.setdefault(part, {})
        table[key] = value
    return whole
