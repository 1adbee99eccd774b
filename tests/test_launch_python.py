"""Launches in Python: classes that start an engine, commands in lists and texts, notebooks, and computed values."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner import Scenario
from planner.deployment.deploy import deploy
from planner.errors import UsageError
from planner.launch import read_launch

MODAL = '''
import modal
image = (modal.Image.from_registry("nvidia/cuda:12.8.0-devel-ubuntu22.04").entrypoint([])
         .uv_pip_install("vllm==0.11.2", "huggingface-hub").env({"VLLM_FLOAT32_MATMUL_PRECISION": "high"}))
app, MODEL, N_GPU, FAST, PORT = modal.App("llm"), "m/m", 2, False, 8000
@app.function(image=image, gpu=f"H100:{N_GPU * 2}")
def serve():
    import subprocess
    cmd = ["vllm", "serve", "--uvicorn-log-level=info", MODEL, "--served-model-name", MODEL, "llm", "--port", str(PORT)]
    cmd += ["--enforce-eager" if FAST else "--no-enforce-eager"]
    cmd += ["--tensor-parallel-size", str(N_GPU)]
    print(*cmd)
    subprocess.Popen(" ".join(cmd), shell=True)
'''
SGLANG_CLASS = '''
class Config:
    MODEL, TP = "m/m", 8
@app.cls(gpu="H200:8")
class Server:
    @modal.enter()
    def start(self):
        self.model = Config.MODEL
        self.process = _start(self.model, tp=Config.TP)
def _start(model, tp=1, port=8000):
    words = ["python", "-m", "sglang.launch_server", "--model-path", model, "--tp", f"{tp}", "--port", str(port)]
    if port > 9000:
        words.extend(["--mem-fraction-static", "0.5"])
    return subprocess.Popen(words)
'''
EXAMPLE = '''
from dataclasses import asdict
from vllm import LLM, EngineArgs
def engine_args(tp, model="m/m"):
    return EngineArgs(model=model, tensor_parallel_size=tp, max_num_seqs=64)
if __name__ == "__main__":
    args = engine_args(2)
    args.gpu_memory_utilization = 0.85
    llm = LLM(**asdict(args) | {"seed": 1})
'''
TRTLLM = '''
from tensorrt_llm import LLM
from tensorrt_llm.llmapi import CapacitySchedulerPolicy, KvCacheConfig, MTPDecodingConfig, SchedulerConfig
kv_cache = KvCacheConfig(free_gpu_memory_fraction=0.8, enable_block_reuse=False, dtype="fp8")
llm = LLM(model="m/m", tensor_parallel_size=8, moe_expert_parallel_size=4, kv_cache_config=kv_cache,
          speculative_config=MTPDecodingConfig(num_nextn_predict_layers=3),
          scheduler_config=SchedulerConfig(capacity_scheduler_policy=CapacitySchedulerPolicy.MAX_UTILIZATION))
'''
RAY_SERVE = '''
from ray.serve.llm import LLMConfig, build_openai_app
config = LLMConfig(model_loading_config=dict(model_id="llm", model_source="m/m"),
                   deployment_config=dict(num_replicas=3), engine_kwargs=dict(tensor_parallel_size=2))
app = build_openai_app({"llm_configs": [config]})
'''


@pytest.mark.parametrize(("text", "expected"), [
    ("import vllm\nllm = vllm.LLM('m/m', max_model_len=8192, enforce_eager=True, dtype='auto')",
     {"engine": "vllm", "usage_context": "llm_class", "max_model_len": 8192, "cudagraph_mode": "none"}),
    ("from vllm import LLM\n"
     "llm = LLM(model='m/m', speculative_config={'method': 'ngram', 'num_speculative_tokens': 4})",
     {"engine": "vllm", "usage_context": "llm_class", "speculative_method": "ngram", "num_speculative_tokens": 4}),
    (EXAMPLE, {"engine": "vllm", "usage_context": "llm_class", "tensor_parallel_size": 2, "max_num_seqs": 64,
               "gpu_memory_utilization": 0.85}),
    ("from vllm.engine.arg_utils import AsyncEngineArgs as Args\nfrom vllm import AsyncLLMEngine\n"
     "engine = AsyncLLMEngine.from_engine_args(Args(model='m/m', max_num_seqs=100))",
     {"engine": "vllm", "usage_context": "engine_context", "max_num_seqs": 100}),
    ("from vllm import AsyncEngineArgs, AsyncLLMEngine\nfrom vllm.usage.usage_lib import UsageContext\n"
     "args = AsyncEngineArgs(model='m/m')\n"
     "engine = AsyncLLMEngine.from_engine_args(args, usage_context=UsageContext.OPENAI_API_SERVER)",
     {"engine": "vllm", "usage_context": "openai_api_server"}),
    ("import sglang as sgl, os\nos.environ['SGLANG_ENABLE_FLASHINFER_GEMM'] = '1'\n"
     "llm = sgl.Engine(model_path='m/m', tp_size=2, mem_fraction_static=0.8, disable_radix_cache=True)",
     {"engine": "sglang", "tensor_parallel_size": 2, "gpu_memory_utilization": 0.8, "enable_prefix_caching": False,
      "fp8_gemm_backend": "flashinfer_trtllm"}),
    (TRTLLM, {"engine": "trtllm", "tensor_parallel_size": 8, "expert_parallel": True, "expert_tensor_parallel_size": 2,
              "gpu_memory_utilization": 0.8, "enable_prefix_caching": False, "kv_cache_dtype": "fp8",
              "speculative_method": "mtp", "num_speculative_tokens": 3, "policy": "trtllm-max-utilization"}),
    (RAY_SERVE, {"engine": "vllm", "tensor_parallel_size": 2, "data_parallel_size": 3}),
    ("from ray.data.llm import vLLMEngineProcessorConfig\n"
     "vLLMEngineProcessorConfig(model_source='m/m', engine_kwargs={'max_model_len': 4096}, concurrency=2)",
     {"engine": "vllm", "usage_context": "engine_context", "max_model_len": 4096, "data_parallel_size": 2}),
    (MODAL, {"engine": "vllm", "engine_version": "0.11.2", "tensor_parallel_size": 2, "fp32_matmul": "tf32",
             "gpu": "h100-sxm"}),
    (SGLANG_CLASS, {"engine": "sglang", "tensor_parallel_size": 8, "gpu": "h200-sxm"}),
    ("import os\nTP = int(os.getenv('TP', '2'))\nMODEL = os.environ.get('MODEL', 'm/m')\n"
     "os.system(f'''vllm serve {MODEL} \\\\\n  --tensor-parallel-size {TP}''')",
     {"engine": "vllm", "tensor_parallel_size": 2}),
    ("import asyncio\nfrom vllm import AsyncEngineArgs\nfrom vllm.v1.engine.async_llm import AsyncLLM\n"
     "async def main():\n    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model='m/m', max_num_seqs=9))\n"
     "asyncio.run(main())", {"engine": "vllm", "usage_context": "engine_context", "max_num_seqs": 9}),
    ("from vllm import LLM\nclass Worker:\n    def __init__(self, name, tp=1):\n"
     "        self.llm = LLM(model=name, tensor_parallel_size=tp)\nworker = Worker('m/m', tp=2)",
     {"engine": "vllm", "usage_context": "llm_class", "tensor_parallel_size": 2}),
    ("import os\nos.system('vllm serve {} -tp {tp}'.format('m/m', tp=2))",
     {"engine": "vllm", "tensor_parallel_size": 2}),
    ("import os\nos.system('vllm serve %s -tp %d' % ('m/m', 2))", {"engine": "vllm", "tensor_parallel_size": 2}),
    ("import subprocess\nfor i in range(4):\n    subprocess.Popen(['vllm', 'serve', 'm/m', '--port', str(8000 + i)])",
     {"engine": "vllm", "data_parallel_size": 4}),
    ("import argparse\nfrom vllm import LLM\nparser = argparse.ArgumentParser()\n"
     "parser.add_argument('--model', default='m/m')\nparser.add_argument('-n', '--max-seqs', type=int, default=8)\n"
     "args = parser.parse_args()\nLLM(model=args.model, max_num_seqs=args.max_seqs)",
     {"engine": "vllm", "usage_context": "llm_class", "max_num_seqs": 8}),
])
def test_python_is_read_as_it_runs(text: str, expected: dict[str, Any]) -> None:
    assert read_launch(text).options == {"model": "m/m"} | expected


@pytest.mark.parametrize(("text", "said"), [
    ("import torch\nfrom vllm import LLM\nLLM(model='m/m', tensor_parallel_size=torch.cuda.device_count())",
     "${torch.cuda.device_count()}: must be a whole number; put the variable's value in its place"),
    ("import yaml\nfrom vllm import LLM\nLLM(**yaml.safe_load(open('llm.yaml')))",
     "line 3 starts an engine with **yaml.safe_load(open('llm.yaml')), which the text does not say; write the"),
    ("from ray.serve.llm import LLMConfig\nLLMConfig(model_loading_config={'model_id': 'm/m'}, engine_kwargs=load())",
     "line 2 has engine_kwargs = ${load()}, which the text does not say as a table"),
    ("import sys\nfrom vllm import LLM\nLLM(model=sys.argv[1])", "the model is ${sys.argv[1]}, a variable without"),
    ("import argparse\nfrom vllm import LLM\nparser = argparse.ArgumentParser()\n"
     "parser.add_argument('--model', required=True)\nargs = parser.parse_args()\nLLM(model=args.model)",
     "the model is ${args.model}, a variable without"),
    ("from vllm import LLM\nfor name in ['m/a', 'm/b']:\n    LLM(model=name)", "launches several engines that differ"),
    ("from tensorrt_llm._tensorrt_engine import LLM\nLLM(model='m/m')", "runs TensorRT engines"),
    ("from vllm import LLM\nif small():\n    seqs = 8\nelse:\n    seqs = 64\nLLM(model='m/m', max_num_seqs=seqs)",
     "${seqs}: must be a whole number"),
    ("import subprocess\nprint('vllm serve m/m')\nsubprocess.run(['uvicorn', 'app:app'])", "launches no engine"),
])
def test_a_value_that_python_computes_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_launch(text)
    assert said in str(caught.value)


def test_the_gpus_that_a_platform_is_asked_for_are_noted() -> None:
    notes = read_launch(MODAL, gpu="h100-sxm").notes
    assert notes == ("line 13 requests 4 GPUs, and its command uses 2; 2 are predicted",)


@pytest.mark.parametrize(("source", "engine"), [
    (["from vllm import LLM\n", "%time llm = 1\n", "llm = LLM(model='m/m')"], "vllm"),
    (["!python -m sglang.launch_server \\\n", "  --model-path m/m &\n"], "sglang"),
    (["%%bash\n", "vllm serve m/m\n"], "vllm"),
])
def test_notebooks_are_read(source: list[str], engine: str, tmp_path: Path) -> None:
    cells = [{"cell_type": "markdown", "source": ["vllm serve o/o"]},
             {"cell_type": "code", "source": ["!pip install vllm\n"]}, {"cell_type": "code", "source": source}]
    path = tmp_path / "serve.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}))
    options = read_launch(str(path)).options
    assert (options["engine"], options["model"]) == (engine, "m/m")


def test_a_python_engine_has_its_own_default_limits() -> None:
    """`get_batch_defaults` in vllm/engine/arg_utils.py: LLM has larger steps, other users SchedulerConfig's."""
    def limits(gpu: str, text: str) -> tuple[int, int]:
        options = read_launch(f"from vllm import LLM, EngineArgs\n{text}(model='llama-3.1-8b')").options
        settings = deploy(Scenario(**options, gpu=gpu)).settings
        return settings.max_num_seqs, settings.max_num_batched_tokens

    assert [limits(gpu, "LLM") for gpu in ("h100-sxm", "a100-sxm", "l40s")] == [(1024, 16384), (256, 8192), (256, 8192)]
    assert [limits(gpu, "EngineArgs") for gpu in ("h100-sxm", "l40s")] == [(128, 2048)] * 2
