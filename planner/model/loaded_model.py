"""The model of a scenario, as an engine loads it."""

from dataclasses import replace

from planner.catalog.architecture import Architecture
from planner.catalog.catalog_files import load_model
from planner.settings.scenario import Scenario


def loaded_model(scenario: Scenario) -> Architecture | None:
    """Return the scenario's model, without its vision encoder where that is not loaded; None without a model.

    Raises
    ------
    UnknownNameError, CatalogError : as `load_model`.
    """
    if scenario.model is None:
        return None
    architecture = load_model(scenario.model)
    if scenario.language_model_only:
        return replace(architecture, vision=None, encoders_left_out=())
    return architecture
