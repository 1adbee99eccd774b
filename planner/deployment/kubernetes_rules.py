"""Autoscalers of Kubernetes, a HorizontalPodAutoscaler or a ScaledObject of KEDA, read as the keys of our own file."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from planner.catalog.catalog_files import read_toml
from planner.engines import METRICS
from planner.errors import UsageError

SYNC_S = 15.0  # --horizontal-pod-autoscaler-sync-period
ANNOTATION = "planner/rules"  # JSON of the keys that Kubernetes has no counterpart of
POD_METRICS = {"Pods": "pods", "External": "external"}
NUMBER = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)(n|u|m|k|Ki|M|Mi|G|Gi)?")
UNITS = {"n": 1e9, "u": 1e6, "m": 1e3}  # divisors
FACTORS = {"k": 1e3, "Ki": 2.0**10, "M": 1e6, "Mi": 2.0**20, "G": 1e9, "Gi": 2.0**30}
SELECTED = r"([\w:]+)(?:\{[^{}]*\})?"
GAUGE = re.compile(rf"(sum|avg)\({SELECTED}\)")
SUM = re.compile(rf"sum\({SELECTED}\)\+sum\({SELECTED}\)|sum\({SELECTED}\+{SELECTED}\)")
RATE = re.compile(rf"sum\(rate\({SELECTED}\[(\d+)([smh])\]\)\)")
SECONDS = {"s": 1, "m": 60, "h": 3600}
SPEC = {"HorizontalPodAutoscaler": {"scaleTargetRef", "minReplicas", "maxReplicas", "metrics", "behavior"},
        "ScaledObject": {"scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod",
                         "advanced", "triggers", "fallback"}}  # KEDA falls back if a metric is missing; ours are not


def read_rules(path: Path) -> dict[str, Any]:
    """Return the keys and values of an autoscaler's file; a file of Kubernetes, or one that `manifest` names, as ours.

    Raises
    ------
    CatalogError, UsageError : the file cannot be read, or has a rule that is not simulated.
    """
    is_manifest = path.suffix.lower() in (".yaml", ".yml")
    table = {"manifest": path.name} if is_manifest else read_toml(path)
    if "manifest" not in table:
        return table
    if not isinstance(manifest := table.pop("manifest"), str):
        raise UsageError(f"manifest = {manifest!r}: must be a file in quotes, as in 'hpa.yaml'")
    rules = _of_documents(path.parent / manifest)
    for key, value in table.items():
        old = rules.get(key)
        rules[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    bounds = [bound for key in ("initial", "minimum", "maximum") if isinstance(bound := rules.get(key), int)]
    if "initial" not in table and len(bounds) == 3:
        rules["initial"] = min(max(bounds[0], bounds[1]), bounds[2])  # as the controller's first evaluation does
    if "startup" not in rules:
        raise UsageError(f"lacks the time until a replica serves; write a TOML file with manifest = {manifest!r} and "
                         f"startup = {{ warmup_s = 120 }}")
    return rules


def _of_documents(path: Path) -> dict[str, Any]:
    """Return the rules of the one autoscaler in a file, with the replicas of its Deployment if the file has it."""
    try:
        documents = [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if isinstance(each, dict)]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    scalers = [document for document in documents if document.get("kind") in SPEC]
    if len(scalers) != 1:
        kinds = ", ".join(str(document.get("kind")) for document in documents) or "nothing"
        raise UsageError(f"{path}: has {kinds}; must have one HorizontalPodAutoscaler or ScaledObject")
    try:
        return _of_scaler(scalers[0], documents)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        kind = scalers[0]["kind"]
        raise UsageError(f"{path}: {kind} has a key of another form than its kind has: {error}") from error


def _of_scaler(scaler: Mapping[str, Any], documents: list[dict[str, Any]]) -> dict[str, Any]:
    kind, spec = scaler["kind"], scaler["spec"]
    if kind == "HorizontalPodAutoscaler" and scaler.get("apiVersion") != "autoscaling/v2":
        raise UsageError(f"apiVersion: {scaler.get('apiVersion')}: must be autoscaling/v2")
    if more := sorted(set(spec) - SPEC[kind]):
        raise UsageError(f"{kind}: {', '.join(more)}: is not simulated; leave it out for a what-if")
    rules = _of_keda(spec) if kind == "ScaledObject" else _of_hpa(spec)
    target = spec["scaleTargetRef"]["name"]
    for document in documents:
        if document.get("kind") == spec["scaleTargetRef"].get("kind", "Deployment") \
                and (document.get("metadata") or {}).get("name") == target:
            rules["initial"] = document["spec"].get("replicas", 1)
    annotations = (scaler.get("metadata") or {}).get("annotations") or {}
    for key, value in json.loads(annotations.get(ANNOTATION, "{}")).items():
        rules[key] = {**rules.get(key, {}), **value} if isinstance(value, dict) else value
    return rules


def _of_hpa(spec: Mapping[str, Any]) -> dict[str, Any]:
    if not spec.get("metrics"):
        raise UsageError("HorizontalPodAutoscaler: lacks metrics; its default, CPU, is not simulated; give a metric "
                         "of the engine")
    return {"minimum": spec.get("minReplicas", 1), "maximum": spec["maxReplicas"], "interval_s": SYNC_S,
            **_behavior(spec.get("behavior") or {}), "metric": [_hpa_metric(metric) for metric in spec["metrics"]]}


def _hpa_metric(metric: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metric of an HPA: one of pods by its name, or an external one, which is a sum."""
    kind = metric["type"]
    if kind not in POD_METRICS:
        name = (metric.get(kind[:1].lower() + kind[1:]) or {}).get("name", "")
        raise UsageError(f"metric {kind} {name}".rstrip() + ": is not simulated; give Pods with a metric of the engine")
    entry = metric[POD_METRICS[kind]]
    name, target = entry["metric"]["name"], entry["target"]
    if target.get("type") != "AverageValue":
        raise UsageError(f"metric {name}: target type {target.get('type')}: is not simulated; give AverageValue")
    return {"name": _signal(name), "target": _quantity(target["averageValue"])}


