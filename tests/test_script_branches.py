"""Branches of scripts: those that the file, its environment or a default decides are followed, with a note."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from planner.deployment.named_files import beside
from planner.errors import UsageError
from planner.launch import read_launch
from planner.launch.launch_file import read_text
from planner.launch.manifests.manifest_kinds import manifest_engines
from planner.launch.scripts.shell_script import script_launches
from planner.launch.variables import put_in

SERVE = "vllm serve Qwen/Qwen3-32B"


def launched(script: str, variables: Mapping[str, str] | None = None) -> list[str]:
    """Return the flags of each launch of a script, behind the model's name."""
    return [" ".join(launch.words[3:]) for launch in script_launches(script, variables)]


@pytest.mark.parametrize(("script", "flags"), [
    (f'if [ "${{NVLINK:-0}}" = "1" ]; then\n {SERVE} "$@"\nelse\n {SERVE} --enforce-eager "$@"\nfi',
     ["--enforce-eager"]),
    (f'NVLINK=1\nif [[ $NVLINK == 1 ]]; then {SERVE}; else {SERVE} --enforce-eager; fi', [""]),
    (f'if [ -n "$SPEC" ]; then ARGS="--x 1"; fi\n{SERVE} $ARGS', [""]),
    (f'SPEC=mtp\nif [ -n "$SPEC" ]; then ARGS="--x 1"; fi\n{SERVE} $ARGS', ["--x 1"]),
    (f'if [ -z "${{TP}}" ]; then TP=2; fi\n{SERVE} -tp $TP', ["-tp 2"]),
    (f'TP=4\n[ -z "$TP" ] && TP=2\n{SERVE} -tp $TP', ["-tp 4"]),
    (f'[ -z "$TP" ] && TP=2\n{SERVE} -tp $TP', ["-tp 2"]),
    (f'[ "$EAGER" = 1 ] && ARGS="--enforce-eager" || ARGS="--x 2"\n{SERVE} $ARGS', ["--x 2"]),
    (f'MODE=fp8\ncase "$MODE" in\n fp8|fp4) ARGS="-q fp8" ;;\n *) ARGS="" ;;\nesac\n{SERVE} $ARGS', ["-q fp8"]),
    (f'case "${{MODE:-none}}" in\n fp8) ARGS="-q fp8" ;;\n *) ARGS="--x 3" ;;\nesac\n{SERVE} $ARGS', ["--x 3"]),
    (f'N=8\nif [ $N -gt 4 ]; then A=1; elif [ $N -gt 2 ]; then A=2; else A=3; fi\n{SERVE} --x $A', ["--x 1"]),
    (f'N=3\nif [ $N -gt 4 ]; then A=1; elif [ $N -gt 2 ]; then A=2; else A=3; fi\n{SERVE} --x $A', ["--x 2"]),
    (f'N=1\nif [ $N -gt 4 ]; then A=1; elif [ $N -gt 2 ]; then A=2; else A=3; fi\n{SERVE} --x $A', ["--x 3"]),
    (f'if [ "$A" = 1 ]; then\n if [ "$B" = 1 ]; then X=1; fi\nelse\n X=2\nfi\n{SERVE} --x $X', ["--x 2"]),
    (f'if [ "$A" = 1 ] || [ "${{B:-1}}" = 1 ]; then X=1; else X=2; fi\n{SERVE} --x $X', ["--x 1"]),
    (f'if ! [ "$A" = 1 ]; then X=1; else X=2; fi\n{SERVE} --x $X', ["--x 1"]),
    (f'if [[ -n "$A" && "$B" != x ]]; then X=1; else X=2; fi\n{SERVE} --x $X', ["--x 2"]),
    (f'{SERVE} ${{QUANT:+--quantization $QUANT}} --x 1', ["--x 1"]),
    (f'QUANT=fp8\n{SERVE} ${{QUANT:+--quantization $QUANT}}', ["--quantization fp8"]),
    (f'if [ $UNSET = 1 ]; then {SERVE}; else {SERVE} --x 1; fi', ["--x 1"]),
])
def test_a_decided_branch_is_followed(script: str, flags: list[str]) -> None:
    assert launched(script) == flags


def test_a_file_of_a_branch_that_does_not_run_is_not_written() -> None:
    script = ('MODE=a\nif [ "$MODE" = a ]; then\ncat > engine.yaml <<EOF\nx: 1\nEOF\nelse\ncat > engine.yaml <<EOF\n'
              f'x: 2\nEOF\nfi\n{SERVE}')
    assert [dict(launch.files) for launch in script_launches(script)] == [{"engine.yaml": "x: 1\n"}]


