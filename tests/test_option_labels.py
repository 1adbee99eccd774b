"""Labels of options: each option has one, its engines exist, and no two fields of a form read alike."""

import math
from dataclasses import fields
from typing import Any

import pytest

from planner.deployment.deploy import deploy
from planner.engines import ENGINES
from planner.errors import UsageError
from planner.loop.state.engine_settings import Recording
from planner.policies.builtin_policies import POLICIES
from planner.policies.policy import NO_LIMIT
from planner.replays.settings_record import settings_record
from planner.settings.scenario import LABELS, NO_LIMITS, OPTION_DEFAULTS, RANGES, RELATIONS, Scenario


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


def test_declared_relations_name_other_options_and_ranges_hold_their_defaults() -> None:
    for (option, _), others in RELATIONS.items():
        assert set(others) < set(LABELS) - {option}
    for option, values in RANGES.items():
        default: Any = OPTION_DEFAULTS[option]
        assert default is None or default in values, option


@pytest.mark.parametrize(("options", "words"), [
    ({"watermark": 1.0}, "watermark = 1.0: must be at least 0 and below 1 [share]"),
    ({"kv_offloading_ratio": math.inf}, "kv_offloading_ratio = inf: must be above 0 and finite"),
    ({"max_wait_s": math.nan}, "max_wait_s = nan: must be at least 0 [s]"),
    ({"retry_jitter_factor": 0.2}, "retry_jitter_factor = 0.2: there are no retries; give --max-retries"),
    ({"kv_cache_memory_bytes": 5, "num_gpu_blocks": 7},
     "kv_cache_memory_bytes = 5 and num_gpu_blocks = 7: both are the size of the KV cache; leave one of them out"),
])
def test_a_scenario_is_held_against_the_declarations_of_its_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        Scenario(**options)
    assert words in str(caught.value)


def test_zero_is_no_limit_to_the_scheduler_if_the_declaration_says_so() -> None:
    options: dict[str, Any] = {"step_time": "linear:1,0", "num_gpu_blocks": 9} | dict.fromkeys(NO_LIMITS, 0)
    settings = deploy(Scenario(**options)).settings
    record = settings_record(POLICIES["fcfs"], settings, Recording())
    assert all(getattr(record, name) == NO_LIMIT for name in NO_LIMITS)
