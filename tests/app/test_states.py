"""Each page while it has nothing, while it works, when something is wrong, and once it has an answer."""

import base64
import gc
import gzip
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measured_runs import write_synthetic
from pages import linked, opened, press, said, until, uploaded, uploader

from planner.catalog.catalog_files import data_dir
from planner.measured.published import read_published
from planner.planning.study import Study, command_line
from planner.report.report_source import answer_of
from planner.results.saved import to_json
from planner.settings.scenario import Scenario
from planner.ui import explore_page as explore_module
from planner.ui.app import PAGES
from planner.ui.own_profiles import portable

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

PLACES = [address for _, _, address, _ in PAGES]
EMPTY = {"plan": "This answer for the bundled sample was found when", "compare": "Pin a scenario here or on Replay",
         "capacity": "Find the highest rate", "sizing": "Find the fewest replicas",
         "explore": "Choose options and their values", "watch": "Does the plan still hold?",
         "studies": "This server keeps no studies", "accuracy": "Upload your measurements"}
WITHOUT_LOG = {"catalog", "watch", "studies"}
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 8192,
          "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
          "head_dim": 64, "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "model_type": "llama"}


@pytest.mark.parametrize("place", [place for place in PLACES if place not in WITHOUT_LOG])
def test_without_a_trace_each_page_asks_for_one(place: str) -> None:
    page = opened(place, trace="your file")
    assert not page.exception
    assert f"Upload a trace {'above' if place == 'plan' else 'in the sidebar'}" in page.info[0].value
    assert page.title[0].value.lower() == place


@pytest.mark.parametrize("place", PLACES)
def test_a_mistake_in_the_sidebar_is_said_in_place_of_each_page(place: str) -> None:
    page = opened(place, slo="tfft:500")
    assert not page.exception
    assert "did you mean 'ttft'" in page.error[0].value


@pytest.mark.parametrize("place", PLACES)
def test_each_page_says_what_it_is_for_until_it_is_asked(place: str) -> None:
    page = opened(place)
    assert not page.exception
    assert not page.error
    assert page.title[0].value.lower() == place
    if place in EMPTY:
        assert EMPTY[place] in " ".join(each.value for each in page.info)
    else:
        assert page.get("plotly_chart") or page.get("arrow_data_frame") or page.dataframe


def test_a_capacity_has_its_number_its_load_and_its_command() -> None:
    page = until(press(opened("capacity"), "Find the capacity"), lambda page: page.subheader)
    assert not page.exception
    sentence = page.subheader[0].value.replace("\\", "")
    assert re.match(r"[\d.]+ requests per second, [\d.]+ × the traffic; then T(TF|PO)T gives way", sentence)
    assert len(page.get("plotly_chart")) == 2
    kept = [words.value for words in page.info]
    page.number_input(key="other_attainment").set_value(0.9).run()
    assert [words.value for words in page.info] != kept
    assert page.code[-1].value.startswith("planner capacity chat --model llama-3.1-8b")


def test_other_percentiles_are_answered_without_a_search() -> None:
    page = linked("capacity", limit="1000", replicates="0", slo="p99_ttft:500 p99_tpot:30")
    page = until(press(page, "Find the capacity"), lambda page: page.subheader)
    chart = json.loads(page.get("plotly_chart")[0].proto.spec)
    assert [trace["name"] for trace in chart["data"]] == ["p99 TTFT ÷ 500 ms", "p99 TPOT ÷ 30 ms"]
    before = up_to(page)
    page.selectbox(key="other_statistic_p99_tpot").set_value("p50_tpot").run()
    assert up_to(page) >= before
    probes = page.session_state["found_capacity"].value.probes
    page.number_input(key="other_limit_p99_tpot").set_value(probes[1].statistics_ms["p50_tpot"]).run()
    assert probes[1].load == pytest.approx(up_to(page), rel=1e-3)
    assert "running_capacity" not in page.session_state


def up_to(page: Any) -> float:
    """Return the highest load that keeps the other targets."""
    return float(re.search(r"kept up to ([\d.]+)/s", said(page).replace("\\", ""))[1])  # type: ignore[index]


def test_a_capacity_counts_users() -> None:
    page = linked("capacity", of="concurrency", think_time="5", limit="300", replicates="0", slo="ttft:500 tpot:20")
    assert page.number_input(key="think_time").value == 5.0
    page = until(press(page, "Find the capacity"), lambda page: page.subheader)
    assert not page.exception
    assert re.match(r"\d+ users, at [\d.]+ requests per second; then", page.subheader[0].value.replace("\\", ""))
    assert "a user pauses for 5 s after each answer" in said(page)
    assert "--of concurrency --think-time 5.0" in page.code[-1].value
    assert "--scaling" not in page.code[-1].value


