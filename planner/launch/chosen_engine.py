"""The engine of a file that is asked for, among several: by its role, its GPU, or its number."""

import re
from collections.abc import Sequence
from dataclasses import replace

from planner.catalog.catalog_files import gpu_names
from planner.engines import ENGINES
from planner.errors import UnknownNameError, UsageError
from planner.launch.beginnings import launched
from planner.launch.described import Described
from planner.launch.flag_names import flags_in, normal
from planner.launch.named_gpus import loaded
from planner.launch.take_flags import REMEDY, ROLES

OF_A_REPLICA = ("--port", "--host", "--node-rank", "--data-parallel-rank", "--base-gpu-id", "--dist-init-addr",
                "--served-model-name", "--nccl-port")
TEXT = "the text"  # a source that is no file
COUNT = re.compile(r":\d+$")  # of GPUs, behind the name
CHIP = re.compile(r"(?:[a-z]+-)*?[a-z]*\d+[a-z]*")


def _role_of(launch: Described) -> str:
    """Return the role that the flags of a command give its engine."""
    beginning = launched(launch.words)
    dialect = ENGINES[beginning.engine].dialect
    for flag, value in flags_in(beginning.engine, beginning.arguments):
        said = str(value).lower()
        if role := dialect.role_switches.get(normal(flag)) or dialect.roles.get(normal(flag), {}).get(said):
            return role
        if normal(flag) in dialect.connectors and (role := next((ROLES[word] for word in ROLES if word in said), None)):
            return role
    return "both"


def _with_roles(launches: Sequence[Described]) -> Sequence[Described]:
    """Return the engines of a file with the roles that their files or flags give them.

    Beside prefill, an engine without a role has the other, as Dynamo's default is.
    """
    launches = [launch if launch.role != "both" else replace(launch, role=_role_of(launch)) for launch in launches]
    roles = {launch.role for launch in launches}
    if len(roles) != 2 or "both" not in roles:
        return launches
    other = "decode" if "prefill" in roles else "prefill"
    return [replace(launch, role=other) if launch.role == "both" else launch for launch in launches]


def chosen(source: str, launches: Sequence[Described], role: str, gpu: str | None, number: int | None = None
            ) -> Described:
    """Return the engine of a file that is asked for, with the replicas of all that are equal to it.

    Parameters
    ----------
    number : of the engine, among the engines that differ; None if none is asked for [1].
    """
    launches = _with_roles(launches)
    kinds = list(dict.fromkeys(_deployment(each, any_gpu=False) for each in launches))
    if number is not None and not 1 <= number <= len(kinds):
        raise UsageError(f"--from-command {source}#{number}: {source} launches {len(kinds)} different engines; give a "
                         f"number from 1 to {len(kinds)}")
    if number is not None:
        launches = [each for each in launches if _deployment(each, any_gpu=False) == kinds[number - 1]]
    of_role: Sequence[Described] = [each for each in launches if each.role == role] or [
        each for each in launches if role == "both" or each.role == "both"]
    if not of_role:
        raise UsageError(f"--from-command {source}: has no engine for {role}, only for {launches[0].role} "
                         f"({launches[0].place}); give the file that has one")
    of_role = _of_gpu(of_role, gpu)
    first, any_gpu = of_role[0], gpu is not None
    if role == "both" and len({each.role for each in of_role}) > 1:
        raise UsageError(f"--from-command {source}: launches separate engines for prefill and decode "
                         f"({', '.join(each.place for each in of_role)}); {REMEDY}")
    if all(_deployment(each, any_gpu) == _deployment(first, any_gpu) for each in of_role):
        return replace(first, replicas=sum(each.replicas for each in of_role))
    numbers = {kinds.index(_deployment(each, any_gpu=False)) + 1: each.place for each in reversed(of_role)}
    places = ", ".join(f"#{one}: {place}" for one, place in sorted(numbers.items()))
    remedy = "choose one with --gpu" if all(
        _deployment(each, True) == _deployment(first, True) for each in of_role) else (
        f"give {'the command of one of them' if source == TEXT else f'{source}#1 for #1'}, or each to a [[pool]] of a "
        f"fleet's file as its from_command")
    raise UsageError(f"--from-command {source}: launches several engines that differ ({places}); {remedy}")


def _deployment(launch: Described, any_gpu: bool) -> tuple[str, ...]:
    """Return the words that identify a deployment: its launch without flags that differ between equal replicas.

    Parameters
    ----------
    any_gpu : whether deployments on different GPUs are equal.
    """
    beginning = launched(launch.words)
    flags = (f"{flag}={value}" for flag, value in flags_in(beginning.engine, beginning.arguments)
             if normal(flag) not in OF_A_REPLICA)
    texts = (launch.files.get(word, "") for word in launch.words)
    names = () if any_gpu else (str(named.gpu or named.text) for named in launch.gpu_names)
    options = (f"{name}={value}" for name, value in launch.options.items())
    return (beginning.engine, launch.role, *flags, *texts, *names, *options)


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
    wanted = set() if gpu is None else _names_in(gpu)
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


def _names_in(gpu: str) -> set[str]:
    """Return the catalog's names of GPUs that are given, one or several separated by commas."""
    return {loaded(name) or name for name in gpu.split(",")}


def _of_gpu(launches: Sequence[Described], gpu: str | None) -> Sequence[Described]:
    """Return the engines that a file puts on a GPU; all of them if none is put there."""
    wanted = set() if gpu is None else _names_in(gpu)
    return [launch for launch in launches if any(named.gpu in wanted for named in launch.gpu_names)] or launches
