"""The pool and the naive one, asked side by side. Whatever both are asked must have the same outcome."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cbor2
import pytest

from blockyard.core.block_store import BlockStore
from blockyard.core.commands import Command, Idempotent, LeaseCommand, PoolCommand, Step
from blockyard.core.config import GroupConfig, PoolConfig
from blockyard.core.errors import BlockyardError, InsufficientBlocks, NotReady
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId
from blockyard.core.lease import Lease
from blockyard.core.pin import Pin
from blockyard.core.pool import Pool
from blockyard.core.replies import Admitted, Allocated, Forked, Refused, Reply, Stepped
from blockyard.server.journal.command_codec import decode_batch, encode_command, join_batch
from core.allocator import outcome, plain
from core.fork_ledger import check_written_alone
from core.kv_follower import KvFollower
from core.naive_blocks import NaiveBlocks
from core.naive_kinds import is_found
from core.naive_pins import NaivePin
from core.naive_pool import NaiveLease, NaivePool


class PoolPair:
    """Both pools of ``config``.

    Args:
        config: Theirs.
        plant: Breaks the pool on purpose, also after a restart; or does nothing.
        compares: Whether the naive pool's outcomes count; if not, all hangs on the audit.
        coverage: Counts what happens.
    """

    def __init__(
        self, config: PoolConfig, *, plant: Callable[[Pool], None], compares: bool, coverage: Counter[str]
    ) -> None:
        self.pool = Pool(config)
        self.naive = NaivePool(config)
        self.now_ms = 1_000
        self.num_asked = 0
        self.keyed: list[tuple[Idempotent, Any]] = []
        """What was asked to be done once, and the outcome."""
        self._plant = plant
        self._compares = compares
        self._coverage = coverage
        self._snapshots: list[tuple[dict[str, Any], bytes]] = []
        self._follower = None if config.events is None else KvFollower(config, coverage)
        plant(self.pool)

    def do(self, command: Command, *, once: bool = False, as_it_is: bool = False) -> Reply | BlockyardError:
        """Apply ``command`` to both; with ``once``, under a new idempotency key.

        What is refused must have changed nothing, but for want of blocks: by then the copies that the lease
        was told of are made, and an extension may have dropped blocks.
        """
        if isinstance(command, LeaseCommand) and command.lease_id in self.naive.leases and not as_it_is:
            command = replace(command, tenant=self.naive.leases[command.lease_id].tenant)
        if once:
            assert isinstance(command, PoolCommand)
            command = Idempotent(key=f"k{len(self.keyed)}", fingerprint=b"first", command=command)
        before = self.settled()
        expected = outcome(self.naive, command, self.now_ms)
        got = outcome(self.pool, as_journalled(command), self.now_ms)
        assert plain(got) == plain(expected) or not self._compares, command
        if once and not isinstance(got, NotReady):
            assert isinstance(command, Idempotent)
            self.keyed.append((command, plain(got)))
        if isinstance(got, BlockyardError) and not isinstance(got, InsufficientBlocks):
            assert self.settled() == before, command
        if self._compares:
            check_written_alone(before, self.pool)
        self.num_asked += 1
        self._count(command, got)
        return got

    def lookup(self, *, num_tokens: int, **content: Any) -> None:
        """Look up in both, which must change nothing."""
        before = self.pool.snapshot()
        found = self.pool.lookup(num_tokens=num_tokens, **content)
        expected = self.naive.lookup(num_tokens=num_tokens, **content)
        assert plain(found) == plain(expected) or not self._compares
        assert self.pool.snapshot() == before
        self.num_asked += 1
        self._coverage["lookup that hits"] += found.num_cached_tokens > 0

    def restart(self, *, through_cbor: bool) -> None:
        """Go on with the pool that is restored from a snapshot of this one."""
        snapshot = self.pool.snapshot()
        kept = cbor2.dumps(snapshot)
        self.pool = Pool.restore(cbor2.loads(kept) if through_cbor else snapshot)
        self._plant(self.pool)
        assert self.pool.snapshot() == snapshot
        self._snapshots.append((snapshot, kept))
        self._coverage["restarts"] += 1

    def check_snapshots(self) -> None:
        """None has changed as the pools that it was taken of, or that were restored from it, went on."""
        for snapshot, kept in self._snapshots:
            assert cbor2.dumps(snapshot) == kept

    def settled(self) -> dict[str, Any]:
        """The pool's state but for what even a refused call changes: time, renewals, counts, kept replies."""
        state = self.pool.snapshot()
        for name in ("now_ms", "counters", "tenants"):
            del state[name]
        for lease in state["leases"]:
            del lease["expires_at_ms"], lease["replies"]
        return state

    def check(self) -> None:
        """Both agree in full, and the pool's own books are in order."""
        if self._follower is not None and self._compares:
            self._follower.follow(self.pool)
            found: list[set[BlockHash]] = [set() for _ in self.pool.config.groups]
            for store in self.naive.stores:
                for key in store.keys:
                    found[key.group].add(key.block_hash)
            assert self._follower.found == found
        problems = self.pool.audit().problems
        assert problems == [], f"the audit found {problems}"
        if self._compares:
            assert_equal_state(self.pool, self.naive)
            assert_equal_figures(self.pool, self.naive)
        tables = [table for known in self.naive.sequences.live.values() for table in known.tables]
        keys = [key for store in self.naive.stores for key in store.keys]
        self._coverage["dropped blocks stand"] += any(NULL_BLOCK in table for table in tables)
        self._coverage["a hash has two blocks"] += len({key[:2] for key in keys}) < len(keys)
        self._coverage["a block has two hashes"] += len({key[1:3] for key in keys}) < len(keys)

    def _count(self, command: Command, got: Reply | BlockyardError) -> None:
        self._coverage[f"{type(command).__name__}: {type(got).__name__}"] += 1
        if isinstance(got, Allocated):
            if got.num_cached_tokens:
                self._count_hit("hit", got.num_cached_tokens)
            self._coverage["copies"] += len(got.copies)
            self._coverage["copies on write"] += len(got.replaced or ())
        if isinstance(got, Forked):
            self._coverage["forks"] += len(got.sequences)
            self._coverage["copies of forks"] += len(got.copies)
        if isinstance(got, Stepped):
            for entry in got.admit:
                if isinstance(entry, Refused):
                    self._coverage[f"admission in step: {entry.code}"] += 1
                if isinstance(entry, Admitted):
                    self._coverage["admitted in step"] += 1
                    if entry.num_cached_tokens:
                        self._count_hit("hit in step", entry.num_cached_tokens)
            if isinstance(command, Step) and command.extend.num_computed_tokens is None:
                self._coverage["extension in step: by the pool's counts"] += len(got.extend.sequences)
            self._coverage["extension in step: changes only"] += got.extend.unlisted is not None
            self._coverage["extension in step: insufficient"] += len(got.extend.insufficient)
            self._coverage["copies"] += len(got.copies)
            self._coverage["copies on write in step"] += len(got.replaced or ())

    def _count_hit(self, what: str, num_cached: int) -> None:
        """A hit counts for every sort of group that there is."""
        groups = self.pool.config.groups
        self._coverage[what] += 1
        self._coverage["hit, chunks begin inside blocks"] += any(
            group.attention_chunk_size is not None and group.attention_chunk_size % group.block_size > 0
            for group in groups
        )
        self._coverage["hit, ends inside a block"] += any(
            num_cached % group.block_size > 0 for group in groups if is_found(group)
        )
        for sort in {sort for group in groups for sort in sorts_of(group)}:
            self._coverage[f"hit beside {sort}"] += 1


