"""GPUs that a launch's file names, as the catalog names them, and the choice among the GPUs that it offers."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from planner.catalog.catalog_files import gpu_names, load_gpu
from planner.catalog.mig import SEPARATOR
from planner.errors import PlannerError, UnknownNameError, UsageError
from planner.launch.described import Described, NamedGpu
from planner.launch.instance_types import gpu_of_instance

# Accelerators that are no GPUs, by the words of clouds, schedulers and Kubernetes' resources.
NO_GPUS = tuple((re.compile(pattern, re.IGNORECASE), kind) for pattern, kind in (
    (r"(?:google\.com/|cloud-)?tpu|ct\d\w+-|v[2-7](?:e|p|lite\w*)?(?:-\d+)?$", "a TPU of Google"),
    (r"trn\d|trainium|inf\d|inferentia|(?:aws\.amazon\.com/|aws-)?neuron", "an AWS Trainium or Inferentia"),
    (r"gaudi-?2?$|dl1", "a Gaudi of an earlier generation"), (r"(?:huawei\.com/)?ascend", "an Ascend of Huawei")))
MIG = re.compile(r"(.+)-mig-(\d+g\.\d+gb\S*)")
WORDS = re.compile(r"[\s_.-]+")
# Words that products and labels add to a name that the catalog has without them.
ADDED = ("tesla", "mega", "nvlink", "geforce", "gpu", "hbm3", "hbm3e", "oam", "sxm5", "nvidia", "amd", "instinct")
COUNT = re.compile(r":\d+$")  # of GPUs, behind the name
CHIP = re.compile(r"(?:[a-z]+-)*?[a-z]*\d+[a-z]*")
SHARED = "shared"  # time slices of a GPU, as NVIDIA's device plugin names them


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
        if form and (gpu := _loaded(form)) is not None:
            whole = NamedGpu(text, gpu=gpu, is_shared=SHARED in WORDS.split(key))
            return sliced(whole, profile) if profile else whole
    return NamedGpu(text)


def _loaded(name: str) -> str | None:
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


def on_gpu(source: Described, gpu: str | None) -> Described:
    """Return an engine on the GPU that is given, or that its file names.

    Parameters
    ----------
    source : with the GPUs that it may run on, and its alternatives.
    gpu : given beside the launch, one or several separated by commas; it outranks the file's. None if none is.

    Raises
    ------
    UsageError : the file offers several GPUs, or names an accelerator that the catalog does not have.
    """
    offers = [(engine, named) for engine in (source, *source.alternatives) for named in engine.gpu_names]
    if not offers:
        return source
    wanted = set() if gpu is None else names_in(gpu)
    chosen = [offer for offer in offers if offer[1].gpu in wanted] or [
        offer for offer in offers if offer[1].gpu and _chip(offer[1].gpu) in map(_chip, wanted)] or offers
    engine, named = chosen[0]
    listed = ", ".join(dict.fromkeys(f"{name.text} ({name.gpu})" if name.gpu else name.text for _, name in offers))
    if len({(*each.words, None if gpu else name.gpu or name.text) for each, name in chosen}) > 1:
        raise UsageError(f"--from-command: {source.place} offers several kinds of GPUs: {listed}; choose one "
                         f"with --gpu{', or give the command with its number of GPUs' if gpu else ''}")
    if gpu is None and named.gpu is None:
        name = COUNT.sub("", named.text.rpartition(": ")[2])
        raise UsageError(f"--from-command: {source.place} names its accelerator ({named.text}); give --gpu for a "
                         f"prediction on a GPU of the catalog: "
                         f"{named.problem or UnknownNameError('GPU', name, gpu_names())}")
    notes, options = list(engine.notes), dict(engine.options)
    if gpu is None:
        notes.append(f"names its GPU ({named.text}); {named.gpu} is predicted, and --gpu replaces it")
        options["gpu"] = named.gpu
    elif named.gpu not in wanted:
        texts = ", ".join(dict.fromkeys(name.text for _, name in chosen))
        notes.append(f"names its GPU ({texts}), and --gpu {gpu} replaces it")
    if named.is_shared:
        notes.append("shares its GPU with other pods; their load is not modelled")
    return replace(engine, replicas=source.replicas, options=options, notes=tuple(notes))


def _chip(gpu: str) -> str:
    """Return the chip of a GPU without its form and memory, as h100 of h100-sxm."""
    match = CHIP.match(gpu)
    return match[0] if match else gpu


def names_in(gpu: str) -> set[str]:
    """Return the catalog's names of GPUs that are given, one or several separated by commas."""
    return {_loaded(name) or name for name in gpu.split(",")}


def of_gpu(launches: Iterable[Described], gpu: str | None) -> list[Described]:
    """Return the engines that a file puts on a GPU; all of them if none is put there."""
    launches = list(launches)
    wanted = set() if gpu is None else names_in(gpu)
    return [launch for launch in launches if any(named.gpu in wanted for named in launch.gpu_names)] or launches
