"""Sized deployments as files: Kubernetes, compose and Dynamo, which read back as the deployment that was written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from helpers import validate_compose
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from planner import Scenario
from planner.commands.cli import app
from planner.engines import ENGINES
from planner.engines.package import Package
from planner.errors import UsageError
from planner.launch import launch_command, read_launch
from planner.launch.write_manifest import WRITERS, EngineGroup, manifest, role_command
from planner.planning.write_size import SKUS
from planner.traces import read_trace

OF_VLLM = ("kserve", "helm", "llm-d")  # they write the command of vLLM
NUMBER, COUNT = {"type": "number"}, {"type": "integer"}


def of(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


REQUEST = of(["apiVersion", "kind", "metadata", "spec"], apiVersion={"const": "nvidia.com/v1beta1"}, kind={
    "const": "DynamoGraphDeploymentRequest"}, metadata={"type": "object"}, spec=of(
        ["model"], model={"type": "string", "minLength": 1}, backend={"enum": ["auto", "sglang", "trtllm", "vllm"]},
        autoApply={"type": "boolean"}, hardware=of([], gpuSku={"enum": list(SKUS)}, totalGpus=COUNT),
        workload=of([], isl=COUNT, osl=COUNT, concurrency=NUMBER, requestRate=NUMBER),
        sla=of([], ttft=NUMBER, itl=NUMBER, e2eLatency=NUMBER),
        overrides=of([], dgd={"type": "object", "required": ["apiVersion", "kind"]})))
TEXT, WORDS, ON = {"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "boolean"}
PART = of(["create"], create=ON, replicas=COUNT, containers={"type": "array", "items": {"type": "object"}})
WORKLOAD = {"replicas": {"type": "integer", "minimum": 0}, "template": of(["containers"], containers={"type": "array"})}
PUBLISHED = {  # the keys that are written, with their types
    # API serving.kserve.io/v1alpha1 of KServe: LLMInferenceServiceSpec, WorkloadSpec, RouterSpec (2026-11)
    "kserve": of(["apiVersion", "kind", "metadata", "spec"], apiVersion={"const": "serving.kserve.io/v1alpha1"}, kind={
        "const": "LLMInferenceService"}, metadata={"type": "object"}, spec=of(
            ["model"], model=of(["uri"], uri=TEXT, name=TEXT), **WORKLOAD, prefill=of([], **WORKLOAD),
            router=of([], route=of([]), gateway=of([]), scheduler=of([])))),
    # helm/values.schema.json of vllm-project/production-stack (2026-11)
    "helm": of([], servingEngineSpec=of([], modelSpec={"type": "array", "items": of(
        ["name", "repository", "tag", "modelURL", "replicaCount", "requestCPU", "requestMemory", "requestGPU"],
        name=TEXT, repository=TEXT, tag=TEXT, modelURL=TEXT, replicaCount=COUNT, requestCPU=COUNT, requestMemory=TEXT,
        requestGPU=COUNT, requestGPUType=TEXT, vllmConfig=of([], enablePrefixCaching=ON, extraArgs=WORDS))})),
    # charts/llm-d-modelservice/values.schema.json of llm-d-incubation/llm-d-modelservice (2026-11)
    "llm-d": of([], modelArtifacts=of([], name=TEXT, uri=TEXT), decode=PART, prefill=PART)}
HELM = {"enable_prefix_caching": True, "router": "round-robin"}  # the chart always says the first, and has the second
SCENARIOS: list[dict[str, Any]] = [
    {"engine": "vllm", "tensor_parallel_size": 2, "max_num_seqs": 64, "speculative_method": "ngram",
     "num_speculative_tokens": 3},
    {"engine": "vllm", "pipeline_parallel_size": 2, "kv_cache_dtype": "fp8", "enable_prefix_caching": False},
    {"engine": "sglang", "tensor_parallel_size": 4, "kv_offloading_ratio": 2.0},
    {"engine": "trtllm", "tensor_parallel_size": 2, "enable_chunked_prefill": True, "kv_cache_dtype": "fp8"},
]
VALUES: dict[str, list[Any]] = {  # of random fleets
    "tensor_parallel_size": [1, 2, 4, 8], "pipeline_parallel_size": [1, 2], "max_num_seqs": [1, 17, 256],
    "max_num_batched_tokens": [2048, 16384], "kv_cache_dtype": ["fp8", "auto"], "enable_prefix_caching": [True, False],
    "block_size": [16, 32], "gpu_memory_utilization": [0.8, 0.92], "max_model_len": [4096, 32768],
    "enable_chunked_prefill": [True, False]}


def engine_of(options: dict[str, Any], **changes: Any) -> EngineGroup:
    command, lacking = launch_command(Scenario(model="m/m", **options))
    assert lacking == ()
    return EngineGroup(**{"command": command, "replicas": 3, **changes})


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("options", SCENARIOS)
def test_what_is_written_reads_back(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    engine = engine_of(options)
    path = tmp_path / "written.yaml"
    refused = {"trtllm": ("dynamo", "dgdr", *OF_VLLM), "sglang": OF_VLLM}
    if kind in refused.get(options["engine"], ()):
        with pytest.raises(UsageError, match=r"give k8s or compose|launches vLLM, and the engine is .*; write k8s"):
            manifest(kind, [engine])
        return
    path.write_text(manifest(kind, [engine]))
    found = read_launch(str(path))
    default = HELM if kind == "helm" else {}
    assert found.options == default | dict(read_launch(engine.command).options) | {"data_parallel_size": 3}
    assert found.notes == ()
    assert found.unknown == ()


@given(options=st.fixed_dictionaries({"engine": st.sampled_from(["vllm", "vllm", "sglang", "trtllm"])}, optional={
    name: st.sampled_from(values) for name, values in VALUES.items()}), replicas=st.integers(1, 9))
def test_random_fleets_read_back(tmp_path_factory: pytest.TempPathFactory, options: dict[str, Any],
                                 replicas: int) -> None:
    """Each kind that can write the engine gives the options of its command and the number of replicas."""
    command, lacking = launch_command(Scenario(model="m/m", **options))
    assume(not lacking)
    expected = dict(read_launch(command).options) | ({"data_parallel_size": replicas} if replicas > 1 else {})
    path = tmp_path_factory.mktemp("written") / "written.yaml"
    for kind in WRITERS:
        try:
            path.write_text(manifest(kind, [EngineGroup(command=command, replicas=replicas)]))
        except UsageError:
            assert kind not in ("k8s", "compose")
            assert options["engine"] != "vllm"
            continue
        found = read_launch(str(path))
        default = HELM if kind == "helm" else {}
        assert default | dict(found.options) == default | expected, kind
        assert (found.notes, found.unknown) == ((), ())


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_prefill_and_decode_read_back_by_role(kind: str, name: str, tmp_path: Path) -> None:
    if kind in OF_VLLM and name != "vllm":
        pytest.skip("the kind launches vLLM")
    if kind == "helm":
        with pytest.raises(UsageError, match="--write helm: writes replicas of one kind"):
            manifest(kind, [engine_of({"engine": name}, role=role) for role in ("prefill", "decode")])
        return
    path = tmp_path / "written.yaml"
    path.write_text(manifest(kind, [
        engine_of({"engine": name, "tensor_parallel_size": 2}, role="prefill", replicas=1),
        engine_of({"engine": name, "tensor_parallel_size": 4}, role="decode", replicas=2)]))
    for role, size, replicas in (("prefill", 2, None), ("decode", 4, 2)):
        options = read_launch(str(path), role=role).options
        assert options["tensor_parallel_size"] == size
        assert options.get("data_parallel_size") == replicas
    with pytest.raises(UsageError, match="separate engines for prefill and decode"):
        read_launch(str(path))


@pytest.mark.parametrize("roles", [("both",), ("prefill", "decode")])
@pytest.mark.parametrize("kind", PUBLISHED)
def test_kinds_of_vllm_keep_their_published_schemas(kind: str, roles: tuple[str, ...]) -> None:
    """Kubernetes checks the containers: the published schemas leave them to it."""
    if kind == "helm" and len(roles) > 1:
        pytest.skip("the chart has replicas of one kind")
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for options in SCENARIOS[:2]:
        written = yaml.safe_load(manifest(kind, [engine_of(options, role=role) for role in roles]))
        jsonschema.validate(written, PUBLISHED[kind])
        for container in containers_of(written):
            container.pop("modelCommand", None)  # of llm-d's chart
            kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "llm"},
                                          "spec": {"containers": [container]}}, "1.33", strict=True)


def containers_of(value: Any) -> list[dict[str, Any]]:
    """Return the containers in a document, wherever they are."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = value.get("containers", []) if isinstance(value, dict) else []
    return [*own, *(container for part in parts for container in containers_of(part) if container not in own)]


