"""How a model is spread over the GPUs of one replica."""

from dataclasses import dataclass

from planner.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Parallel sizes of one replica.

    Parameters
    ----------
    tensor_parallel_size : GPUs that share each layer's attention and dense MLPs [1].
    pipeline_parallel_size : stages that share the layers [1].
    data_parallel_size : attention ranks that step together and share one set of experts (data-parallel attention);
        each has its own sequences and KV cache [1].
    expert_parallel_size : GPUs that the routed experts of a layer are spread over, whole; 1 where every GPU holds a
        slice of each [1].

    Raises
    ------
    UsageError : a size below 1, or experts spread over more GPUs than there are.
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel_size: int = 1

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} = {getattr(self, name)}; must be at least 1")
        if self.num_expert_gpus % self.expert_parallel_size:
            raise UsageError(f"expert_parallel_size = {self.expert_parallel_size}; must divide the "
                             f"{self.num_expert_gpus} GPUs of tensor and data parallelism")

    @property
    def num_expert_gpus(self) -> int:
        """GPUs that share one layer's experts."""
        return self.tensor_parallel_size * self.data_parallel_size

    @property
    def expert_tensor_parallel_size(self) -> int:
        """GPUs that share each expert."""
        return self.num_expert_gpus // self.expert_parallel_size

    @property
    def num_gpus(self) -> int:
        """GPUs of the replica."""
        return self.num_expert_gpus * self.pipeline_parallel_size
