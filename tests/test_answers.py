"""Answers as JSON: what `asdict` writes `fromdict` reads, keys are left out where they say so, damage is named."""

from dataclasses import dataclass, is_dataclass, replace
from typing import Annotated, Any

import pytest
from helpers import filled

from planner.files.keys import Key, Spread, asdict, declared, fromdict, parts_of
from planner.measured.calibration.calibrate_answer import CalibrateAnswer
from planner.measured.validate_answer import Errors, ErrorSummary, GroupErrors, ValidateAnswer
from planner.planning.capacity_answer import CapacityAnswer, Confidence, Probe
from planner.planning.check_answer import CheckAnswer, ScenarioMetrics, TargetVerdict
from planner.planning.size_answer import (
    ClosestKind,
    Fleet,
    KindNames,
    RouterSize,
    Schedule,
    SchedulePart,
    SizeAnswer,
    UnableFleet,
)
from planner.planning.sweep_answer import Configuration, Optimum, SweepAnswer
from planner.results.saved import to_json

FLEET = filled(Fleet, notes=("of the fleet",), command_lacks=("a",), schedule=filled(Schedule, parts=(
    filled(SchedulePart, num_requests=3), filled(SchedulePart, served_rps=2.0))))
ANSWERS: list[Any] = [
    filled(CapacityAnswer, probes=(filled(Probe),), confidence=filled(Confidence), deployment={"gpu": "h100-sxm"}),
    filled(CapacityAnswer, sentence="too slow"),
    filled(CapacityAnswer, of="sessions", capacity=12, probes=(filled(Probe, load=12),), think_time_s=2.0),
    filled(SizeAnswer, cheapest=FLEET, fewest_gpus=FLEET, alternatives=(FLEET, filled(UnableFleet)),
           notes=FLEET.notes, routers=(filled(RouterSize),)),
    filled(SizeAnswer, closest=filled(ClosestKind), alternatives=(filled(UnableFleet),)),
    filled(SweepAnswer, rows=(filled(Configuration, values={"gpu": "l40s", "p99_ttft_ms": None}),)),
    filled(SweepAnswer, optimum=filled(Optimum), axes={"max_num_seqs": (1, 2)}, front=({"a": 1.5},)),
    filled(CheckAnswer, checks=(filled(TargetVerdict),), scenarios={"one": filled(ScenarioMetrics)}),
    filled(ValidateAnswer, groups=(filled(GroupErrors, errors=filled(Errors, by_metric={
        "tpot_ms": filled(ErrorSummary), "ttft_ms": None})),)),
    filled(CalibrateAnswer, left={"layer_s": "has no effect"}),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_what_is_written_is_read(answer: Any) -> None:
    values = asdict(answer)
    again = fromdict(type(answer), values)
    assert again == answer
    assert list(asdict(again)) == list(values)  # in the same order


@pytest.mark.parametrize("kind", dict.fromkeys(map(type, ANSWERS)), ids=lambda kind: kind.__name__)
def test_every_key_has_a_meaning_and_every_number_a_unit(kind: type) -> None:
    """So that the reference has no empty cell: a text, a truth value and a part have no unit, all else has one."""
    for each in declared(kind):
        if isinstance(each.note, Key):
            assert each.note.meaning, each.name
            numbers = {int, float} & {each.hint, *getattr(each.hint, "__args__", ())}
            assert bool(each.note.unit) or not numbers, each.name
        assert each.note.meaning or parts_of(each.hint), each.name
        for part in parts_of(each.hint):
            test_every_key_has_a_meaning_and_every_number_a_unit(part)


def test_keys_are_left_out_or_null_as_they_are_declared() -> None:
    size = asdict(filled(SizeAnswer))
    assert size["num_gpus"] is None  # of no fleet
    assert {"closest", "peak_rps", "trace_copies"}.isdisjoint(size)
    assert asdict(FLEET)["trace_copies"] == 1
    assert asdict(filled(SizeAnswer, closest=filled(ClosestKind)))["closest"]["gpu"] == "x"
    assert {"best", "num_replays"}.isdisjoint(asdict(filled(SweepAnswer)))
    assert asdict(filled(SweepAnswer, optimum=filled(Optimum)))["best"] is None  # none meets the limits
    assert list(asdict(FLEET.schedule)) == ["parts", "gpu_hours", "static_gpu_hours"]


def test_a_key_of_the_whole_takes_the_place_of_its_parts() -> None:
    values = asdict(filled(SizeAnswer, cheapest=FLEET, notes=("of all",)))
    assert values["notes"] == ["of all"]
    assert list(values).index("notes") == list(asdict(FLEET)).index("notes")
    assert list(values)[:6] == [each.name for each in declared(KindNames)]


def test_a_part_of_keys_that_vary_has_all_others() -> None:
    errors = filled(Errors, by_metric={"tpot_ms": filled(ErrorSummary), "ttft_ms": None})
    values = asdict(filled(GroupErrors, errors=errors))
    assert list(values) == ["group", "value", "n", "coverage", "tpot_ms", "ttft_ms"]
    assert fromdict(GroupErrors, values).errors == errors


def test_json_has_the_keys_of_answers_inside_other_values() -> None:
    assert '"trace_sha256": "x"' in to_json({"scenarios": {"one": filled(ScenarioMetrics)}})


@pytest.mark.parametrize(("change", "words"), [
    ({"capacity_rps": None}, "capacity_rps = None: must be a number"),
    ({"capacity_rps": True}, "capacity_rps = True: must be a number"),
    ({"num_gpus": 1.5}, "num_gpus = 1.5: must be a whole number"),
    ({"feasible": 1}, "feasible = 1: must be true or false"),
    ({"scaling": 3}, "scaling = 3: must be text"),
    ({"bracket": []}, "bracket: must be an object"),
    ({"probes": {}}, "probes: must be a list"),
    ({"slo": {"text": "", "attainment": 1, "limits_s": {"ttft": "a"}}}, r"slo\.limits_s\.ttft = 'a': must be a number"),
    ({"probes": [asdict(filled(Probe), "requests"), {"rate_rps": 1}]}, r"probes\[1\]\.is_met: is missing"),
])
def test_damage_is_named_by_its_key(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fromdict(CapacityAnswer, asdict(filled(CapacityAnswer)) | change)


@pytest.mark.parametrize(("of", "keys", "others"), [
    ("requests", {"capacity_rps", "capacity_rps_per_gpu", "rate_scale", "scalings"}, {"capacity_sessions",
                                                                                      "think_time_s"}),
    ("concurrency", {"capacity_concurrency", "capacity_per_gpu", "think_time_s"}, {"capacity_rps", "rate_scale"}),
    ("sessions", {"capacity_sessions", "request_throughput", "think_time_s"}, {"capacity_concurrency", "scalings"})])
def test_keys_are_named_by_the_unit_of_the_load(of: str, keys: set[str], others: set[str]) -> None:
    values = asdict(filled(CapacityAnswer, of=of, probes=(filled(Probe),)))
    assert keys <= values.keys()
    assert others.isdisjoint(values)
    assert ("rate_rps" in values["probes"][0], "users" in values["probes"][0]) == (of == "requests", of != "requests")


def test_an_answer_without_a_unit_is_a_rate() -> None:
    """As earlier releases wrote it."""
    answer = filled(CapacityAnswer)
    values = asdict(answer)
    assert values.pop("of") == "requests"
    assert fromdict(CapacityAnswer, values) == answer


def test_what_is_no_fleet_of_either_kind_is_told() -> None:
    values = asdict(filled(SizeAnswer, alternatives=(filled(UnableFleet),)))
    del values["alternatives"][0]["reason"]
    with pytest.raises(ValueError, match=r"alternatives\[0\]\.reason: is missing"):
        fromdict(SizeAnswer, values)


def test_a_field_without_a_key_is_refused() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Bare:
        part: Annotated[Probe, Spread()]
        count: int = 0

    assert is_dataclass(Bare)
    with pytest.raises(AssertionError, match=r"Bare\.count has no Key"):
        asdict(Bare(part=filled(Probe)))


def test_answers_do_not_change_and_have_no_other_fields() -> None:
    answer = filled(CapacityAnswer)
    with pytest.raises(AttributeError):
        answer.capacity = 2.0  # type: ignore[misc]
    assert not hasattr(answer, "__dict__")
    assert replace(answer, capacity=2.0).capacity == 2.0
