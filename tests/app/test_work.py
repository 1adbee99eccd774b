"""Work beside the server: bounded in memory, ended with whoever asked for it, and one sentence where it goes wrong."""

import gc
import gzip
import json
import os
import pickle
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psutil
import pytest
from pages import answered, linked, opened, press, said, until, uploaded

from planner.errors import PlannerError, UsageError
from planner.planning.search_options import RANKS, Choices
from planner.planning.sizing import size
from planner.planning.study import Study
from planner.report.page import to_html
from planner.report.report_source import SavedAnswer
from planner.results.saved import to_json
from planner.run import replay
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.traces import read_trace
from planner.traces.shaping.client_load import client_load
from planner.ui import fleet_form, replay_tasks, schedule_tasks, tasks, work
from planner.ui import kept_replays as results
from planner.ui.accuracy_tasks import measured
from planner.ui.fleet_answer import fleet_name
from planner.ui.replay_tasks import Numbers, ReplayQuestion, check_load, numbers, picture
from planner.ui.schedule_tasks import timeline, window
from planner.ui.waiting import waited_for
from planner.ui.words import without_paths

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

HOARD = "[b'x' * 10**7 for _ in range(10**5)] and None"
FLEET = Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=300, data_parallel_size=2)


def asked(**options: Any) -> ReplayQuestion:
    scenario = replace(FLEET, data_parallel_size=1, **options)
    return ReplayQuestion(trace=read_trace("chat"), study=Study(name="a", trace="chat", format=None, objectives=None,
                                                                scenario=scenario))


def workers() -> set[int]:
    return {child.pid for child in psutil.Process(os.getpid()).children() if "planner.ui.worker" in child.cmdline()}


def holds(is_so: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + 30
    while time.monotonic() < end_s and not is_so():
        time.sleep(0.05)
    return is_so()


def test_a_job_that_takes_too_much_memory_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MOST_BYTES", 2**30)
    with pytest.raises(PlannerError, match="This takes more than 1 GiB of memory; use fewer requests"):
        waited_for(eval, HOARD)
    assert waited_for(eval, "6 * 7") == 42  # another process does the next one


def test_a_job_ends_when_nobody_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "GRACE_S", 0.2)
    assert waited_for(eval, "1") == 1
    before = workers()
    job = work.start(time.sleep, 600)
    state = job.state
    assert holds(lambda: bool(workers()))
    del job
    gc.collect()
    assert state.stop.is_set()
    assert state.is_over.wait(30)
    assert holds(lambda: not workers() & before)  # its process is gone; a new one waits for the next job


@pytest.mark.parametrize("wrong", ["1 / 0", "open('/nonexistent/secret.csv')", "__import__('os')._exit(9)"])
def test_any_error_is_one_sentence_without_a_path(wrong: str) -> None:
    with pytest.raises(PlannerError) as told:
        waited_for(eval, wrong)
    assert str(told.value) == work.BROKE_OFF


def test_no_page_shows_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("/srv/planner/secret.py")

    monkeypatch.setattr("planner.ui.replay_page.draw_cards", fail)
    page = opened("replay")
    assert not page.exception
    assert page.error[-1].value.startswith("This page ended with an internal error")
    assert "secret" not in said(page)


def test_paths_of_the_server_become_names() -> None:
    path = os.path.join(os.path.dirname(tasks.__file__), "data", "x.toml")
    assert without_paths(f"cannot read {path}: is no file ({path!r})") == "cannot read x.toml: is no file ('x.toml')"
    assert without_paths("5 requests/s, ttft/tpot") == "5 requests/s, ttft/tpot"


def test_too_many_replicas_for_so_many_requests_are_refused() -> None:
    check_load(read_trace("chat"), replace(FLEET, limit=None, data_parallel_size=1024))
    with pytest.raises(UsageError, match=r"19,977 requests on 10,000 replicas: a page takes at most 5,000;"):
        check_load(read_trace("chat"), replace(FLEET, limit=None, data_parallel_size=10_000))
    page = linked("explore", limit="300", axes="data_parallel_size=1,100000")
    assert "data_parallel_size: the dashboard takes up to 1,024" in press(page, "Replay the grid").error[0].value


