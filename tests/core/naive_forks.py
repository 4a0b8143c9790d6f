"""Forks without shortcuts: who shares a block is counted anew in the tables whenever it matters."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from blockyard.core.config import GroupConfig, PoolConfig
from blockyard.core.errors import InvalidRequest
from blockyard.core.ids import NULL_BLOCK, BlockId, SequenceId
from core.naive_kinds import div_ceil
from core.naive_sequence import NaiveContent, NaiveSequence
from core.naive_tables import Copies, NaiveTables

MAX_FORKS = 128


def num_shared(group: GroupConfig, table: list[BlockId], num_tokens: int) -> int:
    """Leading blocks that a fork shares: those of states, but the running one; none of a circle's."""
    if group.kind == "cross_attention":
        return len(table)
    if group.kind in ("circular_buffer", "kpool_tail", "hot"):
        return 0
    if group.kind == "mamba":
        return (num_tokens - 1) // group.block_size
    return div_ceil(num_tokens, group.block_size)


def is_overwritten(group: GroupConfig) -> bool:
    return group.kind in ("circular_buffer", "kpool_tail", "hot", "mamba")


def open_block(group: GroupConfig, table: list[BlockId], num_tokens: int) -> BlockId:
    """The block that holds the last of so many tokens and will hold the next one; null if none does."""
    if is_overwritten(group) or group.kind == "cross_attention" or num_tokens % group.block_size == 0:
        return NULL_BLOCK
    return table[num_tokens // group.block_size]


def shares_open(
    config: PoolConfig, number: int, sequence: NaiveSequence, live: Iterable[NaiveSequence]
) -> bool:
    """Whether another one that went no further either has the same open block."""

    def block_of(its: NaiveSequence) -> BlockId:
        is_where_it_was = its.num_computed == its.num_forked
        table = its.tables[number]
        return open_block(config.groups[number], table, its.num_computed) if is_where_it_was else NULL_BLOCK

    block = block_of(sequence)
    return block != NULL_BLOCK and block in [block_of(its) for its in live if its is not sequence]


def check_fork(
    config: PoolConfig, sequence: NaiveSequence, content: NaiveContent, new_ids: Sequence[SequenceId]
) -> None:
    """Refuse what no pool could do."""
    num_needed = sequence.num_computed // config.hash_block_size
    if (
        not 1 <= len(new_ids) <= MAX_FORKS
        or len(set(new_ids)) < len(new_ids)
        or any(
            group.is_host_resident and (is_overwritten(group) or sequence.num_computed % group.block_size > 0)
            for group in config.groups
        )
        or (config.enable_prefix_caching and 0 < len(content.hashes) < num_needed)
    ):
        raise InvalidRequest.of("new_sequence_ids", "cannot be forks")


def require_blocks(config: PoolConfig, sequence: NaiveSequence, num_forks: int, tables: NaiveTables) -> None:
    """Refuse where there are too few for what every fork has to itself."""
    own = [0 for _ in tables.stores]
    for group, table in zip(config.groups, sequence.tables, strict=True):
        if is_overwritten(group):
            behind = table[num_shared(group, table, sequence.num_computed) :]
            own[group.is_host_resident] += num_forks * len([b for b in behind if b != NULL_BLOCK])
    for store, num_blocks in zip(tables.stores, own, strict=True):
        store.refuse_above_free(num_blocks)


def fork(
    config: PoolConfig,
    parent: NaiveSequence,
    new: NaiveSequence,
    tables: NaiveTables,
    copies: Copies,
) -> None:
    """Give ``new`` the parent's figures and tables; group by group, what it does not share is copied."""
    parent.num_forked = new.num_forked = parent.num_computed
    new.tables = []
    for number, (group, table) in enumerate(zip(config.groups, parent.tables, strict=True)):
        store = tables.prefixes.store_of(number)
        shared = table[: num_shared(group, table, parent.num_computed)]
        store.touch(shared)
        new.tables.append(shared)
        for block in table[len(shared) :] if is_overwritten(group) else []:
            if block == NULL_BLOCK:
                shared.append(NULL_BLOCK)
            else:
                store.touch([block])
                shared.append(tables.copy_of(number, block, copies))
    new.num_published = [
        min(num_published, len(table))
        for num_published, table in zip(parent.num_published, new.tables, strict=True)
    ]


def begun(parent: NaiveSequence, sequence_id: SequenceId, number: int) -> NaiveSequence:
    """The parent's figures under another name, without tables of its own yet."""
    return replace(parent, sequence_id=sequence_id, handle=type(parent.handle)(number), tables=[])
