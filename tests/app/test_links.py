"""What a link says is what a page shows: nothing of it is dropped, replaced or opened as a file of the server."""

import json
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from pages import linked, opened, press, said, until, uploader

from planner.errors import UsageError
from planner.planning.study import Study
from planner.settings.scenario import Scenario
from planner.ui import waiting
from planner.ui.app import KEYS, PAGES
from planner.ui.explore_page import _plan
from planner.ui.named import in_catalog, known_name, named
from planner.ui.option_fields import LEFT_OUT

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

SECRET = "hunter2"
METRICS = ["p99_ttft_ms", "p99_tpot_ms"]
OTHERS = [address for _, _, address, _ in PAGES if address != "catalog"]


@pytest.mark.parametrize(("option", "text", "words"), [
    ("gpu", "my-gpu", "this session has no such gpu"), ("model", "llama-3.1-9b", "did you mean 'llama-3.1-8b'"),
    ("rate_scale", "25", "from 0.1 to 20"), ("rate_scale", "abc", "must be a number"),
    ("data_parallel_size", "100000", "whole number from 1 to 1,024"), ("max_num_seqs", "1.5", "whole number"),
    ("policy", "x.py:name", "must be one of"), ("expert_parallel", "yes", "true or false"),
    ("times", "20-10", "must be two times in seconds"),
    ("trace", "/etc/passwd", "must be one of"), ("autoscale", "a.toml", "not an option of this server"),
    ("nonsense", "1", "not an option of this server")])
def test_a_value_that_is_not_known_is_told_and_nothing_else_is_shown(option: str, text: str, words: str) -> None:
    page = linked("replay", limit="300", **{option: text})
    assert not page.exception
    assert option in page.error[0].value.replace("\\", "")
    assert words in page.error[0].value.replace("\\", "")
    assert not page.metric
    assert page.query_params[option] in (text, [text])  # so that a reload says the same
    page = press(page, "Continue with the sidebar's values")
    assert not page.error
    assert page.metric
    assert option not in page.query_params


@pytest.mark.parametrize("place", OTHERS)
def test_no_page_answers_for_another_scenario_than_its_link(place: str) -> None:
    page = linked(place, gpu="my-gpu")
    assert "my-gpu" in page.error[0].value.replace("\\", "")
    assert not page.get("plotly_chart")
    assert not page.metric


def test_another_choice_in_the_sidebar_is_taken() -> None:
    page = linked("replay", limit="300", gpu="my-gpu", slo="ttft:60000")
    page.selectbox(key="gpu").set_value("l40s").run()
    assert not page.error
    assert "l40s" in page.code[-1].value


def test_a_model_that_is_added_is_the_links() -> None:
    from test_states import gpu_toml

    page = linked("catalog", limit="300", gpu="my-gpu")
    assert "my-gpu" in page.error[0].value.replace("\\", "")
    page.text_area(key="own_gpu_text").set_value(gpu_toml())
    page = press(page, "Check and add the GPU")
    assert not page.error
    assert page.selectbox(key="gpu").value == "my-gpu"


def test_what_is_known_is_taken() -> None:
    page = linked("replay", limit="300", gpu="l40s", rate_scale="0.5", max_num_seqs="16", slo="p99_ttft:800000",
                  expert_parallel="false", enable_chunked_prefill="on", attainment="0.9")
    assert not page.error
    for words in ("--gpu l40s", "--limit 300", "--rate-scale 0.5", "--max-num-seqs 16", "p99_ttft:800000"):
        assert words in page.code[-1].value


OPENED: list[str] = []
sys.addaudithook(lambda event, args: OPENED.append(str(args[0])) if event == "open" else None)


@contextmanager
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Do the pages' work here, so that the audit hook sees what it opens."""
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "result_of", lambda task, *args, said: task(*args))
        patch.setattr("planner.ui.kept_replays.content_of", lambda task, *args, said: _pickled(task(*args)))
        yield


def _pickled(value: Any) -> bytes:
    return pickle.dumps(value)