def test_a_long_replay_has_the_steps_of_its_first_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are of all requests; figures over time are of a part, which is said."""
    whole = picture([asked()], "queue")
    assert whole.parts == (None,)
    num_steps = numbers(asked()).summary["num_steps"]
    known = [numbers(asked())]  # which save a replay
    assert picture([asked()], "queue", known=known).figure.to_json() == whole.figure.to_json()
    for module in (replay_tasks, schedule_tasks):
        monkeypatch.setattr(module, "MOST_STEPS", num_steps // 4)
    part = picture([asked()], "queue")
    assert picture([asked()], "queue", known=known).parts == part.parts
    assert numbers(asked()).summary["completed"] == 300
    said_of = re.search(rf"of the first (\d+) of 300 requests: the replay has {num_steps:,} steps", str(part.parts[0]))
    assert said_of
    assert 70 <= int(said_of[1]) <= 80  # a quarter of the steps
    ends = [found.figure.data[0].dx * len(found.figure.data[0].y) for found in (whole, part)]
    assert ends[1] < ends[0]
    assert "300" in picture([asked()], "ttft_cdf").figure.layout.title.subtitle.text
    with pytest.raises(UsageError, match="steps pass before these requests end"):
        window(asked(), 200, 40)


def test_a_window_is_around_the_slowest_request_with_the_steps_beside_it() -> None:
    requests = replay(read_trace("chat"), asked().study.scenario).requests
    place = requests["ttft_s"].arg_max()
    assert place is not None
    found = window(asked(), "slowest first token", 20)
    assert found.subject == requests["request_id"][place]
    assert found.first == max(place - 10, 0)
    assert found.subject in found.requests["request_id"]
    lanes = [bar for bar in found.figure.data if bar.name.startswith("step of")]
    assert {name for bar in lanes for name in bar.y} == {"steps"}
    assert all(bar.unselected.marker.opacity == 1 for bar in found.figure.data)


def test_a_benchmarks_result_has_signed_errors_and_another_model_is_refused() -> None:
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", max_concurrency=4, num_prompts=40)
    summary = replay(client_load(scenario), scenario).summary
    keys = ("completed", "duration", "total_input_tokens", "total_output_tokens", "mean_ttft_ms", "median_ttft_ms",
            "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms")
    run = {"model_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": 40, "request_rate": "inf",
           "max_concurrency": 4, **{key: summary[key] for key in keys}, "p99_tpot_ms": 2 * summary["p99_tpot_ms"]}
    own = Scenario(model="llama-3.1-8b", gpu="h100-sxm")
    found = measured("bench.json", json.dumps(run).encode(), own)
    error_of = dict(found.table.select("metric", "error").iter_rows())
    assert error_of["p99_ttft_ms"] == pytest.approx(0.0, abs=1e-6)
    assert error_of["p99_tpot_ms"] == pytest.approx(-0.5, rel=1e-6)
    (figure,) = found.figures.values()
    assert [line.name for line in figure.data] == ["TTFT, measured", "TTFT, predicted", "TPOT, measured",
                                                   "TPOT, predicted"]
    other = "bench.json: is of another deployment: "
    for changed, deployment, words in (
            ({}, replace(own, model="qwen3-32b"), r"model llama-3.1-8b \(the sidebar has qwen3-32b\)"),
            ({"model_id": "RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8"}, own, r"weight format fp8 \(the sidebar has the"),
            ({"server_info": {"tp_size": 2}}, own, r"tensor parallelism 2 .*\(the sidebar has 1\)")):
        with pytest.raises(UsageError, match=other + words):
            measured("bench.json", json.dumps({**run, **changed}).encode(), deployment)


def test_measurements_that_no_deployment_of_ours_explains_are_refused() -> None:
    """A file that names no deployment, in seconds: the page says so, and shows no error of 99.9 %."""
    rows = "".join(f"{k},{200 + k},20,{900 + k % 7},{1900 + k}\n" for k in range(40))
    content = f"arrival_s,input_tokens,output_tokens,ttft_s,e2e_s\n{rows}".encode()
    with pytest.raises(UsageError, match=r"slow.csv: is of another deployment, or has another unit: "
                                         r"mean_ttft_ms is predicted at [\d.e-]+ times the measured value"):
        measured("slow.csv", content, Scenario(model="llama-3.1-8b", gpu="h100-sxm"))


def test_a_servers_log_of_another_launch_is_refused(tmp_path: Any) -> None:
    lines = ["INFO 11-20 10:00:00 [utils.py:253] non-default args: {'model': 'Qwen/Qwen3-32B', "
             "'tensor_parallel_size': 2}",
             *(f"INFO 11-20 10:01:{second:02} [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg "
               f"generation throughput: 100.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, "
               f"Prefix cache hit rate: 0.0%" for second in range(10, 50, 10))]
    own = Scenario(model="llama-3.1-8b", gpu="h100-sxm")
    with pytest.raises(UsageError, match=r"server.log: is of another deployment: model qwen3-32b \(.*tensor parallel"):
        measured("server.log", "\n".join(lines).encode(), own)


def test_a_replay_is_a_chrome_trace() -> None:
    events = json.loads(gzip.decompress(timeline(asked())))["traceEvents"]
    steps = [event for event in events if event["ph"] == "X"]
    assert len(steps) == numbers(asked()).summary["num_steps"]


def test_what_a_session_keeps_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    page = linked("replay", limit="300")
    one, figure = page.session_state["kept"].values()
    most = 2 * len(one) + 2 * len(figure)
    monkeypatch.setattr(results, "KEPT_BYTES", most)
    for rate in (2.0, 3.0, 4.0, 5.0):
        page.slider(key="rate_scale").set_value(rate).run()
        assert sum(map(len, page.session_state["kept"].values())) <= most
    assert isinstance(pickle.loads(one), Numbers)
    assert "steps" not in {name for name in vars(Numbers) if not name.startswith("_")}


def test_requests_that_are_not_served_are_said() -> None:
    page = linked("replay", limit="3000", rate_scale="20.0", max_queued_requests="10")
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=3000, rate_scale=20.0, max_queued_requests=10)
    rejected = replay(read_trace("chat"), scenario).summary["rejected"]
    assert rejected > 1000
    assert (f"{3000 - rejected:,} of 3,000 requests served; {rejected:,} rejected: the queue was full"
            ) in said(page).replace("\\", "")
    page = linked("replay", limit="300", max_model_len="500")
    assert "38 of 300 requests served; 262 rejected: longer than the context of 500 tokens" in said(page).replace(
        "\\", "")
    page = linked("replay", limit="300", request_timeout="0.5")
    assert re.search(r"[\d]+ timed out \(the client's time-out ended it\)", said(page).replace("\\", ""))
    assert "not completed" not in said(linked("replay", limit="300"))


@pytest.mark.parametrize("place", ["replay", "schedule", "compare", "capacity", "sizing", "explore", "catalog"])
def test_objectives_of_percentiles_are_taken_by_every_page(place: str) -> None:
    page = linked(place, limit="300", slo="p99_ttft:1000")
    assert not page.exception
    assert not page.error
    if place == "replay":
        assert "p99 TTFT" in said(page)


def test_objectives_that_nothing_keeps_are_no_error() -> None:
    """Neither page has a number to show, and both say which objective is missed."""
    for place, button in (("capacity", "Find the capacity"), ("sizing", "Find the fleet")):
        form = {"ranks": "1", "gpus": "h100-sxm"} if place == "sizing" else {"replicates": "0"}
        page = linked(place, limit="100", slo="p99_ttft:0.001", **form)
        page = until(press(page, button), lambda page: page.warning)
        assert not page.exception
        assert not page.error
        assert not page.metric
        assert "p99_ttft:0.001" in page.warning[0].value.replace("\\", "")
        assert "issed: p99 TTFT" in said(page).replace("\\", "")


def test_a_fleet_states_its_objectives() -> None:
    page = linked("sizing", limit="300", slo="p99_ttft:1000 p99_tpot:50", ranks="1", spare="1", gpus="h100-sxm")
    page = answered(press(page, "Find the fleet"), "sizing")
    assert "targets p99 TTFT 1,000 ms, p99 TPOT 50 ms" in said(page).replace("\\", "")
    assert "p99_ttft:1000 p99_tpot:50" in page.code[-1].value
    found = page.session_state["found_sizing"].value
    assert "p99_ttft:1000" in to_json(found)
    assert "p99_ttft:1000" in to_html(SavedAnswer(name="fleet", answer=found))
    page.multiselect(key="ranks").set_value([1, 2]).run()
    assert "GPUs per replica 1 (now 1, 2)" in page.warning[0].value.replace("\\", "")


def test_a_log_on_the_first_page_starts_its_search() -> None:
    """Once: the page does not search again until the button is pressed or another log comes."""
    rows = b"arrival_s,input_tokens,output_tokens\n" + b"".join(b"%d,500,20\n" % k for k in range(50))
    page = answered(uploaded("plan", "own.csv", rows, gpus=["h100-sxm"]), "plan")
    assert page.header[0].value.replace("\\", "").startswith("1 × H100 SXM — ")
    found = page.session_state["found_plan"]
    assert page.run().session_state["found_plan"] is found
    page = uploaded("plan", "own.csv", rows, gpus=[])
    assert "running_plan" not in page.session_state
    assert "Choose at least one GPU" not in said(page)  # nobody pressed the button


def test_two_pools_by_prompt_length_are_the_command_lines(tmp_path: Any) -> None:
    """The thresholds, with the file that the command takes: they are what `size` answers with that file."""
    page = linked("sizing", limit="300", request_rate="12", pools="true", thresholds="256,1024", short_gpu="l40s",
                  long_gpu="h100-sxm", short_context="8192", router="least-outstanding-tokens")
    assert not page.error
    assert not [each for each in page.multiselect if each.key == "gpus"]  # the pools say what replicas are made of
    page = answered(press(page, "Find the fleet"), "sizing")
    assert not page.exception
    assert not page.error
    found = page.session_state["found_sizing"]
    path = tmp_path / "pools.toml"
    path.write_text(found.about["pools"])
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=300, request_rate=12.0, fleet=str(path),
                        router="least-outstanding-tokens")
    own = size(read_trace("chat"), scenario, parse_objectives("ttft:500 tpot:50", 0.99),
               Choices(thresholds=(256, 1024), prune_layouts=True)).split
    assert own is not None
    split = found.value.split
    assert [row.cost_usd_per_hour for row in split.thresholds] == [row.cost_usd_per_hour for row in own.thresholds]
    table = next(each.value for each in page.dataframe if "threshold [tokens]" in each.value)
    assert list(table["threshold [tokens]"]) == [256, 1024]
    assert (table[""] == "\N{BLACK STAR}").sum() == 1
    assert "two pools: threshold" in said(page).replace("\\", "")
    assert "--fleet pools.toml --thresholds 256,1024" in page.code[-1].value
    assert "thresholds" in linked("sizing", pools="true", thresholds="x").error[0].value


def test_the_first_page_plans_with_load_and_headroom() -> None:
    """What the page shows is what `size` answers at the log's rate times load and headroom."""
    page = linked("plan", limit="400", rate_scale="2.0", headroom="50", slo="p99_ttft:2000 p99_tpot:60",
                  gpus="h100-sxm")
    page = answered(press(page, "Find the cheapest fleet"), "plan")
    command = page.code[-1].value
    assert command.startswith("planner size chat --model llama-3.1-8b --gpu h100-sxm --limit 400 --rate-scale 3")
    found = page.session_state["found_plan"].value
    choices = Choices(gpus=["h100-sxm"], ranks=RANKS, compare_assumptions=False, prune_layouts=True)
    scenario = Scenario(model="llama-3.1-8b", gpu="h100-sxm", limit=400, rate_scale=3.0)
    best = size(read_trace("chat"), scenario, parse_objectives("p99_ttft:2000 p99_tpot:60"), choices).cheapest
    assert best is not None
    assert found.cheapest == best
    assert page.header[0].value.replace("\\", "") == f"{fleet_name(best)} — {best.cost_usd_per_month:,.0f} USD a month"
    badges = said(page).replace("\\", "")
    assert best.headroom is not None
    assert f" requests/s, {1.5 * (1 + best.headroom):.1f} × the log's" in badges
    assert best.p99_ttft_ms is not None
    assert f"p99 TTFT {best.p99_ttft_ms:,.0f} ms, limit 2,000 ms" in badges
    assert re.search(r"prediction error ± \d+ % TTFT, ± \d+ % TPOT", badges)
    assert len(page.get("plotly_chart")) == 2
    page.number_input(key="targets_ttft").set_value(3000.0).run()
    assert "targets p99 TTFT 2,000 ms, p99 TPOT 60 ms (now p99 TTFT 3,000 ms, p99 TPOT 60 ms)" in (
        page.warning[0].value.replace("\\", ""))


