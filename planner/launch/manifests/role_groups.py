"""Groups of pods by role: JobSets, SGLang's RoleBasedGroups, and AIBrix's StormServices and RoleSets."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.launch.described import Described
from planner.launch.manifests.containers import count_of
from planner.launch.manifests.kubernetes import of_pod

KINDS = ("JobSet", "RoleBasedGroup", "StormService", "RoleSet")
ROLES = ("prefill", "decode")


def is_role_group(document: Mapping[str, Any]) -> bool:
    """Tell whether a document is a group of pods by role."""
    return document.get("kind") in KINDS and isinstance(document.get("spec"), Mapping)


def of_role_group(document: Mapping[str, Any]) -> Iterator[Described]:
    """Yield the engines of a group; a role named prefill or decode is one, if the group has both."""
    spec, name = document["spec"], (document.get("metadata") or {}).get("name", "")
    groups = count_of(spec.get("replicas"))
    inner = (spec.get("template") or {}).get("spec") or spec
    parts = inner.get("roles") or inner.get("replicatedJobs") or ()
    named = {str(part.get("name")).lower() for part in parts}
    is_apart = all(any(role in each for each in named) for role in ROLES)
    for part in parts:
        title = str(part.get("name"))
        role = next((role for role in ROLES if role in title.lower()), "both") if is_apart else "both"
        group = part.get("leaderWorkerSet") or part.get("leaderWorkerTemplate") or {}
        template = part.get("template") or group.get("leaderTemplate") or {}
        job = (template.get("spec") or {}).get("template")
        place = f"{title} of {document['kind']} {name}".strip()
        found = of_pod(job if isinstance(job, Mapping) else template, place, replicas=count_of(part.get("replicas")),
                       role=role, nodes=count_of(group.get("size"), count_of(part.get("podGroupSize"))))
        yield from (replace(each, replicas=each.replicas * groups) for each in found)
