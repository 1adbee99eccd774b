"""Deployments of several models on one cluster: the choice of fleets, the file, and the command."""

import itertools
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import planner
from helpers import filled
from hypothesis import given
from hypothesis import strategies as some

from planner.catalog.catalog_files import load_gpu
from planner.errors import ClusterError, UsageError
from planner.planning.cluster_file import read_cluster, whole_gpu
from planner.planning.cluster_share import SizedDeployment, choose, share
from planner.planning.search_options import RANKS, Choices
from planner.planning.size_answer import Fleet, KindNames, SizeAnswer
from planner.report.share_table import share_table

GPUS = ("h100-sxm", "l40s", "h100-sxm:1g.10gb", "h100-sxm:3g.40gb")
PRICES = dict(zip(GPUS, (3.0, 1.0, 0.5, 1.5), strict=True))
OPTIONS = some.lists(some.tuples(some.sampled_from(GPUS), some.integers(1, 9)), min_size=1, max_size=4,
                     unique_by=lambda option: option[0])


def sized(name: str, options: Sequence[tuple[str, int]]) -> SizedDeployment:
    fleets = tuple(filled(Fleet, kind=filled(KindNames, gpu=gpu, decode_gpu=None), num_gpus=count,
                          cost_usd_per_hour=count * PRICES[gpu]) for gpu, count in options)
    return SizedDeployment(name=name, answer=filled(SizeAnswer, alternatives=fleets))


def whole(fleets: Sequence[Fleet]) -> dict[str, int]:
    """Return the whole GPUs of some fleets: slices of a profile together."""
    of_kind = {gpu: sum(fleet.num_gpus for fleet in fleets if fleet.kind.gpu == gpu) for gpu in GPUS}
    return {name: sum(math.ceil(count / load_gpu(gpu).instances) for gpu, count in of_kind.items()
                      if whole_gpu(gpu) == name) for name in ("h100-sxm", "l40s")}


@given(deployments=some.lists(OPTIONS, min_size=1, max_size=3), large=some.integers(1, 12), small=some.integers(1, 12),
       minimize=some.sampled_from(("gpus", "cost")))
def test_the_choice_is_that_of_an_exhaustive_search(deployments: list[list[tuple[str, int]]], large: int, small: int,
                                                    minimize: str) -> None:
    each, gpus = [sized(str(k), options) for k, options in enumerate(deployments)], {"h100-sxm": large, "l40s": small}

    def value(fleets: Sequence[Fleet]) -> tuple[float, float]:
        taken, cost = sum(whole(fleets).values()), sum(fleet.cost_usd_per_hour for fleet in fleets)
        return (taken, cost) if minimize == "gpus" else (cost, taken)

    every = list(itertools.product(*(one.fleets for one in each)))
    fitting = [fleets for fleets in every if all(whole(fleets)[gpu] <= count for gpu, count in gpus.items())]
    found = choose(each, gpus, minimize)
    assert (found is None) == (not fitting)
    if found is not None:
        assert value(found.fleets) == pytest.approx(min(map(value, fitting)))
        assert found.used == whole(found.fleets)
    lacking = choose(each, gpus, minimize, may_lack=True)
    assert lacking is not None
    assert sum(lacking.lacking.values()) == min(
        sum(max(whole(fleets)[gpu] - count, 0) for gpu, count in gpus.items()) for fleets in every)


FILE = """
[gpus]
h100-sxm = {gpus}

[deployment.chat]
trace = "chat"
limit = 600
model = "llama-3.1-8b"
slo = "ttft:500 tpot:50"
attainment = 0.95
tensor_parallel_size = 1
gpu = ["h100-sxm", "h100-sxm:3g.40gb"]

[deployment.code]
trace = "code"
limit = 300
rate_scale = 2
model = "qwen3-8b"
slo = "ttft:2000 tpot:60"
attainment = 0.95
tensor_parallel_size = [1]
"""


def test_a_deployment_without_attainment_needs_99_per_cent(tmp_path: Path) -> None:
    """As `size`, `capacity` and `check`: a hopeless cluster does not serve the load."""
    (tmp_path / "cluster.toml").write_text(FILE.format(gpus=2).replace("attainment = 0.95\n", ""))
    assert {each.study.objectives.attainment for each in read_cluster(tmp_path / "cluster.toml", RANKS).candidates
            if each.study.objectives is not None} == {0.99}