def test_a_replay_says_whether_it_keeps_up() -> None:
    own, more = linked("replay"), linked("replay", rate_scale="12")
    assert "Saturated: no" in said(own).replace("\\", "")
    assert own.success[0].value.startswith("Keeps its targets")
    assert "Saturated: yes since" in said(more).replace("\\", "")
    assert more.error[0].value.startswith("Overloaded")


def test_a_comparison_can_be_taken_away() -> None:
    page = press(opened("compare"), "Pin this scenario")
    assert not page.exception
    assert [each.label for each in page.get("download_button")] == ["Summaries, JSON", "Report, HTML"]
    (content,) = page.session_state["kept"].values()
    found = answer_of(json.loads(to_json([{"name": "a", **pickle.loads(content).summary}])), "comparison.json")
    assert found.kind == "comparison"


def test_a_days_load_stands_against_its_fleet() -> None:
    page = opened("sizing", gpus=["h100-sxm"])
    page.radio(key="schedule").set_value("a file of rates").run()
    assert "Upload the rates over time" in press(page, "Find the fleet").warning[0].value
    uploader(page, "Rates over time").upload("day.csv", b"start_s,rate_rps\n0,5\n60,20\n120,0\n")
    page.multiselect(key="ranks").set_value([1])
    page = until(press(page, "Find the fleet"), lambda page: page.get("plotly_chart"))
    assert not page.exception
    assert len(page.get("plotly_chart")) == 2
    assert "--rate-series day.csv" in page.code[-1].value
    assert any(caption.value.startswith("On a schedule") for caption in page.caption)
    assert "targets TTFT 500 ms, TPOT 50 ms for 99 % of the requests" in said(page).replace("\\", "")


def test_a_fleet_says_what_it_rests_on_and_when_it_grows() -> None:
    page = opened("sizing", gpus=["h100-sxm"])
    page.multiselect(key="ranks").set_value([1])
    page.checkbox(key="sensitivity").set_value(True)
    page.text_input(key="growth").set_value("10%/month").run()
    page.number_input(key="change_cost").set_value(500.0)
    page = until(press(page, "Find the fleet"), lambda page: page.get("plotly_chart"))
    assert not page.exception
    assert len(page.get("plotly_chart")) == 2
    assert 13 in [len(table.value) for table in page.dataframe]  # today and twelve months
    assert "--sensitivity" in page.code[-1].value
    assert "--growth 10%/month --change-cost 500.0" in page.code[-1].value
    assert "he choice of 1 × H100 SXM" in said(page).replace("\\", "")


def test_a_file_of_rates_that_is_wrong_is_said() -> None:
    page = opened("sizing", gpus=["h100-sxm"])
    page.radio(key="schedule").set_value("a file of rates").run()
    uploader(page, "Rates over time").upload("day.csv", b"start_s,rate_rps\n0,5\n60,x\n")
    page = press(page, "Find the fleet")
    assert not page.exception
    assert "day.csv: row 3: rate_rps = 'x'" in page.error[0].value


def is_swept(page: Any) -> bool:
    return "running_sweep" not in page.session_state and bool(page.get("plotly_chart"))


def test_a_sweep_runs_beside_its_page() -> None:
    """The page comes back at once with how far it is and a way to stop, and has the front in the end."""
    page = opened("explore")
    page.text_area[0].set_value("max_num_seqs=4,64\ndata_parallel_size=1,2")
    page = press(page, "Replay the grid")
    assert not page.exception
    if not page.get("plotly_chart"):
        assert "Stop" in [button.label for button in page.button]
        assert "configurations replayed" in page.get("progress")[0].proto.text
    page = until(page, is_swept)
    assert len(page.dataframe[0].value) == 4
    assert not page.warning
    assert "planner sweep chat" in page.code[-1].value
    assert "--attainment" not in page.code[-1].value


