"""Who writes where: whatever a command lets a sequence write into is no other sequence's as well.

Told by the tables before and after it alone, whatever the pool or the naive one count.
"""

from collections import Counter
from typing import Any

from blockyard.core.ids import NULL_BLOCK, BlockId
from blockyard.core.pool import Pool
from blockyard.core.sequence import Sequence
from core.naive_forks import is_overwritten


def check_written_alone(before: dict[str, Any], pool: Pool) -> None:
    """``before``: the pool's snapshot before the command."""
    known = {sequence["handle"]: sequence for sequence in before["sequences"]}
    named: Counter[tuple[bool, BlockId]] = Counter()
    for sequence in pool.sequences:
        for group, table in zip(pool.config.groups, sequence.tables, strict=True):
            named.update((group.is_host_resident, block) for block in table.block_ids if block != NULL_BLOCK)
    for lease in pool.leases.values():
        sources = {source for source, _ in lease.copies}
        assert sources.isdisjoint(block for _, block in lease.copies), "a block is both copied and written"
    for sequence in pool.sequences:
        was = known.get(sequence.handle)
        if was is None and sequence.num_forked_tokens == sequence.num_granted_tokens:
            num_before = sequence.num_granted_tokens  # a fork, which was given no slots
        else:
            num_before = sequence.num_committed_tokens if was is None else was["num_granted_tokens"]
        for number, group in enumerate(pool.config.groups):
            for block in _written(pool, number, sequence, num_before):
                assert named[group.is_host_resident, block] == 1, "two sequences write one block"
        if was is not None:
            _check_copied(pool, sequence, was)


def _written(pool: Pool, number: int, sequence: Sequence, num_before: int) -> list[BlockId]:
    """What it may write into by now, beside nulls: where its new tokens stand, and where states run."""
    group, table = pool.config.groups[number], sequence.tables[number].block_ids
    if group.kind == "mamba":  # a state at the end of its block is not written over
        begin = sequence.num_granted_tokens // group.block_size
    elif is_overwritten(group):
        begin = 0
    elif group.kind == "cross_attention" or sequence.num_granted_tokens <= num_before:
        return []
    else:
        begin = num_before // group.block_size
    store = pool.stores[group.is_host_resident]  # what is published by now is full, and may be found by now
    return [block for block in table[begin:] if block != NULL_BLOCK and not store.is_published(block)]


def _check_copied(pool: Pool, sequence: Sequence, was: dict[str, Any]) -> None:
    """An entry that is another block by now has the content of the one before."""
    copies = pool.leases[sequence.lease_id].copies
    for group, table, before in zip(pool.config.groups, sequence.tables, was["tables"], strict=True):
        if is_overwritten(group):
            continue  # their old states move on to other positions
        for old, new in zip(before["block_ids"], table.block_ids, strict=False):
            assert new in (old, NULL_BLOCK) or (old, new) in copies, "a block is not copied"
