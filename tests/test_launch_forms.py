"""Ways to write a launch: interpreters, entry points, commands in variables, lines, folders, variables of a file."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from typer.testing import CliRunner

from planner.commands.cli import app
from planner.errors import UsageError
from planner.launch import launch_options, read_launch
from planner.launch.variables import variables_in

SEATS = {"engine": "vllm", "model": "m/m", "max_num_seqs": 64}
IMAGE = "vllm/vllm-openai:v0.11.0"


@pytest.mark.parametrize(("command", "expected"), [
    ("python -u -m vllm.entrypoints.openai.api_server --model m/m --max-num-seqs 64", SEATS),
    ("python3.12 -W ignore -um vllm.entrypoints.openai.api_server --model m/m --max-num-seqs 64", SEATS),
    ("python3 -m vllm.entrypoints.cli.main serve m/m --max-num-seqs 64", SEATS),
    ("python -O -m sglang.launch_server --model m/m", {"engine": "sglang", "model": "m/m"}),
    (f"docker run --rm -it -v /a:/b --entrypoint vllm {IMAGE} serve m/m --max-num-seqs 64",
     SEATS | {"engine_version": "0.11.0"}),
    ("docker run --entrypoint=/usr/bin/vllm -p 8000:8000 acme/own:tag serve m/m --max-num-seqs 64", SEATS),
    (f"docker run --entrypoint python3 {IMAGE} -m vllm.entrypoints.openai.api_server --model m/m --max-num-seqs 64",
     SEATS | {"engine_version": "0.11.0"}),
    (f"podman run --entrypoint /bin/bash {IMAGE} -c 'vllm serve m/m --max-num-seqs 64'",
     SEATS | {"engine_version": "0.11.0"}),
    ("docker run --entrypoint trtllm-serve --gpus all acme/own m/m", {"engine": "trtllm", "model": "m/m"}),
    ('CMD="vllm serve m/m --max-num-seqs 64"; exec $CMD', SEATS),
    ('ssh node1 "vllm serve m/m --max-num-seqs 64"', SEATS),
    ("tmux new-session -d -s llm 'vllm serve m/m --max-num-seqs 64'", SEATS),
    ('CMD="vllm serve m/m --max-num-seqs 64"\necho "$CMD"\neval "$CMD"', SEATS),
    ('CMD="vllm serve m/m --max-num-seqs 64"\nnohup bash -c "$CMD" &', SEATS),
    ('CMD=(vllm serve m/m)\nCMD+=(--max-num-seqs 64)\nexec "${CMD[@]}"', SEATS),
    ("export SEATS=64; vllm serve m/m --max-num-seqs $SEATS", SEATS),
])
def test_a_launch_is_found_in_its_form(command: str, expected: dict[str, Any]) -> None:
    assert read_launch(command).options == expected


def test_a_command_that_is_only_printed_is_none() -> None:
    with pytest.raises(UsageError, match="launches no engine"):
        read_launch('CMD="vllm serve m/m"\necho $CMD')


def test_variables_that_a_script_exports_reach_the_engine() -> None:
    script = "export HOME=/root VLLM_FLOAT32_MATMUL_PRECISION=high\nVLLM_ATTENTION_BACKEND=X\nvllm serve m/m"
    launch = read_launch(script)
    assert launch.options == {"engine": "vllm", "model": "m/m", "fp32_matmul": "tf32"}
    assert (launch.left_aside, launch.unmodelled) == ((), ())
    exported = read_launch(f"{script.replace('vllm serve', 'export VLLM_ATTENTION_BACKEND; vllm serve')}")
    assert [flag for flag, _ in exported.unmodelled] == ["VLLM_ATTENTION_BACKEND"]


@pytest.mark.parametrize("lines", ["vllm serve m/m\n  --max-num-seqs 64", "vllm serve m/m \\\n\n  --max-num-seqs 64",
                                   "vllm serve m/m \\\n  -tp 2\n  --max-num-seqs 64",
                                   "vllm serve m/m \\\n  -tp 2 \\\n  # --enforce-eager \\\n  --max-num-seqs 64"])
def test_flags_on_a_line_that_nothing_joins_are_refused(lines: str) -> None:
    with pytest.raises(UsageError, match=r"line \d begins with the flag --max-num-seqs.*with a backslash"):
        read_launch(lines)


def test_a_space_behind_a_backslash_is_refused(tmp_path: Path) -> None:
    """A shell passes the space to the engine as a word, which does not start with it."""
    (tmp_path / "serve.sh").write_text("#!/bin/bash\nvllm serve m/m \\ \n  --max-num-seqs 64\n")
    with pytest.raises(UsageError, match=r"line 2 has a space behind its backslash.*remove the space"):
        read_launch(str(tmp_path / "serve.sh"))


@pytest.mark.parametrize("said", ["$(cat key.txt | tr -d '\\n')", "$(python3 -c 'print(8000)'):$PORT", "$((8000 + 1))",
                                  "`hostname -i | cut -d' ' -f1`", '"$(basename "$PWD" | head -n1)"'])
def test_a_substitution_is_one_word(said: str) -> None:
    """No pipe, bracket or quote in it ends the command; in a text that a shell runs neither."""
    options = {"engine": "vllm", "model": "m/m", "max_num_seqs": 64}
    command = f"vllm serve m/m --host {said} --max-num-seqs 64"
    for line in (command, f"{command}\necho started", f"HEAD={said}\nvllm serve m/m --host $HEAD --max-num-seqs 64"):
        launch = read_launch(line)
        assert {name: launch.options[name] for name in options} == options
        assert len(launch.left_aside) == 1
    inner = command.replace('"', '\\"')
    assert read_launch(f'docker run vllm/vllm-openai bash -c "{inner}"').options == options


def test_click_takes_no_abbreviations() -> None:
    with pytest.raises(UsageError, match=r"--max_batch is no flag of TensorRT-LLM.*did you mean --max_batch_size\?"):
        read_launch("trtllm-serve serve m/m --max_batch 64")
    assert read_launch("trtllm-serve m/m --newer_flag 64").unknown == ("--newer_flag 64",)
    assert read_launch("trtllm-serve m/m --kv_cache_dtype fp8").options["kv_cache_dtype"] == "fp8"


def test_folders_missing_files_and_several_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text("vllm serve m/m\n")
    (tmp_path / "decode.sh").write_text("vllm serve m/m\n")
    with pytest.raises(UsageError, match=r"is a folder; give one of its files, as decode\.sh, serve\.sh"):
        read_launch(str(tmp_path))
    with pytest.raises(UsageError, match="there is no such file"):
        read_launch("deploy/llm.yaml")
    with pytest.raises(UsageError, match=r'names 2 files.*from_command of a \[\[pool\]\] with role = "prefill"'):
        read_launch(f"{tmp_path / 'serve.sh'},{tmp_path / 'decode.sh'}")


def test_two_commands_are_refused_with_the_way_to_give_them() -> None:
    done = CliRunner().invoke(app, ["replay", "chat", "--from-command", "vllm serve m/m", "--from-command",
                                    "vllm serve n/n"])
    assert done.exit_code != 0
    assert "is given 2 times" in str(done.exception)
    assert "[[pool]]" in str(done.exception)
    with pytest.raises(UsageError, match=r"differ \(#1: line 1, #2: line 2\); give the command of one.*\[\[pool\]\]"):
        read_launch("vllm serve m/m &\nvllm serve n/n")


SERVICE = """
    apiVersion: serving.kserve.io/v1beta1
    kind: InferenceService
    metadata: {{name: chat}}
    spec:
      predictor:
        minReplicas: {least}
        maxReplicas: {most}
        model: {{modelFormat: {{name: vLLM}}, args: [--model_id=m/m]}}
    """


@pytest.mark.parametrize(("least", "most", "notes"), [
    (2, 5, ["--from-command: InferenceService chat scales from 2 to 5 replicas; 2 are predicted, and --autoscale "
            "replays a scaler"]),
    (1, 0, ["--from-command: InferenceService chat scales from 1 replicas, without an upper bound; 1 are predicted, "
            "and --autoscale replays a scaler"]),
    (2, 2, [])])
def test_replicas_that_scale_are_noted(tmp_path: Path, least: int, most: int, notes: list[str]) -> None:
    path = tmp_path / "service.yaml"
    path.write_text(dedent(SERVICE.format(least=least, most=most)))
    options, found = launch_options(str(path))
    assert options.get("data_parallel_size", 1) == least
    assert found == notes


CONFIGURED = """
    kind: ConfigMap
    metadata: {name: settings}
    data: {MODEL: m/m, SEATS: "64", TP: "8"}
    ---
    kind: Deployment
    spec:
      template:
        spec:
          containers:
          - image: vllm/vllm-openai:latest
            args: [--model, $(MODEL), --max-num-seqs=$(SEATS), -tp, $(TP), --seed, $(SEED)]
            envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: hub}}]
            env:
            - {name: TP, value: "2"}
            - {name: SEED, valueFrom: {configMapKeyRef: {name: settings, key: SEATS}}}
    """


def test_variables_of_a_config_map_in_the_file_are_put_in(tmp_path: Path) -> None:
    path = tmp_path / "deployment.yaml"
    path.write_text(dedent(CONFIGURED))
    launch = read_launch(str(path))
    assert launch.options == SEATS | {"tensor_parallel_size": 2}
    assert "--seed 64" in launch.left_aside
    assert launch.notes == ("Deployment takes variables from Secret hub, which the file does not have; "
                            "variables that change the engine are then missing",)


@pytest.mark.parametrize(("command", "expected"), [
    ("srun --gres=gpu:8 --container-image=vllm/vllm-openai:v0.9.2 vllm serve m/m --max-num-seqs 64",
     {**SEATS, "engine_version": "0.9.2"}),
    ("apptainer exec --nv docker://vllm/vllm-openai:v0.9.2 vllm serve m/m --max-num-seqs 64",
     {**SEATS, "engine_version": "0.9.2"}),
    ("kubectl run x --image=vllm/vllm-openai:latest -- --model m/m --max-num-seqs 64", SEATS),
    ("!vllm serve m/m --max-num-seqs 64", SEATS),
    ("python -m vllm.entrypoints.api_server --model m/m --max-num-seqs 64", SEATS),
    ("vllm serve m/m --max-num-seqs 64 --compilation-config 3", SEATS),
    ("vllm serve m/m --max-num-seqs 64 --enable-chunked-prefill False", {**SEATS, "enable_chunked_prefill": False}),
    ("vllm serve m/m --max-num-seqs 64 -O.use_cudagraph=false", {**SEATS, "cudagraph_mode": "none"}),
    ("VLLM_ALL2ALL_BACKEND=deepep_low_latency vllm serve Qwen/Qwen3-30B-A3B --max-num-seqs 64 -dp 8 -ep",
     {**SEATS, "model": "Qwen/Qwen3-30B-A3B", "all2all_backend": "deepep_low_latency", "data_parallel_size": 8,
      "expert_parallel": True, "router": "vllm-dp", "data_parallel_attention": True}),
    ("vllm serve /root/.cache/huggingface/hub/models--m--m/snapshots/9216db57 --max-num-seqs 64", SEATS),
    ("NODES=2\nvllm serve m/m --max-num-seqs $((NODES * (8 + 24)))", SEATS),
    ("vllm serve m/m --max-num-seqs $((640 / 10))", SEATS),
])
def test_a_launch_in_a_cluster_or_notebook_is_read(command: str, expected: dict[str, Any]) -> None:
    launch = read_launch(command)
    assert launch.options == expected
    assert launch.unmodelled == ()
    assert launch.unknown == ()


def test_values_that_are_the_defaults_have_no_effect() -> None:
    config = '{"mode": 3, "backend": "inductor", "pass_config": {"eliminate_noops": true}}'
    launch = read_launch(f"vllm serve m/m -cc '{config}' --eplb-window-size 1000")
    assert launch.unmodelled == ()
    assert launch.left_aside == ("-cc.mode 3", "-cc.backend inductor", "-cc.pass_config.eliminate_noops True",
                                 "--eplb-window-size 1000")
    assert read_launch("vllm serve m/m -O.mode=0").unmodelled[0][0] == "-O.mode 0"


@pytest.mark.parametrize(("command", "said"), [
    ("python -m sglang_router.launch_router --worker-urls http://a", "sglang_router.launch_router is a router"),
    ("docker run nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8", "chooses its engine's options itself"),
    ("ollama run qwen3:8b", "ollama is an engine that is not modelled"),
    ("docker run ghcr.io/huggingface/text-generation-inference:3.3 --model-id m/m", "an engine that is not modelled"),
    ("trtllm-serve m/m --backend tensorrt", "runs TensorRT engines"),
    ("trtllm-serve disaggregated -c disagg.yaml", "trtllm-serve disaggregated is a router"),
    ("vllm bench serve --model m/m", "vllm bench serve is a benchmark"),
    ("vllm serve m/m —tensor-parallel-size 2", "begins with two hyphens: --tensor-parallel-size"),
    ("vllm serve m/m --enforce-eager true", "'true' belongs to no flag; a switch takes no value"),
    ("vllm serve m/m '--max-num-seqs 64'", "'--max-num-seqs 64' is one word with a space"),
    (f"docker run {IMAGE} 'vllm serve m/m --max-num-seqs 64'", "is one word with spaces"),
    ('vllm serve m/m -O "{\'level\': 3}"', "write its names and texts in double quotes"),
])
def test_a_command_that_no_engine_runs_is_refused_with_the_remedy(command: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_launch(command)
    assert said in str(refused.value)


def test_sglangs_router_beside_its_replicas_is_named() -> None:
    launch = read_launch("python -m sglang_router.launch_server --model-path m/m --dp-size 4")
    assert launch.options == {"engine": "sglang", "model": "m/m", "data_parallel_size": 4}
    assert launch.unmodelled[0][0] == "sglang_router.launch_server"


@pytest.mark.parametrize(("image", "is_noted"), [("nvcr.io/nvidia/vllm:25.09-py3", True), (IMAGE, False),
                                                 ("acme/vllm:latest", False)])
def test_an_image_whose_tag_has_no_release_is_noted(image: str, is_noted: bool) -> None:
    notes = read_launch(f"docker run --gpus all -v /data/vllm:/root {image} vllm serve m/m").notes
    assert [image in note for note in notes] == ([True] if is_noted else [])


def test_an_exchange_that_no_rank_needs_is_listed() -> None:
    assert read_launch("vllm serve m/m --all2all-backend nixl_ep").left_aside == (
        "all2all backend alltoall (no ranks send tokens to experts)",)


def test_vllm_gathers_all_tokens_in_place_of_a_removed_exchange() -> None:
    for release, exchange in (("0.15.1", "alltoall"), ("0.20.0", "allgather_reducescatter")):
        options = read_launch(f"docker run vllm/vllm-openai:v{release} --model qwen3-30b-a3b -dp 2 "
                              f"--enable-expert-parallel --all2all-backend pplx").options
        assert options["all2all_backend"] == exchange


def test_a_vision_encoder_that_is_whole_on_each_gpu_is_named() -> None:
    for value, is_named in (("data", True), ("weights", False)):
        launch = read_launch(f"vllm serve m/m -tp 2 --mm-encoder-tp-mode {value}")
        assert [flag for flag, _ in launch.unmodelled] == [f"--mm-encoder-tp-mode {value}"] * is_named
    assert read_launch("sglang serve --model m/m --mm-enable-dp-encoder").unmodelled[0][0] == "--mm-enable-dp-encoder"


DOCKERFILES: list[tuple[str, dict[str, Any]]] = [
    ("ARG TAG=v0.11.0\nFROM vllm/vllm-openai:${TAG} AS base\n# ours\nRUN pip install a \\\n    b\n"
     'ENTRYPOINT ["python3", "-m", "vllm.entrypoints.openai.api_server"]\n'
     'CMD ["--model", "m/m", "--max-num-seqs", "64"]',
     SEATS | {"engine_version": "0.11.0"}),
    ('FROM vllm/vllm-openai:v0.10.2\nENV SEATS=64 MODEL="m/m"\nENTRYPOINT vllm serve $MODEL --max-num-seqs ${SEATS:-8}',
     SEATS | {"engine_version": "0.10.2"}),
    ('FROM vllm/vllm-openai:latest\nCMD ["--model", "m/m", "--max-num-seqs=64"]', SEATS),
    ("FROM nvidia/cuda:12.8.0-base\nRUN pip install 'vllm==0.10.1'\nENV MODEL m/m\n"
     'COPY start.sh /\nCMD ["/start.sh"]',
     SEATS | {"engine_version": "0.10.1"}),
    ('FROM vllm/vllm-openai:v0.9.0 AS one\nCMD ["--model", "o/o"]\nFROM one\n'
     'CMD ["--model", "m/m", "--max-num-seqs=64"]',
     SEATS | {"engine_version": "0.9.0"}),
    ("FROM lmsysorg/sglang:v0.5.5\nCMD python3 -m sglang.launch_server --model-path m/m \\\n    --tp 2",
     {"engine": "sglang", "engine_version": "0.5.5", "model": "m/m", "tensor_parallel_size": 2}),
]


@pytest.mark.parametrize(("text", "expected"), DOCKERFILES)
def test_dockerfiles_are_read(text: str, expected: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(text)
    (tmp_path / "start.sh").write_text('exec vllm serve "$MODEL" --max-num-seqs 64 "$@"\n')
    assert read_launch(str(path)).options == expected


def test_a_dockerfile_without_an_engine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text('FROM python:3.11\nCMD ["uvicorn", "app:app"]\n')
    with pytest.raises(UsageError, match="launches no engine that is known"):
        read_launch(str(tmp_path / "Dockerfile"))


UNITS: list[tuple[str, str, dict[str, Any]]] = [
    ("llm.service", "[Unit]\nDescription=x\n[Service]\nEnvironment=\"A=b\" VLLM_FLOAT32_MATMUL_PRECISION=high\n"
     "Environment=MODEL=m/m\nExecStart=-/opt/venv/bin/vllm serve ${MODEL} \\\n  --max-num-seqs 64\nRestart=always\n",
     SEATS | {"fp32_matmul": "tf32"}),
    ("llm.container", "[Container]\nImage=docker.io/vllm/vllm-openai:v0.11.0\nExec=--model m/m --max-num-seqs 64\n",
     SEATS | {"engine_version": "0.11.0"}),
    ("llm.conf", "[program:llm]\ncommand=vllm serve m/m --max-num-seqs 64\nnumprocs=2\n"
     'environment=CUDA_VISIBLE_DEVICES="0",VLLM_FLOAT32_MATMUL_PRECISION="high"\n',
     SEATS | {"fp32_matmul": "tf32", "data_parallel_size": 2}),
]


@pytest.mark.parametrize(("name", "text", "expected"), UNITS)
def test_units_of_systemd_podman_and_supervisord_are_read(name: str, text: str, expected: dict[str, Any], tmp_path: Path
                                                          ) -> None:
    (tmp_path / name).write_text(text)
    assert read_launch(str(tmp_path / name)).options == expected


@pytest.mark.parametrize(("name", "text"), [
    ("llm.service", "[Service]\nEnvironment=\"A=b\nExecStart=/bin/vllm serve m/m\n"),
    ("Dockerfile", f"FROM {IMAGE}\nENV A='b\nCMD vllm serve m/m\n")])
def test_an_open_quote_is_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match="No closing quotation"):
        read_launch(str(tmp_path / name))


def test_a_units_file_of_variables_is_noted(tmp_path: Path) -> None:
    (tmp_path / "llm.service").write_text("[Service]\nEnvironmentFile=-/etc/none.env\nExecStart=/bin/vllm serve m/m\n")
    notes = read_launch(str(tmp_path / "llm.service")).notes
    assert "takes variables from /etc/none.env, which is not read" in notes[0]


@pytest.mark.parametrize(("name", "text", "variables"), [
    ("llm.service", "[Service]\nEnvironmentFile=-llm.env\nExecStart=/bin/vllm serve ${MODEL} --max-num-seqs ${SEATS}\n",
     "; c\nMODEL='m/m'\nSEATS=\\\n64\nexport SEATS=1 # c\n"),
    ("compose.yaml", f"services: {{a: {{image: '{IMAGE}', env_file: .env, command: "
                     "--model $MODEL --max-num-seqs $SEATS}}",
     "# c\nexport MODEL=m/m # c\r\nHALF=\"6\"\nSEATS=${HALF}4\t# c\n"),
])
def test_files_of_variables_are_read_in_the_grammar_of_their_reader(name: str, text: str, variables: str, tmp_path: Path
                                                                    ) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / ("llm.env" if name == "llm.service" else ".env")).write_text(variables)
    launch = read_launch(str(tmp_path / name))
    assert {**launch.options, "engine_version": "0.11.0"} == SEATS | {"engine_version": "0.11.0"}
    assert launch.left_aside == (() if name == "llm.service" else ("HALF",))


def test_variables_of_dockers_env_file_reach_the_engine(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("# c\nVLLM_FLOAT32_MATMUL_PRECISION=high\n")
    (tmp_path / "start.sh").write_text(f"docker run --env-file a.env {IMAGE} --model m/m --max-num-seqs 64\n")
    launch = read_launch(str(tmp_path / "start.sh"))
    assert launch.options == SEATS | {"engine_version": "0.11.0", "fp32_matmul": "tf32"}
    assert "takes variables from b.env, which is not read" in " ".join(read_launch(
        f"docker run --env-file=b.env {IMAGE} --model m/m").notes)


@pytest.mark.parametrize(("syntax", "line", "value"), [
    ("compose", "X=a#b", "a#b"), ("compose", "X= # c", ""), ("compose", "X='$A' # c", "$A"),
    ("compose", 'X="a \\"b\\" # d" # c', 'a "b" # d'), ("compose", "X='Let\\'s'", "Let's"),
    ("unit", "X=a # b", "a # b"), ("unit", 'X="a b"', "a b"), ("docker", 'X="a" # b', '"a" # b')])
def test_values_of_variables_have_the_grammar_of_their_reader(syntax: str, line: str, value: str) -> None:
    """Sources: Docker Compose's env-file syntax, EnvironmentFile in systemd.exec, and docker/cli#3630."""
    assert variables_in(f"A=1\n{line}\n", syntax) == {"A": "1", "X": value}


