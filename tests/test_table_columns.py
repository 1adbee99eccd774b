"""A table of a user's own runs: whose settings a row has, what its columns may be, and errors that are questioned."""

import csv
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from measured_runs import error_in

from planner.errors import TraceError
from planner.measured.accuracy import accuracy, predict_file
from planner.measured.run_columns import KNOWN, OF_SIDES, REFUSED
from planner.measured.run_table import Measurement, read_measured
from planner.measured.validate import deploy_measured, predict
from planner.settings.scenario import Scenario

NINE = {"gpu": "h100-sxm", "engine": "vllm", "model": "meta-llama/Llama-3.1-8B", "isl": 256, "osl": 32,
        "concurrency": 8, "tp": 1, "measured_ttft_ms": 50, "measured_tpot_ms": 9}
PUBLISHED = ("id,source,measured_date,system,backend,backend_version,model,precision,gemm_quant_mode,moe_quant_mode,"
             "isl,osl,concurrency,tp,dp,moe_tp,moe_ep,n_gpus,measured_ttft_ms,measured_tpot_ms,client")


def write(path: Path, *rows: dict[str, Any]) -> Path:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(path: Path, **columns: Any) -> Measurement:
    [run] = read_measured(write(path, NINE | columns))
    assert run.status == "ok", run.status
    return run


def scenario_of(path: Path, **columns: Any) -> Scenario:
    found = read(path, **columns).scenario
    assert found is not None
    return found


@pytest.mark.parametrize("client", [{}, {"client": ""}, {"client": "vllm"}])
def test_a_row_of_ones_own_has_the_servers_settings(client: dict[str, str], tmp_path: Path) -> None:
    run = read(tmp_path / "r.csv", **client)
    settings = deploy_measured(run).settings
    assert (settings.max_num_seqs, settings.max_num_batched_tokens, settings.async_scheduling) == (1024, 8192, True)
    assert run.scenario is not None
    assert run.scenario.quantization is None  # the checkpoint's
    assert run.num_opening == 0


@pytest.mark.parametrize("client", ["inferencex", "internal"])
def test_recipes_are_for_rows_that_name_their_client(client: str, tmp_path: Path) -> None:
    found = scenario_of(tmp_path / "r.csv", client=client)
    assert found.max_model_len == 256 + 32 + 200  # as the benchmark's scripts start the server
    assert (found.max_num_seqs, found.enable_prefix_caching) != (1024, None)


