"""Does a pool's state add up? Recounted from the block tables, not from counters.

    free + held + null = total

A block's reference count is the number of table entries and raw holders that name it; it is in the free
queue exactly if that is zero; and the prefix index holds exactly the blocks that carry a hash.
"""

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blockyard.core.hash_chain import coarser_view
from blockyard.core.ids import NULL_BLOCK, BlockId, GroupIndex, LeaseId
from blockyard.core.sequence import BlockTable, Sequence

if TYPE_CHECKING:
    from blockyard.core.pool import Pool

_MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A lease and what it holds. ``num_blocks`` counts a block once, however many of its tables name it."""

    lease_id: LeaseId
    holder: str
    num_sequences: int
    num_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """``ok`` if there are no ``problems``, of which the first hundred are named."""

    epoch: int
    ok: bool
    num_blocks: int
    num_free_blocks: int
    num_held_blocks: int
    num_null_blocks: int
    holders: list[Holder]
    problems: list[str]


def audit(pool: "Pool") -> Audit:
    """Recount ``pool``. Changes nothing."""
    holders, counts = _recount(pool)
    num_held = len(counts) - counts.count(0)
    num_free, free_problems = _walk_free_queue(pool, counts)
    problems = [
        *free_problems,
        *_sequence_problems(pool),
        *_count_problems(pool, counts),
        *_index_problems(pool),
    ]
    if num_free + num_held + 1 != pool.config.num_blocks:
        problems.append(
            f"{num_free} free, {num_held} held and 1 null are not {pool.config.num_blocks} blocks"
        )
    return Audit(
        epoch=pool.epoch,
        ok=not problems,
        num_blocks=pool.config.num_blocks,
        num_free_blocks=num_free,
        num_held_blocks=num_held,
        num_null_blocks=1,
        holders=holders,
        problems=problems[:_MAX_PROBLEMS],
    )


def _recount(pool: "Pool") -> tuple[list[Holder], "array[int]"]:
    """Every lease's share, and per block how many table entries and raw holders name it."""
    counts = array("i", bytes(4 * pool.config.num_blocks))
    holders = []
    for lease in pool.leases.values():
        own: set[BlockId] = set()
        tables = [table.block_ids for sequence in lease.sequences.values() for table in sequence.tables]
        for table in (*tables, lease.raw_blocks):
            own.update(table)
            for block in table:
                counts[block] += 1
        own.discard(NULL_BLOCK)
        holders.append(
            Holder(
                lease_id=lease.lease_id,
                holder=lease.holder,
                num_sequences=len(lease.sequences),
                num_blocks=len(own),
            )
        )
    counts[NULL_BLOCK] = 0
    return holders, counts


def _walk_free_queue(pool: "Pool", counts: "array[int]") -> tuple[int, list[str]]:
    """How many blocks are free, and those among them that somebody holds."""
    queue = pool.store.queue
    problems = queue.problems()
    if problems:
        return 0, problems
    return len(queue), [f"block {block} is both free and held" for block in queue if counts[block]]


def _sequence_problems(pool: "Pool") -> list[str]:
    """Sequences and leases that do not know each other, and counts out of order."""
    problems = []
    leased = {id(sequence) for lease in pool.leases.values() for sequence in lease.sequences.values()}
    if leased != {id(sequence) for sequence in pool.sequences}:
        problems.append("the leases' sequences are not the pool's")
    for sequence in pool.sequences:
        name = f"sequence {sequence.sequence_id!r}"
        lease = pool.leases.get(sequence.lease_id)
        if lease is None or lease.sequences.get(sequence.sequence_id) is not sequence:
            problems.append(f"{name}: lease {sequence.lease_id!r} does not hold it")
        if pool.sequences.by_handle(sequence.handle) is not sequence:
            problems.append(f"{name}: its handle {sequence.handle} is another's")
        if not 0 <= sequence.num_committed_tokens <= sequence.num_granted_tokens <= sequence.num_tokens:
            problems.append(f"{name}: committed, granted and all tokens are out of order")
        for group, table in enumerate(sequence.tables):
            if table.num_published > len(table.block_ids):
                problems.append(
                    f"{name}: group {group} has {table.num_published} of {len(table.block_ids)} published"
                )
            elif not _is_content_right(pool, sequence, group, table):
                problems.append(f"{name}: group {group} has a published block of other content")
    return problems


def _is_content_right(pool: "Pool", sequence: Sequence, group: GroupIndex, table: BlockTable) -> bool:
    """Whether the published blocks of ``table`` carry the hashes of the sequence's tokens, as far as told."""
    factor = pool.config.groups[group].block_size // pool.config.hash_block_size
    told = coarser_view(sequence.block_hashes, factor)
    published = table.block_ids[: table.num_published]
    return all(
        block == NULL_BLOCK or pool.store.hashes[block] == block_hash
        for block, block_hash in zip(published, told, strict=False)
    )


def _count_problems(pool: "Pool", counts: "array[int]") -> list[str]:
    """Reference counts that differ from what the tables say."""
    kept = pool.store.reference_counts
    if counts == kept:
        return []
    return [
        f"block {block} counts {kept[block]} holders, {times} name it"
        for block, times in enumerate(counts)
        if times != kept[block]
    ]


def _index_problems(pool: "Pool") -> list[str]:
    """Index entries whose block carries another hash or group, and hashes that the index does not know."""
    problems = []
    store = pool.store
    num_indexed = 0
    for group in range(store.index.num_groups):
        for block_hash, entry in store.index.table(group).items():
            blocks = [entry] if isinstance(entry, int) else entry
            num_indexed += len(blocks)
            problems += [
                f"block {block} is indexed in group {group} under a hash that it does not carry"
                for block in blocks
                if store.hashes[block] != block_hash or store.groups[block] != group
            ]
    num_cached = len(store.hashes) - store.hashes.count(None)
    if not num_indexed == num_cached == store.num_cached_blocks:
        problems.append(
            f"{num_cached} blocks carry a hash, {num_indexed} are indexed, {store.num_cached_blocks} counted"
        )
    if store.hashes[NULL_BLOCK] is not None:
        problems.append("the null block carries a hash")
    return problems
