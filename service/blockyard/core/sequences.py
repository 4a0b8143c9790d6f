"""All live sequences of a pool: admitting, extending, committing and freeing them.

A sequence is known by its scheduler's id, by a short handle, and to the lease that holds it; the three are
kept in step here and nowhere else. What a call says is checked before anything is changed: the ``check_*``
methods change nothing, and what follows them can be refused only for want of blocks.
"""

from array import array
from collections import abc

from blockyard.core.allocator import Allocator
from blockyard.core.block_store import BlockStore
from blockyard.core.chunk_ends import ChunkEnds
from blockyard.core.commands import Admission
from blockyard.core.config import PoolConfig
from blockyard.core.content import Content, ContentReader, Told
from blockyard.core.errors import InsufficientBlocks, InvalidRequest, SequenceExistsElsewhere
from blockyard.core.ids import BlockHash, BlockId, SequenceHandle, SequenceId, TenantId
from blockyard.core.kv_events import KvEvents
from blockyard.core.lease import Lease
from blockyard.core.prefix_lookup import Hit
from blockyard.core.sequence import Sequence
from blockyard.core.statistics import Counters, HitWindow

MAX_TOKENS = 2**24
"""Of a sequence: recurrent layers need few blocks for any length, but an entry of their table for each."""


class Sequences:
    """None at first.

    Args:
        config: The pool's configuration.
        stores: Its blocks, see `Allocator`.
        counters: Counted up by this object's methods.
        hits: Likewise.
        events: Told of what is published; None where nobody follows.
    """

    def __init__(
        self,
        config: PoolConfig,
        stores: abc.Sequence[BlockStore],
        counters: Counters,
        hits: HitWindow,
        events: KvEvents | None,
    ) -> None:
        self._config = config
        self._allocator = Allocator(config, stores, events)
        self.forks = self._allocator.forks
        self._chunk_ends = ChunkEnds.of(
            config.groups,
            scheduler_block_size=config.scheduler_block_size,
            hash_block_size=config.hash_block_size,
            enable_prefix_caching=config.enable_prefix_caching,
        )
        self._counters = counters
        self._hits = hits
        self._by_id: dict[tuple[TenantId, SequenceId], Sequence] = {}
        self._contents = ContentReader(config)
        self.next_handle = 1
        self.num_groups = len(config.groups)
        self.max_tokens = (
            MAX_TOKENS if config.max_model_len is None else min(config.max_model_len, MAX_TOKENS)
        )

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> abc.Iterator[Sequence]:
        return iter(self._by_id.values())

    def get(self, tenant: TenantId, sequence_id: SequenceId) -> Sequence | None:
        """The live sequence of this id that is the tenant's."""
        return self._by_id.get((tenant, sequence_id))

    def find(self, num_tokens: int, told: Told) -> Hit:
        """The longest cached prefix of ``num_tokens`` tokens. Changes nothing.

        Raises:
            InvalidRequest: Hashes and token ids are both given, or the tokens cannot be hashed.
        """
        return self._allocator.find(num_tokens, self.hashes_of(num_tokens, told))

    def find_all(self, block_hashes: abc.Sequence[BlockHash]) -> Hit:
        """The longest cached prefix of the tokens that ``block_hashes`` stand for, as more follow them."""
        return self._allocator.find(len(block_hashes) * self._config.hash_block_size + 1, block_hashes)

    def hashes_of(self, num_tokens: int | None, told: Told) -> abc.Sequence[BlockHash]:
        """Those of a prompt's first ``num_tokens`` tokens; None: of all that are told. Raises as `find`."""
        if num_tokens is None:
            num_tokens = max(len(told.token_ids), len(told.block_hashes) * self._config.hash_block_size)
        elif num_tokens < 1:
            raise InvalidRequest.of("num_tokens", "must be at least 1")
        num_hashes = num_tokens // self._config.hash_block_size
        told = told._replace(block_hashes=told.block_hashes[:num_hashes])
        return self._contents.hashed(None, num_tokens, told).block_hashes

    def check_content(self, sequence: Sequence, num_tokens: int, told: Told) -> Content:
        """What a call tells of ``sequence``, which has ``num_tokens``. Raises as `ContentReader.read`."""
        return self._contents.read(sequence, num_tokens, told)

    def check_admission(self, admission: Admission, tenant: TenantId, known: Sequence | None) -> Content:
        """Refuse what no pool could grant.

        Args:
            admission: What is asked for.
            tenant: Who asks.
            known: The sequence, if the lease holds it already.

        Returns:
            Its content.

        Raises:
            InvalidRequest: A figure is out of range, or the content is not valid.
        """
        self._check_num_tokens(admission.num_tokens)
        if admission.max_new_tokens is not None and admission.max_new_tokens < 1:
            raise InvalidRequest.of("max_new_tokens", "must be at least 1, or left out")
        if admission.num_lookahead_tokens < 0:
            raise InvalidRequest.of("num_lookahead_tokens", "must be at least 0")
        if admission.num_prompt_tokens is not None and admission.num_prompt_tokens < 1:
            raise InvalidRequest.of("num_prompt_tokens", "must be at least 1, or left out")
        if admission.num_encoder_tokens < 0:
            raise InvalidRequest.of("num_encoder_tokens", "must be at least 0")
        told = Told(
            admission.block_hashes,
            admission.token_ids,
            admission.event_token_ids,
            admission.extras,
            tenant,
            admission.tenant_only,
        )
        return self._contents.read(known, admission.num_tokens, told)

    def check_free_id(self, tenant: TenantId, sequence_id: SequenceId) -> None:
        """Refuse an id that no new sequence of ``tenant`` may have.

        Raises:
            SequenceExistsElsewhere: One of its leases has a sequence of this id.
        """
        if (tenant, sequence_id) in self._by_id:
            raise SequenceExistsElsewhere(
                f"sequence {sequence_id!r} is another lease's: free it there, or use another id"
            )

    def admit(
        self, lease: Lease, admission: Admission, content: Content, num_reserved_blocks: int
    ) -> Sequence:
        """Begin a sequence that ``lease`` does not hold, after `check_admission`.

        Args:
            lease: Whose it will be.
            admission: What is asked for.
            content: What `check_admission` returned.
            num_reserved_blocks: Free blocks to leave to those who wait.

        Returns:
            The sequence: what it has committed are the tokens of its hit, what else it was granted is new.

        Raises:
            SequenceExistsElsewhere: Another lease holds its id.
            InsufficientBlocks: Nothing was given; the sequence does not exist.
        """
        tenant = lease.tenant.name
        self.check_free_id(tenant, admission.sequence_id)
        num_tokens = admission.num_tokens
        if admission.skip_prefix_cache:
            hit = self._allocator.no_hit()
        else:
            hit = self._allocator.find(num_tokens, content.block_hashes, lease.lease_id)
        num_prompt_tokens = admission.num_prompt_tokens
        sequence = Sequence(
            sequence_id=admission.sequence_id,
            handle=SequenceHandle(self.next_handle),
            lease_id=lease.lease_id,
            tenant=tenant,
            scope=content.scope,
            num_tokens=num_tokens,
            num_prompt_tokens=num_tokens if num_prompt_tokens is None else num_prompt_tokens,
            num_encoder_tokens=admission.num_encoder_tokens,
            block_hashes=list(content.block_hashes),
            chain=content.chain,
            token_ids=None if self._config.events is None else array("Q", content.token_ids),
        )
        num_new = self.num_new_tokens(sequence, admission, hit.num_tokens)
        try:
            self._allocator.admit(
                sequence,
                hit,
                lease.copies,
                num_new_tokens=num_new,
                num_lookahead_tokens=admission.num_lookahead_tokens,
                must_fit_tokens=num_tokens if admission.full_sequence_must_fit else 0,
                num_reserved_blocks=num_reserved_blocks,
            )
        except InsufficientBlocks:
            self._counters.num_refused_allocations += 1
            raise
        self.next_handle += 1
        self.register(lease, sequence)
        self._counters.num_admitted_sequences += 1
        self.note_granted(num_new)
        if self._config.enable_prefix_caching and not admission.skip_prefix_cache:
            self._hits.add(num_tokens, hit.num_tokens)
            self._counters.num_queried_tokens += num_tokens
            self._counters.num_hit_tokens += hit.num_tokens
        self._publish(sequence)
        return sequence

    def num_new_tokens(
        self, sequence: Sequence, admission: Admission, num_computed_tokens: int | None
    ) -> int:
        """How many tokens ``admission`` wants slots for.

        Args:
            sequence: The sequence, new or to be extended.
            admission: What is asked for.
            num_computed_tokens: Tokens before them; None for all that have slots.
        """
        begin = sequence.num_granted_tokens if num_computed_tokens is None else num_computed_tokens
        end = num_tokens = admission.num_tokens
        if admission.max_new_tokens is not None:
            end = min(end, begin + admission.max_new_tokens)
        if admission.end_at_state and self._chunk_ends is not None:
            end = self._chunk_ends.end_of_chunk(begin, end, sequence.num_prompt_tokens, num_tokens)
        return end - begin

    def check_extension(
        self,
        sequence: Sequence,
        num_tokens: int,
        num_computed_tokens: int | None,
        num_committed_tokens: int = 0,
    ) -> None:
        """Refuse counts that contradict what the pool knows.

        Args:
            sequence: The sequence to extend.
            num_tokens: Tokens that it shall have.
            num_computed_tokens: The caller's count of those computed; None for the pool's.
            num_committed_tokens: Tokens that will have been committed by then.

        Raises:
            InvalidRequest: A count is out of range.
        """
        self._check_num_tokens(num_tokens)
        name = f"sequence {sequence.sequence_id!r}"
        if num_computed_tokens is None:
            num_computed_tokens = sequence.num_granted_tokens
        elif num_computed_tokens > sequence.num_granted_tokens:
            raise InvalidRequest.of(
                "num_computed_tokens",
                f"{name} has {sequence.num_granted_tokens} tokens: {num_computed_tokens} cannot be computed",
            )
        elif num_computed_tokens < num_committed_tokens or not self._allocator.can_take_back(
            sequence, num_computed_tokens
        ):
            raise InvalidRequest.of(
                "num_computed_tokens",
                f"{name} cannot go back to {num_computed_tokens} tokens: later ones are committed or "
                "published, or look back on blocks that were dropped; free it and start it again",
            )
        if num_tokens < num_computed_tokens:
            raise InvalidRequest.of(
                "num_tokens",
                f"{name} has {num_computed_tokens} tokens already, more than {num_tokens}; "
                "if speculated tokens were rejected, say so with num_computed_tokens",
            )

    def extend(
        self,
        lease: Lease,
        sequence: Sequence,
        *,
        num_tokens: int,
        num_computed_tokens: int | None,
        num_lookahead_tokens: int,
        content: Content | None,
        num_new_tokens: int | None = None,
        full_sequence_must_fit: bool = False,
    ) -> tuple[int, list[list[BlockId]]]:
        """Give a sequence of ``lease`` slots for ``num_new_tokens`` more (None: all) after `check_extension`.

        Returns:
            The number of tokens that were given slots, and per group the blocks appended.

        Raises:
            InsufficientBlocks: Nothing was given, though blocks behind the window were dropped.
        """
        is_recount = num_computed_tokens is not None
        if num_computed_tokens is None:
            num_computed_tokens = sequence.num_granted_tokens
        num_new = num_tokens - num_computed_tokens if num_new_tokens is None else num_new_tokens
        try:
            appended = self._allocator.extend(
                sequence,
                lease.copies,
                num_granted_tokens=num_computed_tokens,
                num_new_tokens=num_new,
                num_lookahead_tokens=num_lookahead_tokens,
                must_fit_tokens=num_tokens if full_sequence_must_fit else 0,
            )
        except InsufficientBlocks:
            self._counters.num_refused_allocations += 1
            raise
        sequence.num_tokens = num_tokens if is_recount else max(sequence.num_tokens, num_tokens)
        self.note_granted(num_new)
        if content is not None:
            self._learn(sequence, content)
        self._publish(sequence)
        self._allocator.headroom.note(sequence)
        return num_new, appended

    def note_granted(self, num_tokens: int) -> None:
        """So many tokens more were given slots."""
        self._counters.num_granted_tokens += num_tokens

    @staticmethod
    def check_commit(sequence: Sequence, num_computed_tokens: int) -> None:
        """Refuse to commit tokens that were never granted.

        Raises:
            InvalidRequest: ``num_computed_tokens`` is out of range.
        """
        if not 0 <= num_computed_tokens <= sequence.num_granted_tokens:
            raise InvalidRequest.of(
                "num_computed_tokens",
                f"sequence {sequence.sequence_id!r} was granted {sequence.num_granted_tokens} tokens: "
                f"{num_computed_tokens} cannot be computed",
            )

    def commit(self, sequence: Sequence, num_computed_tokens: int, content: Content | None = None) -> int:
        """Note that tokens are written, after `check_commit`; fewer than before change nothing.

        Returns:
            How many blocks were published.
        """
        sequence.num_committed_tokens = max(sequence.num_committed_tokens, num_computed_tokens)
        if content is not None:
            self._learn(sequence, content)
        num_published = self._publish(sequence)
        self._allocator.headroom.note(sequence)
        return num_published

    def check_fork(
        self, lease: Lease, sequence: Sequence, new_ids: abc.Sequence[SequenceId], told: Told
    ) -> Content:
        """Refuse forks of a sequence of ``lease`` that no pool could grant.

        Args:
            lease: Whose they will be.
            sequence: What is to be forked.
            new_ids: Of the forks.
            told: What is told of the sequence's tokens.

        Returns:
            Its content.

        Raises:
            InvalidRequest: No id is given, too many are, or one twice or of a sequence of the lease; or the
                sequence cannot be forked where it stands, or its content is not valid.
            SequenceExistsElsewhere: Another lease of the tenant has a sequence of one of these ids.
        """
        self.forks.check(sequence, new_ids, lease.sequences)
        for sequence_id in new_ids:
            self.check_free_id(sequence.tenant, sequence_id)
        content = self.check_content(sequence, sequence.num_tokens, told)
        self._contents.check_fork(sequence, content)
        return content

    def fork(
        self, lease: Lease, sequence: Sequence, new_ids: abc.Sequence[SequenceId], content: Content
    ) -> list[Sequence]:
        """Begin forks of a sequence of ``lease``, after `check_fork`, which has returned ``content``.

        Raises:
            InsufficientBlocks: There are too few for what cannot be shared; nothing was done.
        """
        try:
            self._allocator.require_forks(sequence, len(new_ids))
        except InsufficientBlocks:
            self._counters.num_refused_allocations += 1
            raise
        self._learn(sequence, content)
        self._publish(sequence)
        forks = []
        each = self.forks.fork(sequence, len(new_ids), lease.copies)
        for sequence_id, tables in zip(new_ids, each, strict=True):
            fork = sequence.forked(sequence_id, SequenceHandle(self.next_handle), tables)
            self.next_handle += 1
            self.register(lease, fork)
            forks.append(fork)
        self._counters.num_admitted_sequences += len(forks)
        self._counters.num_forked_sequences += len(forks)
        self._allocator.headroom.note(sequence)
        return forks

    def free(self, lease: Lease, sequence: Sequence) -> int:
        """End a sequence of ``lease``. Returns how many blocks became free."""
        del lease.sequences[sequence.sequence_id]
        del self._by_id[sequence.tenant, sequence.sequence_id]
        lease.tenant.num_sequences -= 1
        del lease.by_handle[sequence.handle]
        self._counters.num_freed_sequences += 1
        return self._allocator.free(sequence)

    def register(self, lease: Lease, sequence: Sequence) -> None:
        """Make a sequence known by its id and handle, and to the lease that holds it."""
        lease.sequences[sequence.sequence_id] = sequence
        self._by_id[sequence.tenant, sequence.sequence_id] = sequence
        lease.tenant.num_sequences += 1
        lease.by_handle[sequence.handle] = sequence

    def _check_num_tokens(self, num_tokens: int) -> None:
        if num_tokens < 1:
            raise InvalidRequest.of("num_tokens", "must be at least 1")
        limit = self._config.max_model_len
        if limit is not None and num_tokens > limit:
            raise InvalidRequest.of("num_tokens", f"{num_tokens} is above the pool's max_model_len, {limit}")
        if num_tokens > MAX_TOKENS:
            raise InvalidRequest.of(
                "num_tokens", f"{num_tokens} is above {MAX_TOKENS}: no sequence has as many"
            )

    def _learn(self, sequence: Sequence, content: Content) -> None:
        if content.block_hashes:
            sequence.block_hashes += content.block_hashes
        sequence.chain = content.chain
        sequence.scope = content.scope
        if sequence.token_ids is not None:
            sequence.token_ids.extend(content.token_ids)

    def _publish(self, sequence: Sequence) -> int:
        num_published = self._allocator.publish(sequence)
        self._counters.num_published_blocks += num_published
        return num_published
