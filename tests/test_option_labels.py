"""Labels of options: each option has one, its engines exist, and no two fields of a form read alike."""

from dataclasses import fields

from planner.engines import ENGINES
from planner.settings.option_labels import LABELS
from planner.settings.scenario import Scenario


def test_each_option_has_a_label_and_no_label_is_left_over() -> None:
    assert set(LABELS) == {f.name for f in fields(Scenario)}


def test_labels_are_words_with_units_beside_them() -> None:
    for option, label in LABELS.items():
        assert label.words.strip() == label.words != "", option
        assert "_" not in label.words, option
        assert "[" not in label.words, option
        assert set(label.engines) <= set(ENGINES), option


def test_no_two_options_read_alike() -> None:
    titles = [label.title for label in LABELS.values()]
    assert len(titles) == len(set(titles))


def test_an_engines_option_is_of_the_engines_whose_command_has_it() -> None:
    """If a label names engines, no other engine's command line sets the option."""
    for option, label in LABELS.items():
        takers = {engine.name for engine in ENGINES.values() for entry in (
            *engine.dialect.entries, *engine.dialect.file_entries) if getattr(entry, "option", None) == option}
        assert not label.engines or takers <= set(label.engines), option
