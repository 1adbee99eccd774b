"""The fleet's file: pools of different replicas, each with its own options over the command line's."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from planner.catalog.catalog_files import read_toml
from planner.deployment.conditions import Accepts, parse_conditions
from planner.deployment.named_files import beside
from planner.errors import FleetError, PlannerError, UsageError, told_as
from planner.files.nested import parse_toml
from planner.launch import launch_options
from planner.settings.scenario import Scenario, given_options, names_in, parse_scenario

Role = Literal["both", "prefill", "decode"]
ROLES: tuple[Role, ...] = get_args(Role)
OWN_KEYS = ("name", "role", "weight", "accepts", "from_command")  # beside options of `Scenario`
PANELS = ("Deployment", "Cache tiers", "Scheduling", "Step time")  # whose options a pool may have its own of
RANKS = ("data_parallel_size", "data_parallel_attention")  # and these of the panel "Fleet"
OF_ALL = ("interval", "kv_remote_size", "kv_remote_scope")  # of these, options of the answer, and of a shared store
MOST_WEIGHT = 1000
_TEXT = re.compile(r"\s*pool\s*=\s*\[")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """A pool as its file describes it.

    Parameters
    ----------
    name : its own, or else its place in the file, "pool 1".
    role : the phases that its replicas serve.
    weight : the share of the load that the router gives each, against the others' [1].
    num_replicas : its replicas, ranks of data-parallel attention each by itself, unless it has an autoscaler [1].
    scenario : of the pool, with its autoscaler's file.
    notes : on how it was read.
    accepts : conditions of the requests that the router may send it; empty for all requests.
    """

    name: str
    role: Role
    weight: int
    num_replicas: int
    scenario: Scenario
    notes: tuple[str, ...]
    accepts: Accepts = ()


def is_text(fleet: str) -> bool:
    """Tell whether a fleet is the text of its pools, not a file's path.

    >>> is_text("pool = [{replicas = 2}]"), is_text("pool.toml")
    (True, False)
    """
    return _TEXT.match(fleet) is not None


def read_fleet(fleet: str | Path, scenario: Scenario) -> tuple[PoolSpec, ...]:
    """Read a fleet's file, or the text of its pools. Files that it names are looked for beside it.

    Parameters
    ----------
    scenario : values of options that a pool leaves out.

    Returns
    -------
    tuple of PoolSpec
        In the file's order, prefill pools before decode pools.

    Raises
    ------
    FleetError : the file cannot be read, or something in it is wrong.
    """
    path = str(fleet)
    with told_as(FleetError, Path(path)):
        table = _table(path)
    folder = Path() if is_text(path) else Path(path).parent
    if unknown := set(table) - {"pool"}:
        raise FleetError(f"{path}: unknown key {min(unknown)!r}; keys of a pool are in [[pool]], options of all pools "
                         f"outside the fleet's file")
    tables = table.get("pool")
    if not isinstance(tables, list) or not tables or not all(isinstance(row, dict) for row in tables):
        raise FleetError(f"{path}: has no [[pool]] with its replicas, as in replicas = 2")
    pools = []
    for number, values in enumerate(tables, 1):
        try:
            pools.append(_pool(f"pool {number}", values, folder, replace(scenario, fleet=None)))
        except PlannerError as error:
            raise FleetError(f"{path}: pool {number}: {error}") from error
    if len({pool.name for pool in pools}) < len(pools):
        raise FleetError(f"{path}: two pools have the same name; give each its own name")
    roles = {pool.role for pool in pools}
    if roles not in ({"both"}, {"prefill", "decode"}):
        raise FleetError(f"{path}: the roles are {', '.join(sorted(roles))}; must be both in all pools, or prefill in "
                         f"some and decode in the others")
    return tuple(sorted(pools, key=lambda pool: ROLES.index(pool.role)))


def _table(fleet: str) -> dict[str, Any]:
    """Return the TOML of a fleet's file or text."""
    if not is_text(fleet):
        return read_toml(Path(fleet))
    try:
        return parse_toml(fleet)
    except ValueError as error:
        raise FleetError(f"--fleet {fleet}: cannot be read: {error}") from error


