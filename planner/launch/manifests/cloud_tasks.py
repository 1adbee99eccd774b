"""Tasks of SkyPilot and services of dstack: commands of a shell on GPUs that a cloud is asked for."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.launch.described import Described
from planner.launch.manifests.containers import Around, count_of, engines_of, environment_of, text_of
from planner.launch.scripts.python_engines import stated

COUNT = re.compile(r".*:(\d+)")  # of H100:8


def is_cloud_task(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is a task of SkyPilot or a service of dstack."""
    return "kind" not in document and (isinstance(document.get("run"), str) or (
        document.get("type") in ("service", "task") and isinstance(document.get("commands"), list)))


def of_cloud_task(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines that a task launches on each node, with the variables that its cloud sets."""
    resources = document.get("resources") or {}
    nodes = count_of(document.get("num_nodes", document.get("nodes")))
    gpus = _gpus(resources.get("accelerators", resources.get("gpu")))
    service = document.get("service") or {}
    policy = service.get("replica_policy") or {}
    own = document.get("replicas", service.get("replicas", policy.get("min_replicas")))
    least, _, most = str(1 if own is None else own).partition("..")  # dstack's 1..4
    most = most or str(policy.get("max_replicas", least))
    notes = () if most in ("", least) else (f"scales from {least} to {most} replicas; {max(count_of(least), 1)} are "
                                            f"predicted, and --autoscale replays a scaler",)
    variables = {} if gpus is None else {"SKYPILOT_NUM_GPUS_PER_NODE": str(gpus), "DSTACK_GPUS_NUM": str(gpus * nodes),
                                         "DSTACK_GPUS_PER_NODE": str(gpus)}
    variables |= {"SKYPILOT_NUM_NODES": str(nodes), "SKYPILOT_NODE_RANK": "0", "DSTACK_NODES_NUM": str(nodes),
                  "DSTACK_NODE_RANK": "0"}
    script = document.get("run") or "\n".join(map(str, document.get("commands") or ()))
    image = text_of(document.get("image", resources.get("image_id")))
    environment = {**environment_of(document.get("envs")), **environment_of(document.get("env"))}
    container = {"image": None if image is None else image.removeprefix("docker:"), "env": environment,
                 "resources": {"limits": {"gpu": gpus}}}
    around = Around(place="the task", replicas=max(count_of(least), 1), nodes=nodes)
    for engine in engines_of(container, around, command=["sh", "-c", script], variables=variables):
        kept = {name: value for name, value in engine.variables.items() if name not in variables}
        yield replace(engine, notes=(*engine.notes, *notes), variables=kept,
                      options={**stated([document.get("setup")]), **engine.options})


def _gpus(value: Any) -> int | None:
    """Return the GPUs of a node, None if a task leaves it open: `H100:8`, `{H100: 8}`, one of several, or a size."""
    if isinstance(value, Mapping):
        counts = {count_of(count) for count in ([value["count"]] if "count" in value else value.values())}
    else:
        texts = value if isinstance(value, list) else [value]
        counts = {count_of(match[1]) if (match := COUNT.fullmatch(str(text))) else 1 for text in texts
                  if text is not None}
    return counts.pop() if len(counts) == 1 else None
