"""Linear attention: a state of fixed size, and no KV cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from planner.catalog.layers.dense_gemm import Gemm
from planner.catalog.layers.layer_group import Attention, LayerGroup, undivided_heads

CONV_STATE_BYTES_PER_ELEMENT = 2  # engines keep the convolution's last inputs in 16 bit


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention(Attention):
    """The common part of all kinds of linear attention.

    Parameters
    ----------
    num_key_heads, num_value_heads, key_head_dim, value_head_dim, conv_kernel_dim : their shapes [1].
    state_bytes_per_element : of the recurrent state, 4 if the config asks for FP32 [B].
    decay_rank, gate_rank : ranks of the projections to decays and output gates, 0 if a gate's is full [1].
    """

    scalars_per_head: ClassVar[int]  # projected for each value head

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel_dim: int
    state_bytes_per_element: int
    decay_rank: int = 0
    gate_rank: int = 0

    @property
    def has_cache(self) -> bool:
        """Whether a layer has a KV cache: none has."""
        return False

    @property
    def key_width(self) -> int:
        """Width of the query, and of the key [1]."""
        return self.num_key_heads * self.key_head_dim

    @property
    def value_width(self) -> int:
        """Width of the value, and of the output gate [1]."""
        return self.num_value_heads * self.value_head_dim

    def projections(self, group: LayerGroup, hidden: int, ranks: int) -> tuple[Gemm, ...]:
        """Return query, key, value and gate in one; scalars and low-rank projections, in 16 bit; then the output.

        Low-rank projections are on every rank in full. The convolution and the norms are left out.

        Source: Yang et al., Gated Delta Networks, 2024; Kimi Linear, 2025; transformers' `modeling_qwen3_next.py`.
        """
        decay, gate = self.decay_rank, self.gate_rank
        width = -(-(2 * self.key_width + (1 if gate else 2) * self.value_width) // ranks)
        scalars = -(-self.scalars_per_head * self.num_value_heads // ranks)
        value_width = -(-self.value_width // ranks)
        return (Gemm("in_proj_qkvz", width, hidden, 1, "linear"),
                Gemm("in_proj_ba", scalars + decay + gate, hidden, 1, "kept"),
                Gemm("f_b_proj", -(-self.key_width // ranks), decay, 1, "kept"),
                Gemm("g_b_proj", value_width, gate, 1, "kept"),
                Gemm("out_proj", hidden, value_width, 1, "linear"))

    def state_bytes(self, groups: Sequence[LayerGroup], kv_bytes_per_element: float, ranks: int, stages: int) -> int:
        """Return the recurrent states, and the convolution's last inputs, which are 16-bit [bytes].

        V·d_v·d_k elements of state and (kernel - 1)·(2·K·d_k + V·d_v) inputs a layer. Heads are split over ranks,
        layers over stages. Speculative decoding and prefix caching keep further copies, which are left out.

        Source: vLLM's `MambaStateShapeCalculator.gated_delta_net_state_shape`.
        """
        num_layers = -(-sum(group.count for group in groups) // stages)
        state = self.value_width * self.key_head_dim * self.state_bytes_per_element
        inputs = (self.conv_kernel_dim - 1) * (2 * self.key_width + self.value_width)
        return num_layers * -(-(state + inputs * CONV_STATE_BYTES_PER_ELEMENT) // ranks)

    @property
    def activation_width(self) -> int:
        """Query, key, value and gate of a token, before and after the convolution [1]."""
        return 4 * self.key_width + 4 * self.value_width

    def undivided(self, ranks: int) -> tuple[str, int] | None:
        """Return the heads that cannot be divided over ranks."""
        return undivided_heads("linear attention", self.num_value_heads, self.num_key_heads, ranks)

    def fault(self, group: LayerGroup) -> str | None:
        """Return whether key heads divide the value heads."""
        if self.num_value_heads % self.num_key_heads:
            return (f"linear_num_key_heads = {self.num_key_heads} must divide linear_num_value_heads = "
                    f"{self.num_value_heads}")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDeltaNet(LinearAttention):
    """Gated delta net (Qwen3-Next, Qwen3.5): a decay and a rate for each value head."""

    scalars_per_head = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDelta(LinearAttention):
    """Kimi delta attention, whose decay differs by channel: a rate for each value head."""

    scalars_per_head = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2(LinearAttention):
    """Mamba-2, whose groups are keys and whose state size is their width: a step for each value head."""

    scalars_per_head = 1


CHANNELS = 64  # of Mamba's channels that count as a head: their states and inputs are the same, however they are cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1(LinearAttention):
    """Mamba (Jamba): a state for each channel, whose step, input and output come from projections of the channels."""

    scalars_per_head = 0

    def projections(self, group: LayerGroup, hidden: int, ranks: int) -> tuple[Gemm, ...]:
        """Return the channels and their gates in one; step, input and output; the step from its low rank; the output.

        Source: Gu and Dao, Mamba, 2023; vLLM's `mamba_mixer.py`.
        """
        channels = -(-self.value_width // ranks)
        return (Gemm("in_proj", 2 * channels, hidden, 1, "linear"),
                Gemm("x_proj", self.decay_rank + 2 * self.key_head_dim, channels, 1, "linear"),
                Gemm("dt_proj", channels, self.decay_rank, 1, "linear"),
                Gemm("out_proj", hidden, channels, 1, "linear"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConv(Attention):
    """A gated short convolution (LFM2), whose state is its last inputs.

    Parameters
    ----------
    width : channels, as many as the hidden state has [1].
    conv_kernel_dim : inputs that an output sees [1].
    """

    width: int
    conv_kernel_dim: int

    @property
    def has_cache(self) -> bool:
        """Whether a layer has a KV cache: none has."""
        return False

    def projections(self, group: LayerGroup, hidden: int, ranks: int) -> tuple[Gemm, ...]:
        """Return the input with the gates before and behind the convolution in one, then the output.

        Source: transformers' `modeling_lfm2.py`.
        """
        width = -(-self.width // ranks)
        return Gemm("in_proj", 3 * width, hidden, 1, "linear"), Gemm("out_proj", hidden, width, 1, "linear")

    def state_bytes(self, groups: Sequence[LayerGroup], kv_bytes_per_element: float, ranks: int, stages: int) -> int:
        """Return the last inputs of all layers, which are 16-bit [bytes]."""
        num_layers = -(-sum(group.count for group in groups) // stages)
        return num_layers * -(-(self.conv_kernel_dim - 1) * self.width * CONV_STATE_BYTES_PER_ELEMENT // ranks)

    @property
    def activation_width(self) -> int:
        """Input and its two gates, and the output [1]."""
        return 4 * self.width

    def undivided(self, ranks: int) -> tuple[str, int] | None:
        """Return the channels, if they cannot be divided over ranks."""
        return ("channels of a convolution", self.width) if self.width % ranks else None
