"""Deployment files: the command, the image, the replicas and the GPUs of the engine that each kind of file launches."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from planner.deployment.pools import read_fleet
from planner.errors import UsageError
from planner.launch import launch_options, read_launch
from planner.settings.scenario import Scenario

CHAT = {"engine": "vllm", "model": "acme/chat-7b"}

FILES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a Deployment with arguments and variables": ("d.yaml", """
        apiVersion: v1
        kind: Service
        metadata: {name: front}
        spec: {ports: [{port: 80}]}
        ---
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: chat}
        spec:
          replicas: 3
          template:
            spec:
              containers:
              - name: proxy
                image: nginx:1.27
              - name: engine
                image: vllm/vllm-openai:v0.12.0
                args: ["--model", "$(MODEL)", "--tensor-parallel-size=$(TP)", "--port", "$$8000"]
                env:
                - {name: MODEL, value: acme/chat-7b}
                - {name: TP, value: "2"}
                - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}
                resources: {limits: {nvidia.com/gpu: "2"}}
        """, CHAT | {"engine_version": "0.12.0", "tensor_parallel_size": 2, "data_parallel_size": 3}),
    "a StatefulSet with a shell": ("s.yml", """
        kind: StatefulSet
        spec:
          template:
            spec:
              containers:
              - command: [/bin/bash, -ec]
                args:
                - |
                  export SEQS=${SEQS:-64}
                  exec python3 -m sglang.launch_server --model-path acme/chat-7b \\
                    --tp $TP --max-running-requests $SEQS
                env: [{name: TP, value: "4"}]
                resources: {requests: {amd.com/gpu: 4}}
        """, {"engine": "sglang", "model": "acme/chat-7b", "tensor_parallel_size": 4, "max_num_seqs": 64}),
    "a StatefulSet whose pods are the ranks of two engines": ("r.yml", """
        kind: StatefulSet
        spec:
          replicas: 4
          template:
            spec:
              containers:
              - command: [bash, -c]
                args: ["python3 -m sglang.launch_server --model acme/chat-7b --tp 16 --nnodes 2 --node-rank ${I##*-}"]
                resources: {limits: {nvidia.com/gpu: "8"}}
        """, {"engine": "sglang", "model": "acme/chat-7b", "tensor_parallel_size": 16, "data_parallel_size": 2}),
    "a pod for each rank": ("p.yml", """
        kind: Pod
        spec:
          containers:
          - command: [vllm, serve, acme/chat-7b, -tp, "16", --nnodes, "2", --node-rank, "0"]
        ---
        kind: Pod
        spec:
          containers:
          - command: [vllm, serve, acme/chat-7b, -tp, "16", --nnodes, "2", --node-rank, "1", --headless]
        """, CHAT | {"tensor_parallel_size": 16}),
    "a LeaderWorkerSet": ("l.yaml", """
        apiVersion: leaderworkerset.x-k8s.io/v1
        kind: LeaderWorkerSet
        metadata: {name: big}
        spec:
          replicas: 2
          leaderWorkerTemplate:
            size: 2
            leaderTemplate:
              spec:
                containers:
                - name: leader
                  command: [sh, -c, "start.sh leader --size=$(LWS_GROUP_SIZE); vllm serve acme/chat-7b -tp 8 -pp 2"]
                  resources: {limits: {nvidia.com/gpu: 8}}
            workerTemplate:
              spec: {containers: [{name: worker, command: [sh, -c, start.sh worker]}]}
        """, CHAT | {"tensor_parallel_size": 8, "pipeline_parallel_size": 2, "data_parallel_size": 2}),
    "a List of items": ("list.json", """
        {"kind": "List", "items": [{"kind": "Pod", "spec": {"containers": [
          {"command": ["vllm", "serve", "acme/chat-7b", "--max-num-seqs", "32"]}]}}]}
        """, CHAT | {"max_num_seqs": 32}),
    "a compose file": ("compose.yaml", """
        services:
          web: {image: "nginx:1.27", command: "nginx -g daemon"}
          llm:
            image: vllm/vllm-openai:v${RELEASE:-0.13.0}
            entrypoint: ["vllm", "serve"]
            command: "acme/chat-7b --tensor-parallel-size ${TP:-2} --max-model-len $CONTEXT"
            environment: ["VLLM_FLOAT32_MATMUL_PRECISION=high"]
            deploy:
              replicas: 2
              resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}
        """, CHAT | {"engine_version": "0.13.0", "tensor_parallel_size": 2, "max_model_len": 4096,
                     "data_parallel_size": 2, "fp32_matmul": "tf32"}),
    "values of the production stack": ("values.yaml", """
        servingEngineSpec:
          modelSpec:
          - name: chat
            repository: vllm/vllm-openai
            tag: v0.11.2
            modelURL: acme/chat-7b
            replicaCount: 4
            requestGPU: 2
            vllmConfig:
              maxModelLen: 8192
              tensorParallelSize: 2
              extraArgs: ["--max-num-seqs=48"]
            lmcacheConfig: {enabled: true, cpuOffloadingBufferSize: "30"}
        """, CHAT | {"engine_version": "0.11.2", "tensor_parallel_size": 2, "max_model_len": 8192, "max_num_seqs": 48,
                     "enable_prefix_caching": False, "data_parallel_size": 4, "router": "round-robin"}),
    "values of llm-d": ("ms.yaml", """
        modelArtifacts: {name: acme/chat-7b, uri: "hf://{{ .Values.modelArtifacts.name }}"}
        decode:
          replicas: 2
          parallelism: {tensor: 4}
          containers:
          - name: vllm
            image: vllm/vllm-openai:v0.14.0
            modelCommand: vllmServe
            args: ["--max-model-len", "16384"]
            resources: {limits: {nvidia.com/gpu: 4}}
        prefill: {create: false, replicas: 1}
        """, CHAT | {"engine_version": "0.14.0", "tensor_parallel_size": 4, "max_model_len": 16384,
                     "data_parallel_size": 2}),
    "values of llm-d with a command": ("ms.yaml", """
        modelArtifacts: {name: acme/chat-7b}
        decode:
          parallelism: {tensor: 2}
          containers:
          - modelCommand: custom
            command: [/bin/sh, -c]
            args: ["exec vllm serve {{ .Values.modelArtifacts.name }} --tensor-parallel-size $TP_SIZE --port 1"]
        """, CHAT | {"tensor_parallel_size": 2}),
    "an InferenceService of the Hugging Face runtime": ("isvc.yaml", """
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        metadata: {name: chat}
        spec:
          predictor:
            minReplicas: 2
            model:
              modelFormat: {name: huggingface}
              args: ["--model_name=chat", "--model_id=acme/chat-7b", "--max_model_len=4096", "--backend", "vllm"]
              resources: {limits: {nvidia.com/gpu: "1"}}
        """, CHAT | {"max_model_len": 4096, "data_parallel_size": 2}),
    "an InferenceService with an address": ("isvc.yaml", """
        kind: InferenceService
        spec:
          predictor:
            model:
              storageUri: "hf://acme/chat-7b:main"
              args: ["--tensor-parallel-size", "2"]
        """, CHAT | {"tensor_parallel_size": 2}),
    "an InferenceService with a container": ("isvc.yaml", """
        kind: InferenceService
        spec:
          predictor:
            containers:
            - {image: "vllm/vllm-openai:v0.11.0", args: [--model, acme/chat-7b]}
        """, CHAT | {"engine_version": "0.11.0"}),
    "an LLMInferenceService": ("llm.yaml", """
        kind: LLMInferenceService
        metadata: {name: chat}
        spec:
          model: {uri: "hf://acme/chat-7b", name: chat}
          replicas: 3
          parallelism: {tensor: 2}
          template:
            containers:
            - name: main
              env: [{name: VLLM_ADDITIONAL_ARGS, value: "--max-num-seqs 40"}]
              resources: {limits: {nvidia.com/gpu: "2"}}
        """, CHAT | {"tensor_parallel_size": 2, "max_num_seqs": 40, "data_parallel_size": 3}),
    "an application of Ray Serve": ("serve.yaml", """
        applications:
        - name: app
          import_path: ray.serve.llm:build_openai_app
          args:
            llm_configs:
            - model_loading_config: {model_id: chat, model_source: acme/chat-7b}
              deployment_config: {num_replicas: 2}
              engine_kwargs: {tensor_parallel_size: 2, enable_prefix_caching: false, max_num_seqs: 16,
                              speculative_config: {method: ngram, num_speculative_tokens: 3}}
        """, CHAT | {"tensor_parallel_size": 2, "enable_prefix_caching": False, "max_num_seqs": 16,
                     "speculative_method": "ngram", "num_speculative_tokens": 3, "data_parallel_size": 2}),
    "a RayService": ("ray.yaml", """
        kind: RayService
        spec:
          serveConfigV2: |
            applications:
            - args:
                llm_configs:
                - model_loading_config: {model_id: acme/chat-7b}
                  engine_kwargs: {max_model_len: 2048}
        """, CHAT | {"max_model_len": 2048}),
    "a graph of Dynamo": ("graph.yaml", """
        kind: DynamoGraphDeployment
        spec:
          services:
            Frontend: {componentType: frontend, replicas: 1}
            Worker:
              componentType: worker
              replicas: 2
              resources: {limits: {gpu: "2"}}
              extraPodSpec:
                mainContainer:
                  image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:latest
                  command: [python3, -m, dynamo.vllm]
                  args: [--model, acme/chat-7b, --tensor-parallel-size, "2", --migration-limit, "3"]
        """, CHAT | {"tensor_parallel_size": 2, "data_parallel_size": 2}),
    "a graph of Dynamo's newer form": ("graph.yaml", """
        kind: DynamoGraphDeployment
        spec:
          components:
          - {name: Frontend, type: frontend}
          - name: Worker
            type: worker
            podTemplate:
              spec:
                containers:
                - command: [/bin/sh, -c]
                  args: ["python3 -m dynamo.sglang --model-path acme/chat-7b --tp 4"]
                  resources: {limits: {nvidia.com/gpu: "4"}}
        """, {"engine": "sglang", "model": "acme/chat-7b", "tensor_parallel_size": 4}),
    "vLLM's options": ("vllm.yaml", """
        model: acme/chat-7b
        tensor-parallel-size: 2
        max-num-seqs: 24
        enable-prefix-caching: true
        port: 8000
        """, CHAT | {"tensor_parallel_size": 2, "max_num_seqs": 24, "enable_prefix_caching": True}),
    "SGLang's options": ("sglang.yml", """
        model-path: acme/chat-7b
        tp-size: 2
        mem-fraction-static: 0.8
        disable-radix-cache: true
        """, {"engine": "sglang", "model": "acme/chat-7b", "tensor_parallel_size": 2, "gpu_memory_utilization": 0.8,
              "enable_prefix_caching": False}),
}


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(dedent(text))
    return str(path)


@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_read_as_the_command_that_it_runs(kind: str, tmp_path: Path) -> None:
    name, text, expected = FILES[kind]
    (tmp_path / ".env").write_text("# limits\nCONTEXT=4096\n")
    launch = read_launch(written(tmp_path, name, text))
    assert launch.options == expected
    assert launch.notes == ()
    assert launch.unknown == ()


def test_trtllms_options_need_a_model_beside_them(tmp_path: Path) -> None:
    path = written(tmp_path, "engine.yaml", """
        tensor_parallel_size: 4
        kv_cache_config: {free_gpu_memory_fraction: 0.85, enable_block_reuse: false}
        cuda_graph_config: {max_batch_size: 64}
        """)
    with pytest.raises(UsageError, match="or with --model"):
        read_launch(path)
    assert read_launch(path, model="acme/chat-7b").options == {
        "engine": "trtllm", "model": "acme/chat-7b", "tensor_parallel_size": 4, "gpu_memory_utilization": 0.85,
        "enable_prefix_caching": False, "max_cudagraph_capture_size": 64}


def test_trtllms_autodeploy_is_told_from_its_file(tmp_path: Path) -> None:
    """Keys of `LlmArgs` in tensorrt_llm/_torch/auto_deploy/llm_args.py: all GPUs are world_size."""
    path = written(tmp_path, "autodeploy.yaml", """
        runtime: trtllm
        compile_backend: torch-simple
        world_size: 2
        max_batch_size: 128
        kv_cache_config: {free_gpu_memory_fraction: 0.8}
        transforms: {fuse_gemms: {enabled: true}}
        """)
    launch = read_launch(f"trtllm-serve acme/chat-7b --backend _autodeploy --extra_llm_api_options {path}")
    assert launch.options == {
        "engine": "trtllm", "model": "acme/chat-7b", "tensor_parallel_size": 2, "max_num_seqs": 128,
        "gpu_memory_utilization": 0.8, "cudagraph_mode": "none"}
    assert [flag for flag, _ in launch.unmodelled] == ["--transforms", "--backend _autodeploy"]


def test_other_gpus_than_the_command_uses_are_said(tmp_path: Path) -> None:
    path = written(tmp_path, "p.yaml", """
        kind: Pod
        metadata: {name: chat}
        spec:
          containers:
          - {name: engine, command: [vllm, serve, acme/chat-7b], resources: {limits: {nvidia.com/gpu: 4}}}
        """)
    assert read_launch(path).notes == (
        "container engine of Pod chat requests 4 GPUs, and its command uses 1; 1 are predicted",)


def test_a_variable_that_the_words_use_is_not_left_aside(tmp_path: Path) -> None:
    launch = read_launch(written(tmp_path, "pod.yaml", """
        kind: Pod
        spec:
          containers:
          - command: [vllm, serve, acme/chat-7b, -tp, $(TP)]
            env: [{name: TP, value: "2"}, {name: COLOUR, value: red}]
        """))
    assert launch.options["tensor_parallel_size"] == 2
    assert "TP" not in launch.left_aside
    assert "COLOUR" in launch.left_aside


def test_a_scaler_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "ray.yaml", """
        llm_configs:
        - model_loading_config: {model_id: acme/chat-7b}
          deployment_config: {autoscaling_config: {min_replicas: 2, max_replicas: 6}}
        """)
    launch = read_launch(path)
    assert launch.options["data_parallel_size"] == 2
    assert "scales from 2 to 6 replicas" in launch.notes[0]


def test_replicas_of_ranks_are_said(tmp_path: Path) -> None:
    path = written(tmp_path, "d.yaml", """
        kind: Deployment
        spec:
          replicas: 2
          template:
            spec: {containers: [{command: [vllm, serve, qwen3-30b-a3b, -dp, "4"]}]}
        """)
    launch = read_launch(path)
    assert launch.options["data_parallel_size"] == 4
    assert "2 replicas of an engine with ranks; one is predicted" in launch.notes[0]


APART = """
    kind: DynamoGraphDeployment
    spec:
      services:
        Prefill:
          subComponentType: prefill
          replicas: 3
          extraPodSpec: {mainContainer: {command: [python3, -m, dynamo.vllm],
                                         args: [--model, llama-3.1-8b, --is-prefill-worker]}}
        Decode:
          subComponentType: decode
          extraPodSpec: {mainContainer: {command: [python3, -m, dynamo.vllm],
                                         args: [--model, llama-3.1-8b, -tp, "2", --is-decode-worker]}}
    """


def test_prefill_and_decode_of_one_file_are_two_pools(tmp_path: Path) -> None:
    written(tmp_path, "graph.yaml", APART)
    with pytest.raises(UsageError, match=r"component Prefill, component Decode.*\[\[pool\]\] with role"):
        read_launch(str(tmp_path / "graph.yaml"))
    fleet = written(tmp_path, "fleet.toml", """
        [[pool]]
        role = "prefill"
        gpu = "h100-sxm"
        from_command = "graph.yaml"
        [[pool]]
        role = "decode"
        gpu = "h100-sxm"
        from_command = "graph.yaml"
        """)
    prefill, decode = read_fleet(Path(fleet), Scenario(fleet=fleet))
    assert (prefill.num_replicas, prefill.scenario.tensor_parallel_size) == (3, 1)
    assert (decode.num_replicas, decode.scenario.tensor_parallel_size) == (1, 2)


def test_a_pool_takes_no_engine_of_the_other_role(tmp_path: Path) -> None:
    path = written(tmp_path, "graph.yaml", """
        kind: Deployment
        metadata: {name: pods}
        spec:
          template:
            metadata: {labels: {llm-d.ai/role: decode}}
            spec: {containers: [{name: e, command: [vllm, serve, acme/chat-7b]}]}
        """)
    assert read_launch(path, role="decode").options == CHAT
    with pytest.raises(UsageError, match=r"has no engine for prefill, only for decode .container e of Deployment pods"):
        read_launch(path, role="prefill")


def test_prefill_and_decode_of_one_script_are_told_by_their_flags(tmp_path: Path) -> None:
    path = written(tmp_path, "apart.sh", """
        MODEL=acme/chat-7b
        vllm serve $MODEL -tp 2 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}' &
        vllm serve $MODEL -tp 4 --kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"}' &
        """)
    assert read_launch(path, role="prefill").options["tensor_parallel_size"] == 2
    assert read_launch(path, role="decode").options["tensor_parallel_size"] == 4
    with pytest.raises(UsageError, match=r"\[\[pool\]\] with role"):
        read_launch(path)


def test_llmds_values_have_both_roles(tmp_path: Path) -> None:
    connector = '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
    path = written(tmp_path, "values.yaml", f"""
        modelArtifacts: {{name: acme/chat-7b}}
        prefill: &part
          replicas: 4
          containers: [{{modelCommand: vllmServe, args: [--kv-transfer-config, '{connector}']}}]
        decode: {{<<: *part, replicas: 1, parallelism: {{tensor: 4}}}}
        """)
    assert read_launch(path, role="prefill").options == CHAT | {"data_parallel_size": 4}
    assert read_launch(path, role="decode").options == CHAT | {"tensor_parallel_size": 4}


@pytest.mark.parametrize(("name", "text", "said"), [
    ("a.yaml", "kind: ConfigMap\ndata: {}\n", "has kind ConfigMap: no kind of deployment file that is known"),
    ("a.yaml", "colour: red\nshape: round\n", "has keys colour, shape: no kind"),
    ("a.yaml", "kind: Pod\nspec: {containers: [{image: 'nginx:1'}]}\n", "has kind Pod: none launches an engine"),
    ("a.yaml", "image: {{ .Values.image }}:{{ tag }}\n", "cannot be read as YAML"),
    ("a.yaml", "kind: Deployment\nspec: {template: {metadata: [1], spec: {}}}\n", "has a key of another form"),
    ("a.yaml", "kind: Pod\nspec: {containers: [{command: [vllm, serve, $(MODEL)]}]}\n", "the model is $(MODEL)"),
    ("a.sh", "vllm serve a/b\nvllm serve c/d\n", "launches several engines that differ (#1: line 1, #2: line 2)"),
    ("a.sh", "if true; then\n  M=a/b\nelse\n  M=c/d\nfi\nvllm serve $M\n", "the model is $M, a variable without"),
    ("a.sh", "vllm serve $MODEL\n", "the model is $MODEL, a variable without a single value"),
])
def test_what_launches_no_engine_that_can_be_told_is_refused(name: str, text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_launch(written(tmp_path, name, text))
    assert said in str(caught.value)


def test_a_script_is_read_from_text_too() -> None:
    script = "MODEL=acme/chat-7b\nvllm serve $MODEL \\\n  -tp 2\n"
    assert read_launch(script, reads_files=False).options == CHAT | {"tensor_parallel_size": 2}
    with pytest.raises(UsageError, match=r"the text: launches several engines that differ \(#1: line 1, #2: line 2\)"):
        read_launch("vllm serve a/b\nvllm serve c/d\n")


def test_a_file_that_a_script_writes_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, "serve.sh", """
        BATCH=48
        cat > /tmp/extra.yaml <<EOF
        # vllm serve other/model
        kv_cache_config:
          free_gpu_memory_fraction: 0.8
        cuda_graph_config:
          max_batch_size: $BATCH
        EOF
        trtllm-serve acme/chat-7b --tp_size 2 --extra_llm_api_options /tmp/extra.yaml
        """)
    assert read_launch(path).options == {
        "engine": "trtllm", "model": "acme/chat-7b", "tensor_parallel_size": 2, "gpu_memory_utilization": 0.8,
        "max_cudagraph_capture_size": 48}


@pytest.mark.parametrize(("script", "expected"), [
    ("""
     MODEL="acme/chat-7b"
     TP=${TP:-2}; SEQS=32
     exec vllm serve $MODEL -tp $TP --max-num-seqs "${SEQS}" --port ${PORT:-8000}
     """, {"tensor_parallel_size": 2, "max_num_seqs": 32}),
    ("""
     export MODEL=acme/chat-7b TP=4
     ARGS=(
       --tensor-parallel-size $TP   # of a node
       --enforce-eager
     )
     ARGS+=(--max-model-len 4096)
     vllm serve "$MODEL" "${ARGS[@]}" "$@" 2>&1 | tee log
     """, {"tensor_parallel_size": 4, "cudagraph_mode": "none", "max_model_len": 4096}),
    ("""
     : "${MODEL:=acme/chat-7b}"
     EXTRA=""
     EXTRA+=" --max-num-seqs 8"
     docker run --gpus all vllm/vllm-openai:v0.11.0 --model $MODEL $EXTRA
     """, {"engine_version": "0.11.0", "max_num_seqs": 8}),
    ("""
     MODEL=acme/chat-7b
     for PORT in 8000 8001; do
       vllm serve $MODEL --port $PORT &
     done
     vllm serve $MODEL --port 8002 &
     """, {"data_parallel_size": 3}),
    ("""
     GPUS=(0 2 4 6)
     for i in "${GPUS[@]}"; do
       CUDA_VISIBLE_DEVICES=$i vllm serve acme/chat-7b --port $((8000 + i)) &
     done
     """, {"data_parallel_size": 4}),
    ("for i in {0..2}; do vllm serve acme/chat-7b --port 800$i & done\n", {"data_parallel_size": 3}),
    ("for i in $(seq 2); do\n  vllm serve acme/chat-7b &\ndone\n", {"data_parallel_size": 2}),
    ("for i in 1 2; do vllm serve acme/chat-7b; done\n", {}),
    ("bash -c 'vllm serve acme/chat-7b -tp 2'\n", {"tensor_parallel_size": 2}),
    ("""
     vllm serve acme/chat-7b --compilation-config '{
       "cudagraph_mode": "NONE"
     }' --max-num-seqs 4
     """, {"cudagraph_mode": "none", "max_num_seqs": 4}),
    ("""
     if [ -z "$TP" ]; then TP=2; fi
     cd /work && nohup vllm serve acme/chat-7b -tp $TP > log 2>&1 &
     """, {"tensor_parallel_size": 2}),
])
def test_a_scripts_variables_are_put_in(script: str, expected: dict[str, Any], tmp_path: Path) -> None:
    assert read_launch(written(tmp_path, "serve.sh", script)).options == CHAT | expected


@pytest.mark.parametrize(("script", "said"), [
    ("for N in 2 4; do\n  vllm serve m/m -tp $N\ndone\n", "-tp $N: must be a whole number"),
    ("if true; then N=2; else N=4; fi\nvllm serve m/m -tp $N\n", "-tp $N: must be a whole number"),
])
def test_a_value_that_a_script_leaves_open_is_refused_where_it_matters(script: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_launch(written(tmp_path, "serve.sh", script))
    assert said in str(caught.value)
    assert read_launch(written(tmp_path, "serve.sh", script.replace("-tp", "--port"))).options["model"] == "m/m"


def test_a_loop_of_unknown_length_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, "serve.sh", """
        for i in $(seq 1 $COUNT); do
          vllm serve m/m --port 1 &
        done
        """)
    assert "loop of unknown length" in read_launch(path).notes[0]


def test_notes_of_a_file_reach_the_user(tmp_path: Path) -> None:
    path = written(tmp_path, "p.yaml", """
        kind: Pod
        spec:
          containers:
          - {name: e, command: [vllm, serve, llama-3.1-8b, --port, "1"], resources: {limits: {nvidia.com/gpu: 2}}}
        """)
    options, notes = launch_options(path)
    assert options["model"] == "llama-3.1-8b"
    assert any("requests 2 GPUs" in note for note in notes)
    assert any("without effect: --port 1" in note for note in notes)


def test_trtllms_disaggregated_servers_are_two_pools(tmp_path: Path) -> None:
    path = written(tmp_path, "disagg.yaml", """
        hostname: localhost
        model: acme/chat-7b
        backend: pytorch
        kv_cache_config: {free_gpu_memory_fraction: 0.7}
        context_servers: {num_instances: 1, tensor_parallel_size: 1, urls: ["a:8001"]}
        generation_servers:
          num_instances: 2
          tensor_parallel_size: 4
          kv_cache_config: {free_gpu_memory_fraction: 0.8}
          urls: ["b:8002", "c:8003"]
        """)
    both = {"engine": "trtllm", "model": "acme/chat-7b"}
    assert read_launch(path, role="prefill").options == both | {
        "tensor_parallel_size": 1, "gpu_memory_utilization": 0.7}
    assert read_launch(path, role="decode").options == both | {
        "tensor_parallel_size": 4, "gpu_memory_utilization": 0.8, "data_parallel_size": 2}
    with pytest.raises(UsageError, match=r"separate engines for prefill and decode .context_servers, generation_serv"):
        read_launch(path)


def test_servers_of_trtllm_that_are_addresses_alone_are_noted(tmp_path: Path) -> None:
    path = written(tmp_path, "disagg.yaml", """
        context_servers: {num_instances: 1, urls: ["a:8001"]}
        generation_servers: {num_instances: 1, urls: ["b:8002"]}
        """)
    launch = read_launch(path, model="acme/chat-7b", role="decode")
    assert "generation_servers names addresses without options" in launch.notes[0]


def test_a_worker_beside_a_prefill_worker_decodes(tmp_path: Path) -> None:
    path = written(tmp_path, "apart.sh", """
        python3 -m dynamo.vllm --model acme/chat-7b -tp 2 &
        python3 -m dynamo.vllm --model acme/chat-7b --is-prefill-worker
        """)
    assert read_launch(path, role="decode").options["tensor_parallel_size"] == 2
    assert "tensor_parallel_size" not in read_launch(path, role="prefill").options
    with pytest.raises(UsageError, match="separate engines for prefill and decode"):
        read_launch(path)
