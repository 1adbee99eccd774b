"""Deployment files of further kinds: cloud tasks, groups of roles, charts, and compose files that name others."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from planner.deployment.pools import read_fleet
from planner.errors import UsageError
from planner.launch import read_launch
from planner.settings.scenario import Scenario

ENGINE = {"engine": "vllm", "model": "acme/chat-7b"}
IMAGE = "vllm/vllm-openai:v0.11.0"
FILES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "SkyPilot": ("task.yaml", """
        resources: {accelerators: H100:8}
        envs: {MODEL: acme/chat-7b}
        setup: uv pip install vllm==0.10.2
        run: |
          vllm serve $MODEL --tensor-parallel-size $SKYPILOT_NUM_GPUS_PER_NODE --max-model-len 4096
        service: {replicas: 2, readiness_probe: /v1/models}
        """, ENGINE | {"engine_version": "0.10.2", "tensor_parallel_size": 8, "max_model_len": 4096,
                       "data_parallel_size": 2, "gpu": "h100-sxm"}),
    "SkyPilot, two nodes": ("task.yaml", """
        num_nodes: 2
        resources: {accelerators: {H100: 8}, image_id: "docker:lmsysorg/sglang:v0.5.5"}
        run: |
          python3 -m sglang.launch_server --model acme/chat-7b --nnodes ${SKYPILOT_NUM_NODES} \\
            --tp $((SKYPILOT_NUM_GPUS_PER_NODE * SKYPILOT_NUM_NODES)) --node-rank ${SKYPILOT_NODE_RANK}
        """, {"engine": "sglang", "engine_version": "0.5.5", "model": "acme/chat-7b", "tensor_parallel_size": 16,
            "gpu": "h100-sxm"}),
    "dstack": ("service.dstack.yml", f"""
        type: service
        image: {IMAGE}
        env: [HF_TOKEN, MODEL=acme/chat-7b]
        commands:
          - vllm serve $MODEL
            --tensor-parallel-size $DSTACK_GPUS_NUM
        resources: {{gpu: "H100:2"}}
        replicas: 2
        """, ENGINE | {"engine_version": "0.11.0", "tensor_parallel_size": 2, "data_parallel_size": 2,
                       "gpu": "h100-sxm"}),
    "KubeAI": ("model.yaml", """
        apiVersion: kubeai.org/v1
        kind: Model
        metadata: {name: chat}
        spec:
          url: hf://acme/chat-7b
          engine: VLLM
          args: [--max-model-len=16384, --tensor-parallel-size=2]
          resourceProfile: nvidia-gpu-l4:2
          minReplicas: 3
        """, ENGINE | {"max_model_len": 16384, "tensor_parallel_size": 2, "data_parallel_size": 3, "gpu": "l4"}),
    "an Argo Rollout": ("rollout.yaml", f"""
        kind: Rollout
        spec:
          replicas: 3
          template: {{spec: {{containers: [{{image: "{IMAGE}", args: [--model, acme/chat-7b]}}]}}}}
        """, ENGINE | {"engine_version": "0.11.0", "data_parallel_size": 3}),
    "a script of a ConfigMap": ("deployment.yaml", f"""
        kind: ConfigMap
        metadata: {{name: scripts}}
        data:
          start.sh: |
            exec vllm serve "$MODEL" --tensor-parallel-size 2
        ---
        kind: Deployment
        spec:
          replicas: 2
          template:
            spec:
              containers:
              - image: {IMAGE}
                command: [/bin/bash, /scripts/start.sh]
                env: [{{name: MODEL, value: acme/chat-7b}}]
                resources: {{limits: {{nvidia.com/gpu: 2}}}}
        """, ENGINE | {"engine_version": "0.11.0", "tensor_parallel_size": 2, "data_parallel_size": 2}),
    "a JobSet": ("jobs.yaml", """
        kind: JobSet
        spec:
          replicatedJobs:
          - name: serve
            replicas: 2
            template: {spec: {template: {spec: {containers: [{command: [vllm, serve, acme/chat-7b]}]}}}}
        """, ENGINE | {"data_parallel_size": 2}),
    "vLLM's own chart": ("values.yaml", """
        image: {repository: vllm/vllm-openai, tag: v0.11.0, command: [vllm, serve, acme/chat-7b, -tp, "2"]}
        replicaCount: 2
        resources: {limits: {nvidia.com/gpu: 2}}
        """, ENGINE | {"engine_version": "0.11.0", "tensor_parallel_size": 2, "data_parallel_size": 2}),
    "Ray Serve's data-parallel application": ("serve.yaml", """
        applications:
        - import_path: ray.serve.llm:build_dp_openai_app
          args:
            llm_config:
              model_loading_config: {model_id: chat, model_source: acme/chat-7b}
              engine_kwargs: {tensor_parallel_size: 2}
        """, ENGINE | {"tensor_parallel_size": 2}),
    "Ray Serve's file of a file": ("serve.yaml", """
        applications:
        - args: {llm_configs: [./chat.yaml]}
          import_path: ray.serve.llm:build_openai_app
        """, ENGINE | {"tensor_parallel_size": 4}),
    "compose with files of variables": ("compose.yaml", f"""
        services:
          llm:
            image: {IMAGE}
            env_file: [seats.env]
            entrypoint: [bash, -c]
            command: ["vllm serve acme/chat-7b --max-num-seqs $$SEATS"]
        """, ENGINE | {"engine_version": "0.11.0", "max_num_seqs": 32}),
    "compose with a base service": ("compose.yaml", f"""
        services:
          base: {{image: "{IMAGE}", environment: {{VLLM_FLOAT32_MATMUL_PRECISION: high}}}}
          llm:
            extends: {{service: base}}
            command: [--model, acme/chat-7b, -tp, "2"]
        """, ENGINE | {"engine_version": "0.11.0", "tensor_parallel_size": 2, "fp32_matmul": "tf32"}),
    "compose that extends another file": ("compose.yaml", """
        services:
          llm: {extends: {file: base.yaml, service: base}, command: [--model, acme/chat-7b]}
        """, ENGINE | {"engine_version": "0.11.0"}),
    "compose that builds its image": ("compose.yaml", """
        services:
          llm: {build: ., command: [--model, acme/chat-7b, --max-num-seqs, "16"]}
        """, ENGINE | {"engine_version": "0.11.0", "max_num_seqs": 16}),
    "compose that runs a script": ("compose.yaml", f"""
        services:
          llm: {{image: "{IMAGE}", entrypoint: /start.sh, environment: {{MODEL: acme/chat-7b}}}}
        """, ENGINE | {"engine_version": "0.11.0", "max_model_len": 8192}),
    "a Makefile": ("Makefile", """
        MODEL ?= acme/chat-7b
        TP := 2
        serve: check
        \t@vllm serve $(MODEL) \\
        \t  --tensor-parallel-size $(TP)
        """, ENGINE | {"tensor_parallel_size": 2}),
    "a job of Slurm": ("job.sh", """
        #!/bin/bash
        #SBATCH --nodes=2
        #SBATCH --gpus-per-node=8  # all
        srun bash -c "vllm serve acme/chat-7b -tp $SLURM_GPUS_ON_NODE -pp ${SLURM_NNODES}"
        """, ENGINE | {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_read_as_it_deploys(kind: str, tmp_path: Path) -> None:
    name, text, expected = FILES[kind]
    beside = {"seats.env": "SEATS=32\n", "start.sh": 'exec vllm serve ${MODEL} --max-model-len 8192 "$@"\n',
              "base.yaml": f'services: {{base: {{image: "{IMAGE}"}}}}\n', "Dockerfile": f"FROM {IMAGE}\n",
              "chat.yaml": "model_loading_config: {model_id: acme/chat-7b}\nengine_kwargs: {tensor_parallel_size: 4}\n",
              name: dedent(text)}
    for other, content in beside.items():
        (tmp_path / other).write_text(content)
    launch = read_launch(str(tmp_path / name))
    assert launch.options == expected
    assert [note for note in launch.notes if "names its GPU" not in note] == []


@pytest.mark.parametrize("kind", ["RoleBasedGroup", "StormService"])
def test_roles_of_a_group_are_told_by_their_names(kind: str, tmp_path: Path) -> None:
    roles = "".join(f"""
            - name: {role}
              replicas: {replicas}
              template: {{spec: {{containers: [{{command: [vllm, serve, acme/chat-7b, -tp, "{replicas}"]}}]}}}}"""
                    for role, replicas in (("prefill", 1), ("decode", 2)))
    inner = "" if kind == "RoleBasedGroup" else "template: {spec: &roles"
    text = f"kind: {kind}\nspec:\n  replicas: 1\n  roles:{roles}\n"
    if inner:
        text = f"kind: {kind}\nspec:\n  replicas: 2\n  template:\n   spec:\n    roles:{roles}\n"
    (tmp_path / "group.yaml").write_text(text)
    with pytest.raises(UsageError, match="separate engines for prefill and decode"):
        read_launch(str(tmp_path / "group.yaml"))
    decode = read_launch(str(tmp_path / "group.yaml"), role="decode").options
    assert (decode["tensor_parallel_size"], decode["data_parallel_size"]) == (2, 4 if inner else 2)


def test_a_missing_file_of_variables_is_noted(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        f"services: {{llm: {{image: '{IMAGE}', env_file: llm.env, command: --model acme/chat-7b}}}}\n")
    notes = read_launch(str(tmp_path / "compose.yaml")).notes
    assert notes == ("service llm takes variables from llm.env, which is not there; variables that change the engine "
                     "are then missing",)


@pytest.mark.parametrize(("name", "text", "said"), [
    ("run.sh", "if has gpus; then TP=$(nvidia-smi -L | wc -l); else TP=1; fi\nvllm serve m/m -tp $TP\n",
     "-tp $TP: must be a whole number"),
    ("pod.yaml", f"kind: Pod\nspec: {{containers: [{{image: '{IMAGE}', command: [/start.sh]}}]}}\n",
     "none launches an engine that is known"),
    ("compose.yaml", f"services: {{llm: {{image: '{IMAGE}', entrypoint: /start.sh}}}}\n", "none launches an engine"),
    ("run.bat", "set MODEL=m/m\nvllm serve %MODEL%\n", "the model is %MODEL%, a variable without"),
    ("job.hcl", f'config {{\n  image = "{IMAGE}"\n  args = ["--model", "m/m"]\n}}\n', "launches no engine"),
])
def test_a_value_or_command_that_is_elsewhere_is_refused(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as refused:
        read_launch(str(tmp_path / name))
    assert said in str(refused.value)


STACK = """
    routerSpec: {%s}
    servingEngineSpec:
      modelSpec: [{name: chat, repository: vllm/vllm-openai, tag: v0.11.0, modelURL: acme/chat-7b, replicaCount: %d%s}]
    """


@pytest.mark.parametrize(("router", "expected"), [
    ("", "round-robin"), ("routingLogic: roundrobin", "round-robin"), ("routingLogic: prefixaware", "prefix-aware"),
    ("routingLogic: session, sessionKey: x-user-id", "session-affinity"), ("enableRouter: false", None)])
def test_the_production_stacks_router_deals_the_requests(router: str, expected: str | None, tmp_path: Path) -> None:
    """`RoutingLogic` in src/vllm_router/routers/routing_logic.py, and the default of helm/values.yaml."""
    path = tmp_path / "values.yaml"
    path.write_text(dedent(STACK % (router, 4, "")))
    launch = read_launch(str(path))
    assert (launch.options.get("router"), launch.notes) == (expected, ())
    path.write_text(dedent(STACK % (router, 1, "")))
    assert "router" not in read_launch(str(path)).options


def test_keys_of_the_production_stack_that_are_not_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(dedent(STACK % ("routingLogic: kvaware", 2, ", raySpec: {}, vllmConfig: {v1: 1, blockSize: 32}")))
    assert read_launch(str(path)).notes == (
        "modelSpec chat has routingLogic kvaware, which is not modelled: requests are dealt at random; choose a router "
        "near to it with --router, or give prefill and decode as the pools of a fleet's file",
        "modelSpec chat has modelSpec.raySpec, vllmConfig.v1, vllmConfig.blockSize, which the planner does not read; "
        "give settings of the engine in extraArgs or env")


def test_the_router_of_a_pools_launch_gives_way_to_the_fleets(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(dedent(STACK % ("routingLogic: session", 2, "")))
    (tmp_path / "fleet.toml").write_text('[[pool]]\nfrom_command = "values.yaml"\nmodel = "qwen3-8b"\ngpu = "l4"\n')
    pool, = read_fleet(str(tmp_path / "fleet.toml"), Scenario(model="qwen3-8b"))
    assert (pool.num_replicas, pool.scenario.router) == (2, None)
    assert "router = session-affinity, which is left out" in " ".join(pool.notes)
