"""What a server fills in where its command says nothing: limits by GPU and release, and by other flags."""

from collections.abc import Callable, Mapping
from typing import Any

from planner.catalog.catalog_files import load_gpu, load_model
from planner.engines import ENGINES
from planner.engines.releases import check_release
from planner.errors import PlannerError, UsageError

SIZES = ("max_num_seqs", "max_num_batched_tokens")


def filled_in(options: Mapping[str, Any], gpu: str | None, version: str | None, performance_mode: str | None
              ) -> tuple[dict[str, Any], list[str]]:
    """Return the options that a server adds to those of its command, and a note of them.

    Parameters
    ----------
    gpu : its name, or several with commas between; None if it is not known, and then nothing depends on it.
    version : the engine's.
    performance_mode : vLLM's; "throughput" doubles the limits that are not given.

    Raises
    ------
    UsageError, UnknownNameError, CatalogError : as `catalog_files.load_gpu`, or the GPUs have different limits.
    """
    engine = ENGINES[options["engine"]]
    check_release(version)
    if engine.serve_defaults is None:
        return {}, []
    defaults = {} if gpu is None else _served_on(engine.serve_defaults, gpu, version)
    if performance_mode == "throughput":
        defaults |= {name: 2 * defaults.get(name, getattr(engine.defaults, name)) for name in SIZES}
    defaults |= _for_whole_prompts(options, defaults)
    own = {name: value for name, value in defaults.items() if name not in options}
    if not own:
        return {}, []
    listed = ", ".join(f"{name} = {value:,}" for name, value in own.items())
    return own, [f"--from-command: vllm serve's own{f' on {gpu}' if gpu else ''}: {listed}"]


def _served_on(defaults: Callable[[str, float, str | None], dict[str, Any]], gpus: str, version: str | None
               ) -> dict[str, Any]:
    """Return a server's own defaults on a GPU, or on all of several with commas between."""
    profiles = [load_gpu(name) for name in gpus.split(",")]
    found = [defaults(profile.name, profile.hbm_capacity_bytes, version) for profile in profiles]
    if any(each != found[0] for each in found):
        raise UsageError(f"--from-command: vllm serve has other limits of its own on some of {gpus}; give "
                         f"--max-num-seqs and --max-num-batched-tokens in the command")
    return found[0]


def _for_whole_prompts(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits where prompts are not cut: a step takes the longest one.

    Source: `_set_default_max_num_seqs_and_batched_tokens_args` in vllm/engine/arg_utils.py.
    """
    longest = options.get("max_model_len") or _longest_context(options["model"])
    if options.get("enable_chunked_prefill") is not False or longest is None or SIZES[1] in options:
        return {}
    seqs, tokens = ({**vars_of(options), **defaults, **options}[name] for name in SIZES)
    tokens = min(max(longest, tokens), seqs * longest)
    return {SIZES[1]: tokens} | ({SIZES[0]: min(seqs, tokens)} if SIZES[0] in defaults else {})


def vars_of(options: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits that an engine has without a GPU."""
    return {name: getattr(ENGINES[options["engine"]].defaults, name) for name in SIZES}


def _longest_context(model: str) -> int | None:
    try:
        return load_model(model).max_model_len
    except PlannerError:  # told of where the model is needed
        return None
