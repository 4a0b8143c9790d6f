"""The same pool once more, written to be read and not to be fast: the real one is held against it.

Nothing is kept that can be counted anew. The free queue is a list, its head the block to be used next; the
index is a list of (hash, group, block) in the order of registration; a block "has a hash" when the index
names it. Only commands, replies, errors and the configuration's values are shared with the real pool.

A cached prefix is not searched for as the real pool does, by shortening a candidate group by group. A
length *is* a hit when every group finds the blocks that it still sees at that length; the longest such
length is the answer. Both must come to the same.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from blockyard.core.commands import (
    Admission,
    Allocate,
    AllocateBlocks,
    Command,
    Commit,
    CreateLease,
    DeleteLease,
    ExpireLeases,
    Free,
    FreeBlocks,
    Idempotent,
    LeaseCommand,
    PoolCommand,
    RenewLease,
    ResetPrefixCache,
    Step,
)
from blockyard.core.config import GroupConfig, PoolConfig, Publish
from blockyard.core.errors import (
    BlockyardError,
    DoubleFree,
    InsufficientBlocks,
    InvalidRequest,
    LeaseExpired,
    NotOwner,
    SequenceExistsElsewhere,
    SequenceNotFound,
    StaleEpoch,
)
from blockyard.core.ids import NULL_BLOCK, BlockHash, BlockId, LeaseId, SequenceHandle, SequenceId
from blockyard.core.replies import (
    Admitted,
    Allocated,
    BlocksAllocated,
    BlocksFreed,
    CacheReset,
    Committed,
    Found,
    Freed,
    LeaseGranted,
    LeaseReleased,
    LeasesExpired,
    Refused,
    Reply,
    SequenceState,
    StepExtended,
    Stepped,
)

HashTokens = Callable[[Sequence[int]], list[BlockHash]]
"""The block hashes of a sequence's tokens, from its first one on; an unfinished block has none."""


@dataclass(kw_only=True)
class NaiveSequence:
    """A live sequence. ``tables``: per group, a block at each position, or null."""

    sequence_id: SequenceId
    handle: SequenceHandle
    lease_id: LeaseId
    tables: list[list[BlockId]]
    num_published: list[int]
    num_tokens: int
    num_computed: int
    num_committed: int
    hashes: list[BlockHash] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class NaiveLease:
    """A lease. Its sequences are those of the pool that name it."""

    lease_id: LeaseId
    ttl_ms: int
    expires_at_ms: int
    raw_blocks: list[BlockId] = field(default_factory=list)
    last_step: Stepped | None = None
    outcomes: dict[str, tuple[bytes, Reply | BlockyardError]] = field(default_factory=dict)


