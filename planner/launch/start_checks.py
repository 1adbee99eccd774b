"""Checks of a launch against the model's config.json: context limits and weight formats that engines refuse."""

from planner.catalog.catalog_files import is_path, load_model, stated_method
from planner.engines import ENGINES
from planner.engines.dialect import CONTAINERS
from planner.engines.releases import is_before
from planner.errors import PlannerError, UsageError
from planner.launch.taken import Taken


def check_longer_context(taken: Taken) -> None:
    """Raise UsageError if the context limit exceeds the model's, and the environment does not allow that.

    The model's own limit is not known if a flag changes its config, or if the model is not in the catalog.

    Source: `_get_and_verify_max_len` in vllm/config/model.py; `_derive_context_length` in
    sglang/srt/configs/model_config.py.
    """
    dialect, found = taken.dialect, taken.found
    is_allowed, length = found.pop("allows_longer_context", False), found.get("max_model_len", 0)
    since = dialect.refuses_longer_since
    if since is None or is_allowed or is_before(found.get("engine_version"), since):
        return
    if any(effect in dialect.config_effects for _, effect in taken.unmodelled):
        return
    try:
        longest = load_model(found["model"]).max_model_len
    except PlannerError:  # a later message is about the model
        return
    if length > longest:
        flag = next(entry.names[0] for entry in dialect.entries if getattr(entry, "option", None) == "max_model_len")
        variable = next(name for name, entry in dialect.variables.items() if entry.option == "allows_longer_context")
        raise UsageError(f"--from-command: {flag} {length} exceeds the context of {found['model']}, {longest:,} tokens "
                         f"by its config.json, and {ENGINES[taken.engine].title} does not start with it; lower it, or "
                         f"set {variable}=1 before the command if your server has it")


def check_method(taken: Taken) -> None:
    """Raise UsageError if the engine refuses the launch's method of quantization beside the checkpoint's own.

    A checkpoint whose method is not known is not checked. A name of the catalog with a format, as DeepSeek-V3 with awq,
    stands for another checkpoint, which a note names.
    """
    asked, refuses, model = taken.written.get("quantization"), taken.dialect.refuses_method, taken.found["model"]
    if asked is None or refuses is None or not (asked in CONTAINERS or is_path(model)):
        return
    try:
        method, model_type = stated_method(model), load_model(model).model_type
    except PlannerError:  # a later message is about the model
        return
    if method is not None and refuses(method, asked, model_type):
        raise UsageError(f"--from-command: --quantization {asked}: the checkpoint {model} is quantized by {method}, "
                         f"quant_method of its config.json, and {ENGINES[taken.engine].title} does not start with "
                         f"another method; leave --quantization out, or give --quantization {method}")
