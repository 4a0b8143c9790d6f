"""What the planner asks of a layer that keeps a cache.

A layer's cache is cut into pages, one a block. A page of one layer, seen logically:

    page = [num_heads, num_states, state_bytes]     bytes, dense unless `page_bytes` pads it

An attention layer keeps one state a token (or one for several tokens); a recurrent layer keeps one state a
page, whatever the number of tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Self, get_type_hints

from blockyard.core.arithmetic import div_ceil
from blockyard.core.errors import InvalidRequest

MAX_BYTES = 2**48
"""No page, and no block, is larger: more than any device's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What bounds the blocks that one request can hold at a time.

    Attributes:
        max_model_len: Tokens of the longest request, at least 1.
        max_in_flight_tokens: Tokens of one request that are scheduled and not yet settled, at most.
        decode_context: Ranks over which the token positions of sharded layers are spread.
        mamba_cache_mode: How recurrent states are kept: ``none``, ``align`` or ``all``.
        max_encoder_tokens: Tokens of the longest encoder input; None for a model without an encoder.
    """

    max_model_len: int
    max_in_flight_tokens: int = 8192
    decode_context: int = 1
    mamba_cache_mode: str = "none"
    max_encoder_tokens: int | None = None


class CannotMerge(Exception):
    """These layers cannot be described by one layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer(ABC):
    """One layer's cache. Equal values have equal pages and are placed as one tensor.

    Attributes:
        block_size: Tokens a block, at least 1.
        page_size_padded: Bytes that a page takes up, where that is more than its content.
    """

    kind: ClassVar[str]
    """The name of the kind in requests."""
    prefix_cacheable: ClassVar[bool] = True
    """Whether blocks of such a layer can be found by later requests."""

    block_size: int
    page_size_padded: int | None = None

    def __post_init__(self) -> None:
        """Refuse counts out of range, and a page padded to less than its content.

        Raises:
            InvalidRequest: Names the field at fault.
        """
        for name, least in _counts(type(self)):
            count = getattr(self, name)
            if count is not None and count < least:
                raise InvalidRequest.of(name, f"must be at least {least}")
        if max(self.content_bytes, self.page_bytes) > MAX_BYTES:
            raise InvalidRequest.of("block_size", f"a page of such a layer takes more than {MAX_BYTES} bytes")
        if self.page_size_padded is not None and self.page_size_padded < self.content_bytes:
            raise InvalidRequest.of(
                "page_size_padded", f"must be at least the page's content, {self.content_bytes} bytes"
            )

    @property
    @abstractmethod
    def num_heads(self) -> int:
        """Heads that a page keeps apart."""

    @property
    @abstractmethod
    def num_states(self) -> int:
        """States a head in a page."""

    @property
    @abstractmethod
    def state_bytes(self) -> int:
        """Bytes of one state of one head."""

    @property
    def content_bytes(self) -> int:
        """Bytes of a page without padding."""
        return self.num_heads * self.num_states * self.state_bytes

    @property
    def page_alignment(self) -> int:
        """Pages are padded to a multiple of so many bytes, unless `page_size_padded` is given."""
        return 1

    @property
    def page_bytes(self) -> int:
        """Bytes of a page."""
        if self.page_size_padded is not None:
            return self.page_size_padded
        return div_ceil(self.content_bytes, self.page_alignment) * self.page_alignment

    @property
    def dcp_sharded(self) -> bool:
        """Whether decode-context ranks keep different token positions; False where each keeps them all."""
        return False

    @property
    def stride_alignment(self) -> int:
        """The distance from block to block has to be a multiple of so many bytes."""
        return 1

    @property
    def is_draft(self) -> bool:
        """Whether the layer is marked as one of a draft model."""
        return False

    @abstractmethod
    def max_blocks(self, workload: Workload) -> int:
        """The most blocks that one request holds of such a layer.

        Raises:
            InvalidRequest: The workload says too little, or the kind does not allow it.
        """

    def can_share_table(self, other: "Layer") -> bool:
        """Whether ``other`` needs the same slots at any time, so that one block table serves both.

        Asked of the first of a set of layers; page sizes may differ.
        """
        return (
            self.block_size == other.block_size
            and self.dcp_sharded == other.dcp_sharded
            and self._needs_same_slots(other)
        )

    @abstractmethod
    def _needs_same_slots(self, other: "Layer") -> bool:
        """`can_share_table` for layers of equal block size."""

    def merge(self, others: Sequence["Layer"]) -> "Layer":
        """One layer that describes this one and ``others``, whose pages have to be alike.

        Raises:
            CannotMerge: They differ.
        """
        if any(other != self for other in others):
            raise CannotMerge
        return self

    def num_replicas(self, tensor: int, decode_context: int) -> int:  # noqa: ARG002 - most kinds are sharded
        """Consecutive tensor-parallel ranks, of ``tensor`` in all, that keep the same content."""
        return 1

    def can_pad_page(self) -> bool:
        """Whether pages may be padded to any size, since they are read through a stride."""
        return False

    def grows_with_block(self) -> bool:
        """Whether a block of twice the tokens has a page of twice the bytes."""
        return True

    def with_page(self, page_bytes: int) -> Self:
        """The same layer with pages of ``page_bytes``, padded if need be."""
        return self if self.page_bytes == page_bytes else self.but(page_size_padded=page_bytes)

    def but(self, **changes: Any) -> Self:
        """The same layer but for ``changes``."""
        return replace(self, **changes)


@cache
def _counts(kind: type[Layer]) -> list[tuple[str, int]]:
    """The fields of ``kind`` that are counts, and the least that each may be: 1 unless it says so."""
    hints = get_type_hints(kind)
    return [
        (each.name, each.metadata.get("min", 1))
        for each in fields(kind)
        if hints[each.name] in (int, int | None)
    ]
