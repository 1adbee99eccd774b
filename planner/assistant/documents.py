"""Documents of the server: the glossary, the options, the published errors, and the skill."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path

from planner.measured.published import Published, read_published
from planner.results.glossary import SUMMARY
from planner.settings.scenario import Scenario

SKILL = Path(__file__).parent / "skill" / "SKILL.md"


def glossary() -> str:
    """Return the keys of a replay's summary, as Markdown."""
    return _table(("key", "unit", "meaning"), ((f"`{name}`", *term) for name, term in SUMMARY.items()))


def options() -> str:
    """Return the options of a scenario, as Markdown."""
    return _table(("option", "default", "meaning"), (
        (f"`{f.name}`", "" if f.default is None else str(f.default), f.metadata["help"]) for f in fields(Scenario)))


def accuracy() -> str:
    """Return the published errors, as Markdown."""
    return "\n\n".join(f"## {section}\n\n" + _table(("figure", "value", "target"), map(_row, figures))
                       for section, figures in read_published().items())


def skill() -> str:
    """Return the guide for assistants."""
    return SKILL.read_text(encoding="utf-8")


DOCUMENTS: Mapping[str, tuple[Callable[[], str], str]] = {
    "glossary": (glossary, "Unit and meaning of every key of a replay's summary"),
    "options": (options, "Every option of a scenario with its default and meaning"),
    "accuracy": (accuracy, "Published errors of predictions on measured runs"),
    "skill": (skill, "The way from a log to a fleet, and from a launch command to a verdict")}


def _row(figure: Published) -> tuple[str, ...]:
    values = ("–" if value is None else f"{100 * value:.1f} %" for value in (figure.value, figure.limit))
    return (figure.words, *values)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)])