MANIFEST = f"kind: Pod\nspec:\n  containers:\n  - {{image: '{IMAGE}', args: [--model, m/m, --max-num-seqs, '64']}}\n"


@pytest.mark.parametrize("script", [f"cat <<EOF | kubectl apply -n llm -f -\n{MANIFEST}EOF\n",
                                    f"set -e\nkubectl apply -f - <<'EOF'\n{MANIFEST}EOF\n"])
def test_a_manifest_that_a_script_applies_is_read(script: str) -> None:
    assert read_launch(script).options == SEATS | {"engine_version": "0.11.0"}


def test_a_path_that_names_no_model_is_refused_with_the_name_that_it_is_served_by() -> None:
    command = "vllm serve /mnt/models --served-model-name chat Qwen/Qwen3-8B"
    with pytest.raises(UsageError, match=r"served as Qwen/Qwen3-8B; if it is that model, give --model Qwen/Qwen3-8B"):
        read_launch(command)
    assert read_launch(command, model="qwen3-8b").options["model"] == "qwen3-8b"
    assert read_launch("vllm serve /mnt/Qwen3-8B --served-model-name Qwen/Qwen3-4B").options["model"] == "/mnt/Qwen3-8B"
    assert read_launch("vllm serve /mnt/models --served-model-name chat").options["model"] == "/mnt/models"


