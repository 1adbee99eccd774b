"""Values of the options that a scenario leaves to the engine, the release, the model or the memory."""

from dataclasses import dataclass, fields

from planner.engines.engine import EngineDefaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Options of a deployment in force, by their names in the scenario, which keeps the values of the user.

    Parameters
    ----------
    limits : the fields of the engine's defaults; seats are no more than the memory has states for.
    kv_cache_dtype : KV cache format; "auto" is resolved if the engine's rule or the release decides it.
    block_size : over all GPUs that share contexts; larger than the scenario's if the model's states need it [tokens].
    fuse_allreduce_rms : None for the engine's rule.
    fp32_matmul : GEMM kernel of routers in 32 bit.
    """

    limits: EngineDefaults
    kv_cache_dtype: str
    block_size: int
    fuse_allreduce_rms: bool | None
    fp32_matmul: str

    def values(self) -> dict[str, object]:
        """Return all values by the names of their options."""
        options = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "limits"}
        return options | {f.name: getattr(self.limits, f.name) for f in fields(self.limits)}