def test_prices_of_ones_own_decide_and_stand_in_the_link() -> None:
    page = linked("plan", limit="300", gpus="h100-sxm", price="h100-sxm=1.5", slo="p99_ttft:2000")
    page = answered(press(page, "Find the cheapest fleet"), "plan")
    assert page.header[0].value.replace("\\", "") == "1 × H100 SXM — 1,095 USD a month"  # 730 hours at 1.50
    assert "--price h100-sxm=1.5" in page.code[-1].value
    assert "own prices ✕" in [button.label for button in page.button]
    for text in ("/etc/passwd=1", "h100-sxm=-1", "h100-sxm"):
        assert "price" in linked("plan", price=text).error[0].value, text


def test_an_edited_price_is_kept_unless_it_is_the_catalogs(monkeypatch: pytest.MonkeyPatch) -> None:
    prices = []
    for before, row, price in (("l40s=1", 0, 2.5), ("l40s=1,h100-sxm=2.5", 1, fleet_form.list_price("l40s"))):
        state: dict[str, Any] = {"price": before, "table": {"edited_rows": {row: {fleet_form.PRICE: price}}}}
        monkeypatch.setattr("streamlit.session_state", state)
        fleet_form._take_prices("table", ["h100-sxm", "l40s"])
        prices.append(state["price"])
    assert prices == ["l40s=1,h100-sxm=2.5", "h100-sxm=2.5"]


