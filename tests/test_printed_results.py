"""Results as benchmarks print them: blocks in a text become the runs of their JSON."""

from pathlib import Path

import pytest

from planner.measured.printed import printed_results
from planner.measured.runs import read_runs
from planner.settings.scenario import Scenario

VLLM = """\
============ Serving Benchmark Result ============
Successful requests:                     200       
Failed requests:                         0         
Maximum request concurrency:             16        
Benchmark duration (s):                  61.20     
Total input tokens:                      204800    
Total generated tokens:                  51200     
Request throughput (req/s):              3.27      
---------------Time to First Token----------------
Mean TTFT (ms):                          182.20    
Median TTFT (ms):                        150.10    
P90 TTFT (ms):                           320.00    
P99 TTFT (ms):                           640.00    
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          17.40     
P99 TPOT (ms):                           19.20     
----------------End-to-end Latency----------------
Mean E2EL (ms):                          3640.00   
==================================================
"""  # noqa: W291
SGLANG = """\
$ python3 -m sglang.bench_serving --dataset-name random --random-input-len 1024 --random-output-len 256
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    8.0
Max request concurrency:                 not set
Successful requests:                     100
Benchmark duration (s):                  20.50
Total input tokens:                      50000
Total generated tokens:                  12000
Total generated tokens (retokenized):    11990
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   900.5
---------------Time to First Token----------------
Mean TTFT (ms):                          72.99
==================================================
"""
TRTLLM = """\
===========================================================
= PYTORCH BACKEND
===========================================================
Model:                  meta-llama/Llama-3.1-8B
TensorRT-LLM Version:   1.0.0
===========================================================
= REQUEST DETAILS
===========================================================
Number of requests:             100
Number of concurrent requests:  94.6050
Average Input Length (tokens):  128.0000
Average Output Length (tokens): 64.0000
===========================================================
= WORLD + RUNTIME INFORMATION
===========================================================
TP Size:                1
EP Size:                None
Max Runtime Batch Size: 3840
Issue Rate (req/sec):   1.0526E+15
===========================================================
= PERFORMANCE OVERVIEW
===========================================================
Request Throughput (req/sec):                     86.5373
Total Latency (ms):                               1155.5715
Average time-to-first-token [TTFT] (ms):   162.6706
[TTFT] P50    : 159.7857
[TTFT] P99    : 232.4339
[Latency] P50    : 1091.7905
"""
QWEN = Scenario(model="qwen3-8b", gpu="h100-sxm")


def write(tmp_path: Path, *texts: str) -> Path:
    """Write a log with texts between other lines."""
    path = tmp_path / "run.log"
    path.write_text("Starting main benchmark run...\n" + "\nDone: see above\n".join(texts) + "\nbye\n")
    return path


def test_blocks_of_both_clients_are_their_json(tmp_path: Path) -> None:
    first, second = printed_results(write(tmp_path, VLLM, SGLANG))
    assert first == {
        "completed": 200, "failed": 0, "max_concurrency": 16, "duration": 61.2, "total_input_tokens": 204800,
        "total_output_tokens": 51200, "request_throughput": 3.27, "mean_ttft_ms": 182.2, "median_ttft_ms": 150.1,
        "p90_ttft_ms": 320.0, "p99_ttft_ms": 640.0, "mean_tpot_ms": 17.4, "p99_tpot_ms": 19.2, "mean_e2el_ms": 3640.0}
    assert second["request_rate"] == 8.0
    assert second["total_output_tokens_retokenized"] == 11990
    assert (second["random_input_len"], second["random_output_len"]) == (1024, 256)
    assert (second["mean_e2el_ms"], second["mean_ttft_ms"]) == (900.5, 72.99)
    assert "max_concurrency" not in second


def test_a_printed_result_is_a_run(tmp_path: Path) -> None:
    closed, open_loop = read_runs(write(tmp_path, VLLM, SGLANG), QWEN, client=None)
    assert closed.scenario is not None
    assert closed.load is not None
    assert (closed.scenario.max_concurrency, closed.load.num_requests) == (16, 200)
    assert closed.load.requests["input_tokens"].unique().to_list() == [1024]
    assert (closed.measured["p90_ttft_ms"], closed.measured["p99_ttft_ms"]) == (320.0, 640.0)
    assert not closed.notes
    assert "the benchmark's backend is sglang, and vLLM is predicted; --engine sglang" in open_loop.notes[0]
    assert open_loop.groups["client"] == "sglang"
    assert open_loop.load is not None
    assert open_loop.load.requests["arrival_s"].n_unique() > 90


def test_lines_before_a_block_say_how_requests_were_sent(tmp_path: Path) -> None:
    head = "$ vllm bench serve --random-input-len 9\n"
    head += "Traffic request rate: 2.5\nBurstiness factor: 1.0 (Poisson process)\n"
    block = VLLM.replace("Maximum request concurrency:             16        \n", "")
    sent, silent = printed_results(write(tmp_path, head + block, "$ vllm bench serve\n" + block))
    assert (sent["request_rate"], sent["burstiness"], sent["random_input_len"]) == (2.5, 1.0, 9)
    assert silent["request_rate"] == "inf"  # newer clients print only a limited rate
    assert "random_input_len" not in silent


@pytest.mark.parametrize("times", [1, 2])
def test_a_report_of_trtllm_bench_is_a_run(tmp_path: Path, times: int) -> None:
    runs = read_runs(write(tmp_path, *[TRTLLM] * times), Scenario(gpu="h100-sxm"), client=None)
    assert len(runs) == times
    assert runs[0].measured["mean_ttft_ms"] == 162.6706
    assert runs[0].measured["p99_ttft_ms"] == 232.4339
    assert runs[0].scenario is not None
    assert runs[0].scenario.engine == "trtllm"
    assert runs[0].load is not None
    assert runs[0].load.requests["output_tokens"].unique().to_list() == [64]


def test_a_text_without_a_result_has_none(tmp_path: Path) -> None:
    assert printed_results(write(tmp_path, "Mean TTFT (ms): 5\n")) == []