def _of_keda(spec: Mapping[str, Any]) -> dict[str, Any]:
    advanced = spec.get("advanced") or {}
    hpa = advanced.get("horizontalPodAutoscalerConfig") or {}
    if "scalingModifiers" in advanced:
        raise UsageError("ScaledObject: scalingModifiers: is not simulated; leave it out")
    rules = {"minimum": spec.get("minReplicaCount", 0), "maximum": spec.get("maxReplicaCount", 100),
             "interval_s": SYNC_S, **_behavior(hpa.get("behavior") or {}),
             "metric": [_trigger(trigger) for trigger in spec["triggers"]]}
    if any(trigger.get("useCachedMetrics") for trigger in spec["triggers"]):
        rules["interval_s"] = float(spec.get("pollingInterval", 30))
    window_s, cooldown_s = rules["down"]["stabilization_window_s"], spec.get("cooldownPeriod", 300)
    if rules["minimum"] == 0 and cooldown_s != window_s:
        raise UsageError(f"cooldownPeriod: {cooldown_s}, and scaleDown.stabilizationWindowSeconds is {window_s:g}: the "
                         f"last replica stops after the window in a simulation; make them equal for a what-if")
    return rules


def _trigger(trigger: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metric of a trigger that queries Prometheus."""
    if trigger["type"] != "prometheus":
        raise UsageError(f"trigger {trigger['type']}: is not simulated; give prometheus with a metric of the engine")
    values, form = trigger["metadata"], trigger.get("metricType", "AverageValue")
    query, target = re.sub(r"\s+", "", values["query"]), _quantity(values["threshold"])
    if _quantity(values.get("activationThreshold", 0)) != 0:
        raise UsageError(f"activationThreshold: {values['activationThreshold']}: is not simulated; leave it out")
    if match := RATE.fullmatch(query):
        row = {"name": _signal(match[1]), "target": target, "window_s": float(int(match[2]) * SECONDS[match[3]])}
        is_sum = row["name"] == "request-rate"
    elif match := GAUGE.fullmatch(query):
        row, is_sum = {"name": _signal(match[2]), "target": target}, match[1] == "sum"
        if row["name"] == "request-rate":
            raise UsageError(f"query {query}: is a count since the start; give its rate, as in sum(rate(…[1m]))")
    elif match := SUM.fullmatch(query):
        names = {_signal(name) for name in match.groups() if name}
        row, is_sum = {"name": "concurrency", "target": target}, names == {"queue", "running"}
    else:
        is_sum, row = False, {}
    if form not in ("AverageValue", "Value") or not row or is_sum != (form == "AverageValue"):
        raise UsageError(f"query {query} with metricType {form}: is not simulated; give the sum of a gauge, of the "
                         f"running and waiting requests, or of a rate with AverageValue, or a mean with Value")
    return row


def _signals() -> Iterator[tuple[str, str]]:
    for metrics in METRICS:
        yield metrics.waiting, "queue"
        yield metrics.running, "concurrency" if metrics.runs_waiting else "running"
        yield metrics.requests, "request-rate"
        yield from ((name, "kv-cache") for name in metrics.kv_use)


def _signal(name: str) -> str:
    """Return the autoscaler's metric that a series of an engine is.

    >>> _signal("vllm:num_requests_waiting"), _signal("prometheus.googleapis.com|sglang:num_running_reqs|gauge")
    ('queue', 'running')
    """
    known = dict(_signals())
    prefixes = {metrics.prefix for metrics in METRICS}
    bare = name.removeprefix("prometheus.googleapis.com|").partition("|")[0]
    for prefix in prefixes:
        bare = bare.removeprefix(f"{prefix}:").removeprefix(f"{prefix}_")
    if bare not in known or not bare:
        raise UsageError(f"metric {name}: is not simulated; must be one of {', '.join(sorted(filter(None, known)))}")
    return known[bare]


def _behavior(behavior: Mapping[str, Any]) -> dict[str, Any]:
    """Return [up], [down] and the tolerance; a rule that is left out has Kubernetes' default."""
    up, down = behavior.get("scaleUp") or {}, behavior.get("scaleDown") or {}
    tolerances = {_quantity(way.get("tolerance", 0.1)) for way in (up, down)}
    if len(tolerances) > 1:
        raise UsageError("behavior: the tolerances of scaleUp and scaleDown differ: is not simulated; make them equal")
    return {"tolerance": tolerances.pop(), "up": _direction("scaleUp", up, 0),
            "down": _direction("scaleDown", down, 300)}


def _direction(name: str, way: Mapping[str, Any], window_s: int) -> dict[str, Any]:
    policies, choice = way.get("policies") or [], way.get("selectPolicy", "Max")
    table = {"stabilization_window_s": float(way.get("stabilizationWindowSeconds", window_s)), "step_period_s": SYNC_S}
    steps = {"Pods": "max_step", "Percent": "max_step_percent"}
    kinds, periods = [policy["type"] for policy in policies], {policy["periodSeconds"] for policy in policies}
    if len(set(kinds)) < len(kinds) or len(periods) > 1 or choice == "Disabled" or (choice == "Min" and len(kinds) > 1):
        raise UsageError(f"{name}: selectPolicy {choice} of {len(kinds)} policies: is not simulated; give Max, and at "
                         f"most one policy in Pods and one in Percent, with the same periodSeconds")
    for policy in policies:
        table[steps[policy["type"]]] = policy["value"]
    return table | ({"step_period_s": float(periods.pop())} if periods else {})


def _quantity(value: Any) -> float:
    """Return a quantity of Kubernetes as a number.

    >>> _quantity("250m"), _quantity(3), _quantity("1k")
    (0.25, 3.0, 1000.0)
    """
    match = NUMBER.fullmatch(str(value))
    if match is None or not math.isfinite(float(match[1])):
        raise UsageError(f"{value!r}: must be a quantity, as in 250m or 0.25")
    return float(match[1]) / UNITS.get(match[2], 1.0) * FACTORS.get(match[2], 1.0)
