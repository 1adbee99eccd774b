"""Flags and variables taken over into the settings of a launch: options, or lists by their effect on a prediction."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.engines import ENGINES
from planner.engines.dialect import Dialect, Flag, Switch, Tree
from planner.engines.values import number, table, truth, whole
from planner.errors import UsageError
from planner.launch.flag_names import Named, find_flag

REMEDY = ('give the commands of both roles to a fleet\'s file: from_command of a [[pool]] with role = "prefill", and '
          'of another with role = "decode"')
LEVELS = ("0", "1", "2", "3")
SECRET = ("key", "token", "password", "secret")  # words of flags
# Names in vllm/distributed/kv_transfer/kv_connector/factory.py, and older ones.
OF_TIERS = ("LMCacheConnectorV1", "LMCacheConnector", "LMCacheMPConnector", "OffloadingConnector",
            "SimpleCPUOffloadConnector", "MooncakeStoreConnector", "FlexKVConnectorV1", "HF3FSKVConnector",
            "HiSparseConnector", "SharedStorageConnector", "ExampleConnector", "AscendStoreConnector")
OF_NOTHING = ("DecodeBenchConnector", "ExampleHiddenStatesConnector")
OF_LMCACHE = ("LMCacheConnectorV1", "LMCacheConnector")
ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}
KEEPS = ("keeps KV in a tier whose size is not in the command; --kv-offloading-size (host memory) and "
         "--kv-remote-size (a store that replicas share, or with --kv-remote-scope replica a disk) replay one")


@dataclass(slots=True)
class Taken:
    """The settings of a launch.

    Parameters
    ----------
    engine : that it launches.
    role : of the engine in a fleet: prefill, decode, or both.
    found : options of `Scenario` by name, and values that are settled with others later.
    no_effect : flags that set none and have no effect on a prediction, as they were written; of variables their names.
    unmodelled : flags that would change the answer, each with its effect.
    unknown : flags that are not the engine's.
    written : values of options as the flags have them, by name.
    """

    engine: str
    role: str = "both"
    found: dict[str, Any] = field(default_factory=dict)
    no_effect: list[str] = field(default_factory=list)
    unmodelled: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.found["engine"] = self.engine

    @property
    def dialect(self) -> Dialect:
        """Return the engine's flags."""
        return ENGINES[self.engine].dialect

    def ignore(self, *options: str) -> None:
        """List options that have no effect beside the others as flags, and leave them out."""
        self.no_effect += [f"--{name.replace('_', '-')} {self.found.pop(name)}"
                           for name in options if name in self.found]


def take_variable(taken: Taken, name: str, value: str) -> None:
    """Take a variable of the environment over; without an option it is listed by name, as its value may be secret."""
    if (flag := taken.dialect.variables.get(name)) is not None:
        taken.found[flag.option] = flag.read(name, value)
        return
    known = ((group, each) for group in taken.dialect.unmodelled_variables for each in group.flags)
    effect = next((group.effect for group, each in known if name in each.names and group.applies(each, value)), None)
    if effect is None:
        taken.no_effect.append(name)
    else:
        taken.unmodelled.append((name, effect))


def take_flag(taken: Taken, flag: str, value: Any, *, is_typed: bool = True) -> None:
    """Take a flag or the key of a file over.

    Parameters
    ----------
    value : None is a flag without one.
    is_typed : False for a log, because all flags in a log are the server's own.

    Raises
    ------
    UsageError : the value is wrong, or the flag makes a prediction meaningless.
    """
    try:
        named = find_flag(taken.engine, flag)
    except UsageError:
        if is_typed:
            raise
        named = None
    if named is None:
        taken.unknown.append(_written(flag, value))
    elif named.name in taken.dialect.roles:
        _take_role(taken, flag, taken.dialect.roles[named.name].get(str(value).lower()))
    elif named.name in taken.dialect.role_switches:
        _take_role(taken, flag, None if named.is_negated else taken.dialect.role_switches[named.name])
    elif named.name in taken.dialect.connectors:
        _take_connector(taken, flag, value)
    elif not _take_special(taken, named, flag, value):
        _take_entry(taken, named, flag, value)


def _take_special(taken: Taken, named: Named, flag: str, value: Any) -> bool:
    """Take over a flag of the model, or one that is settled with other flags; tell whether it was such a flag."""
    dialect, name = taken.dialect, named.name
    if name in dialect.model:
        taken.found["model"] = str(value)
    elif name in dialect.experts:
        taken.found["experts"] = whole(flag, value)
    elif name in dialect.kv_tokens:
        taken.found["kv_tokens"] = None if value is None else dialect.read_kv_tokens(flag, value)
    elif dialect.tier is not None and name == dialect.tier.size:
        taken.found["host_bytes"] = number(flag, value or 0) * dialect.tier.unit_bytes
    else:
        return False
    return True