@pytest.fixture
def secrets(tmp_path: Path) -> list[str]:
    """Files of the server with a secret, by every ending that an option may read; and one as a file with a name."""
    for ending in ("csv", "toml", "json", "py", "txt", "parquet", "yaml"):
        (tmp_path / f"secret.{ending}").write_text(f"password,{SECRET}\n1,2\n")
    return [*(str(path) for path in sorted(tmp_path.iterdir())), f"{tmp_path}/secret.py:name"]


OPTIONS = [f.name for f in fields(Scenario) if f.name != "think_time"]  # a field of the Capacity page: a number
# Options whose widgets take any text.
TEXTS = ("engine_version", "fail_replica", "num_speculative_tokens_per_batch_size", "session_start_fraction",
         "speculative_acceptance", "step_time")


def test_no_option_of_a_link_opens_a_file(secrets: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field of a scenario, with a path as its value: refused by name, not opened, and nothing of it is said."""
    refused = [option for option in OPTIONS if option not in TEXTS]
    for path in secrets:
        OPENED.clear()
        with in_this_process(monkeypatch):
            page = linked("replay", **dict.fromkeys([*refused, "trace"], path))
        assert not page.exception
        assert not [each for each in OPENED if "secret." in each], path
        assert SECRET not in said(page)
        told = page.error[0].value.replace("\\", "")
        assert not [option for option in refused if f"{option} = '{path}'" not in told
                    and f"{option} is not an option" not in told]


@pytest.mark.parametrize("option", [*TEXTS, "slo"])
def test_no_text_of_a_link_opens_a_file(option: str, secrets: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for path in secrets:
        OPENED.clear()
        with in_this_process(monkeypatch):
            page = linked("replay", limit="20", data_parallel_size="2", num_speculative_tokens="2", **{option: path})
        assert not page.exception
        assert not [each for each in OPENED if "secret." in each], path
        assert SECRET not in said(page)
        assert page.error
        assert not page.metric


@pytest.mark.parametrize("option", [f.name for f in fields(Scenario)])
def test_no_axis_of_a_grid_opens_a_file(option: str, secrets: list[str]) -> None:
    study = Study(name="a", trace="chat", format=None, scenario=Scenario(model="llama-3.1-8b", gpu="h100-sxm"),
                  objectives=None)
    for path in secrets:
        OPENED.clear()
        try:
            taken = str([point.values for point in _plan(study, f"{option}={path}", METRICS).points()])
        except UsageError as error:
            taken = str(error)
        assert not [each for each in OPENED if "secret." in each], path
        assert SECRET not in taken


def test_text_and_aliases_are_taken() -> None:
    assert named({"model": "meta-llama/Llama-3.1-8B-Instruct", "fail_replica": "2@600+120, 0@900", "gpu": None}) == {
        "model": "meta-llama/Llama-3.1-8B-Instruct", "fail_replica": "2@600+120, 0@900", "gpu": None}
    assert in_catalog("meta-llama/Llama-3.1-8B-Instruct") == {"model": "llama-3.1-8b", "quantization": None}
    assert known_name("gpu", "NVIDIA H100 80GB HBM3") == "h100-sxm"
    for option, value in (("tenants", "t.toml"), ("fleet", "f.toml"), ("calibration", "c.toml"), ("router", "r.py:x"),
                          ("fail_replica", "f.csv"), ("model", "../config.json"), ("gpu", "gpus/x.toml")):
        with pytest.raises(UsageError, match=option):
            named({option: value})


def test_every_bound_option_is_in_the_list_of_links() -> None:
    assert {f.name for f in fields(Scenario)} - set(LEFT_OUT) - {"tenants"} <= set(KEYS)
    assert len(KEYS) == len(set(KEYS))


def test_a_file_of_tenants_is_uploaded() -> None:
    page = press(opened("replay"), "All settings")
    uploader(page, "Tenants: quotas and shares").upload("quota.toml", b"[tenants.a]\nnonsense = 1\n")
    page.run()
    assert not page.exception
    assert "tenants.toml" in page.error[0].value
    assert "/" not in page.error[0].value.split("tenants.toml")[0]


def test_forms_keep_their_values_and_answers_their_question() -> None:
    page = linked("capacity", limit="300", scaling="poisson", replicates="0", slo="ttft:500 p99_tpot:50")
    assert page.selectbox(key="scaling").value == "poisson"
    page = until(press(page, "Find the capacity"), lambda page: page.subheader)
    assert "targets TTFT 500 ms for 99 % of the requests; p99 TPOT 50 ms" in said(page).replace("\\", "")
    assert "another rate by arrivals drawn as a Poisson process" in said(page).replace("\\", "")
    assert not page.warning
    page.text_input(key="slo").set_value("ttft:300").run()
    page.toggle(key="targets_as_text").set_value(True).run()
    assert "p99 TPOT 50 ms (now TTFT 300 ms for 99 % of the requests)" in page.warning[0].value.replace("\\", "")
    page.text_input(key="slo").set_value("ttft:500 p99_tpot:50").run()
    assert not page.warning
    page.selectbox(key="scaling").set_value("compress").run()
    assert "drawn as a Poisson process (now the same users in a hurry)" in page.warning[0].value.replace("\\", "")


def test_a_link_pins_its_scenarios_and_says_what_it_does_not_know() -> None:
    page = linked("compare", limit="300", rate_scale="4.0", pin="limit=300&rate_scale=4.0&max_num_seqs=8")
    assert not page.exception
    words = said(page).replace("\\", "")
    assert "| running sequences, at most | 8 | default |" in words
    assert "against **running sequences, at most 8**: a request takes" in words
    assert page.query_params["pin"] in (["limit=300&rate_scale=4.0&max_num_seqs=8"],
                                        "limit=300&rate_scale=4.0&max_num_seqs=8")
    page = press(page, "Remove")
    assert "pin" not in page.query_params
    for text, why in (("gpu=my-gpu", "this session has no such gpu"), ("limit=x", "limit = 'x': must be a whole"),
                      ("nonsense=1", "nonsense is not a setting"), ("slo=tfft:5", "did you mean 'ttft'")):
        page = linked("compare", limit="300", pin=text)
        assert why in page.error[0].value.replace("\\", ""), text
        assert not page.get("plotly_chart")
        assert "pin" not in press(page, "Continue with the sidebar's values").query_params
    page = linked("compare", limit="300", pin="trace=your+file")
    assert "replays your file; upload it" in page.error[0].value


def test_a_name_of_a_pinned_scenario_is_in_its_link() -> None:
    page = linked("compare", limit="300", pin="limit=300&max_num_seqs=8&name=few+seats")
    assert "against **few seats**" in said(page).replace("\\", "")
    field = next(each for each in page.text_input if each.value == "few seats")
    page = field.set_value("eight").run()
    assert "against **eight**" in said(page).replace("\\", "")
    assert page.query_params["pin"] in (["limit=300&max_num_seqs=8&name=eight"], "limit=300&max_num_seqs=8&name=eight")
    page = next(each for each in page.text_input if each.value == "eight").set_value("").run()
    assert "against **running sequences, at most 8**" in said(page).replace("\\", "")
    assert page.query_params["pin"] in (["limit=300&max_num_seqs=8"], "limit=300&max_num_seqs=8")


def test_the_history_links_a_scenario_with_the_one_before_it() -> None:
    page = linked("replay", limit="300")
    page.slider(key="rate_scale").set_value(6.0).run()
    table = next(each.value for each in page.dataframe if "before and after" in each.value)
    assert list(table["before and after"].isna()) == [True, False]
    link = urlsplit(table["before and after"][1])
    assert link.path == "compare"
    fresh = linked("compare", **dict(parse_qsl(link.query)))
    assert "| load | 1 | 6 |" in said(fresh).replace("\\", "")
    assert "**load ×6** against **load ×1**: a request takes" in said(fresh).replace("\\", "")
    figure = json.loads(fresh.get("plotly_chart")[0].proto.spec)
    assert len({curve["name"] for curve in figure["data"]}) >= 2
