"""Options that the command line takes as a file: from a browser they are names that this server knows, or text."""

import re
from collections.abc import Mapping
from typing import Any

from planner.catalog.catalog_files import describe_model, is_path, load_gpu, load_model
from planner.deployment.named_files import FILES
from planner.errors import PlannerError, UsageError
from planner.policies.builtin_policies import POLICIES
from planner.policies.builtin_routers import ROUTERS
from planner.ui.own_profiles import names

PROFILES = {"gpu": "gpu", "model": "model", "speculative_model": "model"}  # options that name a profile, and its kind
ENDINGS = (".toml", ".json")
FAILURES = re.compile(r"[\d@+/., e-]+")  # as in '2@600+120, 0@900/5'


def known_name(kind: str, name: str) -> str | None:
    """Return the catalog's name of a GPU, or the checkpoint's name of a model; None if the catalog has neither.

    No file is opened except the catalog's own.

    Parameters
    ----------
    kind : "gpu" or "model".
    """
    found = catalog_name(kind, name)
    return found if found is None or kind == "gpu" or is_path(name) else name


def catalog_name(kind: str, name: str) -> str | None:
    """Return the catalog's name of a GPU or model that is called by an alias; None if there is none."""
    known = names(kind)
    if name in known or name.endswith(ENDINGS):
        return name if name in known else None
    try:
        found = load_gpu(name).name if kind == "gpu" else str(describe_model(name).get("name"))
    except PlannerError:
        return None
    return found if found in known else None


def named(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options from a browser with names of the catalog and of checkpoints, once no value of them can be a path.

    Raises
    ------
    UsageError : one is neither a known name nor text of the option's own form.
    """
    return {option: value if value is None or option not in FILES else _named(option, str(value))
            for option, value in options.items()}


def in_catalog(model: str) -> dict[str, str | None]:
    """Return the catalog's name of a model, and its weight format if the catalog's checkpoint has another."""
    name = catalog_name("model", model)
    return {"model": name, "quantization": None if name is None else _own_format(model, name)}


def _own_format(alias: str, name: str) -> str | None:
    """Return the format of a checkpoint's weights if the model that the catalog has by that name has another."""
    if alias == name or alias.endswith(ENDINGS) or name.endswith(ENDINGS):
        return None
    stored, known = load_model(alias), load_model(name)
    formats = [arch.quantization or arch.expert_quantization for arch in (stored, known)]
    return None if formats[0] == formats[1] else formats[0] or "bf16"


def _named(option: str, value: str) -> str:
    if option in PROFILES:
        found = known_name(PROFILES[option], value)
        if found is None:
            raise UsageError(f"{option} = {value!r}: is not in the catalog; add it on the page Catalog")
        return found
    if option in ("policy", "router"):
        known = POLICIES if option == "policy" else ROUTERS
        if value in known:
            return value
        raise UsageError(f"{option} = {value!r}: must be one of {', '.join(known)}; your own files work only on the "
                         f"command line")
    if option == "fail_replica":
        if FAILURES.fullmatch(value):
            return value
        raise UsageError(f"fail_replica = {value!r}: must be REPLICA@AT, with +FOR and /HEALTH_CHECK if they are not "
                         f"0, in seconds, as in '2@600+120/5'")
    raise UsageError(f"{option} = {value!r}: names a file, and the dashboard opens no files; use the command line")
