"""The command line as its user meets it: exit codes, one clear line on stderr, and nothing half-written."""

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import rich.markup
import typer
from command_line import H100, HEADER, LINEAR, fails, planner, planner_alone
from typer.testing import CliRunner

from planner import notebook
from planner.commands.cli import app
from planner.notebook import capacity, size
from planner.planning.search_options import Choices, Search
from planner.settings.declared_options import options_of
from planner.settings.scenario import OPTION_DEFAULTS, Scenario


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "0,100,10\n0.5,2000,3\n1,17,1\n")
    return path


def test_a_replay_prints_its_summary_and_writes_every_table(trace: Path, tmp_path: Path) -> None:
    tables = {name: tmp_path / f"{name}.csv" for name in ("requests", "steps", "schedule", "preemptions")}
    options = [text for name, path in tables.items() for text in (f"--{name}", path)]
    run = planner("replay", trace, *LINEAR, *options, "--slo", "ttft:500 tpot:50", "--json", tmp_path / "s.json")
    assert run.returncode == 0, run.stderr
    assert "median_ttft_ms" in run.stdout
    assert "read 3 rows, kept 3, dropped 0" in run.stderr
    summary = json.loads((tmp_path / "s.json").read_text())
    requests = pl.read_csv(tables["requests"])
    assert summary["completed"] == requests.height == 3
    assert summary["slo_attainment_by_metric"].keys() == {"ttft", "tpot"}
    schedule = pl.read_csv(tables["schedule"])
    assert schedule["num_scheduled_tokens"].sum() == 100 + 9 + 2000 + 2 + 17 + 2  # two rows after an end
    steps = pl.read_csv(tables["steps"])
    assert steps["duration_s"].sum() == pytest.approx(0.01 * steps.height + 0.0001 * 2130)
    assert pl.read_csv(tables["preemptions"]).height == 0


@pytest.mark.parametrize(("options", "last"), [
    (("--model", "llama-3.1-70b", "--tensor-parallel-size", "4"), "B a token"),
    (("--model", "gpt-oss-20b"), "B a token and windows of 128 tokens"),
    (("--model", "qwen3.5-35b-a3b", "--engine", "sglang", "--gpu-memory-utilization", "0.95"), "B a token"),
    (("--model", "qwen3.5-27b", "--max-num-seqs", "64"), "B a token, 3 for a sequence's states"),
])
def test_the_memory_that_is_printed_adds_up(options: tuple[str, ...], last: str, trace: Path) -> None:
    line = planner("replay", trace, "--gpu", "h100-sxm", *options).stdout.splitlines()[1]
    assert line.endswith(last)
    kv, usable, *taken = map(float, re.findall(r"\d+\.\d\d", line))
    assert kv == pytest.approx(usable - sum(taken), abs=0.05)
    assert ("state" in line) == ("qwen3.5" in options[1])


def test_an_endless_rate_is_written_as_vllm_writes_it(trace: Path) -> None:
    run = planner("replay", trace, *LINEAR, "--request-rate", "inf", "--json", "-")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["workload"]["request_rate"] == "inf"


def test_what_completed_nothing_is_explained_too(trace: Path) -> None:
    run = planner("replay", trace, *LINEAR, "--max-model-len", "10", "--explain")
    assert run.returncode == 1, run.stderr
    assert run.stdout.splitlines()[1].startswith("0 of 3 requests served; 3 rejected")
    assert "no request was completed" in run.stdout


@pytest.mark.parametrize("options", [("capacity", "--horizon", "trace"), ("size", "--tensor-parallel-size", "1")])
def test_a_capacity_and_a_size_say_what_a_replay_says(options: tuple[str, ...]) -> None:
    command, *more = options
    run = planner(command, "chat", "--limit", "100", *H100, "--engine", "trtllm", "--slo", "ttft:3000 tpot:80",
                  "--quick", *more)
    assert run.returncode == 0, run.stderr
    assert "so each request may grow to max_model_len = 131,072 tokens" in run.stderr