def test_an_option_is_added_to_a_sweep_from_a_list_and_a_row_goes_to_the_sidebar() -> None:
    page = linked("explore", limit="300", axes="max_num_seqs=4,64")
    page.selectbox(key="new_axis").set_value("data_parallel_size").run()
    page = press(page, "Add")
    assert page.text_area[0].value == "max_num_seqs=4,64\ndata_parallel_size=1,2,4"
    page = until(press(page, "Replay the grid"), is_swept)
    best = page.success[0].value.replace("\\", "")
    assert best.startswith("Cheapest within the targets: running sequences, at most 64, replicas 1,")
    table = page.dataframe[0].value
    assert list(table["\N{BLACK STAR}"])[:2] == ["\N{BLACK STAR}", ""]
    page.session_state["max_num_seqs"] = 64
    page.run()
    assert not page.warning  # an option that varies does not change the answer


def test_a_sweep_that_is_stopped_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore_module, "PART", 1)
    page = opened("explore")
    page.text_area[0].set_value(f"max_num_seqs={','.join(map(str, range(1, 101)))}")
    page = press(page, "Replay the grid")
    state = page.session_state["running_sweep"].job.state
    page = until(page, lambda _: state.num_done > 0)
    if not state.is_over.is_set():
        press(page, "Stop")
    page = until(page, is_swept)
    done = len(page.dataframe[0].value)
    assert 0 < done < 100
    assert f"Stopped: {done} of 100 were done" in page.warning[0].value


def test_a_sweep_shows_what_is_done_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points, rows and the cheapest so far, in place of an earlier answer; the Stop button stays."""
    monkeypatch.setattr(explore_module, "PART", 1)
    page = opened("explore")
    page.text_area[0].set_value("max_num_seqs=64")
    until(press(page, "Replay the grid"), is_swept)
    page.text_area[0].set_value(f"max_num_seqs={','.join(map(str, range(20, 220)))}")
    page = until(press(page, "Replay the grid"), lambda page: page.get("plotly_chart"))
    assert "Stop" in [button.label for button in page.button]
    assert [caption for caption in page.success if caption.value.startswith("Cheapest so far within the targets")]
    table = page.dataframe[0].value
    assert 0 < len(table) < 200
    assert table["\N{BLACK STAR}"][0] == "\N{BLACK STAR}"
    assert "max_num_seqs" in table
    figure = json.loads(page.get("plotly_chart")[0].proto.spec)
    assert "cheapest within the targets" in [trace["name"] for trace in figure["data"]]
    press(page, "Stop")
    until(page, is_swept)


def test_a_sweep_stops_when_its_session_ends() -> None:
    page = opened("explore")
    page.text_area[0].set_value(f"max_num_seqs={','.join(map(str, range(1, 101)))}")
    page = press(page, "Replay the grid")
    stop = page.session_state["running_sweep"].job.state.stop
    del page.session_state["running_sweep"]
    page.run()
    gc.collect()
    assert stop.is_set()


def test_a_sweep_that_cannot_be_replayed_says_why() -> None:
    page = opened("explore")
    page.text_area[0].set_value("max_num_seqs=0.5")
    assert "max_num_seqs" in press(page, "Replay the grid").error[0].value
    page.text_area[0].set_value("model=llama-3.1-405b")
    page = until(press(page, "Replay the grid"), lambda page: page.error)
    assert not page.exception
    assert "no configuration could be replayed; the first:" in page.error[0].value


def test_published_errors_are_shown_without_an_upload() -> None:
    page = opened("accuracy")
    sections = read_published()
    assert page.selectbox(key="published").options == list(sections)
    first = next(iter(sections.values()))
    assert list(page.dataframe[0].value["value"]) == pytest.approx([100 * row.value for row in first if row.value])
    shown = said(page).replace("\\", "")
    assert "left out of the fit, TPOT is 5 % off in the median and 11 % in the mean and TTFT is 11 % off in" in shown
    assert sum(row.is_met is not None for rows in sections.values() for row in rows) > 30


def test_constants_are_fitted_to_an_upload_and_used_by_every_page(tmp_path: Path) -> None:
    """The sidebar's scenario has them from then on: errors, commands and answers; a chip goes back."""
    content = write_synthetic(tmp_path / "runs.csv", {"host_s": 0.006}, noise=0.02, every=2).read_bytes()
    page = opened("accuracy")
    uploader(page, "Measurements").upload("runs.csv", content)
    page.run()
    before = page.dataframe[0].value["error"].abs().mean()
    press(page, "Fit the constants to these measurements")
    page = until(page, lambda page: "Use on all pages" in [button.label for button in page.button])
    assert not page.exception
    assert re.search(r"constants of vLLM are fitted: .*TPOT is \d+\.\d % off on average before the fit", said(page)
                     .replace("\\", ""))
    constants = next(table.value for table in page.dataframe if "bundled" in table.value)
    assert ((constants["from"] <= constants["fitted"]) & (constants["fitted"] <= constants["to"])).all()
    page = press(page, "Use on all pages")
    assert not page.error
    assert page.dataframe[0].value["error"].abs().mean() < before / 1.5
    assert "constants fitted to runs.csv ✕" in [button.label.replace("\\", "") for button in page.button]
    path = page.session_state["calibration_used"][0]
    assert Path(path).read_text().startswith("# Written by")
    page = press(page, "constants fitted to runs\\.csv ✕")
    assert page.dataframe[0].value["error"].abs().mean() == pytest.approx(before)