def _take_entry(taken: Taken, named: Named, flag: str, value: Any) -> None:
    entry = _entry(taken, named)
    if entry is None:
        _leave(taken, named, flag, value)
    elif isinstance(entry, Tree):
        if str(value) in LEVELS and _entry_of_level(taken, named):
            take_flag(taken, f"{flag}.level", value)
            return
        for key, part in ({} if value is None else table(flag, value)).items():
            take_flag(taken, f"{flag}.{key}", part)
    elif isinstance(entry, Switch):
        is_on = (value is None or truth(flag, value)) != named.is_negated
        chosen = entry.value if is_on else entry.otherwise
        if chosen is not None:
            taken.found[entry.option] = chosen
    elif value is None:
        raise UsageError(f"--from-command: {flag} lacks its value")
    else:
        taken.found[entry.option] = entry.read(flag, value)
        taken.written[entry.option] = str(value)


def _entry_of_level(taken: Taken, named: Named) -> bool:
    """Tell whether a table may be a level alone, as vLLM's compilation config in releases before 0.11."""
    return taken.dialect.table.effect_of(f"{named.name}.level") is not None


def _entry(taken: Taken, named: Named) -> Flag | Switch | Tree | None:
    entries = (*taken.dialect.entries, *taken.dialect.file_entries)
    return next((entry for entry in entries if named.name in entry.names), None)


def _leave(taken: Taken, named: Named, flag: str, value: Any) -> None:
    """List a flag that sets no option by its effect, or refuse it."""
    written, head = _written(flag, value), named.name.partition(".")[0]
    name = named.name
    table = taken.dialect.table
    groups = list(table.effects_of(name)) or list(table.effects_of(head))
    if groups:
        group = next((each for each, known in groups if each.applies(known, value)), None)
        if named.is_negated or group is None:
            taken.no_effect.append(written)
        elif group.is_refused:
            raise UsageError(f"--from-command: {written}: {group.effect}; leave it out for a prediction without it")
        else:
            taken.unmodelled.append((written, group.effect))
    elif name != head and not any(name in known.names for known in taken.dialect.table.known()):
        trees = [entry for entry in taken.dialect.entries + taken.dialect.file_entries if isinstance(entry, Tree)]
        effect = next((tree.effect for tree in trees if head in tree.names), None)
        taken.unmodelled.append((written, effect)) if effect else taken.no_effect.append(written)
    else:
        taken.no_effect.append(written)


def _written(flag: str, value: Any) -> str:
    """Return a flag as it was written; without a value that may be secret, or a table."""
    if value is None or isinstance(value, dict) or any(word in SECRET for word in flag.lower().split("-")):
        return flag
    return f"{flag} {' '.join(map(str, value)) if isinstance(value, list) else value}"


def _take_role(taken: Taken, flag: str, role: str | None) -> None:
    """Check a role that a flag gives an engine against the pool that it is in; None is no role.

    Raises
    ------
    UsageError : the engine is to serve requests whole, or has the other role.
    """
    if role is None or taken.role == role:
        return
    if taken.role == "both":
        raise UsageError(f"--from-command: {flag} makes the engine a part of a deployment with separate prefill and "
                         f"decode, and one engine for both is predicted; {REMEDY}")
    raise UsageError(f"--from-command: {flag} makes the engine one for {role}, and its pool has role = "
                     f"{taken.role!r}; give the command to the other pool")


def _take_connector(taken: Taken, flag: str, value: Any) -> None:
    """Take a connector over: a tier's size, or the role that it gives the engine.

    Raises
    ------
    UsageError : the connector sends KV to another engine, and the engine is not in a pool with a role.
    """
    if value is None or str(value).lower() in ("none", "null", "{}"):
        return
    for config in _connectors(table(flag, value)):
        name, role = config.get("kv_connector"), ROLES.get(str(config.get("kv_role")))
        if name in OF_NOTHING:
            taken.no_effect.append(f"{flag} {name}")
        elif name in OF_TIERS and role is None:
            _take_tier(taken, flag, str(name), config.get("kv_connector_extra_config") or {})
        elif role is not None or taken.role == "both":
            _take_role(taken, flag, role or "prefill")


def _connectors(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a connector, or the connectors that a MultiConnector joins."""
    extra = config.get("kv_connector_extra_config")
    parts = extra.get("connectors") if isinstance(extra, dict) else None
    if config.get("kv_connector") != "MultiConnector" or not isinstance(parts, list):
        yield config
        return
    for part in parts:
        yield from _connectors({"kv_role": config.get("kv_role")} | part if isinstance(part, dict) else {})


def _take_tier(taken: Taken, flag: str, name: str, extra: Any) -> None:
    """Take the size of a tier in host memory over, if the command has it; LMCache's is a variable's."""
    size = extra.get("cpu_bytes_to_use") if isinstance(extra, dict) else None
    if size is not None:
        taken.found["kv_offloading_size"] = number(f"{flag} cpu_bytes_to_use", size) / 2**30
    elif name in OF_LMCACHE and "lmcache_gib" in taken.found:
        taken.found["uses_lmcache"] = True
    else:
        taken.unmodelled.append((f"{flag} {name}", KEEPS))
