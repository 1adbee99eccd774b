"""How a model is spread over the GPUs of one replica."""

from dataclasses import dataclass

from planner.errors import UsageError

SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel_size",
         "decode_context_parallel_size", "prefill_context_parallel_size")
AUTO = "auto"  # the engine's choice
ALL_GATHER = "allgather_reducescatter"  # all tokens go to all GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Parallel sizes of one replica.

    Parameters
    ----------
    tensor_parallel_size : GPUs that share each layer's attention and dense MLPs [1].
    pipeline_parallel_size : stages that share the layers [1].
    data_parallel_size : attention ranks that step together and share one set of experts (data-parallel attention);
        each has its own sequences and KV cache [1].
    expert_parallel_size : GPUs that the routed experts of a layer are spread over, whole; 1 if every GPU holds a
        slice of each [1].
    enable_eplb : whether experts are placed by their load (EPLB).
    num_redundant_experts : with EPLB, copies of a layer's experts, over all GPUs [1].
    decode_context_parallel_size : tensor-parallel GPUs that hold a part of each context each (DCP) [1].
    prefill_context_parallel_size : groups of tensor-parallel GPUs that share the tokens of each prompt, and step
        together otherwise (PCP) [1].
    splits_cache : whether each of these groups holds a part of each context, and not all of it.
    exchange : how tokens of data-parallel attention reach their experts (`all2all_backend` of a scenario).
    attention_dp_timeout_iters : with data-parallel attention, most steps that a rank's prompts wait for prompts of all
        others (TensorRT-LLM's attention_dp_config with enable_balance); 0 if they do not wait [1].

    Raises
    ------
    UsageError : a size below 1, a negative wait or number of copies, experts placed by their load but none whole,
        experts spread over more GPUs than there are, contexts over GPUs that do not divide the tensor-parallel ones, or
        tokens sent to whole experts although none are whole or no rank has tokens of its own.
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel_size: int = 1
    enable_eplb: bool = False
    num_redundant_experts: int = 0
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    splits_cache: bool = False
    exchange: str = ALL_GATHER
    attention_dp_timeout_iters: int = 0

    def __post_init__(self) -> None:
        for name in (*SIZES, "attention_dp_timeout_iters", "num_redundant_experts"):
            least = 1 if name.endswith("_size") else 0
            if getattr(self, name) < least:
                raise UsageError(f"{name} = {getattr(self, name)}; must be at least {least}")
        if self.num_expert_gpus % self.expert_parallel_size:
            raise UsageError(f"expert_parallel_size = {self.expert_parallel_size}; must divide the "
                             f"{self.num_expert_gpus} GPUs that share a layer's experts")
        if self.enable_eplb and self.expert_parallel_size == 1:
            raise UsageError("--enable-eplb: places whole experts by their load; give --expert-parallel")
        if self.num_redundant_experts and not self.enable_eplb:
            raise UsageError(f"--num-redundant-experts {self.num_redundant_experts}: copies are of experts with much "
                             f"load; give --enable-eplb")
        if self.tensor_parallel_size % self.decode_context_parallel_size:
            raise UsageError(f"decode_context_parallel_size = {self.decode_context_parallel_size}: must divide "
                             f"tensor_parallel_size = {self.tensor_parallel_size}, whose GPUs share the contexts")
        has_ranks = self.data_parallel_size * self.prefill_context_parallel_size > 1
        if self.dispatches and not (has_ranks and self.expert_parallel_size == self.num_expert_gpus):
            raise UsageError(f"--all2all-backend {self.exchange}: sends tokens of data-parallel attention to the GPUs "
                             "that have their experts, whole; give --data-parallel-size, "
                             "--data-parallel-attention and --expert-parallel, and no --expert-tensor-parallel-size")

    @property
    def dispatches(self) -> bool:
        """Whether a token of data-parallel attention is sent to the GPUs that have its experts, and not to all."""
        return self.exchange != ALL_GATHER

    @property
    def cache_groups(self) -> int:
        """Groups of tensor-parallel GPUs that hold a part of each context each [1]."""
        return self.prefill_context_parallel_size if self.splits_cache else 1

    @property
    def cache_parts(self) -> int:
        """Parts that each context is held in [1]."""
        return self.decode_context_parallel_size * self.cache_groups

    @property
    def num_expert_gpus(self) -> int:
        """GPUs that share one layer's experts."""
        return self.tensor_parallel_size * self.prefill_context_parallel_size * self.data_parallel_size

    @property
    def expert_tensor_parallel_size(self) -> int:
        """GPUs that share each expert."""
        return self.num_expert_gpus // self.expert_parallel_size

    def slots(self, num_experts: int) -> int:
        """Return how many places a layer's experts and their copies have over all GPUs [1].

        Raises
        ------
        UsageError : they cannot be divided over the GPUs.
        """
        slots = num_experts + self.num_redundant_experts
        if self.enable_eplb and slots % self.expert_parallel_size:
            most = slots + -slots % self.expert_parallel_size - num_experts
            raise UsageError(f"--num-redundant-experts {self.num_redundant_experts}: {slots} experts and copies cannot "
                             f"be divided over {self.expert_parallel_size} GPUs; {most} can")
        return slots

    @property
    def num_gpus(self) -> int:
        """GPUs of the replica, of all its attention ranks."""
        return self.num_expert_gpus * self.pipeline_parallel_size

    @property
    def gpus_per_rank(self) -> int:
        """GPUs of one attention rank: an engine with its own queue and KV cache."""
        return self.tensor_parallel_size * self.prefill_context_parallel_size * self.pipeline_parallel_size

    def check_nodes(self, gpus_per_node: int) -> None:
        """Raise UsageError if a group would share a node with part of another.

        GPUs are numbered by tensor rank, then by data-parallel rank, then by stage, and nodes are filled in this order.
        """
        if self.num_gpus <= gpus_per_node:
            return
        for name, size in (("tensor_parallel_size", self.tensor_parallel_size),
                           ("tensor_parallel_size × data_parallel_size", self.num_expert_gpus)):
            if size % gpus_per_node and gpus_per_node % size:
                raise UsageError(f"{name} = {size} on nodes of {gpus_per_node} GPUs: where a replica spans nodes "
                                 f"it must divide {gpus_per_node}, or be a multiple of it")

    def num_node_crossings(self, gpus_per_node: int) -> int:
        """Return how many of the steps from one pipeline stage to the next go to another node [1].

        >>> Layout(tensor_parallel_size=4, pipeline_parallel_size=4).num_node_crossings(8)
        1
        """
        return sum(stage * self.num_expert_gpus % gpus_per_node == 0 for stage in range(1, self.pipeline_parallel_size))
