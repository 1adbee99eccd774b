"""Autoscalers of Kubernetes: existing files replay as rules, and rules that are written read back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given
from typer.testing import CliRunner

from planner import Scenario
from planner.commands.cli import app
from planner.deployment.autoscale import Autoscale, Metric, Startup, read_autoscale
from planner.deployment.recommendation import Direction, Rules
from planner.errors import AutoscaleError, UsageError
from planner.launch import launch_command, read_launch
from planner.launch.write_manifest import EngineGroup
from planner.planning.write_autoscaler import autoscaled_manifest
from planner.policies.builtin_autoscalers import AUTOSCALERS

HPA: dict[str, Any] = {
    "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "llm", "annotations": {"planner/rules": '{"startup": {"warmup_s": 120}}'}},
    "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "llm"}, "minReplicas": 2, "maxReplicas": 8,
             "metrics": [{"type": "Pods", "pods": {
                 "metric": {"name": "prometheus.googleapis.com|vllm:num_requests_waiting|gauge"},
                 "target": {"type": "AverageValue", "averageValue": "2500m"}}}]}}
KEDA: dict[str, Any] = {
    "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": HPA["metadata"],
    "spec": {"scaleTargetRef": {"name": "llm"}, "minReplicaCount": 1, "maxReplicaCount": 4, "pollingInterval": 20,
             "cooldownPeriod": 360,
             "triggers": [{"type": "prometheus", "metadata": {
                 "serverAddress": "http://p:9090", "query": "sum(vllm:num_requests_running)", "threshold": "5"}}]}}


def read(folder: Path, document: dict[str, Any], *more: dict[str, Any]) -> Autoscale:
    path = folder / "scaler.yaml"
    path.write_text(yaml.safe_dump_all([document, *more]))
    return read_autoscale(path)


def test_an_hpa_has_the_defaults_of_kubernetes(tmp_path: Path) -> None:
    scaler = read(tmp_path, HPA, {"kind": "Deployment", "metadata": {"name": "llm"}, "spec": {"replicas": 3}})
    assert scaler.rules == Rules(
        minimum=2, maximum=8, tolerance=0.1,
        up=Direction(stabilization_window_s=0, cooldown_s=0, max_step=4, max_step_percent=100, step_period_s=15),
        down=Direction(stabilization_window_s=300, cooldown_s=0, max_step=None, max_step_percent=100,
                       step_period_s=15))
    assert (scaler.initial, scaler.interval_s, scaler.startup.warmup_s) == (3, 15, 120)
    assert [(metric.autoscaler.name, metric.target) for metric in scaler.metrics] == [("queue", 2.5)]


def test_the_behavior_of_an_hpa_is_read(tmp_path: Path) -> None:
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 30, "tolerance": "50m",
                            "policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]},
                "scaleDown": {"selectPolicy": "Min", "tolerance": 0.05,
                              "policies": [{"type": "Percent", "value": 10, "periodSeconds": 90}]}}
    rules = read(tmp_path, HPA | {"spec": HPA["spec"] | {"behavior": behavior}}).rules
    assert rules.tolerance == 0.05
    assert rules.up == Direction(stabilization_window_s=30, cooldown_s=0, max_step=2, max_step_percent=None,
                                 step_period_s=60)
    assert rules.down == Direction(stabilization_window_s=300, cooldown_s=0, max_step=None, max_step_percent=10,
                                   step_period_s=90)


@pytest.mark.parametrize(("query", "more", "name", "window_s"), [
    ("sum(vllm:num_requests_running{namespace=\"x\"})", {}, "running", 60),
    ("sum(vllm:num_requests_running) + sum( vllm:num_requests_waiting )", {}, "concurrency", 60),
    ("sum(sglang:num_running_reqs + sglang:num_queue_reqs)", {}, "concurrency", 60),
    ("sum(dynamo_frontend_inflight_requests)", {}, "concurrency", 60),
    ("avg(vllm:kv_cache_usage_perc)", {"metricType": "Value"}, "kv-cache", 60),
    ("sum(rate(vllm:request_success_total{a=\"b\"}[2m]))", {}, "request-rate", 120)])
def test_queries_of_keda_are_our_metrics(query: str, more: dict[str, str], name: str, window_s: float,
                                         tmp_path: Path) -> None:
    trigger: dict[str, Any] = {"type": "prometheus", "metadata": {"query": query, "threshold": "5"}, **more}
    scaler = read(tmp_path, KEDA | {"spec": KEDA["spec"] | {"triggers": [trigger]}})
    metric, = scaler.metrics
    assert (metric.autoscaler.name, metric.target, metric.window_s) == (name, 5, window_s)
    assert (scaler.rules.minimum, scaler.rules.maximum, scaler.interval_s) == (1, 4, 15)  # 20 s are for none to one
    trigger["useCachedMetrics"] = True
    assert read(tmp_path, KEDA | {"spec": KEDA["spec"] | {"triggers": [trigger]}}).interval_s == 20


def triggered(**values: Any) -> dict[str, Any]:
    asked = {"query": "sum(vllm:num_requests_running)", "threshold": "5", **values}
    return {"triggers": [{"type": "prometheus", "metadata": asked}]}


BAD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "metric Resource cpu: is not simulated": (HPA, {"metrics": [{"type": "Resource", "resource": {"name": "cpu"}}]}),
    "metric DCGM_FI_DEV_GPU_UTIL: is not simulated; must be one of": (HPA, {"metrics": [{"type": "Pods", "pods": {
        "metric": {"name": "DCGM_FI_DEV_GPU_UTIL"}, "target": {"type": "AverageValue", "averageValue": 3}}}]}),
    "lacks metrics; its default, CPU, is not simulated": (HPA, {"metrics": []}),
    "scaleUp: selectPolicy Disabled of 0 policies": (HPA, {"behavior": {"scaleUp": {"selectPolicy": "Disabled"}}}),
    "scaleDown: selectPolicy Max of 2 policies": (HPA, {"behavior": {"scaleDown": {"policies": [
        {"type": "Pods", "value": 1, "periodSeconds": 60}, {"type": "Percent", "value": 10, "periodSeconds": 30}]}}}),
    "tolerances of scaleUp and scaleDown differ": (HPA, {"behavior": {"scaleUp": {"tolerance": "0.2"}}}),
    "maximum = 1; must be": (HPA, {"maxReplicas": 1}),
    "'many': must be a quantity": (KEDA, triggered(threshold="many")),
    "activationThreshold: 3": (KEDA, triggered(activationThreshold="3")),
    "query avg(vllm:kv_cache_usage_perc) with metricType AverageValue": (
        KEDA, triggered(query="avg(vllm:kv_cache_usage_perc)")),
    "is a count since the start": (KEDA, triggered(query="sum(vllm:request_success_total)")),
    "query max(vllm:num_requests_waiting)": (KEDA, triggered(query="max(vllm:num_requests_waiting)")),
    "trigger cron: is not simulated": (KEDA, {"triggers": [{"type": "cron", "metadata": {}}]}),
    "scalingModifiers: is not simulated": (KEDA, {"advanced": {"scalingModifiers": {}}}),
    "idleReplicaCount: is not simulated": (KEDA, {"idleReplicaCount": 0}),
    "cooldownPeriod: 360, and scaleDown.stabilizationWindowSeconds is 300": (KEDA, {"minReplicaCount": 0}),
    "has a key of another form than its kind has": (KEDA, {"triggers": 3}),
}


@pytest.mark.parametrize(("message", "changed"), BAD.items(), ids=BAD)
def test_a_rule_that_is_not_simulated_is_refused_by_name(tmp_path: Path, message: str,
                                                         changed: tuple[dict[str, Any], dict[str, Any]]) -> None:
    document, change = changed
    with pytest.raises(AutoscaleError) as caught:
        read(tmp_path, document | {"spec": document["spec"] | change})
    assert str(tmp_path / "scaler.yaml") in str(caught.value)
    assert message in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AutoscaleError, match="has Deployment; must have one HorizontalPodAutoscaler or ScaledObject"):
        read(tmp_path, {"kind": "Deployment"})
    with pytest.raises(AutoscaleError, match="must be autoscaling/v2"):
        read(tmp_path, HPA | {"apiVersion": "autoscaling/v1"})
    with pytest.raises(AutoscaleError, match=r"lacks the time until a replica serves; write a TOML file"):
        read(tmp_path, HPA | {"metadata": {"name": "llm"}})


def test_a_file_of_ours_names_the_manifest_and_adds_to_it(tmp_path: Path) -> None:
    read(tmp_path, HPA, {"kind": "Deployment", "metadata": {"name": "llm"}, "spec": {"replicas": 2}})
    path = tmp_path / "what-if.toml"
    path.write_text('manifest = "scaler.yaml"\nminimum = 3\nmaximum = 9\nstartup = { node_s = 60 }\n'
                    '[up]\nmax_step = 1\n')
    scaler = read_autoscale(path)
    assert (scaler.rules.maximum, scaler.rules.minimum, scaler.initial, scaler.startup.node_s) == (9, 3, 3, 60)
    assert (scaler.rules.up.max_step, scaler.rules.up.max_step_percent) == (1, None)
    path.write_text("manifest = 3\n")
    with pytest.raises(AutoscaleError, match="manifest = 3: must be a file in quotes"):
        read_autoscale(path)


def metrics(names: tuple[str, ...]) -> st.SearchStrategy[tuple[Metric, ...]]:
    return st.lists(st.builds(
        lambda name, target, window_s: Metric(
            autoscaler=AUTOSCALERS[name], target=target, window_s=window_s if name == "request-rate" else 60.0,
            slo=None, percentile=None, schedule=None, forecast=None),
        st.sampled_from(names), st.floats(0.001, 1e4), st.integers(1, 900).map(float)),
        min_size=1, max_size=3).map(tuple)


def directions() -> st.SearchStrategy[Direction]:
    steps = st.tuples(st.integers(1, 50) | st.none(), st.integers(1, 400) | st.none()).filter(any)
    return st.builds(lambda window_s, cooldown_s, step, period_s: Direction(
        stabilization_window_s=float(window_s), cooldown_s=cooldown_s, max_step=step[0], max_step_percent=step[1],
        step_period_s=float(period_s)), st.integers(0, 3600), st.sampled_from([0.0, 90.5]), steps, st.integers(1, 1800))


@st.composite
def scalers(draw: st.DrawFn, kind: str) -> Autoscale:
    is_keda = kind == "keda"
    minimum = draw(st.integers(0 if is_keda else 1, 5))
    maximum = draw(st.integers(max(minimum, 1), 20))
    names = ("queue", "running", "kv-cache", *(("concurrency", "request-rate") if is_keda else ()))
    return Autoscale(
        source="", initial=draw(st.integers(minimum, maximum)),
        interval_s=float(draw(st.integers(1, 120))) if is_keda else draw(st.floats(0.1, 120)),
        rules=Rules(minimum=minimum, maximum=maximum, tolerance=draw(st.sampled_from([0.1, 0.0, 0.25])),
                    up=draw(directions()), down=draw(directions())),
        startup=draw(st.sampled_from([Startup(warmup_s=120), Startup(node_s=60, weights_gb_per_s=2.0)])),
        metrics=draw(metrics(names)))


@pytest.mark.parametrize("kind", ["keda", "hpa"])
@given(data=st.data())
def test_rules_that_are_written_read_back(kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject,
                                          ) -> None:
    scaler = data.draw(scalers(kind))
    engine = data.draw(st.sampled_from(["vllm", "sglang", "trtllm"]))
    size = data.draw(st.sampled_from([1, 2, 4]))
    command, _ = launch_command(Scenario(model="m/m", engine=engine, tensor_parallel_size=size))
    path = tmp_path_factory.mktemp("written") / "llm.yaml"
    path.write_text(autoscaled_manifest(kind, EngineGroup(command=command, replicas=scaler.initial), scaler))
    assert replace(read_autoscale(path), source="") == scaler
    options = dict(read_launch(command).options)
    if scaler.initial > 1:
        options["data_parallel_size"] = scaler.initial
    assert read_launch(str(path)).options == options


@given(scaler=scalers("hpa"))
def test_written_files_are_valid_for_kubernetes(scaler: Autoscale) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    command, _ = launch_command(Scenario(model="m/m"))
    for document in yaml.safe_load_all(autoscaled_manifest("hpa", EngineGroup(command=command, replicas=1), scaler)):
        kubernetes_validate.validate(document, "1.33", strict=True)


def write_rules(folder: Path, metric: str = 'name = "queue"\ntarget = 2', more: str = "minimum = 1") -> Path:
    path = folder / "rules.toml"
    path.write_text(f"{more}\nmaximum = 9\nstartup = {{ warmup_s = 90 }}\n\n[[metric]]\n{metric}\n")
    return path


@pytest.mark.parametrize(("kind", "metric", "more", "message"), [
    ("hpa", 'name = "concurrency"\ntarget = 2', "minimum = 1", "metric of the engine's pods is concurrency; write"),
    ("hpa", 'name = "queue"\ntarget = 2', "minimum = 0", "minimum = 0: a HorizontalPodAutoscaler keeps one replica"),
    ("keda", 'name = "slo-attainment"\ntarget = 0.9\nslo = "ttft:900"', "minimum = 1", "no series of the engine is"),
    ("keda", 'name = "queue"\ntarget = 2', "minimum = 1\ninterval_s = 2.5", "interval_s = 2.5: Kubernetes takes a"),
    ("keda", 'name = "queue"\ntarget = 2', "minimum = 1\ndown = { stabilization_window_s = 7200 }", "up to 3600")])
def test_a_rule_without_words_in_kubernetes_is_refused(tmp_path: Path, kind: str, metric: str, more: str,
                                                       message: str) -> None:
    command, _ = launch_command(Scenario(model="m/m"))
    scaler = read_autoscale(write_rules(tmp_path, metric, more))
    with pytest.raises(UsageError, match=message):
        autoscaled_manifest(kind, EngineGroup(command=command, replicas=1), scaler)


def test_size_writes_its_fleet_with_the_rules_and_replay_reads_them(tmp_path: Path) -> None:
    path, table = tmp_path / "llm.yaml", tmp_path / "events.csv"
    words = ["chat", "--limit", "300", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--slo", "ttft:1000"]
    sized = ["size", *words, "--tensor-parallel-size", "1", "--no-compare-assumptions"]
    refused = CliRunner().invoke(app, [*sized, "--write", f"keda={path}"])
    assert "--write keda: needs the rules of an autoscaler; give --autoscale" in str(refused.exception)
    rules = write_rules(tmp_path, 'name = "request-rate"\ntarget = 2\nwindow_s = 30')
    refused = CliRunner().invoke(app, [*sized, "--autoscale", str(rules)])
    assert "write the fleet with its rules by --write keda or hpa" in str(refused.exception)
    done = CliRunner().invoke(app, [*sized, "--write", f"keda={path}", "--autoscale", str(rules)])
    assert done.exit_code == 0, done.output
    assert replace(read_autoscale(path), source="") == replace(read_autoscale(rules), source="")
    scaled = yaml.safe_load_all(path.read_text())
    assert [document["kind"] for document in scaled] == ["Deployment", "ScaledObject"]
    events = []
    for file in (path, rules):
        replayed = CliRunner().invoke(app, ["replay", *words, "--rate-scale", "9", "--autoscale", str(file),
                                            "--scale-events", str(table)])
        assert replayed.exit_code == 0, replayed.output
        events.append(table.read_text())
    assert events[0] == events[1]
    assert events[0].count("request-rate") > 0
