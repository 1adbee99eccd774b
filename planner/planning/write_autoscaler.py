"""An autoscaler's rules written for Kubernetes: a HorizontalPodAutoscaler, or a ScaledObject of KEDA."""

import json
import re
from dataclasses import fields
from typing import Any

import yaml

from planner.deployment.autoscale import Autoscale, Metric, Startup
from planner.deployment.kubernetes_rules import ANNOTATION, SYNC_S
from planner.deployment.recommendation import Direction
from planner.engines.package import Metrics
from planner.errors import UsageError
from planner.launch.read_command import read_launch
from planner.launch.write_manifest import EngineGroup, manifest

SERVER = "http://prometheus-operated.monitoring.svc:9090"
FILES = {"keda": "keda.yaml", "hpa": "hpa.yaml"}
LONGEST = {"stabilization_window_s": 3600, "step_period_s": 1800}  # of Kubernetes [s]


def autoscaled_manifest(kind: str, engine: EngineGroup, autoscale: Autoscale) -> str:
    """Return a Deployment and its autoscaler, which `read_autoscale` reads back.

    Parameters
    ----------
    kind : keda or hpa.
    engine : the number of replicas is the autoscaler's initial number.

    Raises
    ------
    UsageError : Kubernetes has no words for a rule.
    """
    metrics = engine.engine.metrics
    if metrics is None:
        raise UsageError(f"--write {kind}: no metrics of {engine.engine.title} are known; write k8s")
    write = {"keda": _keda, "hpa": _hpa}[kind]
    model = str(read_launch(engine.command, reads_files=False).options["model"])
    document, rest = write(autoscale, metrics, f'{{{metrics.model}="{model}"}}'), _without_counterpart(kind, autoscale)
    document["metadata"] = {"name": engine.name, "annotations": {ANNOTATION: json.dumps(rest)}}
    document["spec"] = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": engine.name},
                        **document["spec"]}
    head = [f"Kubernetes has no counterpart of these rules: {json.dumps(rest)}. The annotation is for planner.",
            *([f"Set serverAddress to the address of your Prometheus, {SERVER} is a guess."] if kind == "keda" else
              ["Install an adapter that serves these metrics of pods, as the Prometheus adapter."])]
    if any(metric.autoscaler.name == "request-rate" for metric in autoscale.metrics):
        head.append("The query counts finished requests. The simulation counts arrivals, which lead them.")
    text = manifest("k8s", [engine])
    scaler = yaml.safe_dump({key: document[key] for key in ("apiVersion", "kind", "metadata", "spec")},
                            sort_keys=False, width=110)
    return "".join(f"# {line}\n" for line in head) + f"{text}---\n{scaler}"


def _without_counterpart(kind: str, autoscale: Autoscale) -> dict[str, Any]:
    """Return the rules that are no fields of the kind, as the keys of an autoscaler's file."""
    startup = {field.name: value for field in fields(Startup)
               if (value := getattr(autoscale.startup, field.name)) != field.default}
    rest: dict[str, Any] = {"startup": startup or {"warmup_s": 0.0}}
    if kind == "hpa" and autoscale.interval_s != SYNC_S:
        rest["interval_s"] = autoscale.interval_s
    for name in ("up", "down"):
        if cooldown_s := getattr(autoscale.rules, name).cooldown_s:
            rest[name] = {"cooldown_s": cooldown_s}
    return rest


def _hpa(autoscale: Autoscale, metrics: Metrics, _: str) -> dict[str, Any]:
    rules, names = autoscale.rules, {"queue": metrics.waiting, "running": metrics.running,
                                     "kv-cache": next(iter(metrics.kv_use), "")}
    if rules.minimum == 0:
        raise UsageError("--write hpa: minimum = 0: a HorizontalPodAutoscaler keeps one replica; write keda")
    rows = []
    for metric in autoscale.metrics:
        if not (name := names.get(metric.autoscaler.name)):
            raise UsageError(f"--write hpa: no metric of the engine's pods is {metric.autoscaler.name}; write keda, or "
                             f"scale by {', '.join(name for name in names if names[name])}")
        rows.append({"type": "Pods", "pods": {
            "metric": {"name": f"{metrics.prefix}{metrics.separator}{name}"},
            "target": {"type": "AverageValue", "averageValue": _number(metric.target)}}})
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": {
        "minReplicas": rules.minimum, "maxReplicas": rules.maximum, "metrics": rows, "behavior": _behavior(autoscale)}}


def _keda(autoscale: Autoscale, metrics: Metrics, labels: str) -> dict[str, Any]:
    rules = autoscale.rules
    triggers = [{"type": "prometheus", "metricType": "AverageValue", "useCachedMetrics": True, "metadata": {
        "serverAddress": SERVER, "query": _query(metric, metrics, labels), "threshold": _number(metric.target)}}
        for metric in autoscale.metrics]
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "spec": {
        "minReplicaCount": rules.minimum, "maxReplicaCount": rules.maximum,
        "pollingInterval": _whole("interval_s", autoscale.interval_s),
        "cooldownPeriod": _whole("[down] stabilization_window_s", rules.down.stabilization_window_s),
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(autoscale)}}, "triggers": triggers}}


def _query(metric: Metric, metrics: Metrics, labels: str) -> str:
    """Return the query of PromQL for a metric: its sum over the engines of a model, which KEDA divides by replicas."""
    gauges = {"queue": (metrics.waiting,), "running": (metrics.running,), "kv-cache": metrics.kv_use[:1],
              "concurrency": (metrics.running, metrics.waiting), "request-rate": (metrics.requests,)}
    names = gauges.get(metric.autoscaler.name, ())
    if not names or not all(names):
        raise UsageError(f"--write keda: no series of the engine is {metric.autoscaler.name}; scale by one of "
                         f"{', '.join(gauges)}")
    series = [f"{metrics.prefix}{metrics.separator}{name}{labels}" for name in names]
    if metric.autoscaler.name == "request-rate":
        return f"sum(rate({series[0]}[{_whole('window_s', metric.window_s)}s]))"
    return " + ".join(f"sum({name})" for name in series)


def _behavior(autoscale: Autoscale) -> dict[str, Any]:
    behavior = {"scaleUp": _direction("up", autoscale.rules.up), "scaleDown": _direction("down", autoscale.rules.down)}
    if autoscale.rules.tolerance != 0.1:  # else Kubernetes' default, before it had the field
        for way in behavior.values():
            way["tolerance"] = _number(autoscale.rules.tolerance)
    return behavior


def _direction(name: str, way: Direction) -> dict[str, Any]:
    period_s = _whole(f"[{name}] step_period_s", way.step_period_s, LONGEST["step_period_s"])
    policies = [{"type": kind, "value": _whole(f"[{name}] {key}", value), "periodSeconds": period_s}
                for kind, key in (("Pods", "max_step"), ("Percent", "max_step_percent"))
                if (value := getattr(way, key)) is not None]
    window_s = _whole(f"[{name}] stabilization_window_s", way.stabilization_window_s, LONGEST["stabilization_window_s"])
    return {"stabilizationWindowSeconds": window_s, "selectPolicy": "Max", "policies": policies}


def _whole(key: str, value: float, most: int = 2**31 - 1) -> int:
    """Return a value as the whole number that Kubernetes takes."""
    if value != int(value) or value > most:
        raise UsageError(f"--write: {key} = {value:g}: Kubernetes takes a whole number up to {most}; change it in the "
                         f"file of --autoscale")
    return int(value)


def _number(value: float) -> str:
    """Return a number as a quantity of Kubernetes."""
    return re.sub(r"\.0$", "", repr(float(value)))
