"""The settings of all pages: chips, the dialog, and the targets in numbers and in text."""

from typing import Any

import pytest
from pages import linked, opened, press, said

from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.ui.all_settings import values_in_force
from planner.ui.app import PAGES

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def labels(page: Any) -> list[str]:
    return [button.label.replace("\\", "") for button in page.button]


@pytest.mark.parametrize("place", [address for _, _, address, _ in PAGES])
def test_every_page_has_a_chip_for_each_setting_that_differs(place: str) -> None:
    page = linked(place, limit="300", rate_scale="3.0", max_num_batched_tokens="8192", gpu="l40s")
    assert {"load ×3 ✕", "chunk size 8,192 tokens ✕", "GPU L40S ✕"} <= set(labels(page))
    assert "chip_max_num_batched_tokens" not in [button.key for button in linked(place).button]


def test_a_chip_sets_its_setting_back_and_reset_all_sets_all() -> None:
    page = linked("catalog", rate_scale="3.0", max_num_seqs="16", slo="p95_ttft:800", attainment="0.9")
    page = press(page, "load ×3 ✕")
    assert page.session_state["rate_scale"] == 1.0
    assert page.session_state["max_num_seqs"] == 16
    assert "rate_scale" not in page.query_params
    assert "targets p95 TTFT 800 ms ✕" in labels(page)
    page = press(page, "reset all")
    assert not page.query_params
    assert page.session_state["slo"] == "ttft:500 tpot:50"
    assert not any(label.endswith("✕") for label in labels(page))


def test_the_dialog_finds_options_by_their_words_and_keeps_what_is_set() -> None:
    page = press(linked("replay", limit="300"), "All settings")
    page.text_input(key="settings_search").set_value("chunk size")
    page.number_input(key="max_num_batched_tokens").set_value(512)
    page.run()
    page.run()  # the dialog is closed
    assert page.session_state["max_num_batched_tokens"] == 512
    assert page.query_params["max_num_batched_tokens"] in ("512", ["512"])
    assert "--max-num-batched-tokens 512" in page.code[-1].value
    page = press(page, "All settings")
    assert page.number_input(key="max_num_batched_tokens").value == 512


def test_the_dialog_leaves_out_other_engines_options() -> None:
    keys = {each.key for each in press(linked("catalog"), "All settings").number_input}
    assert "max_num_queued_reqs" in keys
    assert "schedule_conservativeness" not in keys
    keys = {each.key for each in press(linked("catalog", engine="sglang"), "All settings").number_input}
    assert "schedule_conservativeness" in keys
    assert "max_num_queued_reqs" not in keys


def test_the_values_in_force_are_the_deployments() -> None:
    """As `vllm serve` sets them on this GPU, not one number for all."""
    h100, l40s = (values_in_force(read_trace("chat"), Scenario(model="llama-3.1-8b", gpu=gpu))
                  for gpu in ("h100-sxm", "l40s"))
    assert h100["max_num_batched_tokens"] == "8,192 (the engine's)"
    assert l40s["max_num_batched_tokens"] == "2,048 (the engine's)"
    assert h100["max_model_len"] == "131,072 (derived)"
    assert "max_num_seqs" not in values_in_force(read_trace("chat"), Scenario(model="llama-3.1-8b", gpu="l40s",
                                                                              max_num_seqs=4))


@pytest.mark.parametrize("place", [address for _, _, address, _ in PAGES])
def test_targets_are_numbers_on_every_page(place: str) -> None:
    page = linked(place, limit="300", slo="p99_ttft:800 p99_e2el:9000")
    shown = {metric: page.number_input(key=f"targets_{metric}").value for metric in ("ttft", "tpot", "e2el")}
    assert shown == {"ttft": 800.0, "tpot": None, "e2el": 9000.0}
    assert page.selectbox(key="targets_kind").value == "p99"
    assert "attainment" not in {each.key for each in page.number_input}


def test_numbers_write_the_grammar_of_the_link() -> None:
    page = linked("replay", limit="300")
    page.number_input(key="targets_e2el").set_value(5000.0).run()
    assert page.session_state["slo"] == "ttft:500 tpot:50 e2el:5000"
    page.selectbox(key="targets_kind").set_value("p95").run()
    assert page.query_params["slo"] in ("p95_ttft:500 p95_tpot:50 p95_e2el:5000",
                                        ["p95_ttft:500 p95_tpot:50 p95_e2el:5000"])
    assert "--slo 'p95_ttft:500 p95_tpot:50 p95_e2el:5000'" in page.code[-1].value
    for metric in ("ttft", "tpot", "e2el"):
        page.number_input(key=f"targets_{metric}").set_value(None)
    page.run()
    assert "--slo" not in page.code[-1].value
    assert page.selectbox(key="targets_kind").value == "p95"  # for the next target


def test_targets_that_only_text_has_are_text() -> None:
    page = linked("replay", limit="300", slo="ttft:500 p99_tpot:50", attainment="0.9")
    assert page.text_input(key="slo").value == "ttft:500 p99_tpot:50"
    assert page.number_input(key="attainment").value == 0.9
    assert parse_objectives("ttft:500 p99_tpot:50", 0.9).limits_s == {"ttft": 0.5, "p99_tpot": 0.05}
    assert "--slo 'ttft:500 p99_tpot:50' --attainment 0.9" in page.code[-1].value


@pytest.mark.parametrize("place", ["capacity", "sizing"])
def test_a_page_that_needs_targets_says_so(place: str) -> None:
    page = linked(place, limit="300", slo="")
    assert "needs targets; give them in the sidebar" in said(page).replace("\\", "")


def test_a_field_shows_its_option_in_words_and_its_flag_in_the_help() -> None:
    page = press(opened("catalog"), "All settings")
    field = page.number_input(key="max_num_seqs")
    assert field.label == "Running sequences, at most"
    assert field.help.startswith("`max_num_seqs`: Maximum number of running sequences")
    assert field.placeholder == "1,024 (the engine's)"
