"""Flags that set no option, by their effect on a prediction: none, or a change that is not modelled."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Takes = Literal["nothing", "one", "several"]

# Effects that engines share.
OFFLOADED = "keeps weights in host memory, which is not modelled: steps would wait for the host link"
FULL_PRECISION = ("computes in 32 bit, which is not modelled: weights and KV cache would be twice as large, and steps "
                  "slower")
NO_GPU = "runs on a device that is no GPU, which is not modelled"
NO_TEXT = "serves neither text token by token nor embeddings or scores of text; the planner predicts only these"
WHOLE_ENCODER = "keeps the vision encoder whole on each GPU: its memory and the time of images differ"
COMPILED = "changes the compilation of the engine, or its kernels"
OTHER_KERNELS = "chooses kernels: their times differ from the engine's own choice"


@dataclass(frozen=True, slots=True)
class Known:
    """A flag that sets no option."""

    names: tuple[str, ...]  # with dashes, the first as the engine documents it
    takes: Takes  # whether it stands alone, or the number of words that follow it
    # Its value if it is left out, each of its spellings after a bar; None if the engine has none or derives it.
    default: str | None = None

    def is_default(self, value: Any) -> bool:
        """Tell whether a value, as a command, a file or a log has it, changes nothing."""
        text = str(value).lower()
        return value is not None and (text in ("none", "null", "false", "", "[]", "{}") or text in (
            self.default or "").split("|"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmodelled:
    """Flags that change an answer, and that are not modelled."""

    effect: str  # the change, as a note says it after the flag
    flags: tuple[Known, ...]  # with their defaults, which change nothing
    is_refused: bool = False  # whether a prediction without them would be of another deployment altogether
    only: tuple[str, ...] = ()  # values that do so, in small letters; empty if all except the default do

    def applies(self, flag: Known, value: Any) -> bool:
        """Tell whether a flag with this value changes an answer; None is a flag without a value."""
        if self.only:
            return str(value).lower() in self.only
        return not flag.is_default(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagTable:
    """The flags of an engine that set no option."""

    no_effect: tuple[Known, ...] = ()  # of the newest release
    unmodelled: tuple[Unmodelled, ...] = ()  # of all releases
    others: tuple[Known, ...] = ()  # flags of older releases and of programs that wrap the engine

    def known(self) -> Iterator[Known]:
        """Yield all flags."""
        yield from self.no_effect
        yield from self.others
        for group in self.unmodelled:
            yield from group.flags

    def effect_of(self, name: str) -> tuple[Unmodelled, Known] | None:
        """Return the group that a flag belongs to, None if it has no effect or is not in the table."""
        return next(self.effects_of(name), None)

    def effects_of(self, name: str) -> Iterator[tuple[Unmodelled, Known]]:
        """Yield the groups that a flag belongs to; several if its values have different effects."""
        yield from ((group, flag) for group in self.unmodelled for flag in group.flags if name in flag.names)


def flags(text: str) -> tuple[Known, ...]:
    """Return flags as a text lists them: `--alone --one= --with-default=8 --several=* --name|--other-name=`.

    >>> flags("--tp-size|--tp=1 --headless")[0]
    Known(names=('--tp-size', '--tp'), takes='one', default='1')
    """
    return tuple(_known(word) for word in text.split())


def _known(word: str) -> Known:
    names, is_joined, default = word.partition("=")
    if not is_joined:
        return Known(tuple(names.split("|")), "nothing")
    return Known(tuple(names.split("|")), "several" if default == "*" else "one",
                 default.lower() if default not in ("", "*") else None)
