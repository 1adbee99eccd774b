"""The checkpoint that a launch names: its name for a server, and the weight formats that the server can load it in."""

from pathlib import Path

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import describe_model, hub_name, is_path, load_model
from planner.catalog.checkpoint_names import format_in_name
from planner.engines import ENGINES
from planner.errors import PlannerError
from planner.settings.scenario import Scenario

SIXTEEN_BIT = ("bf16", "fp16")


def served_name(model: str | None) -> str:
    """Return a model's name as a server loads it: the Hugging Face name of a short one, the folder of a config.json."""
    if model is None:
        return "MODEL"
    if model.endswith("config.json"):
        return str(Path(model).parent)
    return hub_name(model)


def missing_checkpoint(scenario: Scenario) -> str | None:
    """Return the checkpoint that a command lacks: weights in a format that the engine does not make as it loads.

    vLLM and SGLang refuse the flag with other weights (`get_quant_config`); an engine without a flag for the format
    loads the weights that there are. Nothing is said of a model that is not in the catalog.
    """
    asked, own = scenario.quantization, _own_formats(scenario)
    if asked is None or own is None or is_own_format(scenario):
        return None
    engine = ENGINES[scenario.engine]
    if own == SIXTEEN_BIT and asked.lower() in engine.memory.converts_to(scenario.engine_version):
        return None
    return (f"a checkpoint with {asked} weights in place of {served_name(scenario.model)}, which {engine.title} does "
            f"not convert to {asked}")


def published_checkpoints(scenario: Scenario) -> list[str]:
    """Return the checkpoints of the model's very version, in the weight format that is asked for and is not its own.

    >>> published_checkpoints(Scenario(model="Qwen/Qwen3.6-35B-A3B", quantization="nvfp4"))
    ['nvidia/Qwen3.6-35B-A3B-NVFP4']
    """
    model, asked = scenario.model, scenario.quantization
    if model is None or asked is None or is_path(model) or is_own_format(scenario):
        return []
    variants, version = describe_model(model).get("variants"), model.rpartition("/")[2].lower()
    return [name for name in (variants if isinstance(variants, dict) else ()) if format_in_name(name) == asked.lower()
            and name.rpartition("/")[2].lower().startswith(f"{version}-")]


def is_own_format(scenario: Scenario) -> bool:
    """Tell whether the weight format that is asked for is the checkpoint's own."""
    own = _own_formats(scenario)
    return own is not None and scenario.quantization is not None and scenario.quantization.lower() in own


def _own_formats(scenario: Scenario) -> tuple[str, ...] | None:
    """Return the names of a checkpoint's own formats; None if the model is not known."""
    arch = known_model(scenario.model)
    if arch is None:
        return None
    formats = (arch.quantization or "bf16", *filter(None, (arch.expert_quantization,)))
    return SIXTEEN_BIT if set(formats) <= set(SIXTEEN_BIT) else formats


def known_model(name: str | None) -> Architecture | None:
    """Return a model; None if there is no name, or the model is not known, which a later message says."""
    try:
        return None if name is None else load_model(name)
    except PlannerError:
        return None
