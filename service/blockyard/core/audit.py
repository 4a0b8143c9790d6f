"""Does a pool's state add up? Recounted from the block tables, not from counters.

    free + held + null = total

A block's reference count is the number of table entries and raw holders that name it; it is in the free
queue exactly if that is zero; and the prefix index holds exactly the blocks that carry a hash.
"""

from array import array
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blockyard.core.ids import NULL_BLOCK, BlockId, LeaseId

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
    holders, named = _count_holders(pool)
    queue_problems = pool.store.queue.problems()
    free = set() if queue_problems else set(pool.store.queue)
    problems = [
        *queue_problems,
        *_sequence_problems(pool),
        *_block_problems(pool, named, free),
        *_index_problems(pool),
    ]
    num_held = len(named)
    if len(free) + num_held + 1 != pool.config.num_blocks:
        problems.append(
            f"{len(free)} free, {num_held} held and 1 null are not {pool.config.num_blocks} blocks"
        )
    return Audit(
        epoch=pool.epoch,
        ok=not problems,
        num_blocks=pool.config.num_blocks,
        num_free_blocks=len(free),
        num_held_blocks=num_held,
        num_null_blocks=1,
        holders=holders,
        problems=problems[:_MAX_PROBLEMS],
    )


def _count_holders(pool: "Pool") -> tuple[list[Holder], Counter[BlockId]]:
    """Every lease's share, and how often each block is named in all."""
    named: Counter[BlockId] = Counter()
    holders = []
    for lease in pool.leases.values():
        own: Counter[BlockId] = Counter(lease.raw_blocks.keys())
        for sequence in lease.sequences.values():
            for table in sequence.tables:
                own.update(table)
        del own[NULL_BLOCK]
        named += own
        holders.append(
            Holder(
                lease_id=lease.lease_id,
                holder=lease.holder,
                num_sequences=len(lease.sequences),
                num_blocks=len(own),
            )
        )
    return holders, named


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
        if not 0 <= sequence.num_committed_tokens <= sequence.num_computed_tokens <= sequence.num_tokens:
            problems.append(f"{name}: committed, computed and all tokens are out of order")
        for group, (table, published) in enumerate(
            zip(sequence.tables, sequence.num_published_blocks, strict=True)
        ):
            if published > len(table):
                problems.append(f"{name}: group {group} has {published} of {len(table)} blocks published")
    return problems


def _block_problems(pool: "Pool", named: Counter[BlockId], free: set[BlockId]) -> list[str]:
    """Counts that differ from the tables, and blocks that are both free and held, or neither."""
    problems = []
    counts = pool.store.reference_counts
    if counts[NULL_BLOCK] != 0 or NULL_BLOCK in free or pool.store.hashes[NULL_BLOCK] is not None:
        problems.append("the null block is counted, free or cached")
    recount = array("i", bytes(4 * pool.config.num_blocks))
    for block, times in named.items():
        recount[block] = times
    if recount != counts:
        problems += [
            f"block {block} counts {counts[block]} holders, {times} name it"
            for block, times in enumerate(recount)
            if times != counts[block]
        ]
    problems += [f"block {block} is both free and held" for block in free & named.keys()]
    if len(free | named.keys()) != pool.config.num_blocks - 1:
        problems += [
            f"block {block} is neither free nor held"
            for block in range(1, pool.config.num_blocks)
            if block not in free and block not in named
        ]
    return problems


def _index_problems(pool: "Pool") -> list[str]:
    """Index entries whose block carries another hash or group, and hashes that the index does not know."""
    problems = []
    store = pool.store
    indexed: Counter[BlockId] = Counter()
    for group in range(store.index.num_groups):
        for block_hash, entry in store.index.table(group).items():
            blocks = [entry] if isinstance(entry, int) else list(entry)
            indexed.update(blocks)
            problems += [
                f"block {block} is indexed in group {group} under a hash that it does not carry"
                for block in blocks
                if store.hashes[block] != block_hash or store.groups[block] != group
            ]
    cached = {block for block, block_hash in enumerate(store.hashes) if block_hash is not None}
    problems += [
        f"block {block} carries a hash that the index does not know" for block in cached - set(indexed)
    ]
    problems += [f"block {block} is indexed {times} times" for block, times in indexed.items() if times > 1]
    if len(cached) != store.num_cached_blocks:
        problems.append(f"{len(cached)} blocks are cached, {store.num_cached_blocks} counted")
    return problems