def test_a_table_without_clients_can_be_said_to_be_a_benchmarks(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", NINE)
    [named], [plain] = read_measured(path, client="inferencex"), read_measured(path)
    assert (named.groups["client"], plain.groups["client"]) == ("inferencex", "unknown")
    assert named.scenario != plain.scenario


def test_every_option_of_a_scenario_is_a_column_or_refused() -> None:
    assert {f.name for f in fields(Scenario)} == {f.name for f in fields(Scenario)} & {*KNOWN, *REFUSED}
    assert not set(KNOWN) & set(REFUSED)


@pytest.mark.parametrize(("column", "cell", "value"), [
    ("quantization", "fp8", "fp8"), ("kv_cache_dtype", "fp8", "fp8"), ("max_num_seqs", "16", 16),
    ("max_num_seqs", "16.0", 16), ("max_num_batched_tokens", "4096", 4096), ("async_scheduling", "False", False),
    ("gpu_memory_utilization", "0.8", 0.8), ("speculative_acceptance", "0.8,0.6", "0.8,0.6"),
    ("policy", "fcfs", "fcfs"), ("max_num_seqs", "", None), ("max_model_len", "", None), ("precision", "fp8", None)])
def test_an_option_of_the_scenario_is_a_column(column: str, cell: str, value: Any, tmp_path: Path) -> None:
    assert getattr(scenario_of(tmp_path / "r.csv", **{column: cell}), column, None) == value


def test_a_column_goes_before_a_recipe(tmp_path: Path) -> None:
    assert scenario_of(tmp_path / "r.csv", client="inferencex", max_num_seqs=5).max_num_seqs == 5


def test_layouts_have_the_scenarios_names_too(tmp_path: Path) -> None:
    moe = {"model": "Qwen/Qwen3-30B-A3B", "tp": 2, "dp": 2, "concurrency": 16}
    ranks = read(tmp_path / "a.csv", **moe, expert_parallel="true")
    replicas = read(tmp_path / "b.csv", **moe, data_parallel_attention="false")
    stages = read(tmp_path / "c.csv", pipeline_parallel_size=2)
    for run, sizes in ((ranks, (2, 2, 4, 1)), (replicas, (2, 1, 1, 1)), (stages, (1, 1, 1, 2))):
        assert run.layout is not None
        assert (run.layout.tensor_parallel_size, run.layout.data_parallel_size, run.layout.expert_parallel_size,
                run.layout.pipeline_parallel_size) == sizes
    assert [run.scenario.max_concurrency for run in (ranks, replicas) if run.scenario] == [8, 8]


@pytest.mark.parametrize(("columns", "words"), [
    ({"kv_cache_type": "fp8"}, r"column kv_cache_type: is neither a column .* did you mean kv_cache_dtype\?"),
    ({"remark": "x"}, "[Tt]o keep it as a note, rename it to note_remark"),
    ({"router": "random"}, "column router: a row is a run of one engine"),
    ({"interval": 0.8}, "column interval: "),
    ({"max_num_seqs": "many"}, "row 0: max_num_seqs = 'many': must be a whole number"),
    ({"async_scheduling": "maybe"}, "row 0: async_scheduling = 'maybe': must be true or false"),
    ({"client": "inferenceX"}, "row 0: unknown client 'inferenceX'; did you mean 'inferencex'"),
    ({"system": "a100-sxm"}, "row 0: system = a100-sxm beside gpu = h100-sxm"),
    ({"n_gpus": 2}, "row 0: n_gpus = 2 beside tp · pp · dp = 1"),
    ({"n_chips": 2}, "row 0: n_chips = 2 beside tp · pp · dp = 1"),
    ({"attention_dp": 2, "dp": 1}, "row 0: attention_dp = 2 beside dp = 1"),
    ({"concurrency": ""}, "row 0: concurrency is empty"),
    ({"data_parallel_attention": "true"}, "row 0: data_parallel_attention with data_parallel_size = 1"),
])
def test_a_column_or_cell_that_would_be_ignored_is_an_error(columns: dict[str, Any], words: str,
                                                           tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=rf"r\.csv.*{words}") as error:
        read_measured(write(tmp_path / "r.csv", NINE | columns))
    assert error.value.exit_code == 3


@pytest.mark.parametrize(("columns", "words"), [
    ({"request_rate": 2.0, "concurrency": ""}, "request_rate = 2.0 without num_prompts"),
    ({"client": "inferencex", "num_prompts": 20}, "num_prompts = 20: client = inferencex sets its own load"),
    ({"engine_version": "0.19.x"}, "engine_version = '0.19.x': must be a release's"),
    ({"engine": "tgi"}, "engine = 'tgi': must be vllm, sglang, trtllm"),
    ({"spec_decoding": "mtp"}, "spec_decoding: nothing says how many tokens are drafted"),
])
def test_a_row_that_cannot_be_a_run_keeps_the_reason(columns: dict[str, Any], words: str, tmp_path: Path) -> None:
    [run] = read_measured(write(tmp_path / "r.csv", NINE | columns))
    assert words in run.status


def test_notes_and_the_published_tables_columns_are_taken(tmp_path: Path) -> None:
    read(tmp_path / "r.csv", note_who="me", note_max_num_seqs=3)
    values = (f"a,x,2026-01-01,h100-sxm,vllm,0.19.0,{NINE['model']},bf16,,,256,32,8.0,1.0,1.0,1.0,1.0,1.0,50,9,"
              "inferencex")
    (tmp_path / "p.csv").write_text(f"{PUBLISHED}\n{values}\n")
    found = predict_file(tmp_path / "p.csv", Scenario(), client=None, jobs=1)
    assert [p.status for p in found.predictions] == ["ok"]
    assert [note for note in found.notes if "predictions do not use" in note] == [
        f"{tmp_path / 'p.csv'}: predictions do not use the columns source, moe_quant_mode, moe_tp"]


def test_a_row_is_replayed_as_the_clients_result_of_the_same_run(tmp_path: Path) -> None:
    """The table and the JSON of `vllm bench serve` say the same of a run, and come out the same."""
    row = NINE | {"client": "vllm", "num_prompts": 20, "random_range_ratio": 0.5, "seed": 3, "max_num_seqs": 6}
    [of_table] = predict_file(write(tmp_path / "r.csv", row), Scenario(), client=None, jobs=1).predictions
    result = {"num_prompts": 20, "request_rate": "inf", "max_concurrency": 8, "completed": 20, "duration": 2.0,
              "total_input_tokens": 5120, "total_output_tokens": 640, "random_input_len": 256, "random_output_len": 32,
              "random_range_ratio": 0.5, "mean_ttft_ms": 50, "mean_tpot_ms": 9}
    (tmp_path / "b.json").write_text(json.dumps(result))
    scenario = Scenario(model=NINE["model"], gpu="h100-sxm", seed=3, max_num_seqs=6,  # type: ignore[arg-type]
                        max_num_batched_tokens=8192, gpu_memory_utilization=0.92)
    [of_result] = predict_file(tmp_path / "b.json", scenario, client="vllm", jobs=1).predictions
    assert of_table.status == "ok"
    for metric in ("ttft_ms", "tpot_ms"):
        assert of_table.predicted[metric] == pytest.approx(of_result.predicted[f"mean_{metric}"])


def test_a_run_at_a_rate_is_sent_at_that_rate(tmp_path: Path) -> None:
    run = read(tmp_path / "r.csv", request_rate=4.0, num_prompts=40, concurrency="")
    assert run.load is not None
    assert run.load.requests["arrival_s"].max() == pytest.approx(10.0)
    assert run.scenario is not None
    assert run.scenario.max_concurrency is None
    assert predict(run).status == "ok"


def measured_as(run: Measurement, **options: Any) -> dict[str, float]:
    """Return what a run would have measured if these options were the truth."""
    assert run.scenario is not None
    truth = predict(replace(run, scenario=replace(run.scenario, **options)))
    return {f"measured_{metric}": value for metric, value in truth.predicted.items()}


def doubts_of(path: Path) -> list[str]:
    result = accuracy(predict_file(path, Scenario(), client=None, jobs=1), level=None, limits={})
    return [note for note in result.notes if "Correctly described runs rarely" in note]


@pytest.mark.parametrize(("weights", "factor"), [("fp8", "1.6"), ("int4", "1.9")])
def test_runs_of_another_deployment_are_questioned_and_not_once_a_column_says_it(weights: str, factor: str,
                                                                               tmp_path: Path) -> None:
    """The nine columns of a 70B model in few bits are taken for the checkpoint's 16."""
    base = NINE | {"model": "meta-llama/Llama-3.1-70B", "tp": 2}
    rows = []
    for c in (2, 4, 8):
        run = read(tmp_path / "one.csv", **(base | {"concurrency": c}))
        rows.append(base | {"concurrency": c} | measured_as(run, quantization=weights))
    [doubt] = doubts_of(write(tmp_path / "r.csv", *rows))
    assert doubt.startswith(f"tpot_ms of 3 runs: median prediction {factor}")
    assert "precision or quantization" in doubt
    right = write(tmp_path / "q.csv", *(row | {"quantization": weights} for row in rows))
    assert doubts_of(right) == []
    errors = accuracy(predict_file(right, Scenario(), client=None, jobs=1), level=None, limits={}).overall
    assert error_in(errors.by_metric, "tpot_ms").mape == pytest.approx(0, abs=1e-6)


def test_seconds_in_a_column_of_milliseconds_are_seen(tmp_path: Path) -> None:
    truth = measured_as(read(tmp_path / "one.csv"))
    row = NINE | {name: value / 1e3 for name, value in truth.items()}
    assert all("a factor of 1,000: seconds" in doubt for doubt in doubts_of(write(tmp_path / "r.csv", row)))
    assert len(doubts_of(tmp_path / "r.csv")) == 2


def test_one_group_among_others_is_questioned_by_its_name(tmp_path: Path) -> None:
    truth = measured_as(read(tmp_path / "one.csv"))
    good = [NINE | truth] * 5
    bad = [NINE | {"tp": 2} | {name: 9 * value for name, value in truth.items()}] * 3
    found = doubts_of(write(tmp_path / "r.csv", *good, *bad))
    assert found
    assert all("of 3 runs with layout tp2-dp1-ep1" in doubt for doubt in found)


def test_single_runs_that_are_far_off_are_named_though_the_median_is_near(tmp_path: Path) -> None:
    truth = measured_as(read(tmp_path / "one.csv"))
    rows = [NINE | truth | {"id": f"run{k}"} for k in range(5)]
    rows[3] |= {"measured_ttft_ms": truth["measured_ttft_ms"] / 20}
    result = accuracy(predict_file(write(tmp_path / "r.csv", *rows), Scenario(), client=None, jobs=1), level=None,
                      limits={})
    assert [note.partition(":")[0] for note in result.notes] == [
        "ttft_ms of 1 of 5 runs is off by a factor of 10 or more (run3)"]


def points(**columns: Any) -> dict[str, Any]:
    """A row of InferenceMAX's collected points: statistics for means, and no client."""
    plain = {name: value for name, value in NINE.items() if not name.startswith("measured_")}
    return plain | {"image": "vllm/vllm-openai:v0.13.0", "spec_decoding": "none", "dp_attention": "False",
                    "measured_median_ttft_ms": 40, "measured_p99_tpot_ms": 9, "measured_p99_itl_ms": 20,
                    "measured_mean_e2el_ms": 300, "measured_output_tput_per_gpu": 800,
                    "measured_tput_per_gpu": 7000} | columns


def test_statistics_are_columns_and_each_has_its_prediction(tmp_path: Path) -> None:
    [run] = read_measured(write(tmp_path / "r.csv", points()))
    assert run.measured == {"median_ttft_ms": 40, "p99_tpot_ms": 9, "p99_itl_ms": 20, "mean_e2el_ms": 300,
                            "output_tput_per_gpu": 800, "tput_per_gpu": 7000}
    found = predict(run).predicted
    assert set(found) == set(run.measured)
    assert run.load is not None
    lengths = run.load.requests
    inputs, outputs = (int(lengths[name].to_numpy().sum()) for name in ("input_tokens", "output_tokens"))
    makespan_s = predict(replace(run, measured={"makespan_s": 1.0})).predicted["makespan_s"]
    assert found["output_tput_per_gpu"] == pytest.approx(outputs / makespan_s)
    assert found["tput_per_gpu"] == pytest.approx((inputs + outputs) / makespan_s)


def test_inferencemaxs_points_have_its_client_and_count_all_gpus_as_tp(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", points(model="openai/gpt-oss-120b", gpu="b200-sxm", engine="trtllm", tp=4, ep=1,
                                            dp_attention="True", engine_version="1.2.0rc2", precision="fp4"))
    [run] = read_measured(path)
    assert (run.groups["client"], run.groups["layout"]) == ("inferencex", "tp1-dp4-ep1")
    assert run.layout is not None
    assert (run.layout.tensor_parallel_size, run.layout.data_parallel_size) == (1, 4)
    found = predict_file(path, Scenario(), client=None, jobs=1)
    assert any("its columns are those of InferenceMAX's points" in note for note in found.notes)
    assert any("predictions do not use the columns image" in note for note in found.notes)


