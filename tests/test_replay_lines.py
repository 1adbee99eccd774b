"""The command that an answer prints for whoever checks it: a replay gives the answer's numbers to the digit."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from command_line import H100, planner
from helpers import shorten_loads

CHAT = ("chat", "--limit", "1500", "--no-compare-assumptions")
SLO = ("--slo", "ttft:500 tpot:30")


def answered(*arguments: object) -> tuple[dict[str, Any], str]:
    run = planner(*arguments, "--json", "answer.json")
    assert run.returncode == 0, run.stderr
    return json.loads(Path("answer.json").read_text()), run.stdout


def replayed(line: str) -> dict[str, Any]:
    run = planner(*shlex.split(line)[1:], "--json", "-")
    assert run.returncode == 0, run.stderr
    summary: dict[str, Any] = json.loads(run.stdout)
    return summary


def printed(text: str) -> list[str]:
    return re.findall(r"to check: (planner replay .*)", text)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shorten_loads(monkeypatch, 20_000)


@pytest.mark.parametrize("options", [
    ("--scaling", "thin"), ("--scaling", "compress"), ("--scaling", "resample", "--seed", "3"),
    ("--scaling", "poisson", "--horizon", "trace"), ("--data-parallel-size", "2"),
    ("--data-parallel-size", "2", "--router", "least-outstanding-requests"), ("--start-at", "100"),
    ("--max-num-seqs", "16", "--no-enable-prefix-caching"),
])
def test_a_capacity_is_replayed(options: tuple[str, ...]) -> None:
    found, text = answered("capacity", *CHAT, *H100, *SLO, "--replicates", "0", *options)
    assert printed(text) == [found["replay_command"]]
    summary = replayed(found["replay_command"])
    assert summary["slo_attainment"] == found["attainment_at_capacity"]
    probe = next(each for each in found["probes"] if each["rate_rps"] == found["capacity_rps"])
    assert {name: summary[f"{name}_ms"] for name in ("p99_ttft", "p99_tpot", "mean_ttft")} == {
        name: probe["statistics_ms"][name] for name in ("p99_ttft", "p99_tpot", "mean_ttft")}


def test_a_capacity_without_arrival_times_is_replayed() -> None:
    Path("lengths.jsonl").write_text("".join(f'{{"input_tokens": {400 + 7 * k}, "output_tokens": {50 + k}}}\n'
                                             for k in range(200)))
    found, _ = answered("capacity", "lengths.jsonl", "--scaling", "poisson", *H100, *SLO, "--replicates", "0")
    assert replayed(found["replay_command"])["slo_attainment"] == found["attainment_at_capacity"]


def test_columns_and_dropped_rows_are_in_the_line() -> None:
    rows = "".join(f"{k},{500 + k},{80 if k != 7 else -1}\n" for k in range(100))
    Path("log.csv").write_text("when,prompt,answer\n" + rows)
    found, _ = answered("capacity", "log.csv", *H100, *SLO, "--replicates", "0", "--horizon", "trace",
                        "--column", "arrival_s=when", "--column", "input_tokens=prompt", "--column",
                        "output_tokens=answer", "--on-bad-rows", "drop")
    assert "--on-bad-rows drop" in found["replay_command"]
    assert replayed(found["replay_command"])["slo_attainment"] == found["attainment_at_capacity"]


def test_rows_that_a_condition_leaves_out_need_no_other_option() -> None:
    """Failed requests and rows of another model are left out without --on-bad-rows."""
    Path("log.csv").write_text("arrival_s,input_tokens,output_tokens,model,http_code\n" + "".join(
        f"{k},{500 + k},{80 + k % 5},{'ab'[k % 2]},{500 if k == 6 else 200}\n" for k in range(100)))
    found, text = answered("size", "log.csv", *H100, *SLO, "--tensor-parallel-size", "1", "--where", "model=a",
                           "--no-compare-assumptions")
    assert "--on-bad-rows" not in text
    assert replayed(found["replay_command"])["completed"] == found["workload"]["num_requests"] == 49


@pytest.mark.parametrize("options", [
    ("--of", "concurrency"), ("--of", "concurrency", "--think-time", "2", "--data-parallel-size", "2"),
])
def test_users_are_replayed(options: tuple[str, ...]) -> None:
    found, text = answered("capacity", "chat", "--limit", "600", "--no-compare-assumptions", *H100, "--slo",
                           "p99_ttft:400 p95_tpot:25", "--replicates", "0", *options)
    assert printed(text) == [found["replay_command"]]
    summary = replayed(found["replay_command"])
    probe = next(each for each in found["probes"] if each["users"] == found["bracket"]["lower"])
    assert summary["p99_ttft_ms"] == probe["statistics_ms"]["p99_ttft"]
    assert summary["request_throughput"] == found["request_throughput"]


def test_open_sessions_are_replayed() -> None:
    found, _ = answered("capacity", "agents", "--limit", "1500", "--no-compare-assumptions", *H100, "--slo",
                        "p99_ttft:2000", "--replicates", "0", "--of", "sessions")
    probe = next(each for each in found["probes"] if each["users"] == found["bracket"]["lower"])
    assert replayed(found["replay_command"])["p99_ttft_ms"] == probe["statistics_ms"]["p99_ttft"]
    assert "all sessions are ready at the start, and caches are empty" in "; ".join(found["assumptions"])


@pytest.mark.parametrize("options", [
    (), ("--request-rate", "25"), ("--rate-scale", "3", "--scaling", "compress"), ("--max-concurrency", "200"),
    ("--request-rate", "25", "--disaggregate"), ("--request-rate", "25", "--spare", "1", "--router", "power-of-two"),
])
def test_a_size_is_replayed(options: tuple[str, ...]) -> None:
    found, text = answered("size", *CHAT, *H100, *SLO, "--tensor-parallel-size", "1,2", *options)
    assert printed(text) == [found["replay_command"]]
    for fleet in found["alternatives"]:
        summary = replayed(fleet["replay_command"])
        assert summary["slo_attainment"] == fleet["attainment"]
        assert (summary["p99_ttft_ms"], summary["p99_tpot_ms"]) == (fleet["p99_ttft_ms"], fleet["p99_tpot_ms"])
        name = "cost_usd_per_million_output_tokens"
        assert (summary[name], summary["request_throughput"]) == (fleet[f"replay_{name}"], fleet["replay_rate"])


@pytest.mark.parametrize("options", [
    ("--gpu", "h200-sxm", "--model", "qwen3-30b-a3b", "--data-parallel-attention", "--data-parallel-size", "2",
     "--expert-parallel", "--request-rate", "60"),
    ("--gpu", "h100-sxm", "--model", "llama-3.1-8b", "--request-rate", "25", "--disaggregate", "--decode-gpu",
     "h200-sxm"),
])
def test_a_fleet_of_ranks_or_of_two_kinds_is_replayed_by_the_text_of_its_pools(options: tuple[str, ...]) -> None:
    found, text = answered("size", *CHAT, *SLO, "--tensor-parallel-size", "1", *options)
    assert printed(text) == [found["replay_command"]]
    pools = [fleet for fleet in found["alternatives"] if "--fleet 'pool = [{" in fleet["replay_command"]]
    for fleet in pools:
        summary = replayed(fleet["replay_command"])
        assert (summary["slo_attainment"], summary["p99_ttft_ms"], summary["p99_tpot_ms"]) == (
            fleet["attainment"], fleet["p99_ttft_ms"], fleet["p99_tpot_ms"])
        assert summary["request_throughput"] == fleet["replay_rate"]
    assert pools


def test_another_price_of_a_token_in_the_replay_is_said_with_its_reason() -> None:
    """A log with a night: its busiest part is replayed, which has more requests for the same GPUs, and no spares."""
    hours = [(hour, 4 if hour % 24 < 12 else 36) for hour in range(48)]
    rows = "".join(f"{3600 * hour + 3600 * k / count},{900 + 37 * (k % 9)},{150 + 11 * (k % 7)}\n"
                   for hour, count in hours for k in range(count))
    Path("log.csv").write_text("arrival_s,input_tokens,output_tokens\n" + rows)
    found, text = answered("size", "log.csv", *H100, *SLO, "--tensor-parallel-size", "1", "--request-rate", "30",
                           "--spare", "1", "--no-compare-assumptions")
    summary = replayed(found["replay_command"])
    mean, part = (each["cost_usd_per_million_output_tokens"] for each in (found, summary))
    assert mean > 1.5 * part
    assert (f"USD/Mtok: {mean:.3f} is the price of all replicas over the tokens at the mean rate; the replay gives "
            f"{part:.3f}, without spare replicas, at {summary['request_throughput']:,.4g} requests/s") in text


def test_a_rate_series_is_replayed_at_its_peak() -> None:
    Path("rates.csv").write_text("start_s,rate_rps\n0,4\n600,9\n1200,3\n1800,\n")
    found, _ = answered("size", *CHAT, *H100, *SLO, "--tensor-parallel-size", "1", "--rate-series", "rates.csv")
    assert replayed(found["replay_command"])["slo_attainment"] == found["attainment"]


def test_a_shared_cluster_reads_logs_with_the_options_of_the_command_and_of_each_table() -> None:
    rows = "".join(f"{k},{500 + k},{80 if k != 7 else -1},{'ab'[k % 2]}\n" for k in range(100))
    Path("log.csv").write_text("when,prompt,answer,model\n" + rows)
    Path("cluster.toml").write_text("[gpus]\nh100-sxm = 8\n" + "".join(
        f'[deployment.{name}]\ntrace = "log.csv"\nslo = "ttft:500 tpot:30"\nmodel = "llama-3.1-8b"\n{more}'
        for name, more in (("all", ""), ("one", 'column = ["arrival_s=when", "input_tokens=prompt", '
                                                '"output_tokens=answer"]\nwhere = "model=a"\non_bad_rows = "drop"\n'),
                           ("other", 'where = "model=b"\n'))))
    columns = [word for pair in ("arrival_s=when", "input_tokens=prompt", "output_tokens=answer")
               for word in ("--column", pair)]
    run = planner("share", "cluster.toml", *columns, "--json", "answer.json")
    assert (run.returncode, "deployment.all" in run.stderr, "answer = -1" in run.stderr) == (3, True, True)
    run = planner("share", "cluster.toml", *columns, "--on-bad-rows", "drop", "--json", "answer.json")
    assert run.returncode == 0, run.stderr
    every, one, other = (replayed(each["fleet"]["replay_command"]) for each in json.loads(
        Path("answer.json").read_text())["deployments"])
    assert (every["completed"], one["completed"], other["completed"]) == (99, 50, 49)


def test_a_shared_cluster_is_replayed() -> None:
    Path("cluster.toml").write_text(
        '[gpus]\nh100-sxm = 8\n[deployment.a]\ntrace = "chat"\nlimit = 800\nslo = "ttft:500 tpot:30"\n'
        'model = "llama-3.1-8b"\nrequest_rate = 20\n')
    run = planner("share", "cluster.toml", "--json", "answer.json")
    assert run.returncode == 0, run.stderr
    shared = json.loads(Path("answer.json").read_text())["deployments"][0]["fleet"]
    assert printed(run.stdout) == [shared["replay_command"]]
    assert replayed(shared["replay_command"])["slo_attainment"] == shared["attainment"]


def test_a_sweep_is_replayed() -> None:
    run = planner("sweep", "chat", "--limit", "400", *H100, "--slo", "ttft:500 tpot:30", "--axis", "max_num_seqs=8,64",
                  "--output", "sweep.parquet", "--json", "answer.json")
    assert run.returncode == 0, run.stderr
    front = json.loads(Path("answer.json").read_text())["front"]
    assert f"to check the first: {front[0]['replay_command']}\n" in run.stdout
    for row in front:
        summary = replayed(row["replay_command"])
        assert (summary["p99_ttft_ms"], summary["output_throughput"]) == (row["p99_ttft_ms"], row["output_throughput"])
