"""The model of a scenario, as an engine loads it."""

from dataclasses import replace

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import is_path, load_model
from planner.settings.scenario import Scenario


def loaded_model(scenario: Scenario) -> Architecture | None:
    """Return the scenario's model by the name that was asked for; None without a model.

    Its vision encoder is left out if the engine does not load it.

    Raises
    ------
    UnknownNameError, CatalogError : as `load_model`.
    """
    if scenario.model is None:
        return None
    architecture = load_model(scenario.model)
    if not is_path(scenario.model) and scenario.model != architecture.name:
        architecture = replace(architecture, name=scenario.model, profile=architecture.name)
    if scenario.pooling is not None:
        architecture = replace(architecture, pooling=scenario.pooling)
    if scenario.language_model_only:
        return replace(architecture, vision=None, encoders_left_out=())
    return architecture
