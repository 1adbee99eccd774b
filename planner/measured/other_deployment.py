"""A measured file that names its model, GPU, engine or parallel size: an error if another one would be predicted."""

from collections.abc import Callable, Iterable, Mapping

from planner.catalog.catalog_files import load_gpu, load_model
from planner.engines import ENGINES
from planner.errors import PlannerError, UsageError
from planner.settings.scenario import Scenario, attention_ranks

_IDENTITY: Mapping[str, Callable[[str], object]] = {
    "model": lambda name: load_model(name).name,
    "gpu": lambda name: load_gpu(name).name,
    "engine": lambda name: name.lower() if name.lower() in ENGINES else None,
}


def refuse_other(where: str, names: Mapping[str, Iterable[str]], scenario: Scenario, tp_size: object = None) -> None:
    """Raise a UsageError if a file names another model, GPU, engine or parallel size than the scenario.

    A name that the catalog lacks, as a server's own name of a model, is not compared.

    Parameters
    ----------
    names : option -> its values in the file.
    tp_size : GPUs of the server, if the file has it [1].
    """
    for option, values in names.items():
        predicted = getattr(scenario, option)
        wanted = None if predicted is None else _identity(option, predicted)
        for value in values:
            if wanted is not None and _identity(option, value) not in (None, wanted):
                raise UsageError(f"{where}: was measured on {option} = {value}, and --{option} {predicted} would be "
                                 f"predicted; give --{option} {value}")
    gpus = scenario.tensor_parallel_size * attention_ranks(scenario)
    if type(tp_size) is int and tp_size != gpus:
        raise UsageError(f"{where}: its server ran with tp_size = {tp_size}, and {gpus} would be predicted; give "
                         f"--tensor-parallel-size {tp_size}")


def _identity(option: str, name: str) -> object:
    try:
        return _IDENTITY[option](name)
    except PlannerError:
        return None