def test_lines_that_a_script_shows_are_no_launch() -> None:
    assert read_launch("cat <<EOF\nUsage: vllm serve o/o\nEOF\nvllm serve m/m --max-num-seqs 64\n").options == SEATS


def test_members_of_enumerations_in_a_log_are_their_names(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(
        "INFO [utils.py:233] non-default args: {'model': 'm/m', 'max_num_seqs': 64, 'compilation_config': {'level': "
        "None, 'cudagraph_mode': <CUDAGraphMode.FULL_DECODE_ONLY: (2, 0)>, 'max_cudagraph_capture_size': None}}\n")
    assert read_launch(str(tmp_path / "server.log")).options == SEATS | {"cudagraph_mode": "full_decode_only"}


def test_arguments_in_one_word_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(MANIFEST.replace("[--model, m/m, --max-num-seqs, '64']",
                                                        "['--model=m/m --max-num-seqs=64']"))
    with pytest.raises(UsageError, match="one word with spaces; write each of its words as a word of its own"):
        read_launch(str(tmp_path / "pod.yaml"))


def test_data_parallel_attention_that_has_no_ranks_is_said(tmp_path: Path) -> None:
    """A file of options alone has no size, and sizes beside it count as the planner's options do."""
    path = tmp_path / "options.yaml"
    path.write_text("enable_attention_dp: true\nkv_cache_config: {free_gpu_memory_fraction: 0.75}\n")
    beside = {"tensor_parallel_size": 8}
    options, notes = launch_options(str(path), model="deepseek-r1", beside=beside)
    assert "data_parallel_attention" not in options
    assert any("data-parallel attention of one rank (of N ranks it is --data-parallel-attention" in note
               for note in notes)
    options, notes = launch_options(f"trtllm-serve m/m --tp_size 8 --config {path}", beside=beside)
    assert (options["tensor_parallel_size"], options["data_parallel_size"]) == (1, 8)
    assert any("--tensor-parallel-size 8 counts the GPUs of each of the 8 ranks" in note for note in notes)


@pytest.mark.parametrize(("beside", "launch"), [
    ("", """
     services:
       llm:
         image: vllm/vllm-openai:v0.11.0
         command: --model m/m --config /cfg/seats.yaml
         volumes: [data:/data, /tmp, ./conf:/cfg:ro]
     """),
    ("", """
     services:
       llm:
         image: vllm/vllm-openai:v0.11.0
         command: --model m/m --config /cfg/seats.yaml
         volumes: [{type: bind, source: conf/seats.yaml, target: /cfg/seats.yaml}]
     """),
    ("", """
     services: {llm: {image: 'vllm/vllm-openai:v0.11.0', command: --model m/m --config /seats, configs: [seats]}}
     configs: {seats: {file: conf/seats.yaml}}
     """),
    ("", """
     services:
       llm: {image: 'vllm/vllm-openai:v0.11.0', command: --model m/m --config /a.yaml,
             configs: [{source: seats, target: /a.yaml}]}
     configs: {seats: {content: 'max-num-seqs: 64'}}
     """),
    (f"docker run -v $PWD/conf:/cfg {IMAGE} --model m/m --config /cfg/seats.yaml\n", ""),
    (f"docker run --volume=conf/seats.yaml:/x.yaml:ro {IMAGE} --model m/m --config /x.yaml\n", ""),
    ("VLLM_IMAGE=x vllm serve m/m --config conf/seats.yaml # 0.11.0\n", ""),
])
def test_settings_are_read_from_files_that_are_mounted_or_beside_the_launch(beside: str, launch: str, tmp_path: Path
                                                                            ) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "seats.yaml").write_text("max-num-seqs: 64\n")
    path = tmp_path / ("start.sh" if beside else "compose.yaml")
    path.write_text(beside or dedent(launch))
    options = dict(read_launch(str(path)).options)
    options.pop("engine_version", None)
    assert options == SEATS


