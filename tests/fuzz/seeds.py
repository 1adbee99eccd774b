"""What the fuzz campaign feeds: valid inputs of every reader, and how each is read."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from test_scraped import query, vllm
from test_serverlog import sglang
from test_trace_formats import SAME_RUN, lines, sglang_bench, table

from planner.catalog.catalog_files import load_model
from planner.deployment.pools import read_fleet
from planner.launch.read_command import read_launch
from planner.measured.runs import read_runs
from planner.measured.steplog import SHAPE, read_steps
from planner.planning.baseline import read_baseline
from planner.planning.grid import read_sweep
from planner.planning.study import read_study
from planner.planning.targets import read_targets
from planner.settings.objectives import parse_objectives
from planner.settings.scenario import Scenario
from planner.steptime.engine_constants import read_constants
from planner.traces import read_trace
from planner.traces.shaping.rate_series import read_rate_series
from planner.traces.synthesis import read_spec

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One kind of input: a valid one, its file's suffix, what reads it, and whether it is only cut.

    Of Parquet nothing but the length is changed: Polars ends the process at some damaged pages, where it asks for as
    much memory as they say.
    """

    seed: bytes
    suffix: str
    read: Callable[[Path], Any]
    is_cut: bool = False


def _trace(path: Path) -> None:
    """Read a trace, strictly or dropping bad rows, as the length of the file decides."""
    read_trace(str(path), on_bad_rows="drop" if path.stat().st_size % 2 else "error")


def _mapped(spec: str) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        read_trace(str(path), format=spec, on_bad_rows="drop")
    return read


def _runs(path: Path) -> None:
    """Read measured runs, of a deployment in few words where their rows do not name their own."""
    few: dict[str, Any] = {} if path.suffix == ".csv" else {"step_time": "linear:0.01,0.0001", "num_gpu_blocks": 100}
    read_runs(path, Scenario(**few), client=None)


def _steps(path: Path) -> None:
    """Read steps of a table, or those that a server's log tells of."""
    read_steps(path, Scenario(step_time="linear:0.01,0.0001", num_gpu_blocks=100, engine="sglang"))


def _weka() -> str:
    turn = {"t": 0.0, "type": "n", "model": "m", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 2.0,
            "think_time": 3.0}
    agent = {"t": 12.0, "type": "subagent", "duration_ms": 9000, "requests": [turn, turn | {"t": 4.0}]}
    return lines({"id": "a", "block_size": 64, "requests": [turn, agent, turn | {"t": 15.0}]})


def _parquet() -> bytes:
    file = io.BytesIO()
    pl.DataFrame({"arrival_s": [0.5, 1.5], "input_tokens": [3, 4], "output_tokens": [1, 2], "tenant": ["a", None]}
                 ).write_parquet(file)
    return file.getvalue()


