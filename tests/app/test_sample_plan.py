"""The answer that the dashboard opens with: it is the one that a search gives, and only for the first settings."""

from typing import Any

import pytest
from pages import answered, linked, press, said

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
MARK = "This answer for the bundled sample was found when the planner was released"


def answer(page: Any) -> Any:
    return page.session_state["found_plan"].value


def test_the_first_answer_is_a_searchs() -> None:
    page = linked("plan")
    assert MARK in said(page)
    first = answer(page)
    page = answered(press(page, "Find the cheapest fleet"), "plan")
    assert MARK not in said(page)
    again = answer(page)
    assert [(fleet.kind, fleet.num_gpus, fleet.covers_error, fleet.headroom) for fleet in again.alternatives] == [
        (fleet.kind, fleet.num_gpus, fleet.covers_error, pytest.approx(fleet.headroom, abs=1e-6))
        for fleet in first.alternatives], "run make sample-plan"
    assert again.cheapest.reached == first.cheapest.reached
    assert again.cheapest.command == first.cheapest.command


@pytest.mark.parametrize("params", [{"gpu": "l40s"}, {"gpus": "l40s"}, {"headroom": "30"}, {"slo": "ttft:400"},
                                    {"price": "l40s=1"}], ids=str)
def test_a_link_to_other_settings_has_no_answer_yet(params: dict[str, str]) -> None:
    page = linked("plan", **params)
    assert MARK not in said(page)
