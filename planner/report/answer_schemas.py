"""JSON Schema of the answers that commands write with `--json`, made from their declared keys."""

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from planner.catalog.prices import ApiPrice, GpuPrice
from planner.catalog.profile_answer import ArchitectureAnswer, GpuAnswer
from planner.files.keys import Declared, Spread, declared
from planner.launch.launch_answer import LaunchAnswer
from planner.measured.calibration.calibrate_answer import CalibrateAnswer
from planner.measured.traffic_answer import TrafficAnswer
from planner.measured.validate_answer import ValidateAnswer
from planner.planning.bracket import UNKNOWNS
from planner.planning.capacity_answer import CapacityAnswer
from planner.planning.check_answer import CheckAnswer
from planner.planning.measure_answer import MeasureAnswer
from planner.planning.probe_answer import ProbeAnswer
from planner.planning.rollouts_answer import RolloutsAnswer
from planner.planning.share_answer import ShareAnswer
from planner.planning.size_answer import SizeAnswer
from planner.planning.sweep_answer import SweepAnswer
from planner.planning.synth_answer import ModelAnswer
from planner.planning.watch_answer import WatchAnswer
from planner.results.summary_answer import Summary
from planner.traces.export.convert import Account
from planner.traces.shaping.description_answer import Description

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ANSWERS = {"capacity": CapacityAnswer, "probe": ProbeAnswer, "measure": MeasureAnswer,
           "size": SizeAnswer, "share": ShareAnswer, "sweep": SweepAnswer, "check": CheckAnswer,
           "validate": ValidateAnswer, "calibrate": CalibrateAnswer, "launch": LaunchAnswer,
           "rollouts": RolloutsAnswer, "watch": WatchAnswer, "trace describe": Description,
           "trace synth": ModelAnswer, "trace from-prometheus": TrafficAnswer}
LINES = "watch"  # the command that writes several answers, a line each
TYPES = {str: "string", Path: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def answer_schema(command: str) -> Schema:
    """Return the schema of the JSON that a command writes.

    Parameters
    ----------
    command : a key of `SCHEMAS`, such as "capacity" or "trace describe".
    """
    option = "--json-lines" if command == LINES else "--json"
    return {"$schema": DIALECT, "title": f"planner {command} {option}", **SCHEMAS[command]()}


def _of_answer(kind: type) -> Schema:
    parts: dict[str, Schema] = {}
    whole = _object(kind, parts)
    return {**whole, **({"$defs": parts} if parts else {})}


def _object(kind: type, parts: dict[str, Schema]) -> Schema:
    """Return the schema of a dataclass of keys; the schemas of its parts are added to `parts` by name."""
    properties: dict[str, Schema] = {}
    required: list[str] = []
    others: Any = False
    for field in declared(kind):
        if not isinstance(field.note, Spread):
            properties |= dict.fromkeys(_names(field), _described(field, parts))
            required += [field.name] if _is_always(field) else []
        elif get_origin(field.hint) is Mapping:
            others = {"description": field.note.meaning, **_of_hint(get_args(field.hint)[1], parts)}
        else:
            part = _spread(field, parts)
            properties |= part["properties"]
            required += part["required"]
            others = others or part["additionalProperties"]
    return {"type": "object", "description": (kind.__doc__ or "").strip().split("\n")[0], "properties": properties,
            "required": required, "additionalProperties": others}


def _spread(field: Declared, parts: dict[str, Schema]) -> Schema:
    """Return the keys of a part that stand among the keys of the whole; they may be null or absent."""
    note, kinds = field.note, get_args(field.hint) or (field.hint,)
    assert isinstance(note, Spread)
    whole = [_object(kind, parts) for kind in kinds if kind is not NoneType]
    properties: dict[str, Schema] = {}
    for schema in whole:
        for name, described in schema["properties"].items():
            key = {part: value for part, value in described.items() if part != "description"}
            properties[note.keys.format(name)] = {
                "description": described["description"].replace("{}", note.meaning),
                **({"anyOf": [key, {"type": "null"}]} if NoneType in kinds else key)}
    is_always = len(whole) == 1 and NoneType not in kinds and not note.only
    others = [schema["additionalProperties"] for schema in whole if schema["additionalProperties"]]
    required = [note.keys.format(name) for name in whole[0]["required"]] if is_always else []
    return {"properties": properties, "required": required,
            "additionalProperties": others[0] if others else False}


def _names(field: Declared) -> list[str]:
    return list(dict.fromkeys(filter(None, map(field.key, ("", *UNKNOWNS)))))


def _is_always(field: Declared) -> bool:
    return not field.note.only and all(field.key(of) == field.name for of in ("", *UNKNOWNS))


def _described(field: Declared, parts: dict[str, Schema]) -> Schema:
    unit = getattr(field.note, "unit", "")
    words = [field.note.meaning, f"Unit: {unit}" if unit not in ("", "1") else "",
             f"Only {field.note.only}" if field.note.only else ""]
    return {"description": ". ".join(filter(None, words)), **_of_hint(field.hint, parts)}


def _of_hint(hint: Any, parts: dict[str, Schema]) -> Schema:
    """Return the schema of a type of Python."""
    if hint is Any:
        return {}
    if is_dataclass(hint):
        name = hint.__name__  # type: ignore[union-attr]
        if name not in parts:
            parts[name] = {}
            parts[name] = _object(hint, parts)  # type: ignore[arg-type]
        return {"$ref": f"#/$defs/{name}"}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _of_hint(get_args(hint)[0], parts)}
    if get_origin(hint) is Mapping:
        return {"type": "object", "additionalProperties": _of_hint(get_args(hint)[1], parts)}
    if get_origin(hint) in (Union, UnionType):
        return {"anyOf": [_of_hint(kind, parts) for kind in get_args(hint)]}
    return {"type": TYPES[hint]}


def _comparison() -> Schema:
    """Return the schema of the summaries of a comparison, each with its what-if's name."""
    summary = _of_answer(Summary)
    parts = summary.pop("$defs")
    name = {"name": {"type": "string", "description": "Name of the what-if"}}
    return {"type": "array", "items": {**summary, "properties": name | summary["properties"],
                                       "required": ["name", *summary["required"]]}, "$defs": parts}


def _profile() -> Schema:
    """Return the schema of a GPU's or a model's profile."""
    return {"type": "object", "description": "The profile of a GPU or a model.",
            "anyOf": [_of_answer(kind) for kind in (GpuAnswer, ArchitectureAnswer)]}


def _prices(kind: type) -> Schema:
    """Return the schema of a list of prices."""
    parts: dict[str, Schema] = {}
    return {"type": "object", "description": "List prices with source and date.", "additionalProperties": False,
            "properties": {"prices": _of_hint(tuple[kind, ...], parts)},  # type: ignore[valid-type]
            "required": ["prices"], "$defs": parts}


def _names_listed() -> Schema:
    names = {"type": "array", "items": {"type": "string"}}
    return {"type": "object", "description": "Names of the catalog's profiles.", "additionalProperties": False,
            "properties": {"gpus": names, "models": names}, "required": ["gpus", "models"]}


SCHEMAS: Mapping[str, Callable[[], Schema]] = {
    "replay": partial(_of_answer, Summary), "compare": _comparison,
    **{name: partial(_of_answer, kind) for name, kind in ANSWERS.items()},
    "trace convert": partial(_of_answer, Account),
    "db list": _names_listed, "db show": _profile,
    "db prices": partial(_prices, GpuPrice), "db apis": partial(_prices, ApiPrice)}
