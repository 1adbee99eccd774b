"""Files beside a watch: an alert rule for Prometheus and a dashboard for Grafana, over the watch's own metrics."""

from collections.abc import Mapping

import yaml

from planner.planning.watch_answer import CAUSES
from planner.results.saved import to_json

MEASURED, PREDICTED, DRIFT = "planner_watch_measured", "planner_watch_predicted", "planner_watch_drift"
REPLICAS, ENDED = "planner_watch_replicas", "planner_watch_interval_end_seconds"
ADVICE: Mapping[str, str] = {
    "traffic": "The traffic differs from the plan's trace. Size again with the measured traffic.",
    "server": "The server is slower than a replay at the measured traffic. Look for throttling, noisy neighbours or "
              "another release.",
    "plan": "The deployment differs from the plan's. Restore it, or plan again.",
    "objective": "The server misses an objective of the plan."}
QUANTITIES = (("Rate", "requests/s", "request_rate"), ("Prompt tokens", "tokens", "mean_input_tokens"),
              ("Output tokens", "tokens", "mean_output_tokens"), ("Prefix hits", "share", "cached_share"),
              ("Mean TTFT", "ms", "mean_ttft_ms"), ("Mean TPOT", "ms", "mean_tpot_ms"),
              ("Running requests", "requests", "running"), ("Waiting requests", "requests", "waiting"),
              ("KV cache in use", "share", "kv_use"))


def alert_rules() -> str:
    """Return Prometheus rules that fire on confirmed drift, and if the watch is down."""
    rules = [{"alert": f"Planner{cause.capitalize()}Drift", "expr": f'max({DRIFT}{{cause="{cause}"}}) > 0',
              "labels": {"severity": "warning"},
              "annotations": {"summary": f"Confirmed {cause} drift from the serving plan",
                              "description": ADVICE[cause]}} for cause in CAUSES]
    rules.append({"alert": "PlannerWatchDown", "expr": f"absent({ENDED}) or time() - max({ENDED}) > 900", "for": "15m",
                  "labels": {"severity": "warning"},
                  "annotations": {"summary": "planner watch has had no values for 15 minutes",
                                  "description": "Start planner watch again, or mend its access to the metrics."}})
    return str(yaml.safe_dump({"groups": [{"name": "planner-watch", "rules": rules}]}, sort_keys=False, width=120))


def grafana_dashboard() -> str:
    """Return a dashboard with the drift, and each quantity measured and predicted, for Grafana's import."""
    source = {"type": "prometheus", "uid": "${source}"}

    def panel(number: int, title: str, unit: str, queries: list[tuple[str, str]], kind: str = "timeseries") -> object:
        place = {"h": 8, "w": 8, "x": 8 * (number % 3), "y": 8 * (number // 3)}
        targets = [{"refId": "ABC"[k], "expr": expression, "legendFormat": legend, "datasource": source}
                   for k, (expression, legend) in enumerate(queries)]
        return {"id": number + 1, "type": kind, "title": title, "gridPos": place, "datasource": source,
                "targets": targets, "fieldConfig": {"defaults": {"unit": {"ms": "ms", "share": "percentunit"}.get(
                    unit, "short")}, "overrides": []}, "options": {}}

    panels = [panel(0, "Drift", "", [(f"max by (cause) ({DRIFT})", "{{cause}}")], "stat"),
              panel(1, "Replicas", "", [(REPLICAS, "{{of}}")], "stat")]
    for title, unit, name in QUANTITIES:
        label = f'{{quantity="{name}"}}'
        panels.append(panel(len(panels) + 1, f"{title} [{unit}]", unit, [
            (f"{MEASURED}{label}", "measured"), (f"{PREDICTED}{label}", "{{of}}")]))
    return to_json({
        "title": "Serving plan", "uid": "planner-watch", "schemaVersion": 39, "editable": True, "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"}, "panels": panels, "tags": ["planner"],
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"}]}})


FILES = {"rules": ("planner-watch.rules.yml", alert_rules), "dashboard": ("planner-watch.json", grafana_dashboard)}