def test_a_run_without_a_date_is_none_of_before_a_date(tmp_path: Path) -> None:
    """gpt-oss on H100 is multiplied by Marlin from late November 2025 on."""
    gptoss = {"model": "openai/gpt-oss-120b", "precision": "fp4", "tp": 2, "client": "inferencex",
              "engine_version": "0.13.0"}
    assert scenario_of(tmp_path / "a.csv", **gptoss).moe_backend == "marlin"
    assert scenario_of(tmp_path / "b.csv", **gptoss, measured_date="2025-11-01").moe_backend == "auto"


def test_a_table_must_say_what_was_measured(tmp_path: Path) -> None:
    nothing = {name: value for name, value in NINE.items() if not name.startswith("measured_")}
    with pytest.raises(TraceError, match=r"lacks the column measured_ttft_ms or measured_tpot_ms; .*p99_ttft_ms"):
        read_measured(write(tmp_path / "r.csv", nothing))
    with pytest.raises(TraceError, match="measured_p99_ttft_ms = fast; must be a number above 0"):
        read_measured(write(tmp_path / "s.csv", NINE | {"measured_p99_ttft_ms": "fast"}))
    with pytest.raises(TraceError, match="column measured_p99_speed_ms: is neither a column"):
        read_measured(write(tmp_path / "t.csv", NINE | {"measured_p99_speed_ms": 3}))