@pytest.mark.parametrize("options", SCENARIOS)
def test_services_of_compose_keep_the_compose_specification(options: dict[str, Any]) -> None:
    validate_compose(yaml.safe_load(manifest("compose", [engine_of(options)])))


def test_the_image_has_the_release() -> None:
    engine = engine_of({"engine": "vllm"}, version="0.20.1", gpu_resource="amd.com/gpu")
    document = yaml.safe_load(manifest("k8s", [engine]))
    container = document["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "vllm/vllm-openai:v0.20.1"
    assert container["resources"] == {"limits": {"amd.com/gpu": 1}}


def test_an_engine_without_image_or_roles_is_refused_and_its_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "vllm", replace(ENGINES["vllm"], package=Package()))
    with pytest.raises(UsageError, match="no container image of vLLM is known"):
        manifest("k8s", [engine_of({"engine": "vllm"})])
    with pytest.raises(UsageError, match="no flags of vLLM for decode replicas are known"):
        _ = engine_of({"engine": "vllm"}, role="decode").words
    assert role_command("vllm serve m/m", "decode") == "vllm serve m/m  # lacks the flags of decode replicas"


def test_a_kind_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="must be k8s, compose, dynamo"):
        manifest("nomad", [])


@pytest.mark.parametrize("kind", OF_VLLM)
def test_a_model_that_is_no_name_of_the_hub_is_refused(kind: str) -> None:
    with pytest.raises(UsageError, match="loads models of the Hugging Face Hub, and the model is /models/m"):
        manifest(kind, [EngineGroup(command="vllm serve /models/m", replicas=1)])


