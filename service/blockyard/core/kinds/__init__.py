"""The kinds of layer that a pool can hold, by name."""

from collections.abc import Sequence

from blockyard.core.config import GroupConfig, PoolConfig
from blockyard.core.errors import InvalidRequest
from blockyard.core.kinds.base import ANY_LENGTH, Demand, HitSearch, Kind, Progress
from blockyard.core.kinds.chunked_local import ChunkedLocalAttention
from blockyard.core.kinds.fixed import CrossAttention, HotBlocks, OneBlock, ResidentBlocks
from blockyard.core.kinds.full_attention import FullAttention
from blockyard.core.kinds.mamba import RecurrentStates
from blockyard.core.kinds.reference_window import ReferenceWindow
from blockyard.core.kinds.sliding_window import SlidingWindow

KINDS: dict[str, type[Kind]] = {
    "full_attention": FullAttention,
    "mla_attention": FullAttention,
    "hidden_state": FullAttention,
    "sink_full_attention": FullAttention,
    "sliding_window": SlidingWindow,
    "sliding_window_mla": SlidingWindow,
    "chunked_local_attention": ChunkedLocalAttention,
    "rswa": ReferenceWindow,
    "mamba": RecurrentStates,
    "cross_attention": CrossAttention,
    "circular_buffer": OneBlock,
    "kpool_tail": OneBlock,
    "resident": ResidentBlocks,
    "hot": HotBlocks,
}

__all__ = [
    "ANY_LENGTH",
    "KINDS",
    "Demand",
    "HitSearch",
    "Kind",
    "Progress",
    "can_be_draft",
    "ends_inside_blocks",
    "kind_of",
    "kinds_of",
]


def kinds_of(config: PoolConfig) -> tuple[Kind, ...]:
    """The kinds of a pool's groups, in order.

    Raises:
        InvalidRequest: No kind has such a name, or its sizes are wrong, or do not go with the pool's options.
    """
    kinds = tuple(kind_of(group) for group in config.groups)
    sizes = [kind.block_size for kind in kinds if kind.is_cacheable]
    if config.enable_prefix_caching and any(size % config.hash_block_size for size in sizes):
        raise InvalidRequest.of("hash_block_size", f"must divide the groups' block sizes, {sizes}")
    for group, kind in zip(config.groups, kinds, strict=True):
        if config.enable_prefix_caching and not kind.allows_hits:
            raise InvalidRequest.of(
                "enable_prefix_caching", f"must be false: what {group.kind} groups keep is not found again"
            )
    return kinds


def ends_inside_blocks(groups: Sequence[GroupConfig], hash_block_size: int) -> bool:
    """Whether a hit in a pool of ``groups`` may end inside a block, of which the sequence then gets a copy.

    Raises:
        InvalidRequest: No kind has such a name, or its sizes are wrong.
    """
    kinds = [kind_of(group) for group in groups]
    # Not where blocks lie on the host: those of a reported copy are the device's.
    return (
        all(kind.can_split_blocks for kind in kinds)
        and any(kind.keeps_states and kind.block_size > hash_block_size for kind in kinds)
        and not any(group.is_host_resident for group in groups)
    )


def can_be_draft(kind: str) -> bool:
    """Whether a drafter's last block can be computed anew in groups of this name."""
    return kind in KINDS and KINDS[kind].can_be_draft


def kind_of(group: GroupConfig) -> Kind:
    """The kind of a group.

    Raises:
        InvalidRequest: No kind has such a name, or its sizes are wrong.
    """
    kind = KINDS.get(group.kind)
    if kind is None:
        raise InvalidRequest.of("groups.kind", f"{group.kind!r} is none of {', '.join(KINDS)}")
    if group.is_draft and not kind.can_be_draft:
        raise InvalidRequest.of("groups.is_draft", f"a {group.kind} group has none: leave it out")
    return kind.from_config(group)
