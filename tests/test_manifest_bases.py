"""Kinds of Kubernetes with several pods or with bases: Ray's clusters, OME's runtimes, KServe's configurations."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from planner.errors import UsageError
from planner.launch import read_launch

VLLM = {"engine": "vllm", "model": "m/m"}
HEAD = """
            headGroupSpec:
              template:
                spec:
                  containers:
                  - image: vllm/vllm-openai:v0.8.5
                    command: [/bin/bash, -lc, --]
                    args: ["ulimit -n 65536; $KUBERAY_GEN_RAY_START_CMD; vllm serve m/m --tensor-parallel-size 16"]
                    resources: {limits: {nvidia.com/gpu: 8}}
            workerGroupSpecs:
            - replicas: 1
              template:
                spec:
                  nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}
                  containers: [{command: [/bin/bash, -lc, --, $KUBERAY_GEN_RAY_START_CMD],
                                resources: {limits: {nvidia.com/gpu: 8}}}]
"""
RUNNER = ("runner: {image: 'lmsysorg/sglang:v0.5.5', command: [python3, -m, sglang.launch_server], "
          "args: [--model-path, m/m, --tp-size, '%s'], resources: {limits: {nvidia.com/gpu: %s}}}")
CONFIG = """
        kind: LLMInferenceServiceConfig
        metadata: {name: base}
        spec:
          replicas: 3
          parallelism: {tensor: 2}
          template: {containers: [{name: main, image: "vllm/vllm-openai:v0.24.0", args: [--max-num-seqs=64],
                                   resources: {limits: {nvidia.com/gpu: 2}}}]}