def sorts_of(group: GroupConfig) -> list[str]:
    """Its kind, and the options that change what the kind does."""
    options = {
        "a draft": group.is_draft,
        "retained tokens": group.extra_retained_tokens > 0,
        "speculative blocks": group.num_speculative_blocks > 0,
        "host blocks": group.is_host_resident,
    }
    return [group.kind, *(option for option, holds in options.items() if holds)]


def assert_equal_state(pool: Pool, naive: NaivePool) -> None:
    """Everything that can make a difference to a later command is the same."""
    for store, naive_store in zip(pool.stores, naive.stores, strict=True):
        assert [*store.queue, *(store.soft_pins or ())] == naive_store.in_order()
        assert list(store.reference_counts) == naive_store.reference_counts
        assert _index_of(store) == _index_of_naive(naive_store)
        assert _hashes_of(store) == _hashes_of_naive(naive_store)
        assert not store.unripe
    for tenant, sequence_id in naive.sequences.live:
        assert plain(pool.sequence(sequence_id, tenant)) == plain(naive.sequence(sequence_id, tenant))
    assert {lease_id: _leased(lease) for lease_id, lease in pool.leases.items()} == {
        lease_id: _leased(lease) for lease_id, lease in naive.leases.items()
    }
    assert {pin_id: _pinned(pin) for pin_id, pin in pool.pins.items()} == {
        pin_id: _pinned(pin) for pin_id, pin in naive.pins.live.items()
    }
    assert [
        [worker.worker_id, worker.rank, worker.device, worker.incarnation, worker.last_heartbeat_ms]
        for worker in pool.workers
    ] == [
        [worker.worker_id, worker.rank, worker.device, worker.incarnation, worker.seen_ms]
        for worker in sorted(naive.workers.known, key=lambda worker: worker.rank)
    ]
    ends_ms = [lease.expires_at_ms for lease in naive.leases.values()]
    ends_ms += [pin.expires_at_ms for pin in naive.pins.live.values()]
    if ends_ms:
        assert pool.next_expiry_ms is not None
        assert pool.next_expiry_ms <= min(ends_ms)