def test_the_environment_decides() -> None:
    script = f'if [ "$NVLINK" = 1 ]; then {SERVE}; else {SERVE} --enforce-eager; fi'
    assert launched(script, {"NVLINK": "1"}) == [""]
    assert not next(script_launches(script, {"NVLINK": "1"})).notes
    assert next(script_launches(script)).notes == (
        'runs with NVLINK unset: `[ "$NVLINK" = 1 ]` of line 1 does not hold; NVLINK=VALUE before the command, or in '
        'its environment, changes it',)


@pytest.mark.parametrize("condition", ["[ $(nvidia-smi -L | wc -l) -gt 2 ]", "[ -f /models/x ]", "command -v x",
                                       '[ "$(hostname)" = gpu1 ]'])
def test_what_a_program_or_a_file_decides_stays_open(condition: str) -> None:
    assert launched(f"if {condition}; then {SERVE}; else {SERVE} --x 1; fi") == ["", "--x 1"]
    with pytest.raises(UsageError, match="several engines that differ"):
        read_text(f"if {condition}; then\n {SERVE}\nelse\n {SERVE} --enforce-eager\nfi")
    assert launched(f"if {condition}; then A=1; else A=2; fi\n{SERVE} --x $A") == ["--x $A"]


def test_a_variable_of_a_program_decides_nothing() -> None:
    script = f'N=$(nvidia-smi -L | wc -l)\nif [ "$N" -gt 2 ]; then {SERVE}; else {SERVE} --x 1; fi'
    assert launched(script) == ["", "--x 1"]


def test_an_engine_of_a_file_is_chosen_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "start.sh"
    path.write_text(f"if has x; then\n {SERVE}\nelif [ -f y ]; then\n {SERVE} -tp 2\nelse\n {SERVE} -tp 4\nfi\n")
    with pytest.raises(UsageError, match=r"differ \(#1: line 2, #2: line 4, #3: line 6\); give \S+start.sh#1 for #1"):
        read_launch(str(path))
    sizes = [read_launch(f"{path}#{number}").options.get("tensor_parallel_size") for number in (1, 2, 3)]
    assert sizes == [None, 2, 4]
    with pytest.raises(UsageError, match=r"#4: \S+start.sh launches 3 different engines; give a number from 1 to 3"):
        read_launch(f"{path}#4")
    assert beside(tmp_path, "from_command", "start.sh#2") == f"{path}#2"


def test_variables_before_a_script_are_set(tmp_path: Path) -> None:
    path = tmp_path / "start.sh"
    path.write_text(f'if [ "$NVLINK" = 1 ]; then {SERVE}; else {SERVE} --enforce-eager; fi\n')
    for command, is_eager in ((str(path), True), (f"NVLINK=1 bash {path}", False), (f"NVLINK='1' {path}#1", False)):
        launch = read_launch(command)
        assert ("cudagraph_mode" in launch.options) == bool(launch.notes) == is_eager
    (tmp_path / "pod.yaml").write_text("kind: Pod\n")
    with pytest.raises(UsageError, match=r"NVLINK before .*: only a script of a shell takes variables"):
        read_launch(f"NVLINK=1 {tmp_path / 'pod.yaml'}")


@pytest.mark.parametrize(("script", "note"), [
    (f'case "${{MODE:-none}}" in\n fp8) A=1 ;;\n *) A=2 ;;\nesac\n{SERVE} --x $A',
     "runs with MODE unset: `case \"${MODE:-none}\" in` of line 1 has the word 'none'; MODE=VALUE before the command"),
    (f'case $MODE in fp8) A=1 ;; *) A=2 ;; esac\n{SERVE} --x $A', "runs with MODE unset: `case $MODE in` of line"),
    (f': ${{NVLINK:=0}}\nif [ "$NVLINK" = 1 ]; then A=1; else A=2; fi\n{SERVE} --x $A',
     'runs with NVLINK unset: `[ "$NVLINK" = 1 ]` of line 2 does not hold; NVLINK=VALUE before'),
    (f'N=${{NODES:-1}}\n[ "$N" -gt 1 ] && A=1 || A=2\n{SERVE} --x $A', "runs with NODES unset: `[ \"$N\" -gt 1 ]` of"),
    (f'if [ "$A" = 1 ] && [ "$B" = 1 ]; then X=1; else X=2; fi\n{SERVE} --x $X',
     "runs with A and B unset: `[ \"$A\" = 1 ] && [ \"$B\" = 1 ]` of line 1 does not hold; A=VALUE or B=VALUE before"),
    (f'[ "$A" = 1 ] && [ "$B" = 1 ] && X=1 || X=2\n{SERVE} --x $X', "; A=VALUE or B=VALUE before the command"),
    (f'if [ "$1" = dev ]; then X=1; else X=2; fi\n{SERVE} --x $X', "runs with argument 1 unset: "),
])
def test_a_branch_that_an_unset_variable_decides_is_noted(script: str, note: str) -> None:
    (launch,) = script_launches(script)
    assert launch.words[-1] == "2"
    assert [note in text for text in launch.notes] == [True]