def test_size_writes_its_fleet(tmp_path: Path) -> None:
    path = tmp_path / "llm.yaml"
    words = ["size", "chat", "--limit", "300", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--tensor-parallel-size",
             "1", "--slo", "ttft:1000", "--no-compare-assumptions"]
    done = CliRunner().invoke(app, [*words, "--write", f"compose={path}"])
    assert done.exit_code == 0, done.output
    found = read_launch(str(path)).options
    assert found["model"].startswith("meta-llama/Llama-3.1-8B")
    replicas = yaml.safe_load(path.read_text())["services"]["llm"]["deploy"]["replicas"]
    assert replicas == found.get("data_parallel_size", 1)
    refused = CliRunner().invoke(app, [*words, "--write", "nomad"])
    assert refused.exit_code != 0
    assert "must be k8s, compose, dynamo" in str(refused.exception)


def test_a_request_to_dynamo_has_the_hardware_the_traffic_and_the_targets(tmp_path: Path) -> None:
    path = tmp_path / "request.yaml"
    done = CliRunner().invoke(app, [
        "size", "chat", "--limit", "300", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--tensor-parallel-size", "1",
        "--slo", "ttft:1000 p99_ttft:900 tpot:60", "--no-compare-assumptions", "--write", f"dgdr={path}"])
    assert done.exit_code == 0, done.output
    request = yaml.safe_load(path.read_text())
    assert (request["apiVersion"], request["kind"]) == ("nvidia.com/v1beta1", "DynamoGraphDeploymentRequest")
    found, spec = read_launch(str(path)).options, request["spec"]
    assert spec["model"] == found["model"]
    assert spec["backend"] == "vllm"
    assert spec["sla"] == {"ttft": 900.0, "itl": 60.0}
    assert spec["hardware"] == {"gpuSku": "h100_sxm", "totalGpus": found.get("data_parallel_size", 1)}
    trace = read_trace("chat").requests.head(300)
    assert spec["workload"]["isl"] == pytest.approx(trace["input_tokens"].mean(), abs=0.51)
    assert spec["workload"]["osl"] == pytest.approx(trace["output_tokens"].mean(), abs=0.51)
    assert spec["workload"]["requestRate"] > 0


