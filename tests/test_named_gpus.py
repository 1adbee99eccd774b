"""GPUs that deployment files name: labels of nodes, types of instances, and what a cloud is asked for."""

from pathlib import Path
from textwrap import dedent

import pytest

from planner.deployment.pools import read_fleet
from planner.errors import UsageError
from planner.launch import launch_options, read_launch
from planner.launch.named_gpus import named_gpu
from planner.settings.scenario import Scenario

TASK = "resources: {}\nrun: vllm serve m/m -tp $SKYPILOT_NUM_GPUS_PER_NODE\nservice: {{replicas: 2}}\n"
POD = ("kind: Pod\nspec:\n  {}\n"
       "  containers: [{{name: engine, command: [vllm, serve, m/m], resources: {{limits: {}}}}}]\n")
ONE = "{nvidia.com/gpu: 1}"
AFFINITY = ("affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: "
            "[{{matchExpressions: [{{key: nvidia.com/gpu.product, operator: In, values: {}}}]}}]}}}}}}")


def read(path: Path, text: str, gpu: str | None = None) -> tuple[str | None, int, list[str]]:
    """Return the GPU, the GPUs of a replica, and the notes of a file."""
    path.write_text(dedent(text))
    options, notes = launch_options(str(path), beside={} if gpu is None else {"gpu": gpu})
    return options.get("gpu"), options.get("tensor_parallel_size", 1), notes


@pytest.mark.parametrize(("resources", "gpu", "count"), [
    ("{accelerators: {L40S:4}}", "l40s", 4), ("{accelerators: 'L40S:4'}", "l40s", 4),
    ("{accelerators: {L40S: 4}}", "l40s", 4), ("{accelerators: [L40S:4]}", "l40s", 4),
    ("{accelerators: {H100}}", "h100-sxm", 1), ("{accelerators: A100:2}", "a100-sxm-40gb", 2),
    ("{accelerators: A100-80GB:2}", "a100-sxm", 2), ("{accelerators: H100-MEGA-80GB:8}", "h100-sxm", 8),
    ("{any_of: [{accelerators: H200:8, cloud: aws}, {accelerators: H200:8, cloud: gcp}]}", "h200-sxm", 8),
    ("{accelerators: L4:2, ordered: [{region: us-east-1}, {region: us-west-2}]}", "l4", 2),
    ("{instance_type: p5.48xlarge}", "h100-sxm", 8), ("{instance_type: a2-ultragpu-4g}", "a100-sxm", 4),
    ("{any_of: [{instance_type: g6e.12xlarge}, {accelerators: L40S:4}]}", "l40s", 4),
    ("{gpu: 'nvidia:H100:80GB:2'}", "h100-sxm", 2), ("{gpu: {name: A100, memory: 40GB, count: 4}}", "a100-sxm-40gb", 4),
    ("{gpu: 'H100:80GB..:4..8'}", "h100-sxm", 4), ("{gpu: '24GB:2'}", None, 2), ("{gpu: 2}", None, 2),
])
def test_the_gpus_of_a_task_are_read_with_their_number(resources: str, gpu: str | None, count: int, tmp_path: Path
                                                       ) -> None:
    assert read(tmp_path / "task.yaml", TASK.format(resources))[:2] == (gpu, count)


@pytest.mark.parametrize("resources", [
    "{accelerators: {L40S:2, H100:1}}", "{accelerators: [L40S:2, H100]}", "{accelerators: {L40S: 2, H100: 1}}",
    "{any_of: [{accelerators: L40S:2}, {accelerators: H100:1}]}",
    "{ordered: [{accelerators: L40S:2}, {accelerators: {H100: 1}}]}",
])
def test_of_several_gpus_the_one_that_is_given_counts(resources: str, tmp_path: Path) -> None:
    text, path = TASK.format(resources), tmp_path / "task.yaml"
    assert read(path, text, "l40s") == (None, 2, [])
    assert read(path, text, "NVIDIA H100 80GB HBM3") == (None, 1, [])
    name, tensor_parallel_size, (note,) = read(path, text, "h100-pcie")
    assert (name, tensor_parallel_size) == (None, 1)
    assert note.startswith("--from-command: line 1 of the task names its GPU (H100")
    with pytest.raises(UsageError, match=r"task offers several kinds of GPUs: L40S:2 \(l40s\), H100.*; choose one"):
        read(path, text)
    with pytest.raises(UsageError, match=r"several kinds of GPUs: L40S:2 \(l40s\), H100.* \(h100-sxm\); choose"):
        read(path, text, "h200-sxm")