def test_a_gpu_without_a_fleet_is_among_the_options_with_its_reason() -> None:
    page = linked("plan", limit="100", model="llama-3.1-70b", slo="p99_ttft:5000 p99_tpot:100", headroom="0")
    page.multiselect(key="gpus").set_value(["h100-sxm", "t4"]).run()
    page = answered(press(page, "Find the cheapest fleet"), "plan")
    rows = next(table.value for table in page.dataframe if "fleet" in table.value)
    assert list(rows["fleet"])[1].startswith("T4")
    assert "does not fit" in rows["why none"][1]


def test_targets_that_no_fleet_keeps_are_told_with_the_best_values() -> None:
    page = linked("plan", limit="100", slo="p99_ttft:0.5", gpus="h100-sxm")
    page = until(press(page, "Find the cheapest fleet"), lambda page: page.warning)
    assert page.warning[0].value.replace("\\", "").startswith("No fleet of these GPUs keeps the targets: p99 TTFT")
    assert not page.header


def test_the_first_page_asks_for_gpus_for_targets_and_for_a_rate() -> None:
    page = press(linked("plan", limit="100", gpus="h100-sxm").multiselect(key="gpus").set_value([]).run(),
                 "Find the cheapest fleet")
    assert "Choose at least one GPU" in page.warning[0].value
    closed = linked("plan", limit="100", max_concurrency="4")
    assert "this page plans for a rate of requests" in closed.error[0].value.replace("\\", "")
    assert "A plan needs targets" in linked("plan", limit="100", slo="").error[0].value


