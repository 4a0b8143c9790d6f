"""Does a pool's state add up? Recounted from the block tables, not from counters.

    free + held + null = total

A block's reference count is the number of table entries, raw holders, ends of copies and hard pins that name
it; it is free, in the queue or among those evicted last, exactly if that is zero; and the prefix index holds
exactly the blocks that carry a hash.
Each tenant is charged for exactly the blocks that its leases and hard pins hold.
A block that is not full is some sequence's alone, or counted as the open one of those that forks share it.
Where groups lie in host memory, all this holds for the host's blocks by themselves.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from blockyard.core.block_store import BlockStore
from blockyard.core.charges import Held
from blockyard.core.hash_chain import coarser_view
from blockyard.core.ids import NULL_BLOCK, BlockId, GroupIndex, LeaseId, PinId, TenantId
from blockyard.core.lease import Lease
from blockyard.core.sequence import BlockTable, Sequence

if TYPE_CHECKING:
    from blockyard.core.pool import Pool

_MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A lease and what it holds. ``num_blocks`` counts a block once, however many of its tables name it."""

    lease_id: LeaseId
    tenant: TenantId
    holder: str
    num_sequences: int
    num_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinHolder:
    """A hard pin, and how many blocks it holds."""

    pin_id: PinId
    tenant: TenantId
    num_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """``ok`` if there are no ``problems``, of which the first hundred are named. Counts are the device's."""

    epoch: int
    ok: bool
    num_blocks: int
    num_free_blocks: int
    num_held_blocks: int
    num_null_blocks: int
    holders: list[Holder]
    pins: list[PinHolder]
    problems: list[str]


def audit(pool: "Pool") -> Audit:
    """Recount ``pool``. Changes nothing."""
    problems = _sequence_problems(pool)
    num_free, num_held, device_problems = _audit_store(pool, pool.store, pool.config.num_blocks)
    problems += device_problems
    for store in pool.stores[1:]:
        host_problems = _audit_store(pool, store, pool.config.num_host_blocks)[2]
        problems += [f"host: {problem}" for problem in host_problems]
    problems += pool.sequences.forks.problems(pool.sequences)
    if pool.events is not None:
        problems += pool.events.problems()
    problems += [*_tenant_problems(pool), *pool.pins.problems(pool.tenants)]
    return Audit(
        epoch=pool.epoch,
        ok=not problems,
        num_blocks=pool.config.num_blocks,
        num_free_blocks=num_free,
        num_held_blocks=num_held,
        num_null_blocks=1,
        holders=[_holder(pool, lease) for lease in pool.leases.values()],
        pins=[
            PinHolder(
                pin_id=pin.pin_id,
                tenant=pin.tenant.name,
                num_blocks=len({*pool.pins.held_blocks(pin, pool.store)}),
            )
            for pin in pool.pins.values()
            if pin.hard
        ],
        problems=problems[:_MAX_PROBLEMS],
    )


def _audit_store(pool: "Pool", store: BlockStore, num_configured: int | None) -> tuple[int, int, list[str]]:
    """The free and the held blocks of ``store``, and what is wrong with it."""
    num_blocks = len(store.reference_counts)
    counts = array("q", bytes(8 * num_blocks))
    foreign: set[BlockId] = set()
    by_leases = (named_blocks(pool, lease, store) for lease in pool.leases.values())
    by_pins = (pool.pins.held_blocks(pin, store) for pin in pool.pins.values())
    for block in chain.from_iterable(chain(chain.from_iterable(by_leases), by_pins)):
        if 0 <= block < num_blocks:
            counts[block] += 1
        else:
            foreign.add(block)
    counts[NULL_BLOCK] = 0
    num_held = num_blocks - counts.count(0)
    problems = store.queue.problems()
    free = [] if problems else [*store.queue, *(store.soft_pins or ())]
    num_free = len(free)
    problems += [f"block {block} is both free and held" for block in free if counts[block]]
    problems += [f"block {block} is held, and there is none" for block in sorted(foreign)]
    problems += [*_count_problems(store, counts), *_index_problems(store)]
    if num_free + num_held + 1 != num_blocks:
        problems.append(f"{num_free} free, {num_held} held and 1 null are not {num_blocks} blocks")
    if num_blocks != num_configured:
        problems.append(f"there are {num_blocks} blocks, and {num_configured} are configured")
    return num_free, num_held, problems