_ROW = {"input_length": 520, "output_length": 4}
_IDS = {"sys_prompt": [1], "passages_ids": [2, 3], "history": [], "web_search": [], "user_input": [4]}
_TRACES: Mapping[str, str] = {name: make() for name, make in SAME_RUN.items()} | {
    "csv": table("arrival_s,input_tokens,output_tokens,request_id,priority,tenant,ttft_s,status",
                 '0.5,10,2,a,1,"x, y",0.25,completed', "1.5,20,3,b,,,,rejected"),
    "jsonl": lines({"arrival_s": 0, "input_tokens": 20, "output_tokens": 2, "hash_ids": [7, "x"],
                    "hash_block_tokens": 16, "session_id": "s", "parent_id": None, "think_time_s": 0.5},
                   {"arrival_s": 1, "input_tokens": 5, "output_tokens": 2}),
    "sglang-bench": sglang_bench(),
    "azure": table("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46.6805900,374,44",
                   "2023-11-16T18:15:50.9951693Z,396,109"),
    "mooncake": lines({"timestamp": 0, **_ROW, "hash_ids": [1, 2]}, {"timestamp": 27482, **_ROW, "hash_ids": [1, 3]}),
    "aiperf-trace": lines({"session_id": "a", "timestamp": 1500, **_ROW}, {"session_id": "a", "delay": 250, **_ROW}),
    "timed-trace": lines({"timestamp": 0.5, **_ROW, "hash_ids": list(range(33))}),
    "bailian": lines({"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.1, "type": "text", "turn": 1, **_ROW,
                      "hash_ids": [1, 2]}, {"chat_id": 2, "parent_chat_id": 1, "timestamp": 62, "type": "text",
                                            "turn": 2, **_ROW, "hash_ids": [1, 2]}),
    "ragpulse": lines({"timestamp": "27", **_ROW, "hash_ids": _IDS, "session_id": "s"}),
    "weka": _weka(),
    "burstgpt": table("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
                      "5.0,a,2,GPT-4,10,20,30,Conversation log", "6.0,,1,ChatGPT,0,0,0,API log"),
    "llmperf": json.dumps([{"error_code": None, "ttft_s": 0.5, "number_input_tokens": 7, "end_to_end_latency_s": 1.5,
                            "number_output_tokens": 3}]),
    "llmservingsim": lines({"session_id": "s", "arrival_time_ns": 20, "sub_requests": [
        {"input_toks": 10, "output_toks": 2, "tool_duration_ns": 5}]}, {"input_toks": 1, "output_toks": 2,
                                                                        "arrival_time_ns": 9}),
    "splitwise-sim": table("request_id,arrival_timestamp,prompt_size,token_size", "0,0.5,3,4"),
    "lengths": table("num_prefill_tokens,num_decode_tokens", "3,4"),
    "vidur": table("arrived_at,num_prefill_tokens,num_decode_tokens", "0.25,3,4"),
    "apex": lines({"ContextTokens": 3, "GeneratedTokens": 4, "StartTimeOffset": 618518284, "RequestID": "a"}),
    "envoy-ai-gateway": lines({"duration": 1526, "genai_tokens_input": 15, "genai_tokens_output": 7,
                               "response_code": 200, "start_time": "2025-08-30T16:51:37.894Z", "route_name": "r"}),
    "sagemaker": lines({"captureData": {"endpointInput": {"data": '{"max_tokens": 9}', "encoding": "JSON"},
                                        "endpointOutput": {"data": '{"usage": {"prompt_tokens": 12, '
                                                                   '"completion_tokens": 8}}', "encoding": "JSON"}},
                        "eventMetadata": {"eventId": "abc", "inferenceTime": "2026-04-29T00:03:18Z"}}),
}
_MAP = "columns,arrival_s=t.at:ms,input_tokens=n,output_tokens=m,ended_at_s=end:date,hash_ids=ids:8,where model=a"
_RUNS = table("gpu,engine,model,isl,osl,concurrency,tp,measured_ttft_ms,measured_tpot_ms,client",
              "h100_sxm,vllm,meta-llama/Llama-3.1-70B-Instruct,1024,1024,8,4,100.0,15.0,inferencex")
_SWEEP = ('trace = "chat"\nslo = "ttft:500 tpot:50"\npareto = ["output_throughput", "num_gpus"]\n[scenario]\n'
          'model = "llama-3.1-8b"\n[axes]\ngpu = ["h100-sxm", "l40s"]\nmax_num_seqs = [64, 128]\n'
          '[[constraint]]\nmetric = "p99_ttft_ms"\nmax = 500.0\n')
_SPEC = (ROOT / "workloads" / "chat.toml").read_text()
_CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
           "torch_dtype": "bfloat16", "max_position_embeddings": 8192, "head_dim": 128}
_SERVER = ("[2026-04-05 20:00:00] server_args=ServerArgs(model_path='m/m', tp_size=8, cuda_graph_bs=[1, 2], "
           "quantization='fp8', chat_template=None)")
_LAUNCH = ("vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 2 --max-num-seqs 64 --kv-cache-dtype fp8 "
           "--gpu-memory-utilization 0.9 --no-enable-prefix-caching")
_SCRIPT = """MODEL="acme/chat"
ARGS=(--max-num-seqs 64)
for PORT in 8000 8001; do
  vllm serve $MODEL -tp ${TP:-2} "${ARGS[@]}" --port $PORT > log &
done
"""
_MANIFEST = """kind: Deployment
metadata: {name: chat}
spec:
  replicas: 2
  template:
    spec:
      containers:
      - image: vllm/vllm-openai:v0.11.0
        args: [--model, $(MODEL), -tp, "2"]
        env: [{name: MODEL, value: acme/chat}]
        resources: {limits: {nvidia.com/gpu: 2}}
"""
_FLEET = """[[pool]]
name = "new"
role = "prefill"
replicas = 2
gpu = "h100-sxm"
max_num_seqs = 64
weight = 3

[[pool]]
role = "decode"
from_command = "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2"
async_scheduling = false
"""
_TARGETS = (ROOT / "tests" / "gate" / "targets.toml").read_text()