LAUNCH = "VLLM_X=1 vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64 --port 8000 --quantization fp8"


def test_a_launch_command_sets_the_sidebar() -> None:
    page = opened("replay", tensor_parallel_size=2, watermark=0.1)
    page.text_area(key="launch").set_value(LAUNCH)
    page = press(page, "Use its options")
    assert not page.exception
    assert not page.error
    assert page.number_input(key="tensor_parallel_size").value == 1  # vllm's own, as the command leaves it out
    for name, value in {"max_num_seqs": 64, "watermark": 0.0, "quantization": "fp8", "limit": 300}.items():
        assert page.session_state[name] == value
    assert "--port 8000" in said(page)
    assert "--max-num-seqs 64" in page.code[-1].value


@pytest.mark.parametrize(("command", "words"), [
    ("sglang serve", "names no model"), ("ls -l", "launches no engine"),
    ("vllm serve /etc --max-num-seqs 4", "is not in the catalog"),
    ("vllm serve llama-3.1-8b --config {path}", "no file is read here"), ("{path}", "launches no engine"),
    ("vllm serve llama-3.1-8b -tp 2 -dp 4096", "the dashboard takes up to 1,024")])
def test_a_launch_command_opens_no_file(command: str, words: str, tmp_path: Any) -> None:
    path = tmp_path / "launch.sh"
    path.write_text("vllm serve llama-3.1-8b --max-num-seqs 77\n")
    page = opened("replay")
    page.text_area(key="launch").set_value(command.format(path=path))
    page = press(page, "Use its options")
    assert words in page.error[0].value
    assert page.session_state["max_num_seqs"] is None


def test_objectives_stand_in_the_question() -> None:
    objectives = parse_objectives("ttft:500 p99_tpot:50", 0.9)
    study = replace(asked().study, objectives=objectives)
    assert results.study_key(read_trace("chat"), study) != results.study_key(
        read_trace("chat"), replace(study, objectives=replace(objectives, attainment=0.99)))