def test_names_of_other_benchmarks_are_read_as_ours(tmp_path: Path) -> None:
    """Another accelerator's table: chips of two devices, a version that names a platform, a mean length."""
    path = write(tmp_path / "r.csv", NINE | {
        "id": "a", "part": "x", "gpu": "tpu-v7", "engine_version": "tpu", "osl": "32 (mean)", "tp": 2,
        "attention_dp": 1, "n_chips": 1, "num_requests": 24, "measured_output_tokens_per_s": 600,
        "measured_total_tokens_per_s": 5400})
    [run] = read_measured(path)
    assert run.status == "ok"
    assert (run.measured["output_tput_per_gpu"], run.measured["tput_per_gpu"]) == (300, 2700)
    assert run.scenario is not None
    assert run.load is not None
    assert (run.scenario.engine_version, run.scenario.gpu) == (None, "tpu-v7-core")
    assert run.load.requests["output_tokens"].to_list() == [32] * 24
    assert run.notes == ("osl = 32 is a mean over requests: all requests have this length",
                         "engine_version = tpu names no release; the newest is assumed")


def test_throughput_of_all_gpus_is_refused_beside_pools(tmp_path: Path) -> None:
    pools = dict.fromkeys(OF_SIDES, 1)
    with pytest.raises(TraceError, match=r"measured_output_tokens_per_s: is of all GPUs.*output_tput_per_gpu"):
        read_measured(write(tmp_path / "r.csv", NINE | pools | {"measured_output_tokens_per_s": 5}))
