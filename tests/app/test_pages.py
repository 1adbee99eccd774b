"""The dashboard's pages, run without a browser: their numbers, their states, and what they say of mistakes."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pages import opened as opened_page
from pages import press, said, until
from typer.testing import CliRunner

from planner.commands.cli import app as cli
from planner.errors import UsageError
from planner.files.keys import fromdict
from planner.loop.state.engine_settings import Recording
from planner.planning.study import Study, command_line, read_study, study_toml
from planner.report.target_cards import cards
from planner.report.verdict_line import verdict_line
from planner.results.causes import explain
from planner.results.saved import to_json
from planner.results.summary_answer import Summary
from planner.run import replay
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.ui.explore_page import _plan
from planner.ui.option_fields import widget_value
from planner.ui.words import plain, sentence, with_labels

testing = pytest.importorskip("streamlit.testing.v1")

APP = Path(__file__).resolve().parents[2] / "app.py"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

SEATS = "running sequences, at most"


def opened(**values: Any) -> Any:
    """Return the replay page with widgets set by their keys, on the first thousand requests."""
    return opened_page("replay", **{"limit": 1000, **values})


def metrics(page: Any) -> dict[str, str]:
    return {metric.label: metric.value for metric in page.metric}


def test_the_numbers_are_the_command_lines() -> None:
    """To the last digit: what the page has of a scenario is what --json has."""
    page = opened(rate_scale=3.0, max_num_seqs=32, policy="decode-first", engine="vllm")
    assert not page.exception
    done = CliRunner().invoke(cli, ["replay", "chat", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--limit", "1000",
                                    "--rate-scale", "3", "--max-num-seqs", "32", "--policy", "decode-first", "--slo",
                                    "ttft:500 tpot:50", "--attainment", "0.99", "--json", "-"])
    summary = json.loads(done.stdout)
    printed = fromdict(Summary, summary)
    found = [pickle.loads(content) for name, content in page.session_state["kept"].items() if name.startswith("numb")]
    (shown,) = [each for each in found if each.summary["policy"]["max_num_seqs"] == 32]
    own = json.loads(to_json(shown.summary))
    for name in ("wall_s", "simulated_requests_per_s"):
        own.pop(name), summary.pop(name)
    assert summary.pop("replay_command").startswith("planner replay chat ")  # a result in a file names its command
    assert own == summary
    assert metrics(page) == {card.title: card.value for card in cards(printed)}
    assert verdict_line(printed).sentence in said(page).replace("\\", "")
    outcome = replay(read_trace("chat"), Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=1000, rate_scale=3.0,
                                                  max_num_seqs=32, policy="decode-first"),
                     recording=Recording(steps=True))
    assert page.info[0].value == plain(sentence(with_labels(explain(outcome.requests, outcome.steps)["sentence"])))


def test_a_slider_changes_the_numbers_and_a_pinned_result_stays() -> None:
    page = opened()
    before = metrics(page)["Time to first token"]
    press(page, "Pin to compare")
    page.slider(key="rate_scale").set_value(6.0).run()
    after = {metric.label: metric for metric in page.metric}["Time to first token"]
    assert after.value != before
    assert after.delta.endswith(f"; pinned {before}")
    assert "**load ×6 against load ×1**: a request takes" in said(page).replace("\\", "")
    assert "Unpin" not in [button.label for button in page.button]
    page.slider(key="rate_scale").set_value(1.0).run()
    assert "pinned" not in {metric.label: metric for metric in page.metric}["Time to first token"].delta
    press(page, "Unpin")
    assert not page.session_state["pins"]


def test_a_comparison_names_scenarios_by_their_settings_and_marks_the_best() -> None:
    page = opened_page("compare", limit=1000, rate_scale=4.0)
    press(page, "Pin this scenario")
    page.session_state["max_num_seqs"] = 8
    page.run()
    press(page, "Pin this scenario")
    page.session_state["max_num_seqs"] = 64
    page.run()
    words = said(page).replace("\\", "")
    assert f"| | **{SEATS}: default** | **{SEATS} 8** | **{SEATS} 64** |" in words
    assert f"| {SEATS} | default | 8 | 64 |" in words
    assert re.search(r"\| TTFT p99 \| \*\*[\d.]+ s\*\* \| .* :red\[", words)
    against = f"**{SEATS} 8** against **{SEATS}: default**: a request takes"
    assert re.search(re.escape(against) + ".* more on average: .* more in engine queue", words)
    assert len(page.get("plotly_chart")) == 1
    next(field for field in page.text_input if field.placeholder == f"{SEATS} 8").set_value("few seats").run()
    assert "**few seats**" in said(page)
    press(page, "Remove")
    assert len(page.session_state["pins"]) == 1
    page.selectbox(key="trace").set_value("code").run()
    assert "These scenarios replay different traffic" in page.warning[0].value


def test_a_change_is_found_and_applied_and_can_be_taken_back() -> None:
    page = opened(gpu="l40s", rate_scale=3.0, router="round-robin")
    press(page, "Find what to change")
    page = until(page, lambda page: "Apply" in [button.label for button in page.button])
    assert not page.exception
    count = int(re.search(r"\*\*(\d+) × L40S", said(page).replace("\\", ""))[1])  # type: ignore[index]
    [button for button in page.button if button.label == "Apply"][-1].click()
    page.run()
    assert page.number_input(key="data_parallel_size").value == count
    assert page.success[0].value.startswith("Keeps its targets")
    assert len(page.session_state["pins"]) == 1
    tried = page.dataframe[0].value
    assert [text.split(":")[0] for text in tried["verdict"]] == ["Keeps its targets", "Overloaded", "Keeps its targets"]


@pytest.mark.parametrize(("values", "said"), [
    ({"slo": "tfft:500"}, "did you mean 'ttft'"),
    ({"step_time": "linear:x"}, "linear:BASE_S"),
    ({"model": "llama-3.1-405b"}, "does not fit one h100-sxm"),
])
def test_mistakes_are_said_in_place_of_the_page(values: dict[str, Any], said: str) -> None:
    page = opened(**values)
    assert not page.exception
    assert said in page.error[0].value
    assert not page.metric


def test_without_a_file_a_page_asks_for_one() -> None:
    page = testing.AppTest.from_file(str(APP), default_timeout=120).run()
    page.selectbox(key="trace").set_value("your file").run()
    assert "Upload a trace above" in page.info[0].value
    assert not page.exception


@pytest.mark.parametrize(("option", "value", "held"), [
    ("max_num_seqs", 64, 64), ("max_num_seqs", None, None), ("policy", "sjf", "sjf"), ("policy", None, None),
    ("enable_chunked_prefill", False, False), ("async_scheduling", None, None), ("data_parallel_size", 2, 2)])
def test_a_configuration_comes_back_to_the_widgets(option: str, value: Any, held: Any) -> None:
    assert widget_value(option, value) == held


def test_a_grid_that_is_too_large_for_a_page_is_refused() -> None:
    study = Study(name="a", trace="chat", format=None, scenario=Scenario(), objectives=None)
    with pytest.raises(UsageError, match="2,500 configurations: a page takes 2,000 at most"):
        _plan(study, "max_num_seqs=" + ",".join(map(str, range(1, 51))) + "\nseed=" + ",".join(map(str, range(50))),
              ["p99_ttft_ms", "p99_tpot_ms"])


OPTIONS = {"gpu": some.just("h200-sxm"), "tensor_parallel_size": some.just(2), "max_num_seqs": some.integers(1, 300),
           "rate_scale": some.sampled_from((0.5, 2.0)), "expert_parallel": some.just(True),
           "enable_chunked_prefill": some.booleans(), "quantization": some.just("fp8"), "limit": some.just(50),
           "gpu_memory_utilization": some.just(0.85), "step_time": some.just("linear:0.01,0.0001")}


@given(options=some.fixed_dictionaries({}, optional=OPTIONS),
       slo=some.sampled_from((None, "ttft:500 tpot:50", "ttft:500 p99_tpot:50")))
def test_the_file_and_the_command_are_the_scenario(tmp_path_factory: pytest.TempPathFactory, options: dict[str, Any],
                                                   slo: str | None) -> None:
    """What the page offers to take away: the TOML reads back as the study, the command parses as its scenario."""
    objectives = None if slo is None else parse_objectives(slo, 0.99)
    study = Study(name="scenario", trace="chat", format=None, scenario=Scenario(model="llama-3.1-8b", **options),
                  objectives=objectives)
    path = tmp_path_factory.mktemp("study") / "scenario.toml"
    path.write_text(study_toml(study))
    assert read_study(path) == study
    words = command_line(study)
    assert words.startswith("planner replay chat --model llama-3.1-8b")
    assert ("--slo" in words) == (slo is not None)
    if "enable_chunked_prefill" in options:
        assert ("--no-enable-chunked-prefill" in words) != options["enable_chunked_prefill"]


