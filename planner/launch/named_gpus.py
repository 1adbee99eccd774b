"""GPUs as files and platforms name them: by a product's name, a cloud's type of instance, or a text NAME:COUNT."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from planner.catalog.catalog_files import load_gpu
from planner.catalog.mig import SEPARATOR
from planner.errors import PlannerError
from planner.launch.described import NamedGpu

# Accelerators that are no GPUs, by the words of clouds, schedulers and Kubernetes' resources.
NO_GPUS = tuple((re.compile(pattern, re.IGNORECASE), kind) for pattern, kind in (
    (r"(?:google\.com/|cloud-)?tpu|ct\d\w+-|v[2-7](?:e|p|lite\w*)?(?:-\d+)?$", "a TPU of Google"),
    (r"trn\d|trainium|inf\d|inferentia|(?:aws\.amazon\.com/|aws-)?neuron", "an AWS Trainium or Inferentia"),
    (r"gaudi-?2?$|dl1", "a Gaudi of an earlier generation"), (r"(?:huawei\.com/)?ascend", "an Ascend of Huawei")))
MIG = re.compile(r"(.+)-mig-(\d+g\.\d+gb\S*)")
WORDS = re.compile(r"[\s_.-]+")
# Words that products and labels add to a name that the catalog has without them.
ADDED = ("tesla", "mega", "nvlink", "geforce", "gpu", "hbm3", "hbm3e", "oam", "sxm5", "nvidia", "amd", "instinct")
SHARED = "shared"  # time slices of a GPU, as NVIDIA's device plugin names them
# The A100 and V100 of SkyPilot and Modal; with more memory these name A100-80GB and V100-32GB.
SMALLEST = {"a100": "a100-sxm-40gb", "v100": "v100-sxm-16gb"}
NUMBER = re.compile(r"(\d+)(?:\.\.\d*|\+)?")  # of GPUs; of a range the least
MEMORY = re.compile(r"(\d+)[gt]b(?:\.\.(?:\d+[gt]b)?|\+)?", re.IGNORECASE)  # of a GPU; of a range the least
ANY = ("nvidia", "amd", "google", "intel", "tenstorrent", "any", "gpu")  # vendors, and words for all GPUs
# Sources: the clouds' pages of accelerated instance types (AWS, Google Cloud, Azure, Oracle), 2026-11.
INSTANCES = tuple((re.compile(pattern, re.IGNORECASE), gpu) for pattern, gpu in (
    (r"p3dn(?:\..+)?", "v100-sxm-32gb"), (r"p3(?:\..+)?", "v100-sxm-16gb"), (r"p4d(?:\..+)?", "a100-sxm-40gb"),
    (r"p4de(?:\..+)?", "a100-sxm"), (r"p5(?:\..+)?", "h100-sxm"), (r"p5en?(?:\..+)?", "h200-sxm"),
    (r"p6-b200(?:\..+)?", "b200-sxm"), (r"p6-b300(?:\..+)?", "b300-sxm"), (r"[pu]6e-gb200(?:\..+)?", "gb200"),
    (r"[pu]6e-gb300(?:\..+)?", "gb300"), (r"g4dn(?:\..+)?", "t4"), (r"g5(?:\..+)?", "a10g"),
    (r"gr?6f?(?:\..+)?", "l4"), (r"g6e(?:\..+)?", "l40s"), (r"g7e(?:\..+)?", "rtx-pro-6000"),
    (r"a2-(?:highgpu|megagpu)(?:-.+)?", "a100-sxm-40gb"), (r"a2-ultragpu(?:-.+)?", "a100-sxm"),
    (r"a3-(?:highgpu|megagpu|edgegpu)(?:-.+)?", "h100-sxm"), (r"a3-ultragpu(?:-.+)?", "h200-sxm"),
    (r"a4-highgpu(?:-.+)?", "b200-sxm"), (r"a4x-highgpu(?:-.+)?", "gb200"), (r"a4x-maxgpu(?:-.+)?", "gb300"),
    (r"g2-standard(?:-.+)?", "l4"), (r"g4-standard(?:-.+)?", "rtx-pro-6000"),
    (r"(?:standard_)?nc\d+ads_a100_v4", "a100-pcie"), (r"(?:standard_)?nd96asr(?:_a100)?_v4", "a100-sxm-40gb"),
    (r"(?:standard_)?nd96amsr_a100_v4", "a100-sxm"), (r"(?:standard_)?nd96isr?f?_h100_v5", "h100-sxm"),
    (r"(?:standard_)?ncc?\d+adi?s_h100_v5", "h100-nvl"), (r"(?:standard_)?nd96isr_h200_v5", "h200-sxm"),
    (r"(?:standard_)?nd96isr_mi300x_v5", "mi300x"), (r"(?:standard_)?nd128isr_(?:ndr_)?gb200_v6", "gb200"),
    (r"(?:standard_)?nd128isr_gb300_v6", "gb300"), (r"(?:standard_)?nc\d+as_t4_v3", "t4"),
    (r"(?:standard_)?nv\d+ad[ms]+_a10_v5", "a10"), (r"(?:standard_)?nd40rs_v2", "v100-sxm-32gb"),
    (r"bm\.gpu4\.8", "a100-sxm-40gb"), (r"bm\.gpu\.a100-v2\.8", "a100-sxm"), (r"bm\.gpu\.h100(?:-nc)?\.\d", "h100-sxm"),
    (r"bm\.gpu\.h200(?:-nc)?\.\d", "h200-sxm"), (r"bm\.gpu\.b200(?:-nc)?\.\d", "b200-sxm"),
    (r"bm\.gpu\.gb200\.\d", "gb200"), (r"bm\.gpu\.l40s(?:-nc)?\.\d", "l40s"), (r"[bv]m\.gpu\.a10\.\d", "a10"),
    (r"bm\.gpu\.mi300x\.\d", "mi300x"), (r"bm\.gpu\.mi355x\S*", "mi355x")))
# The number of GPUs by the size of an instance: of AWS by family, of Google Cloud, Oracle and Azure by their names.
COUNTS = tuple((re.compile(pattern, re.IGNORECASE), count) for pattern, count in (
    (r"p5\.4xlarge|p3\.2xlarge", 1), (r"p3\.8xlarge", 4), (r"p(?:3|3dn|4d|4de|5|5en?|6-b\d00)\.\d+xlarge", 8),
    (r"g\w+\.(?:12|24)xlarge", 4), (r"g\w+\.(?:48xlarge|metal)", 8), (r"g\w+\.\d*xlarge", 1),
    (r"g2-standard-24|g4-standard-96", 2), (r"g2-standard-48|g4-standard-192", 4),
    (r"g2-standard-96|g4-standard-384", 8), (r"g[24]-standard-\d+", 1), (r"(?:standard_)?nd96\w+", 8),
    (r"(?:standard_)?nc(?:24ads_a100|40ads_h100)\w+", 1), (r"(?:standard_)?nc(?:48ads_a100|80adis_h100)\w+", 2),
    (r"(?:standard_)?nc96ads_a100\w+", 4)))
NAMED_COUNT = re.compile(r"a\d\w*-\w+-(\d+)g(?:-\w+)?|[bv]m\.gpu\S*\.(\d+)", re.IGNORECASE)


def named_gpu(text: str, names: Mapping[str, str] = MappingProxyType({})) -> NamedGpu:
    """Return a GPU as a file names it, with its name in the catalog.

    Parameters
    ----------
    text : the name, as NVIDIA-H100-80GB-HBM3, or nvidia-tesla-a100.
    names : the catalog's names of GPUs that the source of the text calls otherwise than the catalog, by lower case.

    >>> named_gpu("NVIDIA-H100-80GB-HBM3").gpu, named_gpu("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb").gpu
    ('h100-sxm', 'a100-sxm:1g.10gb')
    >>> named_gpu("tpu-v6e-8").problem
    'a TPU of Google'
    """
    key = text.strip().lower().rstrip("!+")  # Modal's H100! and B200+
    if (kind := next((kind for pattern, kind in NO_GPUS if pattern.match(key)), None)) is not None:
        return NamedGpu(text, problem=kind)
    slice_of = MIG.fullmatch(key)
    key, profile = (slice_of[1], slice_of[2]) if slice_of else (key, "")
    words = [word for word in WORDS.split(key) if word]
    words = [re.sub(r"^(\d+)g$", r"\1gb", word) for word in words if word != SHARED]
    plain = [word for word in words if word not in ADDED]
    for form in (names.get(key), "-".join(words), "-".join(plain)):
        if form and (gpu := loaded(form)) is not None:
            whole = NamedGpu(text, gpu=gpu, is_shared=SHARED in WORDS.split(key))
            return sliced(whole, profile) if profile else whole
    return NamedGpu(text)


def loaded(name: str) -> str | None:
    """Return the catalog's name of a GPU; None if the catalog does not have it."""
    try:
        return load_gpu(name).name
    except PlannerError:
        return None


