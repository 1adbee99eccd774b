"""Groups of pods by role: JobSets, SGLang's RoleBasedGroups, and AIBrix's StormServices and RoleSets."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.launch.described import Described
from planner.launch.manifests.containers import count_of, title
from planner.launch.manifests.kubernetes import of_pod

ROLES = ("prefill", "decode")


def of_role_group(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of a group; a role named prefill or decode is one, if the group has both."""
    spec = document["spec"]
    groups = count_of(spec.get("replicas"))
    inner = (spec.get("template") or {}).get("spec") or spec
    parts = inner.get("roles") or inner.get("replicatedJobs") or ()
    named = {str(part.get("name")).lower() for part in parts}
    is_apart = all(any(role in each for each in named) for role in ROLES)
    for part in parts:
        role = next((role for role in ROLES if role in str(part.get("name")).lower()), "both") if is_apart else "both"
        group = part.get("leaderWorkerSet") or part.get("leaderWorkerTemplate") or {}
        template = part.get("template") or group.get("leaderTemplate") or {}
        job = (template.get("spec") or {}).get("template")
        place = f"{part.get('name')} of {title(document)}"
        found = of_pod(job if isinstance(job, Mapping) else template, place, replicas=count_of(part.get("replicas")),
                       role=role, nodes=count_of(group.get("size"), count_of(part.get("podGroupSize"))))
        yield from (replace(each, replicas=each.replicas * groups) for each in found)