def test_a_capacity_in_users_is_one_of_replays() -> None:
    """`replay` meets the objectives with as many users, and misses them with the number that the answer names."""
    run = planner("capacity", "chat", "--limit", "600", *H100, "--slo", "ttft:500 tpot:20", "--of", "concurrency",
                  "--horizon", "trace", "--replicates", "0", "--json", "-")
    found = json.loads(run.stdout)
    assert found["of"] == "concurrency"
    for users, is_met in ((found["bracket"]["lower"], True), (found["bracket"]["upper"], False)):
        replayed = planner("replay", "chat", "--limit", "600", *H100, "--slo", "ttft:500 tpot:20", "--max-concurrency",
                           str(users), "--request-rate", "inf", "--json", "-")
        assert (json.loads(replayed.stdout)["slo_attainment"] >= 0.99) == is_met


def test_a_replay_prints_its_verdict_in_one_line() -> None:
    run = planner("replay", "chat", "--limit", "5000", *H100)
    assert [line for line in run.stdout.splitlines() if "saturated" in line] == [
        line for line in run.stdout.splitlines() if line.startswith("saturated: no (> 99.9 % sure), ")]
    assert run.stdout.count("saturated") == 1


def test_what_is_read_is_not_written(trace: Path) -> None:
    fails(planner("replay", trace, *LINEAR, "--requests", trace), 2, "is the input of the command; give another name")
    assert trace.read_text().startswith(HEADER)


def test_json_on_stdout_is_all_there_is(trace: Path) -> None:
    run = planner("replay", trace, *LINEAR, "--json", "-")
    assert json.loads(run.stdout)["completed"] == 3


def test_a_trace_on_stdin() -> None:
    run = planner("replay", "-", *LINEAR, "--json", "-", stdin=HEADER + "0,5,5\n")
    assert json.loads(run.stdout)["total_output_tokens"] == 5


def test_keys_of_the_summary(trace: Path) -> None:
    summary = json.loads(planner("replay", trace, *H100, "--json", "-").stdout)
    statistics = [f"{s}_{m}_ms" for s in ("mean", "median", "std", "p90", "p95", "p99")
                  for m in ("ttft", "tpot", "itl", "e2el", "queue")]
    expected = """
        completed failed rejected unfinished duration total_input_tokens total_output_tokens request_throughput
        output_throughput total_token_throughput request_goodput slo_attainment slo_attainment_by_metric
        num_steps num_preemptions num_recomputed_tokens num_swapped_tokens prefix_cache_hit_rate
        kv_cache_usage_mean kv_cache_usage_peak num_gpu_blocks max_running max_waiting gpu_busy_fraction mfu mbu
        gpu_hours cost_usd cost_usd_per_million_output_tokens energy_kwh simulated_requests_per_s wall_s
        bottleneck deployment workload policy versions trace_sha256 num_computed_prompt_tokens
    """.split()  # noqa: SIM905
    assert not {*expected, *statistics} - summary.keys()
    assert summary["deployment"]["memory"]["kv_bytes_per_token"] == 131072


def test_a_comparison_names_every_what_if(trace: Path, tmp_path: Path) -> None:
    run = planner("compare", trace, "--policy", "fcfs,sjf,static", *H100, "--json", tmp_path / "c.json")
    assert run.returncode == 0, run.stderr
    assert [row["name"] for row in json.loads((tmp_path / "c.json").read_text())] == ["fcfs", "sjf", "static"]
    assert " (0 %)" in run.stdout


