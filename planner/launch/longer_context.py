"""The check that a launch's context limit is within the model's: vLLM and SGLang do not start with a longer one."""

from planner.catalog.catalog_files import load_model
from planner.engines import ENGINES
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