def sliced(named: NamedGpu, profile: str) -> NamedGpu:
    """Return the MIG slice of a GPU that a file names."""
    if named.gpu is None or SEPARATOR in named.gpu:
        return named
    text = named.text if profile in named.text.lower() else f"{named.text} with MIG {profile}"
    try:
        return NamedGpu(text, gpu=load_gpu(f"{named.gpu}{SEPARATOR}{profile}").name)
    except PlannerError as error:
        return NamedGpu(text, problem=str(error))


def named_instance(text: str) -> NamedGpu:
    """Return the GPU of a cloud's type of instance, as p5.48xlarge."""
    gpu, kind = gpu_of_instance(text), next((kind for pattern, kind in NO_GPUS if pattern.match(text)), None)
    return NamedGpu(text, gpu=gpu, problem="" if gpu else kind or f"an instance type whose GPU is not known: {text}")


def gpu_of_instance(name: str) -> str | None:
    """Return the GPU of a type or a family of instances; None if it is not known.

    >>> gpu_of_instance("p5.48xlarge"), gpu_of_instance("Standard_ND96isr_H100_v5"), gpu_of_instance("m5.large")
    ('h100-sxm', 'h100-sxm', None)
    """
    return next((gpu for pattern, gpu in INSTANCES if pattern.fullmatch(name.strip().removeprefix("ml."))), None)


