"""The same pool once more, written to be read and not to be fast: the real one is held against it.

The rules are in the modules beside it: blocks and their queue, cached prefixes, sequences, steps. Only
commands, replies, errors, hashing and the configuration's values are shared with the real pool.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from blockyard.core.commands import (
    Allocate,
    AllocateBlocks,
    Command,
    Commit,
    CreateLease,
    CreatePin,
    DeleteLease,
    DeletePin,
    ExpireLeases,
    Fork,
    Free,
    FreeBlocks,
    Heartbeat,
    Idempotent,
    LeaseCommand,
    PoolCommand,
    RegisterWorker,
    RemoveWorker,
    RenewLease,
    RenewPin,
    ResetPrefixCache,
    Resume,
    Step,
)
from blockyard.core.config import Eviction, PoolConfig
from blockyard.core.errors import (
    BlockyardError,
    DoubleFree,
    InvalidRequest,
    LeaseExpired,
    NotOwner,
    NotReady,
    StaleEpoch,
)
from blockyard.core.ids import NO_TENANT, BlockHash, BlockId, LeaseId, SequenceId, TenantId
from blockyard.core.replies import (
    Allocated,
    BlocksAllocated,
    BlocksFreed,
    CacheReset,
    Committed,
    Forked,
    Found,
    Freed,
    LeaseGranted,
    LeaseReleased,
    LeasesExpired,
    Pinned,
    Reply,
    Resumed,
    SequenceState,
    Stepped,
    Unpinned,
    WorkerNoted,
    WorkerRemoved,
)
from core.naive_adaptive import NaiveAdaptive
from core.naive_blocks import NaiveBlocks
from core.naive_pins import NaivePins
from core.naive_sequence import NaiveContent
from core.naive_sequences import NaiveSequences
from core.naive_step import run_step
from core.naive_tables import Copies
from core.naive_workers import NaiveWorkers

Outcomes: TypeAlias = dict[str, tuple[bytes, Reply | BlockyardError]]
"""By idempotency key: the fingerprint of the request, and how it ended."""


@dataclass(kw_only=True)
class NaiveLease:
    """A lease. Its sequences are those of the pool that name it.

    ``tenant``: who alone may use it.

    ``epoch``: the pool's when it was granted.
    ``copies``: those that its last reply told of; both ends are held until its next call.
    """

    lease_id: LeaseId
    tenant: TenantId
    epoch: int
    ttl_ms: int
    expires_at_ms: int
    raw_blocks: list[BlockId] = field(default_factory=list)
    copies: Copies = field(default_factory=list)
    last_step: Stepped | None = None
    outcomes: Outcomes = field(default_factory=dict)


class NaivePool:
    """A pool without shortcuts.

    Attributes:
        stores: The device's blocks and, where groups lie there, the host's.
        leases: All of them, in the order of their creation.
        outcomes: Of calls without a lease.
    """

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.epoch = 1
        self.now_ms = 0
        sizes = [config.num_blocks] + ([] if config.num_host_blocks is None else [config.num_host_blocks])
        blocks = NaiveAdaptive if config.eviction is Eviction.ADAPTIVE else NaiveBlocks
        self.stores = [blocks(size) for size in sizes]
        self.sequences = NaiveSequences(config, self.stores)
        self.leases: dict[LeaseId, NaiveLease] = {}
        self.outcomes: Outcomes = {}
        self.workers = NaiveWorkers(config.worker_timeout_ms, config.num_ranks)
        self.pins = NaivePins()

    @property
    def device(self) -> NaiveBlocks:
        return self.stores[0]

    def lookup(
        self,
        *,
        num_tokens: int,
        block_hashes: Sequence[BlockHash] = (),
        token_ids: Sequence[int] = (),
        tenant: TenantId = NO_TENANT,
    ) -> Found:
        """As `Pool.lookup`."""
        if num_tokens < 1:
            raise InvalidRequest.of("num_tokens", "must be at least 1")
        block_hashes = block_hashes[: num_tokens // self.config.hash_block_size]
        content = NaiveContent(scope=self.sequences.scope_of(tenant)).joined_by(
            block_hashes, token_ids, self.config.hasher(), num_tokens
        )
        for store in self.stores:
            store.fresh = []
        num_cached, hit = self.sequences.prefixes.find(num_tokens, content.hashes)
        return Found(epoch=self.epoch, num_cached_tokens=num_cached, block_ids=hit)

    def sequence(self, sequence_id: SequenceId, tenant: TenantId = NO_TENANT) -> SequenceState:
        """As `Pool.sequence`."""
        sequence = self.sequences.live[tenant, sequence_id]
        return SequenceState(
            epoch=self.epoch,
            sequence=sequence.handle,
            lease_id=sequence.lease_id,
            num_tokens=sequence.num_tokens,
            num_computed_tokens=sequence.num_computed,
            num_committed_tokens=sequence.num_committed,
            block_ids=sequence.tables,
        )

    def apply(self, command: Command, now_ms: int) -> Reply:
        """As `Pool.apply`: a time before the last one counts as the last one."""
        self.now_ms = max(self.now_ms, now_ms)
        if isinstance(command, Idempotent):
            return self._apply_once(command)
        return self._apply(command)

    def _apply_once(self, command: Idempotent) -> Reply:
        """The first outcome under a key, of a lease or of none, is the outcome of every repeat.

        To renew or delete a lease twice is no harm: such outcomes are not kept.
        """
        if isinstance(command.command, (RenewLease, DeleteLease, RenewPin, DeletePin)):
            return self._apply(command.command)
        outcomes = self.outcomes
        if isinstance(command.command, LeaseCommand):
            lease = self._renew(command.command)
            self._check_epochs(command.command, lease)
            outcomes = lease.outcomes
        if command.key not in outcomes:
            try:
                outcomes[command.key] = command.fingerprint, self._apply(command.command)
            except NotReady:
                raise  # the only outcome that a repeat may change
            except BlockyardError as error:
                outcomes[command.key] = command.fingerprint, error
        fingerprint, outcome = outcomes[command.key]
        if fingerprint != command.fingerprint:
            raise InvalidRequest.of("Idempotency-Key", "was used for another request")
        if isinstance(outcome, BlockyardError):
            raise outcome
        return outcome

    def _apply(self, command: PoolCommand) -> Reply:
        lease = self._renew(command) if isinstance(command, LeaseCommand) else None
        self._check_epochs(command, lease)
        for store in self.stores:
            store.fresh = []
        handler = self._HANDLERS[type(command)]
        return handler(self, command) if lease is None else handler(self, command, lease)

    def _check_epochs(self, command: PoolCommand, lease: NaiveLease | None) -> None:
        """Neither the caller's nor the lease's may have ended; but what is held can be given back."""
        if command.epoch not in (None, self.epoch):
            raise StaleEpoch.of(self.epoch)
        may_be_stale = (RenewLease, DeleteLease, Free, FreeBlocks)
        if lease is not None and lease.epoch < self.epoch and not isinstance(command, may_be_stale):
            raise StaleEpoch.of(self.epoch)

    # Leases

    def _renew(self, command: LeaseCommand) -> NaiveLease:
        """Any call of its tenant that carries a live lease renews it."""
        lease = self.leases.get(command.lease_id)
        if lease is None or lease.tenant != command.tenant or lease.expires_at_ms <= self.now_ms:
            raise LeaseExpired.of(command.lease_id)
        lease.expires_at_ms = self.now_ms + lease.ttl_ms
        return lease

    def _create_lease(self, command: CreateLease) -> LeaseGranted:
        if command.ttl_ms < 1 or command.lease_id in self.leases:
            raise InvalidRequest.of("lease_id", "is taken, or its time is no time")
        lease = NaiveLease(
            lease_id=command.lease_id,
            tenant=command.tenant,
            epoch=self.epoch,
            ttl_ms=command.ttl_ms,
            expires_at_ms=self.now_ms + command.ttl_ms,
        )
        self.leases[command.lease_id] = lease
        return self._granted(lease)

    def _renew_lease(self, _: RenewLease, lease: NaiveLease) -> LeaseGranted:
        return self._granted(lease)

    def _granted(self, lease: NaiveLease) -> LeaseGranted:
        return LeaseGranted(
            epoch=self.epoch,
            lease_id=lease.lease_id,
            ttl_ms=lease.ttl_ms,
            expires_at_ms=lease.expires_at_ms,
        )

    def _delete_lease(self, _: DeleteLease, lease: NaiveLease) -> LeaseReleased:
        num_sequences, num_blocks = self._end([lease])
        return LeaseReleased(epoch=self.epoch, num_freed_sequences=num_sequences, num_freed_blocks=num_blocks)

    def _expire_leases(self, _: ExpireLeases) -> LeasesExpired:
        expired = [lease for lease in self.leases.values() if lease.expires_at_ms <= self.now_ms]
        expired.sort(key=lambda lease: (lease.expires_at_ms, lease.lease_id))
        num_sequences, num_blocks = self._end(expired)
        pin_ids, num_pinned_blocks = self.pins.expire(self)
        return LeasesExpired(
            epoch=self.epoch,
            lease_ids=[lease.lease_id for lease in expired],
            pin_ids=pin_ids,
            num_freed_sequences=num_sequences,
            num_freed_blocks=num_blocks + num_pinned_blocks,
        )

    def _resume(self, command: Resume) -> Resumed:
        """Whoever was there when the time was last known has called just now."""
        standing = [lease for lease in self.leases.values() if lease.expires_at_ms > command.since_ms]
        for lease in standing:
            lease.expires_at_ms = max(lease.expires_at_ms, self.now_ms + lease.ttl_ms)
        for worker in self.workers.known:
            worker.seen_ms = self.now_ms
        self.pins.resume(command.since_ms, self.now_ms)
        return Resumed(epoch=self.epoch, num_leases=len(standing))

    def _create_pin(self, command: CreatePin) -> Pinned:
        return self.pins.create(self, command)

    def _renew_pin(self, command: RenewPin) -> Pinned:
        return self.pins.renew(self, command)

    def _delete_pin(self, command: DeletePin) -> Unpinned:
        return self.pins.delete(self, command)

    def _end(self, leases: Sequence[NaiveLease]) -> tuple[int, int]:
        """Each lease's copies, its sequences in the order of admission, then its raw blocks as one list."""
        num_sequences = num_blocks = 0
        for lease in leases:
            del self.leases[lease.lease_id]
            num_blocks += self.sequences.tables.release_copies(lease.copies, are_made=False)
            sequences = self.sequences.held_by(lease.lease_id)
            num_sequences += len(sequences)
            num_blocks += sum(self.sequences.free(sequence) for sequence in sequences)
            num_blocks += self.device.release(lease.raw_blocks)
        return num_sequences, num_blocks

    # Sequences

    def _allocate(self, command: Allocate, lease: NaiveLease) -> Allocated:
        self._require_workers()
        admission, num_computed = command.admission, command.num_computed_tokens
        sequence = self.sequences.live.get((lease.tenant, admission.sequence_id))
        num_cached: int | None = None
        replaced: list[list[int]] = []
        if sequence is not None and sequence.lease_id == lease.lease_id:
            handle = sequence.handle
            content = self.sequences.check_extension(sequence, admission, num_computed, admission.num_tokens)
            self.sequences.tables.release_copies(lease.copies)
            num_new, block_ids = self.sequences.extend(
                sequence, admission, num_computed, content, lease.copies, replaced
            )
        else:
            content = self.sequences.check_admission(admission, lease.tenant)
            if num_computed is not None:
                raise InvalidRequest.of("num_computed_tokens", "a new sequence has none")
            if sequence is None:
                self.sequences.tables.release_copies(lease.copies)
            admitted = self.sequences.admit(lease.lease_id, lease.tenant, admission, content, lease.copies)
            handle, num_cached = admitted.sequence, admitted.num_cached_tokens
            num_new, block_ids = admitted.num_new_tokens, admitted.block_ids
        return Allocated(
            epoch=self.epoch,
            sequence=handle,
            num_cached_tokens=num_cached,
            num_new_tokens=num_new,
            block_ids=block_ids,
            copies=[list(each) for each in lease.copies],
            num_free_blocks=len(self.device.free),
            replaced=replaced or None,
        )

    def _fork(self, command: Fork, lease: NaiveLease) -> Forked:
        self._require_workers()
        sequence = self.sequences.held(lease.lease_id, command.sequence_id)
        content = self.sequences.check_fork(sequence, command, lease.tenant)
        self.sequences.tables.release_copies(lease.copies)
        forks = self.sequences.fork(sequence, command.new_sequence_ids, content, lease.copies)
        return Forked(
            epoch=self.epoch,
            sequences=[fork.handle for fork in forks],
            block_ids=[[list(table) for table in fork.tables] for fork in forks],
            num_computed_tokens=sequence.num_computed,
            num_committed_tokens=sequence.num_committed,
            copies=[list(each) for each in lease.copies],
            num_free_blocks=len(self.device.free),
        )

    def _commit(self, command: Commit, lease: NaiveLease) -> Committed:
        sequence = self.sequences.held(lease.lease_id, command.sequence_id)
        content = self.sequences.check_commit(
            sequence, command.num_computed_tokens, command.block_hashes, command.token_ids
        )
        self.sequences.tables.release_copies(lease.copies)
        num_published = self.sequences.commit(sequence, command.num_computed_tokens, content)
        return Committed(
            epoch=self.epoch,
            num_computed_tokens=sequence.num_committed,
            num_published_blocks=num_published,
        )

    def _free(self, command: Free, lease: NaiveLease) -> Freed:
        num_freed, unknown = self.sequences.tables.release_copies(lease.copies), []
        for sequence_id in command.sequence_ids:
            sequence = self.sequences.live.get((lease.tenant, sequence_id))
            if sequence is None or sequence.lease_id != lease.lease_id:
                unknown.append(sequence_id)
            else:
                num_freed += self.sequences.free(sequence)
        return Freed(
            epoch=self.epoch,
            num_freed_blocks=num_freed,
            num_free_blocks=len(self.device.free),
            unknown=unknown,
        )

    def _step(self, step: Step, lease: NaiveLease) -> Stepped:
        """If a call within is not valid, all is as it was before the first one."""
        last = lease.last_step
        if last is not None and last.step_id is not None and step.step_id is not None:
            if step.step_id == last.step_id:
                return last
            if step.step_id < last.step_id:
                raise InvalidRequest.of("step_id", "must rise")
        if step.admit or step.extend.sequences:
            self._require_workers()
        before = copy.deepcopy((self.stores, self.sequences, lease.copies))
        try:
            self.sequences.tables.release_copies(lease.copies)
            replaced: list[list[int]] = []
            extended, admitted = run_step(
                step, lease.lease_id, lease.tenant, self.sequences, lease.copies, replaced
            )
        except BlockyardError:
            self.stores, self.sequences, lease.copies = before
            raise
        reply = Stepped(
            epoch=self.epoch,
            step_id=step.step_id,
            extend=extended,
            copies=[list(each) for each in lease.copies],
            admit=admitted,
            num_free_blocks=len(self.device.free),
            replaced=replaced or None,
        )
        if step.step_id is not None:
            lease.last_step = reply
        return reply

    # Raw blocks and what is cached

    def _allocate_blocks(self, command: AllocateBlocks, lease: NaiveLease) -> BlocksAllocated:
        self._require_workers()
        if command.num_blocks < 1:
            raise InvalidRequest.of("num_blocks", "must be at least 1")
        self.sequences.tables.release_copies(lease.copies)
        self.device.refuse_above_free(command.num_blocks)
        taken = self.device.take(command.num_blocks)
        lease.raw_blocks += taken
        return BlocksAllocated(epoch=self.epoch, block_ids=taken, num_free_blocks=len(self.device.free))

    def _free_blocks(self, command: FreeBlocks, lease: NaiveLease) -> BlocksFreed:
        named = list(command.block_ids)
        free = self.device.free
        twice = [block for block in dict.fromkeys(named) if named.count(block) > 1 or block in free]
        if twice:
            raise DoubleFree.of(twice)
        foreign = [block for block in named if block not in lease.raw_blocks]
        if foreign:
            raise NotOwner.of(foreign)
        self.sequences.tables.release_copies(lease.copies)
        lease.raw_blocks = [block for block in lease.raw_blocks if block not in named]
        num_freed = self.device.release(named)
        return BlocksFreed(
            epoch=self.epoch, num_freed_blocks=num_freed, num_free_blocks=len(self.device.free)
        )

    def _reset_prefix_cache(self, _: ResetPrefixCache) -> CacheReset:
        ok = not self._is_held()
        if ok:
            for store in self.stores:
                store.forget_all()
            self.sequences.lookups = []
        return CacheReset(epoch=self.epoch, ok=ok)

    def _is_held(self) -> bool:
        return any(any(store.reference_counts) for store in self.stores)

    # Workers

    def _require_workers(self) -> None:
        if self.config.needs_all_workers:
            self.workers.require_all(self.now_ms)

    def has_vacant_rank(self) -> bool:
        """Whether no blocks are given, whoever calls."""
        known = {worker.rank for worker in self.workers.known}
        ranks = set(range(self.config.num_ranks or 0)) if self.workers.were_there else set()
        return self.config.needs_all_workers and bool(ranks - known)

    def _register_worker(self, command: RegisterWorker) -> WorkerNoted:
        if command.rank < 0:
            raise InvalidRequest.of("rank", "is none")
        if self.workers.register(command, self.now_ms, in_use=self._is_in_use()):
            self._begin_epoch()
        return self._noted(command)

    def _heartbeat(self, command: Heartbeat) -> WorkerNoted:
        self.workers.named(command.worker_id, command.incarnation).seen_ms = self.now_ms
        return self._noted(command)

    def _remove_worker(self, command: RemoveWorker) -> WorkerRemoved:
        self.workers.known.remove(self.workers.named(command.worker_id, command.incarnation))
        if self._is_in_use():
            self._begin_epoch()
        return WorkerRemoved(epoch=self.epoch, worker_id=command.worker_id)

    def _noted(self, command: RegisterWorker | Heartbeat) -> WorkerNoted:
        return WorkerNoted(
            epoch=self.epoch, worker_id=command.worker_id, heartbeat_ms=self.workers.heartbeat_ms
        )

    def _is_in_use(self) -> bool:
        return self._is_held() or any(store.keys for store in self.stores)

    def _begin_epoch(self) -> None:
        """Nothing is cached any more; what is held stays held."""
        self.epoch += 1
        for store in self.stores:
            store.forget_all()
            store.to_copy = {}
        self.pins.end_hard(self)

    _HANDLERS: ClassVar[dict[type[PoolCommand], Callable[..., Reply]]] = {
        CreateLease: _create_lease,
        RenewLease: _renew_lease,
        DeleteLease: _delete_lease,
        ExpireLeases: _expire_leases,
        CreatePin: _create_pin,
        RenewPin: _renew_pin,
        DeletePin: _delete_pin,
        Allocate: _allocate,
        Fork: _fork,
        Commit: _commit,
        Free: _free,
        Step: _step,
        AllocateBlocks: _allocate_blocks,
        FreeBlocks: _free_blocks,
        ResetPrefixCache: _reset_prefix_cache,
        Resume: _resume,
        RegisterWorker: _register_worker,
        Heartbeat: _heartbeat,
        RemoveWorker: _remove_worker,
    }