@pytest.mark.parametrize("mount", [
    "volumeMounts: [{name: cfg, mountPath: /cfg}], args: [--model, m/m, --config, /cfg/seats.yaml]",
    "volumeMounts: [{name: cfg, mountPath: /a.yaml, subPath: seats.yaml}], args: [--model, m/m, --config, /a.yaml]",
    "volumeMounts: [{name: all, mountPath: /cfg/}], args: [--model, m/m, --config, /cfg/renamed.yaml]",
])
def test_settings_are_read_from_config_maps_that_a_container_mounts(mount: str, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(dedent(f"""
        kind: ConfigMap
        metadata: {{name: seats}}
        data: {{seats.yaml: 'max-num-seqs: 64'}}
        ---
        kind: Pod
        spec:
          containers: [{{image: '{IMAGE}', {mount}}}]
          volumes:
          - {{name: cfg, configMap: {{name: seats}}}}
          - name: all
            projected: {{sources: [{{configMap: {{name: seats, items: [{{key: seats.yaml, path: renamed.yaml}}]}}}}]}}
        """))
    assert read_launch(str(tmp_path / "pod.yaml")).options == SEATS | {"engine_version": "0.11.0"}


def test_a_file_of_settings_that_is_not_there_is_refused_with_a_remedy() -> None:
    with pytest.raises(UsageError, match=r"--config /cfg/none.yaml: cannot be read: .*; give the path of the file"):
        read_launch("vllm serve m/m --config /cfg/none.yaml")


@pytest.mark.parametrize(("image", "flag", "seats"), [
    ("release:1.0.0", "--extra_llm_api_options", 32), ("release:1.3.0rc14", "--config", 32),
    ("release:1.3.0rc19", "--config", 64), ("release:latest", "--config", 64)])
def test_the_order_of_file_and_command_line_is_that_of_the_release(image: str, flag: str, seats: int, tmp_path: Path
                                                                   ) -> None:
    """NVIDIA/TensorRT-LLM#14812: explicit flags go over the file; in older releases the file goes over them."""
    (tmp_path / "x.yaml").write_text("max_batch_size: 32\nmax_seq_len: 4096\n")
    command = f"trtllm-serve m/m --max_batch_size 64 {flag} {tmp_path / 'x.yaml'}"
    launch = read_launch(f"docker run nvcr.io/nvidia/tensorrt-llm/{image} {command}")
    assert (launch.options["max_num_seqs"], launch.options["max_model_len"]) == (seats, 4096)
    line, file = "64 on the command line", f"32 in {flag} {tmp_path / 'x.yaml'}"
    assert launch.notes == ((f"max_num_seqs is {line}, and {file}; 32 holds",) if seats == 32 else (
        f"max_num_seqs is {file}, and {line}; 64 holds",))
    given, _ = launch_options(command, beside={"engine_version": "1.1.0"})
    assert given["max_num_seqs"] == 32


def test_dynamos_file_goes_over_the_command_line_in_each_release(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("max_batch_size: 32\n")
    command = f"python3 -m dynamo.trtllm --model m/m --max-batch-size 64 --extra-engine-args {tmp_path / 'x.yaml'}"
    assert read_launch(command).options["max_num_seqs"] == 32