def test_a_case_on_an_argument_stays_open() -> None:
    assert launched(f'case "$1" in\n dev) {SERVE} ;;\n *) {SERVE} --x 1 ;;\nesac') == ["", "--x 1"]


def test_compose_takes_a_value_in_place_of_a_variable_that_is_set(tmp_path: Path) -> None:
    text = ('services: {llm: {image: "vllm/vllm-openai", command: "--model Qwen/Qwen3-32B ${EAGER:+--enforce-eager} '
            '${LEN:?give it}"}}')
    path = tmp_path / "compose.yml"
    for dotenv, words in (("LEN=x\n", "x"), ("LEN=x\nEAGER=1\n", "--enforce-eager x"), ("", "${LEN:?give it}")):
        (tmp_path / ".env").write_text(dotenv)
        engine = manifest_engines(text, path, "compose.yml")[0]
        assert " ".join(engine.words).endswith(f"Qwen/Qwen3-32B {words}"), engine.words


@pytest.mark.parametrize(("syntax", "text", "words"), [
    ("shell", "${A:?set it} ${C:?set it} 'a@b $A' \\$A ${L[@]} ${N:-${A}}", "1 ${C:?set it} 'a@b $A' \\$A x y 1"),
    ("compose", "$$A $A ${E:-2} ${E-2} ${N:-${A}}", "$A 1 2  1"),
    ("dockerfile", "${A:+--a} ${C:+--c} ${C:-3}", "--a  3"),
    ("unit", "${A} $$A %(ENV_A)s $C", "1 $A 1 $C"),
    ("kubernetes", "$(A) $$(A) $(C) $A", "1 $(A) $(C) $A"),
])
def test_variables_are_put_in_as_each_syntax_has_them(syntax: str, text: str, words: str) -> None:
    assert put_in(text, {"A": "1", "E": "", "L": "x y"}, syntax, arguments=["--own"]) == words


def test_a_service_of_compose_has_its_environment_and_its_arguments() -> None:
    script = ('if [ "$${NVLINK:-0}" = "1" ]; then exec vllm serve "$$@"; else exec vllm serve '
              '--disable-custom-all-reduce "$$@"; fi')
    service = {"image": "vllm/vllm-openai:v0.27.1", "entrypoint": ["bash", "-c", script, "--"],
               "command": ["--model", "Qwen/Qwen3-32B", "--max-model-len", "32768"]}
    for environment, has_flag in ({}, True), ({"NVLINK": "1"}, False):
        document = {"services": {"chat": {**service, "environment": environment}}}
        engines = manifest_engines(yaml.safe_dump(document), Path("compose.yml"), "compose.yml")
        assert len(engines) == 1
        words = " ".join(engines[0].words)
        assert ("--disable-custom-all-reduce" in words) == has_flag
        assert words.endswith("--model Qwen/Qwen3-32B --max-model-len 32768")
        assert bool(engines[0].notes) == has_flag
        assert engines[0].variables == {}  # NVLINK has an effect, and is not listed as one without


@pytest.mark.parametrize(("document", "options", "notes"), [
    ({"kind": "Pod", "spec": {"containers": [{"command": ["bash", "-c", f"while true; do {SERVE} & done"]}]}},
     {}, ("runs in a loop of unknown length; one engine is predicted. --data-parallel-size has their number",)),
    ({"services": {"chat": {"image": "lmsysorg/sglang", "deploy": {"replicas": 2}, "command":
                            "python3 -m sglang.launch_server --model Qwen/Qwen3-32B --tp 16 --nnodes 2"}}},
     {"replicas": 1, "nodes": 2}, ()),
])
def test_a_container_says_its_loop_and_its_ranks(document: dict[str, object], options: dict[str, int],
                                                 notes: tuple[str, ...]) -> None:
    (engine,) = manifest_engines(yaml.safe_dump(document), Path("llm.yml"), "llm.yml")
    assert {name: getattr(engine, name) for name in options} == options
    assert engine.notes == notes