def as_journalled(command: Command) -> Command:
    """``command`` as it would be replayed, so that whatever is lost in the journal shows here."""
    ((_, again),) = decode_batch(join_batch([encode_command(command, 0)]))
    return again


def assert_equal_figures(pool: Pool, naive: NaivePool) -> None:
    """What the pool says of itself is what can be counted in the naive one."""
    audit = pool.audit()
    assert audit.ok
    assert audit.num_free_blocks + audit.num_held_blocks + audit.num_null_blocks == pool.config.num_blocks
    statistics = pool.statistics()
    device, *host = naive.stores
    num_held = sum(count > 0 for count in device.reference_counts)
    assert statistics.num_blocks == pool.config.num_blocks
    assert statistics.num_free_blocks == audit.num_free_blocks == len(device.free)
    assert statistics.num_held_blocks == audit.num_held_blocks == num_held
    assert statistics.num_cached_blocks == len({key.block for key in device.keys})
    assert statistics.num_host_blocks == pool.config.num_host_blocks
    assert statistics.num_free_host_blocks == (len(host[0].free) if host else None)
    assert statistics.num_sequences == len(naive.sequences.live)
    assert statistics.num_leases == len(naive.leases)
    pins = naive.pins.live.values()
    assert statistics.num_pins == len(pins)
    kept = {key.block for key in device.keys if key.block_hash in device.pinned}
    assert statistics.num_soft_pinned_blocks == len(kept)
    assert statistics.num_hard_pinned_blocks == len(
        {block for pin in pins for block in pin.held_in(naive, 0)}
    )
    assert statistics.num_workers == len(naive.workers.known)
    assert statistics.num_lost_workers == len(naive.workers.lost(naive.now_ms))
    assert statistics.counters["num_evicted_blocks"] == sum(store.num_evictions for store in naive.stores)
    assert statistics.usage == pytest.approx(num_held / (pool.config.num_blocks - 1))
    lookups = naive.sequences.lookups
    num_sought = sum(sought for sought, _ in lookups)
    num_found = sum(found for _, found in lookups)
    assert statistics.hit_rate == (pytest.approx(num_found / num_sought) if lookups else None)


def _index_of(store: BlockStore) -> dict[tuple[BlockHash, int], list[BlockId]]:
    return {
        (block_hash, group): store.index.blocks(group, block_hash)
        for group, block_hash, _ in store.index.registered()
        if block_hash is not None
    }


def _index_of_naive(blocks: NaiveBlocks) -> dict[tuple[BlockHash, int], list[BlockId]]:
    index = defaultdict(list)
    for key in blocks.keys:
        index[key.block_hash, key.group].append(key.block)
    return dict(index)


def _hashes_of(store: BlockStore) -> dict[BlockId, list[BlockHash]]:
    return {block: store.hashes_of(block) for block, first in enumerate(store.hashes) if first is not None}


def _hashes_of_naive(blocks: NaiveBlocks) -> dict[BlockId, list[BlockHash]]:
    hashes = defaultdict(list)
    for key in blocks.keys:
        hashes[key.block].append(key.block_hash)
    return dict(hashes)


def _pinned(pin: Pin | NaivePin) -> list[Any]:
    return [pin.hard, pin.ttl_ms, pin.expires_at_ms, pin.num_tokens, plain(pin.block_hashes), pin.block_ids]


def _leased(lease: Lease | NaiveLease) -> list[Any]:
    return [
        lease.epoch,
        lease.expires_at_ms,
        list(lease.raw_blocks),
        plain(lease.copies),
        plain(lease.last_step),
    ]