class NaivePool:
    """A pool without shortcuts.

    Attributes:
        reference_counts: Per block, how many tables and raw holders name it.
        free: Blocks that nobody holds, the one to be used next first.
        index: What is cached: (hash, group, block), in the order of registration.
        sequences: All live sequences, in the order of admission.
        leases: All leases, in the order of their creation.
        hash_tokens: How token ids are hashed.
        lookups: Tokens asked for and found, per admission that looked for a cached prefix.
        outcomes: Of calls without a lease, by idempotency key.
        num_evictions: Blocks that lost their hash to be used again.
    """

    def __init__(self, config: PoolConfig, hash_tokens: HashTokens) -> None:
        self.config = config
        self.epoch = 1
        self.reference_counts = [0] * config.num_blocks
        self.free = list(range(1, config.num_blocks))
        self.index: list[tuple[BlockHash, int, BlockId]] = []
        self.sequences: dict[SequenceId, NaiveSequence] = {}
        self.leases: dict[LeaseId, NaiveLease] = {}
        self.lookups: list[tuple[int, int]] = []
        self.outcomes: dict[str, tuple[bytes, Reply | BlockyardError]] = {}
        self.num_evictions = 0
        self.now_ms = 0
        self._num_handles = 0
        self.hash_tokens = hash_tokens

    # Questions

    def lookup(
        self, *, num_tokens: int, block_hashes: Sequence[BlockHash] = (), token_ids: Sequence[int] = ()
    ) -> Found:
        """As `Pool.lookup`."""
        if num_tokens < 1:
            raise InvalidRequest.of("num_tokens", "must be at least 1")
        _, hashes = self._content(None, block_hashes, token_ids)
        num_cached, hit = self.find(num_tokens, hashes)
        return Found(epoch=self.epoch, num_cached_tokens=num_cached, block_ids=hit)

    def sequence(self, sequence_id: SequenceId) -> SequenceState:
        """As `Pool.sequence`."""
        sequence = self.sequences[sequence_id]
        return SequenceState(
            epoch=self.epoch,
            sequence=sequence.handle,
            lease_id=sequence.lease_id,
            num_tokens=sequence.num_tokens,
            num_computed_tokens=sequence.num_computed,
            num_committed_tokens=sequence.num_committed,
            block_ids=sequence.tables,
        )

    # Commands

    def apply(self, command: Command, now_ms: int) -> Reply:
        """As `Pool.apply`: a time before the last one counts as the last one."""
        self.now_ms = max(self.now_ms, now_ms)
        if isinstance(command, Idempotent):
            return self._apply_once(command)
        return self._apply(command)

    def _apply_once(self, command: Idempotent) -> Reply:
        """The first outcome under a key, of a lease or of none, is the outcome of every repeat."""
        outcomes = self.outcomes
        if isinstance(command.command, LeaseCommand):
            outcomes = self._renew(command.command.lease_id).outcomes
        if command.key not in outcomes:
            try:
                outcomes[command.key] = command.fingerprint, self._apply(command.command)
            except BlockyardError as error:
                outcomes[command.key] = command.fingerprint, error
        fingerprint, outcome = outcomes[command.key]
        if fingerprint != command.fingerprint:
            raise InvalidRequest.of("Idempotency-Key", "was used for another request")
        if isinstance(outcome, BlockyardError):
            raise outcome
        return outcome

    def _apply(self, command: PoolCommand) -> Reply:
        lease = self._renew(command.lease_id) if isinstance(command, LeaseCommand) else None
        if command.epoch not in (None, self.epoch):
            raise StaleEpoch.of(self.epoch)
        if lease is None:
            return self._apply_without_lease(command)
        if isinstance(command, Step):
            return self._step(lease, command)
        if isinstance(command, (AllocateBlocks, FreeBlocks)):
            return self._apply_to_raw_blocks(lease, command)
        if isinstance(command, (Allocate, Commit, Free)):
            return self._apply_to_sequences(lease, command)
        if isinstance(command, RenewLease):
            return self._granted(lease)
        assert isinstance(command, DeleteLease)
        num_sequences, num_blocks = self._end([lease])
        return LeaseReleased(epoch=self.epoch, num_freed_sequences=num_sequences, num_freed_blocks=num_blocks)

    # Leases

    def _renew(self, lease_id: LeaseId) -> NaiveLease:
        """Any call that carries a live lease renews it."""
        lease = self.leases.get(lease_id)
        if lease is None or lease.expires_at_ms <= self.now_ms:
            raise LeaseExpired.of(lease_id)
        lease.expires_at_ms = self.now_ms + lease.ttl_ms
        return lease

    def _apply_without_lease(self, command: PoolCommand) -> Reply:
        if isinstance(command, CreateLease):
            if command.ttl_ms < 1 or command.lease_id in self.leases:
                raise InvalidRequest.of("lease_id", "is taken, or its time is no time")
            lease = NaiveLease(
                lease_id=command.lease_id,
                ttl_ms=command.ttl_ms,
                expires_at_ms=self.now_ms + command.ttl_ms,
            )
            self.leases[command.lease_id] = lease
            return self._granted(lease)
        if isinstance(command, ExpireLeases):
            expired = [lease for lease in self.leases.values() if lease.expires_at_ms <= self.now_ms]
            expired.sort(key=lambda lease: (lease.expires_at_ms, lease.lease_id))
            num_sequences, num_blocks = self._end(expired)
            return LeasesExpired(
                epoch=self.epoch,
                lease_ids=[lease.lease_id for lease in expired],
                num_freed_sequences=num_sequences,
                num_freed_blocks=num_blocks,
            )
        assert isinstance(command, ResetPrefixCache)
        ok = not any(self.reference_counts)
        if ok:
            self.index = []
            self.lookups = []
        return CacheReset(epoch=self.epoch, ok=ok)

    def _granted(self, lease: NaiveLease) -> LeaseGranted:
        return LeaseGranted(
            epoch=self.epoch,
            lease_id=lease.lease_id,
            ttl_ms=lease.ttl_ms,
            expires_at_ms=lease.expires_at_ms,
        )

    def _end(self, leases: Sequence[NaiveLease]) -> tuple[int, int]:
        """Each lease's sequences in the order of admission, then its raw blocks as one list."""
        num_sequences = num_blocks = 0
        for lease in leases:
            del self.leases[lease.lease_id]
            sequences = [known for known in self.sequences.values() if known.lease_id == lease.lease_id]
            num_sequences += len(sequences)
            num_blocks += sum(self.free_sequence(sequence) for sequence in sequences)
            num_blocks += self.release(lease.raw_blocks)
        return num_sequences, num_blocks

    # Raw blocks

    def _apply_to_raw_blocks(self, lease: NaiveLease, command: AllocateBlocks | FreeBlocks) -> Reply:
        if isinstance(command, AllocateBlocks):
            if command.num_blocks < 1:
                raise InvalidRequest.of("num_blocks", "must be at least 1")
            self._refuse_above_free(command.num_blocks)
            taken = self.take(command.num_blocks)
            lease.raw_blocks += taken
            return BlocksAllocated(epoch=self.epoch, block_ids=taken, num_free_blocks=len(self.free))
        named = list(command.block_ids)
        twice = [block for block in dict.fromkeys(named) if named.count(block) > 1 or block in self.free]
        if twice:
            raise DoubleFree.of(twice)
        foreign = [block for block in named if block not in lease.raw_blocks]
        if foreign:
            raise NotOwner.of(foreign)
        lease.raw_blocks = [block for block in lease.raw_blocks if block not in named]
        num_freed = self.release(named)
        return BlocksFreed(epoch=self.epoch, num_freed_blocks=num_freed, num_free_blocks=len(self.free))

    # Single calls

    def _apply_to_sequences(self, lease: NaiveLease, command: Allocate | Commit | Free) -> Reply:
        if isinstance(command, Commit):
            sequence = self.sequences.get(command.sequence_id)
            if sequence is None or sequence.lease_id != lease.lease_id:
                raise SequenceNotFound(f"the lease holds no {command.sequence_id!r}")
            num_published = self.commit(
                sequence, command.num_computed_tokens, command.block_hashes, command.token_ids
            )
            return Committed(
                epoch=self.epoch,
                num_computed_tokens=sequence.num_committed,
                num_published_blocks=num_published,
            )
        if isinstance(command, Free):
            num_freed, unknown = 0, []
            for sequence_id in command.sequence_ids:
                sequence = self.sequences.get(sequence_id)
                if sequence is None or sequence.lease_id != lease.lease_id:
                    unknown.append(sequence_id)
                else:
                    num_freed += self.free_sequence(sequence)
            return Freed(
                epoch=self.epoch,
                num_freed_blocks=num_freed,
                num_free_blocks=len(self.free),
                unknown=unknown,
            )
        admission = command.admission
        sequence = self.sequences.get(admission.sequence_id)
        if sequence is not None and sequence.lease_id == lease.lease_id:
            admitted = self.extend(sequence, admission, command.num_computed_tokens)
        elif command.num_computed_tokens is not None:
            raise InvalidRequest.of("num_computed_tokens", "a new sequence has none")
        else:
            admitted = self.admit(lease.lease_id, admission)
        return Allocated(
            epoch=self.epoch,
            sequence=admitted.sequence,
            num_cached_tokens=admitted.num_cached_tokens,
            num_new_tokens=admitted.num_new_tokens,
            block_ids=admitted.block_ids,
            copies=[],
            num_free_blocks=len(self.free),
        )

    # Steps

    def _step(self, lease: NaiveLease, step: Step) -> Stepped:
        """Single calls in the step's order. If one is not valid, all is as it was before the first."""
        last = lease.last_step
        if last is not None and last.step_id is not None and step.step_id is not None:
            if step.step_id == last.step_id:
                return last
            if step.step_id < last.step_id:
                raise InvalidRequest.of("step_id", "must rise")
        before = copy.deepcopy(vars(self))
        try:
            reply = self._run_step(lease.lease_id, step)
        except BlockyardError:
            vars(self).update(before)
            raise
        if step.step_id is not None:
            lease.last_step = reply
        return reply

    def _run_step(self, lease_id: LeaseId, step: Step) -> Stepped:
        extends = step.extend
        computed: Sequence[int | None] = [None] * len(extends.sequences)
        if extends.num_computed_tokens is not None:
            computed = extends.num_computed_tokens
        self._check_columns(step)

        for handle, num_tokens in zip(step.commit.sequences, step.commit.num_computed_tokens, strict=True):
            self.commit(self._by_handle(lease_id, handle), num_tokens)
        for handle in step.free:
            self.free_sequence(self._by_handle(lease_id, handle))
        extended: list[SequenceHandle] = []
        block_ids = []
        insufficient = []
        for handle, num_tokens, num_computed in zip(
            extends.sequences, extends.num_tokens, computed, strict=True
        ):
            sequence = self._by_handle(lease_id, handle)
            admission = Admission(
                sequence_id=sequence.sequence_id,
                num_tokens=num_tokens,
                num_lookahead_tokens=extends.num_lookahead_tokens,
                block_hashes=extends.block_hashes.get(handle, ()),
                token_ids=extends.token_ids.get(handle, ()),
            )
            try:
                admitted = self.extend(sequence, admission, num_computed)
            except InsufficientBlocks:
                insufficient.append(handle)
            else:
                extended.append(handle)
                block_ids.append(admitted.block_ids)
        return Stepped(
            epoch=self.epoch,
            step_id=step.step_id,
            extend=StepExtended(sequences=extended, block_ids=block_ids, insufficient=insufficient),
            copies=[],
            admit=[self._admit_or_refuse(lease_id, admission) for admission in step.admit],
            num_free_blocks=len(self.free),
        )

    def _check_columns(self, step: Step) -> None:
        """What a step may not say of itself, whatever the pool holds."""
        extends = step.extend
        columns = (step.commit.sequences, step.free, extends.sequences)
        lengths = [(step.commit.sequences, step.commit.num_computed_tokens)]
        lengths.append((extends.sequences, extends.num_tokens))
        if extends.num_computed_tokens is not None:
            lengths.append((extends.sequences, extends.num_computed_tokens))
        admitted = [admission.sequence_id for admission in step.admit]
        if (
            extends.num_lookahead_tokens < 0
            or any(len(set(column)) < len(column) for column in columns)
            or any(len(handles) != len(column) for handles, column in lengths)
            or set(step.free) & set(extends.sequences)
            or {*extends.block_hashes, *extends.token_ids} - set(extends.sequences)
            or len(set(admitted)) < len(admitted)
        ):
            raise InvalidRequest.of("step", "its columns contradict each other")

    def _by_handle(self, lease_id: LeaseId, handle: SequenceHandle) -> NaiveSequence:
        for sequence in self.sequences.values():
            if (sequence.handle, sequence.lease_id) == (handle, lease_id):
                return sequence
        raise SequenceNotFound(f"the lease holds no sequence {handle}")

    def _admit_or_refuse(self, lease_id: LeaseId, admission: Admission) -> Admitted | Refused:
        known = self.sequences.get(admission.sequence_id)
        if known is not None and known.lease_id == lease_id:
            raise InvalidRequest.of("admit.sequence_id", "is admitted already")
        try:
            return self.admit(lease_id, admission)
        except InsufficientBlocks as error:
            return Refused(code=error.code, **error.figures)
        except SequenceExistsElsewhere as error:
            return Refused(code=error.code)

    # Blocks

    def take(self, num_blocks: int) -> list[BlockId]:
        """New blocks are popped from the queue's front; one that carries a hash loses it."""
        taken, self.free = self.free[:num_blocks], self.free[num_blocks:]
        for block in taken:
            self.num_evictions += self.is_cached(block)
            self.index = [entry for entry in self.index if entry[2] != block]
            self.reference_counts[block] = 1
        return taken

    def touch(self, blocks: Sequence[BlockId]) -> None:
        """A hit touches its blocks: count +1, and out of the queue if the count was zero."""
        for block in blocks:
            if block != NULL_BLOCK:
                self.reference_counts[block] += 1
                self.free = [other for other in self.free if other != block]

    def release(self, blocks: Sequence[BlockId]) -> int:
        """Counts fall by one; blocks that reach zero go to the front without a hash, to the end with one."""
        held = [block for block in blocks if block != NULL_BLOCK]
        for block in held:
            self.reference_counts[block] -= 1
        idle = [block for block in held if self.reference_counts[block] == 0]
        without_hash = [block for block in idle if not self.is_cached(block)]
        with_hash = [block for block in idle if self.is_cached(block)]
        self.free = without_hash + self.free + with_hash
        return len(idle)

    def is_cached(self, block: BlockId) -> bool:
        return any(entry[2] == block for entry in self.index)

    def find_block(self, block_hash: BlockHash, group: int) -> BlockId | None:
        """The first one registered that still stands."""
        for known_hash, known_group, block in self.index:
            if (known_hash, known_group) == (block_hash, group):
                return block
        return None

    # Kinds

    def num_skipped_blocks(self, group: GroupConfig, num_computed: int) -> int:
        """Blocks wholly before what the next token, at position ``num_computed``, looks at."""
        if group.sliding_window is not None:
            skipped = max(0, num_computed - group.sliding_window + 1)
        elif group.attention_chunk_size is not None:
            skipped = num_computed // group.attention_chunk_size * group.attention_chunk_size
        else:
            skipped = 0
        return skipped // group.block_size

    def num_blocks_cap(self, group: GroupConfig) -> int | None:
        """The most blocks that ``full_sequence_must_fit`` counts for a group."""
        in_flight = self.config.max_in_flight_tokens
        if group.sliding_window is not None:
            return _div_ceil(self._clamp(group.sliding_window - 1 + in_flight), group.block_size) + 1
        if group.attention_chunk_size is not None:
            return _div_ceil(self._clamp(group.attention_chunk_size + in_flight), group.block_size)
        return None

    # Cached prefixes

    def find(self, num_tokens: int, hashes: Sequence[BlockHash]) -> tuple[int, list[list[BlockId]]]:
        """The longest cached prefix of at most ``num_tokens - 1`` tokens, and its blocks per group.

        A group serves a length when every block that is not skipped at that length is cached: for full
        attention these are all, for a sliding window the last ``div_ceil(w - 1, block_size)``, for chunked
        local attention those from the chunk of the next position on.
        """
        bound = min(num_tokens - 1, len(hashes) * self.config.hash_block_size)
        alignment = self.config.scheduler_block_size
        for length in range(bound // alignment * alignment, 0, -alignment):
            tables = [self._hit(number, length, hashes) for number in range(len(self.config.groups))]
            served = [table for table in tables if table is not None]
            if len(served) == len(tables) and self.config.enable_prefix_caching:
                return length, served
        return 0, [[] for _ in self.config.groups]

    def _hit(self, number: int, length: int, hashes: Sequence[BlockHash]) -> list[BlockId] | None:
        """One group's blocks of a hit of ``length`` tokens, null where skipped; None if one is missing."""
        group = self.config.groups[number]
        table: list[BlockId] = [NULL_BLOCK] * self.num_skipped_blocks(group, length)
        while len(table) < length // group.block_size:
            block = self.find_block(self._hash_of_block(group, len(table), hashes), number)
            if block is None:
                return None
            table.append(block)
        return table

    def _hash_of_block(self, group: GroupConfig, position: int, hashes: Sequence[BlockHash]) -> BlockHash:
        """With hashes finer than a group's blocks, the hash of a block is the hash at its last boundary."""
        end = (position + 1) * group.block_size
        return hashes[end // self.config.hash_block_size - 1]

    def publish(self, sequence: NaiveSequence) -> int:
        """Full blocks up to what is computed (``on_allocate``) or committed, as far as hashes were sent."""
        if not self.config.enable_prefix_caching:
            return 0
        on_commit = self.config.publish is Publish.ON_COMMIT
        length = sequence.num_committed if on_commit else sequence.num_computed
        length = min(length, len(sequence.hashes) * self.config.hash_block_size)
        if len(self.config.groups) > 1:
            length = length // self.config.scheduler_block_size * self.config.scheduler_block_size
        num_published = 0
        for number, group in enumerate(self.config.groups):
            for position in range(sequence.num_published[number], length // group.block_size):
                sequence.num_published[number] = position + 1
                block = sequence.tables[number][position]
                if block != NULL_BLOCK:
                    block_hash = self._hash_of_block(group, position, sequence.hashes)
                    self.index.append((block_hash, number, block))
                    num_published += 1
        return num_published

    # Sequences

    def admit(self, lease_id: LeaseId, admission: Admission) -> Admitted:
        """A new sequence: look up; count; refuse or take the hit and give the rest; publish.

        The watermark, which must stay free, counts as needed.
        """
        self._check(admission, min_tokens=1)
        if admission.sequence_id in self.sequences:
            raise SequenceExistsElsewhere(f"{admission.sequence_id!r} is another lease's")
        tokens, hashes = self._content(None, admission.block_hashes, admission.token_ids)
        num_cached, hit = self.find(0 if admission.skip_prefix_cache else admission.num_tokens, hashes)
        num_new = min(admission.num_tokens - num_cached, admission.max_new_tokens or admission.num_tokens)
        slots = self._clamp(num_cached + num_new + admission.num_lookahead_tokens)

        watermark = self.config.watermark_blocks
        if admission.full_sequence_must_fit:
            full = self._clamp(admission.num_tokens)
            self._refuse_above_free(watermark + self._need_of_new(full, num_cached, hit, capped=True))
        self._refuse_above_free(watermark + self._need_of_new(slots, num_cached, hit, capped=False))

        if self.config.enable_prefix_caching and not admission.skip_prefix_cache:
            self.lookups.append((admission.num_tokens, num_cached))
        self._num_handles += 1
        tables = []
        for group, cached in zip(self.config.groups, hit, strict=True):
            skipped = self.num_skipped_blocks(group, num_cached)
            tables.append([NULL_BLOCK] * skipped + cached[skipped:])
            self.touch(cached[skipped:])
        for group, table in zip(self.config.groups, tables, strict=True):
            table.extend(self.take(max(_div_ceil(slots, group.block_size) - len(table), 0)))
        sequence = NaiveSequence(
            sequence_id=admission.sequence_id,
            handle=SequenceHandle(self._num_handles),
            lease_id=lease_id,
            tables=tables,
            num_published=[len(cached) for cached in hit],
            num_tokens=admission.num_tokens,
            num_computed=num_cached + num_new,
            num_committed=num_cached,
            hashes=hashes,
            tokens=tokens,
        )
        self.sequences[admission.sequence_id] = sequence
        self.publish(sequence)
        return Admitted(
            sequence=sequence.handle,
            num_cached_tokens=num_cached,
            num_new_tokens=num_new,
            block_ids=[list(table) for table in tables],
        )

    def _need_of_new(self, slots: int, num_cached: int, hit: list[list[BlockId]], *, capped: bool) -> int:
        """Blocks that leave the free queue for a new sequence."""
        need = 0
        for group, cached in zip(self.config.groups, hit, strict=True):
            skipped = self.num_skipped_blocks(group, num_cached)
            need += max(self._required(group, slots, capped=capped) - max(skipped, len(cached)), 0)
            need += len([block for block in cached[skipped:] if block in self.free])
        return need

    def extend(self, sequence: NaiveSequence, admission: Admission, num_computed: int | None) -> Admitted:
        """A known sequence: drop blocks behind the window; count; refuse or give; publish."""
        if num_computed is None:
            num_computed = sequence.num_computed
        self._check(admission, min_tokens=num_computed)
        if not sequence.num_committed <= num_computed <= sequence.num_computed:
            raise InvalidRequest.of("num_computed_tokens", "is out of range")
        tokens, hashes = self._content(sequence, admission.block_hashes, admission.token_ids)
        missing = admission.num_tokens - num_computed
        num_new = min(missing, admission.max_new_tokens or missing)
        slots = self._clamp(num_computed + num_new + admission.num_lookahead_tokens)

        if admission.full_sequence_must_fit:
            full = self._clamp(admission.num_tokens)
            self._refuse_above_free(self._need_of_known(full, sequence, capped=True))
        self._drop_behind_window(sequence, num_computed)
        self._refuse_above_free(self._need_of_known(slots, sequence, capped=False))

        appended = []
        for group, table in zip(self.config.groups, sequence.tables, strict=True):
            blocks = self.take(max(_div_ceil(slots, group.block_size) - len(table), 0))
            table.extend(blocks)
            appended.append(blocks)
        sequence.num_tokens = admission.num_tokens
        sequence.num_computed = num_computed + num_new
        sequence.tokens, sequence.hashes = tokens, hashes
        self.publish(sequence)
        return Admitted(
            sequence=sequence.handle, num_cached_tokens=None, num_new_tokens=num_new, block_ids=appended
        )

    def _need_of_known(self, slots: int, sequence: NaiveSequence, *, capped: bool) -> int:
        """Blocks that leave the free queue for a known sequence."""
        return sum(
            max(self._required(group, slots, capped=capped) - len(table), 0)
            for group, table in zip(self.config.groups, sequence.tables, strict=True)
        )

    def _drop_behind_window(self, sequence: NaiveSequence, num_computed: int) -> None:
        """From the last skipped block backwards until a null is met, in one free call, in that order."""
        if self.config.publish is Publish.ON_COMMIT:
            num_computed = min(num_computed, sequence.num_committed)
        for group, table in zip(self.config.groups, sequence.tables, strict=True):
            dropped = []
            for position in reversed(range(self.num_skipped_blocks(group, num_computed))):
                if table[position] == NULL_BLOCK:
                    break
                dropped.append(table[position])
                table[position] = NULL_BLOCK
            self.release(dropped)

    def commit(
        self,
        sequence: NaiveSequence,
        num_tokens: int,
        hashes: Sequence[BlockHash] = (),
        tokens: Sequence[int] = (),
    ) -> int:
        """These tokens' KV is written; a number below what is committed already changes nothing."""
        if not 0 <= num_tokens <= sequence.num_computed:
            raise InvalidRequest.of("num_computed_tokens", "is more than was granted")
        sequence.tokens, sequence.hashes = self._content(sequence, hashes, tokens)
        sequence.num_committed = max(sequence.num_committed, num_tokens)
        return self.publish(sequence)

    def free_sequence(self, sequence: NaiveSequence) -> int:
        """Group by group, in group order, each group's table reversed: its tail is evicted first."""
        del self.sequences[sequence.sequence_id]
        return sum(self.release(table[::-1]) for table in sequence.tables)

    def _required(self, group: GroupConfig, slots: int, *, capped: bool) -> int:
        required = _div_ceil(slots, group.block_size)
        cap = self.num_blocks_cap(group)
        return min(required, cap) if capped and cap is not None else required

    def _refuse_above_free(self, need: int) -> None:
        if need > len(self.free):
            raise InsufficientBlocks.of(need, len(self.free))

    def _clamp(self, num_tokens: int) -> int:
        limit = self.config.max_model_len
        return num_tokens if limit is None else min(num_tokens, limit)

    def _content(
        self, sequence: NaiveSequence | None, hashes: Sequence[BlockHash], tokens: Sequence[int]
    ) -> tuple[list[int], list[BlockHash]]:
        """All tokens and all hashes of a sequence, with those that a call brings: of one sort only."""
        known_tokens = sequence.tokens if sequence is not None else []
        known_hashes = sequence.hashes if sequence is not None else []
        if not tokens:
            if hashes and known_tokens:
                raise InvalidRequest.of("block_hashes", "the sequence began with token_ids")
            return list(known_tokens), [*known_hashes, *hashes]
        if hashes or (known_hashes and not known_tokens):
            raise InvalidRequest.of("token_ids", "give either hashes or tokens")
        all_tokens = [*known_tokens, *tokens]
        return all_tokens, self.hash_tokens(all_tokens)

    def _check(self, admission: Admission, *, min_tokens: int) -> None:
        """Refuse figures that are out of range, whatever the pool holds."""
        limit = self.config.max_model_len
        if (
            admission.num_tokens < min_tokens
            or (limit is not None and admission.num_tokens > limit)
            or (admission.max_new_tokens is not None and admission.max_new_tokens < 1)
            or admission.num_lookahead_tokens < 0
        ):
            raise InvalidRequest.of("admission", "a figure is out of range")


def _div_ceil(value: int, divisor: int) -> int:
    return (value + divisor - 1) // divisor
