"""A resolved deployment and its policy as plain values, for summaries."""

from dataclasses import asdict, fields
from typing import Any

from planner.deployment.deploy import Deployment, pools_of
from planner.engines import ENGINES
from planner.engines.engine import EngineDefaults
from planner.replays.fleet.shares import same
from planner.results.uncertainty import unmeasured_operators
from planner.settings.scenario import OPTION_DEFAULTS, Scenario, names_in

PANELS = ("Deployment", "Cache tiers", "Fleet", "Overload", "Step time")  # of options that a summary repeats


def describe_deployment(deployment: Deployment, num_replicas: int) -> dict[str, Any]:
    """Return the resolved deployment as plain values, for the summary; `num_gpus` is over all replicas.

    Of a fleet with different replicas it has the command line's options, and settings that all pools share.
    """
    options, memory = deployment.options(), deployment.memory
    pools = pools_of(deployment, num_replicas)
    gpus = dict.fromkeys(pool.deployment.gpu.name for pool in pools if pool.deployment.gpu is not None)
    return {
        "model": deployment.architecture.name if deployment.architecture else None,
        "gpu": " + ".join(gpus) or None,
        "num_gpus": sum(pool.num_gpus for pool in pools),
        "num_replicas": sum(pool.num_replicas for pool in pools),
        **{f.name: options[f.name] for f in fields(Scenario)
           if f.metadata["panel"] in PANELS and f.name not in ("model", "gpu")},
        "pooling": deployment.pooling,
        **{name: same([getattr(pool.deployment.settings, name) for pool in pools])
           for name in ("max_model_len", "num_gpu_blocks", "num_cpu_blocks", "enable_prefix_caching",
                        "async_scheduling")},
        "value_sources": None if deployment.pools else value_sources(deployment),
        "memory": None if memory is None or deployment.pools else {
            name: value for name, value in asdict(memory).items() if name != "block_size"
        },
    }


def value_sources(deployment: Deployment) -> dict[str, str]:
    """Return the source of the value of each option of the deployment and its scheduler.

    `given`: by the user. `derived`: from the model, the memory or the trace. `engine`: the engine's default, on this
    GPU in this release if it depends on them.
    """
    engine, options, sources = ENGINES[deployment.scenario.engine], deployment.options(), {}
    by_engine = {f.name for f in fields(EngineDefaults)} | {default.option for default in engine.defaults.since}
    for name in (*names_in("Deployment"), *names_in("Scheduling")):
        resolved = getattr(deployment.settings, name, options[name])
        if name in deployment.given:
            sources[name] = "given"
        else:
            sources[name] = "engine" if name in by_engine or resolved == OPTION_DEFAULTS[name] else "derived"
    return sources


def fitted_deployments(deployment: Deployment) -> list[Deployment]:
    """Return a pool's deployment for each set of constants that the step times of a deployment's pools use.

    If kernels were not measured, they are a set of their own: their errors are larger.
    """
    fitted = {}
    for pooled in (pool.deployment for pool in pools_of(deployment, 1)):
        scenario = pooled.scenario
        fitted[scenario.step_time, scenario.engine, scenario.calibration, bool(unmeasured_operators(pooled))] = pooled
    return list(fitted.values())


def describe_policy(deployment: Deployment) -> dict[str, Any]:
    """Return the policy and its settings as plain values, for the summary; if pools have several, all by name."""
    options = deployment.options()
    policies = [pool.deployment.policy for pool in pools_of(deployment, deployment.scenario.data_parallel_size)]
    chosen = {name: options[name] for name in names_in("Scheduling")}
    return chosen | {name: " + ".join(dict.fromkeys(getattr(policy, name) for policy in policies))
                     for name in ("name", "reserve")}