TARGETS: Mapping[str, Target] = {
    f"trace {name}": Target(seed=text.encode(), suffix=".txt", read=_trace) for name, text in _TRACES.items()
} | {
    "trace columns": Target(
        seed=lines({"t": {"at": 1767218400000}, "n": 20, "m": 4, "end": "2026-01-01T00:00:00+02:00", "ids": [1, 2],
                    "model": "a"}).encode(), suffix=".jsonl", read=_mapped(_MAP)),
    "trace columns csv": Target(
        seed=b'at,n,m,meta\n1790000000000,5,6,"{""a"": {""b"": 3}}"\n1790000001000,7,8,\n', suffix=".csv",
        read=_mapped("columns,arrival_s=at:ms,input_tokens=n,output_tokens=m,cached_tokens=meta.a.b")),
    "trace parquet": Target(seed=_parquet(), suffix=".parquet", read=_trace, is_cut=True),
    "runs table": Target(seed=_RUNS.encode(), suffix=".csv", read=_runs),
    "runs result": Target(seed=SAME_RUN["vllm-bench"]().encode(), suffix=".json", read=_runs),
    "runs metrics": Target(seed=f"# at 1000\n{vllm(20)}# at 1050\n{vllm(120)}".encode(), suffix=".prom", read=_runs),
    "runs query": Target(seed=query({1000.0: vllm(20), 1050.0: vllm(120)}).encode(), suffix=".json", read=_runs),
    "runs requests": Target(seed=SAME_RUN["guidellm"]().encode(), suffix=".json", read=_runs),
    "step log": Target(seed=table(",".join(("duration_s", *SHAPE)), ",".join(["0.0125"] + ["3"] * len(SHAPE)),
                                  ",".join(["0.0095"] + ["0"] * len(SHAPE))).encode(), suffix=".csv", read=_steps),
    "server log": Target(seed="\n".join([_SERVER, sglang(8, 900, 500.0), sglang(8, 1200, 510.0)]).encode(),
                         suffix=".log", read=_steps),
    "rate series": Target(seed=table("window_start_s,total_rate_req_s", "0,14.8", "600,18.4").encode(), suffix=".csv",
                          read=read_rate_series),
    "study": Target(seed=b'trace = "chat"\nslo = "ttft:500 tpot:50"\nreplicas = 2\nmodel = "llama-3.1-8b"\n'
                         b'gpu = "h100-sxm"\nmax_num_seqs = 64\nformat = "columns,tenant=x"\n', suffix=".toml",
                    read=read_study),
    "fleet": Target(seed=_FLEET.encode(), suffix=".toml", read=lambda path: read_fleet(path, Scenario())),
    "sweep": Target(seed=_SWEEP.encode(), suffix=".toml", read=read_sweep),
    "targets": Target(seed=_TARGETS.encode(), suffix=".toml", read=read_targets),
    "synthetic": Target(seed=_SPEC.encode(), suffix=".toml", read=read_spec),
    "calibration": Target(seed=b'[source]\nengine = "vllm"\nmeasured = "a"\n[constants]\nhost_s_per_seq = 0.001\n',
                          suffix=".toml", read=read_constants),
    "baseline": Target(seed=(ROOT / "tests" / "gate" / "baseline.json").read_bytes(), suffix=".json",
                       read=read_baseline),
    "config.json": Target(seed=json.dumps(_CONFIG).encode(), suffix=".json", read=lambda path: load_model(str(path))),
    "launch log": Target(seed=_SERVER.encode(), suffix=".log", read=lambda path: read_launch(str(path))),
    "launch": Target(seed=_LAUNCH.encode(), suffix=".txt",
                     read=lambda path: read_launch(path.read_text(encoding="utf-8", errors="replace"))),
    "launch script": Target(seed=_SCRIPT.encode(), suffix=".sh", read=lambda path: read_launch(str(path))),
    "launch manifest": Target(seed=_MANIFEST.encode(), suffix=".yaml", read=lambda path: read_launch(str(path))),
    "slo": Target(seed=b"ttft:500 tpot:50 p99_e2el:5000", suffix=".txt",
                  read=lambda path: parse_objectives(path.read_text(encoding="utf-8", errors="replace"), 0.9)),
}