"""
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "AIBrix' fleet": (f"""
        kind: RayClusterFleet
        spec:
          replicas: 2
          template:
           spec:{HEAD}""", VLLM | {"engine_version": "0.8.5", "tensor_parallel_size": 16, "data_parallel_size": 2,
                                   "gpu": "h200-sxm"}),
    "a cluster of KubeRay": (f"""
        kind: RayCluster
        spec:{HEAD}""", VLLM | {"engine_version": "0.8.5", "tensor_parallel_size": 16, "gpu": "h200-sxm"}),
    "OME's runtime": (f"""
        kind: ClusterServingRuntime
        spec:
          engineConfig:
            minReplicas: 2
            nodeSelector: {{node.kubernetes.io/instance-type: BM.GPU.H100.8}}
            {RUNNER % (4, 4)}
        """, {"engine": "sglang", "engine_version": "0.5.5", "model": "m/m", "tensor_parallel_size": 4,
              "data_parallel_size": 2, "gpu": "h100-sxm"}),
    "OME's runtime of two nodes": (f"""
        kind: ServingRuntime
        spec: {{engineConfig: {{leader: {{{RUNNER % (16, 8)}}}, worker: {{size: 1, {RUNNER % (16, 8)}}}}}}}
        """, {"engine": "sglang", "engine_version": "0.5.5", "model": "m/m", "tensor_parallel_size": 16}),
    "OME's service on a runtime of the file": (f"""
        kind: ClusterServingRuntime
        metadata: {{name: srt}}
        spec: {{engineConfig: {{{RUNNER % (4, 4)}}}}}
        ---
        kind: InferenceService
        metadata: {{name: chat}}
        spec: {{runtime: {{name: srt}}, engine: {{minReplicas: 3}}}}
        """, {"engine": "sglang", "engine_version": "0.5.5", "model": "m/m", "tensor_parallel_size": 4,
              "data_parallel_size": 3}),
    "KServe's configuration with a command": ("""
        kind: LLMInferenceServiceConfig
        spec:
          model: {uri: "hf://m/m"}
          template: {containers: [{name: main, image: "vllm/vllm-openai:v0.24.0", command: [/bin/sh, -c],
                                   args: ["vllm serve m/m --block-size 64 --tensor-parallel-size 2"]}]}
        """, VLLM | {"engine_version": "0.24.0", "tensor_parallel_size": 2, "block_size": 64}),
    "KServe's configuration with the model's folder": ("""
        kind: LLMInferenceServiceConfig
        spec:
          model: {uri: "hf://m/m"}
          template: {containers: [{name: main, command: [vllm, serve, /mnt/models]}]}
        """, VLLM),
    "KServe's service on a runtime of the file": ("""
        kind: ServingRuntime
        metadata: {name: vllm}
        spec:
          containers:
          - name: kserve-container
            image: vllm/vllm-openai:v0.11.0
            command: [python, -m, vllm.entrypoints.openai.api_server]
            args: [--port=8080, --model=/mnt/models, "--served-model-name={{.Name}}"]
        ---
        kind: InferenceService
        metadata: {name: chat}
        spec:
          predictor:
            minReplicas: 2
            nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}
            model: {runtime: vllm, storageUri: "hf://m/m", args: [--max-num-seqs=32, --tensor-parallel-size=2],
                    resources: {limits: {nvidia.com/gpu: 2}}}
        """, VLLM | {"engine_version": "0.11.0", "max_num_seqs": 32, "tensor_parallel_size": 2, "gpu": "l40s",
                     "data_parallel_size": 2}),
    "KServe's preset with templates": ("""
        kind: LLMInferenceServiceConfig
        spec:
          model: {uri: "hf://m/m", name: chat}
          parallelism: {data: 4, dataLocal: 2, tensor: 2}
          template:
            containers:
            - name: main
              command: [/bin/sh, -c]
              args:
              - |-
                eval "exec vllm serve \\
                  /mnt/models \\
                  --served-model-name "{{ .Spec.Model.Name }}" "{{ .ObjectMeta.Namespace }}/{{ .Spec.Model.Name }}" \\
                  {{- if .Spec.Parallelism.Expert -}}--enable-expert-parallel{{- end }} \\
                  {{- if .Spec.Parallelism.Tensor -}}--tensor-parallel-size {{ .Spec.Parallelism.Tensor }}{{- end }} \\
                  --data-parallel-size {{ or .Spec.Parallelism.Data 1 }} \\
                  --data-parallel-size-local {{ or .Spec.Parallelism.DataLocal 1 }} \\
                  {{ kvTransferConfig .Spec.KVCacheOffloading }} \\
                  ${VLLM_ADDITIONAL_ARGS} \\
                  $@"
              - --
        """, VLLM | {"tensor_parallel_size": 2, "data_parallel_size": 4, "router": "vllm-dp"}),
    "OME's runtime with the variables of its operator": ("""
        kind: ClusterServingRuntime
        spec:
          engineConfig:
            leader:
              runner:
                name: ome-container
                image: lmsysorg/sglang:v0.5.5
                command: [sh, -c, "python3 -m sglang.launch_server --model-path m/m --tp-size ${PARALLELISM_SIZE}
                  --nnodes ${LWS_GROUP_SIZE} --node-rank ${LWS_WORKER_INDEX}"]
                resources: {limits: {nvidia.com/gpu: 8}}
            worker: {size: 1}
        """, {"engine": "sglang", "engine_version": "0.5.5", "model": "m/m", "tensor_parallel_size": 16}),
    "OME's service with its model's name": ("""
        kind: ServingRuntime
        metadata: {name: srt}
        spec:
          acceleratorRequirements: {acceleratorClasses: [nvidia-h100]}
          engineConfig: {runner: {image: "lmsysorg/sglang:v0.5.5", command: [/bin/bash, -lc, --],
                                    args: ["python3 -m sglang.launch_server --model-path=$MODEL_PATH --tp-size=4"]}}
        ---
        kind: InferenceService
        metadata: {name: chat}
        spec: {runtime: {name: srt}, model: {name: m/m}, engine: {minReplicas: 2}}
        """, {"engine": "sglang", "engine_version": "0.5.5", "model": "m/m", "tensor_parallel_size": 4,
              "data_parallel_size": 2, "gpu": "h100-sxm"}),
    "a service on a configuration of the file": (f"""{CONFIG}
        ---
        kind: LLMInferenceServiceConfig
        metadata: {{name: router}}
        spec: {{router: {{route: {{}}}}}}
        ---
        kind: LLMInferenceService
        metadata: {{name: chat}}
        spec:
          baseRefs: [{{name: base}}, {{name: router}}]
          model: {{uri: "hf://m/m"}}
          replicas: 4
          template: {{containers: [{{name: main, env: [{{name: VLLM_FLOAT32_MATMUL_PRECISION, value: high}}]}}]}}
        """, VLLM | {"engine_version": "0.24.0", "tensor_parallel_size": 2, "max_num_seqs": 64,
                     "data_parallel_size": 4, "fp32_matmul": "tf32"}),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_read_as_it_deploys(kind: str, tmp_path: Path) -> None:
    text, expected = FILES[kind]
    (tmp_path / "file.yaml").write_text(dedent(text))
    launch = read_launch(str(tmp_path / "file.yaml"))
    assert launch.options == expected
    assert [note for note in launch.notes if "names its GPU" not in note] == []
    assert not {"MODEL_PATH", "PARALLELISM_SIZE", "VLLM_ADDITIONAL_ARGS"} & {*launch.left_aside}


def test_an_engine_beside_a_decoder_prefills(tmp_path: Path) -> None:
    path = tmp_path / "runtime.yaml"
    path.write_text(f"kind: ClusterServingRuntime\nspec: {{engineConfig: {{{RUNNER % (2, 2)}}}, "
                    f"decoderConfig: {{{RUNNER % (8, 8)}}}}}\n")
    sizes = {role: read_launch(str(path), role=role).options["tensor_parallel_size"] for role in ("prefill", "decode")}
    assert sizes == {"prefill": 2, "decode": 8}
    with pytest.raises(UsageError, match="separate engines for prefill and decode"):
        read_launch(str(path))


def test_a_base_that_the_file_lacks_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text("kind: LLMInferenceService\nmetadata: {name: chat}\n"
                    "spec: {baseRefs: [{name: presets}], model: {uri: 'hf://m/m'}}\n")
    assert read_launch(str(path)).notes == (
        "LLMInferenceService chat builds on presets, which the file does not have; settings that change the engine are "
        "then missing",)


def test_a_configuration_without_a_model_asks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "base.yaml"
    path.write_text(dedent(CONFIG))
    with pytest.raises(UsageError, match="names no model, as vllm serve MODEL does; give it there, or with --model"):
        read_launch(str(path))
    assert read_launch(str(path), model="m/m").options["max_num_seqs"] == 64
