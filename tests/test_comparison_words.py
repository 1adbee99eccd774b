"""What-ifs side by side: the verdict comes first, then the figures that differ most."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from command_line import planner
from helpers import trace_of

from planner.files.keys import fromdict
from planner.report.comparison_words import most_different, verdict_words
from planner.report.summary_tables import comparison_table
from planner.results.summary_answer import Summary
from planner.run import replay
from planner.settings.scenario import Scenario

SERVER = Scenario(step_time="linear:0.1,0", num_gpu_blocks=100, max_num_seqs=1)
PLAIN = replay(trace_of([(0.0, 10, 1)]), SERVER).summary.values_by_key
FAST = {"p99_ttft_ms": 100.0, "median_ttft_ms": 50.0, "p99_tpot_ms": 20.0, "num_preemptions": 0,
        "cost_usd_per_million_output_tokens": 2.0, "completed": 100, "request_throughput": 5.0,
        "objectives": [{"name": "p99_ttft", "limit": 150.0, "value": 100.0, "unit": "ms", "is_met": True}]}
SLOW = FAST | {"p99_ttft_ms": 400.0, "median_ttft_ms": 55.0, "num_preemptions": 3,
               "cost_usd_per_million_output_tokens": 1.0,
               "objectives": [{"name": "p99_ttft", "limit": 150.0, "value": 400.0, "unit": "ms", "is_met": False}]}


def words(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the verdict on replays that differ in some keys of their summaries."""
    return verdict_words({name: fromdict(Summary, {**PLAIN, **row}) for name, row in rows.items()})


def test_the_verdict_is_a_sentence() -> None:
    assert words({"fast": FAST, "slow": SLOW}) == [
        "keep the objectives: fast (2 USD/Mtok); miss them: slow (1 USD/Mtok)",
        "differs most: p99_ttft_ms, 100.0 with fast, 400.0 with slow"]
    dear = FAST | {"cost_usd_per_million_output_tokens": 3.0}
    assert words({"fast": FAST, "dear": dear})[:2] == [
        "keep the objectives: fast (2 USD/Mtok), dear (3 USD/Mtok)",
        "cheapest that keeps them: fast, 2 USD per million output tokens"]
    assert words({"one": SLOW, "other": SLOW})[0].startswith("no what-if keeps the objectives")
    assert words({"one": FAST}) == []


def test_a_candidate_that_would_not_start_is_no_answer() -> None:
    refused = FAST | {"cost_usd_per_million_output_tokens": 0.5, "would_not_start": "would not start as launched: why"}
    dear = FAST | {"cost_usd_per_million_output_tokens": 3.0}
    assert words({"fast": FAST, "refused": refused, "dear": dear})[:3] == [
        "keep the objectives: fast (2 USD/Mtok), dear (3 USD/Mtok)", "would not start: refused",
        "cheapest that keeps them: fast, 2 USD per million output tokens"]
    assert words({"one": refused, "other": refused}) == ["no what-if starts"]


def test_what_ifs_that_do_not_differ_say_why() -> None:
    rows = {name: FAST | {"max_running": 28, "kv_cache_usage_peak": 0.1, "deployment": {"model": "m"}, "policy": {
        "enable_prefix_caching": is_on, "max_num_seqs": 64}} for name, is_on in (("on", True), ("off", False))}
    assert words(rows)[-1] == (
        "no figure differs; without effect on this load: enable_prefix_caching (max_running 28, max_waiting 1, "
        "kv_cache_usage_peak 10 %, num_preemptions 0)")
    assert words({"one": rows["on"], "same": rows["on"]})[-1] == (
        "no figure differs: the what-ifs have the same settings in force")


def test_without_objectives_the_cost_is_compared() -> None:
    rows = {name: {key: value for key, value in each.items() if key != "objectives"}
            for name, each in {"fast": FAST, "slow": SLOW}.items()}
    assert words(rows)[0] == "cheapest: slow, 1 USD per million output tokens"


def test_the_rows_that_differ_most() -> None:
    """One of each group: the p99 stands for all of TTFT. What no digit shows is no difference."""
    rows = {"fast": FAST, "slow": SLOW}
    assert most_different(rows) == ["num_preemptions", "p99_ttft_ms", "cost_usd_per_million_output_tokens"]
    assert "p99_tpot_ms" not in str(comparison_table(rows, most_different(rows)))
    assert "p99_tpot_ms" in str(comparison_table(rows))
    assert " (0 %)" in str(comparison_table({"one": FAST, "less": FAST | {"p99_tpot_ms": 19.99}}, ["p99_tpot_ms"]))
    assert most_different({"one": FAST, "same": FAST | {"p99_ttft_ms": 100.01}}) == []


def test_all_prints_every_figure(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{0.01 * k},500,50\n" for k in range(60)))
    options = ("--policy", "fcfs,static", "--model", "llama-3.1-8b", "--gpu", "h100-sxm")
    short, full = planner("compare", trace, *options).stdout, planner("compare", trace, *options, "--all").stdout
    assert short.startswith(("cheapest: fcfs, ", "differs most: "))
    assert len([line for line in short.splitlines() if line.startswith("  ")]) <= 6
    assert "mean_itl_ms" in full
    assert len(full) > 2 * len(short)