def gpu_toml() -> str:
    return (data_dir("hardware_db") / "gpus" / "h100-sxm.toml").read_text().replace('"h100-sxm"', '"my-gpu"')


def test_a_gpu_of_ones_own_is_checked_and_used_by_the_session_alone() -> None:
    page, other = opened("catalog"), opened("catalog")
    page.text_area(key="own_gpu_text").set_value("name = 3")
    page = press(page, "Check and add the GPU")
    assert "gpu.toml: hbm_bandwidth is missing" in page.error[0].value
    page.text_area(key="own_gpu_text").set_value(gpu_toml())
    page = press(page, "Check and add the GPU")
    assert not page.exception
    assert "my-gpu" in page.selectbox(key="gpu").options
    assert page.get("download_button")[0].label == "my-gpu, TOML"
    page.selectbox(key="gpu").set_value("my-gpu").run()
    assert not page.error
    assert page.selectbox(key="catalog_gpu").value in ("h100-sxm", "my-gpu")
    assert "my-gpu" not in other.run().selectbox(key="gpu").options


def test_a_model_of_ones_own_is_replayed() -> None:
    page = opened("catalog")
    page.text_area(key="own_model_text").set_value(json.dumps({**CONFIG, "num_hidden_layers": "x"}))
    page = press(page, "Check and add the model")
    assert "config.json" in page.error[0].value
    page.text_area(key="own_model_text").set_value(json.dumps(CONFIG))
    page = press(page, "Check and add the model")
    assert not page.error
    page.selectbox(key="model").set_value("my-model").run()
    page.selectbox(key="catalog_model").set_value("my-model").run()
    assert not page.exception
    assert not page.error
    assert "my-model" in page.code[-1].value


def test_a_files_own_profiles_stand_beside_the_command() -> None:
    study = Study(name="a", trace="chat", format=None, objectives=None,
                  scenario=Scenario(model="/tmp/x/models/my-model.json", gpu="/tmp/x/gpus/my-gpu.toml"))
    assert command_line(portable(study)) == "planner replay chat --model my-model.json --gpu my-gpu.toml"


def test_a_request_tells_its_story() -> None:
    page = linked("schedule", limit="300", first="0")
    page.selectbox(key="story").set_value("3").run()
    assert not page.exception
    assert "its prompt ran in" in page.info[0].value
    assert page.dataframe[0].value["what"][0] == "waits in the queue"


def test_a_span_says_how_long_it_lasts() -> None:
    """In the hover, where Plotly's %{x} would be its end."""
    page = linked("schedule", limit="300", count="20", first="0")
    shown = json.loads(page.get("plotly_chart")[1].proto.spec)
    bars = [bar for bar in shown["data"] if bar["type"] == "bar" and not bar["name"].startswith("step of")]
    assert {"waiting", "prompt chunk", "decode"} <= {bar["name"] for bar in bars}
    for bar in bars:
        assert "%{x" not in bar["hovertemplate"]
        assert "%{customdata[2]:,.2f} ms" in bar["hovertemplate"]
        for custom, length in zip(bar["customdata"], values_of(bar["x"]), strict=True):
            assert custom[2] == pytest.approx(1e3 * length)


def values_of(column: Any) -> list[float]:
    """Return the numbers of a figure's column, as a list or as Plotly packs them."""
    return column if isinstance(column, list) else np.frombuffer(
        base64.b64decode(column["bdata"]), column["dtype"]).tolist()


def test_a_compressed_trace_is_read() -> None:
    page = uploaded("workload", "t.csv.gz", gzip.compress(b"arrival_s,input_tokens,output_tokens\n0,5,5\n1,6,6\n"))
    assert "2 of 2 rows read, 2 requests replayed" in said(page).replace("\\", "")
