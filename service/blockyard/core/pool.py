"""A pool: blocks, their holders, and what they cache, as one deterministic state machine.

`Pool.apply` is the only way to change one. It is synchronous and pure: no clock, randomness or I/O. The same
commands with the same times give the same state, bit for bit: so every command given to `apply` belongs in a
journal, whatever came of it. A refused one has done nothing of what was asked. It has been seen, though: time
has moved on, the live lease that it carries is renewed, its outcome is remembered under its idempotency key,
refusals are counted; and where it was for want of blocks, copies that the lease was told of count as made,
and an extension has dropped the blocks behind its window.
"""

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import Any, ClassVar

from blockyard.core import commands as ask
from blockyard.core import replies as tell
from blockyard.core.audit import Audit, audit, held_by_tenants
from blockyard.core.block_store import BlockStore
from blockyard.core.charges import Charges
from blockyard.core.config import PoolConfig
from blockyard.core.content import Told
from blockyard.core.errors import (
    BlockyardError,
    DoubleFree,
    InsufficientBlocks,
    InvalidRequest,
    NotOwner,
    NotReady,
    QuotaExceeded,
    SequenceNotFound,
    StaleEpoch,
)
from blockyard.core.expiring import check_ttl
from blockyard.core.extra_keys import Extras
from blockyard.core.ids import NO_TENANT, BlockHash, SequenceId, TenantId, WorkerId
from blockyard.core.kv_events import KvEvents
from blockyard.core.lease import Lease
from blockyard.core.leases import Leases
from blockyard.core.pins import Pins
from blockyard.core.quota import NO_QUOTA
from blockyard.core.reply_memory import ReplyMemory
from blockyard.core.residency import Residency
from blockyard.core.sequence import Sequence
from blockyard.core.sequences import Sequences
from blockyard.core.snapshot import restore_snapshot, take_snapshot
from blockyard.core.statistics import Counters, HitWindow, Statistics
from blockyard.core.step import PlannedStep
from blockyard.core.tenants import Tenant, Tenants
from blockyard.core.workers import Memory, Worker, Workers


