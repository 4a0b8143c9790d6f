"""Attention layers: a state is one token's key and value, a block's page grows with its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from blockyard.core.arithmetic import div_ceil
from blockyard.core.errors import InvalidRequest
from blockyard.planning.dtypes import DTYPE_BYTES
from blockyard.planning.layers.base import CannotMerge, Layer, Workload
from blockyard.planning.layers.quantization import KvQuantMode


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayer(Layer):
    """What all attention layers have.

    Attributes:
        num_kv_heads: KV heads that this rank keeps, at least 1.
        head_size: Elements of a key.
        dtype: Element type, one of `DTYPE_BYTES`.
        head_size_v: Elements of a value; as many as a key's unless given, 0 where there is none.
        kv_quant_mode: How keys and values are quantised.
        num_head_slots: Heads that a page keeps apart, where that is not one a KV head.
        state_content_bytes: Bytes of one state of one head, where it is packed.
        tokens_per_state: Tokens that one state stands for.
        block_stride_alignment: The distance from block to block is a multiple of so many bytes.
        max_tp_shards: Over how many tensor-parallel ranks the KV heads can be spread; beyond, ranks keep
            the same. None: as many as there are.
        dcp_sharded: See `Layer.dcp_sharded`.
    """

    num_kv_heads: int
    head_size: int
    dtype: str
    head_size_v: int | None = field(default=None, metadata={"min": 0})
    kv_quant_mode: KvQuantMode = KvQuantMode.NONE
    num_head_slots: int | None = None
    state_content_bytes: int | None = None
    tokens_per_state: int = 1
    block_stride_alignment: int | None = None
    max_tp_shards: int | None = None
    dcp_sharded: bool = True

    def __post_init__(self) -> None:
        """Fill in the value's size; refuse sizes that do not fit each other.

        Raises:
            InvalidRequest: Names the field at fault.
        """
        if self.dtype not in DTYPE_BYTES:
            raise InvalidRequest.of("dtype", f"{self.dtype!r} is none of {', '.join(DTYPE_BYTES)}")
        if self.head_size_v is None:
            object.__setattr__(self, "head_size_v", self.head_size)
        if self.tokens_per_state < 1 or self.block_size % self.tokens_per_state:
            raise InvalidRequest.of("tokens_per_state", f"must divide the block size, {self.block_size}")
        multiple = self.kv_quant_mode.element_multiple
        if self.head_size % multiple or self._value_size % multiple:
            raise InvalidRequest.of("head_size", f"{self.kv_quant_mode} packs multiples of {multiple}")
        Layer.__post_init__(self)

    @property
    def _value_size(self) -> int:
        assert self.head_size_v is not None
        return self.head_size_v

    @property
    def num_heads(self) -> int:
        """See `Layer.num_heads`."""
        return self.num_kv_heads if self.num_head_slots is None else self.num_head_slots

    @property
    def num_states(self) -> int:
        """See `Layer.num_states`."""
        return self.block_size // self.tokens_per_state

    @property
    def state_bytes(self) -> int:
        """See `Layer.state_bytes`."""
        if self.state_content_bytes is not None:
            return self.state_content_bytes
        dtype_bytes = DTYPE_BYTES[self.dtype]
        vector_bytes = self.kv_quant_mode.vector_bytes
        return vector_bytes(self.head_size, dtype_bytes) + vector_bytes(self._value_size, dtype_bytes)

    @property
    def stride_alignment(self) -> int:
        """See `Layer.stride_alignment`."""
        return self.block_stride_alignment or 1

    def num_replicas(self, tensor: int, decode_context: int) -> int:
        """See `Layer.num_replicas`: ranks beyond the heads' shards keep copies, or other positions."""
        if self.max_tp_shards is None or (self.dcp_sharded and decode_context > 1):
            return 1
        return max(1, tensor // self.max_tp_shards)

    def can_pad_page(self) -> bool:
        """See `Layer.can_pad_page`."""
        return True

    def stores_alike(self, other: "AttentionLayer") -> bool:
        """Whether pages of both are alike: equal in every field of this class, and as large."""
        return self.page_bytes == other.page_bytes and all(
            getattr(self, f.name) == getattr(other, f.name) for f in fields(AttentionLayer)
        )

    def as_kind(self, kind: type["FullAttention"], **changes: Any) -> "FullAttention":
        """A layer of another ``kind`` with this one's sizes, those that it has, but for ``changes``."""
        known = {f.name for f in fields(kind)}
        same = {f.name: getattr(self, f.name) for f in fields(self) if f.name in known}
        return kind(**{**same, **changes})

    def _all_of(self, kind: type[Self], others: Sequence[Layer]) -> list[Self]:
        """This layer and ``others``, all of ``kind`` and with pages alike.

        Raises:
            CannotMerge: One is not.
        """
        alike = [other for other in others if isinstance(other, kind) and self.stores_alike(other)]
        if len(alike) < len(others):
            raise CannotMerge
        return [self, *alike]


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttention(AttentionLayer):
    """Every token looks at all before it.

    A sliding-window or chunked layer that is allocated like full attention keeps its window here.

    Attributes:
        sliding_window: Tokens that the layer computes with, though blocks are kept for all.
        attention_chunk_size: The same for chunked local attention.
    """

    kind: ClassVar[str] = "full_attention"

    sliding_window: int | None = None
    attention_chunk_size: int | None = None

    def max_blocks(self, workload: Workload) -> int:
        """Blocks for the longest request; a decode-context rank keeps its share of the positions."""
        num_tokens = workload.max_model_len
        if self.dcp_sharded:
            num_tokens = div_ceil(num_tokens, workload.decode_context)
        return div_ceil(num_tokens, self.block_size)

    def _needs_same_slots(self, other: Layer) -> bool:
        return isinstance(other, FullAttention)

    def merge(self, others: Sequence[Layer]) -> Layer:
        """See `Layer.merge`. Windows may be missing, but those given are equal, and of one sort."""
        layers = self._all_of(FullAttention, others)
        if any(isinstance(layer, MlaAttention) for layer in layers):
            raise CannotMerge
        windows = {layer.sliding_window for layer in layers} - {None}
        chunks = {layer.attention_chunk_size for layer in layers} - {None}
        if len(windows) + len(chunks) > 1:
            raise CannotMerge
        return self.but(
            sliding_window=next(iter(windows), None), attention_chunk_size=next(iter(chunks), None)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFullAttention(FullAttention):
    """Full attention with learned sinks beside it.

    Attributes:
        sink_len: Sink tokens.
    """

    kind: ClassVar[str] = "sink_full_attention"

    sink_len: int | None = field(default=None, metadata={"min": 0})


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaAttention(FullAttention):
    """Multi-head latent attention: one latent vector a state, no value beside it.

    Attributes:
        head_size_v: 0.
        cache_dtype_str: The engine's name of the cache format; layers of another one are another group.
            ``fp8_ds_mla`` packs a state of 576 into 656 bytes unless `state_content_bytes` says otherwise.
        alignment: Pages are padded to a multiple of so many bytes, unless `page_size_padded` is given.
        model_version: Layers of another version are another group.
        non_causal_multi_token_decode: Marks a draft model's layer.
        cache_role: ``sparse``, or ``indexer`` for the small cache that chooses what sparse attention reads.
        is_index_group_leader: The first of the sparse layers that share one choice.
    """

    kind: ClassVar[str] = "mla_attention"

    head_size_v: int | None = field(default=0, metadata={"min": 0})
    cache_dtype_str: str | None = None
    alignment: int | None = None
    model_version: str | None = None
    non_causal_multi_token_decode: bool = False
    cache_role: str = field(default="sparse", metadata={"choices": ("sparse", "indexer")})
    is_index_group_leader: bool = False

    def __post_init__(self) -> None:
        """See `AttentionLayer.__post_init__`."""
        _fill_in_format(self)
        AttentionLayer.__post_init__(self)

    @property
    def is_draft(self) -> bool:
        """See `Layer.is_draft`."""
        return self.non_causal_multi_token_decode

    def can_pad_page(self) -> bool:
        """See `Layer.can_pad_page`: never, sparse attention addresses rows; `alignment` keeps them whole."""
        return False

    @property
    def page_alignment(self) -> int:
        """See `Layer.page_alignment`."""
        return self.alignment or 1

    def merge(self, others: Sequence[Layer]) -> Layer:
        """See `Layer.merge`. Roles may differ."""
        layers = self._all_of(MlaAttention, others)
        if (
            len(
                {
                    (layer.cache_dtype_str, layer.model_version, layer.non_causal_multi_token_decode)
                    for layer in layers
                }
            )
            > 1
        ):
            raise CannotMerge
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenState(MlaAttention):
    """Hidden states to be handed out, ``num_kv_heads`` of ``head_size`` elements a token."""

    kind: ClassVar[str] = "hidden_state"

    def __post_init__(self) -> None:
        """See `AttentionLayer.__post_init__`."""
        MlaAttention.__post_init__(self)
        if self.tokens_per_state != 1:
            raise InvalidRequest.of("tokens_per_state", "hidden states are kept token by token: must be 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedLocalAttention(AttentionLayer):
    """A token looks back to the beginning of its chunk.

    Attributes:
        attention_chunk_size: Tokens a chunk.
    """

    kind: ClassVar[str] = "chunked_local_attention"

    attention_chunk_size: int

    def max_blocks(self, workload: Workload) -> int:
        """Blocks for one chunk and what is in flight, of no more than the longest request."""
        num_tokens = min(self.attention_chunk_size + workload.max_in_flight_tokens, workload.max_model_len)
        return div_ceil(num_tokens, self.block_size)

    def _needs_same_slots(self, other: Layer) -> bool:
        return (
            isinstance(other, ChunkedLocalAttention)
            and other.attention_chunk_size == self.attention_chunk_size
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow(AttentionLayer):
    """A token looks at the last `sliding_window` tokens, itself included.

    Attributes:
        sliding_window: Tokens.
        extra_retained_tokens: Tokens kept behind the window, for drafts that compute the last ones again.
    """

    kind: ClassVar[str] = "sliding_window"

    sliding_window: int
    extra_retained_tokens: int = field(default=0, metadata={"min": 0})

    def max_blocks(self, workload: Workload) -> int:
        """Blocks for a window and what is in flight; one more, as a window need not begin with a block.

            block size 4:   [XXCD][EF..]   a window of 4 tokens, C to F, in two blocks

        Raises:
            InvalidRequest: Positions would be spread over decode-context ranks.
        """
        if self.dcp_sharded and workload.decode_context > 1:
            raise InvalidRequest.of(
                "parallel.decode_context",
                "sliding-window layers cannot be spread over ranks: use 1, or set their dcp_sharded to false",
            )
        num_tokens = self.sliding_window - 1 + self.extra_retained_tokens + workload.max_in_flight_tokens
        return div_ceil(min(num_tokens, workload.max_model_len), self.block_size) + 1

    def _needs_same_slots(self, other: Layer) -> bool:
        return (
            isinstance(other, SlidingWindow)
            and not isinstance(other, KpoolTail)
            and self._has_same_window(other)
        )

    def _has_same_window(self, other: "SlidingWindow") -> bool:
        return (other.sliding_window, other.extra_retained_tokens) == (
            self.sliding_window,
            self.extra_retained_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindowMla(SlidingWindow):
    """Sliding-window attention over latent vectors; see `MlaAttention` for the further attributes."""

    kind: ClassVar[str] = "sliding_window_mla"

    head_size_v: int | None = field(default=0, metadata={"min": 0})
    cache_dtype_str: str | None = None
    alignment: int | None = None
    model_version: str | None = None

    def __post_init__(self) -> None:
        """See `AttentionLayer.__post_init__`."""
        _fill_in_format(self)
        AttentionLayer.__post_init__(self)

    @property
    def page_alignment(self) -> int:
        """See `Layer.page_alignment`."""
        return self.alignment or 1

    def _needs_same_slots(self, other: Layer) -> bool:
        return isinstance(other, SlidingWindowMla) and self._has_same_window(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class KpoolTail(SlidingWindow):
    """The raw keys behind a pooling indexer's last full pool: one block a request, written in a circle."""

    kind: ClassVar[str] = "kpool_tail"
    prefix_cacheable: ClassVar[bool] = False

    def max_blocks(self, workload: Workload) -> int:  # noqa: ARG002 - whatever the length
        """One."""
        return 1

    def _needs_same_slots(self, other: Layer) -> bool:
        return isinstance(other, KpoolTail)


@dataclass(frozen=True, slots=True, kw_only=True)
class CircularBuffer(AttentionLayer):
    """Keys of the tokens that are still being compressed: one block a request, written in a circle."""

    kind: ClassVar[str] = "circular_buffer"
    prefix_cacheable: ClassVar[bool] = False

    def max_blocks(self, workload: Workload) -> int:  # noqa: ARG002 - whatever the length
        """One."""
        return 1

    def _needs_same_slots(self, other: Layer) -> bool:
        return isinstance(other, CircularBuffer)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttention(AttentionLayer):
    """A decoder's layer that looks at the encoder's output."""

    kind: ClassVar[str] = "cross_attention"

    def max_blocks(self, workload: Workload) -> int:
        """Blocks for the longest encoder input.

        Raises:
            InvalidRequest: The workload does not say how long that is.
        """
        if workload.max_encoder_tokens is None:
            raise InvalidRequest.of(
                "max_encoder_tokens", "cross-attention layers need it: tokens of the longest encoder input"
            )
        return div_ceil(workload.max_encoder_tokens, self.block_size)

    def _needs_same_slots(self, other: Layer) -> bool:
        return isinstance(other, CrossAttention)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderOnlyAttention(AttentionLayer):
    """An encoder's layer: all tokens are computed at once, and nothing is kept for later."""

    kind: ClassVar[str] = "encoder_only_attention"

    def max_blocks(self, workload: Workload) -> int:  # noqa: ARG002 - whatever the length
        """None at all."""
        return 0

    def _needs_same_slots(self, other: Layer) -> bool:
        return isinstance(other, EncoderOnlyAttention)


FP8_DS_MLA_BYTES = 656
"""A latent vector of 512 bytes in fp8, 16 bytes of scales, and 64 rotary elements in 16 bits.

Source: vLLM's sparse FlashMLA backend.
"""


def _fill_in_format(layer: MlaAttention | SlidingWindowMla) -> None:
    """The width of a state that follows from its format's name."""
    if layer.cache_dtype_str == "fp8_ds_mla" and layer.state_content_bytes is None:
        object.__setattr__(layer, "state_content_bytes", FP8_DS_MLA_BYTES)
