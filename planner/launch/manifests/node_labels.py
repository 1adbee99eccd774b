"""The GPU that a pod asks for: labels of the nodes that it selects, and its resources."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.launch.described import NamedGpu
from planner.launch.manifests.document_values import at
from planner.launch.named_gpus import NO_GPUS, named_gpu, named_instance, sliced

OF_GKE = {"nvidia-tesla-a100": "a100-sxm-40gb", "nvidia-tesla-v100": "v100-sxm-16gb"}
OF_AWS = {"v100": "v100-sxm-16gb"}
MEMORY = "karpenter.k8s.aws/instance-gpu-memory"  # MiB
# Labels whose value is a product's name, and labels whose value is an instance's type or family.
PRODUCTS = re.compile(r"(?:nvidia\.com/gpu\.product|(?:beta\.)?amd\.com/gpu\.product-name"
                      r"|gpu\.nvidia\.com/(?:model|class)|cloud\.google\.com/gke-(?:tpu-)?accelerator|k8s\.amazonaws\.com/accelerator"
                      r"|(?:karpenter\.k8s|eks\.amazonaws)\.(?:aws|com)/instance-(?:gpu|accelerator)-name"
                      r"|karpenter\.azure\.com/sku-gpu-name|aliyun\.accelerator/nvidia_name)")
INSTANCES = re.compile(r"(?:(?:beta|node)\.kubernetes\.io/instance-type|(?:karpenter\.k8s\.aws|eks\.amazonaws\.com)/"
                       r"instance-(?:family|type)|karpenter\.azure\.com/sku-name)")
OTHERS = re.compile(r"gpu|accelerator", re.IGNORECASE)  # labels of a cluster's own, whose value may be a GPU
POOLS = ("NodePool", "Provisioner", "ResourceFlavor", "ComputeClass")
MIG = re.compile(r"nvidia\.com/mig-(\d+g\.\d+gb\S*)")
Names = tuple[NamedGpu, ...]


def gpus_named(pod: Mapping[str, Any]) -> Names:
    """Return the GPUs that a pod's node may have, by its nodeSelector and its affinity; none if these name none.

    Parameters
    ----------
    pod : its specification, or another mapping with `nodeSelector`, `affinity`, or `nodeSelectorTerms`.
    """
    selector = pod.get("nodeSelector")
    selected = [(str(key), [str(value)]) for key, value in selector.items()] if isinstance(selector, Mapping) else []
    affinity = at(pod, "affinity.nodeAffinity")
    required = at(affinity, "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms")
    preferred = at(affinity, "preferredDuringSchedulingIgnoredDuringExecution") or ()
    terms = [*(required or ()), *(pod.get("nodeSelectorTerms") or ())]
    names = _union(_all_of([*selected, *_expressions(term)]) for term in terms or [{}])
    return names or _union(_all_of(_expressions(each.get("preference") or {})) for each in preferred)


def gpus_of_pools(documents: Iterable[Mapping[str, Any]]) -> Names:
    """Return the GPUs of the nodes that a file describes: Karpenter's NodePools, Kueue's flavors, GKE's classes."""
    names: Names = ()
    for document in documents:
        spec = document.get("spec") if document.get("kind") in POOLS else None
        if not isinstance(spec, Mapping):
            continue
        inner = at(spec, "template.spec|")
        terms = [{"matchExpressions": inner.get("requirements") or ()}]
        kinds = [kind for each in spec.get("priorities") or () if (kind := at(each, "gpu.type")) is not None]
        nodes = {"nodeSelector": spec.get("nodeLabels"), "nodeSelectorTerms": terms}
        names = _union((names, gpus_named(nodes), (named_gpu(str(kind), OF_GKE) for kind in kinds)))
    return names


def _expressions(term: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the labels that a term requires, each with the values of which one must be."""
    return [(str(each.get("key")), [str(value) for value in each.get("values") or ()])
            for each in term.get("matchExpressions") or () if str(each.get("operator", "In")) == "In"]


def _all_of(labels: Sequence[tuple[str, list[str]]]) -> Names:
    """Return the GPUs that all labels of a node allow; if labels contradict each other, the GPUs of each label."""
    values = dict(labels)
    names: Names = ()
    for key, texts in labels:
        allowed = _union(_of_label(key, text, values) for text in texts)
        if any(named.gpu is not None for named in allowed) and any(named.gpu is not None for named in names):
            both = {named.gpu for named in names} & {named.gpu for named in allowed}
            names = tuple(named for named in names if named.gpu in both) or _union((names, allowed))
        elif not names or any(named.gpu is not None for named in allowed):
            names = allowed or names
    return names


def _of_label(key: str, text: str, values: Mapping[str, list[str]]) -> Names:
    """Return the GPUs that a label names; none if it names something else."""
    label = f"{key}: {text}"
    if INSTANCES.fullmatch(key):
        names: Names = (named_instance(text),)
    elif PRODUCTS.fullmatch(key):
        names = _of_product(key, text, values)
    elif OTHERS.search(key) and not text.isdigit():
        names = tuple(named for named in (named_gpu(text),) if named.gpu or named.problem)
    else:
        names = ()
    return tuple(replace(named, text=label) for named in names)


def _of_product(key: str, text: str, values: Mapping[str, list[str]]) -> Names:
    """Return the GPUs of a product's name; AWS' A100 has 40 or 80 GB, which the label of its memory says."""
    if "instance-gpu-name" in key and text.lower() == "a100":
        gib = {"40960": ("a100-40gb",), "81920": ("a100-80gb",)}
        memories = [form for value in values.get(MEMORY, ()) for form in gib.get(value, ())]
        return tuple(map(named_gpu, memories or ("a100-40gb", "a100-80gb")))
    return (named_gpu(text, OF_GKE if "gke" in key else OF_AWS if "aws" in key else {}),)


def _union(parts: Iterable[Iterable[NamedGpu]]) -> Names:
    return tuple(dict.fromkeys(named for part in parts for named in part))


def of_resources(names: Names, resources: Any) -> Names:
    """Return the GPUs that a container may run on: a node's, their MIG slices, or an accelerator that is no GPU.

    Parameters
    ----------
    names : of the node's GPUs.
    resources : of the container.
    """
    keys = [str(key) for kind in ("limits", "requests") if isinstance(resources, Mapping)
            and isinstance(part := resources.get(kind), Mapping) for key in part]
    profile = next((match[1] for key in keys if (match := MIG.fullmatch(key))), None)
    other = next(((key, kind) for key in keys for pattern, kind in NO_GPUS if "/" in key and pattern.match(key)), None)
    if other is not None:
        return tuple(named for named in names if named.problem) or (NamedGpu(other[0], problem=other[1]),)
    if profile is None:
        return names
    unnamed = NamedGpu(f"MIG {profile}", problem="a slice of a GPU that the file does not name")
    return tuple(sliced(named, profile) for named in names) or (unnamed,)
