"""Launches in Python: classes that start an engine, commands in lists and texts, notebooks; no value is computed."""

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
app = modal.App("llm")
MODEL = "m/m"
N_GPU = 2
@app.function(image=image, gpu=f"H100:{N_GPU}")
def serve():
    import subprocess
    cmd = ["vllm", "serve", "--uvicorn-log-level=info", MODEL, "--served-model-name", MODEL, "llm", "--port", "8000",
           "--tensor-parallel-size", str(N_GPU)]
    print(*cmd)
    subprocess.Popen(" ".join(cmd), shell=True)
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
    ("import vllm\nOPTIONS = dict(max_model_len=8192)\nMORE = {'enforce_eager': True}\nif __name__ == '__main__':\n"
     "    llm = vllm.LLM('m/m', **OPTIONS, **MORE)",
     {"engine": "vllm", "usage_context": "llm_class", "max_model_len": 8192, "cudagraph_mode": "none"}),
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
    ("import os\nTP = 2\nMODEL = 'm/m'\nos.system(f'''vllm serve {MODEL} \\\\\n  --tensor-parallel-size {TP}''')",
     {"engine": "vllm", "tensor_parallel_size": 2}),
    ("import asyncio\nfrom vllm import AsyncEngineArgs\nfrom vllm.v1.engine.async_llm import AsyncLLM\n"
     "async def main():\n    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model='m/m', max_num_seqs=9))\n"
     "asyncio.run(main())", {"engine": "vllm", "usage_context": "engine_context", "max_num_seqs": 9}),
])
def test_python_is_read_as_it_runs(text: str, expected: dict[str, Any]) -> None:
    assert read_launch(text).options == {"model": "m/m"} | expected


START = "import os, subprocess, sys, torch, vllm\n"


@pytest.mark.parametrize(("text", "said"), [
    ("vllm.LLM(model='m/m', tensor_parallel_size=torch.cuda.device_count())", "computes torch.cuda.device_count()"),
    ("vllm.LLM(**yaml.safe_load(open('llm.yaml')))", "computes yaml.safe_load(open('llm.yaml')), an argument of LLM"),
    ("vllm.LLM(model=sys.argv[1])", "computes sys.argv[1]"),
    ("args = parser.parse_args()\nvllm.LLM(model=args.model)", "line 3 computes args.model, an argument of LLM"),
    ("for name in ['m/a', 'm/b']:\n    vllm.LLM(model=name)", "computes name"),
    ("for i in range(4):\n    subprocess.Popen(['vllm', 'serve', 'm/m'])", "line 3 starts an engine in a loop"),
    ("vllm.LLM('m/m', max_num_seqs=2 * 8)", "computes 2 * 8"),
    ("TP = os.environ.get('TP', 2)\nvllm.LLM('m/m', tensor_parallel_size=TP)", "computes os.environ.get('TP', 2)"),
    ("class A:\n    TP = 8\nvllm.LLM('m/m', tensor_parallel_size=A.TP)", "computes A.TP"),
    ("def start(tp):\n    vllm.LLM('m/m', tensor_parallel_size=tp)\nstart(2)", "line 3 computes tp"),
    ("N = [N]\nvllm.LLM('m/m', max_num_seqs=N)", "computes N, an argument"),
    ("N = 8\nN += 1\nvllm.LLM('m/m', max_num_seqs=N)", "computes N, an argument"),
    ("OPTIONS = {}\nOPTIONS['max_num_seqs'] = 8\nvllm.LLM('m/m', **OPTIONS)", "computes OPTIONS, an argument"),
    ("args = vllm.EngineArgs('m/m')\nllm = vllm.LLM(**vars(args))", "computes vars(args)"),
    ("subprocess.run(['vllm', 'serve', 'm/m', '-tp', str(tp)])", "computes tp, a part of a command"),
    ("cmd = ['vllm', 'serve', 'm/m']\ncmd += ['-tp', '2']\nsubprocess.run(cmd)", "line 2 puts a command together"),
    ("cmd = ['vllm', 'serve', 'm/m']\ncmd.append('-x')\nsubprocess.run(cmd)", "line 2 puts a command together"),
    ("self.cmd = ['vllm', 'serve', 'm/m']", "puts a command together"),
    ("subprocess.run(['vllm', 'serve', 'm/m'] + extra)", "puts a command together"),
    ("os.system('vllm serve {}'.format('m/m'))", "puts a command together"),
    ("cmd = 'vllm serve m/m '\ncmd += '-tp 2'\nos.system(cmd)", "line 2 puts a command together"),
    ("TP = 2\nN = [TP]\nvllm.LLM('m/m', max_num_seqs=N)", "computes N, an argument"),
    ("NAME = 'm/m'\ncmd = f'vllm serve {NAME}'\nos.system(cmd)", "line 3 puts a command together"),
    ("N, M = 8, 9\nvllm.LLM('m/m', max_num_seqs=N)", "computes N, an argument"),
    ("os.system(f'vllm serve m/m -tp {tp}')", "computes tp, a part of a command"),
])
def test_a_launch_that_python_computes_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"the text: line \d .*, and Python is not run; give the server.s") as caught:
        read_launch(START + text)
    assert said in str(caught.value)


@pytest.mark.parametrize(("text", "said"), [
    ("from tensorrt_llm._tensorrt_engine import LLM\nLLM(model='m/m')", "runs TensorRT engines"),
    ("import subprocess\nprint('vllm serve m/m')\nsubprocess.run(['uvicorn', 'app:app'])", "launches no engine"),
])
def test_what_launches_no_engine_of_these_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_launch(text)
    assert said in str(caught.value)


def test_the_gpus_that_a_platform_is_asked_for_are_noted() -> None:
    notes = read_launch(MODAL.replace("{N_GPU}", "4"), gpu="h100-sxm").notes
    assert notes == ("line 11 requests 4 GPUs, and its command uses 2; 2 are predicted",)


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
