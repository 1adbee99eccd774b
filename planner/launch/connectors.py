"""Connectors of KV caches: to a tier in host memory, which is replayed, or to another engine, which a fleet has."""

from collections.abc import Iterator, Mapping
from typing import Any

from planner.engines.values import number, table
from planner.launch.taken import Taken, take_role

# Names in vllm/distributed/kv_transfer/kv_connector/factory.py, and older ones.
OF_TIERS = ("LMCacheConnectorV1", "LMCacheConnector", "LMCacheMPConnector", "OffloadingConnector",
            "SimpleCPUOffloadConnector", "MooncakeStoreConnector", "FlexKVConnectorV1", "HF3FSKVConnector",
            "HiSparseConnector", "SharedStorageConnector", "ExampleConnector", "AscendStoreConnector")
OF_NOTHING = ("DecodeBenchConnector", "ExampleHiddenStatesConnector")
OF_LMCACHE = ("LMCacheConnectorV1", "LMCacheConnector")
ROLES = {"kv_producer": "prefill", "kv_consumer": "decode"}
KEEPS = ("keeps KV in a tier whose size is not in the command; --kv-offloading-size (host memory) and "
         "--kv-remote-size (a store that replicas share) replay one")


def read_connector(taken: Taken, flag: str, value: Any) -> None:
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
            take_role(taken, flag, role or "prefill")


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