def test_the_command_shares_a_cluster(tmp_path: Path) -> None:
    """Four GPUs are enough, two serve a share of both loads."""
    answers = {}
    for gpus, code in ((4, 0), (2, 1)):
        (tmp_path / "cluster.toml").write_text(FILE.format(gpus=gpus))
        run = planner("share", tmp_path / "cluster.toml", "--json", tmp_path / "answer.json")
        assert run.returncode == code, run.stderr
        answers[gpus] = json.loads((tmp_path / "answer.json").read_text())
        assert re.search(r"^deployment .* headroom +error +covered$", run.stdout, re.MULTILINE)
        assert re.search(r"^chat +.* [0-9]+ %\*? +(yes|no)$", run.stdout, re.MULTILINE), run.stdout
    enough, short = answers[4], answers[2]
    assert (enough["feasible"], enough["load_share"]) == (True, 1)
    assert [each["deployment"] for each in enough["deployments"]] == ["chat", "code"]
    assert enough["gpus"][0]["used"] <= 4
    assert enough["cost_usd_per_hour"] == pytest.approx(
        sum(each["fleet"]["cost_usd_per_hour"] for each in enough["deployments"]))
    assert (short["feasible"], 0 < short["load_share"] < 1) == (False, True)
    assert short["gpus"][0] == {"gpu": "h100-sxm", "available": 2, "used": 2,
                                "lacking": enough["gpus"][0]["used"] - 2}
    rates = [(each["rate_rps"], own["rate_rps"]) for each, own in zip(short["deployments"], enough["deployments"],
                                                                      strict=True)]
    assert [part / own for part, own in rates] == pytest.approx([short["load_share"]] * 2, rel=0.02)


@pytest.mark.parametrize("minimize", ["gpus", "cost"])
def test_a_log_too_short_for_the_percentile_is_doubted(minimize: str, tmp_path: Path) -> None:
    """As in `size`, also of a fleet that is not the cheapest: two slices cost less than a GPU and fit on it."""
    text = FILE.format(gpus=1).partition("[deployment.code]")[0].replace("600", "90")
    (tmp_path / "cluster.toml").write_text(text)
    answer = share(tmp_path / "cluster.toml", Choices(jobs=1, compare_assumptions=False), minimize)
    assert answer.deployments[0].doubts[-1].startswith("the log has 90 requests: the highest percentile of the "
                                                       "objectives needs 200")
    assert "\nchat: doubt: the log has 90 requests" in str(share_table(answer))


def test_a_deployment_that_no_fleet_serves_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(FILE.format(gpus=4).replace("ttft:2000", "ttft:1"))
    answer = share(tmp_path / "cluster.toml", Choices(jobs=1))
    assert (answer.feasible, answer.load_share, answer.deployments) == (False, 0.0, ())
    assert answer.notes[0].startswith("code: no number of replicas meets its SLO: 1 × h100-sxm bf16: ")


@pytest.mark.parametrize(("old", "new", "said"), [
    ("[gpus]\nh100-sxm = 4", "", r"has no GPUs; must have \[gpus\]"),
    ("h100-sxm = 4", "h100-sxm = 0", "h100-sxm = 0: must be a whole number"),
    ("h100-sxm = 4", "'h100-sxm:1g.10gb' = 4", "is a slice; give the number of h100-sxm"),
    ("h100-sxm = 4", "h100-smx = 4", "h100-smx"),
    ("[gpus]", "budget = 4\n[gpus]", "unknown key 'budget'"),
    ('gpu = ["h100-sxm", "h100-sxm:3g.40gb"]', 'gpu = "l40s"', r"deployment.chat: gpu = l40s: the cluster has none"),
    ('slo = "ttft:500 tpot:50"\nattainment = 0.95', "", "deployment.chat: has no slo"),
    ('model = "qwen3-8b"', "", "deployment.code: has no model"),
    ('trace = "chat"', "", "deployment.chat: has no trace"),
    ("limit = 600", "max_concurrency = 6", "has a number of users in place of a rate"),
    ("tensor_parallel_size = [1]", 'tensor_parallel_size = ["x"]', "must be whole numbers above 0"),
])
def test_errors_name_the_deployment_and_the_remedy(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "cluster.toml"
    text = FILE.format(gpus=4)
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ClusterError, match=said) as caught:
        read_cluster(path, RANKS)
    assert str(path) in str(caught.value)


def test_there_are_two_things_to_minimize(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be gpus or cost"):
        share(tmp_path / "cluster.toml", Choices(), "power")