def test_profiles_and_their_sources() -> None:
    assert "llama-3.1-8b" in planner("db", "list").stdout
    shown = planner("db", "show", "llama-3.1-8b", "--gpu", "h100-sxm").stdout
    assert "blocks:" in shown
    assert "decode of 32 at 1k" in shown
    assert "datasheet" in planner("db", "show", "h100-sxm").stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("empty",)),
        (HEADER, ("no ",)),
        (HEADER + "0,nan,5\n", ("line 2", "input_tokens = nan")),
        (HEADER + "0,5,-3\n", ("line 2", "output_tokens = -3", "--on-bad-rows drop")),
        (HEADER + "0,5,0\n", ("output_tokens = 0", ">= 1")),
        (HEADER + "0,1000000000000,5\n", ("input_tokens = 1000000000000", "<=")),
        ("arrival_s,input_tokens\n0,5\n", ("output_tokens",)),
    ],
)
def test_a_bad_trace_is_one_line_and_exit_code_3(text: str, words: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    fails(planner("replay", path, *LINEAR, "--json", tmp_path / "out.json"), 3, "bad.csv", *words)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


def test_bad_rows_can_be_dropped_and_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text("\ufeff" + HEADER + "3,5,5\n0,5,0\n1,7,2\n")
    run = planner("replay", path, *LINEAR, "--on-bad-rows", "drop", "--json", "-")
    assert json.loads(run.stdout)["workload"]["dropped"] == {"output_tokens < 1": 1}
    assert "dropped 1" in run.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--model", "llama-3.1-8x", "--gpu", "h100-sxm"), ("did you mean 'llama-3.1-8b'",)),
        (("--model", "llama-3.1-8b", "--gpu", "h100-smx"), ("did you mean 'h100-sxm'",)),
        ((*H100, "--policy", "fcsf"), ("did you mean 'fcfs'",)),
        ((*H100, "--policy", "fcfs,sjf"), ("one policy", "--axis policy=fcfs,sjf", "planner compare")),
        (("--model", "llama-9b", "--gpu", "h100-sxm"),
         ("unknown model 'llama-9b'; did you mean 'llama-3-8b', 'llama-2-7b' or 'llama-3-70b'",
          "planner db list lists all ")),
        (("--model", "llama-3.1-8b", "--gpu", "xyz"), ("unknown GPU 'xyz'; planner db list lists all ",)),
        (("--gpu", "h100-sxm"), ("--model missing",)),
        ((*H100, "--slo", "ttfd:5"), ("did you mean 'ttft'",)),
        ((*H100, "--slo", ""), ("--slo '': no objective given",)),  # an unset variable is not "no objectives"
        ((*H100, "--slo", "ttft:-5"), ("'-5'", "above 0")),
        ((*H100, "--step-time", "linear:x"), ("linear:BASE_S,PER_TOKEN_S",)),
        ((*H100, "--rate-scale", "2", "--request-rate", "3"), ("exclude each other",)),
        ((*H100, "--rate-scale", "0"), ("0", "> 0")),
        ((*H100, "--watermark", "1.5"), ("watermark = 1.5",)),
        ((*H100, "--json", "/no/such/folder/x.json"), ("/no/such/folder", "create it first")),
        ((*H100, "--requests", "requests.xlsx"), (".parquet or .csv",)),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(options: tuple[str, ...], words: tuple[str, ...], trace: Path) -> None:
    fails(planner("replay", trace, *options), 2, *words)


@pytest.mark.parametrize(("slo", "code"), [("ttft:500", 0), ("ttft:1", 1)])
def test_a_missed_attainment_is_exit_code_1(slo: str, code: int, trace: Path) -> None:
    run = planner_alone("replay", trace, *LINEAR, "--slo", slo, "--attainment", "0.99")
    assert run.returncode == code
    assert "slo_attainment" in run.stdout
    fails(planner("replay", trace, *LINEAR, "--attainment", "0.99"), 2, "--attainment 0.99", "--slo")


def test_replicas_are_an_alias_of_the_data_parallel_size(trace: Path) -> None:
    by_alias, by_name = (planner("replay", trace, *LINEAR, option, "2", "--json", "-")
                         for option in ("--replicas", "--data-parallel-size"))
    assert by_alias.returncode == 0, by_alias.stderr
    deployments = [json.loads(run.stdout)["deployment"] for run in (by_alias, by_name)]
    assert deployments[0] == deployments[1]
    assert deployments[0]["data_parallel_size"] == 2


def test_an_unknown_option_is_refused(trace: Path) -> None:
    run = planner("replay", trace, *H100, "--max-num-sequences", "4")
    assert run.returncode == 2
    assert "--max-num-seqs" in run.stderr


def test_a_model_that_does_not_fit_says_so(trace: Path) -> None:
    fails(planner("replay", trace, "--model", "llama-3.1-70b", "--gpu", "l4"), 3, "llama-3.1-70b", "l4", "GiB")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_full_disk_leaves_nothing_behind(ending: str, tmp_path: Path) -> None:
    run = planner_alone("replay", "chat", *H100, "--requests", tmp_path / f"r.{ending}", num_blocks=64)
    fails(run, 3, "cannot write", f"r.{ending}")
    assert list(tmp_path.iterdir()) == []


def test_what_can_never_run_is_a_status_and_no_hang(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(HEADER + "0,9000,5\n0,500,5\n0,1000,500\n")
    requests = tmp_path / "r.csv"
    options = ("--step-time", "linear:0.01,0", "--num-gpu-blocks", "64", "--max-model-len", "8192")
    run = planner("replay", path, *options, "--requests", requests, "--json", "-")
    summary = json.loads(run.stdout)
    assert (summary["rejected"], summary["completed"], summary["failed"]) == (1, 1, 1)
    assert pl.read_csv(requests)["status"].to_list() == ["rejected", "completed", "failed"]


def test_a_stdout_that_is_full_or_closed() -> None:
    command = f"{sys.executable} -m planner.commands.cli db show h100-sxm --json -"
    full = subprocess.run(["sh", "-c", f"{command} > /dev/full"], capture_output=True, text=True, check=False)
    assert (full.returncode, full.stderr) == (3, "OutputError: cannot write to stdout: No space left on device\n")
    closed = subprocess.run(["bash", "-o", "pipefail", "-c", f"{command} | true"], capture_output=True, text=True,
                            check=False)
    assert closed.stderr == ""


def test_a_terminal_that_lacks_signs_shows_the_rest(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    run = planner_alone("replay", trace, *H100)
    assert run.returncode == 0, run.stderr
    assert "llama-3.1-8b, on 1 ? h100-sxm, policy fcfs" in run.stdout


def test_help_answers_without_loading_the_engine() -> None:
    heavy = ("numba", "numpy", "polars", "plotly")
    code = f"import sys; from planner.commands.cli import app; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
    assert "Example:" in planner("replay", "--help").stdout


def test_help_shows_common_options_and_help_all_every_one() -> None:
    common, every = (planner("replay", flag).stdout for flag in ("--help", "--help-all"))
    assert "--max-num-seqs" in common
    assert "--schedule-conservativeness" not in common
    assert "more options: planner replay --help-all" in common
    assert len(common.splitlines()) < 100
    assert all(f"--{name[:20].replace('_', '-')}" in every for name in OPTION_DEFAULTS)
    assert common == planner("replay", "--help").stdout  # hidden options are shown again by --help-all


def test_every_help_that_names_another_names_one_that_works() -> None:
    commands = [name for name, command in _commands(typer.main.get_command(app))
                if any(parameter.name == "short_help" for parameter in command.params)]
    assert {"replay", "trace synth", "db show"} <= set(commands)
    for name in commands:
        short = planner(*name.split(), "--help").stdout.splitlines()[-1]
        assert re.fullmatch(rf"\d+ more options: planner {name} --help-all", short)
        every = planner(*name.split(), "--help-all")
        assert every.returncode == 0
        assert "more options" not in every.stdout


def test_every_command_shows_all_its_options() -> None:
    for name, command in _commands(typer.main.get_command(app)):
        run = planner(*name.split(), "--help-all")
        assert run.returncode == 0, run.stderr
        assert all(max(parameter.opts, key=len)[:20] in run.stdout for parameter in command.params
                   if parameter.param_type_name == "option"), name


def test_no_word_of_a_help_is_lost_as_markup() -> None:
    """Rich hides a word in brackets without a backslash, as in [s] and [all]."""
    helps = {f"{name} {part.name}": part.help for name, command in _commands(typer.main.get_command(app))
             for part in command.params if getattr(part, "help", None)}
    assert {name: text for name, text in helps.items() if rich.markup.render(text).plain != text.replace(r"\[", "[")
            } == {}


def _commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def test_a_shell_completes_options() -> None:
    asked = {"COMP_WORDS": "planner replay --max", "COMP_CWORD": "2", "_PLANNER_COMPLETE": "complete_bash"}
    run = subprocess.run([Path(sys.executable).with_name("planner")], capture_output=True, text=True, check=True,
                         env=os.environ | asked)
    assert {"--max-num-seqs", "--max-model-len"} <= set(run.stdout.split())


@pytest.mark.parametrize(("slo", "more", "words"), [
    ("p99_ttft:1", (), "p99 TTFT 206 ms of 1 ms allowed"),
    ("p99_ttft_ms:1 tpot:500", ("--attainment", "0.99"), "p99 TTFT 206 ms of 1 ms allowed"),
    ("ttft:20", ("--attainment", "0.99"), "of the requests keep TTFT within 20 ms, 99 % required"),
    ("mean_e2el:9999 ttft:20", (), None),
])
def test_a_missed_objective_is_one_line_and_exit_code_1(slo: str, more: tuple[str, ...], words: str | None,
                                                        trace: Path, tmp_path: Path) -> None:
    run = planner("replay", trace, *LINEAR, "--slo", slo, *more, "--json", tmp_path / "out.json")
    objectives = json.loads((tmp_path / "out.json").read_text())["objectives"]
    missed = [line for line in run.stderr.splitlines() if line.startswith("missed: ")]
    assert all({"name", "limit", "value", "is_met"} <= each.keys() for each in objectives)
    if words is None:
        assert (run.returncode, missed) == (0, [])
        assert [each["is_met"] for each in objectives] == [None, True]
    else:
        assert run.returncode == 1
        assert len(missed) == 1
        assert words in missed[0]
        assert words in run.stdout


def test_a_comparison_takes_lists_of_every_option(trace: Path, tmp_path: Path) -> None:
    run = planner("compare", trace, "--max-num-seqs", "2,64", "--rate-scale", "1,2.5", "--axis",
                  "async_scheduling=true,false", *LINEAR, "--slo", "p99_ttft:1", "--json", tmp_path / "c.json")
    assert run.returncode == 0, run.stderr
    rows = json.loads((tmp_path / "c.json").read_text())
    assert [row["name"] for row in rows][:3] == [
        "max_num_seqs=2 rate_scale=1 async_scheduling=true", "max_num_seqs=2 rate_scale=1 async_scheduling=false",
        "max_num_seqs=2 rate_scale=2.5 async_scheduling=true"]
    assert len(rows) == 8
    assert [(row["policy"]["max_num_seqs"], row["workload"]["rate_scale"]) for row in rows][::2] == [
        (2, 1.0), (2, 2.5), (64, 1.0), (64, 2.5)]
    assert run.stdout.count(" misses: p99 TTFT ") == 8


@pytest.mark.parametrize(("options", "words"), [
    (("--max-num-seqs", "64,many"), ("--max-num-seqs 64,many", "'many'", "a whole number")),
    (("--rate-scale", "1,"), ("--rate-scale 1,", "''", "a number")),
    (("--engine", "vllm,tgi"), ("--engine vllm,tgi", "'tgi'", "vllm, sglang, trtllm")),
    (("--policy", "fcfs,fcfs"), ("--policy fcfs,fcfs", "a value twice")),
    (("--max-num-seqs", "64", "--axis", "max_num_seqs=8,16"), ("--axis max_num_seqs", "has values already")),
    (("--axis", "async_scheduling=true,maybe"), ("async_scheduling", "'maybe'", "true or false")),
])
def test_a_value_that_does_not_parse_is_named_with_its_option(options: tuple[str, ...], words: tuple[str, ...],
                                                              trace: Path) -> None:
    fails(planner("compare", trace, *LINEAR, *options), 2, *words)


def test_an_axis_replaces_a_value_of_the_launch_command_with_a_note(trace: Path, tmp_path: Path) -> None:
    launch = "vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-prefix-caching"
    axis = ("--axis", "enable_prefix_caching=true,false")
    run = planner("compare", trace, *LINEAR, "--from-command", launch, *axis, "--json", tmp_path / "c.json")
    assert run.returncode == 0, run.stderr
    assert "note: --axis enable_prefix_caching replaces the launch command's enable_prefix_caching = true" in run.stderr
    assert [row["name"] for row in json.loads((tmp_path / "c.json").read_text())] == [
        "enable_prefix_caching=true", "enable_prefix_caching=false"]
    fails(planner("compare", trace, *LINEAR, "--from-command", launch, *axis, *axis), 2, "has values already")


@pytest.mark.parametrize(("command", "kind", "question"), [
    ("capacity", Search, capacity), ("size", Choices, size)])
def test_a_search_has_one_default_on_the_command_line_and_in_a_notebook(command: str, kind: Any, question: Any) -> None:
    """Where text is read into a choice there is no default text: the choice stays as it is declared."""
    parameters = {p.name: p for p in typer.main.get_command(app).commands[command].params}  # type: ignore[attr-defined]
    in_python = inspect.signature(question).parameters
    usual = kind()
    for f in fields(kind):
        if not f.metadata:  # the scenario's: GPUs, weight formats, the seed
            assert f.name not in parameters or f.name == "seed"
            continue
        option = parameters[f.metadata["name"] or f.name]
        assert option.default == (None if f.metadata["read"] else getattr(usual, f.name)), f.name
        assert option.help == f.metadata["help"].replace("[", r"\[")
        assert in_python[f.name].default == getattr(usual, f.name), f.name
    assert in_python["attainment"].default == parameters["attainment"].default


OF_FILES = {"format", "column", "where", "on_bad_rows",  # of `planner.read_trace`
            "json", "markdown", "junit", "script", "write",  # what Python returns
            "quiet", "no_cache", "from_command", "help", "short_help", "full_help"}
IN_PYTHON = {"axis": "axes", "constraint": "constraints"}


@pytest.mark.parametrize(("command", "kind"), [
    ("capacity", Search), ("size", Choices), ("share", Choices), ("sweep", None), ("check", None), ("probe", None)])
def test_every_option_of_a_command_is_an_option_of_its_function(command: str, kind: Any) -> None:
    parameters = typer.main.get_command(app).commands[command].params  # type: ignore[attr-defined]
    in_python = inspect.signature(getattr(notebook, command)).parameters
    fields_of = {} if kind is None else {name: f.name for name, f in options_of(kind).items()}
    scenario = {f.name for f in fields(Scenario)}
    names = {p.name: fields_of.get(p.name, IN_PYTHON.get(p.name, p.name)) for p in parameters}
    assert not [option for option, name in names.items() if name not in {*in_python, *scenario, *OF_FILES}]


def test_texts_are_read_into_the_choices_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Choices] = []

    def keep(*values: Any) -> bool:
        seen.append(values[4])
        return True

    monkeypatch.setattr("planner.commands.actions.size", keep)
    words = ["size", "chat", "--slo", "ttft:500", "--tensor-parallel-size", "1,4", "--price", "h100-sxm=2",
             "--decode-gpu", "l40s,h100-sxm", "--disaggregate", "--spare", "2", "--period", "60", "--jobs", "3"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert seen == [Choices(ranks=(1, 4), prices={"h100-sxm": 2.0}, decode_gpus=["l40s", "h100-sxm"],
                            disaggregate=True, num_spare=2, period_s=60.0, jobs=3)]
