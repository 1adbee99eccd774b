"""Policies, routers and autoscalers of a user's own: every mistake is one line with the file, the line and a remedy."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import HEADER, LINEAR, Run, planner
from helpers import play, trace_of

from planner.errors import PolicyError, UsageError
from planner.loop.compiled.fields_read import fields_read
from planner.policies.by_name import load_autoscaler, load_policy, load_router
from planner.policies.policy import KEY_COLUMNS
from planner.policies.router import ReplicaLoad
from planner.replays.queue_places import policy_columns

POLICY = "import numpy as np\nfrom planner import IN_ORDER, Policy, StepPlan\n"
PLAN = POLICY + "def plan(s):\n    return StepPlan(9, 99, 99, IN_ORDER)\n"
ROUTER = "import math\nimport numba\nfrom planner.router import Router\n"
SCALER = "import math\nfrom planner.autoscaler import Autoscaler\n"


def planned(body: str) -> str:
    return f"{POLICY}def plan(s):\n    {body}\nmine = Policy(name='mine', plan_step=plan)\n"


def keyed(body: str, field: str = "admit_key") -> str:
    return f"{PLAN}def key(requests):\n    {body}\nmine = Policy(name='mine', plan_step=plan, {field}=key)\n"


def scored(body: str) -> str:
    return f"{ROUTER}def score(load):\n    {body}\nmine = Router(name='mine', score=score)\n"


def metered(body: str, more: str = "") -> str:
    return f"{SCALER}def metric(load):\n    {body}\nmine = Autoscaler(name='mine', metric=metric{more})\n"


def run(tmp_path: Path, kind: str, text: str | bytes | None, name: str = ":mine") -> Run:
    """Replay a few requests with a file of one's own, on two replicas where it is a router."""
    if text is not None:
        (tmp_path / "own.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "trace.csv").write_text(HEADER + "".join(f"{0.1 * k},{10 + k},5\n" for k in range(9)))
    options: list[Any] = [f"--{kind}", f"{tmp_path}/own.py{name}"]
    if kind == "router":
        options += ["--data-parallel-size", 2]
    if kind == "autoscale":
        (tmp_path / "scale.toml").write_text(
            "minimum = 1\nmaximum = 2\ninterval_s = 0.2\nstartup = { warmup_s = 1 }\n"
            f'[[metric]]\nname = "own.py{name}"\ntarget = 1.0\n')
        options = ["--autoscale", tmp_path / "scale.toml"]
    return planner("replay", tmp_path / "trace.csv", *LINEAR, "--max-num-seqs", 1, "--quiet", *options)


ANYWHERE = [  # a file of any kind
    ("x = 1\ndef plan(s:\n", ":mine", r"own.py line 2: SyntaxError: '\(' was never closed"),
    ("x = 1\n\ny = 1 / 0\n", ":mine", r"own.py line 3: ZeroDivisionError: division by zero"),
    ("x = 1\nimport nonsense\n", ":mine", r"own.py line 2: ModuleNotFoundError: No module named 'nonsense'"),
    ("x = 1\nprint(nonsense)\n", ":mine", r"own.py line 2: NameError: name 'nonsense' is not defined"),
    ("raise ValueError('one\\ntwo')\n", ":mine", r"own.py line 1: ValueError: one two"),
    ("import sys\nsys.exit(0)\n", ":mine", r"own.py line 2: SystemExit: 0"),
    (b"x = '\xff'\n", ":mine", r"own.py.*: SyntaxError: .*utf-8"),
    (b"x = 1\0\n", ":mine", r"own.py.*: .*null bytes"),
    (None, ":mine", r"own.py does not exist"),
    ("mine = 3\n", ":mine", r"own.py: mine is a int; must be a \w+, and it has no \w+"),
    ("mine = 3\n", ":other", r"own.py defines no 'other'; it has no \w+"),
]


@pytest.mark.parametrize("kind", ["policy", "router", "autoscale"])
@pytest.mark.parametrize(("text", "name", "said"), ANYWHERE)
def test_a_file_that_cannot_be_used(tmp_path: Path, kind: str, text: str | bytes | None, name: str, said: str) -> None:
    assert_said(run(tmp_path, kind, text, name), said)


def assert_said(done: Run, said: str, code: int = 3) -> None:
    """One line on stderr after those on the trace, nothing on stdout, and the exit code of bad input."""
    assert done.returncode == code, (done.returncode, done.stdout[:300], done.stderr)
    assert re.fullmatch(r"(trace .*\n)?(Policy|Usage|Autoscale)Error: .*\n", done.stderr), done.stderr
    assert re.search(said, done.stderr), done.stderr
    assert done.stdout == ""


COLUMNS = r"it may read the columns arrival_s, input_tokens,"


@pytest.mark.parametrize(("text", "said"), [
    (f"{PLAN}mine = Policy(name='mine', plan_step=3)\n", r"line 5: policy 'mine': plan_step = 3; must be a function"),
    (f"{PLAN}mine = Policy(name='mine', plan_step=print)\n", r"line 5: .*plan_step = <built-in .*must be a function"),
    (f"{PLAN}mine = Policy(name='mine', plan_step=lambda: 1)\n", r"own.py:5\) takes \(\); must take \(s\)"),
    (f"{PLAN}mine = Policy(name='mine', plan_step=lambda s, t: 1)\n", r"own.py:5\) takes \(s, t\); must take \(s\)"),
    (f"import numba\n{PLAN}mine = Policy(name='mine', plan_step=numba.njit(plan))\n", r"already compiled .*decorator"),
    (f"{PLAN}mine = Policy(name='mine', plan_step=plan, reserve='all')\n", r"reserve = 'all'; must be one of 'chunk'"),
    (f"{PLAN}mine = Policy(name='mine', plan_step=plan, cache_latest='no')\n", r"cache_latest = 'no'; must be one of"),
    (f"{PLAN}mine = Policy(name='mine', plan_step=plan, reserves='chunk')\n", r"line 5: TypeError: .*'reserves'"),
    (f"{PLAN}mine = Policy(name='mine', plan_step=plan, admit_key=3)\n", r"admit_key = 3; must be a function"),
    (planned("return StepPlan(1, 1, 1, nonsense)"), r"'mine': .*own.py:4: plan_step cannot be .*name 'nonsense'"),
    (planned("return 1"), r"own.py:4: .*it returns .*1.*must return a StepPlan of four integers"),
    (planned("return None"), r"own.py:4: .*it returns none; .*must return a StepPlan"),
    (planned("return StepPlan(s.num_running / 2, 1, 1, 0)"), r"own.py:4: .*it returns StepPlan\(float64, int64"),
    (planned("return StepPlan(1, 1, 1)"), r"own.py:\d: .*missing a required argument: 'order'"),
    (planned("return StepPlan('a', 1, 1, 0)"), r"own.py:4: .*it returns StepPlan\(unicode_type"),
    (planned("return StepPlan(s.num_running + 'a', 1, 1, 0)"), r"own.py:4: .*no such operation: add\(int64, .*str"),
    (planned("return StepPlan(1, s.output_tokens, 1, 0)"), r"own.py:4: .*StepState has no 'output_tokens'; it has"),
    (planned("print(s.now_s); return StepPlan(1, 1, 1, 0)"), r"own.py:4: plan_step must not print"),
    (planned("return StepPlan(1, 8 // s.num_running, 1, 0)"), r"own.py:4: plan_step failed at 0.0* s: ZeroDivision"),
    (planned("assert s.num_running > 3; return StepPlan(1, 1, 1, 0)"), r"own.py:4: plan_step failed .*AssertionError"),
    (planned("return StepPlan(1, -1, 1, 0)"), r"own.py:3\) at 0.000000 s: .*negative limit or an unknown order"),
    (keyed("return requests['nonsense']"), rf"own.py:6: admit_key failed: there is no column 'nonsense'; {COLUMNS}"),
    (keyed("return requests['nonsense']", "victim_key"), rf"own.py:6: victim_key failed: .*'nonsense'; {COLUMNS}"),
    (keyed("return requests.priority"), rf"own.py:6: admit_key failed: AttributeError: .*'priority'; {COLUMNS}"),
    (keyed("return nonsense"), r"own.py:6: admit_key failed: NameError: name 'nonsense'"),
    (keyed("return 3"), r"own.py:5: admit_key returned an array of shape \(\); must be \(9,\)"),
    (keyed("return None"), r"own.py:5: admit_key returned .*must"),
    (keyed("return 'a'"), r"own.py:5: admit_key returned a str; must return an array of numbers"),
    (keyed("return requests['priority'][:3]"), r"own.py:5: admit_key returned .* shape \(3,\); must be \(9,\)"),
    (keyed("return requests['priority'] * np.nan"), r"own.py:5: admit_key is NaN for request 0; must be a number"),
])
def test_a_policy_that_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    assert_said(run(tmp_path, "policy", text), said)


@pytest.mark.parametrize(("text", "said"), [
    (f"{ROUTER}mine = Router(name='mine', score=3)\n", r"line 4: router 'mine': score = 3; must be a function of"),
    (f"{ROUTER}mine = Router(name='mine', score=lambda: 1.0)\n", r"own.py:4\) takes \(\); must take \(load\)"),
    (f"{ROUTER}mine = Router(name='mine', score=lambda load: 1.0, num_choices=3)\n", r"num_choices = 3; must be"),
    (f"{ROUTER}mine = Router(name='mine', score=lambda load: 1.0, is_sticky=2)\n", r"is_sticky = 2; must be one of"),
    (scored("return load.speed"), r"own.py:5: score cannot be .*ReplicaLoad has no 'speed'; it has outstanding_"),
    (scored("return nonsense"), r"own.py:5: .*name 'nonsense' is not defined"),
    (scored("return 'a'"), r"own.py:5: .*it returns .*must return a number"),
    (scored("return None"), r"own.py:5: .*it returns none; .*must return a number"),
    (scored("return load.num_running + 'a'"), r"own.py:5: .*no such operation: add"),
    (scored("print(load.num_running); return 1.0"), r"own.py:5: score must not print"),
    (scored("return 1 // load.outstanding_requests"), r"'mine': .*own.py:5: score failed before .*ZeroDivisionError"),
    (scored("return 1 // load.num_running"), r"'mine': .*own.py:5: score failed at .*ZeroDivisionError"),
    (scored("return 1 // (load.cached_tokens + load.input_tokens - 10)"), r"own.py:5: score failed at .*ZeroDivision"),
    (scored("if load.num_running < 9: raise ValueError('low')\n    return 1.0"), r"own.py:5: .*ValueError: low"),
    (scored("return math.nan"), r"own.py:4\): its score before the first request is NaN; it must return a number"),
])
def test_a_router_that_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    assert_said(run(tmp_path, "router", text), said)


@pytest.mark.parametrize(("text", "said"), [
    (f"{SCALER}mine = Autoscaler(name='mine', metric=3)\n", r"own.py line 3: autoscaler 'mine': metric = 3; must be a"),
    (f"{SCALER}mine = Autoscaler(name='mine', metric=lambda: 1)\n", r"own.py:3\) takes \(\); must take \(load\)"),
    (metered("return 1.0", ", desired=lambda load: 1"), r"own.py:5\) takes \(load\); must take \(load, target"),
    (metered("return 1.0", ", needs='target'"), r"line 5: .*needs = 'target'; must be a tuple of keys"),
    (metered("return 1.0", ", needs=()"), r"line 5: .*needs = \(\); must have 'target'"),
    (metered("return nonsense"), r"'mine' at 0.2\d* s: .*own.py:4: NameError: name 'nonsense'"),
    (metered("return load.speed"), r"own.py:4: AttributeError: .*'speed'"),
    (metered("return None"), r"own.py:3: metric returned None; must return a finite number"),
    (metered("return 'a'"), r"own.py:3: metric returned 'a'; must return a finite number"),
    (metered("return math.inf"), r"own.py:3: metric returned inf; must return a finite number"),
    (metered("return 1 // (load.num_ready - 1)"), r"own.py:4: ZeroDivisionError"),
    (metered("return 1.0", ", desired=lambda load, target: math.nan"), r"own.py:5: desired returned NaN; must return"),
    (metered("return load.attainment"), r"\[\[metric\]\] 1: mine reads load.attainment, and the table lacks slo"),
    (metered("return load.scheduled"), r"mine reads load.scheduled, and the table lacks schedule"),
])
def test_an_autoscaler_that_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    assert_said(run(tmp_path, "autoscale", text), said)


def test_a_file_without_a_name_lists_its_names(tmp_path: Path) -> None:
    text = planned("return StepPlan(1, 1, 1, 0)") + "other = mine\n"
    for name in ("", ":"):
        assert_said(run(tmp_path, "policy", text, name), r"lacks the name in the file; must be .*own.py:NAME, and it "
                    r"has mine, other", code=2)
    with pytest.raises(UsageError, match=r"router 'mine.txt:a': mine.txt is not a Python file; must be FILE.py:NAME"):
        load_router("mine.txt:a")
    with pytest.raises(PolicyError, match=r"policy file srpf.py does not exist"):
        load_policy("srpf.py")


def test_a_file_with_a_relative_path_has_its_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("x = 1\ndef plan(s:\n")
    with pytest.raises(PolicyError, match=r"^policy file own.py line 2: SyntaxError: '\(' was never closed"):
        load_policy("own.py:mine")
    (tmp_path / "own.py").write_text("x = 1\n\ny = 1 / 0\n")
    with pytest.raises(PolicyError, match=r"^router file own.py line 3: ZeroDivisionError"):
        load_router("own.py:mine")


def test_what_a_users_file_prints_is_no_result(tmp_path: Path) -> None:
    """Results go to stdout."""
    text = keyed("print('a key'); return requests['input_tokens']").replace("mine =", "print('a file')\nmine =")
    done = run(tmp_path, "policy", text)
    assert done.returncode == 0, done.stderr
    assert "a file" not in done.stdout
    assert "a key" not in done.stdout
    assert "a file" in done.stderr
    assert "a key" in done.stderr


def test_keys_may_read_the_columns_that_are_documented() -> None:
    asked: Any = SimpleNamespace(max_model_len=100, priority_ageing=2.0)
    seen = policy_columns(trace_of([(0.0, 4, 3), (1.0, 5, 3)]), asked)
    assert list(seen) == list(KEY_COLUMNS)
    assert all(column.shape == (2,) for column in seen.values())


@pytest.mark.parametrize(("field", "others"), [("num_running", ()), ("cached_tokens", ()), ("input_tokens", ()),
                                               ("num_unreported", ("num_running",))])
def test_a_router_declares_nothing(tmp_path: Path, field: str, others: tuple[str, ...]) -> None:
    """What a score reads is found in its code, through functions that it calls, and where it cannot be told it is all.
    """
    (tmp_path / "own.py").write_text(
        f"{ROUTER}@numba.njit\ndef of(x, load):\n    return load.{field}\n"
        f"plain = Router(name='a', score=lambda load: load.{field} * 1.0)\n"
        "helped = Router(name='b', score=lambda load: of(1, load) * 1.0)\n"
        f"def hidden(load):\n    each = [load]\n    return each[0].{field} * 1.0\n"
        "unknown = Router(name='c', score=hidden)\n")
    for name in ("plain", "helped"):
        assert fields_read(load_router(f"{tmp_path}/own.py:{name}").score, ReplicaLoad._fields) == {field}
    assert fields_read(load_router(f"{tmp_path}/own.py:unknown").score, ReplicaLoad._fields) == {*ReplicaLoad._fields}


def test_a_prefix_router_of_ones_own_finds_prefixes(tmp_path: Path) -> None:
    """Its hits are those of the bundled one, whose score it has."""
    (tmp_path / "own.py").write_text(scored("return load.input_tokens - load.cached_tokens + load.outstanding_tokens"))
    ids = [[k % 3, 10 + k % 3, 20 + k] for k in range(12)]
    trace = trace_of([(0.3 * k, 40, 4) for k in range(12)], hash_ids=ids, hash_block_tokens=16)
    options: dict[str, Any] = {"enable_prefix_caching": True, "data_parallel_size": 3}
    own, bundled = (play(trace, router=router, **options).requests_table()["num_cached_tokens"].to_list()
                    for router in (f"{tmp_path}/own.py:mine", "prefix-aware"))
    assert own == bundled
    assert sum(own) > 0


def test_an_autoscaler_declares_nothing(tmp_path: Path) -> None:
    """It sees the KV cache that its metric reads."""
    text = metered("return load.kv_cache_usage * load.num_ready / load.num_replicas")
    (tmp_path / "own.py").write_text(text)
    assert load_autoscaler(f"{tmp_path}/own.py:mine").name == "mine"
    events = []
    for name in ("own.py:mine", "kv-cache"):
        path = tmp_path / "scale.toml"
        path.write_text("minimum = 1\nmaximum = 3\ninterval_s = 1\nstartup = { warmup_s = 1 }\n"
                        f'[[metric]]\nname = "{name}"\ntarget = 0.1\n')
        result = play([(0.2 * k, 200, 60) for k in range(40)], num_gpu_blocks=60, autoscale=str(path))
        assert result.scaling is not None
        events.append([(each.at_s, each.after) for each in result.scaling.events])
    assert events[0] == events[1] != []