def _pool(name: str, values: Mapping[str, Any], folder: Path, scenario: Scenario) -> PoolSpec:
    """Read one [[pool]]."""
    name, role, weight = values.get("name", name), values.get("role", "both"), values.get("weight", 1)
    if not isinstance(name, str) or not name or not name.isprintable():
        raise UsageError(f"name = {name!r}: must be text that can be printed")
    if role not in ROLES:
        raise UsageError(f"role = {role!r}: must be {', '.join(ROLES)}")
    if type(weight) is not int or not 1 <= weight <= MOST_WEIGHT:
        raise UsageError(f"weight = {weight!r}: must be a whole number from 1 to {MOST_WEIGHT:,}")
    if "replicas" in values and type(values["replicas"]) is int and values["replicas"] < 1:
        raise UsageError(f"replicas = {values['replicas']}: must be at least 1; leave the pool out")
    accepts = parse_conditions(values["accepts"]) if "accepts" in values else ()
    if accepts and role == "decode":
        raise UsageError(f"accepts = {values['accepts']!r}: decode pools take their requests from prefill pools, not "
                         f"from the router; give accepts in the prefill pools")
    counts = {key: value for key, value in values.items() if key == "replicas"}
    options = {key: beside(folder, key, value) for key, value in values.items() if key not in (*OWN_KEYS, *counts)}
    notes: list[str] = []
    if (launch := values.get("from_command")) is not None:
        if not isinstance(launch, str):
            raise UsageError(f"from_command = {launch!r}: must be text in quotes")
        launch = beside(folder, "from_command", launch)
        stated = options if scenario.gpu is None else {"gpu": scenario.gpu, **options}
        launched, notes = launch_options(launch, model=parse_scenario(options).model, role=role, beside=stated)
        if (router := launched.pop("router", None)) is not None:
            notes.append(f"its launch has router = {router}, which is left out: the fleet has one router for all of "
                         f"its pools; choose it with --router")
        options = launched | options
    if "replicas" in values:
        if "autoscale" in values:
            raise UsageError(f"replicas = {values['replicas']} with autoscale = {values['autoscale']!r}: its file "
                             f"sets the number of replicas; leave one of them out")
        scenario = replace(scenario, autoscale=None)
    parsed = parse_scenario(given_options(scenario) | options)
    num_replicas = parse_scenario(counts).data_parallel_size
    if parsed.data_parallel_attention:
        num_replicas *= parsed.data_parallel_size
    elif "data_parallel_size" in values:
        raise UsageError("data_parallel_size: give replicas instead; a pool with data-parallel ranks needs "
                         "data_parallel_attention = true")
    else:
        num_replicas = num_replicas if counts else parsed.data_parallel_size
        options, parsed = options | {"data_parallel_size": num_replicas}, replace(
            parsed, data_parallel_size=num_replicas)
    allowed = {*RANKS, "autoscale", *(option for panel in PANELS for option in names_in(panel))} - set(OF_ALL)
    if other := sorted(set(options) - allowed):
        raise UsageError(f"{other[0]}: is an option of the whole fleet; give it outside the fleet's file")
    return PoolSpec(name=name, role=role, weight=weight, notes=tuple(notes), num_replicas=num_replicas,
                    accepts=accepts,
                    scenario=replace(scenario, **{option: getattr(parsed, option) for option in options}))


def turns(weights: Sequence[int]) -> NDArray[np.int64]:
    """Return the turns of replicas, each as often as it weighs and as evenly spread as can be; then they begin again.

    Smooth weighted round robin: each turn all gain their weight, and the richest has the turn and pays the sum of all.
    Source: nginx, `ngx_http_upstream_round_robin.c`.

    Parameters
    ----------
    weights : of the replicas, whole numbers above 0.

    >>> turns([1, 1, 1]).tolist(), turns([5, 1, 1]).tolist()
    ([0, 1, 2], [0, 0, 1, 0, 2, 0, 0])
    """
    gains = np.asarray(weights, np.int64) // math.gcd(*weights)
    if (gains == 1).all():
        return np.arange(len(gains))
    total, have, order = int(gains.sum()), np.zeros(len(gains), np.int64), []
    for _ in range(total):
        have += gains
        k = int(have.argmax())
        have[k] -= total
        order.append(k)
    return np.array(order)
