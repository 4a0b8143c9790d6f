"""One tensor rank's layers, from a model's sizes: the ranks' shares, the stored types and the block size."""

from dataclasses import dataclass
from typing import Any, TypeVar

from blockyard.core.errors import InvalidRequest
from blockyard.planning.layers import (
    AttentionLayer,
    ChunkedLocalAttention,
    CrossAttention,
    FullAttention,
    Mamba,
    MlaAttention,
    SlidingWindow,
)
from blockyard.planning.models.heads import FULL, Heads, Span
from blockyard.planning.models.states import State
from blockyard.planning.models.storage import KvStorage

Attention = TypeVar("Attention", bound=AttentionLayer)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFactory:
    """Makes layers as one of ``tensor`` ranks keeps them.

    Attributes:
        tensor: Ranks that share every layer.
        block_size: Tokens that attention kernels work in multiples of.
        model_dtype: Element type that the model computes in.
        storage: How keys and values are stored; states are kept in the model's types.
        mamba_cache_mode: See `Mamba`.
        num_speculative_blocks: See `Mamba`.
    """

    tensor: int
    block_size: int
    model_dtype: str
    storage: KvStorage
    mamba_cache_mode: str
    num_speculative_blocks: int

    def attention(self, heads: Heads, span: Span = FULL) -> AttentionLayer:
        """A layer whose tokens look back as far as ``span``.

        Raises:
            InvalidRequest: The ranks cannot share the heads evenly, or heads cannot be stored as asked.
        """
        if span.sliding_window is not None:
            return self._keys_and_values(SlidingWindow, heads, sliding_window=span.sliding_window)
        if span.attention_chunk_size is not None:
            return self._keys_and_values(
                ChunkedLocalAttention, heads, attention_chunk_size=span.attention_chunk_size
            )
        return self._keys_and_values(FullAttention, heads)

    def cross_attention(self, heads: Heads) -> CrossAttention:
        """A decoder's layer that looks at the encoder's output; refuses what `attention` refuses."""
        return self._keys_and_values(CrossAttention, heads)

    def latent(self, rank: int, rotary: int, *, sparse: bool) -> MlaAttention:
        """Latent vectors of ``rank`` elements with ``rotary`` ones beside; every tensor rank keeps them all.

        Args:
            rank: At least 1.
            rotary: At least 1.
            sparse: Whether an indexer chooses what is read.

        Raises:
            InvalidRequest: They cannot be stored as asked.
        """
        packed = self.storage.latent_format(rank, rotary, sparse=sparse)
        return MlaAttention(
            block_size=self.block_size,
            num_kv_heads=1,
            head_size=rank + rotary,
            dtype="uint8" if packed else self.storage.dtype,
            cache_dtype_str=packed,
            max_tp_shards=1,
            is_index_group_leader=sparse,
        )

    def indexer(self, head_size: int) -> MlaAttention:
        """The keys by which sparse attention chooses: in 8 bits, with a 4-byte scale for every 128.

        Source: vLLM's ``DeepseekV32IndexerCache``.
        """
        return MlaAttention(
            block_size=self.block_size,
            num_kv_heads=1,
            head_size=head_size + head_size // 128 * 4,
            dtype="uint8",
            max_tp_shards=1,
            cache_role="indexer",
        )

    def recurrent(self, state: State) -> Mamba:
        """A layer that keeps one ``state`` a block."""
        return Mamba(
            block_size=self.block_size,
            shapes=state.shapes,
            dtypes=state.dtypes,
            mamba_cache_mode=self.mamba_cache_mode,
            num_speculative_blocks=self.num_speculative_blocks,
        )

    def share(self, total: int, what: str) -> int:
        """One rank's share of ``total``, in words ``what``.

        Raises:
            InvalidRequest: The ranks cannot share it evenly.
        """
        if total % self.tensor:
            raise InvalidRequest.of(
                "parallel.tensor", f"{self.tensor} ranks cannot share {total} {what} evenly: use a divisor"
            )
        return total // self.tensor

    def _keys_and_values(self, kind: type[Attention], heads: Heads, **span: Any) -> Attention:
        self.storage.check_vectors(heads.head_size)
        return kind(
            block_size=self.block_size,
            num_kv_heads=self._kv_heads(heads.num_kv_heads),
            head_size=heads.head_size,
            dtype=self.storage.dtype,
            kv_quant_mode=self.storage.kv_quant_mode,
            max_tp_shards=heads.num_kv_heads,
            **span,
        )

    def _kv_heads(self, total: int) -> int:
        """One rank's KV heads; ranks beyond their number keep copies."""
        if total % self.tensor and self.tensor % total:
            raise InvalidRequest.of(
                "parallel.tensor",
                f"{self.tensor} ranks cannot share {total} KV heads evenly: use a divisor or a multiple",
            )
        return max(1, total // self.tensor)