def gpus_of_instance(name: str) -> int | None:
    """Return the GPUs of a type of instances; None if they are not known [1].

    >>> gpus_of_instance("p5.48xlarge"), gpus_of_instance("a3-highgpu-8g"), gpus_of_instance("g6e.xlarge")
    (8, 8, 1)
    """
    if match := NAMED_COUNT.fullmatch(name):
        return int(match[1] or match[2])
    return next((count for pattern, count in COUNTS if pattern.fullmatch(name)), None)


@dataclass(frozen=True, slots=True)
class GpuOffer:
    """GPUs of a node that a task accepts.

    Parameters
    ----------
    count : of them [1]; None if the task leaves it open.
    names : of one of them; any of these will do.
    """

    count: int | None
    names: tuple[NamedGpu, ...] = ()


def offer_of(text: str, names: Mapping[str, str] = MappingProxyType({})) -> GpuOffer:
    """Return the GPUs of a text: vendor, names, memory and count between colons, of which each may be missing.

    Parameters
    ----------
    names : as of `named_gpu`.

    >>> offer_of("L40S:4").count, [named.gpu for named in offer_of("A100,H100:80GB:2").names]
    (4, ['a100-sxm', 'h100-sxm'])
    """
    parts = [part.strip() for part in text.split(":") if part.strip() and part.strip().lower() not in ANY]
    count = next((int(match[1]) for part in reversed(parts) if (match := NUMBER.fullmatch(part))),
                 None if "$" in text else 1)
    memory = next((f"-{match[1]}gb" for part in parts if (match := MEMORY.fullmatch(part))), "")
    named = next((part.split(",") for part in parts if not NUMBER.fullmatch(part) and not MEMORY.fullmatch(part)), [])
    return GpuOffer(count, tuple(_with_memory(name.strip(), memory, text, names) for name in named))


def _with_memory(name: str, memory: str, text: str, names: Mapping[str, str]) -> NamedGpu:
    """Return a GPU by its name and its memory, if there is one of the name with that memory."""
    sized = named_gpu(f"{name}{memory}", names)
    return replace(named_gpu(name, names) if sized.gpu is None else sized, text=text)


def texts_of(value: Any) -> list[str]:
    """Return GPUs as texts NAME:COUNT: of one text, a list, a set, a table by name, or dstack's table.

    YAML reads `{H100:8}` as a table with the key H100:8 and no value.

    >>> texts_of({"L40S:2": None, "H100": 1}), texts_of({"name": ["A100", "H100"], "memory": "80GB", "count": 2})
    (['L40S:2', 'H100:1'], ['A100,H100:80GB:2'])
    """
    if isinstance(value, Mapping) and {"name", "count", "memory", "vendor"} & {*map(str, value)}:
        names = value.get("name", value.get("vendor"))
        names = ",".join(map(str, names)) if isinstance(names, list) else names
        parts = (names, value.get("memory"), value.get("count"))
        return [":".join(str(part) for part in parts if part is not None)]
    if isinstance(value, Mapping):
        return [str(name) if count is None else f"{name}:{count}" for name, count in value.items()]
    return [str(each) for each in value] if isinstance(value, list | set | tuple) else [str(value)]