class Pool:
    """All blocks free, nothing cached, epoch 1.

    Args:
        config: Its sizes and options.

    Raises:
        InvalidRequest: A group's kind is unknown or its sizes are wrong.
    """

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.epoch = 1
        self.now_ms = 0
        self.counters = Counters()
        self.hits = HitWindow()
        self.tenants = Tenants(config.max_replies)
        self.leases = Leases()
        self.workers = Workers(config.worker_timeout_ms, config.num_ranks)
        sizes = [config.num_blocks] + ([] if config.num_host_blocks is None else [config.num_host_blocks])
        self.adopt_stores(
            [BlockStore(size, len(config.groups), self.counters, config.eviction) for size in sizes]
        )

    def adopt_stores(self, stores: list[BlockStore]) -> None:
        """Have these blocks, and no sequences or pins yet; only for a pool that is being made."""
        self.stores = stores
        """The device's blocks and, where groups lie there, the host's."""
        self.residency = self.store.residency = Residency(self.config.num_blocks)
        self.events: KvEvents | None = None
        """What is told of the prefix index, where anybody follows."""
        if self.config.events is not None:
            indexes = [stores[group.is_host_resident].index for group in self.config.groups]
            self.events = KvEvents(indexes, self.counters)
            for store in stores:
                store.events = self.events
        self.sequences = Sequences(self.config, stores, self.counters, self.hits, self.events)
        self.pins = Pins(self.config, stores, self.sequences)

    @property
    def store(self) -> BlockStore:
        """The device's blocks."""
        return self.stores[0]

    @property
    def next_expiry_ms(self) -> int | None:
        """A lower bound: no lease and no pin runs out before this time. None where there is none of them."""
        bounds = (self.leases.next_expiry_ms, self.pins.next_expiry_ms)
        return min((bound for bound in bounds if bound is not None), default=None)

    @property
    def num_held_blocks(self) -> int:
        """Blocks that somebody holds, the host's included."""
        return sum(store.num_held_blocks for store in self.stores)

    def apply(self, command: ask.Command, now_ms: int) -> tell.Reply:
        """Do ``command`` at ``now_ms`` (ms since 1970; a time before the last one counts as the last one).

        Returns:
            The reply whose class belongs to the command's.

        Raises:
            BlockyardError: See `blockyard.core.errors`; nothing was done of what was asked.
        """
        self.now_ms = self.residency.now_ms = max(self.now_ms, now_ms)
        if not isinstance(command, ask.Idempotent):
            return self._apply(command)
        inner = command.command
        if isinstance(inner, (ask.RenewLease, ask.DeleteLease, ask.RenewPin, ask.DeletePin)):
            return self._apply(inner)  # doing these twice is no harm, and remembering them is
        if isinstance(inner, ask.LeaseCommand):
            lease = self.leases.renew(inner, self.now_ms)
            self._check_epochs(inner, lease)  # what was told in an earlier one holds no more
            memory = lease.replies
        else:
            memory = self._tenant(inner.tenant).replies
        reply = memory.recall(command.key, command.fingerprint)
        if reply is not None:
            return reply
        try:
            reply = self._apply(inner)
        except NotReady:
            raise  # a repeat may succeed
        except BlockyardError as error:
            if not (isinstance(error, InsufficientBlocks) and _is_waiting(inner)):
                memory.remember(command.key, command.fingerprint, error.again())
            raise
        memory.remember(command.key, command.fingerprint, reply)
        return reply

    def lookup(
        self,
        *,
        num_tokens: int,
        block_hashes: SequenceOf[BlockHash] = (),
        token_ids: SequenceOf[int] = (),
        extras: Extras | None = None,
        tenant: TenantId = NO_TENANT,
        tenant_only: bool = False,
    ) -> tell.Found:
        """The longest cached prefix of a prompt, found as for a new sequence of ``tenant``. Changes nothing.

        Raises:
            InvalidRequest: ``num_tokens`` is below 1, or the content is not valid.
        """
        told = Told(block_hashes, token_ids, extras=extras, tenant=tenant, tenant_only=tenant_only)
        hit = self.sequences.find(num_tokens, told)
        return tell.Found(epoch=self.epoch, num_cached_tokens=hit.num_tokens, block_ids=hit.block_ids)

    def num_cached_tokens(self, told: Told, num_tokens: int | None = None) -> int:
        """How much of a prefix is cached: of its first ``num_tokens`` tokens, or of all that are told.

        As `lookup` finds it if more tokens follow: all of its full blocks count. Changes nothing.

        Raises:
            InvalidRequest: ``num_tokens`` is below 1, or the content is not valid.
        """
        return self.sequences.find_all(self.sequences.hashes_of(num_tokens, told)).num_tokens

    def sequence(self, sequence_id: SequenceId, tenant: TenantId = NO_TENANT) -> tell.SequenceState:
        """The tables and counts of a live sequence of ``tenant``.

        Raises:
            SequenceNotFound: It has none of this id.
        """
        sequence = self._find(sequence_id, tenant)
        return tell.SequenceState(
            epoch=self.epoch,
            sequence=sequence.handle,
            lease_id=sequence.lease_id,
            num_tokens=sequence.num_tokens,
            num_computed_tokens=sequence.num_granted_tokens,
            num_committed_tokens=sequence.num_committed_tokens,
            block_ids=sequence.block_ids,
        )

    def tenant(self, name: TenantId) -> tell.TenantState:
        """A tenant's quota, and what it has; the pool need not have heard of it."""
        tenant = self.tenants.find(name)
        quota = NO_QUOTA if tenant is None else tenant.quota
        num_held = 0 if tenant is None else tenant.num_held_blocks
        if self.store.charges is None and name == NO_TENANT:
            num_held = self.store.num_held_blocks
        return tell.TenantState(
            epoch=self.epoch,
            tenant=name,
            guaranteed_blocks=quota.guaranteed_blocks,
            max_blocks=quota.max_blocks,
            weight=quota.weight,
            num_held_blocks=num_held,
            num_leases=0 if tenant is None else tenant.num_leases,
            num_sequences=0 if tenant is None else tenant.num_sequences,
            num_pins=0 if tenant is None else tenant.num_pins,
        )

    def remembers(self, command: ask.Command) -> bool:
        """Whether ``command`` came before, and its outcome is kept: then it is done already."""
        if not isinstance(command, ask.Idempotent):
            return False
        inner = command.command
        holder: Lease | Tenant | None = self.tenants.find(inner.tenant)
        if isinstance(inner, ask.LeaseCommand):
            holder = self.leases.get(inner.lease_id)
        return holder is not None and holder.replies.knows(command.key)

    def may_retry(self, name: TenantId, refusal: InsufficientBlocks, num_reserved_blocks: int) -> bool:
        """Whether trying again may help against a refusal; not surely: prefixes come and go.

        It does where by now there is another answer, be it that so much can never be given.

        Args:
            name: The tenant's.
            refusal: The last one.
            num_reserved_blocks: Free blocks that it has to leave to others who wait.
        """
        num_required = refusal.figures["num_required_blocks"]
        tenant = self.tenants.find(name)
        if tenant is None:
            return True  # and be told why not
        at_most = tenant.quota.max_blocks
        if isinstance(refusal, QuotaExceeded):
            if at_most is None or num_required > at_most:  # as it is by now
                return True
            return bool(tenant.num_held_blocks + num_required <= at_most)
        self._act_for(tenant)
        watermark = self.config.watermark_blocks
        num_blocks = num_required - watermark
        if num_required > self.store.num_givable_blocks or (at_most is not None and num_blocks > at_most):
            return True  # likewise
        return bool(num_blocks <= self.store.num_available(num_reserved_blocks + watermark))

    def statistics(self, now_ms: int | None = None) -> Statistics:
        """The figures of ``now_ms``; None for the time of the last command."""
        num_free, num_held = self.store.num_free_blocks, self.store.num_held_blocks
        return Statistics(
            epoch=self.epoch,
            num_blocks=self.config.num_blocks,
            num_free_blocks=num_free,
            num_held_blocks=num_held,
            num_cached_blocks=self.store.num_cached_blocks,
            num_host_blocks=self.config.num_host_blocks,
            num_free_host_blocks=None if len(self.stores) == 1 else self.stores[1].num_free_blocks,
            usage=num_held / max(num_free + num_held, 1),
            hit_rate=self.hits.hit_rate,
            eviction=self.config.eviction.value,
            eviction_weight=self.store.queue.weight,
            num_sequences=len(self.sequences),
            num_leases=len(self.leases),
            num_pins=len(self.pins),
            num_soft_pinned_blocks=self.pins.num_soft_pinned_blocks,
            num_hard_pinned_blocks=self.pins.num_hard_pinned_blocks,
            num_workers=len(self.workers),
            num_lost_workers=self.workers.num_lost(self.now_ms if now_ms is None else now_ms),
            counters=self.counters.to_state(),
        )

    def audit(self) -> Audit:
        """Recount everything from the block tables, in time linear in these; see `blockyard.core.audit`."""
        return audit(self)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain data; see `blockyard.core.snapshot`."""
        return take_snapshot(self)

    @classmethod
    def restore(cls, state: dict[str, Any]) -> "Pool":
        """The pool that ``state`` was taken of by `snapshot`: it answers every further command alike.

        Raises:
            InvalidRequest: The snapshot is of another format.
        """
        return restore_snapshot(cls, state)

    def check_epoch(self, epoch: int | None) -> None:
        """Refuse a caller whose ``epoch`` is not the pool's; None stands for a caller who does not care.

        Raises:
            StaleEpoch: It is another.
        """
        if epoch is not None and epoch != self.epoch:
            raise StaleEpoch.of(self.epoch)

    def charge_if_needed(self) -> None:
        """From when it matters which tenant holds which block on, know it."""
        if self.store.charges is None and self.tenants.need_charges:
            held = held_by_tenants(self)
            self.store.charges = Charges(self.config.num_blocks, self.tenants, held)

    def _apply(self, command: ask.PoolCommand) -> tell.Reply:
        lease = None
        if isinstance(command, ask.LeaseCommand):
            lease = self.leases.renew(command, self.now_ms)
        self._check_epochs(command, lease)
        if lease is not None:
            self._act_for(lease.tenant)
        handler = self._HANDLERS[type(command)]
        try:
            return handler(self, command) if lease is None else handler(self, command, lease)
        finally:
            for store in self.stores:
                if store.unripe:
                    store.unripe.clear()
            if self.events is not None:
                self.events.end_command(self.now_ms)

    def _check_epochs(self, command: ask.PoolCommand, lease: Lease | None) -> None:
        """Refuse what belongs to an earlier epoch, by what its caller says or by its lease."""
        self.check_epoch(command.epoch)
        if lease is not None and lease.epoch != self.epoch and not isinstance(command, _GIVING_BACK):
            raise StaleEpoch.of(self.epoch)

    # Leases

    def _create_lease(self, command: ask.CreateLease) -> tell.LeaseGranted:
        check_ttl(command.ttl_ms)
        if command.lease_id in self.leases:
            raise InvalidRequest.of("lease_id", "is a lease's already")
        lease = Lease(
            lease_id=command.lease_id,
            tenant=self._tenant(command.tenant),
            holder=command.holder,
            epoch=self.epoch,
            ttl_ms=command.ttl_ms,
            expires_at_ms=self.now_ms + command.ttl_ms,
            replies=ReplyMemory(self.config.max_replies),
        )
        self.leases.add(lease)
        self.counters.num_created_leases += 1
        return self._granted(lease)

    def _renew_lease(self, _: ask.RenewLease, lease: Lease) -> tell.LeaseGranted:
        return self._granted(lease)

    def _granted(self, lease: Lease) -> tell.LeaseGranted:
        return tell.LeaseGranted(
            epoch=self.epoch, lease_id=lease.lease_id, ttl_ms=lease.ttl_ms, expires_at_ms=lease.expires_at_ms
        )

    def _delete_lease(self, _: ask.DeleteLease, lease: Lease) -> tell.LeaseReleased:
        num_sequences, num_blocks = self._end(lease)
        return tell.LeaseReleased(
            epoch=self.epoch, num_freed_sequences=num_sequences, num_freed_blocks=num_blocks
        )

    def _expire_leases(self, _: ask.ExpireLeases) -> tell.LeasesExpired:
        expired = self.leases.run_out(self.now_ms)
        freed = [self._end(lease) for lease in expired]
        self.counters.num_expired_leases += len(expired)
        pin_ids, num_pinned_blocks = self.pins.expire(self.now_ms)
        return tell.LeasesExpired(
            epoch=self.epoch,
            lease_ids=[lease.lease_id for lease in expired],
            pin_ids=pin_ids,
            num_freed_sequences=sum(num_sequences for num_sequences, _ in freed),
            num_freed_blocks=num_pinned_blocks + sum(num_blocks for _, num_blocks in freed),
        )

    def _resume(self, command: ask.Resume) -> tell.Resumed:
        num_leases = self.leases.resume(command.since_ms, self.now_ms)
        self.pins.resume(command.since_ms, self.now_ms)
        self.workers.note_all(self.now_ms)
        return tell.Resumed(epoch=self.epoch, num_leases=num_leases)

    def _end(self, lease: Lease) -> tuple[int, int]:
        """Free all that ``lease`` holds; returns how many sequences ended and blocks became free."""
        self._act_for(lease.tenant)
        num_blocks = self._release_copies(lease, are_made=False)
        sequences = list(lease.sequences.values())
        num_blocks += sum(self.sequences.free(lease, sequence) for sequence in sequences)
        num_blocks += self.store.release(list(lease.raw_blocks))
        self.leases.remove(lease)
        return len(sequences), num_blocks

    def _release_copies(self, lease: Lease, *, are_made: bool = True) -> int:
        """Its workers have made the copies that they were told of; returns how many blocks became free.

        Where it is not known that they ``are_made``, what was to be copied is no hit for anybody.
        """
        copies, lease.copies = lease.copies, []
        num_freed = 0
        for copy in copies:
            self.store.note_copied(copy[1], is_copied=are_made)
            num_freed += sum(self.store.release([block]) for block in copy)
        return num_freed

    # Pins

    def _create_pin(self, command: ask.CreatePin) -> tell.Pinned:
        tenant = self._tenant(command.tenant)
        self._act_for(tenant)
        return self.pins.told(self.pins.create(command, tenant, self.now_ms), self.epoch)

    def _renew_pin(self, command: ask.RenewPin) -> tell.Pinned:
        return self.pins.told(self.pins.renew(command, self.now_ms), self.epoch)

    def _delete_pin(self, command: ask.DeletePin) -> tell.Unpinned:
        return tell.Unpinned(epoch=self.epoch, num_freed_blocks=self.pins.delete(command, self.now_ms))

    # Tenants

    def _tenant(self, name: TenantId) -> Tenant:
        """The tenant of this name, which the pool may hear of for the first time."""
        tenant = self.tenants.find(name)
        if tenant is None:
            tenant = self.tenants.of(name)
            self.charge_if_needed()
        return tenant

    def _act_for(self, tenant: Tenant) -> None:
        """What is held or given back from now on is by ``tenant``."""
        if self.store.charges is not None:
            self.store.charges.acting = tenant

    def _set_quota(self, command: ask.SetQuota) -> tell.TenantState:
        num_usable = self.store.num_usable_blocks
        quota = NO_QUOTA if command.quota is None else command.quota
        quota.check(num_usable - self.tenants.num_promised_to_others(command.holder))
        tenant = self._tenant(command.holder)
        tenant.has_quota = command.quota is not None
        if self.store.charges is not None:
            self.store.charges.set_quota(tenant, quota)
        else:
            tenant.quota = quota
            self.charge_if_needed()
        return self.tenant(command.holder)

    # Sequences

    def _find(self, sequence_id: SequenceId, tenant: TenantId, lease: Lease | None = None) -> Sequence:
        """The live sequence of this id that is the tenant's; with a lease, only if it is the lease's."""
        sequence = self.sequences.get(tenant, sequence_id)
        if sequence is None or (lease is not None and sequence.lease_id != lease.lease_id):
            raise SequenceNotFound.of(sequence_id)
        return sequence

    def _allocate(self, command: ask.Allocate, lease: Lease) -> tell.Allocated:
        self._check_workers()
        admission = command.admission
        sequence = lease.sequences.get(admission.sequence_id)
        content = self.sequences.check_admission(admission, command.tenant, sequence)
        if sequence is None:
            if command.num_computed_tokens is not None:
                raise InvalidRequest.of("num_computed_tokens", "a new sequence has none: leave it out")
            self.sequences.check_free_id(command.tenant, admission.sequence_id)
            self._release_copies(lease)
            sequence = self.sequences.admit(lease, admission, content, command.num_reserved_blocks)
            num_cached_tokens = sequence.num_committed_tokens
            num_new_tokens = sequence.num_granted_tokens - num_cached_tokens
            block_ids = sequence.block_ids
        else:
            self.sequences.check_extension(sequence, admission.num_tokens, command.num_computed_tokens)
            self._release_copies(lease)
            num_cached_tokens = None
            num_new_tokens, block_ids = self.sequences.extend(
                lease,
                sequence,
                num_tokens=admission.num_tokens,
                num_computed_tokens=command.num_computed_tokens,
                num_lookahead_tokens=admission.num_lookahead_tokens,
                content=content,
                num_new_tokens=self.sequences.num_new_tokens(
                    sequence, admission, command.num_computed_tokens
                ),
                full_sequence_must_fit=admission.full_sequence_must_fit,
            )
        return tell.Allocated(
            epoch=self.epoch,
            sequence=sequence.handle,
            num_cached_tokens=num_cached_tokens,
            num_new_tokens=num_new_tokens,
            block_ids=block_ids,
            copies=[list(copy) for copy in lease.copies],
            num_free_blocks=self.store.num_free_blocks,
            replaced=self.sequences.forks.take_replaced(),
        )

    def _fork(self, command: ask.Fork, lease: Lease) -> tell.Forked:
        self._check_workers()
        sequence = self._find(command.sequence_id, command.tenant, lease)
        told = Told(command.block_hashes, command.token_ids, command.event_token_ids)
        content = self.sequences.check_fork(lease, sequence, command.new_sequence_ids, told)
        self._release_copies(lease)
        forks = self.sequences.fork(lease, sequence, command.new_sequence_ids, content)
        return tell.Forked(
            epoch=self.epoch,
            sequences=[fork.handle for fork in forks],
            block_ids=[fork.block_ids for fork in forks],
            num_computed_tokens=sequence.num_granted_tokens,
            num_committed_tokens=sequence.num_committed_tokens,
            copies=[list(copy) for copy in lease.copies],
            num_free_blocks=self.store.num_free_blocks,
        )

    def _commit(self, command: ask.Commit, lease: Lease) -> tell.Committed:
        sequence = self._find(command.sequence_id, command.tenant, lease)
        self.sequences.check_commit(sequence, command.num_computed_tokens)
        content = self.sequences.check_content(
            sequence,
            sequence.num_tokens,
            Told(command.block_hashes, command.token_ids, command.event_token_ids),
        )
        self._release_copies(lease)
        num_published = self.sequences.commit(sequence, command.num_computed_tokens, content)
        return tell.Committed(
            epoch=self.epoch,
            num_computed_tokens=sequence.num_committed_tokens,
            num_published_blocks=num_published,
        )

    def _free(self, command: ask.Free, lease: Lease) -> tell.Freed:
        num_freed = self._release_copies(lease)
        unknown = []
        for sequence_id in command.sequence_ids:
            sequence = lease.sequences.get(sequence_id)
            if sequence is None:
                unknown.append(sequence_id)
            else:
                num_freed += self.sequences.free(lease, sequence)
        return tell.Freed(
            epoch=self.epoch,
            num_freed_blocks=num_freed,
            num_free_blocks=self.store.num_free_blocks,
            unknown=unknown,
        )

    def _step(self, command: ask.Step, lease: Lease) -> tell.Stepped:
        last = lease.last_step
        if last is not None and last.step_id is not None and command.step_id is not None:
            if command.step_id == last.step_id:
                return last
            if command.step_id < last.step_id:
                raise InvalidRequest.of("step_id", f"must rise: the lease's last step was {last.step_id}")
        if command.extend.sequences or command.admit:
            self._check_workers()
        planned = PlannedStep(command, lease, self.sequences)
        self._release_copies(lease)
        extend, admit = planned.run()
        self.counters.num_steps += 1
        reply = tell.Stepped(
            epoch=self.epoch,
            step_id=command.step_id,
            extend=extend,
            copies=[list(copy) for copy in lease.copies],
            admit=admit,
            num_free_blocks=self.store.num_free_blocks,
            replaced=self.sequences.forks.take_replaced(),
        )
        if command.step_id is not None:
            lease.last_step = reply
        return reply

    # Raw blocks

    def _allocate_blocks(self, command: ask.AllocateBlocks, lease: Lease) -> tell.BlocksAllocated:
        self._check_workers()
        if command.num_blocks < 1:
            raise InvalidRequest.of("num_blocks", "must be at least 1")
        self._release_copies(lease)
        try:
            self.store.require(command.num_blocks, num_kept=command.num_reserved_blocks)
        except InsufficientBlocks:
            self.counters.num_refused_allocations += 1
            raise
        blocks = self.store.take(command.num_blocks)
        lease.raw_blocks.update(dict.fromkeys(blocks))
        return tell.BlocksAllocated(
            epoch=self.epoch, block_ids=blocks, num_free_blocks=self.store.num_free_blocks
        )

    def _free_blocks(self, command: ask.FreeBlocks, lease: Lease) -> tell.BlocksFreed:
        blocks = list(command.block_ids)
        twice = self.store.freed_twice(blocks)
        if twice:
            raise DoubleFree.of(twice)
        foreign = [block for block in blocks if block not in lease.raw_blocks]
        if foreign:
            raise NotOwner.of(foreign)
        self._release_copies(lease)
        for block in blocks:
            del lease.raw_blocks[block]
        num_freed = self.store.release(blocks)
        return tell.BlocksFreed(
            epoch=self.epoch, num_freed_blocks=num_freed, num_free_blocks=self.store.num_free_blocks
        )

    def _reset_prefix_cache(self, _: ask.ResetPrefixCache) -> tell.CacheReset:
        ok = self.num_held_blocks == 0
        if ok:
            for store in self.stores:
                store.forget_all()
            self.hits.clear()
            self.counters.num_prefix_cache_resets += 1
        return tell.CacheReset(epoch=self.epoch, ok=ok)

    # Workers

    def _check_workers(self) -> None:
        if self.config.needs_all_workers:
            self.workers.check_all_there(self.now_ms)

    def _register_worker(self, command: ask.RegisterWorker) -> tell.WorkerNoted:
        if command.rank < 0:
            raise InvalidRequest.of("rank", "must be at least 0")
        memory = self.workers.register(
            Worker(
                worker_id=command.worker_id,
                rank=command.rank,
                device=command.device,
                incarnation=command.incarnation,
                last_heartbeat_ms=self.now_ms,
            )
        )
        if memory is Memory.REPLACED or (memory is Memory.FIRST and self._is_in_use()):
            self._begin_epoch()
        return self._noted(command.worker_id)

    def _heartbeat(self, command: ask.Heartbeat) -> tell.WorkerNoted:
        self.workers.note_heartbeat(command.worker_id, command.incarnation, self.now_ms)
        return self._noted(command.worker_id)

    def _remove_worker(self, command: ask.RemoveWorker) -> tell.WorkerRemoved:
        self.workers.remove(command.worker_id, command.incarnation)
        if self._is_in_use():
            self._begin_epoch()
        return tell.WorkerRemoved(epoch=self.epoch, worker_id=command.worker_id)

    def _noted(self, worker_id: WorkerId) -> tell.WorkerNoted:
        return tell.WorkerNoted(epoch=self.epoch, worker_id=worker_id, heartbeat_ms=self.workers.heartbeat_ms)

    def _is_in_use(self) -> bool:
        """Whether blocks hold what a worker has written, or may have."""
        return any(store.num_held_blocks or store.num_cached_blocks for store in self.stores)

    def _begin_epoch(self) -> None:
        """A worker's memory is gone: nothing is a hit any more, and no lease goes on from what it holds.

        Its blocks stay held, as other workers may still write to them, until it gives them back or ends.
        Nobody writes to those that a pin holds, and there is nothing in them to keep.
        """
        self.epoch += 1
        for store in self.stores:
            store.forget_all()
        self.pins.end_hard()

    _HANDLERS: ClassVar[dict[type[ask.PoolCommand], Callable[..., tell.Reply]]] = {
        ask.CreateLease: _create_lease,
        ask.RenewLease: _renew_lease,
        ask.DeleteLease: _delete_lease,
        ask.ExpireLeases: _expire_leases,
        ask.CreatePin: _create_pin,
        ask.RenewPin: _renew_pin,
        ask.DeletePin: _delete_pin,
        ask.Allocate: _allocate,
        ask.Fork: _fork,
        ask.Commit: _commit,
        ask.Free: _free,
        ask.Step: _step,
        ask.AllocateBlocks: _allocate_blocks,
        ask.FreeBlocks: _free_blocks,
        ask.ResetPrefixCache: _reset_prefix_cache,
        ask.SetQuota: _set_quota,
        ask.Resume: _resume,
        ask.RegisterWorker: _register_worker,
        ask.Heartbeat: _heartbeat,
        ask.RemoveWorker: _remove_worker,
    }


_GIVING_BACK = (ask.RenewLease, ask.DeleteLease, ask.Free, ask.FreeBlocks)
"""What may still be done under a lease of an earlier epoch."""


def _is_waiting(command: ask.PoolCommand) -> bool:
    """Whether the caller is answered only once there are blocks, or it has waited long enough."""
    return isinstance(command, (ask.Allocate, ask.AllocateBlocks)) and command.is_waiting