def test_a_request_to_dynamo_keeps_the_published_definition(tmp_path: Path) -> None:
    """Types and names of api/v1beta1 of Dynamo's operator; a graph of its own fits the definition of overrides."""
    request = yaml.safe_load(manifest("dgdr", [engine_of({"engine": "vllm"})], {
        "hardware": {"gpuSku": "h100_sxm", "totalGpus": 3}, "workload": {"isl": 1, "osl": 2, "requestRate": 0.5},
        "sla": {"ttft": 1.0}}))
    jsonschema.validate(request, REQUEST)
    assert request["spec"]["overrides"]["dgd"]["kind"] == "DynamoGraphDeployment"
    assert list(request["spec"]["overrides"]["dgd"]["spec"]["services"]) == ["worker"]


def test_a_request_without_workers_launches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "request.yaml"
    path.write_text("apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeploymentRequest\nspec: {model: m/m}\n")
    with pytest.raises(UsageError, match="kind DynamoGraphDeploymentRequest: none launches an engine that is known"):
        read_launch(str(path))


@pytest.mark.parametrize(("model", "quantization", "engine", "version", "lacks"), [
    ("llama-3.1-8b", "awq", "vllm", None, "vLLM does not convert to awq"),
    ("llama-3.1-8b", "fp8", "vllm", None, ""), ("llama-3.1-8b", "bf16", "vllm", None, ""),
    ("llama-3.1-8b", "mxfp8", "vllm", "0.21.0", "vLLM does not convert to mxfp8"),
    ("llama-3.1-8b", "mxfp8", "vllm", "0.26.0", ""),
    ("llama-3.1-8b", "fp8", "trtllm", None, "TensorRT-LLM does not convert to fp8"),
    ("llama-3.1-8b", "bnb-4bit", "sglang", None, ""),
    ("deepseek-v3", "nvfp4", "vllm", None, "in place of deepseek-ai/DeepSeek-V3, which"),
    ("deepseek-v3", "fp8_block", "vllm", None, ""), ("gpt-oss-20b", "mxfp4", "trtllm", None, ""),
    ("Qwen/Qwen3-32B-AWQ", "awq", "vllm", None, "")])
def test_a_command_lacks_a_checkpoint_that_its_engine_does_not_make(model: str, quantization: str, engine: str,
                                                                    version: str | None, lacks: str) -> None:
    command, lacking = launch_command(Scenario(model=model, quantization=quantization, engine=engine,
                                               engine_version=version))
    assert [lacks in text for text in lacking] == [True] * bool(lacks)
    if version is None:  # the command does not say it
        assert any(lacks in note for note in read_launch(command).notes) == (bool(lacks) and "quantization" in command)


def test_a_written_file_says_the_checkpoint_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "llm.yaml"
    done = CliRunner().invoke(app, [
        "size", "chat", "--limit", "200", "--request-rate", "2", "--model", "llama-3.1-8b", "--gpu", "l40s",
        "--tensor-parallel-size", "1", "--quantization", "awq", "--slo", "ttft:9000", "--write", f"k8s={path}"])
    assert done.exit_code == 0, done.output
    assert path.read_text().startswith(
        "# The command lacks a checkpoint with awq weights in place of meta-llama/Llama-3.1-8B, which vLLM")
    assert read_launch(str(path)).options["quantization"] == "awq"
