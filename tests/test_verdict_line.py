"""The verdict on a replay and its cards: each kind of finding in words, with the numbers of the summary."""

from dataclasses import replace
from typing import Any

import pytest

from planner.report.compare_rows import compared_rows
from planner.report.summary_tables import summary_table
from planner.report.target_cards import cards
from planner.report.verdict_line import VerdictKind, verdict_line
from planner.results.rejections import WHY as REJECTIONS
from planner.results.summary_answer import Summary
from planner.run import replay
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import read_trace


def summary(slo: str | None = "ttft:500 tpot:50", attainment: float | None = 0.99, **options: Any) -> Summary:
    scenario = Scenario(**{"model": "llama-3.1-8b", "gpu": "h100-sxm", "limit": 1000, **options})
    objectives = None if slo is None else parse_objectives(slo, attainment)
    return replay(read_trace("chat"), scenario, slo=objectives).summary


def with_figures(found: Summary, **changed: Any) -> Summary:
    return replace(found, figures=replace(found.figures, **changed))


def test_the_share_within_the_objectives_reads_alike_in_the_table_and_in_the_verdict() -> None:
    for share, said in ((0.99012, "  99.01 %"), (0.98999, "  98.999 %")):
        assert said in str(summary_table(with_figures(summary(), slo_attainment=share)))


@pytest.mark.parametrize(("asked", "kind", "said"), [
    ({}, VerdictKind.KEPT,
     "Keeps its targets: 100 % of the requests keep TTFT within 500 ms and TPOT within 50 ms, 99 % required"),
    ({"slo": "p99_ttft:100", "attainment": None}, VerdictKind.MISSED,
     "Misses its targets: p99 TTFT {p99_ttft_ms:.0f} ms of 100 ms allowed"),
    ({"rate_scale": 20.0}, VerdictKind.OVERLOADED, "Overloaded: {offered_request_rate:,.3g} requests/s arrive, "
                                                   "{served_request_rate:,.3g}/s are served"),
    ({"max_model_len": 2048, "slo": None, "attainment": None}, VerdictKind.UNSERVED,
     "{completed} of 1,000 requests served; {rejected} rejected: longer than the context of 2,048 tokens"),
    ({"slo": None, "attainment": None}, VerdictKind.NO_TARGETS, "All 1,000 requests are served; no targets are set"),
    ({"attainment": None}, VerdictKind.NO_TARGETS,
     "All 1,000 requests are served; 100 % of the requests keep TTFT within 500 ms; 100 % of the requests keep TPOT "
     "within 50 ms"),
])
def test_each_kind_of_finding_has_its_words(asked: dict[str, Any], kind: VerdictKind, said: str) -> None:
    found = summary(**asked)
    verdict = verdict_line(found)
    assert (verdict.kind, verdict.sentence) == (kind, said.format(**found))


def test_a_verdict_has_all_findings() -> None:
    """Requests that were refused are said after an overload, and before targets that they make a replay miss."""
    found = summary(rate_scale=20.0, max_queued_requests=10)
    assert f"{found['rejected']:,} rejected: the queue was full" in verdict_line(found).sentence
    found = summary(max_model_len=2048)
    assert verdict_line(found).kind is VerdictKind.UNSERVED
    assert "Misses its targets: " in verdict_line(found).sentence


def test_every_reason_of_a_rejection_has_words() -> None:
    found = summary()
    for name in REJECTIONS:
        counted = with_figures(found, rejected_by_reason={name: 3}, completed=997)
        assert "3 rejected: " in verdict_line(counted).sentence


def test_cards_state_the_share_of_their_limits() -> None:
    found = summary()
    ttft, tpot, served = cards(found)
    assert (ttft.title, ttft.is_met, ttft.used) == ("Time to first token", True, found["p99_ttft_ms"] / 500)
    assert tpot.used == found["p99_tpot_ms"] / 50
    assert (served.value, served.used) == ("all 1,000", 1.0)
    nearest = cards(summary(slo="p90_ttft:1000 p99_ttft:100 e2el:5000"))[0]
    assert nearest.value.startswith("p99 ")
    titles = [card.title for card in cards(summary(slo="p99_e2el:1", attainment=None))]
    assert titles == ["Time to first token", "Time per output token", "End to end", "Served"]
    assert all(card.is_met is None for card in cards(summary(slo=None, attainment=None)))


def test_a_card_without_a_value_says_so() -> None:
    end = cards(summary(slo="p99_e2el:900", attainment=None, request_timeout=0.2))[2]
    assert (end.value, end.used, end.is_met) == ("p99 never", None, False)


def test_the_best_of_several_is_marked_and_the_others_differ_from_the_first() -> None:
    slow, fast = summary(max_num_seqs=4), summary()
    rows = compared_rows([slow, fast])
    first, second = rows["TTFT p99"]
    assert (first.is_best, first.difference, second.is_best, second.is_better) == (False, "", True, True)
    assert rows["requests within their targets"][1].difference.endswith(" points")
    assert not any(cell.is_best for cell in rows["requests completed"])
    same = compared_rows([fast, fast])
    assert not any(cell.is_best or cell.difference for cells in same.values() for cell in cells)
