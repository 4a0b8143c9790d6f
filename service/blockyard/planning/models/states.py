"""Sizes of recurrent states, as one tensor rank keeps them.

A state is what a causal convolution still needs of the last inputs, ``[kernel - 1, channels]``, and what the
recurrence carries on. Where drafts may be rejected, the convolution keeps as many more inputs.

Element types: the convolution's inputs are activations, in the model's type. What a Mamba recurrence carries
on sums up over the whole sequence, and its kernels compute it in float32: that is kept unless the
configuration says ``mamba_ssm_dtype``. A gated delta net's is kept in the model's type under the same
condition, and Kimi's delta attention always keeps float32. A plan for a wider type than the engine's has
room for the engine's.

Source: vLLM's ``MambaStateShapeCalculator`` and ``MambaStateDtypeCalculator``.
"""

from dataclasses import dataclass
from typing import Protocol


class Shares(Protocol):
    """What sizes depend on besides the model."""

    @property
    def tensor(self) -> int:
        """Ranks that share the layer."""

    @property
    def model_dtype(self) -> str:
        """Element type of activations."""

    @property
    def num_speculative_blocks(self) -> int:
        """Tokens that may be drafted and rejected."""

    def share(self, total: int, what: str) -> int:
        """One rank's share of ``total``; refuses an uneven one."""


@dataclass(frozen=True, slots=True)
class State:
    """The tensors of one state: shapes and element types, one each."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba1Sizes:
    """A selective state space: every channel has a state of its own.

    Attributes:
        num_channels: Channels in all.
        state_size: Elements a channel.
        conv_kernel: Inputs that the convolution reads.
        dtype: What the recurrence is kept in; None for float32.
    """

    num_channels: int
    state_size: int
    conv_kernel: int
    dtype: str | None

    def state(self, shares: Shares) -> State:
        """One rank's channels."""
        num_channels = shares.share(self.num_channels, "Mamba channels")
        return _state(
            conv=(self.conv_kernel - 1, num_channels),
            recurrence=(num_channels, self.state_size),
            dtypes=(shares.model_dtype, self.dtype or "float32"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2Sizes:
    """State space duality: heads of channels, in groups that share their input and output matrices.

    Attributes:
        num_heads: Heads in all.
        head_size: Channels a head.
        num_groups: Groups of heads.
        state_size: Elements a channel.
        conv_kernel: Inputs that the convolution reads.
        dtype: What the recurrence is kept in; None for float32.
    """

    num_heads: int
    head_size: int
    num_groups: int
    state_size: int
    conv_kernel: int
    dtype: str | None

    def state(self, shares: Shares) -> State:
        """One rank's heads with the groups that they need: a single group is kept by all ranks.

        The convolution reads a rank's channels, and for each of its groups both matrices' inputs.
        """
        num_heads = shares.share(self.num_heads, "Mamba heads")
        num_groups = 1 if self.num_groups == 1 else shares.share(self.num_groups, "Mamba groups")
        num_channels = num_heads * self.head_size + 2 * num_groups * self.state_size
        return _state(
            conv=(self.conv_kernel - 1 + shares.num_speculative_blocks, num_channels),
            recurrence=(num_heads, self.head_size, self.state_size),
            dtypes=(shares.model_dtype, self.dtype or "float32"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaNetSizes:
    """A gated delta net: heads that map keys to values; several value heads may share a key head.

    Attributes:
        num_key_heads: Key heads in all.
        key_size: Elements of a key.
        num_value_heads: Value heads in all.
        value_size: Elements of a value.
        conv_kernel: Inputs that the convolution reads.
        dtype: What the recurrence is kept in; None for the model's type.
    """

    num_key_heads: int
    key_size: int
    num_value_heads: int
    value_size: int
    conv_kernel: int
    dtype: str | None

    def state(self, shares: Shares) -> State:
        """One rank's heads. The convolution reads queries, keys and values."""
        num_key_heads = shares.share(self.num_key_heads, "key heads")
        num_value_heads = shares.share(self.num_value_heads, "value heads")
        num_channels = 2 * num_key_heads * self.key_size + num_value_heads * self.value_size
        return _state(
            conv=(self.conv_kernel - 1 + shares.num_speculative_blocks, num_channels),
            recurrence=(num_value_heads, self.key_size, self.value_size),
            dtypes=(shares.model_dtype, self.dtype or shares.model_dtype),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiDeltaSizes:
    """Kimi's delta attention: as many key heads as value heads, all of one size.

    Attributes:
        num_heads: Heads in all.
        head_size: Elements of a query, a key and a value.
        conv_kernel: Inputs that the convolution reads.
    """

    num_heads: int
    head_size: int
    conv_kernel: int

    def state(self, shares: Shares) -> State:
        """One rank's heads. The convolution reads queries, keys and values, and is kept as one tensor."""
        num_heads = shares.share(self.num_heads, "heads of linear attention")
        return _state(
            conv=(self.conv_kernel - 1, 3 * num_heads * self.head_size),
            recurrence=(num_heads, self.head_size, self.head_size),
            dtypes=(shares.model_dtype, "float32"),
        )


def _state(*, conv: tuple[int, int], recurrence: tuple[int, ...], dtypes: tuple[str, str]) -> State:
    return State(shapes=(conv, recurrence), dtypes=dtypes)