@pytest.mark.parametrize(("label", "gpu"), [
    ("nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3", "h100-sxm"),
    ("nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB", "a100-sxm-40gb"),
    ("nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "a100-sxm:3g.40gb"),
    ("nvidia.com/gpu.product: NVIDIA-L40S-SHARED", "l40s"), ("nvidia.com/gpu.product: Tesla-T4", "t4"),
    ("nvidia.com/gpu.product: NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "rtx-pro-6000"),
    ("amd.com/gpu.product-name: AMD_Instinct_MI300X_OAM", "mi300x"), ("gpu.nvidia.com/model: H200", "h200-sxm"),
    ("gpu.nvidia.com/class: H100_NVLINK_80GB", "h100-sxm"),
    ("cloud.google.com/gke-accelerator: nvidia-tesla-a100", "a100-sxm-40gb"),
    ("cloud.google.com/gke-accelerator: nvidia-h100-mega-80gb", "h100-sxm"),
    ("cloud.google.com/gke-accelerator: nvidia-l4", "l4"),
    ("k8s.amazonaws.com/accelerator: nvidia-tesla-t4", "t4"), ("karpenter.k8s.aws/instance-gpu-name: l40s", "l40s"),
    ("karpenter.k8s.aws/instance-family: p4d", "a100-sxm-40gb"), ("eks.amazonaws.com/instance-gpu-name: a10g", "a10g"),
    ("node.kubernetes.io/instance-type: p5.48xlarge", "h100-sxm"),
    ("node.kubernetes.io/instance-type: Standard_NC24ads_A100_v4", "a100-pcie"),
    ("beta.kubernetes.io/instance-type: BM.GPU.H200-NC.8", "h200-sxm"),
    ("karpenter.azure.com/sku-gpu-name: A100", "a100-sxm"), ("gpu-type: h100", "h100-sxm"),
    ("accelerator: nvidia", None), ("nvidia.com/gpu.present: 'true'", None), ("nvidia.com/gpu.count: '8'", None),
    ("kubernetes.io/os: linux", None),
])
def test_a_nodes_label_names_the_gpu(label: str, gpu: str | None, tmp_path: Path) -> None:
    found, _, notes = read(tmp_path / "pod.yaml", POD.format(f"nodeSelector: {{{label}}}", ONE))
    assert found == gpu
    assert gpu is None or any(f"{gpu} is predicted, and --gpu replaces it" in note for note in notes)


def test_an_affinity_names_the_gpu(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    assert read(path, POD.format(AFFINITY.format("[NVIDIA-H200]"), ONE))[0] == "h200-sxm"
    both = POD.format(AFFINITY.format("[NVIDIA-H200, NVIDIA-H100-80GB-HBM3]"), ONE)
    with pytest.raises(UsageError, match=r"GPUs: nvidia\.com/gpu\.product: NVIDIA-H200 \(h200-sxm\), nvid"):
        read(path, both)
    assert read(path, both, "h100-sxm") == (None, 1, [])
    one = POD.format(f"nodeSelector: {{node.kubernetes.io/instance-type: p5.48xlarge}}\n  "
                     f"{AFFINITY.format('[NVIDIA-H200, NVIDIA-H100-80GB-HBM3]')}", ONE)
    assert read(path, one)[0] == "h100-sxm"


def test_a_preferred_affinity_names_the_gpu(tmp_path: Path) -> None:
    text = POD.format("affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, "
                      "preference: {matchExpressions: [{key: cloud.google.com/gke-accelerator, operator: In, values: "
                      "[nvidia-l4]}]}}]}}", ONE)
    assert read(tmp_path / "pod.yaml", text)[0] == "l4"


def test_one_of_several_options_chooses_the_gpu(tmp_path: Path) -> None:
    text = TASK.format("{accelerators: {L40S:2, H100:1}}")
    assert read(tmp_path / "task.yaml", text, "h200-sxm,h100-sxm") == (None, 1, [])
    with pytest.raises(UsageError, match="choose one with --gpu, or give the command with its number of GPUs"):
        read(tmp_path / "task.yaml", text, "l40s,h100-sxm")


def test_the_gpu_of_a_fleet_outranks_the_files_of_its_pools(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD.format("nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}", ONE))
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('[[pool]]\nmodel = "llama-3.1-8b"\nfrom_command = "pod.yaml"\n')
    for gpu, expected, said in ((None, "l40s", "l40s is predicted"), ("h100-sxm", "h100-sxm", "h100-sxm replaces")):
        (pool,) = read_fleet(fleet, Scenario(fleet=str(fleet), gpu=gpu))
        assert pool.scenario.gpu == expected
        assert any(said in note for note in pool.notes)


def test_an_option_outranks_the_file_with_a_note(tmp_path: Path) -> None:
    text = POD.format("nodeSelector: {nvidia.com/gpu.product: NVIDIA-B400}", ONE)
    assert read(tmp_path / "pod.yaml", text, "h100-sxm") == (None, 1, [
        "--from-command: container engine of Pod names its GPU (nvidia.com/gpu.product: NVIDIA-B400), and --gpu "
        "h100-sxm replaces it"])


@pytest.mark.parametrize(("pod", "limits", "said"), [
    ("nodeSelector: {nvidia.com/gpu.product: NVIDIA-B400}", ONE,
     "engine of Pod names its accelerator (nvidia.com/gpu.product: NVIDIA-B400); give --gpu for a prediction on a GPU "
     "of the catalog: unknown GPU 'NVIDIA-B400'; planner db list lists all"),
    ("nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice}", "{google.com/tpu: 4}",
     "names its accelerator (cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice); give --gpu"),
    ("restartPolicy: Never", "{aws.amazon.com/neuron: 4}",
     "the catalog: an AWS Trainium or Inferentia"),
    ("nodeSelector: {node.kubernetes.io/instance-type: trn2.48xlarge}", ONE, "catalog: an AWS Trainium"),
    ("nodeSelector: {node.kubernetes.io/instance-type: m7i.large}", ONE, "an instance type whose GPU is not known"),
    ("restartPolicy: Never", "{nvidia.com/mig-3g.40gb: 1}",
     "names its accelerator (MIG 3g.40gb); give --gpu"),
    ("nodeSelector: {karpenter.k8s.aws/instance-gpu-name: a100}", ONE, "offers several kinds of GPUs"),
])
def test_an_accelerator_without_a_profile_is_named(pod: str, limits: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path / "pod.yaml", POD.format(pod, limits))
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["tpu-v6e-8", "v5litepod-8", "Trainium2:16", "Inferentia", "Ascend910"])
def test_accelerators_that_are_no_gpus_are_told_from_gpus(name: str) -> None:
    assert named_gpu(name).problem.startswith(("a ", "an "))
    assert not named_gpu("v100").problem


def test_a_mig_slice_is_that_of_the_gpu(tmp_path: Path) -> None:
    text = POD.format("nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}", "{nvidia.com/mig-3g.40gb: 1}")
    assert read(tmp_path / "pod.yaml", text)[0] == "h100-sxm:3g.40gb"


@pytest.mark.parametrize(("argument", "gpu"), [
    ('gpu="H200"', "h200-sxm"), ('gpu="H100!:2"', "h100-sxm"), ("gpu=['H200', 'H200:2']", "h200-sxm"),
    ("gpu=modal.gpu.H100()", None), ("gpu=OLD", "h100-sxm"),
    ('gpu=f"H100:{pick()}"', "h100-sxm"), ('gpu="A100"', "a100-sxm-40gb"), ('gpu="any"', None), ("gpu=pick()", None),
    ("resources={'gpu': 1, 'gpu_type': 'nvidia-l4'}", "l4"),
])
def test_a_decorator_names_the_gpu(argument: str, gpu: str | None) -> None:
    text = (f"import modal, subprocess\napp = modal.App('a')\nOLD = 'H100:2'\n"
            f"@app.function({argument})\ndef serve():\n"
            f"    subprocess.Popen(['vllm', 'serve', 'm/m'])\n")
    assert read_launch(text).options.get("gpu") == gpu


def test_engines_on_different_gpus_are_chosen_by_the_gpu(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    text = "---\n".join(POD.format(f"nodeSelector: {{nvidia.com/gpu.product: {name}}}", ONE)
                        for name in ("NVIDIA-L40S", "NVIDIA-H200", "NVIDIA-H200"))
    with pytest.raises(UsageError, match=r"launches several engines that differ \(.*\); choose one with --gpu"):
        read(path, text)
    path.write_text(text)
    assert launch_options(str(path), beside={"gpu": "h200-sxm"})[0]["data_parallel_size"] == 2


L4 = "{nvidia.com/gpu.product: NVIDIA-L4}"


@pytest.mark.parametrize("text", [
    "kind: Model\nspec: {url: 'hf://m/m', engine: VLLM, resourceProfile: 'nvidia-gpu-l4:2', args: [-tp=2]}\n",
    "model_loading_config: {model_id: m/m}\naccelerator_type: L4\nengine_kwargs: {tensor_parallel_size: 2}\n",
    "servingEngineSpec: {modelSpec: [{modelURL: m/m, vllmConfig: {tensorParallelSize: 2}, nodeSelectorTerms: "
    "[{matchExpressions: [{key: nvidia.com/gpu.product, values: [NVIDIA-L4]}]}]}]}\n",
    "modelArtifacts: {name: m/m}\ndecode: {acceleratorTypes: {labelKey: nvidia.com/gpu.product, labelValues: "
    "[NVIDIA-L4]}, containers: [{modelCommand: vllmServe, args: [-tp=2]}]}\n",
    f"kind: InferenceService\nspec: {{predictor: {{nodeSelector: {L4}, model: {{storageUri: 'hf://m/m', "
    "args: [-tp=2]}}}\n",
    f"kind: LLMInferenceService\nspec: {{model: {{uri: 'hf://m/m'}}, parallelism: {{tensor: 2}}, template: "
    f"{{nodeSelector: {L4}, containers: [{{name: main}}]}}}}\n",
    f"kind: DynamoGraphDeployment\nspec: {{services: {{Worker: {{extraPodSpec: {{nodeSelector: {L4}, mainContainer: "
    "{command: [python3, -m, dynamo.vllm], args: [--model, m/m, -tp=2]}}}}}\n",
])
def test_kinds_with_other_keys_name_the_gpu(text: str, tmp_path: Path) -> None:
    assert read(tmp_path / "file.yaml", text)[:2] == ("l4", 2)


@pytest.mark.parametrize("pool", [
    "kind: NodePool\nspec: {template: {spec: {requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, "
    "values: [p5]}]}}}\n",
    "kind: ResourceFlavor\nspec: {nodeLabels: {cloud.google.com/gke-accelerator: nvidia-h100-80gb}}\n",
    "kind: ComputeClass\nspec: {priorities: [{gpu: {type: nvidia-h100-80gb, count: 1}}, {machineFamily: a3}]}\n",
])
def test_the_nodes_of_the_file_name_the_gpu(pool: str, tmp_path: Path) -> None:
    assert read(tmp_path / "file.yaml", f"{pool}---\n{POD.format('restartPolicy: Never', ONE)}")[0] == "h100-sxm"
