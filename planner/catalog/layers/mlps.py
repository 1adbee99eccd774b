"""MLPs: dense ones, and routed experts with their router and shared experts."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from planner.catalog.layers.dense_gemm import Gemm


class Mlp(ABC):
    """The common part of dense MLPs and routed experts."""

    __slots__ = ()

    @abstractmethod
    def projections(self, hidden: int, ranks: int) -> tuple[Gemm, ...]:
        """Return the dense products of one layer on one of `ranks` GPUs, `count` 1 each; without routed experts."""

    @property
    @abstractmethod
    def activated_width(self) -> int:
        """Elements of a token that a separate kernel activates; 0 without one [1]."""

    @abstractmethod
    def activation_width(self, hidden: int, ranks: int) -> float:
        """Return the elements that a token has in the MLP on one GPU [1]."""

    def fault(self) -> str | None:
        """Return the contradiction in the shapes; None without one."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense(Mlp):
    """A dense MLP.

    Parameters
    ----------
    width : of the hidden layer, the mean if layers differ [1].
    num_matrices : 3 in a gated MLP (gate, up, down), 2 otherwise [1].
    """

    width: int
    num_matrices: int

    def parameters(self, hidden: int) -> int:
        """Return its weights: matrices · hidden size · width [1]."""
        return self.num_matrices * hidden * self.width

    def projections(self, hidden: int, ranks: int) -> tuple[Gemm, ...]:
        """Return gate and up in one, and down."""
        width = -(-self.width // ranks)
        return (Gemm("gate_up_proj", (self.num_matrices - 1) * width, hidden, 1, "mlp"),
                Gemm("down_proj", hidden, width, 1, "mlp"))

    @property
    def activated_width(self) -> int:
        """Gate, up and product [1]."""
        return self.num_matrices * self.width

    def activation_width(self, hidden: int, ranks: int) -> float:
        """Return gate, up and product on one GPU [1]."""
        return 3 * self.width / ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts(Mlp):
    """Routed experts, with their router, shared experts, and projections to a latent and back.

    Parameters
    ----------
    num_experts, num_experts_per_tok : routed experts of a layer, and how many a token visits [1].
    width, shared_width : of one routed expert, and of all shared ones together [1].
    latent_width : of the latent that routed experts work on, 0 without one [1].
    num_matrices : 3 in a gated expert (gate, up, down), 2 otherwise [1].
    """

    num_experts: int
    num_experts_per_tok: int
    width: int
    shared_width: int
    latent_width: int
    num_matrices: int

    def input_width(self, hidden: int) -> int:
        """Return the width of the routed experts' input: the hidden state, or a latent [1]."""
        return self.latent_width or hidden

    def expert_parameters(self, hidden: int) -> int:
        """Return the weights of one routed expert: matrices · hidden size (or latent) · width [1]."""
        return self.num_matrices * self.input_width(hidden) * self.width

    def shared_parameters(self, hidden: int) -> int:
        """Return the weights of a layer's shared experts; the gate of Qwen's, hidden size, is left out [1]."""
        return self.num_matrices * hidden * self.shared_width

    def latent_parameters(self, hidden: int) -> int:
        """Return the weights of a layer's projections to a latent and back, which every rank has [1]."""
        return 2 * hidden * self.latent_width

    def router_parameters(self, hidden: int) -> int:
        """Return the weights of a layer's router [1]."""
        return hidden * self.num_experts

    def projections(self, hidden: int, ranks: int) -> tuple[Gemm, ...]:
        """Return the router, which stays 16-bit, the projections to a latent and back, and the shared experts."""
        shared = -(-self.shared_width // ranks)
        return (Gemm("router", self.num_experts, hidden, 1, "kept"),
                Gemm("latent_down_proj", self.latent_width, hidden, 1, "mlp"),
                Gemm("latent_up_proj", hidden, self.latent_width, 1, "mlp"),
                Gemm("shared_gate_up_proj", (self.num_matrices - 1) * shared, hidden, 1, "mlp"),
                Gemm("shared_down_proj", hidden, shared, 1, "mlp"))

    @property
    def activated_width(self) -> int:
        """Gate, up and product of shared experts; the kernel of routed ones has theirs [1]."""
        return self.num_matrices * self.shared_width

    def activation_width(self, hidden: int, ranks: int) -> float:
        """Return input and output of each visited expert, its gate, up and product; the same of shared experts [1]."""
        routed = self.num_experts_per_tok * (2 * hidden + 3 * self.width / ranks)
        return routed + 3 * self.shared_width / ranks

    def fault(self) -> str | None:
        """Return whether a token visits more experts than there are."""
        if self.num_experts_per_tok > self.num_experts:
            return (f"num_experts_per_tok = {self.num_experts_per_tok} must be <= the number of experts, "
                    f"{self.num_experts}")
        return None


@dataclass(frozen=True, slots=True)
class MlpGroup:
    """Equal MLPs, wherever they are in the model.

    Parameters
    ----------
    count : layers that have one [1].
    mlp : of each.
    """

    count: int
    mlp: Mlp