def named_blocks(pool: "Pool", lease: Lease, store: BlockStore) -> Iterator[SequenceOf[BlockId]]:
    """The blocks of ``store`` that ``lease`` holds, as often as it does, table by table; nulls among them.

    The lease may change before the next table is asked for.
    """
    is_host = store is not pool.store
    groups = [g for g, group in enumerate(pool.config.groups) if group.is_host_resident is is_host]
    for sequence in list(lease.sequences.values()):
        for group in groups:
            yield sequence.tables[group].block_ids
    if not is_host:
        yield list(lease.raw_blocks)
        yield [block for copy in lease.copies for block in copy]


def held_by_tenants(pool: "Pool") -> Held:
    """Which tenants hold which of the device's blocks, and how often: told by the leases and the pins."""
    held: Held = {}
    by_leases = (
        (lease.tenant, chain.from_iterable(named_blocks(pool, lease, pool.store)))
        for lease in pool.leases.values()
    )
    by_pins = ((pin.tenant, pool.pins.held_blocks(pin, pool.store)) for pin in pool.pins.values())
    for tenant, blocks in chain(by_leases, by_pins):
        for block in blocks:
            if block != NULL_BLOCK:
                by = held.setdefault(block, {})
                by[tenant.number] = by.get(tenant.number, 0) + 1
    return held


def _tenant_problems(pool: "Pool") -> list[str]:
    """Tenants that have other leases, sequences or blocks than are counted, or that are charged for them."""
    problems = []
    leases = Counter(lease.tenant.number for lease in pool.leases.values())
    sequences = Counter(sequence.tenant for sequence in pool.sequences)
    for tenant in pool.tenants:
        found = leases[tenant.number], sequences[tenant.name]
        if found != (tenant.num_leases, tenant.num_sequences):
            problems.append(
                f"tenant {tenant.name!r} has {found[0]} leases and {found[1]} sequences, "
                f"{tenant.num_leases} and {tenant.num_sequences} are counted"
            )
    if pool.store.charges is not None:
        problems += pool.store.charges.problems(held_by_tenants(pool), pool.tenants)
    elif pool.tenants.need_charges:
        problems.append("no tenant is charged for its blocks")
    return problems


def _holder(pool: "Pool", lease: Lease) -> Holder:
    return Holder(
        lease_id=lease.lease_id,
        tenant=lease.tenant.name,
        holder=lease.holder,
        num_sequences=len(lease.sequences),
        num_blocks=len({*chain.from_iterable(named_blocks(pool, lease, pool.store))} - {NULL_BLOCK}),
    )


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
        elif lease.by_handle.get(sequence.handle) is not sequence:
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
    """Whether the published blocks of ``table`` carry the hashes of the sequence's tokens, as far as told.

    A block may carry none: where not all are kept, or where a state was not written when its block ended.
    """
    if not table.num_published:
        return True
    config = pool.config
    store = pool.stores[config.groups[group].is_host_resident]
    hashes = store.hashes
    told = coarser_view(sequence.block_hashes, config.groups[group].block_size // config.hash_block_size)
    published = table.block_ids[: table.num_published]
    return all(
        not 0 < block < len(hashes)  # the null block, or a foreign one
        or hashes[block] in (block_hash, None)
        or block_hash in store.hashes_of(block)
        for block, block_hash in zip(published, told, strict=False)
    )


def _count_problems(store: BlockStore, counts: "array[int]") -> list[str]:
    """Reference counts that differ from what the tables say."""
    kept = store.reference_counts
    if bytes(memoryview(kept)) == counts.tobytes():
        return []
    return [
        f"block {block} counts {kept[block]} holders, {times} name it"
        for block, times in enumerate(counts)
        if times != kept[block]
    ]


def _index_problems(store: BlockStore) -> Iterable[str]:
    """Index entries whose block carries another hash or group, and hashes that the index does not know."""
    num_indexed, problems = store.index.inspect()
    for group, block_hash, block in store.index.further():
        num_indexed += 1
        if block_hash not in store.hashes_of(block) or group != store.groups[block]:
            problems.append(f"block {block} is indexed in group {group} under a hash that it does not carry")
    num_cached = len(store.hashes) - store.hashes.count(None)
    num_hashes = num_cached + sum(map(len, store.further_hashes.values()))
    if num_indexed != num_hashes or num_cached != store.num_cached_blocks:
        problems.append(
            f"{num_cached} blocks carry {num_hashes} hashes, {num_indexed} are indexed, "
            f"{store.num_cached_blocks} blocks are counted"
        )
    if any(store.hashes[block] is None for block in (*store.unfilled, *store.further_hashes)):
        problems.append("a block without a hash is known by parts of it")
    if any(not store.reference_counts[block] for block in (*store.running_states, *store.states_to_copy)):
        problems.append("a state that is being overwritten or copied is held by nobody")
    if store.hashes[NULL_BLOCK] is not None:
        problems.append("the null block carries a hash")
    return problems
